"""What a trace tells, as plain data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from stream_metrics.telemetry.documents import Document

REFUSED_LISTED: Final = 100
LONGEST_MESSAGE: Final = 1_000

Reason = Literal[
    "no_identity",
    "truncated",
    "content_off",
    "no_conversation",
    "incomplete",
    "unrecognised",
    "two_scopes",
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
    "truncated": "raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT and OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "content_off": "let the instrumentation record the documents that were found",
    "no_conversation": "set `otlp.conversation` to the attribute that names the conversation",
    "incomplete": "export all spans of a trace, raise `bridge.trace_max` if they take longer to "
    "come, or set `otlp.missing_parents` to root if the spans above are not exported",
    "unrecognised": "add a row to `otlp.rows` that says what these spans are",
    "two_scopes": "name the instrumentation scope that counts in `otlp.scopes`",
    "cycle": "correct the sender: each span is inside of itself",
    "bad_id": "correct the sender: trace ids have 16 bytes and span ids 8",
    "time_out_of_range": "correct the sender's clock; times are nanoseconds since 1970",
    "outside_turn": "set `otlp.turn` to trace, or add a row to `otlp.rows` for the turn's span",
    "turn_conflict": "correct the sender: two turns of a conversation begin in one microsecond",
    "too_large": "end traces and turns earlier, or raise `otlp.max_spans` or "
    "`otlp.max_trace_bytes`",
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
    "label_not_told": "a replay of the traces says why the turn was set aside",
    "label_conflict": "give revised scores a later time, or choose an evaluation in `labels.names`",
}
"""What would help against each reason."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A span or turn that was set aside, and the agent and service it is of; None if unknown."""

    reason: Reason
    trace_id: str
    span_id: str
    message: str
    agent: str | None = None
    service: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A document as the agent got it; ``baseline_rank`` is its place before reranking, from 1."""

    document: Document
    doc_id: str | None
    baseline_rank: int | None = None
    ids: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str | bool | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Search:
    """A search of a turn. Iterations count from 1, places in an iteration from 0."""

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
        searches: By iteration and place in it.
        iterations_inferred: Whether nothing but times told its iterations apart for certain.
        skipped: Whether a model answered without a search.
        answer, question: Where they were recorded, and texts are wanted.
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


@dataclass(frozen=True, slots=True)
class Label:
    """The gain of a result, and who gave it when."""

    turn: Turn
    result_id: str
    gain: int
    time_us: int
    labeller: str | None


@dataclass(slots=True)
class Told:
    """All that a trace tells.

    Attributes:
        turns: By number, then conversation.
        labels: The gains of their results that the trace holds.
        service: The ``service.name`` of what sent it.
        agent: The agent of refusals that name none themselves; the service if no agent is known.
        refusals: The first of what was set aside; ``by_agent`` counts all by agent and reason.
        scopes: Pairs of service and instrumentation scope of which searches were told.
        kinds: How many spans there were of each kind, as a person would name it.
        spans, repeated: How many different spans there were, and how many came again.
        nested, duplicate, reranked: Searches that are parts of others, that another
            instrumentation told too, and whose place a reranker or joiner took.
    """

    trace_id: str
    turns: tuple[Turn, ...] = ()
    labels: tuple[Label, ...] = ()
    service: str | None = None
    agent: str | None = None
    refusals: list[Refusal] = field(default_factory=list)
    by_agent: Counter[tuple[str | None, Reason]] = field(default_factory=Counter)
    scopes: frozenset[tuple[str, str]] = frozenset()
    kinds: Counter[str] = field(default_factory=Counter)
    spans: int = 0
    repeated: int = 0
    nested: int = 0
    duplicate: int = 0
    reranked: int = 0

    @property
    def refused(self) -> Counter[Reason]:
        """How much was set aside, by reason."""
        found: Counter[Reason] = Counter()
        for (_, reason), number in self.by_agent.items():
            found[reason] += number
        return found

    def refuse(self, reason: Reason, span_id: str, message: str, agent: str | None = None) -> None:
        """Note what was set aside, and of which agent, if it is not the trace's."""
        agent = agent or self.agent
        self.by_agent[agent, reason] += 1
        if len(self.refusals) < REFUSED_LISTED:
            shown = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
            self.refusals.append(
                Refusal(reason, self.trace_id, span_id, shown, agent, self.service)
            )


class TwoScopes(Exception):
    """Two instrumentations of a service told searches; the message says what to do."""


def check_scopes(scopes: frozenset[tuple[str, str]]) -> None:
    """Raises ``TwoScopes`` if several instrumentations of a service told searches."""
    for service, names in rivals(scopes).items():
        raise TwoScopes(
            f"{len(names)} instrumentations told searches of service {service!r}: "
            f"{', '.join(names)}. Each may have seen the same calls; set `otlp.scopes` to the "
            "one that counts"
        )


def rivals(scopes: frozenset[tuple[str, str]]) -> dict[str, list[str]]:
    """Services of which several instrumentations told searches, by name, with these.

    In traces of their own their searches cannot be told from further ones, so that somebody must
    say which scope counts.

    >>> rivals(frozenset({("a", "x"), ("a", "y"), ("b", "x")}))
    {'a': ['x', 'y']}
    """
    found: dict[str, list[str]] = {}
    for service, scope in sorted(scopes):
        found.setdefault(service, []).append(scope)
    return {service: each for service, each in found.items() if len(each) > 1}
