"""Repartitioning: copies every input record to the partition of its conversation.

Producers may use any keys and partitions. Each record is copied to one internal topic, keyed by its
``conversation_id``, and state is built from that topic. The order of effects in
each round (``docs/concepts/delivery.md`` says what happens if one of them fails):

1. fetch   the next records of the input partitions that the group gave this worker
2. key     find each record's conversation
3. dead    produce dead letters of those that have none, and wait until they are acknowledged
4. copy    produce the others to the internal topic, and wait likewise
5. commit  the positions in the input topics, and up to when they have been read

An interrupted round is repeated, so a record may be copied twice. State recognises the event by its
version and applies it once. ``docs/adr/0003-repartition-at-least-once.md`` says why that is
enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import structs

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import DeadLetter, Origin, Record
from stream_metrics.live.ports import DeadLetters
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.telemetry import BugCounts, report_bugs

Route = Callable[[Sequence[Record]], tuple[list[Record], list[DeadLetter]]]
"""Returns copies of the records with their new keys, and dead letters for the others."""


class Inputs(Protocol):
    """The input topics, read as a member of a consumer group."""

    async def fetch(self) -> Sequence[Record]:
        """The next records, in order within each partition; none after a short wait."""
        ...

    async def commit(self) -> None:
        """Commit the fetched offsets of the partitions that are still assigned."""
        ...


class Internal(Protocol):
    """The internal topic."""

    async def send(self, records: Sequence[Record]) -> None:
        """Send records and wait for acknowledgement; raises ``RepartitionUnavailable``.

        Records of one key are stored in the order given. After an error, some may be stored.
        """
        ...


class Counts(BugCounts, Protocol):
    """Receives operational counts; every method is cheap and never raises."""

    def bad_records(self, counts: Counter[str]) -> None: ...
    def repartitioned(self, counts: Counter[str]) -> None: ...


class Repartitioner:
    """Copies records round by round."""

    def __init__(
        self,
        inputs: Inputs,
        internal: Internal,
        dead_letters: DeadLetters,
        route: Route,
        retry: Retry,
        counts: Counts,
    ) -> None:
        self._inputs = inputs
        self._internal = internal
        self._dead_letters = dead_letters
        self._route = route
        self._retry = retry
        self._counts = counts

    async def turn(self) -> int:
        """Run one round; returns the number of records fetched."""
        records = await self._inputs.fetch()
        copies, letters = self._route(records)
        if letters:
            report_bugs(letters, self._counts)
            await self._retry(lambda: self._dead_letters.send(letters))
            self._counts.bad_records(Counter(letter.reason for letter in letters))
        if copies:
            await self._retry(lambda: self._internal.send(copies))
            self._counts.repartitioned(Counter(r.origin.topic for r in copies if r.origin))
        await self._inputs.commit()
        return len(records)


def route(records: Sequence[Record], limits: Limits) -> tuple[list[Record], list[DeadLetter]]:
    """Each record under the key of its conversation, or a dead letter; in the order given."""
    copies: list[Record] = []
    letters: list[DeadLetter] = []
    for record in records:
        try:
            key = key_of(record.value, record.timestamp_ms, limits)
        except MemoryError:
            raise  # not the record's fault
        except Exception as error:
            letters.append(DeadLetter.of_bug(record, error))
            continue
        if isinstance(key, BadRecord):
            letters.append(DeadLetter(record, key.reason, key.message))
            continue
        origin = Origin(record.topic, record.partition, record.offset, record.key)
        copies.append(structs.replace(record, key=key, origin=origin))
    return copies, letters
