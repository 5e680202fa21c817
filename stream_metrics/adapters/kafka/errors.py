"""What this package raises beside aiokafka's errors."""

from __future__ import annotations

from aiokafka.errors import KafkaError


class KafkaRefused(Exception):
    """Kafka turned the user away (password, rights); says what to grant, and never a secret."""


class UnreadableBatch(KafkaError):  # type: ignore[misc]
    """A record batch that cannot be read: where it is, and why.

    Records that were read before it may be lost with the call that raises: seek back.
    """

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        self.message = f"the batch at offset {offset} of {topic} [{partition}] {why}"
        super().__init__(self.message)
        self.topic = topic
        self.partition = partition


class FencedInstance(KafkaError):  # type: ignore[misc]
    """Another member has joined the group under our instance id, and has what was ours."""

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
