"""What one record may hold, and what a turn may grow to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stream_metrics.events.wire import Payload, RelevanceLabels, SearchIteration, TurnCompleted


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on input. The first group refuses a record, the second stops a turn from growing.

    Lengths of texts are code points, sizes are bytes of UTF-8. ``values_per_turn`` counts values in
    ``ids`` and ``fields``, beyond the first eight of each result.
    """

    record_bytes: int = 8 * 1024 * 1024
    json_levels: int = 64
    searches_per_event: int = 200
    results_per_event: int = 2_000
    labels_per_event: int = 10_000
    relevant_per_event: int = 10_000
    ids_per_result: int = 64
    fields_per_result: int = 64
    values_per_list: int = 64
    url_bytes: int = 8_192

    results_per_turn: int = 2_000
    searches_per_turn: int = 10_000
    values_per_turn: int = 100_000
    iterations_per_turn: int = 500
    waiting_labels: int = 10_000
    turns_per_conversation: int = 1_000


def surely_within(
    limits: Limits, longest_list: int, elements: int, widest_object: int, longest_url: int
) -> bool:
    """Whether ``over_limit`` needs no look at a payload of which no more than this is known.

    Args:
        limits: The bounds.
        longest_list: At least the elements of each list.
        elements: At least the elements of all lists together.
        widest_object: At least the members of each object.
        longest_url: At least the bytes of each ``url``.
    """
    return (
        longest_list <= limits.values_per_list
        and elements <= limits.searches_per_event
        and elements <= limits.results_per_event
        and elements <= limits.labels_per_event
        and elements <= limits.relevant_per_event
        and widest_object <= limits.relevant_per_event
        and widest_object <= limits.ids_per_result
        and widest_object <= limits.fields_per_result
        and longest_url <= limits.url_bytes
    )


def over_limit(payload: Payload, limits: Limits) -> str | None:
    """What of ``payload`` exceeds ``limits``, if anything; an entry that is null is absent."""
    if isinstance(payload, SearchIteration):
        return _searches(payload, limits)
    if isinstance(payload, RelevanceLabels):
        count = len(payload.labels or ()) + len(payload.routing or ()) + len(payload.gate or ())
        if count > limits.labels_per_event:
            return _too_many("labels", count, limits.labels_per_event)
    elif isinstance(payload, TurnCompleted) and payload.relevant:
        count = _present(payload.relevant, limits.relevant_per_event)
        if count > limits.relevant_per_event:
            return _too_many("relevant", count, limits.relevant_per_event)
    return None


def _searches(payload: SearchIteration, limits: Limits) -> str | None:
    searches = payload.searches
    if not searches:
        return None
    if len(searches) > limits.searches_per_event:
        return _too_many("searches", len(searches), limits.searches_per_event)
    total = 0
    for search in searches:
        if not search.results:
            continue
        total += len(search.results)
        for result in search.results:
            url, ids, fields = result.url, result.ids, result.fields
            if url is not None and len(url) * 4 > limits.url_bytes:
                size = len(url.encode())
                if size > limits.url_bytes:
                    return _too_many("url (bytes)", size, limits.url_bytes)
            if ids:
                problem = _names("ids of a result", ids, limits.ids_per_result, limits)
                if problem is not None:
                    return problem
            if fields:
                problem = _names("fields of a result", fields, limits.fields_per_result, limits)
                if problem is not None:
                    return problem
    if total > limits.results_per_event:
        return _too_many("results", total, limits.results_per_event)
    return None


def _names(what: str, entries: dict[str, Any], most: int, limits: Limits) -> str | None:
    if len(entries) > most:
        count = _present(entries, most)
        if count > most:
            return _too_many(what, count, most)
    longest = limits.values_per_list
    for value in entries.values():
        if type(value) is list and len(value) > longest:
            return _too_many(f"values in a list of the {what}", len(value), longest)
    return None


def _present(entries: dict[str, Any] | list[Any], limit: int) -> int:
    """The number of entries that are not null; nulls are looked for only where it matters."""
    count = len(entries)
    if count > limit and isinstance(entries, dict):
        count -= sum(value is None for value in entries.values())
    return count


def _too_many(what: str, count: int, limit: int) -> str:
    return f"{what}: {count}, at most {limit}"
