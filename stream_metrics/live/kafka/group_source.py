"""One member of a consumer group: ``worker.source.Source`` and ``CommittedSource`` over aiokafka.

The client may call the rebalance listener at any time, so the listener makes no requests: it
records the assignment and pauses fetching until the loop says from which offsets to read.

When the client raises, it may already have taken records of other partitions from its buffers and
advanced its positions; those records are lost with the call. So after every error the positions are
set back to follow the last records that ``poll`` has returned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.clients.kafka.aiokafka_private import commit_for_all
from stream_metrics.clients.kafka.errors import FencedInstance, KafkaRefused, UnreadableBatch
from stream_metrics.clients.kafka.rights import DENIED
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import TopicsMissing
from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.kafka.cluster import Cluster, Group
from stream_metrics.live.worker.retry import Reasons, RetryPolicy
from stream_metrics.live.worker.source import (
    Assignment,
    Commit,
    Fetched,
    PartitionId,
    RightsMissing,
    SourceUnavailable,
    TopicsUnavailable,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")

RETRY_SECONDS: Final = 0.05  # after an error that has passed by the time it is raised
LEAVE_WITHIN_SECONDS: Final = 8.0
COMMIT_WITHIN_SECONDS: Final = 5.0
END_COMMIT_WITHIN_SECONDS: Final = 1.0  # once the connections are closed
SLOW_SECONDS: Final = 1.0  # well before anybody calls the brokers silent
TOO_LARGE: Final = "a record of {} is larger than `kafka.max_partition_fetch_bytes`"


class KafkaSource:
    """``CommittedSource`` over one consumer at a time.

    ``counts`` requests the partition counts of the topics; it raises ``TopicsInvalid`` if the
    worker must not join. ``record`` converts the client's records. ``on_assigned`` is called from
    the rebalance listener, ``on_committed`` with the seconds that a commit took.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        group: Group,
        counts: Callable[[], Awaitable[dict[str, int]]],
        record: Callable[[Any], Record],
        retry: RetryPolicy,
        reasons: Reasons,
        *,
        on_assigned: Callable[[], None] = lambda: None,
        on_committed: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._group = group
        self._counts = counts
        self._record = record
        self._retry = retry
        self._reasons = reasons
        self._on_assigned = on_assigned
        self._on_committed = on_committed
        self._consumer: AIOKafkaConsumer | None = None
        self._admin: AIOKafkaAdminClient | None = None
        self._rebalance_started = time.monotonic()
        self._next_offsets: dict[TopicPartition, int] = {}  # what ``poll`` returns next
        self._commit_task: asyncio.Task[None] | None = None
        self.end_commit_within_seconds = END_COMMIT_WITHIN_SECONDS
        self.slow_seconds = SLOW_SECONDS
        self.assignment: Assignment | None = None
        self.acknowledged: dict[PartitionId, Commit] = {}

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """The client; raises ``SourceUnavailable`` before ``join`` and after ``leave``."""
        if self._consumer is None:
            raise SourceUnavailable("the worker has not joined the group")
        return self._consumer

    @property
    def rebalancing(self) -> bool:
        """See ``Source``."""
        elapsed = time.monotonic() - self._rebalance_started
        return self.assignment is None and elapsed < self._settings.rebalance_timeout_ms / 1000

    # -- joining and leaving --------------------------------------------------------------------

    async def join(self) -> None:
        """See ``Source``; raises ``TopicsInvalid`` or ``KafkaRefused`` if it must not join."""
        self._reasons.set("assignment", "waiting for the consumer group")
        while True:
            consumer = self._cluster.consumer(self._group)
            try:
                await self._cluster.check_rights()
                await self._counts()
                await consumer.start()
            except (KafkaError, OSError, TimeoutError) as error:
                await consumer.stop()
                why = await self._cluster.explain(error)
                self._reasons.set("kafka", f"cannot connect: {why}")
                await self._retry.pause(1.0)
            except BaseException:
                await consumer.stop()
                raise
            else:
                self._reasons.clear("kafka")
                self._rebalance_started = time.monotonic()
                self._consumer = consumer
                consumer.subscribe(list(self._group.topics), listener=_Listener(self, consumer))
                return

    async def leave(self) -> None:
        """See ``Source``; cancels a commit in flight."""
        self._clear_assignment()
        consumer, self._consumer = self._consumer, None
        admin, self._admin = self._admin, None
        if consumer is not None:
            with suppress(TimeoutError, KafkaError):
                await asyncio.wait_for(consumer.stop(), LEAVE_WITHIN_SECONDS)
        if admin is not None:
            await admin.close()
        if (commit := self._commit_task) is not None:
            await asyncio.wait({commit}, timeout=self.end_commit_within_seconds)
            commit.cancel()
            await asyncio.wait({commit})

    def _clear_assignment(self) -> None:
        """Drop the assignment until the listener reports the next one."""
        self.assignment = None
        self._rebalance_started = time.monotonic()
        self._next_offsets.clear()

    def on_rebalance(
        self, consumer: AIOKafkaConsumer, places: Iterable[TopicPartition] | None
    ) -> None:
        """Record a rebalance: ``places`` are the partitions assigned, None while it is under way.

        Calls from a client that has been replaced are ignored.
        """
        if consumer is not self._consumer:
            return
        self._clear_assignment()
        if places is not None:
            held = list(places)
            if held:
                self.consumer.pause(*held)
            self.assignment = Assignment(frozenset(PartitionId(*place) for place in held))
            self._on_assigned()

    # -- reading --------------------------------------------------------------------------------

    async def poll(self) -> Fetched:
        """See ``Source``; raises ``FencedInstance``."""
        try:
            fetched = await self.consumer.getmany(
                timeout_ms=self._settings.fetch_max_wait_ms,
                max_records=self._settings.max_poll_records,
            )
        except FencedInstance:
            raise
        except KafkaError as error:
            self._seek_back()
            return await self._handle_error(error)
        self._reasons.clear("fetch")
        for place, records in fetched.items():
            if records and place in self._next_offsets:
                self._next_offsets[place] = records[-1].offset + 1
        return Fetched(
            {
                PartitionId(*place): [self._record(record) for record in records]
                for place, records in fetched.items()
                if records and place in self._next_offsets
            }
        )

    def _seek_back(self) -> None:
        for place, offset in self._next_offsets.items():
            with suppress(IllegalStateError):  # no longer assigned, as the listener will report
                self.consumer.seek(place, offset)

    async def _handle_error(self, error: KafkaError) -> Fetched:
        """Handle an error of ``poll``; returns when fetching may be tried again."""
        match error:
            case UnreadableBatch():
                return Fetched(
                    unreadable={PartitionId(error.topic, error.partition): error.message}
                )
            case RecordTooLargeError(args=(_, TopicPartition() as place, *_)):
                return Fetched(unreadable={PartitionId(*place): TOO_LARGE.format(place.topic)})
            case NoOffsetForPartitionError():
                # Raised between assignment and ``read_from``. The pause keeps a client that raises
                # again immediately from blocking the event loop.
                await self._retry.pause(RETRY_SECONDS)
            case _ if isinstance(error, DENIED):
                await self._retry(self._check_rights)
                await self._retry.pause(1.0)  # brokers learn of new rights at different times
                if isinstance(error, GroupAuthorizationFailedError):
                    # The client sends no heartbeats after this error.
                    await self.leave()
                    self.acknowledged.clear()
                    await self.join()
            case _:
                # Not "kafka": if the brokers answer, waiting for them does not help.
                self._reasons.set("fetch", f"records cannot be fetched: {type(error).__name__}")
                if isinstance(error, OffsetOutOfRangeError) and self.assignment is not None:
                    self.assignment = Assignment(self.assignment.places)
                await self._retry.pause(1.0)
        return Fetched()

    def read_from(self, offsets: Mapping[PartitionId, int]) -> bool:
        """See ``Source``."""
        if not self._is_assigned(offsets):
            return False
        try:
            for place, offset in offsets.items():
                self.consumer.seek(TopicPartition(*place), offset)
                self._next_offsets[TopicPartition(*place)] = offset
                self.acknowledged.pop(place, None)
            self.consumer.resume(*_partitions(offsets))
        except IllegalStateError:
            self._clear_assignment()  # the listener will report the new assignment
            return False
        return True

    def _is_assigned(self, places: Collection[PartitionId]) -> bool:
        """Whether all are in the last known assignment; a rebalance may be about to start."""
        return self.assignment is not None and self.assignment.places >= set(places)

    def stop_reading(self, places: Collection[PartitionId]) -> None:
        """See ``Source``."""
        held = self.consumer.assignment()
        for place in _partitions(places):
            self._next_offsets.pop(place, None)
            if place in held:
                self.consumer.pause(place)
                # A partition without a position would keep the client from fetching any other.
                self.consumer.seek(place, 0)

    async def passed(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """See ``Source``."""
        try:
            reading = [p for p in places if TopicPartition(*p) in self._next_offsets]
            return {p: await self.consumer.position(TopicPartition(*p)) for p in reading}
        except IllegalStateError:
            return {}

    # -- requests to the brokers ----------------------------------------------------------------

    async def partition_counts(self) -> dict[str, int]:
        """See ``Source``; raises ``TopicsInvalid``."""
        try:
            return await self._translate_errors(self._counts())
        except KafkaRefused as refused:
            raise RightsMissing(str(refused)) from refused
        except TopicsMissing as missing:
            raise TopicsUnavailable(str(missing)) from missing

    async def extents(self, places: Collection[PartitionId]) -> dict[PartitionId, Extent]:
        """See ``Source``."""
        firsts = await self._answer(self.consumer.beginning_offsets(_partitions(places)))
        ends = await self.ends(places)
        return {place: Extent(firsts[TopicPartition(*place)], ends[place]) for place in places}

    async def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """See ``Source``."""
        if not places:
            await self._translate_errors(self.consumer.topics())
            return {}
        ends = await self._answer(self.consumer.end_offsets(_partitions(places)))
        return {PartitionId(*place): end for place, end in ends.items()}

    async def committed(self, places: Collection[PartitionId]) -> dict[PartitionId, Commit]:
        """See ``Source``.

        An admin client asks, because the consumer's own method omits the metadata. The admin client
        does not raise errors of the whole group, but then omits the partitions from its answer.
        """
        admin = self._admin
        if admin is None:
            admin = self._cluster.admin()
            await self._translate_errors(admin.start())
            self._admin = admin
        wanted = _partitions(places)
        commits = await self._translate_errors(
            admin.list_consumer_group_offsets(self._group.name, None, wanted)
        )
        if missing := set(wanted) - commits.keys():
            raise SourceUnavailable(f"brokers do not tell the commits of {sorted(missing)}")
        return {
            PartitionId(*place): Commit(commit.offset, commit.metadata or "")
            for place, commit in commits.items()
            if commit.offset >= 0
        }

    async def first_since(self, times_ms: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """See ``CommittedSource``."""
        wanted = {TopicPartition(*place): ms for place, ms in times_ms.items()}
        offsets = await self._answer(self.consumer.offsets_for_times(wanted))
        return {PartitionId(*place): at.offset for place, at in offsets.items() if at is not None}

    async def time_at(self, place: PartitionId, extent: Extent) -> int | None:
        """See ``CommittedSource``."""
        return await self._translate_errors(self._cluster.time_at(TopicPartition(*place), extent))

    def shows_all(self, place: PartitionId) -> bool:
        """See ``CommittedSource``."""
        highwater = self.consumer.highwater(TopicPartition(*place))
        stable = self.consumer.last_stable_offset(TopicPartition(*place))
        return highwater is not None and bool(highwater == stable)

    async def _answer(self, asked: Coroutine[Any, Any, T]) -> T:
        """The answer to a request for offsets, during which rights are checked if it takes long.

        After some time without a right the client does not see the topic any more. It asks on then,
        without an error, so that brokers which answer would seem to be silent.
        """
        request = asyncio.create_task(asked)
        request.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            done, _ = await asyncio.wait({request}, timeout=self.slow_seconds)
            if not done:
                await self._check_rights()
            return await self._translate_errors(request)
        finally:
            request.cancel()

    async def _translate_errors(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except (CommitFailedError, FencedInstance, IllegalStateError):
            raise
        except DENIED as error:
            await self._check_rights()
            raise RightsMissing(f"Kafka denies it: {type(error).__name__}") from error
        except (KafkaError, OSError, TimeoutError) as error:
            why = f"brokers do not answer: {type(error).__name__}"
            raise SourceUnavailable(why) from error

    async def _check_rights(self) -> None:
        """Raise ``RightsMissing`` if rights were revoked, or ``SourceUnavailable``."""
        try:
            why = await self._cluster.lacking()
        except (KafkaError, OSError, TimeoutError) as error:
            raise SourceUnavailable(f"brokers do not answer: {type(error).__name__}") from error
        if why:
            raise RightsMissing(why)

    # -- commits --------------------------------------------------------------------------------

    async def confirm(self, commits: Mapping[PartitionId, Commit]) -> bool:
        """See ``Source``.

        If it fails, the client rejoins the group. A commit meanwhile would make it rejoin once
        more, so there is none until the listener reports an assignment.
        """
        assignment = self.assignment
        if not self._is_assigned(commits):
            return False
        try:
            await self._translate_errors(self._send(commits))
        except (CommitFailedError, IllegalStateError):
            if self.assignment is assignment:  # not replaced by the listener meanwhile
                self._clear_assignment()
            return False
        return True

    async def commit_for_all(self, commits: Mapping[PartitionId, Commit]) -> None:
        """See ``CommittedSource``."""
        await self._translate_errors(commit_for_all(self.consumer, _offsets_and_metadata(commits)))

    async def commit(self, commits: Mapping[PartitionId, Commit]) -> None:
        """See ``Source``; does nothing while an earlier commit is in flight."""
        if self._commit_task is not None:
            return
        self._commit_task = asyncio.create_task(self._commit(dict(commits)))
        await asyncio.wait({self._commit_task}, timeout=COMMIT_WITHIN_SECONDS)

    async def _send(self, commits: Mapping[PartitionId, Commit]) -> None:
        """Send a commit; raises the client's errors.

        The client goes on with its request if its caller is cancelled, and nobody retrieves its
        error then, so that asyncio logs it. Therefore only the wait for it is cancelled.
        """
        request = asyncio.ensure_future(self.consumer.commit(_offsets_and_metadata(commits)))
        request.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(request)

    async def _commit(self, commits: dict[PartitionId, Commit]) -> None:
        started = time.perf_counter()
        try:
            await self._send(commits)
        except (KafkaError, IllegalStateError) as error:
            log.info("offset commit failed", error=type(error).__name__)
        else:
            self.acknowledged |= commits
            self._on_committed(time.perf_counter() - started)
        finally:
            self._commit_task = None


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes the client's rebalance callbacks on; they neither raise nor block."""

    def __init__(self, source: KafkaSource, consumer: AIOKafkaConsumer) -> None:
        self._source = source
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._source.on_rebalance(self._consumer, None)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._source.on_rebalance(self._consumer, assigned)


def _partitions(places: Iterable[PartitionId]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places]


def _offsets_and_metadata(
    commits: Mapping[PartitionId, Commit],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*p): OffsetAndMetadata(*commit) for p, commit in commits.items()}
