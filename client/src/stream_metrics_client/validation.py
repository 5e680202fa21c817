"""Checks events as the worker does, with the same messages, without the worker.

A test of the main project compares both over valid and invalid events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple

from stream_metrics_client.contract import DEFAULT_LIMITS, EVENTS, Limits, exceeds_double

_MICROS: Final = 1_000_000
_EARLIEST_US: Final = 946_684_800 * _MICROS  # 2000-01-01T00:00:00Z
_LATEST_US: Final = 4_102_444_800 * _MICROS  # 2100-01-01T00:00:00Z
_DAY_US: Final = 86_400 * _MICROS
_NUMBER_TOO_LARGE: Final = "a number is too large for a double"
_MISSING: Final = "Object missing required field"


class Refusal(NamedTuple):
    """Why the worker would send an event to its dead-letter topic.

    `reason` is the reason in the worker's metrics. `message` says what is wrong and where, and
    contains no values of the event.
    """

    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class InvalidEvent(ValueError):
    """The worker would refuse this event; `refusal` has the reason and the message."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def refusal(
    value: bytes,
    *,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    require_key: bool = False,
) -> Refusal | None:
    """Why the worker would refuse a record; None if it would accept it.

    Args:
        value: The record's value.
        key: The record's key, which is compared with `conversation_id` if given.
        timestamp_ms: The record's timestamp. Without one, events may be up to the year 2100.
        limits: The worker's limits, if they are not the defaults.
        require_key: Whether to refuse a record without a key, as a live worker does.

    >>> print(refusal(b'{"type": "forget", "conversation_id": "c", "occurred_at": 1718010925}'))
    invalid: Object missing required field `event_id`
    """
    if len(value) > limits.record_bytes:
        return Refusal(
            "too_large", f"{len(value)} bytes; at most {limits.record_bytes} are accepted"
        )
    try:
        event = json.loads(
            value.decode(), parse_int=_int, parse_float=_float, parse_constant=_reject_constant
        )
        if b"\\u" in value:  # a lone surrogate cannot be encoded again
            json.dumps(event, ensure_ascii=False).encode()
    except RecursionError:
        return Refusal("too_deep", f"more than {limits.json_levels} levels of nested JSON")
    except OverflowError:
        return Refusal("invalid", _NUMBER_TOO_LARGE)
    except UnicodeDecodeError:
        return Refusal("not_json", "not JSON in UTF-8: a text is not UTF-8")
    except ValueError as error:
        return Refusal("not_json", f"not JSON in UTF-8: {getattr(error, 'msg', 'malformed')}")
    if _levels(value, limits.json_levels) > limits.json_levels:
        return Refusal("too_deep", f"more than {limits.json_levels} levels of nested JSON")
    return _event(event, key, timestamp_ms, limits, require_key)


def _event(
    event: Any, key: bytes | None, timestamp_ms: int | None, limits: Limits, require_key: bool
) -> Refusal | None:
    if type(event) is not dict:
        return Refusal("invalid", "the JSON value is not an object")
    kind, version = event.get("type"), event.get("version")
    if kind is None:
        return Refusal("unknown_type", f"{_MISSING} `type`, one of {', '.join(EVENTS)}")
    if type(kind) is not str or kind not in EVENTS:
        return Refusal("unknown_type", f"`type` must be one of {', '.join(EVENTS)}")
    if version is not None and type(version) is not int:
        return Refusal("invalid", "`version` must be an integer")
    if version is not None and version != 1:
        return Refusal("unknown_version", "`version` must be 1")
    problem = EVENTS[kind].problem(event, "$", limits)
    if problem is not None:
        return Refusal("invalid", problem)
    if event.get("occurred_at") is None:
        return Refusal("invalid", f"{_MISSING} `occurred_at`")
    occurred_us = _instant(event["occurred_at"])
    if occurred_us is None:
        return Refusal("invalid", "`occurred_at` must be RFC 3339 with an offset, or Unix seconds")
    excess = _excess(event, limits)
    if excess is not None:
        return Refusal("over_limit", excess)
    problem = _inconsistency(event)
    if problem is not None:
        return Refusal("invalid", problem)
    stamped = timestamp_ms is not None and timestamp_ms >= 0
    latest = timestamp_ms * 1000 + _DAY_US if stamped and timestamp_ms is not None else _LATEST_US
    if not _EARLIEST_US <= occurred_us <= latest:
        return Refusal("time_out_of_range", _out_of_range(event["occurred_at"]))
    if key is not None and key != event["conversation_id"].encode():
        return Refusal("key_mismatch", "the record's key is not the `conversation_id`")
    if key is None and require_key:
        return Refusal("missing_key", "the record has no key; use the `conversation_id`")
    return Refusal("invalid", _NUMBER_TOO_LARGE) if exceeds_double(event) else None


