"""What a record's value says before it is decoded: the key it needs, and whether it is labels."""

from __future__ import annotations

from typing import Final

import msgspec

from stream_metrics.events.decode import BadRecord, decode
from stream_metrics.events.limits import Limits
from stream_metrics.events.wire import Handle


class _Keyed(msgspec.Struct, gc=False, frozen=True):
    conversation_id: Handle


class _Typed(msgspec.Struct, gc=False, frozen=True):
    type: str = ""


_CONVERSATION: Final = msgspec.json.Decoder(_Keyed)
_TYPE: Final = msgspec.json.Decoder(_Typed)


def key_of(value: bytes | None, timestamp_ms: int | None, limits: Limits) -> bytes | BadRecord:
    """The conversation's id in UTF-8, or why the record names none.

    Whatever else may be wrong with the event is left to whoever reads it under that key.

    >>> key_of(b'{"conversation_id": "c-1"}', None, Limits())
    b'c-1'
    >>> key_of(b'{"conversation_id": 1}', None, Limits()).reason
    'unknown_type'
    """
    if value is not None and len(value) <= limits.record_bytes:
        try:
            return _CONVERSATION.decode(value).conversation_id.encode()
        except (ValueError, RecursionError):  # all of msgspec's decoding errors are ValueErrors
            pass
    found = decode(value, timestamp_ms=timestamp_ms, limits=limits)
    return found if isinstance(found, BadRecord) else found.conversation_id.encode()


def is_labels(value: bytes | None) -> bool:
    """Whether it is an event of labels, which usually have a topic of their own.

    >>> is_labels(b'{"type": "relevance_labels"}'), is_labels(b"[]"), is_labels(None)
    (True, False, False)
    """
    try:
        return value is not None and _TYPE.decode(value).type == "relevance_labels"
    except (ValueError, RecursionError):
        return False
