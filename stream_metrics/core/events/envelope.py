"""Takes events out of the envelopes that other systems put around values in Kafka."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from stream_metrics.core.events.record import Headers

ValueFormat = Literal["json", "schema-registry", "cloudevents"]

FORMATS: Final[tuple[ValueFormat, ...]] = get_args(ValueFormat)
MAGIC: Final = b"\0"  # begins a value that a schema registry's serialiser has written
_PREFIX: Final = 5  # bytes: the one above, and the schema's id
_LARGEST: Final = 1 << 20  # bytes of an event whose null fields are replaced
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Structured(msgspec.Struct, frozen=True):
    """A CloudEvent in structured mode; its other attributes say nothing to us."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    data: msgspec.Raw
    time: str | None = None


class _Identified(msgspec.Struct, frozen=True):
    """The fields of an event that attributes of a CloudEvent can stand in for."""

    event_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    occurred_at: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_structured: Final = msgspec.json.Decoder(_Structured).decode
_identified: Final = msgspec.json.Decoder(_Identified).decode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def unwrapped(value: bytes | None, headers: Headers, value_format: ValueFormat) -> bytes | None:
    """The event in a record's value; the value itself if it is in no envelope of that format.

    - ``schema-registry``: the value is a JSON object behind a zero byte and the four bytes of a
      schema's id, as serialisers for JSON Schema write it.
    - ``cloudevents``: the value is a CloudEvent 1.0 in JSON whose ``data`` is the event (structured
      mode), or the event itself, with the attributes in headers (binary mode). ``id`` and ``time``
      are taken where the event has no ``event_id`` and ``occurred_at``.

    Never raises: what is wrong with a value is found when it is decoded.

    >>> unwrapped(b'\\0\\0\\0\\0\\7{"type": "forget"}', (), "schema-registry")
    b'{"type": "forget"}'
    >>> headers = (("ce_specversion", b"1.0"), ("ce_id", b"e"))
    >>> unwrapped(b'{"turn": 1}', headers, "cloudevents")
    b'{"event_id":"e","turn": 1}'
    """
    if value is None or value_format == "json":
        return value
    if value_format == "schema-registry":
        prefixed = value.startswith(MAGIC) and value[_PREFIX:].lstrip().startswith(b"{")
        return value[_PREFIX:] if prefixed else value
    attributes = dict(headers)
    if "ce_specversion" in attributes:
        return _with_attributes(
            value, _text(attributes.get("ce_id")), _text(attributes.get("ce_time"))
        )
    try:
        event = _structured(value)
    except _UNREADABLE:
        return value
    return _with_attributes(bytes(event.data), event.id, event.time)


def _text(attribute: bytes | None) -> str | None:
    """An attribute in a header; None if there is none, or if it is not UTF-8."""
    try:
        return None if attribute is None else attribute.decode()
    except UnicodeDecodeError:
        return None


def _with_attributes(value: bytes, event_id: str | None, occurred_at: str | None) -> bytes:
    """The event, with an id and a time if it has none; anything else as it is."""
    try:
        found = _identified(value)
    except _UNREADABLE:
        return value
    fields = {
        "event_id": (found.event_id, event_id),
        "occurred_at": (found.occurred_at, occurred_at),
    }
    added = {name: text for name, (own, text) in fields.items() if text and _is_missing(own)}
    if not added:
        return value
    if any(isinstance(fields[name][0], msgspec.Raw) for name in added):
        if len(value) > _LARGEST:
            return value
        return msgspec.json.encode(_fields(value) | added)
    rest = value.lstrip()[1:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return msgspec.json.encode(added)[:-1] + comma + rest


def _is_missing(field: msgspec.Raw | msgspec.UnsetType) -> bool:
    return not isinstance(field, msgspec.Raw) or bytes(field) == b"null"