# --- rules that span more than one value ------------------------------------------------------


def _results(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    searches = event.get("searches") or () if event["type"] == "search_iteration" else ()
    return [one for search in searches for one in search.get("results") or ()]


def _excess(event: Mapping[str, Any], limits: Limits) -> str | None:
    kind = event["type"]
    if kind == "search_iteration":
        return _excess_of_searches(event, limits)
    if kind == "relevance_labels":
        count = sum(len(event.get(name) or ()) for name in ("labels", "routing", "gate"))
        return _too_many("labels", count, limits.labels_per_event)
    relevant = event.get("relevant") if kind == "turn_completed" else None
    return _too_many("relevant", _present(relevant or ()), limits.relevant_per_event)


def _excess_of_searches(event: Mapping[str, Any], limits: Limits) -> str | None:
    searches = event.get("searches") or ()
    problem = _too_many("searches", len(searches), limits.searches_per_event)
    if problem is not None:
        return problem
    results, most = _results(event), limits.fields_per_result
    for result in results:
        size = len((result.get("url") or "").encode())
        problem = (
            _too_many("url (bytes)", size, limits.url_bytes)
            or _too_wide("ids of a result", result.get("ids"), limits.ids_per_result, limits)
            or _too_wide("fields of a result", result.get("fields"), most, limits)
        )
        if problem is not None:
            return problem
    return _too_many("results", len(results), limits.results_per_event)


def _too_wide(what: str, entries: Any, most: int, limits: Limits) -> str | None:
    problem = _too_many(what, _present(entries or {}), most)
    for value in (entries or {}).values():
        if problem is None and type(value) is list:
            problem = _too_many(
                f"values in a list of the {what}", len(value), limits.values_per_list
            )
    return problem


def _present(entries: Any) -> int:
    if type(entries) is dict:
        return sum(value is not None for value in entries.values())
    return len(entries)


def _too_many(what: str, count: int, limit: int) -> str | None:
    return f"{what}: {count}, at most {limit}" if count > limit else None


def _inconsistency(event: Mapping[str, Any]) -> str | None:
    if any((result.get("ids") or {}).get("doc_id") is not None for result in _results(event)):
        return "`ids` holds `doc_id`; send it as the result's own `doc_id`"
    relevant = event.get("relevant") if event["type"] == "turn_completed" else None
    if type(relevant) is list and len(set(relevant)) != len(relevant):
        return "`relevant` names a document twice"
    if type(relevant) is dict and any(
        not 1 <= len(doc_id) <= 256 for doc_id, grade in relevant.items() if grade is not None
    ):
        return "a `doc_id` in `relevant` must have 1 to 256 characters"
    return None


# --- times ------------------------------------------------------------------------------------

_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1)
_UNITS: Final = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def _instant(value: Any) -> int | None:
    """The time in microseconds since 1970; None if the value is not a time."""
    if type(value) is str:
        return _date_time(value)
    if type(value) not in (int, float):
        return None
    try:
        return round(Fraction(float(value)) * _MICROS)
    except OverflowError:
        return None


def _date_time(text: str) -> int | None:
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    try:  # `datetime` has no year 0, a leap year as 4 is; both are out of range
        moment = datetime(year or 4, month, day, hour, minute, second)
    except ValueError:
        return None
    since = moment - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    if match.group(8) is not None:
        off_hour, off_minute = int(match.group(9)), int(match.group(10))
        if off_hour > 23 or off_minute > 59:
            return None
        offset = off_hour * 3600 + off_minute * 60
        seconds -= offset if match.group(8) == "+" else -offset
    return seconds * _MICROS + int(((match.group(7) or "") + "000000")[:6])


def _out_of_range(value: Any) -> str:
    if type(value) is not str:
        for unit, in_a_second in _UNITS.items():
            if _EARLIEST_US * in_a_second <= value * _MICROS <= _LATEST_US * in_a_second:
                return f"`occurred_at` looks like {unit}; `occurred_at` takes seconds"
    return "`occurred_at` is before 2000-01-01 or more than a day after the record's timestamp"


# --- JSON -------------------------------------------------------------------------------------

_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_BRACES_TO_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")


_MAX_DIGITS: Final = 4_300  # the default limit of int()


def _float(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise OverflowError
    return value


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise OverflowError
    return int(digits)


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _levels(value: bytes, bound: int) -> int:
    """The levels of nesting, counted up to `bound + 1`; each round removes the innermost pairs."""
    if value.count(b"[") + value.count(b"{") <= bound:
        return 0
    value = value.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(value.translate(_BRACES_TO_BRACKETS, _NOT_STRUCTURE).split(b'"')[::2])
    level = 0
    while brackets and level <= bound:
        brackets = brackets.replace(b"[]", b"")
        level += 1
    return level
