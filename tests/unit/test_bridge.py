"""Rounds of the bridge over scripted brokers: group sessions, deleted records and bounds."""

from __future__ import annotations

import asyncio
import json
import math
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import TopicsMissing
from stream_metrics.core.telemetry.assembly import Assembly, Bounds
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.traces import traces_source
from stream_metrics.live.worker.inputs import NOTE_SECONDS
from stream_metrics.live.worker.lag import KNOWN_SECONDS
from stream_metrics.live.worker.source import SourceUnavailable
from tests.otlp import RETRIEVER, SpanSpec, as_protobuf, documents
from tests.sessions import Sent
from tests.simulation.bridges import TOPIC, BridgeMember, World
from tests.simulation.brokers import ScriptedCluster, ScriptedConsumer
from tests.simulation.system import ImmediateRetry
from tests.telemetry import agent, search

TURN = {"openinference.span.kind": "AGENT", "session.id": "s"}
LONG_AGO_S = 60.0


def sent(spans: Sequence[SpanSpec]) -> Sent:
    """A record of spans of one trace."""
    return Sent(spans[0].trace_id.hex().encode(), as_protobuf(spans))


def turn(trace: int, searches: int) -> list[SpanSpec]:
    """A turn with that many searches."""
    found = [
        SpanSpec(trace, 2 + at, 1, 10 * at, 10 * at + 5, {**RETRIEVER, **documents(at)})
        for at in range(searches)
    ]
    return [SpanSpec(trace, 1, 0, 0, 10 * searches, TURN), *found]


async def rounds_of_others(world: World) -> int:
    """How often another task ran while a bridge read everything."""
    member = BridgeMember(world)
    await member.join()
    world.brokers.rebalance([member.source])
    while await member.turn() or not member.inputs.reading():
        pass
    world.now_ms += 10 * world.bounds.trace_max_ms
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    while sum(member.refused.values()) == 0 and not world.produced:
        await member.turn()
    other.cancel()
    return rounds


async def test_a_large_trace_does_not_block_the_event_loop() -> None:
    """Heartbeats are sent meanwhile, so the group does not revoke the partition."""
    world = World(Bounds())
    spans = turn(1, 3_000)
    for first in range(0, len(spans), 500):
        world.send(sent(spans[first : first + 500]), 0)

    assert await rounds_of_others(world) > 20


async def test_closing_many_traces_does_not_block_the_event_loop() -> None:
    """Other tasks run even if no trace produces events."""
    world = World(Bounds())
    for trace in range(1, 10_000):
        world.send(sent([SpanSpec(trace, 2, 1, 0, 1, RETRIEVER)]), 0)

    assert await rounds_of_others(world) > 15


async def produced_sessions(member: BridgeMember, world: World) -> set[str]:
    """Let a bridge read everything; the sessions of the traces it has produced so far."""
    await member.join()
    world.brokers.rebalance([member.source])
    while await member.turn() or not member.inputs.reading():
        pass
    await member.turn()
    return {conversation for conversation, _ in world.produced}


def in_session(trace: int, session: str, *, alone: bool = False) -> list[SpanSpec]:
    """A turn with a search; with ``alone`` only its root span, as if redelivered."""
    spans = turn(trace, 1)
    outer = SpanSpec(trace, 1, 0, 0, 10, {**TURN, "session.id": session})
    return [outer] if alone else [outer, *spans[1:]]


def as_json_with_a_kind_of(kind: int) -> bytes:
    """A span in OTLP JSON whose kind is that number."""
    span = {"traceId": f"{9:032x}", "spanId": f"{1:016x}", "startTimeUnixNano": "1", "kind": kind}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


MINUTE_MS = 60_000
LOG = TopicPartition(TOPIC, 0)


async def after_deletion(commit: OffsetAndMetadata | None, *, restarts: bool) -> set[str]:
    """The sessions produced after the first record of one trace was deleted, and not its second.

    Another trace comes each minute; with ``restarts``, an earlier bridge has read the first four
    records.
    """
    world = World(Bounds())
    world.send(sent(in_session(1, "cut")), 0)
    for minute in range(2, 5):
        world.send(sent(in_session(minute, f"m{minute}")), 0, MINUTE_MS)
    if restarts:
        assert await produced_sessions(BridgeMember(world), world) == {"cut", "m2", "m3"}
        world.produced.clear()
    elif commit is not None:
        world.brokers.commits[LOG] = commit
    world.brokers.firsts[LOG] = 1
    world.send(sent(in_session(1, "cut", alone=True)), 0, MINUTE_MS)
    for minute in range(6, 37):
        world.send(sent(in_session(minute, f"m{minute}")), 0, MINUTE_MS)
    member = BridgeMember(world)
    found = await produced_sessions(member, world)
    assert (member.gaps > 0) == (commit is not None or restarts)
    return found


COMPLETE = {f"m{minute}" for minute in range(32, 36)}  # the last one is open


async def test_a_restart_skips_traces_whose_first_records_were_deleted() -> None:
    """After deletion nothing shows that a late span is late."""
    assert await after_deletion(None, restarts=True) == COMPLETE


async def test_a_first_start_skips_traces_whose_first_records_were_deleted() -> None:
    """Traces may have begun in deleted records for as long as a trace may last."""
    assert await after_deletion(None, restarts=False) == COMPLETE


async def test_offsets_reset_to_the_log_start_skip_truncated_traces() -> None:
    """A commit of another tool says nothing about deleted records."""
    assert await after_deletion(OffsetAndMetadata(1, ""), restarts=False) == COMPLETE


