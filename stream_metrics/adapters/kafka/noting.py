"""Shares of a group's partitions that say what they were made for.

Whoever comes back under an instance id gets the share that the id had, whatever has happened to
the topics meanwhile, and whichever it subscribes to now. The note shows that it is outdated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment as Share,
)
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberMetadata as Subscription,
)

ANEW: Final = b"anew"


def layout(cluster: ClusterMetadata, topics: Iterable[str]) -> bytes:
    """The topics with their partition counts, as a note."""
    counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in sorted(topics)}
    return json.dumps(counts).encode()


class NotingAssignor:
    """The library's assignor, with the layout of a member's topics in the member's share."""

    def __init__(self, assignor: type[AbstractPartitionAssignor]) -> None:
        self._assignor = assignor
        self.name = assignor.name
        self._note = b""

    def ask_anew(self) -> None:
        """Subscribe otherwise from now on: brokers let nothing be shared out anew for a member that
        comes with the subscription that they know."""
        self._note = ANEW

    def metadata(self, topics: Iterable[str]) -> Any:
        """See ``AbstractPartitionAssignor.metadata``."""
        plain = self._assignor.metadata(topics)
        return Subscription(plain.version, plain.subscription, self._note)

    def assign(self, cluster: ClusterMetadata, members: Mapping[str, Any]) -> dict[str, Any]:
        """See ``AbstractPartitionAssignor.assign``."""
        shares = self._assignor.assign(cluster, members)
        return {
            member: Share(
                share.version, share.assignment, layout(cluster, members[member].subscription)
            )
            for member, share in shares.items()
        }

    def on_assignment(self, share: Any) -> None:
        """See ``AbstractPartitionAssignor.on_assignment``."""
        self._assignor.on_assignment(share)
