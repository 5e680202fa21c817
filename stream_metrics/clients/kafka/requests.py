"""Kafka requests in versions that aiokafka does not have.

Two return the operations that the user is authorized for. Two carry a member's instance id, without
which a broker cannot tell the member that another one has replaced it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Int64, Schema, String


class _TopicRightsAnswer(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            Array(
                ("node_id", Int32),
                ("host", String("utf-8")),
                ("port", Int32),
                ("rack", String("utf-8")),
            ),
        ),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("name", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("in_sync", Array(Int32)),
                        ("offline", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("cluster_authorized_operations", Int32),
    )


class _TopicRightsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _TopicRightsAnswer
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class TopicRights(Request[_TopicRightsStruct]):  # type: ignore[misc]
    """Metadata; the last field of each topic of the answer has a bit per allowed operation."""

    API_KEY: ClassVar[int] = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def build(self, struct: type[_TopicRightsStruct]) -> Any:
        """The request to send."""
        return struct(self._topics, False, False, True)


class _GroupRightsAnswer(Response):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", String("utf-8")),
                ("state", String("utf-8")),
                ("protocol_type", String("utf-8")),
                ("protocol", String("utf-8")),
                (
                    "members",
                    Array(
                        ("member_id", String("utf-8")),
                        ("client_id", String("utf-8")),
                        ("client_host", String("utf-8")),
                        ("member_metadata", Bytes),
                        ("member_assignment", Bytes),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    )


class _GroupRightsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _GroupRightsAnswer
    SCHEMA = Schema(("groups", Array(String("utf-8"))), ("include_authorized_operations", Boolean))


class GroupRights(Request[_GroupRightsStruct]):  # type: ignore[misc]
    """DescribeGroups; the last field of each group has a bit per allowed operation."""

    API_KEY: ClassVar[int] = 15

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = list(groups)

    def build(self, struct: type[_GroupRightsStruct]) -> Any:
        """The request to send."""
        return struct(self._groups, True)


class _HeartbeatAnswer(Response):  # type: ignore[misc]
    API_KEY = 12
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16))


class _HeartbeatStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 12
    API_VERSION = 3
    RESPONSE_TYPE = _HeartbeatAnswer
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("generation_id", Int32),
        ("member_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
    )


class StaticHeartbeat(Request[_HeartbeatStruct]):  # type: ignore[misc]
    """Heartbeat with an instance id."""

    API_KEY: ClassVar[int] = 12

    def __init__(self, group: str, generation: int, member_id: str, instance_id: str) -> None:
        self._fields = (group, generation, member_id, instance_id)

    def build(self, struct: type[_HeartbeatStruct]) -> Any:
        """The request to send."""
        return struct(*self._fields)


class _CommitAnswer(Response):  # type: ignore[misc]
    API_KEY = 8
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                ("partitions", Array(("partition", Int32), ("error_code", Int16))),
            ),
        ),
    )


class _CommitStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 8
    API_VERSION = 7
    RESPONSE_TYPE = _CommitAnswer
    SCHEMA = Schema(
        ("consumer_group", String("utf-8")),
        ("consumer_group_generation_id", Int32),
        ("consumer_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", String("utf-8")),
                    ),
                ),
            ),
        ),
    )


Commit = tuple[int, int, str]
NO_EPOCH: Final = -1


class StaticCommit(Request[_CommitStruct]):  # type: ignore[misc]
    """OffsetCommit with an instance id; each commit is a partition, an offset and its metadata."""

    API_KEY: ClassVar[int] = 8
    ANSWER: Final = _CommitAnswer

    def __init__(
        self,
        group: str,
        generation: int,
        member_id: str,
        instance_id: str,
        topics: Sequence[tuple[str, Sequence[Commit]]],
    ) -> None:
        self._member = (group, generation, member_id, instance_id)
        self._topics = [
            (topic, [(partition, offset, NO_EPOCH, note) for partition, offset, note in commits])
            for topic, commits in topics
        ]

    def build(self, struct: type[_CommitStruct]) -> Any:
        """The request to send."""
        return struct(*self._member, self._topics)
