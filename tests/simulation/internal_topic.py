"""An internal topic, and the process that fills it from the input topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka import TopicPartition
from msgspec import structs

from stream_metrics.core.events.record import Record
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from tests.simulation.brokers import Brokers
from tests.simulation.faults import Died, Fault
from tests.simulation.sources import ScriptedSource

INTERNAL: Final = "internal"


@dataclass
class Inputs:
    """The input topics, as read by the process that fills the internal topic."""

    brokers: Brokers
    client: ScriptedSource
    copied: dict[TopicPartition, int]  # outlives processes
    fetched: dict[TopicPartition, int] = field(default_factory=dict)

    def first(self, place: TopicPartition) -> int:
        """The next offset."""
        return self.copied.get(place, self.brokers.firsts.get(place, 0))

    async def fetch(self) -> list[Record]:
        """See ``worker.repartition.Inputs``."""
        found: list[Record | None] = []
        for place, log in self.brokers.logs.items():
            first = self.first(place)
            part = log[first : min(first + self.client.max_records, self.brokers.ends[place])]
            self.fetched[place] = first + len(part)
            found += part
        return [record for record in found if record is not None]

    async def commit(self) -> None:
        """See ``worker.repartition.Inputs``."""
        self.copied.update(self.fetched)


@dataclass
class Internal:
    """The internal topic; the process that fills it may end after any record."""

    brokers: Brokers
    fault: Fault

    async def send(self, records: Sequence[Record]) -> None:
        """See ``worker.repartition.Internal``."""
        for record in records:
            place = TopicPartition(
                INTERNAL, PARTITIONERS["murmur2"](record.key or b"", self.brokers.partitions)
            )
            log = self.brokers.logs[place]
            at = {"topic": INTERNAL, "partition": place.partition, "offset": len(log)}
            log.append(structs.replace(record, **at))
            self.brokers.ends[place] += 1
            if self.fault.due() in ("dies before", "dies after"):
                raise Died("copy")


@dataclass
class Upstream:
    """The progress of filling the internal topic."""

    inputs: Inputs
    now_ms: Callable[[], int]

    async def read_up_to_ms(self) -> int:
        """See ``Upstream``."""
        brokers = self.inputs.brokers
        coming = (
            record.timestamp_ms or 0
            for place, log in brokers.logs.items()
            for record in log[self.inputs.first(place) : brokers.ends[place]]
            if record is not None
        )
        return min(coming, default=self.now_ms())
