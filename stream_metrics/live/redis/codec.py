"""Encodes and decodes the store's values in Redis, and the arguments of its scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationKey,
    ConversationWrite,
    Fenced,
    Moved,
    PartitionState,
    Position,
    WriteResult,
    Written,
)
from stream_metrics.live.redis import keys as names
from stream_metrics.live.redis.keys import PartitionKeys

Meta = Mapping[bytes, bytes]
Call = tuple[list[bytes], list[bytes | int]]

# A lone surrogate in a name must not make a batch unwritable.
_SURROGATES: Final = "surrogatepass"


def text_bytes(text: str) -> bytes:
    """A name as bytes; every ``str`` can be encoded."""
    return text.encode("utf-8", _SURROGATES)


def bytes_text(data: bytes) -> str:
    """The inverse of ``text_bytes``."""
    return data.decode("utf-8", _SURROGATES)


def bucket_field(bucket: int, agent: str) -> bytes:
    """The field of a bucket; the number ends at the first ``|``, so the agent may contain ``|``."""
    return b"%d|%b" % (bucket, text_bytes(agent))


def read_bucket(field: bytes) -> tuple[int, str]:
    """Bucket number and agent of a field; raises ``DamagedState``."""
    bucket, _, agent = field.partition(b"|")
    try:
        return int(bucket), bytes_text(agent)
    except ValueError as error:
        raise DamagedState("a window bucket is stored under an invalid name") from error


def position_fields(positions: Mapping[str, Position]) -> list[bytes]:
    """Positions as fields and values of ``meta``, in one flat list."""
    fields = []
    for topic, position in positions.items():
        name = text_bytes(topic)
        fields += [names.OFFSET + name, b"%d" % position.offset, names.LAST + name, _last(position)]
    return fields


def read_state(meta: Meta) -> PartitionState:
    """The content of ``meta``, without buckets; raises ``DamagedState``."""
    try:
        return _read_state(meta)
    except (KeyError, ValueError) as error:
        raise DamagedState(
            f"the offsets of a state partition in Redis cannot be read ({type(error).__name__})"
        ) from error


def _read_state(meta: Meta) -> PartitionState:
    frozen_by = int(meta.get(names.FROZEN, b"0"))
    if names.TOKEN not in meta:
        return PartitionState(None, {}, frozen_by=frozen_by, wiping=names.WIPING in meta)
    positions = {}
    for topic in _suffixes(meta, names.OFFSET):
        timestamp, record_time, event_time, digest = meta[names.LAST + topic].split(b" ", 3)
        positions[bytes_text(topic)] = Position(
            int(meta[names.OFFSET + topic]),
            int(timestamp),
            digest,
            int(record_time),
            int(event_time),
        )
    beat_ms, behind_ms, token = (*meta.get(names.BEAT, b"").split(b" ", 2), b"", b"")[:3]
    alive = token == meta[names.TOKEN] and beat_ms.isdigit()
    return PartitionState(
        meta[names.TOKEN],
        positions,
        last_batch=meta.get(names.BATCH_ID, b""),
        marks=frozenset(map(bytes_text, _suffixes(meta, names.MARK))),
        frozen_by=frozen_by,
        worker=meta.get(names.WORKER, b"").decode("utf-8", "replace") if alive else "",
        beat_ms=int(beat_ms) if alive else 0,
        behind_ms=int(behind_ms) if alive and behind_ms.isdigit() else None,
    )


def read_windows(meta: Meta) -> list[str]:
    """The windows that ever had a bucket, also those that an unfinished wipe has left."""
    return [bytes_text(window) for window in _suffixes(meta, names.WINDOW)]


def read_result(reply: list[bytes]) -> WriteResult:
    """Decode the reply of ``write.lua``."""
    if reply[0] == b"fenced":
        return Fenced()
    if reply[0] == b"moved":
        pairs = zip(reply[1::2], reply[2::2], strict=True)
        return Moved({bytes_text(topic): int(offset) for topic, offset in pairs})
    return Written()


def write_call(batch: BatchWrite, keys: PartitionKeys) -> Call:
    """KEYS and ARGV of ``write.lua``."""
    call_keys = [keys.meta, keys.idle]
    arguments: list[bytes | int] = [batch.token, batch.batch_id, len(batch.expected)]
    for topic, offset in batch.expected.items():
        new = batch.positions.get(topic)
        arguments += [text_bytes(topic), offset]
        arguments += [new.offset, _last(new)] if new else [b"", b""]
    buckets: dict[str, dict[bytes, bytes | None]] = {}
    for (window, bucket, agent), value in batch.buckets.items():
        buckets.setdefault(window, {})[bucket_field(bucket, agent)] = value
    notes = [names.WINDOW + text_bytes(window) for window in buckets]
    notes += [names.MARK + text_bytes(mark) for mark in batch.marks]
    arguments.append(len(notes))
    arguments += notes
    for window, fields in buckets.items():
        _change(call_keys, arguments, keys.window(window), fields)
    for conversation in batch.conversations:
        _change_conversation(call_keys, arguments, keys, conversation)
    _change_idle(arguments, batch.conversations)
    return call_keys, arguments


def _last(position: Position) -> bytes:
    times = (position.last_timestamp_ms, position.record_time_ms, position.event_time_us)
    return b"%d %d %d %b" % (*times, position.last_digest)


def _suffixes(meta: Meta, prefix: bytes) -> list[bytes]:
    return [field[len(prefix) :] for field in meta if field.startswith(prefix)]


def _change_conversation(
    call_keys: list[bytes],
    arguments: list[bytes | int],
    keys: PartitionKeys,
    conversation: ConversationWrite,
) -> None:
    key = conversation.key
    if conversation.delete:
        for gone in (keys.hot(key), keys.fingerprints(key)):
            call_keys.append(gone)
            arguments += [b"X", len(call_keys)]
        return
    if conversation.hot:
        _change(call_keys, arguments, keys.hot(key), conversation.hot)
    if conversation.fingerprints:
        _change(call_keys, arguments, keys.fingerprints(key), conversation.fingerprints)


def _change(
    call_keys: list[bytes],
    arguments: list[bytes | int],
    key: bytes,
    fields: Mapping[bytes, bytes | None],
) -> None:
    call_keys.append(key)
    number = len(call_keys)
    kept: list[bytes | int] = []
    gone: list[bytes | int] = []
    for field, value in fields.items():
        if value is None:
            gone.append(field)
        else:
            kept += (field, value)
    if kept:
        arguments += [b"S", number, len(kept) // 2]
        arguments += kept
    if gone:
        arguments += [b"R", number, len(gone)]
        arguments += gone


def _change_idle(arguments: list[bytes | int], conversations: Iterable[ConversationWrite]) -> None:
    last: dict[ConversationKey, int] = {}
    gone: dict[ConversationKey, None] = {}
    for conversation in conversations:
        key, ms = conversation.key, conversation.last_record_ms
        if conversation.delete:
            last.pop(key, None)
            gone[key] = None
        else:
            last[key] = max(ms, last.get(key, ms))
    if gone:
        arguments += [b"Z", len(gone)]
        arguments += gone
    if last:
        arguments += [b"A", len(last)]
        for key, ms in last.items():
            arguments += (ms, key)
