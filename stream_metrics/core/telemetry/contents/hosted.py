"""Searches that a model's provider ran, as they stand in the model's answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from stream_metrics.core.telemetry.contents.calls import answers_of, texts_of, walk
from stream_metrics.core.telemetry.spans import Span, text

_HINTS: Final = (
    "search_call",
    "server_tool_use",
    "groundingMetadata",
    "grounding_metadata",
    "search_results",
)
"""What is in a text with such a search; looked for as it is, since the texts are long."""


class HostedSearch(NamedTuple):
    """A search that a provider ran; ``results`` is None if the answer does not have them."""

    id: str
    name: str
    query: str | None
    results: list[dict[str, Any]] | None


def hosted_searches(span: Span) -> list[HostedSearch]:
    """The searches in a model's answer, each once; citations alone are none."""
    found: dict[str, HostedSearch] = {}
    if not any(hint in each for each in texts_of(span) for hint in _HINTS):
        return []
    for answer in answers_of(span):
        objects = [*walk(answer)]
        results = {
            id: one["content"]
            for one in objects
            if one.get("type") == "web_search_tool_result"
            and (id := text(one.get("tool_use_id"))) is not None
        }
        for place, one in enumerate(objects):
            for search in _searches(one, str(place), results):
                known = found.get(search.id)
                if known is None or known.results is None:
                    found[search.id] = search
    return [*found.values()]


def _searches(one: dict[str, Any], place: str, results: dict[str, Any]) -> Iterator[HostedSearch]:
    kind = one.get("type")
    id = text(one.get("id")) or f"{kind}-{place}"
    if kind == "web_search_call":  # OpenAI
        action = one.get("action")
        action = action if isinstance(action, dict) else {}
        if action.get("type", "search") == "search":
            yield HostedSearch(id, "web_search", _query(action), _objects(action.get("sources")))
    elif kind == "file_search_call":
        found = _objects(one.get("results", one.get("search_results")))
        files = None if found is None else [*map(_file, found)]
        yield HostedSearch(id, "file_search", _query(one), files)
    elif kind == "server_tool_use" and one.get("name") in ("web_search", "file_search"):
        asked = one.get("input")  # Anthropic
        query = _query(asked) if isinstance(asked, dict) else None
        yield HostedSearch(id, str(one["name"]), query, _objects(results.get(id)))
    if "choices" in one and "search_results" in one:  # Perplexity
        yield HostedSearch(id, "web_search", None, _objects(one["search_results"]))
    for key in ("groundingMetadata", "grounding_metadata"):  # Gemini
        about = one.get(key)
        if isinstance(about, dict):
            queries = about.get("webSearchQueries", about.get("web_search_queries"))
            chunks = about.get("groundingChunks", about.get("grounding_chunks"))
            if queries or chunks:
                listed = None if not isinstance(chunks, list) else [*map(_chunk, chunks)]
                only = queries[0] if isinstance(queries, list) and len(queries) == 1 else None
                usable = None if listed is None or None in listed else listed
                yield HostedSearch(f"grounding-{place}", "google_search", text(only), usable)  # type: ignore[arg-type]


def _query(value: dict[str, Any]) -> str | None:
    queries = value.get("queries")
    only = queries[0] if isinstance(queries, list) and len(queries) == 1 else None
    return text(value.get("query")) or text(only)


def _objects(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return None
    return value


def _file(value: dict[str, Any]) -> dict[str, Any]:
    """A part of a file, whose id it has."""
    about = {"doc_id": value.get("file_id"), "title": value.get("filename")}
    return {**about, "text": value.get("text"), "score": value.get("score")}


def _chunk(value: Any) -> dict[str, Any] | None:
    """A chunk of grounding; None if its address is made for the request."""
    if not isinstance(value, dict):
        return None
    found = next((value[key] for key in ("web", "retrievedContext") if key in value), None)
    if not isinstance(found, dict) or "grounding-api-redirect" in str(found.get("uri")):
        return None
    return {"url": found.get("uri"), "title": found.get("title"), "text": found.get("text")}
