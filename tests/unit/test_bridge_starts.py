"""Where a bridge starts to read, and what it refuses, over scripted brokers."""

from __future__ import annotations

import json

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.core.telemetry.assembly import Bounds
from stream_metrics.live.bridge.bridge import NO_KEY
from stream_metrics.live.bridge.traces import parse_note
from tests.otlp import SpanSpec, as_protobuf
from tests.sessions import Sent, trace_of
from tests.simulation.bridges import TOPIC, BridgeMember, World

BOUNDS = Bounds(settle_ms=5_000, trace_max_ms=30_000, known_ms=60_000)
PLACE = TopicPartition(TOPIC, 0)
LONG = 100_000


def sent(spans: list[SpanSpec]) -> Sent:
    """A record of spans of one trace, keyed by its id."""
    return Sent(spans[0].trace_id.hex().encode(), as_protobuf(spans))


async def bridge(world: World) -> BridgeMember:
    """A bridge that is assigned the partition and has read nothing."""
    member = BridgeMember(world)
    await member.join()
    world.brokers.rebalance([member.source])
    return member


async def read(member: BridgeMember) -> None:
    """Read to the end, and again much later."""
    for _ in range(2):
        idle = 0
        while idle < 3:
            idle = 0 if await member.turn() else idle + 1
        member.world.now_ms += LONG


def produced_traces(world: World) -> set[str]:
    """The traces for which events were produced."""
    return {json.loads(value)["event_id"].partition(":")[0] for _, value in world.produced}


def ids(*traces: list[SpanSpec]) -> set[str]:
    """The ids of the traces."""
    return {spans[0].trace_id.hex() for spans in traces}


async def test_a_record_without_a_key_refuses_its_traces() -> None:
    """Their other spans may be on any partition. The dead letter has the configuration line that
    fixes it."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one[:2]), 0)
    world.send(Sent(None, as_protobuf(one[2:])), 0)
    world.send(sent(other), 0)
    member = await bridge(world)

    await read(member)

    assert produced_traces(world) == ids(other)
    assert member.refused["no_key"] == 1
    [letter] = world.letters.letters
    assert (letter.reason, letter.record.offset, letter.message) == ("no_key", 1, NO_KEY)
    assert "partition_traces_by_id: true" in letter.message


async def test_a_damaged_record_refuses_the_trace_that_its_key_names() -> None:
    """No turn is interpreted without the searches that the record may have had."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one), 0)
    damaged = sent(one)
    world.send(Sent(damaged.key, damaged.value[:-5]), 0)
    world.send(Sent(sent(other).key, b'{"resourceMetrics": []}'), 0, 9_000)
    member = await bridge(world)

    await read(member)

    assert produced_traces(world) == set()
    assert member.refused["unreadable"] == 2
    assert [letter.reason for letter in world.letters.letters] == ["unreadable"] * 2
    assert "OTLP metrics" in world.letters.letters[1].message


async def test_traces_begin_at_a_commit_without_metadata() -> None:
    """Another tool set it, so a trace with earlier records is not interpreted without them."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one[:2]), 0)
    world.send(sent(one[2:]), 0, 1_000)
    world.send(sent(other), 0)
    world.brokers.commits[PLACE] = OffsetAndMetadata(1, "")
    member = await bridge(world)

    await read(member)

    assert produced_traces(world) == ids(other)
    assert member.late == len(one[2:])


async def test_a_group_that_starts_at_the_end_reads_traces_that_begin_there() -> None:
    """With ``kafka.start`` latest, it skips the rest of traces that began before."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one[:2]), 0)
    member = BridgeMember(world, start="latest")
    await member.join()
    world.brokers.rebalance([member.source])
    await member.turn()
    await member.turn()
    world.send(sent(one[2:]), 0, 1_000)
    world.send(sent(other), 0)

    await read(member)

    assert produced_traces(world) == ids(other)


async def test_traces_that_may_have_begun_in_deleted_records_are_skipped() -> None:
    """On the first start, the times of their records show that they may have begun there."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one[:2]), 0)
    world.send(sent(one[2:]), 0, 1_000)
    world.send(sent(other), 0, BOUNDS.known_ms)
    world.brokers.firsts[PLACE] = 1
    member = await bridge(world)

    await read(member)

    assert produced_traces(world) == ids(other)


@pytest.mark.parametrize("policy", ["halt", "continue"])
async def test_records_that_were_deleted_before_they_were_read_halt_the_partition(
    policy: str,
) -> None:
    """If ``kafka.on_offset_gap`` is continue, it goes on with traces that began after the gap."""
    world = World(BOUNDS, partitions=1)
    one, two, three = trace_of(1), trace_of(2), trace_of(3)
    world.send(sent(one), 0)
    member = await bridge(world)
    await member.turn()
    assert world.brokers.commits[PLACE].offset == 0
    world.send(sent(two), 0)
    world.send(sent(three), 0, BOUNDS.known_ms)
    world.brokers.firsts[PLACE] = 1
    member = BridgeMember(world, on_offset_gap=policy)
    await member.join()
    world.brokers.rebalance([member.source])

    await read(member)

    assert produced_traces(world) == (ids(three) if policy == "continue" else set())
    assert (f"{TOPIC}-0" in member.health.reasons) == (policy == "halt")


async def test_the_commit_of_an_earlier_release_is_understood() -> None:
    """Its metadata list scopes, too, which nothing needs any more."""
    assert parse_note('{"time_ms":7,"scopes":[["service","scope"]]}') == 7
