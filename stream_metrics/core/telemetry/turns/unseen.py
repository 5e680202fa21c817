"""Finds spans that may be searches although nothing tells what they found.

A turn without a search is a decision not to search only if all its spans are known. A function, a
call over HTTP, a query of a database or a tool that returned a text may have searched.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from stream_metrics.core.telemetry.contents.calls import (
    answer_is_lost,
    results_of,
    was_given_results,
)
from stream_metrics.core.telemetry.interpretation import Interpretation, Unseen, rows_to_copy
from stream_metrics.core.telemetry.retrieval.uploads import uploaded_answer
from stream_metrics.core.telemetry.roles.kinds import SEARCHING, is_of_agents, normalized
from stream_metrics.core.telemetry.roles.mapping import (
    SETTINGS,
    Role,
    Row,
    SpanMapping,
    scope_form,
)
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.shapes.users import tool_name
from stream_metrics.core.telemetry.spans import MIN_TEXT_LENGTH, Span, text

MAX_NAMED: Final = 10
"""The most kinds of spans that a refusal names."""
MAX_NAME_LENGTH: Final = 300
"""The longest attribute that is looked at for a name."""
MAX_QUERY_LENGTH: Final = 10_000
"""The characters of a database's query that are looked at."""

_KNOWN: Final = (Role.TURN, Role.STEP, Role.MODEL, Role.EVALUATOR)
_MAY_SEARCH: Final = re.compile(
    SEARCHING.pattern + r"|(?i:search|retriev|look.?up|fetch|find|quer(y|ies)|recall|knowledge"
    r"|vector|embed|context|docs|documents|passages|memor(y|ies))"
)
_NAMING: Final = re.compile(
    r"(^|[._])(name|function|method|operation|path|url|full|route|target|collection|index|query|statement"
    r"|summary|namespace|system|tool|url\.full|query\.text)$",
    re.IGNORECASE,
)
_OF_OTHERS: Final = re.compile(
    r"agent|conversation|crew|entity\.path|graph|host|model|process|provider|service|session"
    r"|telemetry|thread|user|workflow",
    re.IGNORECASE,
)
"""Matches names of attributes that name what is around a span, not what it does."""
_SEARCH_ATTRIBUTE: Final = re.compile(r"(^|[._])(search|retriev)", re.IGNORECASE)
_FRAMEWORKS: Final = (
    "openinference.instrumentation.",
    "opentelemetry.instrumentation.",
    "@mastra/",
    "agent_framework",
    "autogen",
    "gcp.vertex.agent",
    "haystack",
    "pydantic-ai",
    "semantic_kernel",
    "strands.",
)
"""The beginnings of scopes whose chains and tasks are a framework's own, not functions of a
program."""
_OF_FRAMEWORKS: Final = ("haystack.component", "langgraph_", "ls_integration")
"""Parts of the names of attributes that frameworks pass to products."""
_EMBEDDING: Final = re.compile(r"(^|[._])embed(ding|dings|many)?\b", re.IGNORECASE)
_NO_SEARCHES: Final = frozenset({"create_agent", "event", "guardrail", "parser", "prompt"})
"""Kinds of spans that are no searches, whoever wrote them."""
_BY_MEANING: Final = re.compile(
    r"<->|<=>|<#>|\b(ts_rank|to_tsquery|plainto_tsquery|websearch_to_tsquery|cosine_distance"
    r"|l2_distance|similarity|vector_search|match|ft\.(search|hybrid)|vsim)\b",
    re.IGNORECASE,
)
"""Matches queries of databases that search texts or vectors."""
_QUERY_ADDRESS: Final = re.compile(r"\.pinecone\.io/query\b|weaviate\..*/v1/graphql\b")
"""Matches addresses of vector databases at which they search, without a word that says so."""
_DATABASES: Final = re.compile(
    r"(chroma|chromadb|lancedb|marqo|milvus|mongodb|pgvector|pinecone|qdrant|redis|weaviate)[. ]"
)
_WRITES: Final = re.compile(
    r"add|begin|bulk|commit|create\w*|del|delete|drop|expire|flush|get_or_create_collection|hset"
    r"|insert\w*|lpush|persist|ping|publish|put|rollback|rpush|save|set|setex|update\w*|upsert|xadd"
)
_TOOL_NAMES: Final = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
_FINISHED: Final = (
    "gen_ai.response.finish_reasons",
    "gen_ai.response.finish_reason",
    "gen_ai.completion.0.finish_reason",
    "llm.finish_reason",
    "llm.response.finish_reason",
    "llm.response.stop_reason",
    "ai.response.finishReason",
    "finish_reason",
)
_DEFINITIONS: Final = "gen_ai.tool.definitions"
_WITH_TOOLS: Final = tuple(
    f"opentelemetry.instrumentation.genai.{name}"
    for name in ("agno", "langchain", "llama_index", "openai_agents")
)
"""Scopes of instrumentations without spans of models, whose captures show spans of tools."""
_MAYBE_WITHOUT_TOOLS: Final = "opentelemetry.instrumentation.crewai"
"""The beginning of a scope of which only the last versions write spans of tools."""
_FOR_TOOLS: Final = re.compile(r"tool|function_?call", re.IGNORECASE)
_FINISHED_FOR_TOOLS: Final = re.compile(
    r"""finish_?reason\\*["']:\s*\\*["'](tool|function_?call)""", re.IGNORECASE
)


