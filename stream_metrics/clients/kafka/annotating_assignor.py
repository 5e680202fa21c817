"""An assignor whose assignments record the partition counts they were computed from.

A member that rejoins with its instance id gets its previous assignment, even if the topics or its
subscription have changed meanwhile. The recorded partition counts show that it is outdated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment as MemberAssignment,
)
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberMetadata as MemberMetadata,
)

REBALANCE_REQUEST: Final = b"anew"


def encode_partition_counts(cluster: ClusterMetadata, topics: Iterable[str]) -> bytes:
    """The topics and their partition counts, as user data of an assignment."""
    counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in sorted(topics)}
    return json.dumps(counts).encode()


class AnnotatingAssignor:
    """Wraps an assignor, and adds the partition counts of its topics to each assignment."""

    def __init__(self, assignor: type[AbstractPartitionAssignor]) -> None:
        self._assignor = assignor
        self.name = assignor.name
        self._user_data = b""

    def request_rebalance(self) -> None:
        """Make the next join cause a rebalance.

        Brokers start none for a known instance id whose member metadata is unchanged, so the
        metadata changes from now on.
        """
        self._user_data = REBALANCE_REQUEST

    def metadata(self, topics: Iterable[str]) -> Any:
        """See ``AbstractPartitionAssignor.metadata``."""
        metadata = self._assignor.metadata(topics)
        return MemberMetadata(metadata.version, metadata.subscription, self._user_data)

    def assign(self, cluster: ClusterMetadata, members: Mapping[str, Any]) -> dict[str, Any]:
        """See ``AbstractPartitionAssignor.assign``."""
        assignments = self._assignor.assign(cluster, members)
        return {
            member: MemberAssignment(
                assignment.version,
                assignment.assignment,
                encode_partition_counts(cluster, members[member].subscription),
            )
            for member, assignment in assignments.items()
        }

    def on_assignment(self, assignment: Any) -> None:
        """See ``AbstractPartitionAssignor.on_assignment``."""
        self._assignor.on_assignment(assignment)
