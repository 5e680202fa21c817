"""Real traces, changed as instrumentations, SDKs and networks change them.

After any change of a captured program's spans, each of its turns has the figures that the program
recorded, is refused with a reason, or has iterations marked as inferred.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import msgspec
import pytest

from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import Options, Role, Span, events, interpret
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.lab.replay.offline import Replay
from tests.helpers import rest_long
from tests.telemetry import CONFORMANCE, EXPECTED, MAPPING, OTEL, capture, traces

Figures = tuple[int, int, float]
"""Iterations, results and SRR of a turn."""

RIGHT, REFUSED, INFERRED = "right", "refused", "inferred"
# The scope to leave out of programs that two instrumentations recorded in traces of their own.
TOLD_TWICE: Final = {
    "langchain-openinference-graph-and-otel": OTEL,
    "langchain-openinference+mlflow-graph": "mlflow.tracing.provider",
}


# Outcomes.


@dataclass(frozen=True)
class Outcome:
    """The outcome of each turn with a search, and the reasons of refusals."""

    turns: Counter[str]
    reasons: frozenset[str]
    wrong: tuple[str, ...]


@cache
def _accounts() -> dict[str, Any]:
    """The figures that programs of the conformance tests recorded, as far as traces show them."""
    found = json.loads((CONFORMANCE / "accounts.json").read_text())
    return {name: one for name, one in found.items() if one["verdict"][0] in (RIGHT, INFERRED)}


@cache
def _groups(name: str) -> tuple[tuple[Span, ...], ...]:
    """The traces of a capture, limited to one instrumentation."""
    spans = capture(name, CONFORMANCE) if name in _accounts() else capture(name)
    spans = [span for span in spans if span.scope != TOLD_TWICE.get(name)]
    return tuple(tuple(group) for group in traces(spans))


@cache
def _expected(name: str) -> list[Figures]:
    """The figures of a program's turns, in the order of the turns."""
    if name not in _accounts():
        rows = sorted(EXPECTED[name], key=lambda row: (row["conversation_id"], row["turn"]))
        return [(row["iterations"], row["results"], row["srr"]) for row in rows]
    turns: dict[tuple[str, int], list[Any]] = {}
    for session, turn, iteration, ids in _accounts()[name]["account"]:
        turns.setdefault((session, turn), []).append((iteration, ids))
    found = []
    for _, each in sorted(turns.items()):
        ids = [id for _, some in each for id in some]
        repeated = len(ids) - len(set(ids))
        found.append((len({number for number, _ in each}), len(ids), repeated / max(1, len(ids))))
    return found


@cache
def _truth(name: str) -> tuple[tuple[Figures, ...], ...]:
    """The figures of each trace's turns, as the program recorded them."""
    interpreted = [interpret(group, MAPPING) for group in _groups(name)]
    named = name not in _accounts()
    starts = sorted(
        (turn.conversation if named else "", turn.number, at)
        for at, one in enumerate(interpreted)
        for turn in one.turns
        if turn.searches
    )
    found: list[list[Figures]] = [[] for _ in interpreted]
    due = _expected(name) if starts else []  # else the capture itself is refused
    for (_, _, at), figures in zip(starts, due, strict=True):
        found[at].append(figures)
    return tuple(tuple(each) for each in found)


