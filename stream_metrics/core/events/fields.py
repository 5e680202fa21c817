"""Unknown fields of events.

Unknown fields are allowed and ignored, because a producer may be newer than the worker. A misspelt
field is ignored as well, so events report their unknown fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, get_args, get_origin

import msgspec

from stream_metrics.core.events.wire import PAYLOADS, Payload

OTHER: Final = "other"
"""Replaces names that are not shown, and those beyond ``MOST_NAMED``."""
MOST_NAMED: Final = 16
"""The most unknown fields of an event that are reported by name."""

# Fields of the envelope, which ``decode`` reads apart from the struct, where they are of any type.
_SEPARATE: Final[Mapping[str, Any]] = {
    "type": str,
    "version": int,
    "occurred_at": str | int | float,
}
_SHOWN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KnownFields:
    """The known fields of an object: their names, types, and known fields of nested objects."""

    names: frozenset[str]
    inside: Mapping[str, KnownFields] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)

    def accepts(self, name: str, value: Any) -> bool:
        """Whether the known field ``name`` accepts a value of this kind.

        Lists and objects count as one kind, whatever they contain. Null is never accepted, nor is
        any value of a field that may contain anything, because such a field is ignored.
        """
        if value is None or self.types[name] is Any:
            return False
        if isinstance(value, list | dict):
            return self.is_container(name)
        try:
            msgspec.convert(value, self.types[name])
        except msgspec.ValidationError:
            return False
        return True

    def is_container(self, name: str) -> bool:
        """Whether the known field ``name`` accepts lists or objects."""
        return _is_container(self.types[name])


class UnknownField(NamedTuple):
    """An unknown field of ``owner``, an object with the ``known`` fields.

    ``parent`` has the names of the enclosing fields, each followed by a dot.
    """

    parent: str
    name: str
    owner: Mapping[str, Any]
    known: KnownFields

    @property
    def path(self) -> str:
        """The path of the field, or ``OTHER`` if the name is unsuitable for display.

        >>> UnknownField("searches.", "serch_id", {}, KnownFields(frozenset())).path
        'searches.serch_id'
        >>> UnknownField("", "someone@example.org", {}, KnownFields(frozenset())).path
        'other'
        """
        return self.parent + self.name if _SHOWN.fullmatch(self.name) else OTHER


def convert(obj: dict[str, Any], kind: str) -> tuple[Payload, list[UnknownField]]:
    """Convert a decoded JSON object into the payload of this type, and its unknown fields.

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


def without_unknown(obj: dict[str, Any], kind: str | None) -> tuple[Any, list[UnknownField]]:
    """A copy of an event of this type without its unknown fields, and these fields.

    Without a type, only the fields of the envelope are known.
    """
    unknown: list[UnknownField] = []
    return _known(obj, ENVELOPE if kind is None else FIELDS[kind], "", unknown), unknown


def paths(unknown: Iterable[UnknownField]) -> tuple[str, ...]:
    """The distinct paths in order: up to ``MOST_NAMED``, then ``OTHER`` if there are more."""
    found: dict[str, None] = {}
    for one in unknown:
        if len(found) > MOST_NAMED:  # all names and ``OTHER`` are there
            break
        path = one.path
        if path not in found:
            found[path if len(found) < MOST_NAMED else OTHER] = None
    return tuple(found)


def _known(value: Any, fields: KnownFields, parent: str, unknown: list[UnknownField]) -> Any:
    if type(value) is list:
        return [_known(one, fields, parent, unknown) for one in value]
    if type(value) is not dict:
        return value
    known = {}
    for name, inner in value.items():
        if name not in fields.names:
            unknown.append(UnknownField(parent, name, value, fields))
        elif name in fields.inside:
            known[name] = _known(inner, fields.inside[name], f"{parent}{name}.", unknown)
        else:
            known[name] = inner
    return known


def _fields(struct: type[msgspec.Struct]) -> KnownFields:
    types = {one.name: _SEPARATE.get(one.name, one.type) for one in msgspec.structs.fields(struct)}
    found = {name: _struct_in(kind) for name, kind in types.items()}
    inside = {name: _fields(inner) for name, inner in found.items() if inner is not None}
    return KnownFields(frozenset(types), inside, types)


def _is_container(kind: Any) -> bool:
    """Whether values of this type may be lists or objects."""
    if get_origin(kind) in (list, dict) or _struct_in(kind) is not None:
        return True
    return any(map(_is_container, get_args(kind)))


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that values of this type are or contain in a list; None for maps."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) is dict:
        return None
    return next((inner for one in get_args(kind) if (inner := _struct_in(one))), None)


FIELDS: Final[Mapping[str, KnownFields]] = {
    kind: _fields(struct) for kind, struct in PAYLOADS.items()
}
"""The known fields by event type."""
ENVELOPE: Final = KnownFields(frozenset(_SEPARATE), types=_SEPARATE)
"""Those of an event whose type is not known."""
