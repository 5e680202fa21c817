"""Runs what a command does with Kafka, and converts the errors into messages."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.errors import KafkaRefused, UnreadableBatch
from stream_metrics.clients.kafka.partition_reader import RecordsGone
from stream_metrics.clients.kafka.rights import explain
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import TopicsInvalid

T = TypeVar("T")


@contextmanager
def kafka_errors(settings: Settings) -> Iterator[None]:
    """Convert Kafka's errors, and missing topics, rights and records, into ``UsageError``."""
    try:
        yield
    except (KafkaRefused, TopicsInvalid) as error:
        raise UsageError(str(error)) from error
    except RecordsGone as error:
        raise UsageError(
            f"{error}. Run this again to start from the earliest record left"
        ) from error
    except UnreadableBatch as error:
        raise UsageError(
            f"{error.message}. If it is too large and memory allows, raise "
            "`kafka.max_batch_bytes`; otherwise continue after it with --from"
        ) from error
    except (KafkaError, OSError, TimeoutError) as error:
        why = asyncio.run(cause(settings.kafka, error))
        raise UsageError(f"kafka {settings.kafka.bootstrap_servers}: {why}") from error


def run_kafka(settings: Settings, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` under ``kafka_errors``."""
    with kafka_errors(settings):
        return asyncio.run(work)


async def cause(kafka: KafkaSettings, error: Exception) -> str:
    """The cause of an error of the Kafka client, or of a refusal, as text."""
    try:
        return str(error) if isinstance(error, KafkaRefused) else await explain(kafka, error)
    except KafkaRefused as refused:
        return str(refused)
