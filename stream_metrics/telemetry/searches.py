"""The searches of a trace as the agent got them: the outermost, once, and after reranking."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from stream_metrics.telemetry.documents import (
    Document,
    Named,
    flat,
    in_value,
    named,
    same,
    says_failed,
)
from stream_metrics.telemetry.kinds import Kinds, says
from stream_metrics.telemetry.mapping import SETTINGS, Mapping, Role
from stream_metrics.telemetry.spans import Span, text
from stream_metrics.telemetry.texts import called_tools
from stream_metrics.telemetry.told import Told
from stream_metrics.telemetry.tree import Tree

_DATABASE: Final = re.compile(
    r"(chroma|lancedb|marqo|milvus|pinecone|qdrant|weaviate)\b.*(query|search|get|recommend|discover)"
)
_ENGINES: Final = ("elasticsearch", "opensearch")
_RETRIEVED: Final = ("retrieval.", "gen_ai.retrieval.", "gen_ai.retriever.", "reranker.output_")
_VECTORS: Final = (*_RETRIEVED, "db.vector.", "db.query.embeddings")
OUTPUTS: Final = (
    "output.value",
    "traceloop.entity.output",
    "langfuse.observation.output",
    "mlflow.spanOutputs",
    "gen_ai.completion",
    "haystack.component.output",
    "haystack.pipeline.output_data",
)
INPUTS: Final = (
    "input.value",
    "traceloop.entity.input",
    "langfuse.observation.input",
    "mlflow.spanInputs",
    "gen_ai.prompt",
)
UNKNOWN: Final = (None, Role.OTHER, Role.POSTPROCESSOR)
_BEGINNINGS: Final = ("[", "{", '"', "D")  # of JSON, and of documents as Python shows them
_TOOL: Final = re.compile(r"tool.*name$", re.IGNORECASE)
MOST_SIDE_BY_SIDE: Final = 1_000
_RUNS: Final = re.compile(r"^(vector_db_retrieve|retrieval|execute_tool|retrieve)\s+|\.\w+$")


@dataclass(frozen=True, slots=True)
class Got:
    """A search with what the agent got of it.

    ``span`` is the one whose results count, ``parts`` are the ids of others that it stands for;
    ``start_ns`` and ``end_ns`` are of all of them. ``before`` is what a reranker was given.
    """

    span: Span
    start_ns: int
    end_ns: int
    query: str | None
    route: str | None
    documents: tuple[Document, ...]
    before: tuple[Document, ...] | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Doubt:
    """A span that makes what its turn tells uncertain; ``around`` also the turns inside of it."""

    span: Span
    reason: Any
    message: str
    around: bool = False


def searches(
    tree: Tree, mapping: Mapping, told: Told, limit: int | None = None
) -> tuple[list[Got], list[Doubt], dict[str, str]]:
    """The outermost searches of a trace, and the spans that cannot be used.

    Third are the spans that are a search, or inside of one, each with the search's id. ``limit`` is
    the length at which texts of the trace were cut off for certain.
    """
    spans = tree.of(Role.SEARCH, Role.TOOL)
    names = {span.span_id: _named(span, tree) for span in spans}
    chosen = _chosen(tree, spans, names)
    covered = tree.marked(chosen)
    found, doubts = [], []
    tells = {span.span_id for span in spans if names[span.span_id].documents is not None}
    inner = tree.around(chosen | tells)
    in_search = tree.nearest(Role.SEARCH)
    routes = _Routes(tree, mapping)
    for span in spans:
        outer = covered.get(span.span_id)
        if span.span_id in chosen and outer == span.span_id:
            one = names[span.span_id]
            if one.problem:
                doubts.append(Doubt(span, *one.problem))
            else:
                found.append(_got(span, one.documents or (), tree, routes))
        elif outer is not None:
            told.nested += tree.role(span) is Role.SEARCH
        elif span.span_id not in inner:
            doubts += _without_documents(span, names[span.span_id], tree, in_search)
    doubts += _unrecognised(tree, mapping.kinds, covered, inner, limit)
    return found, doubts, covered


def _named(span: Span, tree: Tree) -> Named:
    row = tree.rows[span.span_id]
    found = named(span, row.documents, strict=row.role is Role.TOOL)
    if not found.documents and _failed(span, row.documents):
        return Named(())  # it found nothing, and did not hide it
    return found


def _failed(span: Span, names: Iterable[str]) -> bool:
    """Whether the call came to nothing, by the span's status or by a tool's own message."""
    return span.failed or any(says_failed(span.value(name)) for name in names)


def _chosen(tree: Tree, spans: Sequence[Span], names: dict[str, Named]) -> set[str]:
    """The spans that are searches, the outermost among them and what is inside of these."""
    searching = tree.marked(span.span_id for span in tree.of(Role.SEARCH, Role.RERANKER))
    models = tree.around(
        span.span_id
        for span in tree.of(Role.MODEL, Role.TURN)
        if span.span_id not in searching or tree.role(span) is Role.TURN
    )
    tools = {span.span_id for span in spans if tree.role(span) is Role.TOOL}
    names_some = {
        id
        for id, one in names.items()
        if one.documents or (id not in tools and (one.documents is not None or _cut(one)))
    }
    inside = tree.around(names_some)
    calls = {
        tree.by_id[id].name for id in tools & names_some
    }  # a tool that found something once is a search when it finds nothing
    chosen = set()
    for span in spans:
        id, one = span.span_id, names[span.span_id]
        if id in tools:
            empty = one.documents == () and (
                span.name in calls or id in inside or _is_search_tool(span)
            )
            if (one.documents or empty or (_cut(one) and span.name in calls)) and not (
                id in models and id in inside
            ):
                chosen.add(id)
        elif id in names_some:
            chosen.add(id)
    return chosen


def _cut(one: Named) -> bool:
    return one.problem is not None and one.problem[0] == "truncated"


def _without_documents(
    span: Span, one: Named, tree: Tree, in_search: dict[str, str]
) -> Iterable[Doubt]:
    """What is uncertain of a span that names no documents, and has no search inside."""
    if tree.role(span) is Role.SEARCH:
        if span.span_id in in_search:
            return  # the outermost is told of
        reason, message = one.problem or (
            "content_off",
            "it names no documents, not even that there were none",
        )
        if span.dropped_attributes and reason == "content_off":
            reason, message = (
                "truncated",
                "its documents are among the attributes that were dropped",
            )
        yield Doubt(span, reason, message)
    elif _cut(one) and one.problem:
        yield Doubt(span, *one.problem)
    elif span.failed:
        return
    elif one.problem is not None or all(
        span.value(name) is None for name in tree.rows[span.span_id].documents
    ):
        yield Doubt(span, "content_off", "the tool's result is not recorded")
    elif _is_search_tool(span):
        yield Doubt(
            span,
            "unrecognised",
            f"the tool's result has no documents; it has {_attributes(span)}",
        )


def _is_search_tool(span: Span) -> bool:
    """Whether the tool's name or description says that it searches."""
    name = span.text("gen_ai.tool.name", "tool.name", "traceloop.entity.name") or span.name
    about = span.text("gen_ai.tool.description", "tool.description") or ""
    if span.text("gen_ai.tool.type") in ("datastore", "retriever"):
        return True
    return says(name) or says(about.lower())


