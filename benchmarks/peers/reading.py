"""A record as an event that can be counted, or None: what a first program checks of its input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

Event = dict[str, Any]

TYPES: Final = ("search_iteration", "relevance_labels", "turn_completed")
EARLIEST: Final = 946_684_800.0  # 2000-01-01
MAX_URL_BYTES: Final = 8192
MAX_GAIN: Final = 4


def read(loads: Callable[[bytes], Any], key: bytes | None, value: bytes | None) -> Event | None:
    """The event of a record, with ``occurred_at`` in Unix seconds; None if it is not valid.

    ``loads`` is the JSON library of the caller.
    """
    try:
        event = loads(value or b"")
        return event if _valid(event, (key or b"").decode()) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_line(loads: Callable[[bytes], Any], line: bytes) -> Event | None:
    """The event of a line of a file, which has no key; see ``read``."""
    try:
        event = loads(line)
        return event if _valid(event, event["conversation_id"]) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _valid(event: Event, key: str) -> bool:
    event["occurred_at"] = _seconds(event["occurred_at"])
    return (
        event["type"] in TYPES
        and event.get("version", 1) == 1
        and event["conversation_id"] == key
        and event["event_id"] != ""
        and isinstance(event["turn"], int)
        and event["turn"] >= 1
        and event["occurred_at"] >= EARLIEST
        and all(_possible(result) for result in results_of(event))
        and all(_judged(label["gain"]) for label in event.get("labels") or ())
    )


def results_of(event: Event) -> list[dict[str, Any]]:
    """The results of all searches of an event."""
    return [
        result for search in event.get("searches") or () for result in search.get("results") or ()
    ]


def _seconds(time: str | float) -> float:
    if not isinstance(time, str):
        return float(time)
    moment = datetime.fromisoformat(time)
    if moment.tzinfo is None:
        raise ValueError("a time without its offset")
    return moment.timestamp()


def _possible(result: dict[str, Any]) -> bool:
    url = result.get("url") or ""
    return len(url.encode()) <= MAX_URL_BYTES and "doc_id" not in (result.get("ids") or {})


def _judged(gain: int | None) -> bool:
    return gain is None or 0 <= gain <= MAX_GAIN
