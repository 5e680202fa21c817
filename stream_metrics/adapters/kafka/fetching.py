"""One round of fetching, and what its errors mean, for both of a worker's consumers.

When the client raises it may have taken records of other partitions out of its buffers, and moved
its positions behind them. They are lost with the call. So after every error it is sent back to
where its reader stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)

from stream_metrics.adapters.kafka.errors import FencedInstance, UnreadableBatch
from stream_metrics.adapters.kafka.membership import Membership
from stream_metrics.adapters.kafka.rights import DENIED
from stream_metrics.adapters.kafka.waiting import KafkaPatience
from stream_metrics.settings import KafkaSettings
from stream_metrics.worker.patience import Patience, Reasons

AGAIN_SECONDS = 0.05  # after an error that is over when it is seen
Fetched = dict[TopicPartition, list[Any]]


class Reader(Protocol):
    """Whoever reads, and keeps account of how far."""

    def next_offsets(self) -> Mapping[TopicPartition, int]:
        """What is to be fetched next, of each partition that is ours and not halted."""
        ...

    def log_moved(self) -> None:
        """A log does not hold what is to be fetched next: look at all bounds again."""
        ...

    def halt_place(self, place: TopicPartition, why: str) -> None:
        """Stop there; the others go on. Nothing happens if it is not ours or halted already."""
        ...


class Fetching:
    """Fetches for a reader; what cannot be fetched stands in ``reasons`` as ``fetch``."""

    def __init__(
        self,
        settings: KafkaSettings,
        group: Membership,
        reader: Reader,
        retry: KafkaPatience,
        patience: Patience,
        reasons: Reasons,
    ) -> None:
        self._settings = settings
        self._group = group
        self._reader = reader
        self._retry = retry
        self._patience = patience
        self._reasons = reasons

    async def round(self) -> Fetched:
        """The next records by partition; none after a short while, or after an error.

        What is not a ``KafkaError`` is raised, and ``FencedInstance``: nobody may go on reading
        then.
        """
        try:
            fetched: Fetched = await self._group.consumer.getmany(
                timeout_ms=self._settings.fetch_max_wait_ms,
                max_records=self._settings.max_poll_records,
            )
        except FencedInstance:
            raise
        except KafkaError as error:
            if isinstance(error, RecordTooLargeError):
                await self._halt_passed()
            self._seek_back()
            await self._answer(error)
            return {}
        self._reasons.clear("fetch")
        return fetched

    async def _answer(self, error: KafkaError) -> None:
        """Do what the error calls for; return when fetching may be tried again."""
        match error:
            case RecordTooLargeError() | NoOffsetForPartitionError():
                # Halted by now; or raised for the moment between assignment and our seek. A client
                # that raises at once again must not keep all else from its turn.
                await self._patience.pause(AGAIN_SECONDS)
            case UnreadableBatch():
                place = TopicPartition(error.topic, error.partition)
                self._reader.halt_place(place, error.message)
            case _ if isinstance(error, DENIED):
                await self._retry.for_rights()
                if isinstance(error, GroupAuthorizationFailedError):
                    # a client gives no sign of life once that was denied
                    await self._group.join_anew()
            case _:
                if isinstance(error, OffsetOutOfRangeError):
                    self._reader.log_moved()
                # Not "kafka": the brokers may well answer, and then waiting does not help.
                why = f"records cannot be fetched: {type(error).__name__}"
                self._reasons.set("fetch", why)
                await self._patience.pause(1.0)

    async def _halt_passed(self) -> None:
        """The client has passed a record that it could not fetch: halt where its position moved."""
        for place, offset in self._reader.next_offsets().items():
            try:
                position = await self._group.consumer.position(place)
            except IllegalStateError:
                return  # no longer ours, as the listener will say
            if position > offset:
                why = f"a record of {place.topic} is larger than `kafka.max_partition_fetch_bytes`"
                self._reader.halt_place(place, why)

    def _seek_back(self) -> None:
        for place, offset in self._reader.next_offsets().items():
            with suppress(IllegalStateError):  # no longer ours, as the listener will say
                self._group.consumer.seek(place, offset)