def _unrecognised(
    tree: Tree, kinds: Kinds, covered: dict[str, str], inner: set[str], limit: int | None
) -> Iterable[Doubt]:
    """Spans that look like searches, which no row takes for one."""
    doubted: set[str] = set()
    for span in tree.ordered:
        id, role = span.span_id, tree.role(span)
        if id in tree.ignored:
            continue
        if span.parent_id in doubted:
            doubted.add(id)  # what is around it has been said
            continue
        lost = kinds.lost(span, limit, tree.longest_text)
        if lost is None and tree.unsure(span) and id not in covered:
            lost = f"{span.name!r} lost attributes, and with them maybe what it is"
        if lost is not None:
            doubted.add(id)
            yield Doubt(span, "truncated", lost, around=True)
            continue
        if role not in UNKNOWN or id in covered or id in inner or span.failed:
            continue
        row = tree.rows.get(id)
        unknown = kinds.unknown(span) if row is None or row.source != SETTINGS else None
        names = _VECTORS if role is None else _RETRIEVED
        if (
            unknown is not None
            or (role is None and (_DATABASE.match(span.name) or _asks_engine(span)))
            or any(name.startswith(names) for name in span.attributes)
            or (says(kinds.called(span)) and held(span))
        ):
            why = f"{span.name!r} looks like a search; it has {_attributes(span)}"
            yield Doubt(span, "unrecognised", f"{unknown}: {why}" if unknown else why)