class UnseenSearches:
    """Finds what may have searched in the turns of a trace."""

    def __init__(self, tree: SpanTree, mapping: SpanMapping) -> None:
        self.in_models = tree.nearest_ancestor(Role.MODEL)
        self._tree, self._mapping = tree, mapping
        self._around_agents = tree.ancestors(span.span_id for span in tree.with_role(Role.TURN))
        self._parents = {span.parent_id for span in tree.ordered}

    def of(self, members: Sequence[Span], asked: str | None) -> dict[str, Unseen]:
        """The outermost spans of a turn without a search that may have searched, by span id.

        ``asked`` is the question, which is left out of names.
        """
        tree = self._tree
        quiet: set[str] = set()  # spans whose inner functions and queries are known with them
        found: dict[str, Unseen] = {}
        inside: set[str] = set()
        for span in members:
            id, row = span.span_id, tree.rows.get(span.span_id)
            if id in tree.ignored:
                continue
            if span.parent_id in found or span.parent_id in inside:
                inside.add(id)
            elif span.parent_id in quiet and row is None:
                quiet.add(id)
            elif row is not None and row.role is Role.OTHER and row.source == SETTINGS:
                if id not in tree.around_models:  # a function that calls models may also search
                    quiet.add(id)
            elif (what := self._what(span, row)) is not None:
                what = f"{what} {_shown(_name(span), asked)!r}"
                found[id] = Unseen(what, row_for(span, row, asked))
        if not found and (model := _asking_for_tools(tree, members)) is not None:
            name = _shown(model.name, asked)
            what = f"the model call {name!r}, which asked for tools without spans"
            if (uploaded := uploaded_answer(model)) is not None:
                what = f"the model call {name!r}, whose answer is not recorded; {uploaded}"
            found[model.span_id] = Unseen(what, "")
        if not found and (agent := _of_tools_without_spans(tree, members)) is not None:
            name = _shown(agent.name, asked)
            what = f"the agent {name!r}, which has tools, and whose model calls have no spans"
            found[agent.span_id] = Unseen(what, "")
        if not found and (agent := _of_tools_left_out(tree, members)) is not None:
            name = _shown(agent.name, asked)
            what = f"the agent {name!r}, whose instrumentation may write no spans of tools"
            found[agent.span_id] = Unseen(what, "")
        return found

    def between_models(self) -> dict[str, Unseen]:
        """In a trace without a turn, what ran after one model call and before another, and the
        tools and functions before the last; by span id."""
        models = self._tree.with_role(Role.MODEL)
        answered = min(span.end_ns for span in models)
        last = max(span.start_ns for span in models)
        found: dict[str, Unseen] = {}
        for span in self._tree.ordered:
            row = self._tree.rows.get(span.span_id)
            between = row is not None or span.start_ns >= answered
            by_setting = row is not None and row.source == SETTINGS
            if span.span_id in self._tree.ignored or span.span_id in self._tree.around_models:
                continue
            if not between or by_setting or span.end_ns > last or span.parent_id in found:
                continue
            if (what := self._what(span, row)) is not None:
                found[span.span_id] = Unseen(
                    f"{what} {_shown(_name(span), None)!r}", row_for(span, row)
                )
        return found

    def _what(self, span: Span, row: Row | None) -> str | None:
        """What a span is that may have searched; None if it is known not to have."""
        id, role = span.span_id, row.role if row else None
        if role in _KNOWN:
            return None
        described = role is Role.OTHER and row is not None and row.span.startswith("*.")
        suspicious = not described and any(_MAY_SEARCH.search(name) for name in _names(span))
        if role is Role.TOOL or span.text(*_TOOL_NAMES[:3]) is not None:
            name = _name(span)
            is_agent = id in self._around_agents and not SEARCHING.search(name)
            return None if is_agent or is_of_agents(name) else "the tool"
        if _embeds(span):
            return "the embedding"
        if role is None:
            if _queries_database(span):
                return None if _writes(span) else "the query of a database"
            if id in self.in_models and not suspicious:
                return None
            over_http = any(name.startswith(("http.", "url.")) for name in span.attributes)
            return "the call over HTTP" if over_http else "the span"
        if suspicious or self._mapping.kinds.is_unknown(span):
            return "the span"
        specific = (row is not None and row.is_specific) or not _NO_SEARCHES.isdisjoint(
            _kinds(span)
        )
        if specific or id in self._parents or _is_of_framework(span):
            return None
        return "the function"


