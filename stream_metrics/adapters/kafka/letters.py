"""What lies on the dead-letter topics: letters, and marks about them that commands have left.

A mark is a record with our headers and no value. ``resubmitted`` says that the letter of one place
was sent again. ``forgotten`` says up to which version a conversation was forgotten; its key is the
conversation's id, so that a compacted topic drops the letters too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer

from stream_metrics.adapters.kafka.produce import Outgoing
from stream_metrics.adapters.kafka.reading import extents, reading, records_between
from stream_metrics.adapters.kafka.records import HEADER_PREFIX
from stream_metrics.adapters.kafka.topics import partition_counts
from stream_metrics.events.record import Record
from stream_metrics.settings.kafka import KafkaSettings

Place = tuple[str, int, int]  # topic, partition, offset
Until = tuple[int, str]  # the version of a forget: microseconds, event id

_RESUBMITTED: Final = HEADER_PREFIX + "resubmitted"
_RESUBMITTED_FROM: Final = HEADER_PREFIX + "resubmitted_from"
_FORGOTTEN: Final = HEADER_PREFIX + "forgotten"
_CUT: Final = ("truncated", "key_truncated")


class NoDeadLetterTopic(Exception):
    """A dead-letter topic does not exist; the message names it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the record with the place where it stood, and where the letter lies.

    ``headers`` are ours, without their prefix. Of a letter that is ``cut``, key or value is not
    whole. ``written_ms`` is when it was written to the dead-letter topic, in milliseconds of Unix
    time; None where the topic does not tell.
    """

    record: Record
    headers: dict[str, Any]
    lies_at: Place
    written_ms: int | None = None

    @property
    def place(self) -> Place:
        """Where the record stood; it identifies the letter."""
        return self.record.topic, self.record.partition, self.record.offset

    @property
    def cut(self) -> bool:
        """Whether the record is not there as a whole."""
        return any(name in self.headers for name in _CUT)


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """The letter of a place was sent again, at a time."""

    place: Place
    at: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A conversation was forgotten up to a version."""

    conversation: str
    until: Until


def place_text(place: Place) -> str:
    """A place as commands take and show it.

    >>> place_text(("searches", 3, 14))
    'searches/3/14'
    """
    return "/".join(map(str, place))


async def read_letters(
    settings: KafkaSettings, topics: Sequence[str]
) -> AsyncIterator[Letter | Resubmitted | Forgotten]:
    """Everything on the dead-letter topics of ``topics``, up to the ends as they are now.

    Raises ``NoDeadLetterTopic``, and aiokafka's errors.
    """
    async with reading(settings) as consumer:
        for topic in topics:
            async for record in _records(settings, consumer, topic + settings.dead_letter_suffix):
                found = _parse(record, topic)
                if found is not None:
                    yield found


async def _records(
    settings: KafkaSettings, consumer: AIOKafkaConsumer, topic: str
) -> AsyncIterator[Any]:
    counts = await partition_counts(settings, [topic])
    places = [(topic, number) for number in range(counts.get(topic, 0))]
    if not places:
        raise NoDeadLetterTopic(f"topic {topic} does not exist; the worker needs it too. Create it")
    logs = await extents(consumer, places)
    starts = {place: log.first for place, log in logs.items()}
    async for record in records_between(consumer, starts, {p: log.end for p, log in logs.items()}):
        yield record


def _parse(record: Any, topic: str) -> Letter | Resubmitted | Forgotten | None:
    """What a record is; None for one that nothing of ours has put there for ``topic``."""
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
    lies_at = (record.topic, record.partition, record.offset)
    return Letter(original, headers, lies_at, None if record.timestamp < 0 else record.timestamp)


def _forgotten(record: Any, text: str) -> Forgotten | None:
    micros, _, event_id = text.partition(" ")
    try:
        return Forgotten(record.key.decode(), (int(micros), event_id))
    except (ValueError, AttributeError):
        return None


def resubmission(letter: Letter) -> Outgoing:
    """The record of a letter as it was, with a header that says where it stood."""
    record = letter.record
    header = (_RESUBMITTED_FROM, place_text(letter.place).encode())
    return Outgoing(
        record.topic, record.partition, record.key, record.value, record.timestamp_ms, (header,)
    )


def resubmitted_mark(letter: Letter, at: str) -> Outgoing:
    """The note beside a letter that its record was sent again."""
    topic, partition, offset = letter.place
    headers = (
        (HEADER_PREFIX + "topic", topic.encode()),
        (HEADER_PREFIX + "partition", str(partition).encode()),
        (HEADER_PREFIX + "offset", str(offset).encode()),
        (_RESUBMITTED, at.encode()),
    )
    key = f"resubmitted {place_text(letter.place)}".encode()
    return Outgoing(letter.lies_at[0], letter.lies_at[1], key, None, headers=headers)


def forgotten_mark(topic: str, partition: int, conversation: str, until: Until) -> Outgoing:
    """The note on a dead-letter topic's partition that a conversation was forgotten."""
    header = (_FORGOTTEN, f"{until[0]} {until[1]}".encode())
    return Outgoing(topic, partition, conversation.encode(), None, headers=(header,))
