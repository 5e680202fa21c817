"""The fields of each event type, and the values that each field accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_MAX_INT: Final = 2**31 - 1
_MAX_TURN: Final = 2**53 - 1


@dataclass(frozen=True)
class Limits:
    """The worker's limits for one event, with the worker's defaults.

    `url_bytes` counts UTF-8, and `record_bytes` JSON in UTF-8; the others count entries.
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


DEFAULT_LIMITS: Final = Limits()


_NAMES: Final = {
    type(None): "null", bool: "bool", int: "int", float: "float", str: "str", list: "array",
    dict: "object",
}  # fmt: skip


class _FieldType:
    """The values that a field accepts; `name` is the worker's name for them, `null` allows null."""

    def __init__(self, name: str, *types: type, null: bool = False) -> None:
        self.name = f"{name} | null" if null else name
        self.types = (*types, type(None)) if null else types

    def problem(self, value: Any, place: str, limits: Limits) -> str | None:
        """What is wrong with a value; None if it is valid."""
        if type(value) not in self.types:
            return f"Expected `{self.name}`, got `{_NAMES[type(value)]}`{_at(place)}"
        return None if value is None else self.value_problem(value, place, limits)

    def value_problem(self, value: Any, place: str, limits: Limits) -> str | None:
        """What is wrong with a value of the right type; None if it is valid."""
        return None


class _Text(_FieldType):
    def __init__(self, low: int, high: int, *, null: bool = False) -> None:
        super().__init__("str", str, null=null)
        self.low, self.high = low, high

    def value_problem(self, value: Any, place: str, limits: Limits) -> str | None:
        if len(value) < self.low:
            return f"Expected `str` of length >= {self.low}{_at(place)}"
        if len(value) > self.high:
            return f"Expected `str` of length <= {self.high}{_at(place)}"
        return None


class _Integer(_FieldType):
    def __init__(self, low: int, high: int, *, null: bool = False) -> None:
        super().__init__("int", int, null=null)
        self.low, self.high = low, high

    def value_problem(self, value: Any, place: str, limits: Limits) -> str | None:
        if value < self.low:
            return f"Expected `int` >= {self.low}{_at(place)}"
        return f"Expected `int` <= {self.high}{_at(place)}" if value > self.high else None


class _Number(_FieldType):
    def __init__(self) -> None:
        super().__init__("float", int, float, null=True)

    def value_problem(self, value: Any, place: str, limits: Limits) -> str | None:
        return f"Number out of range{_at(place)}" if exceeds_double(value) else None


class _Choice(_FieldType):
    def __init__(self, *values: str, null: bool = False) -> None:
        super().__init__("str", str, null=null)
        self.values = values

    def value_problem(self, value: Any, place: str, limits: Limits) -> str | None:
        return None if value in self.values else f"Invalid enum value{_at(place)}"


class _Collection(_FieldType):
    """A list or a map with values of one type each; `name` may include scalars that are also
    accepted."""

    def __init__(
        self,
        name: str,
        *types: type,
        items: _FieldType | None = None,
        entries: _FieldType | None = None,
        null: bool = True,
    ) -> None:
        super().__init__(name, *types, null=null)
        self.items, self.entries = items, entries

    def value_problem(self, value: Any, place: str, limits: Limits) -> str | None:
        if type(value) is list and self.items is not None:
            for index, one in enumerate(value):
                problem = self.items.problem(one, f"{place}[{index}]", limits)
                if problem is not None:
                    return problem
        elif type(value) is dict and self.entries is not None:
            for one in value.values():
                problem = self.entries.problem(one, f"{place}[...]", limits)
                if problem is not None:
                    return problem
        return None


class _Struct(_FieldType):
    def __init__(
        self,
        required: Mapping[str, _FieldType],
        optional: Mapping[str, _FieldType],
        *,
        null: bool = False,
    ) -> None:
        super().__init__("object", dict, null=null)
        self.required, self.fields = required, {**required, **optional}

    def value_problem(self, value: Any, place: str, limits: Limits) -> str | None:
        for name, one in value.items():
            kind = self.fields.get(name)
            problem = None if kind is None else kind.problem(one, f"{place}.{name}", limits)
            if problem is not None:
                return problem
        for name in self.required:
            if name not in value:
                return f"Object missing required field `{name}`{_at(place)}"
        return None


