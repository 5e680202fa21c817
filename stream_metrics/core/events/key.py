"""Inspect a record's value before decoding: its key, and whether it is a label event."""

from __future__ import annotations

from typing import Final

import msgspec

from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.wire import Handle


class _Keyed(msgspec.Struct, gc=False, frozen=True):
    conversation_id: Handle


class _Typed(msgspec.Struct, gc=False, frozen=True):
    type: str = ""


_CONVERSATION: Final = msgspec.json.Decoder(_Keyed)
_TYPE: Final = msgspec.json.Decoder(_Typed)


def key_of(value: bytes | None, timestamp_ms: int | None, limits: Limits) -> bytes | BadRecord:
    """The conversation id in UTF-8, or the reason why the record has none.

    Other errors of the event are not checked.

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
    """Whether the value is a ``relevance_labels`` event, which usually has a topic of its own.

    >>> is_labels(b'{"type": "relevance_labels"}'), is_labels(b"[]"), is_labels(None)
    (True, False, False)
    """
    try:
        return value is not None and _TYPE.decode(value).type == "relevance_labels"
    except (ValueError, RecursionError):
        return False
