"""The searches of a trace as the agent received them: outermost only, once, and after reranking."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from stream_metrics.core.telemetry.contents.documents import (
    Document,
    SpanDocuments,
    documents_in_attributes,
    documents_in_value,
    documents_of,
    flatten_lists,
    same_document,
    says_failed,
)
from stream_metrics.core.telemetry.contents.messages import LOST, called_tools
from stream_metrics.core.telemetry.interpretation import Interpretation
from stream_metrics.core.telemetry.retrieval.compared import OTHERS_TOLD, compared
from stream_metrics.core.telemetry.retrieval.tools import (
    ARGUMENTS,
    ToolResult,
    is_missing,
    recorded,
    result_of,
    row_to_copy,
)
from stream_metrics.core.telemetry.retrieval.uploads import uploaded_messages, uploaded_result
from stream_metrics.core.telemetry.roles.kinds import SpanKinds, is_of_agents, suggests_search
from stream_metrics.core.telemetry.roles.mapping import SETTINGS, Role, Row, SpanMapping
from stream_metrics.core.telemetry.roles.presets.rows import QUESTION, TOOL_INPUT
from stream_metrics.core.telemetry.roles.scopes import scopes_setting
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.shapes.reading import read_documents
from stream_metrics.core.telemetry.shapes.users import tool_name
from stream_metrics.core.telemetry.spans import Span, has_text, service_of, text

_DATABASE: Final = re.compile(
    r"(chroma|lancedb|marqo|milvus|pinecone|qdrant|weaviate)\b.*(query|search|get|recommend|discover)"
)
_SEARCH_ENGINES: Final = ("elasticsearch", "opensearch")
_RETRIEVED: Final = ("retrieval.", "gen_ai.retrieval.", "gen_ai.retriever.", "reranker.output_")
_VECTORS: Final = (*_RETRIEVED, "db.vector.", "db.query.embeddings")
OUTPUTS: Final = (
    "output.value",
    "traceloop.entity.output",
    "gen_ai.task.output",
    "langfuse.observation.output",
    "mlflow.spanOutputs",
    "gen_ai.completion",
    "haystack.component.output",
    "haystack.pipeline.output_data",
)
INPUTS: Final = (
    "input.value",
    "traceloop.entity.input",
    "gen_ai.task.input",
    "langfuse.observation.input",
    "mlflow.spanInputs",
    "gen_ai.prompt",
)
UNKNOWN: Final = (None, Role.OTHER, Role.POSTPROCESSOR)
_BEGINNINGS: Final = ("[", "{", '"', "D")  # of JSON, and of the repr of documents
MAX_CONCURRENT_SEARCHES: Final = 1_000
_NUMBERED: Final = re.compile(r"\.\d+\..*")
_RUNS: Final = re.compile(r"^(vector_db_retrieve|retrieval|execute_tool|retrieve)\s+|\.\w+$")


@dataclass(frozen=True, slots=True)
class Retrieval:
    """A search with the results that the agent received.

    ``span`` is the one whose results count, ``parts`` are the ids of other spans that it stands
    for, and ``start_ns`` and ``end_ns`` cover all of them. ``reranked_from`` is what a reranker was
    given.
    """

    span: Span
    start_ns: int
    end_ns: int
    query: str | None
    route: str | None
    documents: tuple[Document, ...]
    reranked_from: tuple[Document, ...] | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpanProblem:
    """Why a span makes the interpretation of its turn unreliable.

    ``affects_nested_turns`` is whether the turns inside the span are affected too.
    """

    span: Span
    reason: Any
    message: str
    affects_nested_turns: bool = False


def find_searches(
    tree: SpanTree, mapping: SpanMapping, interpretation: Interpretation, limit: int | None = None
) -> tuple[list[Retrieval], list[SpanProblem], dict[str, str]]:
    """The outermost searches of a trace, and the spans that cannot be interpreted.

    The third result maps each span that is a search or inside one to that search. ``limit`` is the
    length at which texts of the trace were certainly cut off.
    """
    spans = tree.with_role(Role.SEARCH, Role.TOOL)
    results = tool_results(tree, mapping)
    names = {span.span_id: _named(span, tree, results) for span in spans}
    chosen = _chosen(tree, spans, names, results)
    covered = tree.outermost(chosen)
    retrievals, problems = [], []
    with_documents = {span.span_id for span in spans if names[span.span_id].documents is not None}
    inner = tree.ancestors(chosen | with_documents)
    in_search = tree.nearest_ancestor(Role.SEARCH)
    routes = Routes(tree, mapping)
    for span in spans:
        outer = covered.get(span.span_id)
        if span.span_id in chosen and outer == span.span_id:
            named = names[span.span_id]
            if named.problem:
                problems.append(SpanProblem(span, *named.problem))
            else:
                retrievals.append(_retrieval(span, named.documents or (), tree, routes))
        elif outer is not None:
            interpretation.nested += tree.role(span) is Role.SEARCH
        elif span.span_id not in inner:
            result = results.get(span.span_id)
            problems += _without_documents(span, names[span.span_id], tree, in_search, result)
    problems += _unrecognised(tree, mapping.kinds, covered, inner, limit)
    return retrievals, problems, covered


def tool_results(tree: SpanTree, mapping: SpanMapping) -> dict[str, ToolResult]:
    """What each tool returned, by span id."""
    tools = tree.with_role(Role.TOOL)
    if not tools:
        return {}
    around = tree.ancestors(
        span.span_id
        for span in tree.with_role(Role.SEARCH)
        if documents_of(span, tree.rows[span.span_id].documents).documents is not None
    )
    results = {
        span.span_id: result_of(
            span, tree.rows[span.span_id], mapping.tools, span.span_id in around
        )
        for span in tools
    }
    for id, told in tree.told.items():
        if id in results:
            name = tool_name(tree.by_id[id])
            results[id] = compared(results[id], told, name, mapping.tools)
    return results


def _named(span: Span, tree: SpanTree, results: Mapping[str, ToolResult]) -> SpanDocuments:
    row = tree.rows[span.span_id]
    result = results.get(span.span_id)
    if result is None:
        named = documents_of(span, row.documents)
        if named.documents is None and named.problem is None:
            named = documents_of(span, row.documents, read=read_documents)
    else:
        named = result.named
    if not named.documents and _failed(span, row.documents):
        return SpanDocuments(())  # a failed call has no results
    return named


def _failed(span: Span, names: Iterable[str]) -> bool:
    """Whether the call failed, by the span's status or by a tool's own message."""
    return span.failed or any(says_failed(span.value(name)) for name in names)


def _chosen(
    tree: SpanTree,
    spans: Sequence[Span],
    names: dict[str, SpanDocuments],
    results: Mapping[str, ToolResult],
) -> set[str]:
    """The ids of the spans that are searches, with any searches nested in them."""
    searching = tree.outermost(span.span_id for span in tree.with_role(Role.SEARCH, Role.RERANKER))
    models = tree.ancestors(
        span.span_id
        for span in tree.with_role(Role.MODEL, Role.TURN)
        if span.span_id not in searching or tree.role(span) is Role.TURN
    )
    tools = {span.span_id for span in spans if tree.role(span) is Role.TOOL}
    names_some = {
        id
        for id, named in names.items()
        if named.documents or (id not in tools and (named.documents is not None or _cut(named)))
    }
    inside = tree.ancestors(names_some)
    calls = {
        tree.by_id[id].name for id in tools & names_some
    }  # a tool that has found documents is also a search when it finds none
    chosen = set()
    for span in spans:
        id, named = span.span_id, names[span.span_id]
        if id in tools:
            empty = named.documents == () and (
                span.name in calls or id in inside or results[id].searches
            )
            unclear = named is OTHERS_TOLD or (_cut(named) and span.name in calls)
            if (named.documents or empty or unclear) and not (id in models and id in inside):
                chosen.add(id)
        elif id in names_some:
            chosen.add(id)
    return chosen


def _cut(named: SpanDocuments) -> bool:
    return named.problem is not None and named.problem[0] == "truncated"


def _without_documents(
    span: Span,
    named: SpanDocuments,
    tree: SpanTree,
    in_search: dict[str, str],
    result: ToolResult | None,
) -> Iterable[SpanProblem]:
    """The problems of a span that names no documents and has no search inside."""
    if tree.role(span) is Role.SEARCH:
        if span.span_id in in_search:
            return  # the problem is that of the outermost
        reason, message = named.problem or (
            "content_off",
            "it does not record its results, not even an empty list",
        )
        uploaded = uploaded_result(span, map(span.value, tree.rows[span.span_id].documents))
        if uploaded is not None:
            reason, message = "content_off", f"it does not record its results; {uploaded}"
        elif reason == "content_off" and (other := elsewhere(span, tree.rows[span.span_id])):
            reason, message = "unrecognised", other
        elif span.dropped_attributes and reason == "content_off":
            reason, message = (
                "truncated",
                "its documents are among the dropped attributes",
            )
        yield SpanProblem(span, reason, message)
    elif named.problem and named.problem[0] != "content_off":
        yield SpanProblem(span, *named.problem)
    elif not span.failed:
        searches = _is_search_tool(span) or (result is not None and result.searches)
        redacted = named.problem is not None
        problem = _unread_result(span, tree, searches, redacted)
        if problem is not None:
            yield SpanProblem(span, *problem)


def _unread_result(
    span: Span, tree: SpanTree, searches: bool, redacted: bool
) -> tuple[str, str] | None:
    """Why a tool's span has no documents, as reason and message; None if that is as it should be.

    ``searches`` is whether the tool is one that searches.
    """
    row = tree.rows[span.span_id]
    values = [*recorded(span, row)]
    uploaded = uploaded_result(span, values)
    if redacted or not values or (searches and all(map(is_missing, values))):
        if is_of_agents(tool_name(span)):
            return None
        if other := elsewhere(span, row):
            return "unrecognised", other
        uploaded = uploaded or uploaded_messages(span, tree)
    elif not searches:
        return None
    elif uploaded is None:
        copied = row_to_copy(span, row)
        rest = f"; if it has: {copied}" if copied else f"; it has {_attributes(span)}"
        message = "the tool's result has no documents in a form that is known"
        return "unrecognised", message + rest
    message = "the tool's result is not recorded"
    return "content_off", f"{message}; {uploaded}" if uploaded else message


def elsewhere(span: Span, row: Row) -> str | None:
    """That the span has its documents in an attribute that its row does not name; None if not."""
    known = {*row.documents, *row.inputs, *row.query, *INPUTS, *TOOL_INPUT, *QUESTION}
    of_events = (event.attributes for event in span.events)
    for name in dict.fromkeys(chain(span.attributes, *of_events)):
        prefix = _NUMBERED.sub("", name)
        if prefix in known:
            continue
        if document_lists(span, (name,)) or (
            prefix != name and documents_in_attributes(span, prefix)
        ):
            return (
                f"its documents are in {prefix}, which no row names: add it to `documents` of a "
                "row in `otlp.rows`"
            )
    return None


def _is_search_tool(span: Span) -> bool:
    """Whether the tool's name or description suggests a search."""
    name = span.text("gen_ai.tool.name", "tool.name", "traceloop.entity.name") or span.name
    about = span.text("gen_ai.tool.description", "tool.description") or ""
    if span.text("gen_ai.tool.type") in ("datastore", "retriever"):
        return True
    return suggests_search(name) or suggests_search(about.lower())


