"""Everything that uses private parts of aiokafka 0.14: why, and which upstream change would end it.

- **Instance ids** (``StaticConsumer``). The library sends the instance id when it joins a group,
  but not with heartbeats and commits. Static membership is aiokafka #680; the error of a member
  that was replaced, and its handling, are #1186 and #1188.
- **Memory of decompressed batches** (``bound_batches``). The library decompresses a batch whatever
  its size. Brokers with ``max.decompressed.message.bytes`` (apache/kafka #23448) limit it
  themselves.
- **Stopping a consumer whose fetches fail** (``Consumer``). The library cancels what it waits for
  before it fetches again, and then takes this cancellation for its caller's: aiokafka #647.
- **Stopping a producer without brokers** (``abandon``). The library's ``stop`` waits forever for
  brokers that do not answer: aiokafka #1101.
- **Connections that uvloop has closed** (``send_or_close``). When the library writes to one, it
  expects ``OSError``, but uvloop raises ``RuntimeError``, which ends the library's own tasks, and a
  worker then waits forever: aiokafka #1038.
- **Commits for other members' partitions** (``commit_for_all``). The public method accepts only the
  member's own partitions. There is no issue for it.

Other modules use what the library does not document but does not mark as private either
(``aiokafka.protocol``, the client's look-ups).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import KafkaConnectionError, KafkaError, ProducerClosed
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetCommitRequest_v3
from aiokafka.protocol.group import HeartbeatRequest, HeartbeatRequest_v1
from aiokafka.record import default_records, legacy_records
from aiokafka.record._crecords import default_records as compiled_default
from aiokafka.record._crecords import legacy_records as compiled_legacy
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.clients.kafka.annotating_assignor import encode_partition_counts
from stream_metrics.clients.kafka.decompression import DECODERS, BatchTooLarge
from stream_metrics.clients.kafka.errors import FencedInstance, KafkaRefused, UnreadableBatch
from stream_metrics.clients.kafka.requests import StaticCommit, StaticHeartbeat

ROUND_LIMIT_FACTOR: Final = 4
UNCOUNTED_HEADERS: Final = 1_000
HEADER_BYTES: Final = 64  # memory of one header as Python objects
FENCED_INSTANCE_ID: Final = 82  # Kafka's error code, for which the library has no class

BROKERS_TOO_OLD: Final = "`kafka.group_instance_id` needs brokers 2.3 or later; leave it unset"
CANCEL_AGAIN_SECONDS: Final = 0.1
REQUEUE_SECONDS: Final = 0.5  # the client pauses 0.1 s before it requeues a batch


# -- stopping a consumer whose fetches fail


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer whose ``stop`` raises ``CancelledError`` only if its caller is cancelled."""

    async def stop(self) -> None:
        """See ``AIOKafkaConsumer.stop``; also closes connections if the fetch routine failed."""
        if self._fetcher is not None:
            fetches = self._fetcher._pending_tasks
            # The fetch routine misses a cancellation while it awaits fetches that it has cancelled.
            while going := [t for t in (self._fetcher._fetch_task, *fetches) if not t.done()]:
                for task in going:
                    task.cancel()
                await asyncio.wait(going, timeout=CANCEL_AGAIN_SECONDS)
            await asyncio.gather(*fetches, return_exceptions=True)
            fetches.clear()  # the library would await them
        try:
            await super().stop()
        finally:
            await self._client.close()


# -- instance ids


class StaticConsumer(Consumer):
    """A consumer with an instance id; once fenced, every call raises ``FencedInstance``."""

    async def start(self) -> None:
        """See ``AIOKafkaConsumer.start``."""
        await super().start()
        # The library creates the coordinator itself. It has sent nothing yet, because there is no
        # subscription.
        self._coordinator.__class__ = StaticCoordinator