def overlooked(tree: Tree) -> Doubt | None:
    """In a trace that tells nothing, the first span by which something was searched nevertheless.

    It hands on documents that nobody gave it, has a tool's name that says that it searches, or is
    of a model that asks for such a tool.
    """
    for span in tree.ordered:
        role = tree.role(span)
        if span.span_id in tree.ignored or span.failed:
            continue
        message = None
        if role is Role.MODEL:
            called = called_tools(span, tree.rows[span.span_id].answer)
            if any(map(says, called)):
                message = "a model asked for a search, and no span tells what it returned"
        elif role in (None, Role.OTHER):
            listed = says(span.name) and any(in_value(span.value(name)) for name in OUTPUTS)
            found = listed or held(span, OUTPUTS if role else _structured(span))
            if found and not held(span, INPUTS):
                message = f"{span.name!r} has documents; it has {_attributes(span)}"
            elif any(says(value) for name, value in span.attributes.items() if _TOOL.search(name)):
                message = f"{span.name!r} is of a tool that searches; it has {_attributes(span)}"
        if message is not None:
            return Doubt(span, "unrecognised", message)
    return None


def _structured(span: Span) -> Iterable[str]:
    """The attributes that may hold more than a text or a number."""
    for name, value in span.attributes.items():
        if isinstance(value, (list, dict)) or (isinstance(value, str) and value[:1] in _BEGINNINGS):
            yield name


def _asks_engine(span: Span) -> bool:
    """Whether the span is a search engine's client's, and searches."""
    system = span.text("db.system.name", "db.system")
    operation = span.text("db.operation.name", "db.operation") or span.name
    return system in _ENGINES and "search" in operation.replace(system or "", "").lower()


def held(span: Span, names: Iterable[str] = OUTPUTS) -> list[list[Document]]:
    """The lists of documents that a span hands on, be it under names of the program's own."""
    found = []
    for name in names:
        value = span.value(name)
        if value is None:
            continue
        inner = flat(value)
        for wrapper in ("outputs", "inputs"):
            if isinstance(inner, dict) and isinstance(inner.get(wrapper), dict):
                inner = inner[wrapper]
        for one in (value, *(inner.values() if isinstance(inner, dict) else (inner,))):
            documents = in_value(flat(one), True)
            if isinstance(documents, list) and documents:
                found.append(documents)
                break
    return found


def _attributes(span: Span) -> str:
    names = sorted({re.sub(r"\.\d+\..*", ".N", name) for name in span.attributes})
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "no attributes"


def _got(span: Span, documents: Iterable[Document], tree: Tree, routes: _Routes) -> Got:
    query = query_of(span, tree.rows[span.span_id].query)
    return Got(
        span,
        span.start_ns,
        max(span.start_ns, span.end_ns),
        query,
        routes.of(span),
        tuple(documents),
    )


