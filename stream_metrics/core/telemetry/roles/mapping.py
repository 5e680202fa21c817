"""Rows that map spans to roles by instrumentation scope, span name and attributes.

The first row that matches a span decides. Rows from the settings come before the presets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from stream_metrics.core.telemetry.contents.messages import attribute_text
from stream_metrics.core.telemetry.roles.kinds import SpanKinds, normalized
from stream_metrics.core.telemetry.shapes.users import ToolRows, tool_name
from stream_metrics.core.telemetry.spans import Span

SETTINGS: Final = "the settings"
MAX_CACHED_ROWS: Final = 1_000  # sets of attribute names
_WITH_COLON: Final = "genkit:"
"""The beginning of names of attributes that have a colon."""
_OF_JAVASCRIPT: Final = (
    ("@arizeai/openinference-instrumentation-", "openinference"),
    ("@traceloop/instrumentation-", "opentelemetry"),
)


class Role(StrEnum):
    """The role of a span in a turn.

    A postprocessor counts as a reranker if documents went in and came out, and has no role
    otherwise.
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
    """Matches spans of one kind and gives them a role.

    Attributes:
        role: The role of the spans.
        when: Attributes that a span must have, with their values; an empty value matches any.
            Values are case-insensitive patterns (``*``, ``?``). A name such as
            ``metadata:thread_id`` is a key in an attribute's JSON.
        without: Attributes that a span must not have.
        child_attributes: Attributes, with their values, that a direct child of the span must have.
        child_span: A pattern for the name of a span that must be a direct child.
        source: Which instrumentation or convention the row describes.
        scope: A prefix of the name of the instrumentation scope.
        span: A pattern (``*``, ``?``) for the span's name.
        documents: Attributes that hold the documents that were found, or a reranker's output: a
            list, JSON, or flattened attributes with this prefix. Of an evaluator, the documents it
            judged.
        inputs: Attributes that hold the documents a reranker or joiner was given.
        query: Attributes that hold the query; of a turn, the question.
        answer: Attributes that hold the answer of a turn or a model call.
        agent: Attributes that hold the agent's name where this instrumentation writes them.
        replaces_outer: Whether a turn inside another turn is the turn, and the outer one is not.
        yields_to_inner: Whether a single turn inside this one is the turn instead.
        maybe_turn: Whether the span may be a turn although nothing says so. A span with the role of
            a turn is then not one inside another such span.
        once_per_run: Whether a turn of this kind occurs once inside another, so that several may
            mean several turns.
        flattens_nesting: Whether the instrumentation writes nested calls as siblings.
        is_group: Whether the span is that of several agents that answer one question together.
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
    agent: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    child_attributes: tuple[tuple[str, str], ...] = ()
    child_span: str = ""
    replaces_outer: bool = False
    yields_to_inner: bool = False
    maybe_turn: bool = False
    once_per_run: bool = False
    flattens_nesting: bool = False
    is_group: bool = False

    @property
    def needs(self) -> str | None:
        """An attribute without which no span matches; None if there is none."""
        return next((name for name, _ in self.when if not _is_key(name)), None)

    @property
    def is_specific(self) -> bool:
        """Whether it says what its spans do, and is not about all others of a convention."""
        named = bool(self.scope) or self.span != "*" or any(value for _, value in self.when)
        return named and not self.maybe_turn

    def matches(self, span: Span, inner: Iterable[Span] = (), scope: str | None = None) -> bool:
        """Whether the row matches the span, whose direct children are ``inner``; ``scope`` is the
        form of its scope if that is known."""
        scope = scope_form(span.scope) if scope is None else scope
        return (
            scope.startswith(self.scope)
            and (self.span == "*" or fnmatchcase(span.name, self.span))
            and _has(span, self.when)
            and attribute_text(span.attributes, self.without) is None
            and (
                not self.child_attributes or any(_has(one, self.child_attributes) for one in inner)
            )
            and (not self.child_span or any(fnmatchcase(x.name, self.child_span) for x in inner))
        )


_NO_SEARCH: Final = Row(Role.OTHER)
"""The row of a tool that the settings say does not search."""


@lru_cache(MAX_CACHED_ROWS)
def scope_form(scope: str) -> str:
    """A scope as rows compare it: those of JavaScript under the names that Python's have.

    >>> scope_form("@arizeai/openinference-instrumentation-langchain")
    'openinference.instrumentation.langchain'
    >>> scope_form("@traceloop/instrumentation-openai-agents")
    'opentelemetry.instrumentation.openai_agents'
    """
    for prefix, family in _OF_JAVASCRIPT:
        if scope.startswith(prefix):
            name = scope.removeprefix(prefix).replace("-", "_")
            return f"{family}.instrumentation.{name}"
    return scope


def _is_key(name: str) -> bool:
    """Whether the name is that of a key in an attribute's JSON."""
    return ":" in name and not name.startswith(_WITH_COLON)