def _unrecognised(
    tree: SpanTree, kinds: SpanKinds, covered: dict[str, str], inner: set[str], limit: int | None
) -> Iterable[SpanProblem]:
    """Spans that look like searches but have no role as one."""
    reported: set[str] = set()
    for span in tree.ordered:
        id, role = span.span_id, tree.role(span)
        if id in tree.ignored:
            continue
        if LOST in span.attributes and role is Role.MODEL:
            message = f"the messages of {span.name!r} were cut off, and may have had tool calls"
            yield SpanProblem(span, "truncated", message)
        if span.parent_id in reported:
            reported.add(id)  # the problem of the parent covers it
            continue
        lost = kinds.truncation(span, limit, tree.longest_text)
        if lost is None and tree.role_is_uncertain(span) and id not in covered:
            lost = f"{span.name!r} lost attributes, which may have included its kind"
        if lost is not None:
            reported.add(id)
            yield SpanProblem(span, "truncated", lost, affects_nested_turns=True)
            continue
        if role not in UNKNOWN or id in covered or id in inner or span.failed:
            continue
        row = tree.rows.get(id)
        unknown = kinds.unknown_search_kind(span) if row is None or row.source != SETTINGS else None
        names = _VECTORS if role is None else _RETRIEVED
        if (
            unknown is not None
            or (role is None and (_DATABASE.match(span.name) or _is_engine_search(span)))
            or any(name.startswith(names) for name in span.attributes)
            or (suggests_search(kinds.names_of(span)) and document_lists(span))
        ):
            why = f"{span.name!r} looks like a search; it has {_attributes(span)}"
            yield SpanProblem(span, "unrecognised", f"{unknown}: {why}" if unknown else why)


