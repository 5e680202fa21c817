"""Decodes one record: strict JSON, then every rule of the wire format, one check per line."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from .text import rfc3339

MAX_BYTES = 8 * 1024 * 1024
MAX_LEVELS = 64
MAX_SEARCHES = 200
MAX_RESULTS = 2_000
MAX_LABELS = 10_000
MAX_RELEVANT = 10_000
MAX_NAMES = 64
MAX_VALUES = 64
MAX_URL_BYTES = 8_192
MAX_INT = 2**31 - 1
MAX_TURN = 2**53 - 1
EARLIEST = 946_684_800_000_000  # 2000-01-01
LATEST = 4_102_444_800_000_000  # 2100-01-01
DAY = 86_400_000_000
TYPES = ("search_iteration", "relevance_labels", "turn_completed", "forget")

_ABSENT = object()


@dataclass(frozen=True)
class Record:
    """One record; a key of None disables the check of the key."""

    value: bytes
    key: bytes | None = None
    timestamp_ms: int | None = None


class Rejected(Exception):
    """A record is not a valid event; the argument is the reason."""


@dataclass(frozen=True)
class Event:
    """One valid event; `body` has its known fields without nulls."""

    type: str
    time: int
    event_id: str
    digest: str
    conversation: str
    turn: int
    body: dict[str, Any]

    @property
    def version(self) -> tuple[int, str]:
        """The version by which an item is ordered."""
        return (self.time, self.event_id)

    @property
    def order(self) -> tuple[int, str, str]:
        """The version, with the digest to order events of different content."""
        return (self.time, self.event_id, self.digest)


def decode(record: Record, keyed: bool) -> Event:
    """Turn a record into an event, or raise `Rejected`."""
    data = _parse(record.value)
    if not isinstance(data, dict):
        raise Rejected("invalid")
    try:
        digest = hashlib.sha256(
            json.dumps(
                data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
            ).encode()
        ).hexdigest()
    except UnicodeEncodeError:
        raise Rejected("not_json") from None  # a lone surrogate
    except ValueError:
        raise Rejected("invalid") from None  # a number outside the range of doubles
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise Rejected("unknown_type")
    version = _int(data, "version", low=-MAX_INT, default=1)
    if version != 1:
        raise Rejected("unknown_version")
    event_id = _str(data, "event_id", 1, 128, required=True)
    conversation = _str(data, "conversation_id", 1, 128, required=True)
    turn = _int(data, "turn", low=1, high=MAX_TURN, required=kind != "forget", default=0)
    time = _time(data, record.timestamp_ms)
    body = _BODIES[kind](data)
    if record.key is None:
        if keyed:
            raise Rejected("missing_key")
    elif record.key != conversation.encode():
        raise Rejected("key_mismatch")
    return Event(kind, time, event_id, digest, conversation, turn, body)


def _parse(raw: bytes) -> object:
    if len(raw) > MAX_BYTES:
        raise Rejected("too_large")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected("not_json") from None
    if _levels(text) > MAX_LEVELS:
        raise Rejected("too_deep")
    try:
        return json.loads(text, parse_constant=_no_constant, parse_int=_whole)
    except ValueError:
        raise Rejected("not_json") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _whole(token: str) -> int:
    if len(token) > 400:
        raise Rejected("invalid")
    try:
        float(int(token))
    except OverflowError:
        raise Rejected("invalid") from None
    return int(token)


def _levels(text: str) -> int:
    """The deepest nesting of brackets outside strings."""
    deepest = level = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "[{":
            level += 1
            deepest = max(deepest, level)
        elif char in "]}":
            level -= 1
    return deepest


# --- one function for each kind of value ------------------------------------------------------


def _get(data: dict[str, Any], name: str, required: bool) -> Any:
    value = data.get(name)
    if value is None:
        if required:
            raise Rejected("invalid")
        return _ABSENT
    return value


def _check_str(value: object, low: int = 0, high: int | None = None) -> str:
    if not isinstance(value, str) or len(value) < low or (high is not None and len(value) > high):
        raise Rejected("invalid")
    return value


def _check_int(value: object, low: int, high: int = MAX_INT) -> int:
    if type(value) is not int or not low <= value <= high:
        raise Rejected("invalid")
    return value


def _check_number(value: object) -> float:
    if type(value) not in (int, float):
        raise Rejected("invalid")
    return float(value)  # type: ignore[arg-type]


def _check_dict(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Rejected("invalid")
    return value


def _str(
    data: dict[str, Any],
    name: str,
    low: int = 0,
    high: int | None = None,
    *,
    required: bool = False,
    default: str | None = None,
) -> Any:
    value = _get(data, name, required)
    return default if value is _ABSENT else _check_str(value, low, high)


def _int(
    data: dict[str, Any],
    name: str,
    *,
    low: int,
    high: int = MAX_INT,
    required: bool = False,
    default: int | None = None,
) -> Any:
    value = _get(data, name, required)
    return default if value is _ABSENT else _check_int(value, low, high)


def _number(data: dict[str, Any], name: str) -> None:
    value = _get(data, name, False)
    if value is not _ABSENT:
        _check_number(value)


def _list(data: dict[str, Any], name: str) -> list[Any]:
    value = _get(data, name, False)
    if value is _ABSENT:
        return []
    if not isinstance(value, list):
        raise Rejected("invalid")
    return value


def _map(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = _get(data, name, False)
    if value is _ABSENT:
        return {}
    return {key: entry for key, entry in _check_dict(value).items() if entry is not None}


def _time(data: dict[str, Any], timestamp_ms: int | None) -> int:
    value = _get(data, "occurred_at", True)
    if isinstance(value, str):
        time = rfc3339(value)
        if time is None:
            raise Rejected("invalid")
    else:
        time = round(Fraction(_check_number(value)) * 1_000_000)
    latest = LATEST if timestamp_ms is None else timestamp_ms * 1000 + DAY
    if not EARLIEST <= time <= latest:
        raise Rejected("time_out_of_range")
    return time


# --- one function for each type of event ------------------------------------------------------


def _search_iteration(data: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "agent": _str(data, "agent", 1, 64, default="default"),
        "release": _str(data, "release", 1, 64),
        "iteration": _int(data, "iteration", low=1, required=True),
        "gate": None,
    }
    gate = _get(data, "gate", False)
    if gate is not _ABSENT:
        body["gate"] = _str(_check_dict(gate), "decision", required=True)
        if body["gate"] not in ("search", "skip"):
            raise Rejected("invalid")
        _number(gate, "score")
    searches = _list(data, "searches")
    if len(searches) > MAX_SEARCHES:
        raise Rejected("over_limit")
    body["searches"] = [_search(_check_dict(search)) for search in searches]
    if sum(len(search["results"]) for search in body["searches"]) > MAX_RESULTS:
        raise Rejected("over_limit")
    return body


def _search(data: dict[str, Any]) -> dict[str, Any]:
    route = None
    routing = _get(data, "routing", False)
    if routing is not _ABSENT:
        route = _str(_check_dict(routing), "selected", 1, 64, required=True)
        for score in _map(routing, "scores").values():
            _check_number(score)
    return {
        "search_id": _str(data, "search_id", 1, 128, required=True),
        "ordinal": _int(data, "ordinal", low=0, default=0),
        "query": _str(data, "query"),
        "route": route,
        "results": [_result(_check_dict(result)) for result in _list(data, "results")],
    }


def _result(data: dict[str, Any]) -> dict[str, Any]:
    ids = _map(data, "ids")
    fields = _map(data, "fields")
    if "doc_id" in ids:
        raise Rejected("invalid")
    if len(ids) > MAX_NAMES or len(fields) > MAX_NAMES:
        raise Rejected("over_limit")
    for entry in [*ids.values(), *fields.values()]:
        if isinstance(entry, list) and len(entry) > MAX_VALUES:
            raise Rejected("over_limit")
    _number(data, "score")
    url = _str(data, "url")
    if url is not None and len(url.encode()) > MAX_URL_BYTES:
        raise Rejected("over_limit")
    return {
        "result_id": _str(data, "result_id", 1, 128, required=True),
        "entity_type": _str(data, "entity_type", 1, 64, default="Document"),
        "ids": {name: _id_values(entry) for name, entry in ids.items()},
        "doc_id": _str(data, "doc_id", 1, 256),
        "url": url,
        "title": _str(data, "title"),
        "snippet": _str(data, "snippet"),
        "content": _str(data, "content"),
        "fields": {name: _field_value(entry) for name, entry in fields.items()},
        "baseline_rank": _int(data, "baseline_rank", low=1),
        "gain": _int(data, "gain", low=0, high=4),
    }


def _id_values(entry: object) -> list[str]:
    values = entry if isinstance(entry, list) else [entry]
    return [_check_str(value) for value in values if value is not None]


def _field_value(entry: object) -> object:
    if isinstance(entry, list):
        return [_scalar(value) for value in entry if value is not None]
    return _scalar(entry)


def _scalar(value: object) -> object:
    if not isinstance(value, str | bool | int | float):
        raise Rejected("invalid")
    return value


def _relevance_labels(data: dict[str, Any]) -> dict[str, Any]:
    labeller = _str(data, "labeller")
    labels, routing, gate = (_list(data, name) for name in ("labels", "routing", "gate"))
    if len(labels) + len(routing) + len(gate) > MAX_LABELS:
        raise Rejected("over_limit")
    body: dict[str, Any] = {"labels": [], "routing": [], "gate": []}
    for name, values in (("source", ("human", "model")), ("sample", ("random", "chosen"))):
        body[name] = _str(data, name)
        if body[name] not in (None, *values):
            raise Rejected("invalid")
    body["labeller"] = labeller
    for entry in map(_check_dict, labels):
        gain = _nullable(entry, "gain")
        if gain is not None:
            _check_int(gain, 0, 4)
        body["labels"].append((_str(entry, "result_id", 1, 128, required=True), gain))
    for entry in map(_check_dict, routing):
        optimal = _nullable(entry, "optimal")
        if optimal is not None:
            _check_str(optimal)
        body["routing"].append((_str(entry, "search_id", 1, 128, required=True), optimal))
    for entry in map(_check_dict, gate):
        needed = _nullable(entry, "search_needed")
        if needed is not None and not isinstance(needed, bool):
            raise Rejected("invalid")
        body["gate"].append((_int(entry, "iteration", low=1, required=True), needed))
    return body


def _nullable(entry: dict[str, Any], name: str) -> object:
    if name not in entry:
        raise Rejected("invalid")
    return entry[name]


def _turn_completed(data: dict[str, Any]) -> dict[str, Any]:
    _str(data, "answer")
    _str(data, "question")
    references = [_check_str(one) for one in _list(data, "reference_answers") if one is not None]
    dimensions = {name: _check_str(value) for name, value in _map(data, "dimensions").items()}
    return {"relevant": _relevant(data), "references": references, "dimensions": dimensions}


def _relevant(data: dict[str, Any]) -> dict[str, int] | None:
    relevant = _get(data, "relevant", False)
    if relevant is _ABSENT:
        return None
    if not isinstance(relevant, dict | list):
        raise Rejected("invalid")
    if len(relevant) > MAX_RELEVANT:
        raise Rejected("over_limit")
    if isinstance(relevant, list):
        names = [_check_str(name, 1, 256) for name in relevant]
        if len(set(names)) != len(names):
            raise Rejected("invalid")
        return dict.fromkeys(names, 2)
    grades = {name: grade for name, grade in relevant.items() if grade is not None}
    return {_check_str(name, 1, 256): _check_int(grade, 0, 4) for name, grade in grades.items()}


def _forget(data: dict[str, Any]) -> dict[str, Any]:
    return {}


_BODIES = {
    "search_iteration": _search_iteration,
    "relevance_labels": _relevance_labels,
    "turn_completed": _turn_completed,
    "forget": _forget,
}
