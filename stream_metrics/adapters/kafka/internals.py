"""All that touches private parts of aiokafka 0.14: why it does, and what would end it.

- **Instance ids** (``StaticConsumer``). The library joins a group under its instance id, and leaves
  the id out of heartbeats and commits. Static membership is aiokafka #680; a class for the error of
  a member that was replaced, and its handling, are #1186 and #1188.
- **Memory of decompressed batches** (``bound_batches``). The library decompresses whatever comes,
  however large it becomes. Brokers with ``max.decompressed.message.bytes`` (apache/kafka #23448)
  bound it themselves.
- **Giving a producer up** (``abandon``). The library's ``stop`` waits for ever for brokers that are
  away: aiokafka #1101.
- **Commits of partitions that other members have** (``commit_for_all``). The public method takes
  those of the member's own partitions only. No issue is known.

What the library does not document but does not mark as private either (``aiokafka.protocol``, the
client's look-ups) is used where it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import KafkaError, ProducerClosed
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetCommitRequest_v3
from aiokafka.protocol.group import HeartbeatRequest, HeartbeatRequest_v1
from aiokafka.record import default_records, legacy_records
from aiokafka.record._crecords import default_records as compiled_default
from aiokafka.record._crecords import legacy_records as compiled_legacy
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.kafka.errors import FencedInstance, KafkaRefused, UnreadableBatch
from stream_metrics.adapters.kafka.noting import layout
from stream_metrics.adapters.kafka.requests import StaticCommit, StaticHeartbeat
from stream_metrics.adapters.kafka.unpacking import DECODERS, TooLarge

ROUND: Final = 4
FEW_HEADERS: Final = 1_000
HEADER_BYTES: Final = 64  # what a header takes as Python objects
FENCED_INSTANCE_ID: Final = 82  # as brokers number it; the library has no name for it

TOO_OLD: Final = "`kafka.group_instance_id` needs brokers 2.3 or later; leave it unset"
PUT_BACK_SECONDS: Final = 0.5  # the client's pause before it sends a batch again is 0.1


# -- instance ids


class StaticConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """A client with an instance id; once it is fenced every call raises ``FencedInstance``."""

    async def start(self) -> None:
        """See ``AIOKafkaConsumer.start``."""
        await super().start()
        # The library makes the coordinator itself. It has sent nothing yet: there is no
        # subscription.
        self._coordinator.__class__ = StaticCoordinator


class StaticCoordinator(GroupCoordinator):  # type: ignore[misc]
    """The library's coordinator of a member that has an instance id."""

    _fenced: FencedInstance | None = None
    _asked_anew = False  # once a client: where members see other layouts they would never rest
    _group_subscription: set[str] | None

    async def _send_req(self, request: Any) -> Any:
        if self._fenced is None:
            # While the member has no member id, because it is to join anew, a commit or a heartbeat
            # that comes too late is sent as the library does: under its instance id the broker
            # would take it for another's.
            named = _under(request, self._group_instance_id) if self.member_id else request
            try:
                answer = await super()._send_req(named)
            except NotImplementedError as error:
                raise KafkaRefused(TOO_OLD) from error
            if FENCED_INSTANCE_ID not in _error_codes(answer):
                return answer
            self._fenced = FencedInstance(self.group_id, self._group_instance_id)
        raise self._fenced

    def check_errors(self) -> None:
        """Raise what the reader has to hear of."""
        if self._fenced is not None:
            raise self._fenced
        super().check_errors()

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        joined = await super()._do_rejoin_group(subscription)
        return joined and subscription.assignment is not None

    async def _on_join_complete(
        self, generation: int, member_id: str, protocol: str, share: bytes
    ) -> None:
        """Watch the topics' layout, too, where the group's leader ought to.

        A leader that comes back under its id is not told that it leads, so that nobody would notice
        more partitions. What changed while a member was away, topics of its own settings too, has
        not been shared out: then there is no assignment, and the member joins once more.
        """
        led = self._group_subscription is not None
        made_for = b"" if led else await self._made_for(share)
        outdated = not led and made_for != layout(self._cluster, self._subscription.topics)
        asked_anew, self._asked_anew = self._asked_anew, True
        if outdated and not asked_anew:
            self._lookup_assignor(protocol).ask_anew()
            return
        await super()._on_join_complete(generation, member_id, protocol, share)
        if not led:
            self._group_subscription = set(self._subscription.topics)
            # With none, the next look at the topics is a change.
            self._metadata_snapshot = {} if outdated and made_for else self._get_metadata_snapshot()

    async def _made_for(self, share: bytes) -> bytes:
        """The layout that it was made for, empty if a member without an instance id made it.

        From then on the layout of our topics is known.
        """
        await self._client._maybe_wait_metadata()
        return ConsumerProtocol.ASSIGNMENT.decode(share).user_data or b""


