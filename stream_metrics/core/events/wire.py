"""The msgspec structs with which the worker decodes events.

The published contract is ``models`` (pydantic); a test compares both over a corpus of valid and
invalid events. A null field counts as absent. Numbers are strict: ``1.0`` and ``true`` are not
integers. The structs reject unknown fields, which events may have; ``fields.convert`` removes and
reports them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from msgspec import Meta, Struct

from stream_metrics.core.events.limits import Limits, present, too_many

Handle = Annotated[str, Meta(min_length=1, max_length=128)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
DocId = Annotated[str, Meta(min_length=1, max_length=256)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Ordinal = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TurnNumber = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Gain = Annotated[int, Meta(ge=0, le=4)]
Scalar = str | bool | int | float


class Result(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """One result of a search."""

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

    def over_limit(self, limits: Limits) -> str | None:
        """What of it exceeds the limits, if anything."""
        url, ids, fields = self.url, self.ids, self.fields
        if url is not None and len(url) * 4 > limits.url_bytes:
            size = len(url.encode())
            if size > limits.url_bytes:
                return too_many("url (bytes)", size, limits.url_bytes)
        problem = None
        if ids:
            problem = _names("ids of a result", ids, limits.ids_per_result, limits)
        if fields and problem is None:
            problem = _names("fields of a result", fields, limits.fields_per_result, limits)
        return problem


def _names(what: str, entries: dict[str, Any], most: int, limits: Limits) -> str | None:
    if len(entries) > most:
        count = present(entries, most)
        if count > most:
            return too_many(what, count, most)
    longest = limits.values_per_list
    for value in entries.values():
        if type(value) is list and len(value) > longest:
            return too_many(f"values in a list of the {what}", len(value), longest)
    return None


class Routing(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """The route that a search took, and the router's scores."""

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
    """The gate's decision before the iteration: to search or to skip."""

    decision: Literal["search", "skip"]
    score: float | None = None


class Label(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """A relevance label; ``gain`` None withdraws it."""

    result_id: Handle
    gain: Gain | None


class RoutingLabel(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """The best route for a search; None withdraws the label."""

    search_id: Handle
    optimal: str | None


class GateLabel(Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """Whether an iteration needed a search; None withdraws the label."""

    iteration: Count
    search_needed: bool | None


class _Envelope(Struct, gc=False, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields that ``decode`` reads separately; ``kind`` is the name of the event type."""

    kind: ClassVar[str]

    type: Any = None
    version: Any = None
    occurred_at: Any = None

    def over_limit(self, limits: Limits) -> str | None:
        """A message if the payload exceeds a limit, else None; null entries are not counted."""
        return None

    @property
    def missing_content(self) -> str:
        """What is missing if the event has no content; otherwise empty."""
        return ""


class _WithoutAgent(_Envelope, gc=False, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Types whose ``agent`` and ``release`` are ignored."""

    agent: Any = None
    release: Any = None


class SearchIteration(_Envelope, gc=False, frozen=True, forbid_unknown_fields=True):
    """Payload of ``search_iteration``."""

    kind: ClassVar[str] = "search_iteration"

    conversation_id: Handle
    event_id: Handle
    turn: TurnNumber
    iteration: Count
    agent: Name | None = None
    release: Name | None = None
    gate: Gate | None = None
    searches: list[Search] | None = None

    def over_limit(self, limits: Limits) -> str | None:
        """See ``_Envelope``."""
        searches = self.searches or ()
        if len(searches) > limits.searches_per_event:
            return too_many("searches", len(searches), limits.searches_per_event)
        total = 0
        for search in searches:
            total += len(search.results or ())
            for result in search.results or ():
                problem = result.over_limit(limits)
                if problem is not None:
                    return problem
        if total > limits.results_per_event:
            return too_many("results", total, limits.results_per_event)
        return None

    @property
    def missing_content(self) -> str:
        """See ``_Envelope``."""
        return "" if self.searches or self.gate else "neither searches nor a gate decision"


class RelevanceLabels(_WithoutAgent, gc=False, frozen=True, forbid_unknown_fields=True):
    """Payload of ``relevance_labels``."""

    kind: ClassVar[str] = "relevance_labels"

    conversation_id: Handle
    event_id: Handle
    turn: TurnNumber
    labels: list[Label] | None = None
    labeller: str | None = None
    routing: list[RoutingLabel] | None = None
    gate: list[GateLabel] | None = None
    source: Literal["human", "model"] | None = None
    sample: Literal["random", "chosen"] | None = None

    def over_limit(self, limits: Limits) -> str | None:
        """See ``_Envelope``."""
        count = len(self.labels or ()) + len(self.routing or ()) + len(self.gate or ())
        if count > limits.labels_per_event:
            return too_many("labels", count, limits.labels_per_event)
        return None

    @property
    def missing_content(self) -> str:
        """See ``_Envelope``."""
        sampled = self.sample == "random"
        return "" if self.labels or self.routing or self.gate or sampled else "no label at all"


class TurnCompleted(_WithoutAgent, gc=False, frozen=True, forbid_unknown_fields=True):
    """Payload of ``turn_completed``; the texts are used by offline replay only."""

    kind: ClassVar[str] = "turn_completed"

    conversation_id: Handle
    event_id: Handle
    turn: TurnNumber
    answer: str | None = None
    reference_answers: list[str | None] | None = None
    relevant: dict[str, Gain | None] | list[DocId] | None = None  # keys: see ``decode``
    question: str | None = None
    dimensions: dict[str, str | None] | None = None

    def over_limit(self, limits: Limits) -> str | None:
        """See ``_Envelope``."""
        count = present(self.relevant or {}, limits.relevant_per_event)
        if count > limits.relevant_per_event:
            return too_many("relevant", count, limits.relevant_per_event)
        return None


class Forget(_WithoutAgent, gc=False, frozen=True, forbid_unknown_fields=True):
    """Payload of ``forget``; ``turn`` is allowed and ignored."""

    kind: ClassVar[str] = "forget"

    conversation_id: Handle
    event_id: Handle
    turn: TurnNumber | None = None


Payload = SearchIteration | RelevanceLabels | TurnCompleted | Forget

PAYLOADS: Final[dict[str, type[Payload]]] = {struct.kind: struct for struct in get_args(Payload)}
