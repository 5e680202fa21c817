"""The interpretation of a trace, as plain data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from stream_metrics.core.telemetry.contents.documents import Document
from stream_metrics.core.telemetry.recordings import Recording

MAX_LISTED_REFUSALS: Final = 100
MAX_MESSAGE_LENGTH: Final = 1_000
FIXED: Final = "a limit without a setting"
LIMITED: Final = frozenset({"too_large", "no_room"})
"""The reasons that are about limits."""

Reason = Literal[
    "no_identity",
    "ambiguous_documents",
    "truncated",
    "content_off",
    "no_conversation",
    "incomplete",
    "unrecognised",
    "unseen_searches",
    "two_scopes",
    "left_out",
    "cycle",
    "bad_id",
    "time_out_of_range",
    "outside_turn",
    "turn_conflict",
    "too_large",
    "no_room",
    "no_key",
    "unreadable",
    "label_malformed",
    "label_other_name",
    "label_no_grade",
    "label_no_span",
    "label_no_search",
    "label_no_document",
    "label_ambiguous",
    "label_not_told",
    "label_conflict",
]

HELP: Final[dict[Reason, str]] = {
    "no_identity": "let the instrumentation record ids or texts of documents; "
    "OPENINFERENCE_HIDE_OUTPUTS hides both",
    "ambiguous_documents": "add a row to `otlp.shapes` that says which list has the results of the "
    "tool",
    "truncated": "raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT and OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "content_off": "let the instrumentation record the documents of searches",
    "no_conversation": "set `otlp.conversation` to the attribute that names the conversation",
    "incomplete": "export all spans of a trace, raise `bridge.trace_max` if they take longer to "
    "arrive, or set `otlp.missing_parents` to root if the spans above are not exported",
    "unrecognised": "add a row to `otlp.rows` that gives these spans a role, or for a tool one to "
    "`otlp.shapes` or `otlp.tools`",
    "unseen_searches": "let spans that search record what they found; say in `otlp.rows` or "
    "`otlp.tools` which do not search",
    "two_scopes": "name the instrumentation scope of the service to use in `otlp.scopes`",
    "left_out": "if these traces count, add their scope to `otlp.scopes`, or choose scopes by "
    "service there",
    "cycle": "correct the sender: spans are their own ancestors",
    "bad_id": "correct the sender: trace ids have 16 bytes and span ids 8",
    "time_out_of_range": "correct the sender's clock; times are nanoseconds since 1970",
    "outside_turn": "set `otlp.turn` to trace, or add a row to `otlp.rows` for the turn's span",
    "turn_conflict": "correct the sender: two turns of a conversation begin in one microsecond",
    "too_large": "end traces and turns earlier, or raise the setting that is named: "
    "`otlp.max_spans`, `otlp.max_trace_bytes`, or one of `limits`",
    "no_room": "raise `bridge.open_traces` or `bridge.open_bytes`, or end traces earlier",
    "no_key": "set `partition_traces_by_id: true` in the Collector's Kafka exporter, or start "
    "the bridge with --rekey",
    "unreadable": "correct whatever writes to the topic of traces",
    "label_malformed": "correct what writes the scores",
    "label_other_name": "add the evaluation to `labels.names` if it judges the relevance of "
    "documents",
    "label_no_grade": "say in `labels.grades` or `labels.cutoffs` which gain the score stands for",
    "label_no_span": "give the traces that the scores are about, and link an evaluator's span to "
    "the span that it evaluated",
    "label_no_search": "give scores to the spans of searches",
    "label_no_document": "name a document that the agent got; `labels.document` and "
    "`labels.position` say in which attribute",
    "label_ambiguous": "name the document; `labels.document` and `labels.position` say in which "
    "attribute",
    "label_not_told": "a replay of the traces says why the turn was refused",
    "label_conflict": "give revised scores a later time, or choose an evaluation in `labels.names`",
}
"""The remedy for each reason."""


EXPLAINED: Final = (
    "`stream-metrics explain` shows what its traces say, and tries the settings that may help"
)
"""Where to look further, for refusals of an agent."""


FOLLOWING: Final = (
    "no message tells whether they answer one question, so that each counts as a turn: if they are "
    "one, put a span around them, or set `otlp.turn` to trace"
)
"""What to tell of turns that follow those of other agents in their traces."""


class Unseen(NamedTuple):
    """What may have searched: words about it, and the row of ``otlp.rows``, or of ``otlp.tools``,
    that says that it did not; the row is empty if none can."""

    what: str
    row: str


def rows_to_copy(rows: Iterable[str], between: str = " and ") -> str:
    """The settings with these rows; empty without any.

    >>> rows_to_copy(['{role = "other", span = "orders"}', '"calc" = "other"'])
    'otlp.tools = {"calc" = "other"} and otlp.rows = [{role = "other", span = "orders"}]'
    """
    spans: list[str] = []
    tools: list[str] = []
    for row in filter(None, rows):
        (spans if row.startswith("{") else tools).append(row)
    of_tools = f"otlp.tools = {{{', '.join(tools)}}}" if tools else ""
    of_spans = f"otlp.rows = [{', '.join(spans)}]" if spans else ""
    return between.join(filter(None, (of_tools, of_spans)))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A span or turn that was refused, with its agent and service; None if unknown."""

    reason: Reason
    trace_id: str
    span_id: str
    message: str
    agent: str | None = None
    service: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A document as the agent received it.

    ``url`` is its address if that is to be compared. ``baseline_rank`` is its rank before
    reranking, from 1. ``passage`` is whether ``ids`` stand for its text.
    """

    document: Document
    doc_id: str | None
    url: str | None = None
    baseline_rank: int | None = None
    ids: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str | bool | int | float] = field(default_factory=dict)
    passage: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """A search of a turn. Iterations count from 1, ordinals in an iteration from 0."""

    span_id: str
    start_ns: int
    iteration: int
    ordinal: int
    query: str | None
    route: str | None
    agent: str | None
    release: str | None
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the agent.

    Attributes:
        number: The start of its span, or of the trace, in Unix microseconds.
        span_id: Its span; without one the first span of the trace.
        searches: Its searches, by iteration and ordinal.
        iterations_inferred: Whether only times separate its iterations.
        skipped: Whether a model answered without a search.
        answer, question: The texts, if they were recorded and ``Options.content`` is set.
        page_ids: The names of ids that turned out to be those of pages.
    """

    conversation: str
    number: int
    span_id: str
    searches: tuple[Search, ...]
    iterations_inferred: bool
    skipped: bool
    agent: str | None
    release: str | None
    answer: str | None = None
    question: str | None = None
    page_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Label:
    """The gain of a result, its time, and who gave it."""

    turn: Turn
    result_id: str
    gain: int
    time_us: int
    labeller: str | None