def find_overlooked_search(tree: SpanTree) -> SpanProblem | None:
    """In a trace without searches, the first span that shows that something was searched.

    It returns documents that it was not given, has the name of a search tool, or is a model that
    calls such a tool.
    """
    for span in tree.ordered:
        role = tree.role(span)
        if span.span_id in tree.ignored or span.failed:
            continue
        message = None
        if role is Role.MODEL:
            called = called_tools(span, tree.rows[span.span_id].answer)
            if any(map(suggests_search, called)):
                message = (
                    "a model called a search, and nothing in its trace has the results; if each "
                    "model call is a trace, put a span around the turn"
                )
        elif role in (None, Role.OTHER):
            listed = suggests_search(span.name) and any(
                documents_in_value(span.value(name)) for name in OUTPUTS
            )
            returned = listed or document_lists(span, OUTPUTS if role else _structured(span))
            if returned and not document_lists(span, INPUTS):
                message = f"{span.name!r} has documents; it has {_attributes(span)}"
            elif any(
                suggests_search(value)
                for name, value in span.attributes.items()
                if name.lower().endswith("name") and "tool" in name.lower()
            ):
                message = f"{span.name!r} belongs to a search tool; it has {_attributes(span)}"
        if message is not None:
            return SpanProblem(span, "unrecognised", message)
    return None


