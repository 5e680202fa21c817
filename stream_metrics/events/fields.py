"""The fields of an event that the contract does not name.

They are allowed, because a producer may be newer than the worker, and they have no effect. So has a
field whose name is misspelt: that is why an event says which unknown fields it came with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, get_args, get_origin

import msgspec

from stream_metrics.events.wire import PAYLOADS, Payload

OTHER: Final = "other"
"""Stands for names that are not shown, and for those beyond ``MOST_NAMED``."""
MOST_NAMED: Final = 16
"""Unknown fields of one event that are named."""

_SHOWN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Fields:
    """The names that an object may have, and by name their types and the fields inside them."""

    names: frozenset[str]
    inside: Mapping[str, Fields] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)

    def could_be(self, name: str, value: Any) -> bool:
        """Whether ``value`` is of the kind that the known field ``name`` takes.

        Lists and objects are one kind, whatever is in them; null is of no kind. Fields that may be
        anything take no part in the event.
        """
        if value is None or self.types[name] is Any:
            return False
        if isinstance(value, list | dict):
            return self.holds_more(name)
        try:
            msgspec.convert(value, self.types[name])
        except msgspec.ValidationError:
            return False
        return True

    def holds_more(self, name: str) -> bool:
        """Whether the known field ``name`` takes lists or objects."""
        return _holds_more(self.types[name])


class UnknownField(NamedTuple):
    """A field that ``owner``, an object with the ``known`` fields, has beside them.

    ``place`` holds the names of the fields around it, each with a dot behind it.
    """

    place: str
    name: str
    owner: Mapping[str, Any]
    known: Fields

    @property
    def path(self) -> str:
        """The name with its place, or ``OTHER`` for a name that is not fit to be shown.

        >>> UnknownField("searches.", "serch_id", {}, Fields(frozenset())).path
        'searches.serch_id'
        >>> UnknownField("", "someone@example.org", {}, Fields(frozenset())).path
        'other'
        """
        return self.place + self.name if _SHOWN.fullmatch(self.name) else OTHER


def convert(obj: dict[str, Any], kind: str) -> tuple[Payload, list[UnknownField]]:
    """The payload of a decoded JSON object of this type, and the unknown fields that it has.

    Raises ``msgspec.ValidationError`` with the path.
    """
    payload = PAYLOADS[kind]
    try:
        return msgspec.convert(obj, payload), []
    except msgspec.ValidationError:
        known, unknown = without_unknown(obj, kind)
        if not unknown:
            raise
    return msgspec.convert(known, payload), unknown


def without_unknown(obj: dict[str, Any], kind: str) -> tuple[Any, list[UnknownField]]:
    """A copy of an event of this type without its unknown fields, and these as they came."""
    unknown: list[UnknownField] = []
    return _known(obj, FIELDS[kind], "", unknown), unknown


def paths(unknown: Iterable[UnknownField]) -> tuple[str, ...]:
    """The distinct paths in the order given: ``MOST_NAMED``, and ``OTHER`` if there are more."""
    found: dict[str, None] = {}
    for one in unknown:
        if len(found) > MOST_NAMED:  # names, and the one for all others
            break
        path = one.path
        if path not in found:
            found[path if len(found) < MOST_NAMED else OTHER] = None
    return tuple(found)


def _known(value: Any, fields: Fields, place: str, unknown: list[UnknownField]) -> Any:
    if type(value) is list:
        return [_known(one, fields, place, unknown) for one in value]
    if type(value) is not dict:
        return value
    known = {}
    for name, inner in value.items():
        if name not in fields.names:
            unknown.append(UnknownField(place, name, value, fields))
        elif name in fields.inside:
            known[name] = _known(inner, fields.inside[name], f"{place}{name}.", unknown)
        else:
            known[name] = inner
    return known


def _fields(struct: type[msgspec.Struct]) -> Fields:
    types = {one.name: one.type for one in msgspec.structs.fields(struct)}
    found = {name: _struct_in(kind) for name, kind in types.items()}
    inside = {name: _fields(inner) for name, inner in found.items() if inner is not None}
    return Fields(frozenset(types), inside, types)


def _holds_more(kind: Any) -> bool:
    """Whether values of this type may be lists or objects."""
    if get_origin(kind) in (list, dict) or _struct_in(kind) is not None:
        return True
    return any(map(_holds_more, get_args(kind)))


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct of which values of this type are, or hold a list; maps have any names."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) is dict:
        return None
    return next((inner for one in get_args(kind) if (inner := _struct_in(one))), None)


FIELDS: Final[Mapping[str, Fields]] = {kind: _fields(struct) for kind, struct in PAYLOADS.items()}
"""By the type of the event."""