def _under(request: Any, instance_id: str) -> Any:
    """The request with the id, if it is one that the library sends without."""
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
    """Those of a whole answer, or of the partitions in one to a commit."""
    if isinstance(answer, StaticCommit.ANSWER):
        return {code for _, partitions in answer.topics for _, code in partitions}
    return {getattr(answer, "error_code", 0)}


# -- the memory of decompressed batches


class _RoundFull(Exception):
    """This round has taken enough."""


class _Round:
    """How much the present round of fetching may take, and has taken.

    aiokafka hands out what it has fetched without a pause, so that a round ends when the event loop
    comes round again.
    """

    def __init__(self) -> None:
        self.limit_bytes = 0
        self._taken = 0

    def weigh(self, record: Any) -> None:
        """Count what a record's headers take, which can be many times what they were sent as."""
        if len(record.headers) > FEW_HEADERS:
            self._take(HEADER_BYTES * len(record.headers))

    def decompress(self, decode: Callable[[bytes, int], bytes], data: bytes) -> bytes:
        """One batch decompressed; the first of a round always may be as large as the limit."""
        if self._taken >= ROUND * self.limit_bytes:
            raise _RoundFull
        found = decode(data, self.limit_bytes)
        self._take(len(found))
        return found

    def _take(self, size_bytes: int) -> None:
        if not self._taken:
            try:
                asyncio.get_running_loop().call_soon(self._end)
            except RuntimeError:  # nobody fetches
                return
        self._taken += size_bytes

    def _end(self) -> None:
        self._taken = 0


_round: Final = _Round()


def bound_batches(limit_bytes: int) -> None:
    """Let no batch of any Kafka consumer of this process be larger than that, decompressed."""
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
    """A partition's fetched records; they end early where the round is full."""

    def __next__(self) -> Any:
        try:
            record = super().__next__()
        except (StopIteration, KafkaError):
            raise
        except _RoundFull:
            raise StopIteration from None
        except TooLarge:
            why = (
                f"is larger than {_round.limit_bytes} bytes decompressed (`kafka.max_batch_bytes`)"
            )
        except Exception as error:  # whatever a decompressor says of bytes that are none of its own
            why = f"cannot be read ({type(error).__name__})"
        else:
            _round.weigh(record)
            return record
        raise UnreadableBatch(
            self._tp.topic, self._tp.partition, self.next_fetch_offset, why
        ) from None


# -- giving a producer up


async def abandon(producer: AIOKafkaProducer, within_seconds: float) -> None:
    """Stop a producer without waiting for brokers; what it had not sent is dropped.

    Its own ``stop`` waits until everything is sent, which in a broken transaction is for ever.
    """
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    await producer.client.close()
    if sender is not None:
        # A batch on its way is put back after a pause, for which it must not have failed yet.
        await asyncio.wait({sender}, timeout=PUT_BACK_SECONDS)
    accumulator = producer._message_accumulator
    # And one that was put back is looked for among those on their way once it has failed.
    accumulator._pending_batches.update(b for queue in accumulator._batches.values() for b in queue)
    accumulator.fail_all(ProducerClosed())
    if sender is not None:
        await asyncio.wait({sender}, timeout=within_seconds)
    with suppress(TimeoutError, KafkaError):
        await asyncio.wait_for(producer.stop(), within_seconds)
    _take_errors(producer)


def _take_errors(producer: AIOKafkaProducer) -> None:
    """Nobody waits for these any more; else each would be logged as an error that nobody took."""
    accumulator = producer._message_accumulator
    waiters = [batch._drain_waiter for batch in accumulator._pending_batches]
    waiters += [batch._drain_waiter for queue in accumulator._batches.values() for batch in queue]
    if producer._txn_manager is not None:
        waiters.append(producer._txn_manager._transaction_waiter)
    for waiter in waiters:
        if waiter is not None and waiter.done() and not waiter.cancelled():
            waiter.exception()


# -- commits for other members


async def commit_for_all(
    consumer: AIOKafkaConsumer, commits: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Commit, also for partitions of other members; raises aiokafka's errors."""
    await consumer._coordinator.commit_offsets(None, commits)