def _structured(span: Span) -> Iterable[str]:
    """The attributes that may hold more than a text or a number."""
    for name, value in span.attributes.items():
        if isinstance(value, (list, dict)) or (isinstance(value, str) and value[:1] in _BEGINNINGS):
            yield name


def _is_engine_search(span: Span) -> bool:
    """Whether the span is a search engine client's, and a search."""
    system = span.text("db.system.name", "db.system")
    operation = span.text("db.operation.name", "db.operation") or span.name
    return system in _SEARCH_ENGINES and "search" in operation.replace(system or "", "").lower()


def document_lists(span: Span, names: Iterable[str] = OUTPUTS) -> list[list[Document]]:
    """The lists of documents in these attributes, also under names that a program chose."""
    lists = []
    for name in names:
        value = span.value(name)
        if value is None:
            continue
        inner = flatten_lists(value)
        for wrapper in ("outputs", "inputs"):
            if isinstance(inner, dict) and isinstance(inner.get(wrapper), dict):
                inner = inner[wrapper]
        for item in (value, *(inner.values() if isinstance(inner, dict) else (inner,))):
            documents = documents_in_value(flatten_lists(item), True)
            if isinstance(documents, list) and documents:
                lists.append(documents)
                break
    return lists


def _attributes(span: Span) -> str:
    names = sorted({re.sub(r"\.\d+\..*", ".N", name) for name in span.attributes})
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "no attributes"


def _retrieval(
    span: Span, documents: Iterable[Document], tree: SpanTree, routes: Routes
) -> Retrieval:
    row = tree.rows[span.span_id]
    query = query_of(span, (*row.query, *ARGUMENTS) if row.role is Role.TOOL else row.query)
    route = routes.of(span, query)
    return Retrieval(
        span,
        span.start_ns,
        max(span.start_ns, span.end_ns),
        query,
        None if route is not None and has_text(route, query) else route,
        tuple(documents),
    )


def query_of(span: Span, names: Iterable[str]) -> str | None:
    """The query: a text, or an argument with a usual name."""
    for name in names:
        recorded = span.text(name)
        if recorded is None:
            continue
        value = flatten_lists(recorded) if recorded.lstrip().startswith(("{", '"')) else recorded
        for _ in range(3):
            if not isinstance(value, dict):
                break
            value = next(
                (
                    value[key]
                    for key in (
                        "query",
                        "query_str",
                        "query_bundle",
                        "input",
                        "inputs",
                        "question",
                        "q",
                        "search_query",
                        "str_or_query_bundle",
                        "kwargs",
                    )
                    if value.get(key)
                ),
                next((only for only in value.values() if len(value) == 1), None),
            )
        if (asked := text(value)) is not None:
            return asked
    return None


