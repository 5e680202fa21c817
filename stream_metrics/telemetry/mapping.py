"""Which spans are what, as data: rows by instrumentation scope, span name and attributes.

The first row that matches a span decides. Rows of the settings stand before these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from stream_metrics.telemetry.kinds import Kinds, plain
from stream_metrics.telemetry.spans import Span
from stream_metrics.telemetry.texts import said

SETTINGS: Final = "the settings"
MOST_KEPT: Final = 1_000  # sets of attributes for which the rows that may match are known


class Role(StrEnum):
    """What a span is to a turn.

    A postprocessor is a reranker if documents went in and came out, and nothing otherwise.
    """

    SEARCH = "search"
    TOOL = "tool"
    RERANKER = "reranker"
    JOINER = "joiner"
    POSTPROCESSOR = "postprocessor"
    TURN = "turn"
    STEP = "step"
    MODEL = "model"
    EVALUATOR = "evaluator"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Row:
    """Spans of one kind.

    Attributes:
        role: What they are.
        when: Attributes with their values, of which a span must have all; an empty value stands
            for any. Values are patterns (``*``, ``?``), and compare without regard to case. Behind
            a colon stands a name in an attribute's JSON.
        without: Attributes of which a span must have none.
        holds: Attributes with their values that a span right inside of it must have.
        holds_span: A pattern for the name of a span that must be right inside of it.
        source: Where this is from.
        scope: How the name of the instrumentation scope begins.
        span: A pattern (``*``, ``?``) for the span's name.
        documents: Attributes with what was found, or with a reranker's output: a list, JSON, or
            flattened attributes behind this name. Of an evaluator, with what it was given.
        inputs: The same of what a reranker or joiner was given.
        query: Attributes with the text that was searched for; of a turn, with the question.
        answer: Of a turn or a model call, attributes with what was answered.
        also_inside: Of a turn, whether it is one also inside of another, which then is none.
        unless_around: Of a turn, whether one inside of it counts instead; of several it is one.
        maybe_turn: Whether it may be a turn for all that it says. Of a turn, whether it is none
            inside of another such span.
        once: Of a turn, whether another has it inside of it only once, or may be several turns.
        flat: Whether such spans hang beside those inside of which they ran.
    """

    role: Role
    when: Sequence[tuple[str, str]] = ()
    source: str = SETTINGS
    scope: str = ""
    span: str = "*"
    documents: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    holds: tuple[tuple[str, str], ...] = ()
    holds_span: str = ""
    also_inside: bool = False
    unless_around: bool = False
    maybe_turn: bool = False
    once: bool = False
    flat: bool = False

    @property
    def needs(self) -> str | None:
        """An attribute without which a span is none of these."""
        return next((name for name, _ in self.when if ":" not in name), None)

    def matches(self, span: Span, inner: Iterable[Span] = ()) -> bool:
        """Whether the row is about this span, right inside of which are ``inner``."""
        return (
            span.scope.startswith(self.scope)
            and (self.span == "*" or fnmatchcase(span.name, self.span))
            and _has(span, self.when)
            and said(span.attributes, self.without) is None
            and (not self.holds or any(_has(one, self.holds) for one in inner))
            and (not self.holds_span or any(fnmatchcase(x.name, self.holds_span) for x in inner))
        )


def _has(span: Span, when: Iterable[tuple[str, str]]) -> bool:
    return all(
        _is(said(span.attributes, (name,)) if ":" in name else span.attributes.get(name), value)
        for name, value in when
    )


def _is(found: Any, value: str) -> bool:
    if type(found) is not str:
        return False
    found, value = plain(found), value.casefold()
    return not value or found == value or fnmatchcase(found, value)


@dataclass(frozen=True, slots=True)
class Mapping:
    """The rows, and the attributes that say of which conversation, agent and release a span is.

    ``neither`` are attributes with values that are known although no row names them.
    """

    rows: tuple[Row, ...]
    conversation: tuple[str, ...] = (
        "gen_ai.conversation.id",
        "session.id",
        "langfuse.session.id",
        "traceloop.association.properties.session_id",
        "traceloop.association.properties.conversation_id",
        "traceloop.association.properties.thread_id",
        "metadata:thread_id",
        "langsmith.metadata.thread_id",
        "langfuse.trace.metadata.thread_id",
    )
    agent: tuple[str, ...] = (
        "gen_ai.agent.name",
        "agent.name",
        "metadata:lc_agent_name",
        "metadata:agent_name",
        "langsmith.metadata.lc_agent_name",
        "langfuse.observation.metadata.lc_agent_name",
        "traceloop.association.properties.lc_agent_name",
    )
    release: tuple[str, ...] = ("gen_ai.agent.version", "service.version")
    route: tuple[str, ...] = ("gen_ai.data_source.id",)
    tool: tuple[str, ...] = (
        "gen_ai.tool.name",
        "tool.name",
        "haystack.tool.name",
        "traceloop.entity.name",
    )
    neither: tuple[tuple[str, str], ...] = ()
    kinds: Kinds = field(init=False, compare=False, repr=False)
    _needed: tuple[str, ...] = field(init=False, compare=False, repr=False)
    _for: dict[tuple[str, ...], tuple[Row, ...]] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", Kinds(self._values(), self._holders()))
        needed = dict.fromkeys(row.needs for row in self.rows if row.needs is not None)
        object.__setattr__(self, "_needed", tuple(needed))

    def _values(self) -> Iterator[tuple[str, str, bool]]:
        """The values that are known, and whether these are of spans that name documents."""
        for row in self.rows:
            for name, value in (*row.when, *row.holds):
                if ":" not in name:
                    yield name, value, bool(row.documents)
        for name, value in self.neither:
            yield name, value, False

    def _holders(self) -> Iterator[str]:
        """The attributes in whose JSON something is looked up."""
        of_rows = (name for row in self.rows for name, _ in row.when)
        for name in (*self.conversation, *self.agent, *self.release, *of_rows):
            if ":" in name:
                yield name.partition(":")[0]

    def row(self, span: Span, inner: Iterable[Span] = ()) -> Row | None:
        """The row of a span, or None if no row knows it; ``inner`` are the spans right inside."""
        attributes = span.attributes
        present = tuple([name for name in self._needed if name in attributes])
        rows = self._for.get(present)
        if rows is None:
            if len(self._for) >= MOST_KEPT:
                self._for.clear()
            rows = tuple(row for row in self.rows if row.needs is None or row.needs in present)
            self._for[present] = rows
        return next((row for row in rows if row.matches(span, inner)), None)
