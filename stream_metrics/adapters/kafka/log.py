"""The log behind a partition: where reading begins, and whether it holds what the state needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.ports import Position

FRESH: Final = "stream-metrics: nothing written yet"


class OffsetGap(Exception):
    """The log of one topic does not hold what the state needs; the message says what is missing."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(message)
        self.topic = topic


async def start_positions(
    consumer: AIOKafkaConsumer, places: Sequence[TopicPartition], start: str
) -> dict[str, Position]:
    """Where a state partition begins that the store does not know, by topic.

    A commit that carries the note ``FRESH`` was made before anything was written. Any other commit
    says that there was state: raises ``OffsetGap``.
    """
    firsts = await consumer.beginning_offsets(places)
    ends = await consumer.end_offsets(places)
    # the public method gives the offset without the note
    commits = await consumer._coordinator.fetch_committed_offsets(places)
    positions: dict[str, Position] = {}
    for place in places:
        commit = commits.get(place)
        if commit is None:
            positions[place.topic] = Position((ends if start == "latest" else firsts)[place])
        elif commit.metadata == FRESH:
            positions[place.topic] = Position(commit.offset)
        else:
            raise OffsetGap(
                place.topic,
                f"the group has committed offset {commit.offset} of {place.topic}, but the store "
                "has no state for it: the state is lost, or the namespace is another one",
            )
    return positions


async def targets(
    consumer: AIOKafkaConsumer,
    places: Sequence[TopicPartition],
    positions: Mapping[str, Position],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """(where to seek, the ends of the log) for stored positions.

    Where the record before the stored offset is there to be recognised, that is one record back.
    Raises ``OffsetGap`` if the log begins behind a position or ends before it.
    """
    firsts = await consumer.beginning_offsets(places)
    ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
    aims: dict[TopicPartition, int] = {}
    for place in places:
        position = positions[place.topic]
        if position.offset < firsts[place]:
            raise OffsetGap(
                place.topic,
                f"{place.topic} begins at offset {firsts[place]}, the state needs "
                f"{position.offset}: records were deleted before they were read",
            )
        if position.offset > ends[place]:
            raise OffsetGap(
                place.topic,
                f"{place.topic} ends at offset {ends[place]}, the state has read up to "
                f"{position.offset}: the topic was made anew or has lost records",
            )
        back = bool(position.last_digest) and position.offset - 1 >= firsts[place]
        aims[place] = position.offset - 1 if back else position.offset
    return aims, ends