class StaticCoordinator(GroupCoordinator):  # type: ignore[misc]
    """The library's group coordinator client, for a member with an instance id."""

    _fenced: FencedInstance | None = None
    # Once per client: members that see different partition counts would rebalance forever.
    _rebalance_requested = False
    _group_subscription: set[str] | None

    async def _send_req(self, request: Any) -> Any:
        if self._fenced is None:
            # While the member has no member id, because it has to rejoin, a late commit or
            # heartbeat goes out without the instance id: with it, the broker would take the
            # request for that of another member.
            named = (
                _with_instance_id(request, self._group_instance_id) if self.member_id else request
            )
            try:
                answer = await super()._send_req(named)
            except NotImplementedError as error:
                raise KafkaRefused(BROKERS_TOO_OLD) from error
            if FENCED_INSTANCE_ID not in _error_codes(answer):
                return answer
            self._fenced = FencedInstance(self.group_id, self._group_instance_id)
        raise self._fenced

    def check_errors(self) -> None:
        """Raise ``FencedInstance``, or the library's pending error, if there is one."""
        if self._fenced is not None:
            raise self._fenced
        super().check_errors()

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        joined = await super()._do_rejoin_group(subscription)
        return joined and subscription.assignment is not None

    async def _on_join_complete(
        self, generation: int, member_id: str, protocol: str, assignment: bytes
    ) -> None:
        """Also watch the topics' partition counts, which is normally the group leader's task.

        Brokers do not tell a leader that rejoins with its instance id that it leads, so that nobody
        would notice added partitions. If partition counts or the subscribed topics changed while
        the member was away, its old assignment is outdated: it is not used, and the member rejoins.
        """
        was_leader = self._group_subscription is not None
        assigned_counts = b"" if was_leader else await self._assigned_partition_counts(assignment)
        outdated = not was_leader and assigned_counts != encode_partition_counts(
            self._cluster, self._subscription.topics
        )
        already_requested, self._rebalance_requested = self._rebalance_requested, True
        if outdated and not already_requested:
            self._lookup_assignor(protocol).request_rebalance()
            return
        await super()._on_join_complete(generation, member_id, protocol, assignment)
        if not was_leader:
            self._group_subscription = set(self._subscription.topics)
            # With an empty snapshot, the next metadata update counts as a change.
            self._metadata_snapshot = (
                {} if outdated and assigned_counts else self._get_metadata_snapshot()
            )

    async def _assigned_partition_counts(self, assignment: bytes) -> bytes:
        """The partition counts that the assignment was computed from, as encoded by the leader.

        Empty if a leader without an instance id computed it. Waits for the metadata of the topics.
        """
        await self._client._maybe_wait_metadata()
        return ConsumerProtocol.ASSIGNMENT.decode(assignment).user_data or b""


def _with_instance_id(request: Any, instance_id: str) -> Any:
    """The request with the instance id added, if it is one that the library sends without."""
    if isinstance(request, HeartbeatRequest):
        beat = request.build(HeartbeatRequest_v1)
        return StaticHeartbeat(beat.group, beat.generation_id, beat.member_id, instance_id)
    if isinstance(request, OffsetCommitRequest):
        sent = request.build(OffsetCommitRequest_v3)
        return StaticCommit(
            sent.consumer_group,
            sent.consumer_group_generation_id,
            sent.consumer_id,
            instance_id,
            sent.topics,
        )
    return request


def _error_codes(answer: Any) -> set[int]:
    """The error code of an answer, or those of each partition in the answer to a commit."""
    if isinstance(answer, StaticCommit.ANSWER):
        return {code for _, partitions in answer.topics for _, code in partitions}
    return {getattr(answer, "error_code", 0)}


# -- the memory of decompressed batches


class _FetchRoundFull(Exception):
    """This round of fetching has reached its memory limit."""


class _FetchRound:
    """The memory limit and use, in bytes, of the current round of fetching.

    aiokafka returns what it has fetched without yielding to the event loop, so a round ends at the
    loop's next iteration.
    """

    def __init__(self) -> None:
        self.limit_bytes = 0
        self._taken = 0

    def count_headers(self, record: Any) -> None:
        """Add the memory of a record's headers, which can be many times their size on the wire."""
        if len(record.headers) > UNCOUNTED_HEADERS:
            self._take(HEADER_BYTES * len(record.headers))

    def decompress(self, decode: Callable[[bytes, int], bytes], data: bytes) -> bytes:
        """Decompress one batch; the first batch of a round may always use the whole limit."""
        if self._taken >= ROUND_LIMIT_FACTOR * self.limit_bytes:
            raise _FetchRoundFull
        found = decode(data, self.limit_bytes)
        self._take(len(found))
        return found

    def _take(self, size_bytes: int) -> None:
        if not self._taken:
            try:
                asyncio.get_running_loop().call_soon(self._end)
            except RuntimeError:  # no event loop, so nothing is being fetched
                return
        self._taken += size_bytes

    def _end(self) -> None:
        self._taken = 0


