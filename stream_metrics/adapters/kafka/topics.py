"""Topics: how many partitions each has, and where keys belong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    InvalidTopicError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.settings import KafkaSettings

ABSENT: Final = (UnknownTopicOrPartitionError, TopicAuthorizationFailedError, InvalidTopicError)


class TopicsUnfit(Exception):
    """The input topics are missing, or their partition counts differ; says how to fix it."""


class TopicsMissing(TopicsUnfit):
    """An input topic does not exist: a refusal at the start, to be waited for later."""


async def equal_counts(settings: KafkaSettings) -> dict[str, int]:
    """Partition counts of the input topics; raises ``TopicsUnfit`` unless they are equal."""
    counts = await partition_counts(settings, settings.topics)
    missing = [topic for topic in settings.topics if topic not in counts]
    if missing:
        raise TopicsMissing(
            f"input topics do not exist: {', '.join(missing)}. Create them, all with the same "
            "number of partitions, or name others in `kafka.topics`"
        )
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic}: {count}" for topic, count in counts.items())
        raise TopicsUnfit(
            f"input topics have different partition counts ({listed}); a conversation's events and "
            f"labels would land on different partition numbers. Give all {max(counts.values())} "
            "partitions (kafka-topics --alter --partitions); if the group has state by then, run "
            "`stream-metrics reshard` before its workers start again"
        )
    return counts


async def partition_counts(settings: KafkaSettings, topics: Iterable[str]) -> dict[str, int]:
    """Partitions by topic; topics that do not exist (or may not be seen) are left out.

    Raises aiokafka's errors while the brokers do not answer, or cannot say yet.
    """
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        await admin.start()
        described = await admin.describe_topics(list(topics))
    finally:
        await admin.close()
    counts: dict[str, int] = {}
    for found in described:
        error = for_code(found["error_code"])
        if error is NoError:
            counts[found["topic"]] = len(found["partitions"])
        elif error not in ABSENT:
            raise error(found["topic"])
    return counts
