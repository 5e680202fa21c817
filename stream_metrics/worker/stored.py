"""What a namespace holds as a whole, for commands that replace it, and who put it where it is."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from stream_metrics.engine.codec import stored_header
from stream_metrics.engine.state import DamagedState
from stream_metrics.ports import Identity, Position, StateStore
from stream_metrics.worker.astray import Partitioner, Place
from stream_metrics.worker.identity import kept_settings
from stream_metrics.worker.move import Unmovable, naming
from stream_metrics.worker.source import Extent

REPARTITION: Final = (
    "Let workers repartition, in a new group: set kafka.repartition_topic and another "
    'kafka.group_id (docs/guides/partitions.md, "Producers that hash keys differently"). It reads '
    "all records that Kafka retains, whatever partition they are on"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a namespace holds: the identity of its partitions, and their positions by number."""

    identity: Identity
    positions: Mapping[int, Mapping[str, Position]]

    @property
    def count(self) -> int:
        """How many partitions its topics have."""
        return max(self.identity.partition_counts.values())

    @property
    def record_time_ms(self) -> int:
        """The largest record timestamp read; 0 before the first."""
        every = [p.record_time_ms for held in self.positions.values() for p in held.values()]
        return max(every, default=0)

    def start(self, topic: str, number: int, extent: Extent) -> Position:
        """From where a topic's partition is to be read on."""
        held = self.positions.get(number, {})
        return held.get(topic, Position(extent.first))

    @property
    def places(self) -> list[Place]:
        """Every partition of every topic that it was built for."""
        counts = self.identity.partition_counts
        return [(topic, number) for topic, count in counts.items() for number in range(count)]


async def stored_state(store: StateStore) -> Stored:
    """What the namespace holds; raises ``Unmovable`` unless it is whole."""
    if unfinished := await store.unfinished():
        raise Unmovable(
            f"wiping of the state partitions {unfinished} was interrupted. To complete it, start "
            "the workers or run `stream-metrics rebuild`"
        )
    identities: list[Identity] = []
    positions = {}
    for number in await store.partitions():
        state = await store.describe(number)
        assert state.identity is not None
        positions[number] = state.positions
        identities.append(state.identity)
    if not identities:
        raise Unmovable(
            "the namespace has no state. Set redis.namespace to the one that the workers use"
        )
    schema = max(identity.schema_version for identity in identities)
    whole = [replace(identity, schema_version=schema) for identity in identities]
    if any(identity != whole[0] for identity in whole):
        raise Unmovable(
            "state partitions were built for different groups, settings or partition counts. No "
            "worker or command does that, so some of them must have been restored or copied. "
            "Restore all from one backup, or run `stream-metrics rebuild`"
        )
    return Stored(whole[0], positions)


async def stored_settings(store: StateStore) -> dict[str, int]:
    """The settings that are taken from the state where nobody has set them; empty: no state.

    A partition that cannot be read is passed over: whoever works on it says what is wrong with it.
    """
    for number in await store.partitions():
        with suppress(DamagedState):
            identity = (await store.describe(number)).identity
            if identity is not None:
                return kept_settings(identity)
    return {}


@dataclass(frozen=True, slots=True)
class InUse:
    """A partitioner, and how many conversations lie elsewhere than it puts them."""

    name: str
    apart: int


async def partitioner_in_use(
    store: StateStore,
    stored: Stored,
    count: int,
    partitioners: Mapping[str, Partitioner],
    raised: int = 0,
) -> InUse:
    """The one of the partitioners that puts every conversation where it is.

    ``count`` is the new number of partitions. Where topics got ``raised`` partitions while workers
    were reading, it may also be where that count puts it; if there is only one partitioner to
    choose, where any count in between does. Raises ``Unmovable`` if there is none, or if several do
    and could differ on where conversations will go: then nobody knows.
    """
    counts = {stored.count, max(raised, stored.count)}
    if len(partitioners) == 1:
        counts = {*range(stored.count, max(counts) + 1)}
    elsewhere = dict.fromkeys(partitioners, 0)
    apart = dict.fromkeys(partitioners, 0)
    total = 0
    for number in stored.positions:
        async for stored_key, parts in store.conversations(number):
            with naming(stored_key, parts):
                name = stored_header(parts.hot).conversation_id
            if not name:
                continue  # a tombstone, which is on every partition
            total += 1
            key = name.encode("utf-8", "surrogatepass")
            for kind, partitioner in partitioners.items():
                if partitioner(key, stored.count) != number:
                    apart[kind] += 1
                    elsewhere[kind] += all(partitioner(key, n) != number for n in counts)
    fit = [kind for kind, wrong in elsewhere.items() if not wrong]
    if len(fit) == 1 or (fit and count == 1):  # to one partition all put everything
        return InUse(fit[0], apart[fit[0]])
    if fit:
        raise Unmovable(
            f"{total:,} conversations on {stored.count} partitions do not show which partitioner "
            f"the producers use: {', '.join(fit)} would all put them where they are. Name it with "
            "--partitioner (murmur2: Java, aiokafka; crc32: librdkafka by default; fnv1a: "
            "Sarama, kafka-go); a wrong one would split conversations"
        )
    listed = ", ".join(f"{kind} {wrong:,}" for kind, wrong in elsewhere.items())
    whose = "Producers"
    if len(partitioners) > 1 and raised > stored.count + 1:
        whose = (
            "If the topics had other partition counts in between, name the producers' partitioner "
            "with --partitioner, so that those counts are considered too. Otherwise producers"
        )
    raise Unmovable(
        f"of {total:,} conversations, the number that is not on the partition chosen by each "
        f"partitioner is: {listed}. {whose} use different partitioners, so it is unknown "
        f"where a conversation's next records will arrive. {REPARTITION}"
    )
