"""One member of a consumer group: ``worker.source.Source`` and ``CommittedSource`` over aiokafka.

The client calls the rebalance listener at moments of its own, so nothing is read or asked there: it
notes what the group has said, and holds fetching still until the loop says from where to read.

When the client raises it may have taken records of other partitions out of its buffers, and moved
its positions behind them. They are lost with the call. So after every error it is sent back behind
the records that ``poll`` has returned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
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

from stream_metrics.adapters.kafka.cluster import Cluster, Group
from stream_metrics.adapters.kafka.errors import FencedInstance, KafkaRefused, UnreadableBatch
from stream_metrics.adapters.kafka.internals import commit_for_all
from stream_metrics.adapters.kafka.rights import DENIED
from stream_metrics.adapters.kafka.topics import TopicsMissing
from stream_metrics.events.record import Extent, Record
from stream_metrics.settings.kafka import KafkaSettings
from stream_metrics.worker.patience import Patience, Reasons
from stream_metrics.worker.source import (
    Assignment,
    Commit,
    Fetched,
    Place,
    RightsMissing,
    SourceUnavailable,
    TopicsUnavailable,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")

AGAIN_SECONDS: Final = 0.05  # after an error that is over when it is seen
LEAVE_WITHIN_SECONDS: Final = 8.0
COMMIT_WITHIN_SECONDS: Final = 5.0
TOO_LARGE: Final = "a record of {} is larger than `kafka.max_partition_fetch_bytes`"


class KafkaSource:
    """``CommittedSource`` over one consumer, from one client to the next.

    ``counts`` asks for the partition counts of the topics; it raises ``TopicsUnfit`` where joining
    would be wrong. ``record`` makes a record of what the client gives. ``on_assigned`` is called by
    the client; ``on_committed`` hears how many seconds a commit took.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        group: Group,
        counts: Callable[[], Awaitable[dict[str, int]]],
        record: Callable[[Any], Record],
        patience: Patience,
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
        self._patience = patience
        self._reasons = reasons
        self._on_assigned = on_assigned
        self._on_committed = on_committed
        self._consumer: AIOKafkaConsumer | None = None
        self._admin: AIOKafkaAdminClient | None = None
        self._since = time.monotonic()  # when the group last began to hand out partitions
        self._next: dict[TopicPartition, int] = {}  # what ``poll`` is to return next
        self._sending: asyncio.Task[None] | None = None
        self.assignment: Assignment | None = None
        self.acknowledged: dict[Place, Commit] = {}

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """The client; raises ``SourceUnavailable`` before ``join`` and after ``leave``."""
        if self._consumer is None:
            raise SourceUnavailable("the worker has not joined the group")
        return self._consumer

    @property
    def rebalancing(self) -> bool:
        """See ``Source``."""
        elapsed = time.monotonic() - self._since
        return self.assignment is None and elapsed < self._settings.rebalance_timeout_ms / 1000

    # -- joining and leaving --------------------------------------------------------------------

    async def join(self) -> None:
        """See ``Source``; raises ``TopicsUnfit`` or ``KafkaRefused`` where joining is wrong."""
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
        """See ``Source``; a commit that is on its way is given up."""
        self._revoked()
        consumer, self._consumer = self._consumer, None
        admin, self._admin = self._admin, None
        if consumer is not None:
            with suppress(TimeoutError, KafkaError):
                await asyncio.wait_for(consumer.stop(), LEAVE_WITHIN_SECONDS)
        if admin is not None:
            await admin.close()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})

    def _revoked(self) -> None:
        """Nothing is ours until the group has said so again."""
        self.assignment = None
        self._since = time.monotonic()
        self._next.clear()

    def heard(self, consumer: AIOKafkaConsumer, places: Iterable[TopicPartition] | None) -> None:
        """What a client was told by the group; one that was left may still have a word to say."""
        if consumer is not self._consumer:
            return
        self._revoked()
        if places is not None:
            held = list(places)
            if held:
                self.consumer.pause(*held)
            self.assignment = Assignment(frozenset(Place(*place) for place in held))
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
            return await self._after(error)
        self._reasons.clear("fetch")
        for place, found in fetched.items():
            if found and place in self._next:
                self._next[place] = found[-1].offset + 1
        return Fetched(
            {
                Place(*place): [self._record(one) for one in found]
                for place, found in fetched.items()
                if found and place in self._next
            }
        )

    def _seek_back(self) -> None:
        for place, offset in self._next.items():
            with suppress(IllegalStateError):  # no longer ours, as the listener will say
                self.consumer.seek(place, offset)

    async def _after(self, error: KafkaError) -> Fetched:
        """Do what the error calls for; return when fetching may be tried again."""
        match error:
            case UnreadableBatch():
                return Fetched(unreadable={Place(error.topic, error.partition): error.message})
            case RecordTooLargeError(args=(_, TopicPartition() as place, *_)):
                return Fetched(unreadable={Place(*place): TOO_LARGE.format(place.topic)})
            case NoOffsetForPartitionError():
                # For the moment between assignment and ``read_from``. A client that raises at once
                # again must not keep all else from its turn.
                await self._patience.pause(AGAIN_SECONDS)
            case _ if isinstance(error, DENIED):
                await self._patience(self._check_rights)
                await self._patience.pause(1.0)  # a broker may hear of it later than another
                if isinstance(error, GroupAuthorizationFailedError):
                    # a client gives no sign of life once that was denied
                    await self.leave()
                    self.acknowledged.clear()
                    await self.join()
            case _:
                # Not "kafka": the brokers may well answer, and then waiting does not help.
                self._reasons.set("fetch", f"records cannot be fetched: {type(error).__name__}")
                if isinstance(error, OffsetOutOfRangeError) and self.assignment is not None:
                    self.assignment = Assignment(self.assignment.places)
                await self._patience.pause(1.0)
        return Fetched()

    def read_from(self, offsets: Mapping[Place, int]) -> bool:
        """See ``Source``."""
        if not self._holds(offsets):
            return False
        try:
            for place, offset in offsets.items():
                self.consumer.seek(TopicPartition(*place), offset)
                self._next[TopicPartition(*place)] = offset
                self.acknowledged.pop(place, None)
            self.consumer.resume(*_partitions(offsets))
        except IllegalStateError:
            self._revoked()  # the listener will say what is ours
            return False
        return True

    def _holds(self, places: Collection[Place]) -> bool:
        """Whether the group has assigned them; it may be about to assign again."""
        return self.assignment is not None and self.assignment.places >= set(places)

    def stop_reading(self, places: Collection[Place]) -> None:
        """See ``Source``."""
        held = self.consumer.assignment()
        for place in _partitions(places):
            self._next.pop(place, None)
            if place in held:
                self.consumer.pause(place)
                # a partition without a position keeps the client from fetching any other
                self.consumer.seek(place, 0)

    async def passed(self, places: Collection[Place]) -> dict[Place, int]:
        """See ``Source``."""
        try:
            reading = [p for p in places if TopicPartition(*p) in self._next]
            return {p: await self.consumer.position(TopicPartition(*p)) for p in reading}
        except IllegalStateError:
            return {}

    # -- what the brokers say -------------------------------------------------------------------

    async def partition_counts(self) -> dict[str, int]:
        """See ``Source``; raises ``TopicsUnfit``."""
        try:
            return await self._asked(self._counts())
        except (TopicsMissing, KafkaRefused) as missing:
            raise TopicsUnavailable(str(missing)) from missing

    async def extents(self, places: Collection[Place]) -> dict[Place, Extent]:
        """See ``Source``."""
        firsts = await self._asked(self.consumer.beginning_offsets(_partitions(places)))
        ends = await self.ends(places)
        return {place: Extent(firsts[TopicPartition(*place)], ends[place]) for place in places}

    async def ends(self, places: Collection[Place]) -> dict[Place, int]:
        """See ``Source``."""
        if not places:
            await self._asked(self.consumer.topics())
            return {}
        found = await self._asked(self.consumer.end_offsets(_partitions(places)))
        return {Place(*place): end for place, end in found.items()}

    async def committed(self, places: Collection[Place]) -> dict[Place, Commit]:
        """See ``Source``.

        The consumer's own method leaves the notes out, so an admin client asks. That one does not
        raise an error that is about the whole group; but then it leaves the partitions out.
        """
        admin = self._admin
        if admin is None:
            admin = self._cluster.admin()
            await self._asked(admin.start())
            self._admin = admin
        wanted = _partitions(places)
        found = await self._asked(admin.list_consumer_group_offsets(self._group.name, None, wanted))
        if missing := set(wanted) - found.keys():
            raise SourceUnavailable(f"brokers do not tell the commits of {sorted(missing)}")
        return {
            Place(*place): Commit(commit.offset, commit.metadata or "")
            for place, commit in found.items()
            if commit.offset >= 0
        }

    async def first_since(self, times_ms: Mapping[Place, int]) -> dict[Place, int]:
        """See ``CommittedSource``."""
        wanted = {TopicPartition(*place): ms for place, ms in times_ms.items()}
        found = await self._asked(self.consumer.offsets_for_times(wanted))
        return {Place(*place): at.offset for place, at in found.items() if at is not None}

    async def time_at(self, place: Place, extent: Extent) -> int | None:
        """See ``CommittedSource``."""
        return await self._asked(self._cluster.time_at(TopicPartition(*place), extent))

    def shows_all(self, place: Place) -> bool:
        """See ``CommittedSource``."""
        highwater = self.consumer.highwater(TopicPartition(*place))
        stable = self.consumer.last_stable_offset(TopicPartition(*place))
        return highwater is not None and bool(highwater == stable)

    async def _asked(self, answer: Awaitable[T]) -> T:
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
        """Raise ``RightsMissing`` if rights were taken away, or ``SourceUnavailable``."""
        try:
            why = await self._cluster.lacking()
        except (KafkaError, OSError, TimeoutError) as error:
            raise SourceUnavailable(f"brokers do not answer: {type(error).__name__}") from error
        if why:
            raise RightsMissing(why)

    # -- commits --------------------------------------------------------------------------------

    async def confirm(self, commits: Mapping[Place, Commit]) -> bool:
        """See ``Source``.

        If it fails, the client joins the group anew. Nothing may be committed meanwhile, since
        that would make it begin again; the listener says when there is an assignment.
        """
        assignment = self.assignment
        if not self._holds(commits):
            return False
        try:
            await self._asked(self.consumer.commit(_offsets(commits)))
        except (CommitFailedError, IllegalStateError):
            if self.assignment is assignment:  # the listener may have heard of another meanwhile
                self._revoked()
            return False
        return True

    async def commit_for_all(self, commits: Mapping[Place, Commit]) -> None:
        """See ``CommittedSource``."""
        await self._asked(commit_for_all(self.consumer, _offsets(commits)))

    async def commit(self, commits: Mapping[Place, Commit]) -> None:
        """See ``Source``: nothing while the last commit is on its way."""
        if self._sending is not None:
            return
        # Not cancelled when it takes too long: the client's request would go on all the same, and
        # nobody would take its error.
        self._sending = asyncio.create_task(self._commit(dict(commits)))
        await asyncio.wait({self._sending}, timeout=COMMIT_WITHIN_SECONDS)

    async def _commit(self, commits: dict[Place, Commit]) -> None:
        started = time.perf_counter()
        try:
            await self.consumer.commit(_offsets(commits))
        except (KafkaError, IllegalStateError) as error:
            log.info("offset commit failed", error=type(error).__name__)
        else:
            self.acknowledged |= commits
            self._on_committed(time.perf_counter() - started)
        finally:
            self._sending = None


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells the source what its client hears; nothing here can raise or take long."""

    def __init__(self, source: KafkaSource, consumer: AIOKafkaConsumer) -> None:
        self._source = source
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._source.heard(self._consumer, None)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._source.heard(self._consumer, assigned)


def _partitions(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places]


def _offsets(commits: Mapping[Place, Commit]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*p): OffsetAndMetadata(*commit) for p, commit in commits.items()}
