"""What one record may hold, and what a turn may grow to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
    """Whether a payload of which no more than this is known is surely within the limits.

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


def present(entries: dict[str, Any] | list[Any], limit: int) -> int:
    """The number of entries that are not null; nulls are looked for only where it matters."""
    count = len(entries)
    if count > limit and isinstance(entries, dict):
        count -= sum(value is None for value in entries.values())
    return count


def too_many(what: str, count: int, limit: int) -> str:
    """That there are more than may be."""
    return f"{what}: {count}, at most {limit}"