class Routes:
    """The routes of searches: the data source, else the tool's name, else the retriever's."""

    def __init__(self, tree: SpanTree, mapping: SpanMapping) -> None:
        def tool(span: Span) -> str | None:
            if tree.role(span) is not Role.TOOL:
                return None
            return span.text(*mapping.tool) or from_span(span)

        self._sources = tree.inherited_in_turn(lambda span: span.text(*mapping.route))
        self._tools = tree.inherited_in_turn(tool)

    def of(self, span: Span, query: str | None) -> str | None:
        """The route of a search; None if it has no name, or one that is too long."""
        route = self._sources[span.span_id]
        if route is None:
            route = self._tools[span.span_id]
        if route is None:
            route = from_span(span, query)
        return None if route is None else _short(route)


def from_span(span: Span, query: str | None = None) -> str | None:
    """The name of what ran by that of its span; None for several words that may be the user's."""
    name = _RUNS.sub("", span.name)
    words = name.casefold().split()
    asked = None if query is None else query.casefold().split()
    if len(words) > 1 and (asked is None or not set(words).isdisjoint(asked)):
        return None
    return None if name in ("retrieval", "retrieve") else name


def _short(name: str) -> str | None:
    return name if 0 < len(name) <= 64 else None


def merge_duplicates(
    tree: SpanTree,
    retrievals: list[Retrieval],
    interpretation: Interpretation,
) -> tuple[list[Retrieval], list[SpanProblem], list[tuple[str, str]]]:
    """Merges searches that two instrumentations recorded.

    Returns the searches, the problems, and the ids of the spans of each merged pair.
    """
    if len({retrieval.span.scope for retrieval in retrievals}) < 2:
        return retrievals, [], []
    order = sorted(retrievals, key=lambda retrieval: (retrieval.start_ns, retrieval.span.span_id))
    pairs: list[tuple[Retrieval, Retrieval]] = []
    problems: list[SpanProblem] = []
    open_: list[Retrieval] = []
    for retrieval in order:
        open_ = [other for other in open_ if other.end_ns >= retrieval.start_ns]
        if len(open_) == MAX_CONCURRENT_SEARCHES:
            message = (
                f"more than {MAX_CONCURRENT_SEARCHES:,} searches of several scopes run concurrently"
            )
            problems.append(SpanProblem(retrieval.span, "too_large", message))
            continue
        unclear: Retrieval | None = None
        for other in open_:
            if other.span.scope == retrieval.span.scope or (
                retrieval.query and other.query and retrieval.query != other.query
            ):
                continue
            alike = _alike(other.documents, retrieval.documents)
            if alike:
                pairs.append((other, retrieval))
                open_.remove(other)
                break
            if alike is None and retrieval.query and retrieval.query == other.query:
                unclear = other
        else:
            open_.append(retrieval)
            if unclear is not None:
                scopes = f"{unclear.span.scope} and {retrieval.span.scope}"
                setting = scopes_setting(service_of(retrieval.span), unclear.span.scope)
                message = (
                    f"{scopes} recorded a search, and their documents cannot be compared; {setting}"
                )
                problems.append(SpanProblem(retrieval.span, "two_scopes", message))
    score: Counter[str] = Counter()
    for both in pairs:
        for retrieval in both:
            score[retrieval.span.scope] += sum(document.signals for document in retrieval.documents)
    left: dict[str, Retrieval] = {retrieval.span.span_id: retrieval for retrieval in retrievals}
    same_spans = []
    for both in pairs:
        keep, drop = sorted(
            both, key=lambda retrieval: (-score[retrieval.span.scope], retrieval.span.scope)
        )
        kept = left[keep.span.span_id]
        left[keep.span.span_id] = replace(
            kept,
            query=kept.query or drop.query,
            documents=tuple(
                mine.filled_from(its)
                for mine, its in zip(kept.documents, drop.documents, strict=True)
            ),
            parts=(*kept.parts, drop.span.span_id, *drop.parts),
        )
        del left[drop.span.span_id]
        same_spans.append((keep.span.span_id, drop.span.span_id))
        interpretation.duplicate += 1
    return list(left.values()), problems, same_spans


def _alike(some: Sequence[Document], others: Sequence[Document]) -> bool | None:
    if len(some) != len(others):
        return False
    unclear = False
    for one, other in zip(some, others, strict=True):
        same = same_document(one, other)
        if same is False:
            return False
        unclear = unclear or same is None
    return None if unclear else True
