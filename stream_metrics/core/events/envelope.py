"""Takes events out of the envelopes that other systems put around values in Kafka."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from stream_metrics.core.events.record import Headers

ValueFormat = Literal["json", "schema-registry", "cloudevents"]

FORMATS: Final[tuple[ValueFormat, ...]] = get_args(ValueFormat)
MAGIC: Final = b"\0"  # begins a value that a schema registry's serialiser has written
_PREFIX: Final = 5  # bytes: the one above, and the schema's id
_ATTRIBUTE: Final = "ce_"  # begins the headers of an event in binary mode


class _Structured(msgspec.Struct, frozen=True):
    """A CloudEvent in structured mode; its other attributes say nothing to us."""

    specversion: str
    id: str
    data: msgspec.Raw
    time: str | None = None


_structured: Final = msgspec.json.Decoder(_Structured).decode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def unwrapped(value: bytes | None, headers: Headers, value_format: ValueFormat) -> bytes | None:
    """The event in a record's value; the value itself if it is in no envelope of that format.

    - ``schema-registry``: the value begins with a zero byte and the four bytes of a schema's id,
      as serialisers for JSON Schema write it.
    - ``cloudevents``: the value is a CloudEvent 1.0 in JSON whose ``data`` is the event (structured
      mode), or the event itself, with the attributes in headers (binary mode). ``id`` and ``time``
      are taken where the event has no ``event_id`` and ``occurred_at``.

    >>> unwrapped(b'\\0\\0\\0\\0\\7{"type": "forget"}', (), "schema-registry")
    b'{"type": "forget"}'
    >>> unwrapped(b'{"specversion": "1.0", "id": "e", "data": {"turn": 1}}', (), "cloudevents")
    b'{"turn":1,"event_id":"e"}'
    """
    if value is None or value_format == "json":
        return value
    if value_format == "schema-registry":
        return value[_PREFIX:] if value.startswith(MAGIC) else value
    try:
        event = _structured(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _with_attributes(value, _attribute(headers, "id"), _attribute(headers, "time"))
    return _with_attributes(bytes(event.data), event.id, event.time)


def _attribute(headers: Headers, name: str) -> str | None:
    """An attribute of an event in binary mode; None if there is none."""
    found = dict(headers).get(_ATTRIBUTE + name)
    return None if found is None else found.decode("utf-8", "replace")


def _with_attributes(value: bytes, event_id: str | None, occurred_at: str | None) -> bytes:
    """The event, with an id and a time if it has none; anything else as it is."""
    given = {"event_id": event_id, "occurred_at": occurred_at}
    try:
        fields = _fields(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value
    added = {
        name: msgspec.Raw(msgspec.json.encode(text))
        for name, text in given.items()
        if text is not None and name not in fields
    }
    return msgspec.json.encode(fields | added) if added else value