@dataclass(slots=True)
class Interpretation:
    """The interpretation of a trace.

    Attributes:
        turns: By number, then conversation.
        labels: Gains of results from evaluations in the trace.
        service: The ``service.name`` of the sender.
        agent: The agent of refusals that name none; the service if no agent is known.
        refusals: The first refusals; ``by_agent`` counts all by agent and reason.
        recordings: The turns as their instrumentation recorded them, in the same order.
        kinds: The number of spans of each kind, as displayed to people.
        spans, repeated: The number of distinct spans, and of repeated ones.
        nested, duplicate, reranked: The number of searches that are part of others, that another
            instrumentation recorded too, and that a reranker or joiner replaced.
        limits: The number of refusals by the setting of the limit; ``FIXED`` if it has none.
        unseen: The number of turns by the spans in them that may be searches.
        passed_over: The calls of tools by name, in turns with searches, that count as no search
            and that no row of the settings is about.
        following: The number of turns that follow one of another agent, and may be parts of it.
    """

    trace_id: str
    turns: tuple[Turn, ...] = ()
    labels: tuple[Label, ...] = ()
    service: str | None = None
    agent: str | None = None
    refusals: list[Refusal] = field(default_factory=list)
    by_agent: Counter[tuple[str | None, Reason]] = field(default_factory=Counter)
    recordings: tuple[Recording, ...] = ()
    kinds: Counter[str] = field(default_factory=Counter)
    spans: int = 0
    repeated: int = 0
    nested: int = 0
    duplicate: int = 0
    reranked: int = 0
    limits: Counter[str] = field(default_factory=Counter)
    unseen: Counter[Unseen] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)
    following: int = 0

    @property
    def refused(self) -> Counter[Reason]:
        """The number of refusals by reason."""
        found: Counter[Reason] = Counter()
        for (_, reason), number in self.by_agent.items():
            found[reason] += number
        return found

    def refuse(
        self,
        reason: Reason,
        span_id: str,
        message: str,
        agent: str | None = None,
        limit: str = FIXED,
    ) -> None:
        """Record a refusal, of the trace's agent unless another is given."""
        agent = agent or self.agent
        self.by_agent[agent, reason] += 1
        if reason in LIMITED:
            self.limits[limit] += 1
            message = f"{message} ({limit})"
        if len(self.refusals) < MAX_LISTED_REFUSALS:
            shown = (
                message
                if len(message) <= MAX_MESSAGE_LENGTH
                else f"{message[:MAX_MESSAGE_LENGTH]}…"
            )
            self.refusals.append(
                Refusal(reason, self.trace_id, span_id, shown, agent, self.service)
            )

    def drop_turns(self, span_ids: Container[str]) -> None:
        """Remove the turns of these spans, and their labels."""
        self.turns = tuple(one for one in self.turns if one.span_id not in span_ids)
        self.labels = tuple(one for one in self.labels if one.turn.span_id not in span_ids)
        self.recordings = tuple(one for one in self.recordings if one.span_id not in span_ids)


def agent_of(interpretation: Interpretation) -> str | None:
    """The agent that a trace counts for: of its first turn, else of its first refusal."""
    if interpretation.turns:
        return interpretation.turns[0].agent
    return next((one.agent for one in interpretation.refusals), interpretation.agent)


def page_ids_message(agent: str | None, names: Iterable[str]) -> str:
    """What to tell once of an agent whose ids turned out to be those of pages."""
    name = json.dumps(agent or "", ensure_ascii=False)
    return (
        f"searches of {agent or 'an agent without a name'} return documents with one "
        f"{' or '.join(sorted(names))} and different texts: it names a page. Where a trace shows "
        "it, id and text together identify a document. For all traces set otlp.identity = "
        f'{{{name} = "id_and_text"}}, or "id" if the id alone identifies it'
    )
