"""Validation of batches before any store writes them, and estimates of their size.

A size is an estimate of one call to a store: bytes of keys and values, and the number of arguments.
A caller splits a batch that exceeds ``CALL_BYTES`` or ``CALL_ARGUMENTS`` and processes its records
again, so it predicts from earlier batches how many records fit. A batch of one record may be
larger, up to ``HARD_CAP_BYTES``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from stream_metrics.live.ports import BatchWrite, ConversationWrite, Position

CALL_BYTES: Final = 1 << 20
CALL_ARGUMENTS: Final = 8_000
HARD_CAP_BYTES: Final = 64 << 20
KEY_BYTES: Final = 64
MAX_EXACT: Final = 1 << 53  # the largest integer that a sorted set's score represents exactly

TARGET_FILL: Final = 0.8  # share of a call to fill: the next records may need more
MIN_INFORMATIVE_FILL: Final = 0.5  # a batch that fills less is mostly fixed overhead
INITIAL_RECORDS: Final = 320  # records per call before the first batch: searches of ten results
DECAY: Final = 0.95  # of the estimate, per batch

_Parts = Mapping[bytes, bytes | None]

_OVERHEAD: Final = 96  # bytes of a conversation's or a window's key name in the call
_BYTES: Final[frozenset[type]] = frozenset({bytes})
_NUMBER: Final[frozenset[type]] = frozenset({int})
_TEXT: Final[frozenset[type]] = frozenset({str})
_BYTES_OR_NONE: Final[frozenset[type]] = frozenset({bytes, type(None)})


class BatchTooLarge(ValueError):
    """A batch exceeds ``HARD_CAP_BYTES``."""


def estimate(batch: BatchWrite) -> tuple[int, int]:
    """The bytes and arguments of the call for ``batch``; a slight overestimate.

    >>> estimate(BatchWrite(0, b"token", b"id", {}, {}))
    (103, 7)
    """
    size = _OVERHEAD + len(batch.token) + len(batch.batch_id)
    arguments = 7
    for topic, position in batch.positions.items():
        size += 2 * len(topic) + 100 + len(position.last_digest)
        arguments += 4
    parts = _parts(batch.conversations)
    size += 2 * _OVERHEAD * len(batch.conversations)
    size += 2 * sum(len(conversation.key) for conversation in batch.conversations)
    size += sum(map(len, chain.from_iterable(parts))) + _bytes_of(_values(parts))
    arguments += 12 * len(batch.conversations) + 2 * sum(map(len, parts))
    if batch.buckets:
        names, _, agents = zip(*batch.buckets, strict=True)
        windows = len(set(names))
        size += _OVERHEAD * windows + 20 * len(agents) + 4 * sum(map(len, agents))
        size += _bytes_of(batch.buckets.values())
        arguments += 8 * windows + 2 * len(agents)
    return size, arguments


def _parts(conversations: Iterable[ConversationWrite]) -> list[_Parts]:
    return [parts for one in conversations for parts in (one.hot, one.fingerprints)]


def _values(parts: Iterable[_Parts]) -> Iterable[bytes | None]:
    return chain.from_iterable(one.values() for one in parts)


def _bytes_of(values: Iterable[bytes | None]) -> int:
    return sum(map(len, filter(None, values)))


class BatchSizer:
    """Predicts from earlier batches how many records fit into one call.

    The estimate follows the largest records, because searches alternate with labels, which need
    less; it decays with each batch. A batch that leaves a call half empty is ignored, since most of
    it may be overhead that every batch has.

    >>> sizer = BatchSizer()
    >>> sizer.records
    320
    >>> sizer.note(400, 1.6)
    >>> sizer.records
    200
    >>> sizer.note(200, 0.1)
    >>> sizer.records
    210
    """

    def __init__(self) -> None:
        self._share = TARGET_FILL / INITIAL_RECORDS  # of a call, per record

    def note(self, records: int, filled: float) -> None:
        """Record that ``records`` records filled the share ``filled`` of a call."""
        self._share = max(DECAY * self._share, 1 / CALL_ARGUMENTS)  # at least one argument each
        if filled > MIN_INFORMATIVE_FILL:
            self._share = max(self._share, filled / records)

    @property
    def records(self) -> int:
        """The number of records that fill ``TARGET_FILL`` of a call, at least 1.

        Rounded down, so that it is smaller than a batch that exceeded a call, unless that had one
        record.
        """
        return max(1, int(TARGET_FILL / self._share))


def check_batch(batch: BatchWrite) -> None:
    """Raise ``ValueError`` for a batch that no store may write."""
    _check_token(batch.token)
    _check_bytes("a batch's id", batch.batch_id)
    if unexpected := set(batch.positions) - set(batch.expected):
        raise ValueError(f"positions without expected offsets: {sorted(unexpected)}")
    for topic, offset in batch.expected.items():
        _check_number(f"the expected offset of {topic}", offset, low=0)
    check_positions(batch.positions)
    _check_conversations(batch.conversations)
    _check_buckets(batch.buckets)
    _check_types("a mark", batch.marks, _TEXT)
    size, _ = estimate(batch)
    if size > HARD_CAP_BYTES:
        raise BatchTooLarge(f"a batch of {size} bytes is over the cap of {HARD_CAP_BYTES}")


def _check_buckets(buckets: Mapping[tuple[str, int, str], bytes | None]) -> None:
    """Check all buckets together, because a batch has hundreds."""
    if buckets:
        windows, numbers, agents = zip(*buckets, strict=True)
        _check_types("a bucket's window and agent", (*windows, *agents), _TEXT)
        _check_types("a bucket's number", numbers, _NUMBER)
        for extreme in (min(numbers), max(numbers)):
            _check_number("a bucket's number", extreme, low=-MAX_EXACT)
        _check_types("a bucket's value", buckets.values(), _BYTES_OR_NONE)


def check_claim(partition: int, token: bytes, start: Mapping[str, Position]) -> None:
    """Raise ``ValueError`` for a claim that no store may accept."""
    _check_number("a partition", partition, low=0)
    _check_token(token)
    check_positions(start)


def frozen_token(generation: int) -> bytes:
    """The owner token of a partition that ``generation`` has frozen.

    >>> frozen_token(2)
    b'frozen by 2'
    """
    return b"frozen by %d" % generation


def check_positions(positions: Mapping[str, Position]) -> None:
    """Raise ``ValueError`` for positions that are not whole numbers and bytes."""
    for topic, position in positions.items():
        _check_types("a topic", (topic,), _TEXT)
        _check_number(f"the offset of {topic}", position.offset, low=0)
        _check_number(f"the timestamp of {topic}", position.last_timestamp_ms, low=-MAX_EXACT)
        _check_number(f"the record time of {topic}", position.record_time_ms, low=-MAX_EXACT)
        _check_number(f"the event time of {topic}", position.event_time_us, low=-MAX_EXACT)
        _check_types(f"the digest of {topic}", (position.last_digest,), _BYTES)


def _check_conversations(conversations: Sequence[ConversationWrite]) -> None:
    """Check all conversations together, because a batch has hundreds."""
    if not conversations:
        return
    keys = [one.key for one in conversations]
    _check_types("a conversation's key", keys, _BYTES)
    sizes = set(map(len, keys))
    if not 0 < min(sizes) <= max(sizes) <= KEY_BYTES:
        raise ValueError(f"a conversation's key must have 1 to {KEY_BYTES} bytes")
    times = [one.last_record_ms for one in conversations]
    _check_types("a conversation's last record time", times, _NUMBER)
    for extreme in (min(times), max(times)):
        _check_number("a conversation's last record time", extreme, low=-MAX_EXACT)
    if any(one.delete and (one.hot or one.fingerprints) for one in conversations):
        raise ValueError("a deleted conversation must have no parts to write")
    parts = _parts(conversations)
    _check_types("a part's name", chain.from_iterable(parts), _BYTES)
    _check_types("a part", _values(parts), _BYTES_OR_NONE)


def _check_token(token: bytes) -> None:
    _check_bytes("an owner's token", token)


def _check_bytes(what: str, value: bytes) -> None:
    _check_types(what, (value,), _BYTES)
    if not value:
        raise ValueError(f"{what} must have at least one byte")


def _check_number(what: str, value: int, *, low: int) -> None:
    _check_types(what, (value,), _NUMBER)
    if not low <= value <= MAX_EXACT:
        raise ValueError(f"{what} must be from {low} to 2**53")


def _check_types(what: str, values: Iterable[object], allowed: frozenset[type]) -> None:
    if not set(map(type, values)) <= allowed:
        names = " or ".join(sorted(kind.__name__ for kind in allowed))
        raise ValueError(f"{what} is not {names}")
