"""The fields of the wire format and, for each kind, which JSON values it takes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Step = str | int


@dataclass(frozen=True)
class Field:
    """Where a field stands, what it takes and what its absence means.

    ``absent`` is "ok" (null and missing are accepted), "no" (neither), "null" (null only) or
    "member" (missing only: the entry of a list).
    """

    type: str
    path: tuple[Step, ...]
    kind: str
    absent: str = "ok"

    def __str__(self) -> str:
        return f"{self.type}.{'.'.join(map(str, self.path))}"


def _text(low: int, high: float) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, str) and low <= len(v) <= high


def _integer(low: int, high: int) -> Callable[[Any], bool]:
    return lambda v: type(v) is int and low <= v <= high


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _scalar(value: Any) -> bool:
    return isinstance(value, str | bool | int | float)


def _map_of(inner: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, dict) and all(x is None or inner(x) for x in v.values())


def _list_of(inner: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, list) and all(x is None or inner(x) for x in v)


def _or_list_of(inner: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda v: inner(v) or _list_of(inner)(v)


def _ids(value: Any) -> bool:
    return _map_of(_or_list_of(_text(0, math.inf)))(value) and value.get("doc_id") is None


def _relevant(value: Any) -> bool:
    doc_id, grade = _text(1, 256), _integer(0, 4)
    if isinstance(value, list):
        return all(map(doc_id, value)) and len(value) == len(set(value))
    return isinstance(value, dict) and all(
        doc_id(name) and grade(entry) for name, entry in value.items() if entry is not None
    )


def _instant(value: Any) -> bool:
    if _number(value):
        return True
    if not isinstance(value, str) or not value.isascii() or value[10:11] not in ("T", "t"):
        return False
    if value[-1] not in "zZ" and value[-6:-5] not in ("+", "-"):
        return False
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return False
    return "24:00:00" not in value and "." not in value[-2:-1] and value[-1] != "\n"


def _gate(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("decision") in ("search", "skip")
        and (value.get("score") is None or _number(value["score"]))
    )


def _route(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _text(1, 64)(value.get("selected"))
        and (value.get("scores") is None or _map_of(_number)(value["scores"]))
    )


KINDS: dict[str, Callable[[Any], bool]] = {
    "anything": lambda v: True,
    "handle": _text(1, 128),
    "name": _text(1, 64),
    "doc_id": _text(1, 256),
    "text": _text(0, math.inf),
    "texts": _list_of(_text(0, math.inf)),
    "text_map": _map_of(_text(0, math.inf)),
    "count": _integer(1, 2**31 - 1),
    "turn": _integer(1, 2**53 - 1),
    "ordinal": _integer(0, 2**31 - 1),
    "gain": _integer(0, 4),
    "version": _integer(1, 1),
    "number": _number,
    "number_map": _map_of(_number),
    "bool": lambda v: isinstance(v, bool),
    "ids": _ids,
    "fields": _map_of(_or_list_of(_scalar)),
    "id_values": _or_list_of(_text(0, math.inf)),
    "field_values": _or_list_of(_scalar),
    "id_value": _text(0, math.inf),
    "field_value": _scalar,
    "relevant": _relevant,
    "instant": _instant,
    "decision": lambda v: v in ("search", "skip"),
    "source": lambda v: v in ("human", "model"),
    "sample": lambda v: v in ("random", "chosen"),
    "gate": _gate,
    "route": _route,
    "objects": lambda v: v == [],  # no token holds an object with all that is required
    "object": lambda v: False,
    "type": lambda v: v == "forget",  # the only type named by a token; its fields are in all
}


def accepts(field: Field, token: str | None) -> bool:
    """Whether an event with ``token`` in the place of ``field`` is valid."""
    if token is None:
        return field.absent in ("ok", "member")
    if _beyond_double(token):
        return False
    value = json.loads(token)
    if value is None:
        return field.absent in ("ok", "null") or field.kind == "anything"
    return KINDS[field.kind](value)


def _beyond_double(token: str) -> bool:
    found = [False]

    def note(digits: str) -> float:
        number = float(digits)
        found[0] = found[0] or math.isinf(number)
        return number

    json.loads(token, parse_int=note, parse_float=note)
    return found[0]


def _envelope(kind: str) -> list[Field]:
    return [
        Field(kind, ("type",), "type", "no"),
        Field(kind, ("version",), "version"),
        Field(kind, ("event_id",), "handle", "no"),
        Field(kind, ("occurred_at",), "instant", "no"),
        Field(kind, ("conversation_id",), "handle", "no"),
        Field(kind, ("turn",), "turn", "ok" if kind == "forget" else "no"),
        Field(kind, ("extra",), "anything"),
    ]


def _below(kind: str, path: tuple[Step, ...], *rows: tuple[str, str, str]) -> list[Field]:
    return [Field(kind, (*path, name), what, absent) for name, what, absent in rows]


_S, _L, _T, _F = "search_iteration", "relevance_labels", "turn_completed", "forget"
_RESULT: tuple[Step, ...] = ("searches", 0, "results", 0)

FIELDS: tuple[Field, ...] = (
    *(field for kind in (_S, _L, _T, _F) for field in _envelope(kind)),
    *(Field(kind, (name,), "anything") for kind in (_L, _T, _F) for name in ("agent", "release")),
    *(Field(kind, (name,), "anything") for kind in (_L, _F) for name in ("searches", "iteration")),
    *_below(
        _S, (),
        ("agent", "name", "ok"), ("release", "name", "ok"), ("iteration", "count", "no"),
        ("gate", "gate", "ok"), ("searches", "objects", "ok"), ("labels", "anything", "ok"),
    ),
    *_below(_S, ("gate",), ("decision", "decision", "no"), ("score", "number", "ok")),
    *_below(
        _S, ("searches", 0),
        ("search_id", "handle", "no"), ("ordinal", "ordinal", "ok"), ("query", "text", "ok"),
        ("routing", "route", "ok"), ("results", "objects", "ok"), ("extra", "anything", "ok"),
    ),
    *_below(
        _S, ("searches", 0, "routing"), ("selected", "name", "no"), ("scores", "number_map", "ok")
    ),
    Field(_S, ("searches", 0, "routing", "scores", "files"), "number"),
    *_below(
        _S, _RESULT,
        ("result_id", "handle", "no"), ("entity_type", "name", "ok"), ("ids", "ids", "ok"),
        ("doc_id", "doc_id", "ok"), ("url", "text", "ok"), ("title", "text", "ok"),
        ("snippet", "text", "ok"), ("content", "text", "ok"), ("fields", "fields", "ok"),
        ("score", "number", "ok"), ("baseline_rank", "count", "ok"), ("gain", "gain", "ok"),
        ("extra", "anything", "ok"),
    ),
    Field(_S, (*_RESULT, "ids", "file_id"), "id_values"),
    Field(_S, (*_RESULT, "ids", "drive", 0), "id_value"),
    Field(_S, (*_RESULT, "fields", "n"), "field_values"),
    Field(_S, (*_RESULT, "fields", "l", 0), "field_value"),
    Field(_S, (*_RESULT[:-1], 1), "object", "member"),
    Field(_S, ("searches", 1), "object", "member"),
    *_below(
        _L, (),
        ("labels", "objects", "ok"), ("labeller", "text", "ok"), ("routing", "objects", "ok"),
        ("gate", "objects", "ok"), ("source", "source", "ok"), ("sample", "sample", "ok"),
    ),
    *_below(_L, ("labels", 0), ("result_id", "handle", "no"), ("gain", "gain", "null")),
    *_below(_L, ("routing", 0), ("search_id", "handle", "no"), ("optimal", "text", "null")),
    *_below(_L, ("gate", 0), ("iteration", "count", "no"), ("search_needed", "bool", "null")),
    Field(_L, ("labels", 0), "object", "member"),
    Field(_L, ("routing", 0), "object", "member"),
    Field(_L, ("gate", 0), "object", "member"),
    *_below(
        _T, (),
        ("answer", "text", "ok"), ("reference_answers", "texts", "ok"),
        ("relevant", "relevant", "ok"), ("question", "text", "ok"),
        ("dimensions", "text_map", "ok"),
    ),
    Field(_T, ("reference_answers", 0), "text"),
    Field(_T, ("relevant", "doc"), "gain"),
    Field(_T, ("dimensions", "language"), "text"),
)  # fmt: skip