def outcome(
    name: str,
    groups: Iterable[Iterable[Span]],
    truth: Iterable[tuple[Figures, ...]],
    options: Options,
) -> Outcome:
    """The interpretations of the traces, compared with the truth."""
    interpreted = [interpret(group, MAPPING, options) for group in groups]
    replay = Replay(turn_scope="all")
    for event in (event for one in interpreted for event in events(one, options.content)):
        replay.feed(Record(event.value, event.conversation.encode(), event.occurred_us // 1000))
    assert not replay.rejected, replay.rejected
    rows = {(row["conversation_id"], row["turn"]): row for row in replay.rows()}
    turns: Counter[str] = Counter()
    reasons: set[str] = set()
    wrong = []
    for one, due in zip(interpreted, truth, strict=True):
        left = Counter(due)
        reasons |= set(one.refused)
        for turn in one.turns:
            row = rows[(turn.conversation, turn.number)]
            if not turn.searches:
                continue
            figures = (len(row["iterations"]), row["results"], row["srr"])
            near = [each for each in left.elements() if each[1:] == figures[1:]]
            if left[figures]:
                left[figures] -= 1
                turns[RIGHT] += 1
            elif turn.iterations_inferred and near:
                left[near[0]] -= 1
                turns[INFERRED] += 1
            else:
                wrong.append(f"{figures} found, {due} expected, refused {dict(one.refused)}")
        missing = sum(left.values())
        if missing and not one.refused:
            wrong.append(f"{missing} of {due} are missing, and none is refused")
        turns[REFUSED] += missing
    return Outcome(+turns, frozenset(reasons), tuple(wrong))


# Changes of spans.

Spans = list[Span]
Change = Callable[[Spans, random.Random], Spans]

_ROLES: Final = (Role.SEARCH, Role.TOOL, Role.RERANKER, Role.JOINER, Role.POSTPROCESSOR)
_KINDS: Final = (
    "openinference.span.kind",
    "gen_ai.operation.name",
    "langfuse.observation.type",
    "traceloop.span.kind",
    "llm.request.type",
    "gen_ai.tool.type",
    "gen_ai.span.kind",
    "mlflow.spanType",
    "langsmith.span.kind",
)
_OUTPUTS: Final = (
    "output.value",
    "traceloop.entity.output",
    "gen_ai.task.output",
    "langfuse.observation.output",
    "gen_ai.retrieval.documents",
    "gen_ai.retriever.results",
    "gen_ai.tool.call.result",
    "mlflow.spanOutputs",
    "gen_ai.completion",
    "haystack.component.output",
)
_CONVERSATIONS: Final = ("session", "conversation", "thread", "lc_agent_name", "ls_integration")


def role(span: Span) -> Role | None:
    row = MAPPING.row(span)
    return row.role if row else None


def changed(span: Span, **parts: Any) -> Span:
    return msgspec.structs.replace(span, **parts)


def with_attributes(span: Span, **attributes: Any) -> Span:
    return changed(span, attributes={**span.attributes, **attributes})


def each(change: Callable[[Span], Span], *roles: Role | None) -> Change:
    """A change of each span, or of each span with one of the roles."""

    def change_all(spans: Spans, rng: random.Random) -> Spans:
        return [change(span) if not roles or role(span) in roles else span for span in spans]

    return change_all


def attributes(change: Callable[[dict[str, Any]], dict[str, Any]], *roles: Role | None) -> Change:
    """A change of each span's attributes."""
    return each(lambda span: changed(span, attributes=change(dict(span.attributes))), *roles)


def value(change: Callable[[str, str], Any], *roles: Role | None) -> Change:
    """A change of each text in attributes, given its name."""
    return attributes(
        lambda found: {
            name: change(name, one) if isinstance(one, str) else one for name, one in found.items()
        },
        *roles,
    )


def kinds(change: Callable[[str], Any], *roles: Role | None) -> Change:
    """A change of the attributes that name kinds."""
    return value(lambda name, one: change(one) if name in _KINDS else one, *roles)


def constantly(one: str) -> Callable[[str], str]:
    return lambda _: one


def shuffled(spans: Spans, rng: random.Random) -> Spans:
    return rng.sample([*spans, *rng.choices(spans, k=7)], k=len(spans) + 7)


def later(spans: Spans, rng: random.Random) -> Spans:
    shift = 3_600 * 10**9
    return [
        changed(span, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift) for span in spans
    ]


def slower(spans: Spans, rng: random.Random) -> Spans:
    """Make everything take three times as long."""
    first = min(span.start_ns for span in spans)
    return [
        changed(
            span,
            start_ns=first + 3 * (span.start_ns - first),
            end_ns=first + 3 * (span.end_ns - first),
        )
        for span in spans
    ]


def renamed_ids(spans: Spans, rng: random.Random) -> Spans:
    ids = {span.span_id: f"{rng.getrandbits(64):016x}" for span in spans}
    return [
        changed(span, span_id=ids[span.span_id], parent_id=ids.get(span.parent_id, span.parent_id))
        for span in spans
    ]


def below(count: int, **others: Any) -> Change:
    """Spans of a web server or another program around all others."""

    def put_below(spans: Spans, rng: random.Random) -> Spans:
        first = min(spans, key=lambda span: span.start_ns)
        last = max(span.end_ns for span in spans)
        outer: Spans = []
        for at in range(count):
            outer.append(
                Span(
                    first.trace_id,
                    f"{at + 1:016x}",
                    outer[-1].span_id if outer else "",
                    first.start_ns - 1000,
                    last + 1000,
                    False,
                    dict(others.get("attributes", {"http.request.method": "POST"})),
                    first.resource,
                    others.get("name", "POST /chat"),
                    scope=others.get("scope", "opentelemetry.instrumentation.fastapi"),
                )
            )
        return [
            *outer,
            *(
                span if span.parent_id else changed(span, parent_id=outer[-1].span_id)
                for span in spans
            ),
        ]

    return put_below


def inside(which: Role, rng_id: str, **others: Any) -> Change:
    """An additional span inside each span of a role."""

    def put_inside(spans: Spans, rng: random.Random) -> Spans:
        added = [
            Span(
                span.trace_id,
                f"{rng.getrandbits(64):016x}",
                span.span_id,
                span.start_ns + (span.end_ns - span.start_ns) // 4,
                span.end_ns - (span.end_ns - span.start_ns) // 4,
                False,
                dict(others["attributes"]),
                span.resource,
                others.get("name", rng_id),
                scope=others.get("scope", span.scope),
            )
            for span in spans
            if role(span) is which
        ]
        return [*spans, *added]

    return put_inside


def around(which: Role, change: Callable[[Span], dict[str, Any]], **others: Any) -> Change:
    """A span around each outermost span of a role; ``change`` gives its attributes."""

    def put_around(spans: Spans, rng: random.Random) -> Spans:
        by_id = {span.span_id: span for span in spans}

        def nested(span: Span) -> bool:
            parent = by_id.get(span.parent_id)
            while parent is not None:
                if role(parent) in _ROLES:
                    return True
                parent = by_id.get(parent.parent_id)
            return False

        found: Spans = []
        for span in spans:
            if role(span) is which and not nested(span):
                id = f"{rng.getrandbits(64):016x}"
                outer = Span(
                    span.trace_id,
                    id,
                    span.parent_id,
                    span.start_ns,
                    span.end_ns,
                    others.get("failed", False),
                    change(span),
                    span.resource,
                    others.get("name", "wrapper"),
                    scope=others.get("scope", span.scope),
                )
                found += [outer, changed(span, parent_id=id)]
            else:
                found.append(span)
        return found

    return put_around


def second_instrumentation(scope: str) -> Change:
    """A second instrumentation in the same trace, whose clock is slightly ahead."""

    def add_spans(spans: Spans, rng: random.Random) -> Spans:
        ids = {span.span_id: f"{rng.getrandbits(64):016x}" for span in spans}
        return [
            *spans,
            *(
                changed(
                    span,
                    span_id=ids[span.span_id],
                    parent_id=ids.get(span.parent_id, ""),
                    scope=scope,
                    start_ns=span.start_ns + 900,
                    end_ns=span.end_ns + 900,
                )
                for span in spans
            ),
        ]

    return add_spans


def twice_encoded(name: str, text: str) -> str:
    return json.dumps(text) if name in _OUTPUTS and parse_value(text) is not None else text


def as_python(name: str, text: str) -> str:
    inner = parse_value(text) if name in _OUTPUTS and text[:1] in "[{" else None
    return text if inner is None else repr(inner)


def spaced(name: str, text: str) -> str:
    inner = parse_value(text) if name in _OUTPUTS and text[:1] in "[{" else None
    return text if inner is None else json.dumps(inner, indent=3)


def without(*parts: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Remove attributes whose names contain one of the parts."""
    return lambda found: {
        name: one for name, one in found.items() if not any(part in name for part in parts)
    }


def structured(found: dict[str, Any]) -> dict[str, Any]:
    """Flattened documents as one attribute with a list."""
    documents: dict[int, dict[str, Any]] = {}
    rest = {}
    for name, one in found.items():
        if name.startswith("retrieval.documents."):
            number, _, part = name.removeprefix("retrieval.documents.").partition(".")
            documents.setdefault(int(number), {})[part] = one
        else:
            rest[name] = one
    if documents:
        rest["retrieval.documents"] = [documents[at] for at in sorted(documents)]
    return rest


def limited(count: int, *, oldest: bool = True, roles: tuple[Role | None, ...] = ()) -> Change:
    """An SDK with an attribute count limit; Python's keeps the newest attributes."""

    def limit(span: Span) -> Span:
        names = list(span.attributes)
        kept = names[-count:] if oldest else names[:count]
        if len(kept) == len(names):
            return span
        return changed(
            span,
            attributes={name: span.attributes[name] for name in kept},
            dropped_attributes=len(names) - len(kept),
        )

    return each(limit, *roles)


def cut_texts_at(length: int) -> Change:
    """An SDK with an attribute value length limit."""
    return value(lambda _, text: text[:length])


def in_documents(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """A change of every document, in any attribute."""

    def walk(one: Any) -> Any:
        if isinstance(one, list):
            return [walk(inner) for inner in one]
        if isinstance(one, dict):
            inner = {name: walk(part) for name, part in one.items()}
            is_one = {"page_content", "content", "id_", "document.content"} & inner.keys()
            return change(inner) if is_one or inner.keys() <= {"id", "score"} else inner
        if isinstance(one, str) and one[:1] in "[{" and (inner := parse_value(one)) is not None:
            return json.dumps(walk(inner))
        return one

    def of_span(found: dict[str, Any]) -> dict[str, Any]:
        found = structured(found)
        return {
            name: walk(one) if name in (*_OUTPUTS, "retrieval.documents") else one
            for name, one in found.items()
        }

    return attributes(of_span, *_ROLES)


def new_ids_per_search(spans: Spans, rng: random.Random) -> Spans:
    """Every search generates new ids of its results, as frameworks do for nodes without ids."""

    def change(document: dict[str, Any]) -> dict[str, Any]:
        id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        names = [name for name in ("id", "id_", "document.id") if name in document]
        return {**document, **dict.fromkeys(names or ["id"], id)}

    return in_documents(change)(spans, rng)


def retried(spans: Spans, rng: random.Random) -> Spans:
    """A failed attempt precedes each search under the same parent."""
    found: Spans = []
    for span in spans:
        if role(span) is Role.SEARCH:
            found.append(
                changed(
                    span,
                    span_id=f"{rng.getrandbits(64):016x}",
                    end_ns=span.start_ns,
                    start_ns=span.start_ns - 100,
                    failed=True,
                    attributes={
                        name: one
                        for name, one in span.attributes.items()
                        if name not in _OUTPUTS and not name.startswith("retrieval.documents")
                    },
                )
            )
        found.append(span)
    return found


def circular(spans: Spans, rng: random.Random) -> Spans:
    root = next(span for span in spans if not span.parent_id)
    leaf = max(spans, key=lambda span: span.start_ns)
    return [changed(span, parent_id=leaf.span_id) if span is root else span for span in spans]


def without_inner_spans(spans: Spans, rng: random.Random) -> Spans:
    """Spans that have children are missing."""
    parents = {span.parent_id for span in spans} - {""}
    lost = rng.choice(sorted(parents)) if parents else ""
    return [span for span in spans if span.span_id != lost]


def searches_in_other_sessions(spans: Spans, rng: random.Random) -> Spans:
    return [
        with_attributes(span, **{"session.id": "other", "gen_ai.conversation.id": "other"})
        if role(span) is Role.SEARCH
        else span
        for span in spans
    ]


def models_stream_on(spans: Spans, rng: random.Random) -> Spans:
    """Answers are streamed until long after tools have started."""
    last = max(span.end_ns for span in spans)
    return [changed(span, end_ns=last) if role(span) is Role.MODEL else span for span in spans]


def judged(*, between: bool) -> Change:
    """An evaluator with a model call, a retriever and an agent."""

    def judge(spans: Spans, rng: random.Random) -> Spans:
        found = list(spans)
        for span in spans:
            if role(span) is not Role.SEARCH:
                continue
            start = span.end_ns + 1 if between else max(one.end_ns for one in spans)
            ids = [f"{rng.getrandbits(64):016x}" for _ in range(4)]
            parts = [
                ("EVALUATOR", ids[0], span.parent_id),
                ("AGENT", ids[1], ids[0]),
                ("LLM", ids[2], ids[1]),
                ("RETRIEVER", ids[3], ids[1]),
            ]
            found += [
                Span(
                    span.trace_id,
                    id,
                    parent,
                    start + at,
                    start + 9 - at,
                    False,
                    {
                        "openinference.span.kind": kind,
                        "retrieval.documents.0.document.id": f"judged-{id}",
                    },
                    span.resource,
                    "judge",
                    scope="phoenix.evals",
                )
                for at, (kind, id, parent) in enumerate(parts)
            ]
        return found

    return judge


def kind(name: str) -> Callable[[Span], dict[str, Any]]:
    return lambda _: {"openinference.span.kind": name}


def text_tool(_: Span) -> dict[str, Any]:
    return {
        "openinference.span.kind": "TOOL",
        "tool.name": "handbook",
        "output.value": "Some text based on the results.",
    }


def same_documents_tool(span: Span) -> dict[str, Any]:
    return {
        **text_tool(span),
        **{
            name: one
            for name, one in span.attributes.items()
            if name in _OUTPUTS or name.startswith("retrieval.documents.")
        },
        "documents": None,
    }


def skewed(seconds: int) -> Change:
    """Searches, and the spans inside them, ran on a machine with clock skew."""

    def skew(spans: Spans, rng: random.Random) -> Spans:
        by_id = {span.span_id: span for span in spans}
        shift = seconds * 10**9

        def inside(span: Span) -> bool:
            one: Span | None = span
            while one is not None:
                if role(one) is Role.SEARCH:
                    return True
                one = by_id.get(one.parent_id)
            return False

        return [
            changed(span, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift)
            if inside(span)
            else span
            for span in spans
        ]

    return skew


def as_tool_of_another_agent(spans: Spans, rng: random.Random) -> Spans:
    """Another agent calls this one as a tool."""
    first, last = min(s.start_ns for s in spans), max(s.end_ns for s in spans)
    outer, call, asked = (f"{rng.getrandbits(64):016x}" for _ in range(3))
    trace, resource = spans[0].trace_id, spans[0].resource

    def made(id: str, parent: str, start: int, end: int, kind: str, **others: Any) -> Span:
        named = {"openinference.span.kind": kind, **others}
        return Span(trace, id, parent, start, end, False, named, resource, kind.lower(), scope="x")

    return [
        made(outer, "", first - 9000, last + 9000, "AGENT"),
        made(asked, outer, first - 8000, first - 7000, "LLM"),
        made(
            call,
            outer,
            first - 6000,
            last + 6000,
            "TOOL",
            **{"tool.name": "ask_researcher", "output.value": "The answer of the other agent."},
        ),
        *(span if span.parent_id else changed(span, parent_id=call) for span in spans),
    ]


REDACTED = "__REDACTED__"
WITHOUT_TEXT = {"page_content": None, "content": None, "document.content": None, "text": None}

CHANGES: Final[dict[str, tuple[Change, str]]] = {
    "in another order, some repeated": (shuffled, RIGHT),
    "an hour later": (later, RIGHT),
    "slowed down three times": (slower, RIGHT),
    "with other ids": (renamed_ids, RIGHT),
    "inside a web server's span": (below(1), RIGHT),
    "inside several unknown spans": (below(4, attributes={}, name="step", scope="app"), RIGHT),
    "inside a chain": (
        below(1, attributes={"openinference.span.kind": "CHAIN"}, name="session"),
        RIGHT,
    ),
    "inside an agent": (
        below(1, attributes={"openinference.span.kind": "AGENT"}, name="supervisor"),
        RIGHT,
    ),
    "outputs encoded twice": (value(twice_encoded), RIGHT),
    "outputs with spaces": (value(spaced), RIGHT),
    "outputs in Python's notation": (value(as_python), RIGHT),
    "documents as a structure": (attributes(structured), ""),
    "without flattened documents": (attributes(without("retrieval.documents.")), ""),
    "without a retriever's output": (attributes(without("output.value"), Role.SEARCH), ""),
    "without conversations": (attributes(without(*_CONVERSATIONS)), RIGHT),
    "with an embedding in each search": (
        inside(Role.SEARCH, "embed", attributes={"openinference.span.kind": "EMBEDDING"}),
        RIGHT,
    ),
    "with a vector database in each search": (
        inside(
            Role.SEARCH,
            "chroma.query",
            attributes={"db.system": "chroma", "db.operation": "query", "db.vector.query.top_k": 3},
            scope="opentelemetry.instrumentation.chromadb",
        ),
        RIGHT,
    ),
    "with a model call in each search": (
        inside(Role.SEARCH, "rewrite", attributes={"openinference.span.kind": "LLM"}),
        RIGHT,
    ),
    "with a chain around each search": (around(Role.SEARCH, kind("CHAIN")), RIGHT),
    "with a tool around each search": (around(Role.SEARCH, text_tool), RIGHT),
    "with a tool around each search that returns the same documents": (
        around(Role.SEARCH, same_documents_tool),
        RIGHT,
    ),
    "with an evaluator at the end": (judged(between=False), RIGHT),
    "with an evaluator after each search": (judged(between=True), RIGHT),
    "with a failed attempt before each search": (retried, RIGHT),
    "models stream to the end": (models_stream_on, RIGHT),
    "with a second instrumentation": (second_instrumentation("vendor.instrumentation"), ""),
    "with a second instrumentation that sorts first": (second_instrumentation("a.vendor"), ""),
    "with another scope name": (each(lambda span: changed(span, scope="x.y")), ""),
    "without the kinds of searches": (attributes(without(*_KINDS), Role.SEARCH), ""),
    "without the kinds of tools": (attributes(without(*_KINDS), Role.TOOL), ""),
    "without the kinds of turns": (attributes(without(*_KINDS), Role.TURN), RIGHT),
    "without the kinds of models": (attributes(without(*_KINDS), Role.MODEL), ""),
    "without the kinds of rerankers": (
        attributes(without(*_KINDS), Role.RERANKER, Role.POSTPROCESSOR, Role.JOINER),
        "",
    ),
    **{
        f"kinds {how}": (kinds(change), due)
        for how, change, due in (
            ("in lower case", str.lower, RIGHT),
            ("in upper case", str.upper, RIGHT),
            ("as lists", lambda one: [one], ""),
            ("as numbers", lambda _: 7, ""),
            ("left empty", lambda _: "", ""),
            ("of at most 4", lambda one: one[:4], ""),
        )
    },
    **{
        f"{of.value}s of the kind {one}": (kinds(constantly(one), of), "")
        for of in (Role.SEARCH, Role.TOOL, Role.RERANKER, Role.MODEL)
        for one in ("RETRIEVAL", "custom")
    },
    "outputs redacted": (
        value(lambda name, one: REDACTED if name in _OUTPUTS else one, *Role, None),
        "",
    ),
    "outputs and inputs redacted": (
        value(lambda name, one: REDACTED if name in (*_OUTPUTS, "input.value") else one),
        "",
    ),
    "without outputs": (attributes(without(*_OUTPUTS)), ""),
    "texts of documents redacted": (
        in_documents(lambda one: {k: REDACTED if k in WITHOUT_TEXT else v for k, v in one.items()}),
        "",
    ),
    "texts of documents masked": (
        in_documents(lambda one: {k: "*****" if k in WITHOUT_TEXT else v for k, v in one.items()}),
        "",
    ),
    "texts of documents masked by a failed function": (
        in_documents(
            lambda one: {
                k: "<fully masked due to failed mask function>" if k in WITHOUT_TEXT else v
                for k, v in one.items()
            }
        ),
        "",
    ),
    "documents without ids": (
        in_documents(
            lambda one: {k: v for k, v in one.items() if k not in ("id", "id_", "document.id")}
        ),
        "",
    ),
    "documents without ids and texts": (
        in_documents(lambda one: {k: v for k, v in one.items() if k in ("metadata", "score")}),
        "",
    ),
    "documents with new ids in each search": (new_ids_per_search, ""),
    "without inner spans": (without_inner_spans, ""),
    "parents in a circle": (circular, REFUSED),
    "as a tool of another agent": (as_tool_of_another_agent, ""),
    "searches on a clock that is ahead": (skewed(3_600), ""),
    "searches on a clock that is behind": (skewed(-3_600), ""),
    "searches name another session": (searches_in_other_sessions, ""),
    "searches start in 1970": (
        each(lambda span: changed(span, start_ns=5, end_ns=9), Role.SEARCH),
        "",
    ),
    "all in seconds": (
        each(
            lambda span: changed(span, start_ns=span.start_ns // 10**9, end_ns=span.end_ns // 10**9)
        ),
        REFUSED,
    ),
    **{
        f"at most {count} attributes, the {'last' if oldest else 'first'}": (
            limited(count, oldest=oldest),
            "",
        )
        for count in (2, 3, 5, 8, 12, 20)
        for oldest in (True, False)
    },
    **{
        f"{of.value}s of at most {count} attributes, the {'last' if oldest else 'first'}": (
            limited(count, oldest=oldest, roles=(of,)),
            "",
        )
        for of in (Role.MODEL, Role.TURN, Role.TOOL, Role.SEARCH, Role.RERANKER)
        for count in (2, 6)
        for oldest in (True, False)
    },
    **{
        f"texts of at most {length}": (cut_texts_at(length), "")
        for length in (3, 4, 6, 9, 12, 20, 60, 100, 200, 500, 1500)
    },
}


SESSIONS: Final = frozenset(
    {
        "as a tool of another agent",
        "inside an agent",
        "without the kinds of turns",
        "with another scope name",
    }
)
"""Changes that merge the turns of a session in one trace."""
SCOPES: Final = frozenset(how for how in CHANGES if "instrumentation" in how or "scope" in how)
"""Changes that give several instrumentations one name."""
AGENTS: Final = frozenset({"as a tool of another agent"})
"""Changes that depend on agents."""
WITH_TEXTS: Final = frozenset({"documents with new ids in each search"})
"""Changes that only texts show."""


def _is_about(how: str, name: str) -> bool:
    if how in SESSIONS and any(len(turns) > 1 for turns in _truth(name)):
        return False
    if how in SCOPES and "+" in name:
        return False
    if how in AGENTS and not all(role(root) is Role.TURN for root in _roots(name)):
        return False
    return how not in WITH_TEXTS or "-otel-" not in name


def _roots(name: str) -> list[Span]:
    """The outermost spans of traces with turns."""
    return [
        span
        for group, turns in zip(_groups(name), _truth(name), strict=True)
        for span in group
        if turns and not span.parent_id
    ]


LIMITS: Final = sorted(how for how in CHANGES if "at most" in how)


NOW: Final = [*sorted(CHANGES.keys() - LIMITS), *LIMITS[:4]]
EVERY: Final = 3  # program is changed in one way, and another by the next; the rest is long


@pytest.mark.parametrize(
    ("how", "first"),
    rest_long(
        [*((how, 0) for how in NOW), *((how, first) for how in NOW for first in range(1, EVERY)),
         *((how, first) for how in LIMITS[4:] for first in range(EVERY))],
        now=len(NOW),
    ),
)  # fmt: skip
def test_a_changed_trace_is_right_or_refused(how: str, first: int) -> None:
    """No turn of a captured program has wrong figures or is missing without a reason."""
    at = sorted(CHANGES).index(how) + first
    assert not _wrong(how, sorted(EXPECTED)[at % EVERY :: EVERY])


@pytest.mark.parametrize("how", rest_long(sorted(CHANGES), now=1))
def test_a_changed_trace_of_any_instrumentation_is_right_or_refused(how: str) -> None:
    """The same holds for the programs of the conformance tests and their instrumentations."""
    assert not _wrong(how, _accounts())


def _wrong(how: str, names: Iterable[str]) -> list[str]:
    """The turns of changed traces that are neither right nor refused."""
    change, due = CHANGES[how]
    wrong = []
    for name in filter(partial(_is_about, how), names):
        for options in (Options(), Options(content=False)):
            rng = random.Random(f"{how} {name}")
            groups = [change([*group], rng) for group in _groups(name)]
            found = outcome(name, groups, _truth(name), options)
            wrong += [f"{name}: {one}" for one in found.wrong]
            if due == RIGHT and name in EXPECTED and found.turns[REFUSED]:
                wrong.append(f"{name}: refused for {sorted(found.reasons)}")
            if due == REFUSED and found.turns[RIGHT] + found.turns[INFERRED]:
                wrong.append(f"{name}: interpreted")
    return list(dict.fromkeys(wrong))
