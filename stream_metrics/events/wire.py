"""The events as the worker decodes them: msgspec structs, fast and strict.

The published contract is ``models`` (pydantic); a test holds the two equal over a corpus of valid
and broken events. A field that is null reads as absent. Numbers are strict: ``1.0`` and ``true``
are no integers. The structs refuse unknown fields, which events may have: ``fields.convert`` notes
them and leaves them out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Handle = Annotated[str, Meta(min_length=1, max_length=128)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
DocId = Annotated[str, Meta(min_length=1, max_length=256)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Ordinal = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TurnNumber = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Gain = Annotated[int, Meta(ge=0, le=4)]
Scalar = str | bool | int | float


class Result(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """One result of a search, as sent."""

    result_id: Handle
    entity_type: Name | None = None
    ids: dict[str, str | list[str | None] | None] | None = None
    doc_id: DocId | None = None
    url: str | None = None
    title: str | None = None
    snippet: str | None = None
    content: str | None = None
    fields: dict[str, Scalar | list[Scalar | None] | None] | None = None
    score: float | None = None
    baseline_rank: Count | None = None
    gain: Gain | None = None


class Routing(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """The route that a search took, and what the router thought of the others."""

    selected: Name
    scores: dict[str, float | None] | None = None


class Search(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """One search call of an iteration."""

    search_id: Handle
    ordinal: Ordinal | None = None
    query: str | None = None
    routing: Routing | None = None
    results: list[Result] | None = None


class Gate(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """What the gate decided before the iteration: to search or not to."""

    decision: Literal["search", "skip"]
    score: float | None = None


class Label(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """A relevance label; ``gain`` None withdraws."""

    result_id: Handle
    gain: Gain | None


class RoutingLabel(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """Which route would have been the best for a search; None withdraws."""

    search_id: Handle
    optimal: str | None


class GateLabel(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """Whether an iteration needed a search; None withdraws."""

    iteration: Count
    search_needed: bool | None


class _Envelope(Struct, gc=False, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields that ``decode`` reads by itself."""

    type: Any = None
    version: Any = None
    occurred_at: Any = None


class _WithoutAgent(_Envelope, gc=False, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Types of which ``agent`` and ``release`` are ignored, whatever they are."""

    agent: Any = None
    release: Any = None


class SearchIteration(_Envelope, gc=False, frozen=True, forbid_unknown_fields=True):
    """Payload of ``search_iteration``."""

    conversation_id: Handle
    event_id: Handle
    turn: TurnNumber
    iteration: Count
    agent: Name | None = None
    release: Name | None = None
    gate: Gate | None = None
    searches: list[Search] | None = None


class RelevanceLabels(_WithoutAgent, gc=False, frozen=True, forbid_unknown_fields=True):
    """Payload of ``relevance_labels``."""

    conversation_id: Handle
    event_id: Handle
    turn: TurnNumber
    labels: list[Label] | None = None
    labeller: str | None = None
    routing: list[RoutingLabel] | None = None
    gate: list[GateLabel] | None = None


class TurnCompleted(_WithoutAgent, gc=False, frozen=True, forbid_unknown_fields=True):
    """Payload of ``turn_completed``; the texts are used by offline replay only."""

    conversation_id: Handle
    event_id: Handle
    turn: TurnNumber
    answer: str | None = None
    reference_answers: list[str | None] | None = None
    relevant: dict[str, Gain | None] | list[DocId] | None = None  # keys: see ``decode``
    question: str | None = None
    dimensions: dict[str, str | None] | None = None


class Forget(_WithoutAgent, gc=False, frozen=True, forbid_unknown_fields=True):
    """Payload of ``forget``: none but the envelope, whose ``turn`` may be there and is not used."""

    conversation_id: Handle
    event_id: Handle
    turn: TurnNumber | None = None


Payload = SearchIteration | RelevanceLabels | TurnCompleted | Forget

PAYLOADS: dict[str, type[Payload]] = {
    "search_iteration": SearchIteration,
    "relevance_labels": RelevanceLabels,
    "turn_completed": TurnCompleted,
    "forget": Forget,
}
