"""Limits on records and turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on input. The first group rejects a record, the second stops a turn from growing.

    Lengths of texts are in code points, sizes in bytes of UTF-8. ``values_per_turn`` counts the
    values in ``ids`` and ``fields`` beyond the first eight of each result.
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
    """Whether upper bounds of a payload's sizes prove that it is within the limits.

    Args:
        limits: The limits.
        longest_list: An upper bound of the elements in a list.
        elements: An upper bound of the elements in all lists together.
        widest_object: An upper bound of the members in an object.
        longest_url: An upper bound of the bytes in a ``url``.
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
    """The number of entries; null ones are subtracted only if it exceeds the limit otherwise."""
    count = len(entries)
    if count > limit and isinstance(entries, dict):
        count -= sum(value is None for value in entries.values())
    return count


_SETTINGS: Final = {
    "searches": "searches_per_event",
    "results": "results_per_event",
    "labels": "labels_per_event",
    "relevant": "relevant_per_event",
    "ids of a result": "ids_per_result",
    "fields of a result": "fields_per_result",
    "url (bytes)": "url_bytes",
}


def limit_of(reason: str, message: str) -> str | None:
    """The setting of the limit because of which a record is rejected; None for other reasons.

    >>> limit_of("over_limit", too_many("results", 3_000, 2_000))
    'limits.results_per_event'
    """
    match reason:
        case "too_large":
            return "limits.record_bytes"
        case "too_deep":
            return "limits.json_levels"
        case "over_limit":
            return f"limits.{_SETTINGS.get(message.partition(':')[0], 'values_per_list')}"
        case _:
            return None


def too_many(what: str, count: int, limit: int) -> str:
    """The message that a limit is exceeded."""
    return f"{what}: {count}, at most {limit}"