def _at(place: str) -> str:
    return "" if place == "$" else f" - at `{place}`"


def _list_of(kind: _FieldType) -> _FieldType:
    return _Collection("array", list, items=kind)


def _map_of(kind: _FieldType) -> _FieldType:
    return _Collection("object", dict, entries=kind)


_ID: Final = _Text(1, 128)
_NAME: Final = _Text(1, 64, null=True)
_DOC_ID: Final = _Text(1, 256)
_ANY_TEXT: Final = _FieldType("str", str, null=True)
_NUMBER: Final = _Number()
_GAIN: Final = _Integer(0, 4, null=True)
_TURN: Final = _Integer(1, _MAX_TURN)
_SCALARS: Final = (bool, int, float, str)

_RESULT: Final = _Struct(
    {"result_id": _ID},
    {
        "entity_type": _NAME,
        "ids": _map_of(_Collection("str | array", str, list, items=_ANY_TEXT)),
        "doc_id": _Text(1, 256, null=True),
        **dict.fromkeys(("url", "title", "snippet", "content"), _ANY_TEXT),
        "fields": _map_of(
            _Collection(
                "bool | int | float | str | array",
                *_SCALARS,
                list,
                items=_FieldType("bool | int | float | str", *_SCALARS, null=True),
            )
        ),
        "score": _NUMBER,
        "baseline_rank": _Integer(1, _MAX_INT, null=True),
        "gain": _GAIN,
    },
)
_SEARCH: Final = _Struct(
    {"search_id": _ID},
    {
        "ordinal": _Integer(0, _MAX_INT, null=True),
        "query": _ANY_TEXT,
        "routing": _Struct({"selected": _Text(1, 64)}, {"scores": _map_of(_NUMBER)}, null=True),
        "results": _list_of(_RESULT),
    },
)
_ENVELOPE: Final = {"conversation_id": _ID, "event_id": _ID}
EVENTS: Final = {
    "search_iteration": _Struct(
        {**_ENVELOPE, "turn": _TURN, "iteration": _Integer(1, _MAX_INT)},
        {
            "agent": _NAME,
            "release": _NAME,
            "gate": _Struct({"decision": _Choice("search", "skip")}, {"score": _NUMBER}, null=True),
            "searches": _list_of(_SEARCH),
        },
    ),
    "relevance_labels": _Struct(
        {**_ENVELOPE, "turn": _TURN},
        {
            "labels": _list_of(_Struct({"result_id": _ID, "gain": _GAIN}, {})),
            "labeller": _ANY_TEXT,
            "routing": _list_of(_Struct({"search_id": _ID, "optimal": _ANY_TEXT}, {})),
            "gate": _list_of(
                _Struct(
                    {
                        "iteration": _Integer(1, _MAX_INT),
                        "search_needed": _FieldType("bool", bool, null=True),
                    },
                    {},
                )
            ),
            "source": _Choice("human", "model", null=True),
            "sample": _Choice("random", "chosen", null=True),
        },
    ),
    "turn_completed": _Struct(
        {**_ENVELOPE, "turn": _TURN},
        {
            "answer": _ANY_TEXT,
            "reference_answers": _list_of(_ANY_TEXT),
            "relevant": _Collection("object | array", dict, list, items=_DOC_ID, entries=_GAIN),
            "question": _ANY_TEXT,
            "dimensions": _map_of(_ANY_TEXT),
        },
    ),
    "forget": _Struct(_ENVELOPE, {"turn": _Integer(1, _MAX_TURN, null=True)}),
}


def exceeds_double(event: Any) -> bool:
    """Whether a JSON value contains an integer outside the range of a double."""
    pending = [event]
    while pending:
        item = pending.pop()
        if type(item) is dict:
            pending.extend(item.values())
        elif type(item) is list:
            pending.extend(item)
        elif type(item) is int:
            try:
                float(item)
            except OverflowError:
                return True
    return False
