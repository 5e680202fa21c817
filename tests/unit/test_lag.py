"""What is exported of the lag while the brokers do not tell where the logs end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from stream_metrics.live.health import Health
from stream_metrics.live.page.operations import read_sample
from stream_metrics.live.ports import Position
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import ASK_SECONDS, CommittedInputs, InputOptions
from stream_metrics.live.worker.lag import KNOWN_SECONDS
from stream_metrics.live.worker.ownership.assigned import AssignedPartition
from stream_metrics.live.worker.probe import Probe
from stream_metrics.live.worker.source import RightsMissing, SourceUnavailable
from stream_metrics.live.worker.surroundings import Surroundings
from tests.simulation.brokers import Brokers
from tests.simulation.sources import ScriptedSource
from tests.simulation.system import ImmediateRetry

TOPIC = "events"
NOW_S = 1_718_020_800
LAG = ("consumer_lag_records", "consumer_lag_seconds")
COMPLETE = "complete_until_timestamp_seconds"
TOLD = "log_ends_timestamp_seconds"


class Reading:
    """A worker's reading of two partitions, of which it has read one record each."""

    def __init__(self) -> None:
        self.brokers = Brokers((TOPIC,), 2)
        for place in (TopicPartition(TOPIC, number) for number in (0, 1)):
            for _ in range(3):
                self.brokers.append(place, b"k", b"{}", 1_000 * NOW_S)
        self.brokers.produce(6)
        self.seconds = 0.0
        self.health = Health(reasons={})
        self.registry = CollectorRegistry()
        self.operations = Operations(self.registry, [TOPIC])
        self.source = ScriptedSource(self.brokers)
        self.clock = Clock(lambda: 1_000 * NOW_S + round(1_000 * self.seconds))
        self.partitions = {n: AssignedPartition(n, [TOPIC]) for n in (0, 1)}
        for partition in self.partitions.values():
            partition.set_positions({TOPIC: Position(1, record_time_ms=1_000 * NOW_S)})
        self.retry = ImmediateRetry(self.health, lambda: None)
        self.probe = Probe(
            self.source,
            self.partitions,
            Surroundings(
                self.retry, self.health, self.operations, self.clock, lambda: self.seconds
            ),
        )

    async def look(self, seconds: float) -> dict[str, list[float]]:
        """Let some seconds pass, and look at the logs; the samples then, by metric."""
        self.seconds += seconds
        await self.probe.look()
        return self.samples()

    def samples(self) -> dict[str, list[float]]:
        """The samples of the metrics about reading."""
        found: dict[str, list[float]] = {}
        for name in (*LAG, COMPLETE, TOLD):
            of = self.registry.restricted_registry([f"streammetrics_{name}"])
            found[name] = [sample.value for family in of.collect() for sample in family.samples]
        return found


@pytest.mark.parametrize(
    ("error", "reasons"),
    [(SourceUnavailable("brokers do not answer"), {"kafka"}), (RightsMissing("READ"), set())],
)
async def test_lag_that_cannot_be_read_has_no_sample(error: Exception, reasons: set[str]) -> None:
    """Lag and the time up to which all is read have no sample then, neither 0 nor their last value,
    until the brokers answer again; the time of the last answer stays."""
    reading = Reading()
    assert await reading.look(0) == {
        LAG[0]: [2, 2], LAG[1]: [0, 0], COMPLETE: [NOW_S], TOLD: [NOW_S],
    }  # fmt: skip

    reading.brokers.silent = error
    unknown = await reading.look(KNOWN_SECONDS + 1)

    assert unknown == {LAG[0]: [], LAG[1]: [], COMPLETE: [], TOLD: [NOW_S]}
    assert reading.health.reasons.keys() == reasons
    sample = read_sample(reading.registry, NOW_S)
    assert (sample.lag_records, sample.lag_seconds, sample.complete_until) == (None, None, None)
    assert sample.lag_known_at == NOW_S

    reading.brokers.silent = None
    again = await reading.look(1)
    assert again[LAG[1]] == [12, 12]
    assert again[TOLD] == [NOW_S + 12]
    assert not reading.health.reasons


async def test_one_late_answer_leaves_no_hole_in_the_lag() -> None:
    """The lag of some seconds ago is exported on, and the reason is given at once."""
    reading = Reading()
    before = await reading.look(0)
    reading.brokers.silent = SourceUnavailable("brokers do not answer")

    assert await reading.look(KNOWN_SECONDS) == before
    assert reading.health.reasons.keys() == {"kafka"}


async def test_a_worker_that_does_not_know_where_to_read_is_not_complete() -> None:
    """While the position of one partition is unknown, so is the time up to which all are read."""
    reading = Reading()
    reading.partitions[1].set_positions({})

    found = await reading.look(0)

    assert found[LAG[0]] == [2]
    assert found[COMPLETE] == []


@pytest.mark.parametrize(
    "forget",
    [
        lambda operations: operations.generation(2, building=True),
        lambda operations: operations.complete_until(None),
    ],
)
async def test_what_was_known_before_is_not_shown(forget: Callable[[Operations], None]) -> None:
    """A change of the generation, or an unknown time, removes the sample."""
    reading = Reading()
    await reading.look(0)
    forget(reading.operations)

    assert reading.samples()[COMPLETE] == []


async def copying(reading: Reading) -> CommittedInputs:
    """What reads the same topic for the internal one, or for the bridge: from its first records."""
    inputs = CommittedInputs(
        reading.source, InputOptions("group"), reading.retry, reading.health, reading.operations,
        reading.clock, monotonic=lambda: reading.seconds,
    )  # fmt: skip
    await inputs.fetch()
    reading.brokers.rebalance([reading.source])
    await inputs.fetch()
    await inputs.ask()
    return inputs


async def test_copying_forgets_its_lag_as_well() -> None:
    """The part that fills the internal topic exports no lag while the brokers do not answer."""
    reading = Reading()
    inputs = await copying(reading)
    assert len(reading.samples()[LAG[0]]) == 2

    reading.seconds += KNOWN_SECONDS + 1
    reading.brokers.silent = SourceUnavailable("brokers do not answer")
    await inputs.ask()

    assert reading.samples()[LAG[0]] == reading.samples()[LAG[1]] == []
    assert reading.health.reasons.keys() == {"kafka"}


async def test_lag_grows_while_the_loop_waits_for_something() -> None:
    """The lag of before the wait is not shown for ever."""
    reading = Reading()
    inputs = await copying(reading)
    before = reading.samples()[LAG[0]]

    reading.seconds += 2 * ASK_SECONDS
    reading.brokers.append(TopicPartition(TOPIC, 0), b"k", b"{}", 1_000 * NOW_S)
    reading.brokers.produce(1)
    await inputs.look()

    assert sum(reading.samples()[LAG[0]]) == sum(before) + 1


@pytest.mark.parametrize("error", [SourceUnavailable("no answer"), RightsMissing("READ")])
async def test_lag_that_nobody_tells_while_the_loop_waits_is_unknown(error: Exception) -> None:
    """What the loop waits for is said by the loop alone."""
    reading = Reading()
    inputs = await copying(reading)

    reading.seconds += KNOWN_SECONDS + 1
    reading.brokers.silent = error
    await inputs.look()

    assert reading.samples()[LAG[0]] == reading.samples()[LAG[1]] == []
    assert not reading.health.reasons