def passed_over(tree: SpanTree, members: Iterable[Span], aside: Container[str]) -> Iterator[str]:
    """The names of tools in a turn with searches that count as no search; those in ``aside`` are
    searches, inside one, or around one."""
    for span in members:
        if tree.role(span) is Role.TOOL and span.span_id not in aside and not span.failed:
            name = _name(span)
            if not is_of_agents(name):
                yield name[:MAX_NAME_LENGTH]


def refuse_unseen(tree: SpanTree, mapping: SpanMapping, interpretation: Interpretation) -> None:
    """Refuse a trace without a turn in which a model answered, and a span looks like a search, or
    may have been one that it asked for."""
    if not tree.with_role(Role.MODEL):
        return
    for span in tree.ordered:
        row = tree.rows.get(span.span_id)
        if span.span_id in tree.ignored or (row is not None and row.role is not Role.OTHER):
            continue
        if _embeds(span) or (row is None and looks_like_search(span)):
            refuse(
                interpretation,
                {span.span_id: Unseen(f"the span {span.name!r}", row_for(span, row))},
            )
            return
    asking = _asking_for_tools(tree, tree.ordered)
    models = tree.with_role(Role.MODEL)
    if asking is not None and any(span.start_ns >= asking.end_ns for span in models):
        what = f"the model call {asking.name!r}, which asked for tools without spans"
        refuse(interpretation, {asking.span_id: Unseen(what, "")})
    elif (lost := next(filter(answer_is_lost, models), None)) is not None:
        message = f"the answer of {lost.name!r} was cut off, and may have had tool calls"
        interpretation.refuse("truncated", lost.span_id, message)
    elif found := UnseenSearches(tree, mapping).between_models():
        refuse(interpretation, found)


def refuse(
    interpretation: Interpretation, found: Mapping[str, Unseen], agent: str | None = None
) -> None:
    """Refuse the turn in which these spans may have searched."""
    kinds = dict(islice(Counter(found.values()).items(), MAX_NAMED))
    interpretation.unseen.update(kinds.keys())
    each = ", ".join(f"{one.what} ({number})" for one, number in kinds.items())
    message = f"it may have searched, and no span tells what was found: {each}"
    if rows := rows_to_copy(one.row for one in kinds):
        message += f"; if none of them is a search: {rows}"
    interpretation.refuse("unseen_searches", min(found), message, agent)


def looks_like_search(span: Span) -> bool:
    """Whether the name of a span, or an attribute that names something, suggests a search."""
    query = span.text("db.query.text", "db.statement")
    return (
        any(SEARCHING.search(name) or _QUERY_ADDRESS.search(name) for name in _names(span))
        or any(_SEARCH_ATTRIBUTE.search(name) for name in span.attributes)
        or (query is not None and _BY_MEANING.search(query[:MAX_QUERY_LENGTH]) is not None)
    )


def is_tool(span: Span, row: Row | None) -> bool:
    """Whether the span is a tool's, whichever role a row of the settings gives it."""
    return row is not None and (
        row.role is Role.TOOL or (row.source == SETTINGS and span.text(*_TOOL_NAMES) is not None)
    )


def _names(span: Span) -> Iterator[str]:
    yield span.name
    for name, value in span.attributes.items():
        if (
            isinstance(value, str)
            and len(value) <= MAX_NAME_LENGTH
            and _NAMING.search(name)
            and not _OF_OTHERS.search(name)
        ):
            yield value


def _name(span: Span) -> str:
    return span.text(*_TOOL_NAMES) or span.name


def _shown(name: str, asked: str | None) -> str:
    """A name without the text of the user."""
    shown = name.replace(asked, "*") if asked and len(asked) >= MIN_TEXT_LENGTH else name
    return shown if len(shown) <= MAX_NAME_LENGTH else f"{shown[:MAX_NAME_LENGTH]}*"


def _embeds(span: Span) -> bool:
    return any(_EMBEDDING.search(kind) is not None for kind in _kinds(span))


