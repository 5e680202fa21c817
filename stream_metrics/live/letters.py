"""Dead letters as they are stored: a rejected record with headers that say why, and marks.

A mark is a record with headers of this project and no value. ``resubmitted`` says that a letter's
record was sent again. ``forgotten`` says up to which version a conversation was forgotten; its key
is the conversation id, so that a compacted topic drops the letters too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from stream_metrics.clients.kafka.records import HEADER_PREFIX, OutgoingRecord
from stream_metrics.core.events.record import DeadLetter, Record

RecordId = tuple[str, int, int]  # topic, partition, offset
ForgetVersion = tuple[int, str]  # event time in microseconds, event id

Headers = list[tuple[str, bytes]]

_TOPIC: Final = HEADER_PREFIX + "topic"
_PARTITION: Final = HEADER_PREFIX + "partition"
_OFFSET: Final = HEADER_PREFIX + "offset"
_TIMESTAMP: Final = HEADER_PREFIX + "timestamp"
_CLASS: Final = HEADER_PREFIX + "error.class"
_MESSAGE: Final = HEADER_PREFIX + "error.message"
_RESUBMITTED: Final = HEADER_PREFIX + "resubmitted"
_RESUBMITTED_FROM: Final = HEADER_PREFIX + "resubmitted_from"
_FORGOTTEN: Final = HEADER_PREFIX + "forgotten"
_CUT: Final = ("truncated", "key_truncated")


class StoredRecord(Protocol):
    """A record of a dead-letter topic, as the client of Kafka has it."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the rejected record, and where the letter is stored.

    ``headers`` are those of this project, without their prefix. ``written_ms`` is when the letter
    was written to the dead-letter topic, in milliseconds of Unix time; None if unknown.
    """

    record: Record
    headers: dict[str, Any]
    stored_at: RecordId
    written_ms: int | None = None

    @property
    def place(self) -> RecordId:
        """Topic, partition and offset of the rejected record, which identify the letter."""
        return self.record.topic, self.record.partition, self.record.offset

    @property
    def cut(self) -> bool:
        """Whether the record's key or value was truncated."""
        return any(name in self.headers for name in _CUT)


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """A mark: the record of a letter was sent again, at a time."""

    place: RecordId
    at: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A mark: a conversation was forgotten up to a version."""

    conversation: str
    until: ForgetVersion


def format_record_id(place: RecordId) -> str:
    """A record's id as commands accept and print it.

    >>> format_record_id(("searches", 3, 14))
    'searches/3/14'
    """
    return "/".join(map(str, place))


def parse(record: StoredRecord, topic: str) -> Letter | Resubmitted | Forgotten | None:
    """What a record holds; None if this project did not write it for ``topic``."""
    headers: dict[str, Any] = {
        name.removeprefix(HEADER_PREFIX): value.decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(HEADER_PREFIX)
    }
    if "forgotten" in headers:
        return _forgotten(record, headers["forgotten"])
    try:
        for name in ("partition", "offset"):
            headers[name] = int(headers[name])
        timestamp_ms = int(headers.get("timestamp", -1))
    except (KeyError, ValueError):
        return None
    if headers.get("topic") != topic or headers["partition"] < 0:
        return None
    place = (topic, headers["partition"], headers["offset"])
    if "resubmitted" in headers:
        return Resubmitted(place, headers["resubmitted"])
    if not {"error.class", "error.message"} <= headers.keys():
        return None
    stamp = None if timestamp_ms < 0 else timestamp_ms
    original = Record(record.value, record.key, stamp, *place)
    stored_at = (record.topic, record.partition, record.offset)
    return Letter(original, headers, stored_at, None if record.timestamp < 0 else record.timestamp)


def _forgotten(record: StoredRecord, text: str) -> Forgotten | None:
    micros, _, event_id = text.partition(" ")
    try:
        return (
            None if record.key is None else Forgotten(record.key.decode(), (int(micros), event_id))
        )
    except ValueError:
        return None


def resubmission(letter: Letter) -> OutgoingRecord:
    """The original record of a letter, with a header that names its topic, partition and offset."""
    record = letter.record
    header = (_RESUBMITTED_FROM, format_record_id(letter.place).encode())
    return OutgoingRecord(
        record.topic, record.partition, record.key, record.value, record.timestamp_ms, (header,)
    )


def resubmitted_mark(letter: Letter, at: str) -> OutgoingRecord:
    """The mark that a letter's record was sent again."""
    topic, partition, offset = letter.place
    headers = (
        (HEADER_PREFIX + "topic", topic.encode()),
        (HEADER_PREFIX + "partition", str(partition).encode()),
        (HEADER_PREFIX + "offset", str(offset).encode()),
        (_RESUBMITTED, at.encode()),
    )
    key = f"resubmitted {format_record_id(letter.place)}".encode()
    return OutgoingRecord(letter.stored_at[0], letter.stored_at[1], key, None, headers=headers)


def forgotten_mark(
    topic: str, partition: int, conversation: str, until: ForgetVersion
) -> OutgoingRecord:
    """The mark, on one partition of a dead-letter topic, that a conversation was forgotten."""
    header = (_FORGOTTEN, f"{until[0]} {until[1]}".encode())
    return OutgoingRecord(topic, partition, conversation.encode(), None, headers=(header,))


def letter_headers(letter: DeadLetter) -> Headers:
    """Headers that name the record's topic, partition and offset, and why it was rejected."""
    record = letter.record
    headers = [
        (_TOPIC, record.topic.encode()),
        (_PARTITION, str(record.partition).encode()),
        (_OFFSET, str(record.offset).encode()),
        (_CLASS, letter.reason.encode()),
        (_MESSAGE, letter.message.encode()),
    ]
    if record.timestamp_ms is not None:
        headers.append((_TIMESTAMP, str(record.timestamp_ms).encode()))
    return headers