_round: Final = _FetchRound()


def bound_batches(limit_bytes: int) -> None:
    """Limit the decompressed size of a batch, for all Kafka consumers of this process."""
    _round.limit_bytes = limit_bytes
    fetcher.PartitionRecords = _Records
    for name, decode in DECODERS.items():
        bounded = _bounded(decode)
        for module in (default_records, legacy_records, compiled_default, compiled_legacy):
            if hasattr(module, name):
                setattr(module, name, bounded)


def _bounded(decode: Callable[[bytes, int], bytes]) -> Callable[[Any], bytes]:
    return lambda payload: _round.decompress(decode, bytes(payload))


class _Records(fetcher.PartitionRecords):  # type: ignore[misc]
    """The fetched records of a partition; iteration ends early once the round is full."""

    def __next__(self) -> Any:
        try:
            record = super().__next__()
        except (StopIteration, KafkaError):
            raise
        except _FetchRoundFull:
            raise StopIteration from None
        except BatchTooLarge:
            why = (
                f"is larger than {_round.limit_bytes} bytes decompressed (`kafka.max_batch_bytes`)"
            )
        except Exception as error:  # decompressors raise errors of many types for invalid data
            why = f"cannot be read ({type(error).__name__})"
        else:
            _round.count_headers(record)
            return record
        raise UnreadableBatch(
            self._tp.topic, self._tp.partition, self.next_fetch_offset, why
        ) from None


# -- stopping a producer without brokers


async def abandon(producer: AIOKafkaProducer, within_seconds: float) -> None:
    """Stop a producer without waiting for brokers; records that are not sent yet are dropped.

    Its own ``stop`` waits until everything is sent, which never happens in a broken transaction.
    """
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    await producer.client.close()
    if sender is not None:
        # The client requeues a batch in flight after a pause; it must not have failed by then.
        await asyncio.wait({sender}, timeout=REQUEUE_SECONDS)
    accumulator = producer._message_accumulator
    # When a requeued batch fails, the client looks for it among the batches in flight.
    accumulator._pending_batches.update(b for queue in accumulator._batches.values() for b in queue)
    accumulator.fail_all(ProducerClosed())
    if sender is not None:
        # The sender awaits its requests, and a closed client never updates the metadata that these
        # may wait for. ``stop`` would cancel the sender once more, and then its own caller.
        if (update := producer.client._md_update_fut) is not None:
            update.cancel()
        await asyncio.wait({sender}, timeout=within_seconds)
        sender.cancel()
        await asyncio.wait({sender}, timeout=within_seconds)
    with suppress(TimeoutError, KafkaError):
        await asyncio.wait_for(producer.stop(), within_seconds)
    _retrieve_errors(producer)


def _retrieve_errors(producer: AIOKafkaProducer) -> None:
    """Retrieve errors that nobody awaits any more, or asyncio would log each of them."""
    accumulator = producer._message_accumulator
    waiters = [batch._drain_waiter for batch in accumulator._pending_batches]
    waiters += [batch._drain_waiter for queue in accumulator._batches.values() for batch in queue]
    if producer._txn_manager is not None:
        waiters.append(producer._txn_manager._transaction_waiter)
    for waiter in waiters:
        if waiter is not None and waiter.done() and not waiter.cancelled():
            waiter.exception()


# -- connections that uvloop has closed

_send: Final = AIOKafkaConnection.send


def send_or_close(
    connection: AIOKafkaConnection, request: object, expect_response: bool = True
) -> Awaitable[Any]:
    """``AIOKafkaConnection.send``, which it replaces; raises ``KafkaConnectionError``."""
    try:
        answer: Awaitable[Any] = _send(connection, request, expect_response)
    except NotImplementedError:
        raise  # the broker does not support the request
    except RuntimeError as error:
        connection.close(reason=CloseReason.CONNECTION_BROKEN)
        raise KafkaConnectionError(
            f"Connection at {connection.host}:{connection.port} broken: {error}"
        ) from error
    return answer


AIOKafkaConnection.send = send_or_close


# -- commits for other members' partitions


async def commit_for_all(
    consumer: AIOKafkaConsumer, commits: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Commit offsets, also of partitions assigned to other members; raises aiokafka's errors."""
    await consumer._coordinator.commit_offsets(None, commits)
