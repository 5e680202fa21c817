"""What Kafka says of topics: how many partitions each has."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.admin import AIOKafkaAdminClient

from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.settings import KafkaSettings


async def partition_counts(settings: KafkaSettings, topics: Iterable[str]) -> dict[str, int]:
    """Partitions by topic; topics that do not exist (or may not be seen) are left out.

    Raises aiokafka's errors while the brokers do not answer.
    """
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        await admin.start()
        described = await admin.describe_topics(list(topics))
    finally:
        await admin.close()
    return {
        found["topic"]: len(found["partitions"]) for found in described if not found["error_code"]
    }
