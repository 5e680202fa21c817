"""Looks up, checks and creates topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidTopicError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.options import open_admin
from stream_metrics.clients.kafka.rights import Right, rights_error
from stream_metrics.clients.kafka.settings import KafkaSettings

MAX_REPLICATION_FACTOR: Final = 3
TRACE_TOPIC_CONFIG: Final = {
    "message.timestamp.type": "LogAppendTime",  # the bridge relies on the broker's times
    "max.message.bytes": str(10 << 20),  # exports may contain long documents
}
"""The configuration of topics for traces, without their retention."""
UNKNOWN_TOPIC_ERRORS: Final = (UnknownTopicOrPartitionError, InvalidTopicError)


class TopicsInvalid(Exception):
    """Topics are missing or have different partition counts; the message says what to do."""


class TopicsMissing(TopicsInvalid):
    """A topic does not exist: an error at the start, waited for later."""


async def state_topic_counts(settings: KafkaSettings) -> dict[str, int]:
    """Partition counts of the topics that state is built from; raises ``TopicsMissing``."""
    counts = await partition_counts(settings, settings.state_topics)
    _check_topics_exist(settings, counts)
    return counts


async def equal_counts(settings: KafkaSettings) -> dict[str, int]:
    """As ``state_topic_counts``; raises ``TopicsInvalid`` if the counts differ."""
    counts = await state_topic_counts(settings)
    check_state_topics(settings, counts)
    return counts


def check_state_topics(settings: KafkaSettings, counts: Mapping[str, int]) -> None:
    """Raise ``TopicsInvalid`` unless all topics of state exist, with equal partition counts."""
    _check_topics_exist(settings, counts)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic}: {count}" for topic, count in counts.items())
        raise TopicsInvalid(
            f"input topics have different partition counts ({listed}); a conversation's events and "
            f"labels would be on different partition numbers. Give each {max(counts.values())} "
            "partitions (kafka-topics --alter --partitions). If the group already has state, see "
            'docs/guides/partitions.md, "Changing partition counts"'
        )


def _check_topics_exist(settings: KafkaSettings, counts: Mapping[str, int]) -> None:
    missing = [topic for topic in settings.state_topics if topic not in counts]
    if missing and settings.repartition_topic is not None:
        raise TopicsMissing(
            f"the internal topic does not exist: {settings.repartition_topic}. Create it, or set "
            "`kafka.repartition_topic` to another topic"
        )
    if missing:
        raise TopicsMissing(
            f"input topics do not exist: {', '.join(missing)}. Create them with "
            "`stream-metrics topics create`, or correct `kafka.topics`"
        )


def check_input_topics(topics: Iterable[str], counts: Mapping[str, int]) -> None:
    """Raise ``TopicsMissing`` unless all of these input topics exist."""
    missing = [topic for topic in topics if topic not in counts]
    if missing:
        raise TopicsMissing(
            f"input topics do not exist: {', '.join(missing)}. Create them with "
            "`stream-metrics topics create`, or correct `kafka.topics`"
        )


async def partition_counts(settings: KafkaSettings, topics: Iterable[str]) -> dict[str, int]:
    """Partitions by topic; topics that do not exist are left out.

    Raises ``KafkaRefused`` for topics that the user may not describe, whether they exist or not,
    and aiokafka's errors while the brokers do not answer or do not know yet.
    """
    async with open_admin(settings) as admin:
        described = await admin.describe_topics(list(topics))
    counts: dict[str, int] = {}
    hidden: list[Right] = []
    for found in described:
        error = for_code(found["error_code"])
        if error is NoError:
            counts[found["topic"]] = len(found["partitions"])
        elif error is TopicAuthorizationFailedError:
            hidden.append(Right("DESCRIBE", "topic", found["topic"]))
        elif error not in UNKNOWN_TOPIC_ERRORS:
            raise error(found["topic"])
    if hidden:
        raise KafkaRefused(rights_error(settings, hidden))
    return counts


async def topic_configs(
    settings: KafkaSettings, topics: Iterable[str]
) -> dict[str, Mapping[str, str]]:
    """The configuration of topics, including defaults; those that do not exist are left out.

    Raises aiokafka's errors while the brokers do not answer, or if the user may not describe them.
    """
    wanted = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    async with open_admin(settings) as admin:
        answers = await admin.describe_configs(wanted)
    found: dict[str, Mapping[str, str]] = {}
    for code, _, _, topic, entries in (each for answer in answers for each in answer.resources):
        error = for_code(code)
        if error is NoError:
            found[topic] = {name: value for name, value, *_ in entries}
        elif error is not UnknownTopicOrPartitionError:
            raise error(topic)
    return found


async def create_topics(
    settings: KafkaSettings,
    names: Sequence[str],
    partitions: int,
    copies: int | None,
    config: Mapping[str, str],
) -> None:
    """Create topics with this configuration, except those that exist already.

    ``copies`` is the replication factor; None means 3, or the number of brokers if that is less.
    Raises aiokafka's errors.
    """
    if not names:
        return
    async with open_admin(settings) as admin:
        brokers = len((await admin.describe_cluster())["brokers"])
        answer = await admin.create_topics(
            [
                NewTopic(
                    name,
                    partitions,
                    copies or min(MAX_REPLICATION_FACTOR, brokers),
                    topic_configs=dict(config),
                )
                for name in names
            ]
        )
    for name, code, *message in answer.topic_errors:
        error = for_code(code)
        if error not in (NoError, TopicAlreadyExistsError):
            raise error(" ".join([f"topic {name}:", *(str(part) for part in message if part)]))
