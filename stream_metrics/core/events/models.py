"""The published contract: what a producer may send, as pydantic models.

The worker itself decodes with ``wire``, which is faster; a test holds both to the same verdict.
These models are for producers who want to check an event before they send it, and for the
documents that ``schema`` generates. Limits on counts and sizes are settings of the worker: they
are shown as ``x-default-limit`` and not enforced here.

>>> read(b'{"type": "forget", "event_id": "e1", "occurred_at": 1718010925, "conversation_id": "c"}')
... # doctest: +ELLIPSIS
Forget(version=None, event_id='e1', occurred_at=1718010925...)
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema

from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.times import parse_rfc3339

_LIMITS: Final = Limits()
_MAX_INT: Final = 2**31 - 1
_MAX_TURN: Final = 2**53 - 1  # a start in Unix microseconds fits
_DOC_ID_LENGTH: Final = 256
_DATE_TIME: Final = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3])(:[0-5][0-9]){2}"
    r"(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)


def _limit(count: int, unit: str) -> dict[str, Any]:
    return {"x-default-limit": count, "x-limit-unit": unit}


def _date_time(text: str) -> str:
    if parse_rfc3339(text) is None:
        raise ValueError("not an RFC 3339 date-time with an offset")
    return text


def _without_doc_id(ids: dict[str, Any]) -> dict[str, Any]:
    if ids.get("doc_id") is not None:
        raise ValueError("doc_id belongs in its own field, not in ids")
    return ids


def _without_repeats(documents: list[str]) -> list[str]:
    if len(set(documents)) != len(documents):
        raise ValueError("a document is listed twice")
    return documents


def _document_keys(grades: dict[str, Any]) -> dict[str, Any]:
    if any(not 1 <= len(d) <= _DOC_ID_LENGTH and g is not None for d, g in grades.items()):
        raise ValueError(f"a doc_id must have 1 to {_DOC_ID_LENGTH} characters")
    return grades


Handle = Annotated[str, Field(min_length=1, max_length=128)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
DocId = Annotated[str, Field(min_length=1, max_length=_DOC_ID_LENGTH)]
Count = Annotated[int, Field(ge=1, le=_MAX_INT)]
Ordinal = Annotated[int, Field(ge=0, le=_MAX_INT)]
TurnNumber = Annotated[int, Field(ge=1, le=_MAX_TURN)]
Gain = Annotated[int, Field(ge=0, le=4)]
Version = Annotated[int, Field(ge=1, le=1), WithJsonSchema({"const": 1})]
Scalar = str | bool | int | float
DateTime = Annotated[
    str,
    AfterValidator(_date_time),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _DATE_TIME}),
]
Ids = Annotated[dict[str, str | list[str | None] | None], AfterValidator(_without_doc_id)]
RelevantList = Annotated[
    list[DocId], AfterValidator(_without_repeats), Field(json_schema_extra={"uniqueItems": True})
]
RelevantGrades = Annotated[
    dict[str, Gain | None],
    AfterValidator(_document_keys),
    Field(json_schema_extra={"propertyNames": {"minLength": 1, "maxLength": _DOC_ID_LENGTH}}),
]


class _Model(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="ignore", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Result(_Model):
    """One hit of a search. Its rank is its place in `results`, counted from 1."""

    result_id: Handle = Field(examples=["r1"])
    """Handle by which labels refer to this result; unique in the turn. Not used for
    deduplication."""
    entity_type: Name | None = Field(None, examples=["File", "Email"])
    """Kind of document; absent means `Document`."""
    ids: Ids | None = Field(
        None,
        examples=[{"file_id": "F-77", "drive_id": ["D-1", "D-2"]}],
        json_schema_extra={
            "properties": {"doc_id": {"type": "null"}},
            **_limit(_LIMITS.ids_per_result, "names; lists hold up to 64 values"),
        },
    )
    """Identifiers of the document in its own system, by component name. Must not contain
    `doc_id`."""
    doc_id: DocId | None = Field(None, examples=["doc-4711"])
    """General identifier of the retrieved unit (a chunk's id if chunks are retrieved); relevance
    judgements refer to documents by it."""
    url: str | None = Field(
        None,
        examples=["https://intranet.example/policies/travel"],
        json_schema_extra=_limit(_LIMITS.url_bytes, "bytes of UTF-8"),
    )
    """Address of the document. One that cannot be parsed counts as absent."""
    title: str | None = Field(None, examples=["Travel policy"])
    """Title as shown."""
    snippet: str | None = None
    """Excerpt as shown to the agent."""
    content: str | None = None
    """Full text, if the search returned it."""
    fields: dict[str, Scalar | list[Scalar | None] | None] | None = Field(
        None,
        examples=[{"file_name": "travel.pdf", "author": ["Ann", "Bo"], "pages": 12}],
        json_schema_extra=_limit(_LIMITS.fields_per_result, "names; lists hold up to 64 values"),
    )
    """Further properties of the entity type, in snake_case: scalars or flat lists."""
    score: float | None = Field(None, examples=[0.83])
    """The retriever's own score, on any scale."""
    baseline_rank: Count | None = Field(None, examples=[3])
    """Rank before reranking, from 1."""
    gain: Gain | None = Field(None, examples=[3])
    """Relevance known at search time, from 0 (useless) to 4; any label event overrides it."""


class Routing(_Model):
    """Which index or tool a search was sent to."""

    selected: Name = Field(examples=["tickets"])
    """The route taken."""
    scores: dict[str, float | None] | None = Field(None, examples=[{"tickets": 0.7, "mail": 0.2}])
    """The router's score for each route, on any scale."""


class Search(_Model):
    """One search call with what it returned."""

    search_id: Handle = Field(examples=["s1"])
    """Identifies the search within its turn; a later event with this id replaces it."""
    ordinal: Ordinal | None = Field(None, examples=[0])
    """Position among the searches of the iteration; absent counts as 0."""
    query: str | None = Field(None, examples=["travel policy 2024"])
    """The query. A search that repeats query and route of an earlier one of its turn is counted."""
    routing: Routing | None = None
    """The route, if there is a choice."""
    results: list[Result] | None = Field(
        None, json_schema_extra=_limit(_LIMITS.results_per_event, "results in one event")
    )
    """Hits in the order shown; empty or absent means that the search found nothing."""


class Gate(_Model):
    """The decision, taken before an iteration, whether to search at all."""

    decision: Literal["search", "skip"]
    """What was decided."""
    score: float | None = Field(None, examples=[0.41])
    """How certain the gate was, on any scale."""


class Label(_Model):
    """A judgement on one result."""

    result_id: Handle = Field(examples=["r1"])
    """The result that is judged."""
    gain: Gain | None = Field(examples=[4, None])
    """From 0 to 4; null withdraws an earlier judgement. Required in both cases."""


class RoutingLabel(_Model):
    """A judgement on the route of one search."""

    search_id: Handle = Field(examples=["s1"])
    """The search that is judged."""
    optimal: str | None = Field(examples=["tickets", None])
    """The route that would have been best; null withdraws an earlier judgement. Required in both
    cases."""


class GateLabel(_Model):
    """A judgement on the gate's decision for one iteration."""

    iteration: Count = Field(examples=[1])
    """The iteration that is judged."""
    search_needed: bool | None = Field(examples=[True, None])
    """Whether a search was needed; null withdraws an earlier judgement. Required in both cases."""


class _Envelope(_Model):
    version: Version | None = None
    """Version of this contract; absent means 1."""
    event_id: Handle = Field(examples=["0190f5fe-7c00-7a00-8000-0123456789ab"])
    """Unique for each event; stays the same when a producer sends the event again."""
    occurred_at: DateTime | float = Field(examples=["2024-06-10T09:15:25.5+02:00", 1718010925.5])
    """Time of the event: RFC 3339 with an offset, or Unix time in seconds; kept to the microsecond.
    From 2000-01-01 up to one day after the record's timestamp."""
    conversation_id: Handle = Field(examples=["conv-42"])
    """The conversation; the record's key is this text in UTF-8."""


class _TurnEnvelope(_Envelope):
    turn: TurnNumber = Field(examples=[1])
    """Number of the turn in the conversation, from 1."""


class SearchIteration(_TurnEnvelope):
    """An iteration of the agent's search loop, or a part of one: events of one iteration merge."""

    example: ClassVar[dict[str, Any]] = {
        "type": "search_iteration",
        "event_id": "e-1",
        "occurred_at": "2024-06-10T09:15:25.5+02:00",
        "conversation_id": "conv-42",
        "turn": 1,
        "agent": "support",
        "iteration": 1,
        "gate": {"decision": "search", "score": 0.9},
        "searches": [
            {
                "search_id": "s1",
                "query": "travel policy",
                "routing": {"selected": "files", "scores": {"files": 0.8, "mail": 0.2}},
                "results": [
                    {
                        "result_id": "r1",
                        "entity_type": "File",
                        "ids": {"file_id": "F-77"},
                        "doc_id": "doc-4711",
                        "url": "https://intranet.example/policies/travel",
                        "title": "Travel policy",
                        "fields": {"file_name": "travel.pdf", "author": ["Ann", "Bo"]},
                        "score": 0.83,
                        "baseline_rank": 3,
                    }
                ],
            }
        ],
    }

    type: Literal["search_iteration"]
    agent: Name | None = Field(None, examples=["support"])
    """Which agent searched; absent means `default`."""
    release: Name | None = Field(None, examples=["2024-06"])
    """Which release of the agent."""
    iteration: Count = Field(examples=[1])
    """The producer's number of the iteration; gaps are fine."""
    gate: Gate | None = None
    """The gate's decision, if there is a gate."""
    searches: list[Search] | None = Field(
        None, json_schema_extra=_limit(_LIMITS.searches_per_event, "searches in one event")
    )
    """The searches made; none after a gate that said `skip`."""


class RelevanceLabels(_TurnEnvelope):
    """Judgements; they may come before or after what they judge."""

    example: ClassVar[dict[str, Any]] = {
        "type": "relevance_labels",
        "event_id": "e-2",
        "occurred_at": 1718003800,
        "conversation_id": "conv-42",
        "turn": 1,
        "labeller": "judge-v3",
        "source": "model",
        "sample": "random",
        "labels": [{"result_id": "r1", "gain": 4}, {"result_id": "r2", "gain": None}],
        "routing": [{"search_id": "s1", "optimal": "files"}],
        "gate": [{"iteration": 1, "search_needed": True}],
    }

    type: Literal["relevance_labels"]
    labels: list[Label] | None = Field(
        None, json_schema_extra=_limit(_LIMITS.labels_per_event, "labels of all kinds in one event")
    )
    """Judgements on results."""
    labeller: str | None = Field(None, examples=["judge-v3", "human"])
    """Who judged."""
    routing: list[RoutingLabel] | None = None
    """Judgements on routes."""
    gate: list[GateLabel] | None = None
    """Judgements on gate decisions."""
    source: Literal["human", "model"] | None = Field(None, examples=["model"])
    """Whether people or a model judged. Absent means `human`, unless `labeller` matches a pattern
    of the worker's setting `labels.model_labellers`. A judgement of one source never replaces one
    of the other."""
    sample: Literal["random", "chosen"] | None = Field(None, examples=["random"])
    """`random` says, for good, that the turn was drawn at random for this source to judge, also
    without a judgement; absent means `chosen`, which says nothing about other turns."""


class TurnCompleted(_TurnEnvelope):
    """What is known at the end of a turn; a later event replaces an earlier one completely."""

    example: ClassVar[dict[str, Any]] = {
        "type": "turn_completed",
        "event_id": "e-3",
        "occurred_at": "2024-06-10T07:16:00Z",
        "conversation_id": "conv-42",
        "turn": 1,
        "question": "Who pays for the train?",
        "answer": "The company does.",
        "relevant": {"doc-4711": 4, "doc-9": 1},
        "dimensions": {"language": "en"},
    }

    type: Literal["turn_completed"]
    answer: str | None = None
    """The answer given."""
    reference_answers: list[str | None] | None = None
    """Answers that would be right."""
    relevant: RelevantGrades | RelevantList | None = Field(
        None,
        examples=[{"doc-4711": 4, "doc-9": 1}, ["doc-4711", "doc-9"]],
        json_schema_extra=_limit(_LIMITS.relevant_per_event, "documents"),
    )
    """All relevant documents: `doc_id` to grade 0-4, or a list in which each has grade 2."""
    question: str | None = None
    """What the user asked."""
    dimensions: dict[str, str | None] | None = Field(
        None, examples=[{"language": "de", "difficulty": "hard"}]
    )
    """Strata for offline reports."""


class Forget(_Envelope):
    """Erase what is known of the conversation up to this event."""

    example: ClassVar[dict[str, Any]] = {
        "type": "forget",
        "event_id": "e-4",
        "occurred_at": "2024-07-01T00:00:00Z",
        "conversation_id": "conv-42",
    }

    type: Literal["forget"]
    turn: TurnNumber | None = None
    """Not used: the whole conversation is erased."""


AnyEvent = SearchIteration | RelevanceLabels | TurnCompleted | Forget
Event = Annotated[AnyEvent, Field(discriminator="type")]
MODELS: Final[dict[str, type[AnyEvent]]] = {
    model.example["type"]: model for model in get_args(AnyEvent)
}
"""The models by the names of their types, in the order of the contract."""
EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Event)


def read(value: bytes) -> AnyEvent:
    """The event in ``value``; raises ``ValueError`` (pydantic's is one) when there is none.

    JSON is read strictly: UTF-8 without a byte order mark, no lone surrogates, no NaN, and no
    number beyond the range of a double, be it in a field that nobody knows.
    """
    try:
        document = json.loads(value.decode(), parse_constant=_refuse, parse_int=_integer)
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (RecursionError, OverflowError):
        raise ValueError("nested too deep, or a number beyond the doubles") from None
    return EVENT.validate_python(document)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _integer(digits: str) -> int:
    number = int(digits)
    float(number)
    return number
