"""What every store asks of a batch before it touches anything, and how large a batch is.

Sizes are estimates of what one call to a store carries: bytes of keys and values, and arguments.
A caller splits a batch that is over ``CALL_BYTES`` or ``CALL_ARGUMENTS`` at an offset, which means
that its work is done again; so it takes as many records as should fit by those before. A batch of
one record may be larger, up to ``HARD_CAP_BYTES``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stream_metrics.live.ports import BatchWrite, ConversationWrite, Position

CALL_BYTES: Final = 1 << 20
CALL_ARGUMENTS: Final = 8_000
HARD_CAP_BYTES: Final = 64 << 20
KEY_BYTES: Final = 64
EXACT: Final = 1 << 53  # beyond it a sorted set's score is not a whole number any more

AIM: Final = 0.8  # of what a call may hold: the next records may need more than those before
TELLING: Final = 0.5  # of what a call may hold: what fills less says nothing of many records
FIRST: Final = 320  # records that a call holds where nothing is known yet: searches of ten results
REMEMBERED: Final = 0.95  # of what the records before needed, with each batch

_OVERHEAD: Final = 96  # of a conversation's or a window's key name in the call
_BYTES: Final[frozenset[type]] = frozenset({bytes})
_NUMBER: Final[frozenset[type]] = frozenset({int})
_TEXT: Final[frozenset[type]] = frozenset({str})
_BYTES_OR_NONE: Final[frozenset[type]] = frozenset({bytes, type(None)})


class BatchTooLarge(ValueError):
    """A batch above ``HARD_CAP_BYTES``; no store takes it."""


def estimate(batch: BatchWrite) -> tuple[int, int]:
    """How many bytes and arguments the call for ``batch`` has, a little too high rather than low.

    >>> estimate(BatchWrite(0, b"token", b"id", {}, {}))
    (103, 7)
    """
    size = _OVERHEAD + len(batch.token) + len(batch.batch_id)
    arguments = 7
    for topic, position in batch.positions.items():
        size += 2 * len(topic) + 100 + len(position.last_digest)
        arguments += 4
    for conversation in batch.conversations:
        size += 2 * _OVERHEAD + 2 * len(conversation.key)
        arguments += 12
        for parts in (conversation.hot, conversation.fingerprints):
            size += sum(map(len, parts)) + sum(map(len, filter(None, parts.values())))
            arguments += 2 * len(parts)
    windows = {window for window, _, _ in batch.buckets}
    size += _OVERHEAD * len(windows)
    arguments += 8 * len(windows)
    for (_, _, agent), value in batch.buckets.items():
        size += 20 + 4 * len(agent) + len(value or b"")
        arguments += 2
    return size, arguments


class BatchSizer:
    """How many records one call holds, by those that came before.

    Those that need most count: searches come in turn with labels, which need less. They are
    forgotten little by little. A batch that leaves a call half empty says nothing, since most of it
    may be what every batch has.

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
        self._each = AIM / FIRST  # of a call

    def note(self, records: int, filled: float) -> None:
        """So many records have filled so much of a call."""
        self._each = max(REMEMBERED * self._each, 1 / CALL_ARGUMENTS)  # each needs one at least
        if filled > TELLING:
            self._each = max(self._each, filled / records)

    @property
    def records(self) -> int:
        """As many as fill a call but for some room, since the next ones may need more.

        Rounded down: after a batch that no call holds it is less than that had, unless it had one.
        """
        return max(1, int(AIM / self._each))


def check_batch(batch: BatchWrite) -> None:
    """Raise ``ValueError`` for a batch that no store may take, before any of it is written."""
    _check_token(batch.token)
    _check_bytes("a batch's id", batch.batch_id)
    if unexpected := set(batch.positions) - set(batch.expected):
        raise ValueError(f"positions without expected offsets: {sorted(unexpected)}")
    for topic, offset in batch.expected.items():
        _check_number(f"the expected offset of {topic}", offset, low=0)
    check_positions(batch.positions)
    for conversation in batch.conversations:
        _check_conversation(conversation)
    _check_buckets(batch.buckets)
    _check_types("a mark", batch.marks, _TEXT)
    size, _ = estimate(batch)
    if size > HARD_CAP_BYTES:
        raise BatchTooLarge(f"a batch of {size} bytes is over the cap of {HARD_CAP_BYTES}")


def _check_buckets(buckets: Mapping[tuple[str, int, str], bytes | None]) -> None:
    """All at once: a batch has hundreds."""
    if buckets:
        windows, numbers, agents = zip(*buckets, strict=True)
        _check_types("a bucket's window and agent", (*windows, *agents), _TEXT)
        _check_types("a bucket's number", numbers, _NUMBER)
        for extreme in (min(numbers), max(numbers)):
            _check_number("a bucket's number", extreme, low=-EXACT)
        _check_types("a bucket's value", buckets.values(), _BYTES_OR_NONE)


def check_claim(partition: int, token: bytes, start: Mapping[str, Position]) -> None:
    """Raise ``ValueError`` for a claim that no store may take."""
    _check_number("a partition", partition, low=0)
    _check_token(token)
    check_positions(start)


def frozen_token(generation: int) -> bytes:
    """The token in the place of the owner's once that generation has taken the place of another.

    >>> frozen_token(2)
    b'frozen by 2'
    """
    return b"frozen by %d" % generation


def check_positions(positions: Mapping[str, Position]) -> None:
    """Raise ``ValueError`` for positions that are not whole numbers and bytes."""
    for topic, position in positions.items():
        _check_types("a topic", (topic,), _TEXT)
        _check_number(f"the offset of {topic}", position.offset, low=0)
        _check_number(f"the timestamp of {topic}", position.last_timestamp_ms, low=-EXACT)
        _check_number(f"the record time of {topic}", position.record_time_ms, low=-EXACT)
        _check_number(f"the event time of {topic}", position.event_time_us, low=-EXACT)
        _check_types(f"the digest of {topic}", (position.last_digest,), _BYTES)


def _check_conversation(conversation: ConversationWrite) -> None:
    _check_types("a conversation's key", (conversation.key,), _BYTES)
    if not 0 < len(conversation.key) <= KEY_BYTES:
        raise ValueError(f"a conversation's key must have 1 to {KEY_BYTES} bytes")
    _check_number("a conversation's last record time", conversation.last_record_ms, low=-EXACT)
    for parts in (conversation.hot, conversation.fingerprints):
        if parts and conversation.delete:
            raise ValueError("a deleted conversation must have no parts to write")
        _check_types("a part's name", parts, _BYTES)
        _check_types("a part", parts.values(), _BYTES_OR_NONE)


def _check_token(token: bytes) -> None:
    _check_bytes("an owner's token", token)


def _check_bytes(what: str, value: bytes) -> None:
    _check_types(what, (value,), _BYTES)
    if not value:
        raise ValueError(f"{what} must have at least one byte")


def _check_number(what: str, value: int, *, low: int) -> None:
    _check_types(what, (value,), _NUMBER)
    if not low <= value <= EXACT:
        raise ValueError(f"{what} must be from {low} to 2**53")


def _check_types(what: str, values: Iterable[object], allowed: frozenset[type]) -> None:
    if not set(map(type, values)) <= allowed:
        names = " or ".join(sorted(kind.__name__ for kind in allowed))
        raise ValueError(f"{what} is not {names}")
