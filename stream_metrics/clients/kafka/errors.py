"""Errors that this package raises in addition to aiokafka's."""

from __future__ import annotations

from aiokafka.errors import (
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)


class KafkaRefused(Exception):
    """Kafka rejects the user (authentication or authorization).

    The message says what to grant or correct, and contains no secret.
    """


def why_not_written(error: Exception, rights: str = "permission to write to it") -> str:
    """What a failed write to a topic means, as part of a message.

    >>> why_not_written(UnknownTopicOrPartitionError())
    'it does not exist. `stream-metrics topics create` creates what is missing'
    """
    if isinstance(error, UnknownTopicOrPartitionError):
        return "it does not exist. `stream-metrics topics create` creates what is missing"
    if isinstance(error, TopicAuthorizationFailedError):
        return f"the user needs {rights}"
    name = type(error).__name__
    return f"{name}. The topic must exist and have room, and the user needs {rights}"


class UnreadableBatch(KafkaError):  # type: ignore[misc]
    """A record batch cannot be read; the message says which and why.

    The call that raises may have dropped records that it read before this batch: seek back.
    """

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        self.message = f"the batch at offset {offset} of {topic} [{partition}] {why}"
        super().__init__(self.message)
        self.topic = topic
        self.partition = partition


class FencedInstance(KafkaError):  # type: ignore[misc]
    """Another member has joined the group with this worker's instance id, and replaces it."""

    def __init__(self, group: str, instance_id: str) -> None:
        self.message = (
            f"another worker has joined group {group!r} as {instance_id!r} "
            "(kafka.group_instance_id), and Kafka gave it the partitions of this worker, which "
            "stops. If it was not meant to replace this one, give each worker a unique id and "
            "start this one again"
        )
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message
