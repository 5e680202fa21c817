"""How far the copying group has read, and where it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.kafka.internals import commit_for_all

Commits = dict[TopicPartition, OffsetAndMetadata]

_NOTE: Final = "stream-metrics: read up to "


def note(read_up_to_ms: int) -> str:
    """What stands beside an offset: record time up to which the partition has been read.

    >>> note_ms(note(1_718_020_800_000))
    1718020800000
    """
    return f"{_NOTE}{read_up_to_ms}"


def note_ms(text: str) -> int:
    """The time in a note; 0 where it is none of ours."""
    digits = text.removeprefix(_NOTE)
    return int(digits) if text.startswith(_NOTE) and digits.isdecimal() else 0


async def commits_of(consumer: AIOKafkaConsumer, topics: Sequence[str]) -> Commits:
    """What the consumer's group has committed for all partitions of the topics.

    Raises aiokafka's errors.
    """
    # The public method gives the offset without the note.
    found: Commits = await consumer._coordinator.fetch_committed_offsets(_all(consumer, topics))
    return found


async def begin_at_ends(
    consumer: AIOKafkaConsumer, topics: Sequence[str], now_ms: Callable[[], int]
) -> Commits | None:
    """Commit the ends of all partitions of the topics, also of those that other members have.

    So whichever partition has no commit later was added. Only the member that has the first of them
    does so, lest a second one passes what was produced since; None for all others. Raises
    aiokafka's errors.
    """
    places = _all(consumer, topics)
    if places[0] not in consumer.assignment():
        return None
    said = note(now_ms())
    ends = await consumer.end_offsets(places)
    commits = {place: OffsetAndMetadata(end, said) for place, end in ends.items()}
    await commit_for_all(consumer, commits)
    return commits


def _all(consumer: AIOKafkaConsumer, topics: Sequence[str]) -> list[TopicPartition]:
    return sorted(
        consumer.assignment().union(
            TopicPartition(topic, number)
            for topic in topics
            for number in consumer.partitions_for_topic(topic) or ()
        )
    )