def _has(span: Span, when: Iterable[tuple[str, str]]) -> bool:
    return all(
        _is(
            attribute_text(span.attributes, (name,))
            if _is_key(name)
            else span.attributes.get(name),
            value,
        )
        for name, value in when
    )


def _is(found: Any, value: str) -> bool:
    if type(found) is not str:
        return isinstance(found, list) and bool(found) and not value
    found, value = normalized(found), value.casefold()
    return not value or found == value or fnmatchcase(found, value)


@dataclass(frozen=True, slots=True)
class SpanMapping:
    """The rows, and the attributes that hold the conversation, agent, release, route and tool.

    Those of the settings are ``chosen``, and come before the others on whichever span of a trace.
    ``other_kinds`` are attribute values that are known although no row names them, ``tools`` the
    rows of the settings about tools.
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
        *(
            f"ai.{holder}.{name}"
            for holder in ("telemetry.metadata", "settings.context")
            for name in (
                *("sessionId", "session_id", "conversationId", "conversation_id"),
                *("threadId", "thread_id", "chatId"),
            )
        ),
        "gcp.vertex.agent.session_id",
        "gen_ai.session.id",
        "spring.ai.chat.client.conversation.id",
        "genkit:sessionId",
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
    route: tuple[str, ...] = (
        "gen_ai.data_source.id",
        "gen_ai.memory.store.name",
        "gen_ai.memory.store.id",
    )
    tool: tuple[str, ...] = (
        "gen_ai.tool.name",
        "tool.name",
        "haystack.tool.name",
        "ai.toolCall.name",
        "spring.ai.tool.definition.name",
        "traceloop.entity.name",
    )
    other_kinds: tuple[tuple[str, str], ...] = ()
    tools: ToolRows = field(default_factory=ToolRows, compare=False)
    chosen_conversation: tuple[str, ...] = ()
    chosen_agent: tuple[str, ...] = ()
    chosen_release: tuple[str, ...] = ()
    kinds: SpanKinds = field(init=False, compare=False, repr=False)
    _needed: tuple[str, ...] = field(init=False, compare=False, repr=False)
    _for: dict[tuple[str, ...], tuple[Row, ...]] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", SpanKinds(self._values(), self._holders()))
        needed = dict.fromkeys(row.needs for row in self.rows if row.needs is not None)
        object.__setattr__(self, "_needed", tuple(needed))

    def _values(self) -> Iterator[tuple[str, str, bool]]:
        """The known values, each with whether spans that have it name documents."""
        for row in self.rows:
            for name, value in (*row.when, *row.child_attributes):
                if not _is_key(name):
                    yield name, value, bool(row.documents)
        for name, value in self.other_kinds:
            yield name, value, False

    def _holders(self) -> Iterator[str]:
        """The attributes in whose JSON keys are looked up."""
        of_rows = (name for row in self.rows for name, _ in row.when)
        chosen = (*self.chosen_conversation, *self.chosen_agent, *self.chosen_release)
        for name in (*chosen, *self.conversation, *self.agent, *self.release, *of_rows):
            if _is_key(name):
                yield name.partition(":")[0]

    def row(self, span: Span, inner: Iterable[Span] = ()) -> Row | None:
        """The first row that matches the span, or None; ``inner`` are its direct children."""
        attributes = span.attributes
        present = tuple([name for name in self._needed if name in attributes])
        rows = self._for.get(present)
        if rows is None:
            if len(self._for) >= MAX_CACHED_ROWS:
                self._for.clear()
            rows = tuple(row for row in self.rows if row.needs is None or row.needs in present)
            self._for[present] = rows
        scope = scope_form(span.scope)
        found = next((row for row in rows if row.matches(span, inner, scope)), None)
        if found is not None and found.role is Role.TOOL and self.tools.kinds:
            return _NO_SEARCH if self.tools.kind_of(tool_name(span)) == "other" else found
        return found