async def test_a_restart_at_the_end_of_an_emptied_log_reads_new_traces() -> None:
    """The deleted records are as old as the last record read, and traces are shorter than that."""
    world = World(Bounds())
    world.send(sent(in_session(1, "old")), 0)
    world.now_ms += MINUTE_MS
    assert await produced_sessions(BridgeMember(world), world) == {"old"}
    world.brokers.firsts[LOG] = 1
    world.now_ms += 60 * MINUTE_MS
    again = BridgeMember(world)
    await produced_sessions(again, world)
    world.send(sent(in_session(2, "new")), 0)
    world.now_ms += MINUTE_MS

    assert await produced_sessions(again, world) == {"old", "new"}


async def test_a_trace_waits_for_open_transactions() -> None:
    """Their records have the times at which they were written, however late they become visible."""
    world = World(Bounds())
    spans = in_session(1, "s")
    world.send(sent([spans[0]]), 0)
    world.send(sent([spans[1]]), 0, after_ms=100, committed=False)
    member = BridgeMember(world)
    world.now_ms += MINUTE_MS
    assert await produced_sessions(member, world) == set()

    world.brokers.produce(1)

    await produced_sessions(member, world)
    assert set(world.produced) == world.expected()
    assert member.late == 0


async def test_out_of_order_times_in_batches_close_no_trace() -> None:
    """Record times count in the order of reading, and the clock counts only at the end of the
    log."""
    world = World(Bounds())
    for trace in range(2, 1_203):  # as many as tell elsewhere up to when a log was read
        world.send(sent(in_session(trace, f"m{trace}")), 0)
    world.now_ms -= 20_000
    spans = in_session(1, "early")
    world.send(sent([spans[0]]), 0)
    world.send(sent([spans[1]]), 0)
    world.now_ms += 21_000
    member = BridgeMember(world)
    member.source.max_records = 1_201
    await member.join()
    world.brokers.rebalance([member.source])
    while not await member.turn():
        pass
    member.source.max_records = 1
    await member.turn()
    await member.turn()

    assert member.late == 0


async def test_a_bridge_reports_the_time_up_to_which_it_has_read() -> None:
    """That is when it last reached the end of the log; before that, and while the brokers do not
    tell the end, it is unknown."""
    world = World(Bounds())
    member = BridgeMember(world)
    assert member.complete_until_s is None
    await produced_sessions(member, world)

    assert member.complete_until_s == world.now_ms / 1000

    world.brokers.silent = SourceUnavailable("brokers do not answer")
    for _ in range(math.ceil(KNOWN_SECONDS / NOTE_SECONDS) + 1):
        await member.turn()
    assert member.complete_until_s is None
    assert member.health.reasons.keys() == {"kafka"}


async def test_what_two_instrumentations_recorded_is_told_once_and_stops_nobody() -> None:
    """The second trace of the service is refused, and another service's traces are told."""
    world = World(Bounds())
    for trace, service, scope in (
        (1, "assistant", "openinference"),
        (2, "assistant", "openllmetry"),
        (3, "other", "openllmetry"),
    ):
        spans = [
            replace(span, scope=scope, resource={"service.name": service})
            for span in in_session(trace, f"session {trace}")
        ]
        world.send(sent(spans), 0)
    world.now_ms += MINUTE_MS
    member = BridgeMember(world)

    assert await produced_sessions(member, world) == {"session 1", "session 3"}
    assert member.refused == {"two_scopes": 1}


@pytest.mark.parametrize(
    "value", [b"\xff" * 40, as_json_with_a_kind_of(2**70)], ids=["damaged", "kind"]
)
async def test_a_record_that_cannot_be_read_stops_no_other(value: bytes) -> None:
    """It becomes a dead letter, and the traces beside it are told."""
    world = World(Bounds())
    world.send(sent(in_session(1, "before")), 0)
    world.send(Sent(f"{9:032x}".encode(), value), 0)
    world.send(sent(in_session(2, "after")), 0)
    world.now_ms += MINUTE_MS
    member = BridgeMember(world)

    assert await produced_sessions(member, world) == {"before", "after"}
    assert [letter.reason for letter in world.letters.letters] == ["unreadable"]


async def test_a_bridge_does_not_start_without_the_topics_for_its_events() -> None:
    """Otherwise it would seem ready until the first trace closes."""
    brokers, health = World(Bounds()).brokers, Health()
    cluster = ScriptedCluster(brokers, ScriptedConsumer(brokers))
    settings = KafkaSettings(topics=(TOPIC,), group_id="bridge")
    source = traces_source(
        settings, cluster, ["events"], ImmediateRetry(health, lambda: None), health
    )

    with pytest.raises(TopicsMissing, match="input topics do not exist: events"):
        await source.join()


def test_memory_does_not_grow_with_closed_traces() -> None:
    """This holds for interpreted traces and for those that there was no room for."""
    assembly, held = Assembly(Bounds(open_traces=10)), []
    tracemalloc.start()
    for trace in range(12_000):
        id = f"{trace:032x}"
        spans = [agent(trace_id=id)] if trace % 2 else [search("s", "lost", 0, trace_id=id)]
        assembly.read(trace, 1_000 + 5 * trace, spans)
        if trace % 4_000 == 2_000:
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()

    assert held[2] < held[0] + 100_000  # 12 bytes a trace


def test_repeated_spans_cost_no_more_than_new_ones() -> None:
    """The cost does not depend on the size of the trace, and the last version counts."""
    number = 10_000
    assembly, began = Assembly(Bounds()), time.monotonic()
    versions = [
        [agent(end=10**6), *(search(f"s{at}", "agent", at, end=10**5 + version, found="a")
                             for at in range(number))]
        for version in range(2)
    ]  # fmt: skip
    for version in versions:
        for offset, span in enumerate(version):
            assert assembly.read(offset, 1_000, [span]) == []
            assert time.monotonic() - began < LONG_AGO_S

    [closed] = assembly.finish()
    assert closed.spans == number + 1
