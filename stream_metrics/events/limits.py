"""What one record may hold, and what a turn may grow to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on input. The first group refuses a record, the second stops a turn from growing.

    Lengths of texts are code points, sizes are bytes of UTF-8.
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
    iterations_per_turn: int = 500
    waiting_labels: int = 10_000
    turns_per_conversation: int = 100
