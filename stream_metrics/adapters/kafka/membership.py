"""Being a member of a consumer group: joining, leaving, and what the group gives and takes back.

The client calls the rebalance listener at moments of its own, so nothing is read or asked there: it
leaves a note for the member's loop, and holds fetching still until the loop knows where to read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.kafka.cluster import Cluster, Group
from stream_metrics.adapters.kafka.committing import Committing
from stream_metrics.worker.patience import Patience, Reasons

LEAVE_WITHIN_SECONDS: Final = 8.0


class Membership:
    """One member of a group, from one client to the next.

    ``check_topics`` raises ``TopicsUnfit`` where joining would be wrong. ``on_revoked`` and
    ``on_assigned`` are called by the client; they must neither raise nor take long.
    ``on_committed`` hears how many seconds a commit took.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: Group,
        check_topics: Callable[[], Awaitable[object]],
        patience: Patience,
        reasons: Reasons,
        *,
        on_revoked: Callable[[], None] = lambda: None,
        on_assigned: Callable[[], None] = lambda: None,
        on_committed: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._check_topics = check_topics
        self._patience = patience
        self._reasons = reasons
        self._on_revoked = on_revoked
        self._on_assigned = on_assigned
        self._consumer: AIOKafkaConsumer | None = None
        self._since = time.monotonic()  # when the group last began to hand out partitions
        self._changed = True
        self._arrived = False  # the group has said what is ours, and it has not been looked at
        self.commits = Committing(on_committed)

    @property
    def joined(self) -> bool:
        """Whether there is a client."""
        return self._consumer is not None

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """The client; only between ``join`` and ``leave``."""
        assert self._consumer is not None
        return self._consumer

    def rebalancing(self, timeout_ms: int) -> bool:
        """Whether the group has yet to say what is ours, for no longer than it may take."""
        elapsed = time.monotonic() - self._since
        return self._changed and not self._arrived and elapsed < timeout_ms / 1000

    # -- joining and leaving --------------------------------------------------------------------

    async def join(self) -> None:
        """Connect and subscribe, however long the brokers are away.

        Raises ``TopicsUnfit`` or ``KafkaRefused`` where joining would be wrong, and ``Stopped``.
        """
        self._reasons.set("assignment", "waiting for the consumer group")
        while True:
            consumer = self._cluster.consumer(self._group)
            try:
                await self._cluster.check_rights()
                await self._check_topics()
                await consumer.start()
            except (KafkaError, OSError, TimeoutError) as error:
                await consumer.stop()
                why = await self._cluster.explain(error)
                self._reasons.set("kafka", f"cannot connect: {why}")
                await self._patience.pause(1.0)
            except BaseException:
                await consumer.stop()
                raise
            else:
                self._reasons.clear("kafka")
                self._since = time.monotonic()
                self._consumer = consumer
                consumer.subscribe(list(self._group.topics), listener=_Listener(self, consumer))
                return

    async def leave(self) -> None:
        """Stop the client, if there is one, and give up its last commit."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(TimeoutError, KafkaError):
                await asyncio.wait_for(consumer.stop(), LEAVE_WITHIN_SECONDS)
        await self.commits.stop()

    async def join_anew(self) -> None:
        """Join with another client; what was ours is taken back. Raises what ``join`` raises."""
        self._reasons.set("assignment", "waiting for the consumer group")
        self.revoked()
        await self.leave()
        self.commits.forget_all()
        await self.join()

    # -- what is ours ---------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether what is ours has yet to be looked at; nothing is read or committed until then."""
        return self._changed

    @property
    def due(self) -> bool:
        """Whether to look now: the group has said what is ours."""
        return self._changed and self._arrived

    def looking(self) -> None:
        """What the client holds now is being looked at; whatever comes from here on is a change."""
        self._changed = self._arrived = False

    def look_again(self) -> None:
        """Look once more, unless the group is about to say something else."""
        if not self._changed:
            self._changed = self._arrived = True

    def given_away(self) -> None:
        """The group no longer holds us for what we are; the listener will say what is ours."""
        self._changed = True
        self._since = time.monotonic()

    def revoked(self) -> None:
        """Nothing is ours until the group has said so again."""
        self._changed, self._arrived = True, False
        self._since = time.monotonic()
        self._on_revoked()

    def assigned(self) -> None:
        """The group has said what is ours."""
        self._changed = self._arrived = True
        self._on_assigned()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit, if there is anything to commit and it is ours; a failure is logged only."""
        if offsets and not self._changed:
            await self.commits.send(self.consumer, offsets)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells the member what its client hears; nothing here can raise or take long."""

    def __init__(self, member: Membership, consumer: AIOKafkaConsumer) -> None:
        self._member = member
        self._consumer = consumer

    def _is_current(self) -> bool:
        """Whether the member has not left with this client, which may still have a word to say."""
        return self._member.joined and self._member.consumer is self._consumer

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        if self._is_current():
            self._member.revoked()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        if self._is_current():
            if places := list(assigned):
                self._consumer.pause(*places)
            self._member.assigned()