def _kinds(span: Span) -> Iterator[str]:
    for name, value in span.attributes.items():
        of_kind = name.lower().endswith(("kind", "type", "operation.name", "operationid"))
        if of_kind and isinstance(value, str):
            yield normalized(value)


def _queries_database(span: Span) -> bool:
    return (
        any(name.startswith("db.") for name in span.attributes)
        or _DATABASES.match(span.name) is not None
    )


def _writes(span: Span) -> bool:
    operation = span.text("db.operation.name", "db.operation")
    if operation is None:
        statement = span.text("db.query.text", "db.statement")
        operation = next(iter((statement or span.name).split(maxsplit=1)), "")
    return _WRITES.fullmatch(operation.lower().rpartition(".")[2]) is not None


def _is_of_framework(span: Span) -> bool:
    names = (*span.attributes, text(span.attributes.get("metadata")) or "")
    return scope_form(span.scope).startswith(_FRAMEWORKS) or any(
        part in name for name in names for part in _OF_FRAMEWORKS
    )


def _asking_for_tools(tree: SpanTree, members: Iterable[Span]) -> Span | None:
    """A model call that ended with a request for tools, in a turn without a span of a tool.

    It is the first one if the last one was given new results, and none says that it asked.
    """
    models: list[Span] = []
    asking: list[Span] = []
    for span in members:
        row = tree.rows.get(span.span_id)
        if is_tool(span, row):
            return None
        if row is not None and row.role is Role.MODEL:
            models.append(span)
            if asks_for_tools(span, row):
                asking.append(span)
    if not asking and len(models) > 1:
        *earlier, last = sorted(models, key=lambda span: span.start_ns)
        known = results_of(earlier[0])
        if was_given_results(last) and not results_of(last).keys() <= known.keys():
            asking = earlier
    return asking[0] if asking else None


def _of_tools_without_spans(tree: SpanTree, members: Iterable[Span]) -> Span | None:
    """An agent with tools, in a turn without a span of a tool or of a model, whose instrumentation
    may write no others."""
    agents = []
    for span in members:
        row = tree.rows.get(span.span_id)
        if is_tool(span, row) or (row is not None and row.role is Role.MODEL):
            return None
        if row is None or row.role is not Role.TURN or span.value(_DEFINITIONS) is None:
            continue
        if not scope_form(span.scope).startswith(_WITH_TOOLS):
            agents.append(span)
    return agents[0] if agents else None


def _of_tools_left_out(tree: SpanTree, members: Iterable[Span]) -> Span | None:
    """An agent in a turn without a span of a tool, whose instrumentation may have left it out."""
    agents = []
    for span in members:
        row = tree.rows.get(span.span_id)
        if is_tool(span, row):
            return None
        if row is not None and row.role is Role.TURN:
            agents.append(span)
    return next((one for one in agents if one.scope.startswith(_MAYBE_WITHOUT_TOOLS)), None)


def asks_for_tools(span: Span, row: Row) -> bool:
    """Whether a model call ended with a request for tools, or its answer was dropped."""
    if span.dropped_attributes and all(span.value(name) is None for name in row.answer):
        return True  # its answer is among what was dropped
    finished = [value for name in _FINISHED if (value := span.value(name)) is not None]
    if any(_FOR_TOOLS.search(str(value)) for value in finished):
        return True
    if not finished and uploaded_answer(span) is not None:
        return True
    answers = (span.value(name) for name in (*row.answer, "gen_ai.output.messages"))
    return any(isinstance(one, str) and _FINISHED_FOR_TOOLS.search(one) for one in answers)


def row_for(span: Span, row: Row | None, asked: str | None = None) -> str:
    """The row of ``otlp.rows`` that gives such spans the role of others; of tools, the row of
    ``otlp.tools``.

    >>> row_for(Span("", "", "", 0, 0, False, {}, {}, name="orders", scope="app"), None)
    '{role = "other", scope = "app", span = "orders"}'
    """
    if row is not None and row.role is Role.TOOL:
        return f'{_quoted(tool_name(span))} = "other"'
    if span.text(*_TOOL_NAMES[:3]) is not None:
        for name in _TOOL_NAMES:
            if (value := text(span.attributes.get(name))) is not None:
                return f'{{role = "other", when = {_table({name: value})}}}'
    pattern = _shown(span.name, asked).replace("[", "[[]")
    scope = f"scope = {_quoted(span.scope)}, " if span.scope else ""
    return f'{{role = "other", {scope}span = {_quoted(pattern)}}}'


def _table(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{_quoted(k)} = {_quoted(v)}" for k, v in values.items()) + "}"


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