def query_of(span: Span, names: Iterable[str]) -> str | None:
    """What was searched for: a text, or an argument of an object with a usual name."""
    for name in names:
        found = span.text(name)
        if found is None:
            continue
        value = flat(found) if found.lstrip().startswith(("{", '"')) else found
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
                    )
                    if value.get(key)
                ),
                next((one for one in value.values() if len(value) == 1), None),
            )
        if (asked := text(value)) is not None:
            return asked
    return None


class _Routes:
    """The routes of searches: the data source, else the tool's name, else the retriever's."""

    def __init__(self, tree: Tree, mapping: Mapping) -> None:
        def tool(span: Span) -> str | None:
            if tree.role(span) is not Role.TOOL:
                return None
            return span.text(*mapping.tool) or _RUNS.sub("", span.name)

        self._sources = tree.within_turn(lambda span: span.text(*mapping.route))
        self._tools = tree.within_turn(tool)

    def of(self, span: Span) -> str | None:
        """The route of a search; None if it has no name, or one that is too long."""
        found = self._sources[span.span_id]
        if found is None:
            found = self._tools[span.span_id]
        if found is None:
            found = _RUNS.sub("", span.name)
            if found in ("retrieval", "retrieve"):
                return None
        return _short(found)


def _short(name: str) -> str | None:
    return name if 0 < len(name) <= 64 else None


def merged(
    tree: Tree, found: list[Got], told: Told, preferred: frozenset[str]
) -> tuple[list[Got], list[Doubt], list[tuple[str, str]]]:
    """Searches that two instrumentations told as one; the pairs of spans that were the same."""
    if len({one.span.scope for one in found}) < 2:
        return found, [], []
    order = sorted(found, key=lambda one: (one.start_ns, one.span.span_id))
    pairs: list[tuple[Got, Got]] = []
    doubts: list[Doubt] = []
    open_: list[Got] = []
    for one in order:
        open_ = [other for other in open_ if other.end_ns >= one.start_ns]
        if len(open_) == MOST_SIDE_BY_SIDE:
            message = f"more than {MOST_SIDE_BY_SIDE:,} searches of several scopes run side by side"
            doubts.append(Doubt(one.span, "too_large", message))
            continue
        unclear: Got | None = None
        for other in open_:
            if other.span.scope == one.span.scope or (
                one.query and other.query and one.query != other.query
            ):
                continue
            alike = _alike(other.documents, one.documents)
            if alike:
                pairs.append((other, one))
                open_.remove(other)
                break
            if alike is None and one.query and one.query == other.query:
                unclear = other
        else:
            open_.append(one)
            if unclear is not None:
                scopes = f"{unclear.span.scope} and {one.span.scope}"
                message = f"{scopes} tell a search, and their documents do not compare"
                doubts.append(Doubt(one.span, "two_scopes", message))
    score: Counter[str] = Counter()
    for both in pairs:
        for one in both:
            score[one.span.scope] += sum(document.signals for document in one.documents)
    left: dict[str, Got] = {one.span.span_id: one for one in found}
    same_spans = []
    for both in pairs:
        keep, drop = sorted(both, key=lambda one: (-score[one.span.scope], one.span.scope))
        kept = left[keep.span.span_id]
        left[keep.span.span_id] = replace(
            kept,
            query=kept.query or drop.query,
            documents=tuple(
                mine.filled(its) for mine, its in zip(kept.documents, drop.documents, strict=True)
            ),
            parts=(*kept.parts, drop.span.span_id, *drop.parts),
        )
        del left[drop.span.span_id]
        same_spans.append((keep.span.span_id, drop.span.span_id))
        told.duplicate += 1
    return list(left.values()), doubts, same_spans


def _alike(some: Sequence[Document], others: Sequence[Document]) -> bool | None:
    if len(some) != len(others):
        return False
    unclear = False
    for one, other in zip(some, others, strict=True):
        found = same(one, other)
        if found is False:
            return False
        unclear = unclear or found is None
    return None if unclear else True
