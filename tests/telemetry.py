"""Builders of spans for the tests of telemetry, and stored traces of real frameworks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from stream_metrics.core.telemetry import Interpretation, Options, Span, events, interpret, mapping
from stream_metrics.core.telemetry.otlp.payloads import spans_of

CAPTURES: Final = Path(__file__).parent / "data" / "otlp"
CONFORMANCE: Final = CAPTURES.parent / "conformance"
EXPECTED: Final[dict[str, list[dict[str, Any]]]] = json.loads(
    (CAPTURES / "expected.json").read_text()
)
MAPPING: Final = mapping()
START_NS: Final = 1_718_020_800_000_000_000
SCOPE: Final = "openinference.instrumentation.langchain"
OTEL: Final = "opentelemetry.instrumentation.genai.langchain"


def capture(name: str, folder: Path = CAPTURES) -> list[Span]:
    """The spans of a captured program; those of the conformance tests are in ``CONFORMANCE``."""
    lines = gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [span for line in lines for span in spans_of(line)]


def traces(spans: Iterable[Span]) -> list[list[Span]]:
    """Spans by trace, in the order of their ids."""
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.trace_id, []).append(span)
    return [found[id] for id in sorted(found)]


def interpreted(*spans: Span, **options: Any) -> Interpretation:
    """The interpretation of one trace under the presets."""
    return interpret(spans, MAPPING, Options(**options))


def values(one: Interpretation) -> list[dict[str, Any]]:
    """The events of the interpretation as JSON objects."""
    return [json.loads(event.value) for event in events(one)]


def span(
    id: str,
    parent: str = "",
    start: float = 0,
    end: float | None = None,
    attributes: Mapping[str, Any] | None = None,
    **others: Any,
) -> Span:
    """A span; times are milliseconds after ``START_NS``."""
    return Span(
        others.pop("trace_id", "t"),
        id,
        parent,
        START_NS + int(start * 1e6),
        START_NS + int((start + 1 if end is None else end) * 1e6),
        others.pop("failed", False),
        dict(attributes or {}),
        others.pop("resource", {"service.name": "service"}),
        others.pop("name", id),
        scope=others.pop("scope", SCOPE),
        **others,
    )


def of_kind(
    kind: str,
    id: str,
    parent: str = "",
    start: float = 0,
    end: float | None = None,
    **others: Any,
) -> Span:
    """An OpenInference span."""
    attributes = {"openinference.span.kind": kind, **others.pop("attributes", {})}
    return span(id, parent, start, end, attributes, **others)


def agent(id: str = "agent", start: float = 0, end: float = 1000, **others: Any) -> Span:
    """A turn span; ``called`` is the agent's name."""
    if (name := others.pop("called", None)) is not None:
        others["attributes"] = {"agent.name": name, **others.pop("attributes", {})}
    return of_kind("AGENT", id, others.pop("parent", ""), start, end, **others)


def model(id: str, parent: str, start: float, end: float | None = None, **others: Any) -> Span:
    """A model call."""
    return of_kind("LLM", id, parent, start, end, **others)


def search(
    id: str, parent: str, start: float, end: float | None = None, found: str = "a", **others: Any
) -> Span:
    """A retriever span whose documents have the letters of ``found`` as ids."""
    attributes = {
        **{f"retrieval.documents.{at}.document.id": one for at, one in enumerate(found)},
        **({} if found else {"output.value": '{"documents": []}'}),
        **others.pop("attributes", {}),
    }
    return of_kind("RETRIEVER", id, parent, start, end, attributes=attributes, **others)


def tool(id: str, parent: str, start: float, end: float | None = None, **others: Any) -> Span:
    """A tool span with this result; one that returns JSON says that it searches."""
    output = others.pop("output", "text")
    attributes = {"tool.name": others.pop("name", id), "output.value": output}
    if output.startswith(("[", "{")):
        attributes |= {"tool.description": "Searches.", "input.value": '{"query": "?"}'}
    return of_kind("TOOL", id, parent, start, end, attributes=attributes, **others)


def reranker(id: str, parent: str, start: float, inputs: str, outputs: str) -> Span:
    """A reranker span with the letters as its documents."""
    attributes = {
        f"reranker.{name}_documents.{at}.document.id": one
        for name, letters in (("input", inputs), ("output", outputs))
        for at, one in enumerate(letters)
    }
    return of_kind("RERANKER", id, parent, start, attributes=attributes)


def searched(one: Interpretation) -> list[tuple[int, str]]:
    """The iteration and the result ids of each search."""
    return [
        (search.iteration, "".join(result.doc_id or "?" for result in search.results))
        for turn in one.turns
        for search in turn.searches
    ]
