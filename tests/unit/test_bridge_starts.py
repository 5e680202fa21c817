"""Where a bridge begins, and what it refuses, over scripted brokers."""

from __future__ import annotations

import json

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.telemetry import ConflictingScopes
from stream_metrics.telemetry.assembly import Bounds
from stream_metrics.worker.bridge import NO_KEY
from tests.otlp import Made, as_protobuf
from tests.sessions import SCOPE, Sent, trace_of
from tests.simulation.bridges import TOPIC, BridgeMember, World

BOUNDS = Bounds(settle_ms=5_000, trace_max_ms=30_000, known_ms=60_000)
PLACE = TopicPartition(TOPIC, 0)
LONG = 100_000


def sent(spans: list[Made]) -> Sent:
    """A record of spans of one trace, under its id."""
    return Sent(spans[0].trace_id.hex().encode(), as_protobuf(spans))


async def bridge(world: World) -> BridgeMember:
    """A bridge that has the partition and has read nothing."""
    member = BridgeMember(world)
    await member.join()
    world.brokers.rebalance([member.source])
    return member


async def read(member: BridgeMember) -> None:
    """Read to the end, and once more when that is long ago."""
    for _ in range(2):
        idle = 0
        while idle < 3:
            idle = 0 if await member.turn() else idle + 1
        member.world.now_ms += LONG


def told(world: World) -> set[str]:
    """The traces that events were produced of."""
    return {json.loads(value)["event_id"].partition(":")[0] for _, value in world.produced}


def ids(*traces: list[Made]) -> set[str]:
    """Their ids."""
    return {spans[0].trace_id.hex() for spans in traces}


async def test_a_record_without_a_key_refuses_the_traces_that_it_has_spans_of() -> None:
    """Those of the same partition: others of their spans may be anywhere. The letter has the line
    of configuration that mends it."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one[:2]), 0)
    world.send(Sent(None, as_protobuf(one[2:])), 0)
    world.send(sent(other), 0)
    member = await bridge(world)

    await read(member)

    assert told(world) == ids(other)
    assert member.refused["no_key"] == 1
    [letter] = world.letters.letters
    assert (letter.reason, letter.record.offset, letter.message) == ("no_key", 1, NO_KEY)
    assert "partition_traces_by_id: true" in letter.message


async def test_a_damaged_record_refuses_the_trace_that_its_key_names() -> None:
    """So that no turn is told without the searches that may have been in it."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one), 0)
    damaged = sent(one)
    world.send(Sent(damaged.key, damaged.value[:-5]), 0)
    world.send(Sent(sent(other).key, b'{"resourceMetrics": []}'), 0, 9_000)
    member = await bridge(world)

    await read(member)

    assert told(world) == set()
    assert member.refused["unreadable"] == 2
    assert [letter.reason for letter in world.letters.letters] == ["unreadable"] * 2
    assert "OTLP metrics" in world.letters.letters[1].message


async def test_a_commit_without_a_note_is_where_traces_begin() -> None:
    """Somebody has set it: a trace with records before it is not told without these."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one[:2]), 0)
    world.send(sent(one[2:]), 0, 1_000)
    world.send(sent(other), 0)
    world.brokers.commits[PLACE] = OffsetAndMetadata(1, "")
    member = await bridge(world)

    await read(member)

    assert told(world) == ids(other)
    assert member.late == len(one[2:])


async def test_a_group_that_begins_at_the_end_tells_what_begins_there() -> None:
    """With ``kafka.start`` latest: not the rest of traces that began before."""
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

    assert told(world) == ids(other)


async def test_traces_that_may_have_begun_among_deleted_records_are_not_told() -> None:
    """On the first start with such a topic: they are known by when they could have begun."""
    world = World(BOUNDS, partitions=1)
    one, other = trace_of(1), trace_of(2)
    world.send(sent(one[:2]), 0)
    world.send(sent(one[2:]), 0, 1_000)
    world.send(sent(other), 0, BOUNDS.known_ms)
    world.brokers.firsts[PLACE] = 1
    member = await bridge(world)

    await read(member)

    assert told(world) == ids(other)


@pytest.mark.parametrize("policy", ["halt", "continue"])
async def test_records_that_were_deleted_before_they_were_read_halt_the_partition(
    policy: str,
) -> None:
    """Unless ``kafka.on_offset_gap`` is continue: then with traces that began behind the gap."""
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

    assert told(world) == (ids(three) if policy == "continue" else set())
    assert (f"{TOPIC}-0" in member.health.reasons) == (policy == "halt")


async def test_two_instrumentations_stop_the_next_bridge_too() -> None:
    """What was told is in the commits, so that no start tells one trace more."""
    world = World(BOUNDS, partitions=1)
    world.send(sent(trace_of(1)), 0)
    member = await bridge(world)
    await read(member)
    assert told(world) == ids(trace_of(1))
    world.send(sent(trace_of(2, scope="another")), 0)

    for _ in range(2):
        member = await bridge(world)
        with pytest.raises(ConflictingScopes, match=rf"another, {SCOPE}.*`otlp\.scopes`"):
            await read(member)
        assert told(world) == ids(trace_of(1))
