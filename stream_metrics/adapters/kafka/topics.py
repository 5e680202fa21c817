"""What Kafka says of topics: how many partitions each has."""

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
