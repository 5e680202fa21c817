"""On a real Kafka, workers that read the bridge's events equal a replay of the traces."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.core.events.times import rfc3339
from tests.helpers import rest_long, wait_until
from tests.otlp import SpanSpec, as_json, as_protobuf
from tests.services.bridged import APPEND_TIME, NOW, BridgedSystem, bridged, campaign
from tests.services.live import said
from tests.sessions import SCOPE, Sent, records, trace_of, traces

pytestmark = pytest.mark.service


@pytest.fixture
async def system(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> BridgedSystem:
    """A system with empty topics."""
    return await bridged(kafka, redis_server, tmp_path)


def whole(spans: list[SpanSpec], key: bool = True) -> Sent:
    """A trace in one record."""
    return Sent(spans[0].trace_id.hex().encode() if key else None, as_protobuf(spans))


def part(spans: list[SpanSpec]) -> Sent:
    """Some spans of a trace in one record."""
    return Sent(spans[0].trace_id.hex().encode(), as_protobuf(spans))


async def replayed(system: BridgedSystem, topic: str = "") -> tuple[list[bytes], str]:
    """The files and the output of a replay of the topic of traces."""
    folder = system.folder / "replayed"
    source = f"kafka:{topic or system.traces}"
    code, text = await said(system, "replay", source, "--out", str(folder), "--now", NOW)
    assert code == 0, text
    return _files(folder), text


async def live(system: BridgedSystem) -> list[bytes]:
    """The files of an export, once the state has all events."""
    await system.counted()
    folder = system.folder / "live"
    code, text = await said(system, "export", "--out", str(folder), "--now", NOW)
    assert code == 0, text
    return _files(folder)


def _files(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("conversations.jsonl", "windows.json")]


async def test_events_of_the_bridge_equal_a_replay_of_its_topic(system: BridgedSystem) -> None:
    """They are equal byte for byte, with spans reordered, split and repeated; after SIGTERM the
    exit code is 0, and the next bridge produces the events of open traces."""
    sent = list(records(traces(1, 40), seed=1))
    bridge = await system.bridge()
    await system.start_workers(1)
    number = await system.send(sent[: len(sent) // 2])
    await wait_until(bridge.ready, 60, lambda: bridge.log_tail())
    assert await bridge.stop() == 0
    number += await system.send(sent[len(sent) // 2 :])
    bridge = await system.bridge()
    await system.interpreted(number)

    exported = await live(system)

    assert exported == (await replayed(system))[0]
    assert exported[0].count(b"\n") == 40
    assert await bridge.figure("streammetrics_bridge_open_traces") == 0


@pytest.mark.parametrize("seed", rest_long([11, 12, 13]))
async def test_kills_at_any_time_have_no_effect(system: BridgedSystem, seed: int) -> None:
    """Two bridges and two workers are killed repeatedly while traces arrive; the export equals a
    replay of the topic of traces, byte for byte."""
    done = await campaign(system, seed, 400, kills=6)

    assert done.differences == []
    assert done.rows > 350
    assert {"bridge", "worker"} == set(done.kills)


async def test_every_compression_of_the_exporter_is_read(system: BridgedSystem) -> None:
    """This holds for both encodings."""
    codecs = (None, "gzip", "snappy", "lz4", "zstd")
    made = traces(14, 10)
    await system.bridge()
    await system.start_workers(1)
    number = 0
    for at, codec in enumerate(codecs):
        one, other = made[2 * at : 2 * at + 2]
        json = Sent(other[0].trace_id.hex().encode(), as_json(other))
        number += await system.send([whole(one), json], codec)
    await system.interpreted(number)

    exported = await live(system)

    assert exported[0].count(b"\n") == len(made)
    assert exported == (await replayed(system))[0]


async def test_late_spans_are_counted_and_not_used(system: BridgedSystem) -> None:
    """They arrive seconds after the trace was closed; a replay counts the same spans as late."""
    [spans] = traces(3, 1)
    first, last = spans[:1], spans[1:]
    key = spans[0].trace_id.hex().encode()
    bridge = await system.bridge()
    await system.start_workers(1)
    await system.interpreted(await system.send([Sent(key, as_protobuf(last))]))
    late = await system.send([Sent(key, as_protobuf(first))])

    async def counted() -> bool:
        return await bridge.figure("streammetrics_bridge_late_spans_total") == len(first)

    await wait_until(counted, 30, lambda: bridge.log_tail())
    await system.interpreted(1 + late)

    exported, (rows, text) = await live(system), await replayed(system)

    assert exported == rows
    assert f"{len(first)} spans arrived after their traces were closed" in text


async def test_spans_in_an_open_transaction_are_waited_for(system: BridgedSystem) -> None:
    """The wait may exceed the settle time: record timestamps count, not the time of reading."""
    [spans] = traces(6, 1)
    key = spans[0].trace_id.hex().encode()
    bridge = await system.bridge()
    await system.start_workers(1)
    await wait_until(bridge.ready, 60, lambda: bridge.log_tail())
    await system.send([Sent(key, as_protobuf(spans[1:]))])
    at = time.time()
    async with AIOKafkaProducer(
        bootstrap_servers=system.kafka.bootstrap_servers, transactional_id=system.group
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(system.traces, as_protobuf(spans[:1]), key=key)

        async def settled() -> bool:
            until = await bridge.figure("streammetrics_bridge_complete_until_timestamp_seconds")
            return until > at + 6  # three times as long as it takes

        await wait_until(settled, 60, lambda: bridge.log_tail())
        await producer.commit_transaction()
    await system.interpreted(3)  # one of them ends the transaction

    assert await live(system) == (await replayed(system))[0]
    assert await bridge.figure("streammetrics_bridge_late_spans_total") == 0


async def test_a_replay_of_a_part_has_the_traces_that_begin_in_it(system: BridgedSystem) -> None:
    """They are complete, even if they end after it; traces that began before it are left out."""
    first, middle, last = (trace_of(number) for number in (1, 2, 3))

    async def send(*sent: Sent) -> str:
        """Send, and return a time after that of the records."""
        await system.send(sent)
        newest = max(record.timestamp_ms or 0 for record in await system.in_traces())

        async def later() -> bool:
            return time.time_ns() // 1_000_000 > newest + 1

        await wait_until(later, 10, "the clock stands still")
        return rfc3339((newest + 1) * 1_000)

    since = await send(part(first[:2]))
    until = await send(part(first[2:]), part(middle), part(last[1:]))
    await send(part(last[:1]))
    folder = system.folder / "part"

    code, text = await said(
        system, "replay", f"kafka:{system.traces}", "--from", since, "--to", until,
        "--out", str(folder),
    )  # fmt: skip

    assert code == 0, text
    rows = map(json.loads, (folder / "conversations.jsonl").read_text().splitlines())
    assert [row["conversation_id"] for row in rows] == ["session of 2", "session of 3"]
    assert "2 spans are of traces that may have begun before what was read" in text


async def test_a_trace_without_its_parents_is_refused_after_its_time(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """It is refused as incomplete after ``bridge.trace_max``; later spans are late."""
    system = await bridged(kafka, redis_server, tmp_path, bridge__trace_max="4s")
    [spans] = traces(3, 1)
    key = spans[0].trace_id.hex().encode()
    bridge = await system.bridge()

    await system.interpreted(await system.send([Sent(key, as_protobuf(spans[:-1]))]))
    await system.send([Sent(key, as_protobuf(spans[-1:]))])

    async def late() -> bool:
        return await bridge.figure("streammetrics_bridge_late_spans_total") == 1

    await wait_until(late, 30, lambda: bridge.log_tail())
    assert await bridge.figure("streammetrics_bridge_refused_total") > 0
    assert "incomplete" in bridge.log_tail()
    assert await bridge.figure("streammetrics_bridge_events_total") == 0


async def test_records_without_a_key_are_refused_with_the_remedy(
    system: BridgedSystem,
) -> None:
    """They become dead letters; with ``--rekey`` the bridge produces the events of a replay."""
    made = traces(4, 12)
    sent = [replace(one, key=None) for one in records(made, seed=4)]
    bridge = await system.bridge()
    await system.start_workers(1)
    number = await system.send(sent)
    await system.interpreted(number)

    async def refused() -> bool:
        return await bridge.figure("streammetrics_bridge_dead_letters_total") == number

    await wait_until(refused, 30, lambda: bridge.log_tail())
    assert "partition_traces_by_id: true" in bridge.log_tail()
    code, text = await said(system, "dlq", "list", "--topic", system.traces)
    assert code == 0, text
    assert f"{system.traces} no_key {number} " in text
    assert await bridge.stop() == 0

    internal = f"{system.traces}-by-trace"
    await system.kafka.create_topic(internal, 2, APPEND_TIME)
    system.settings["STREAM_METRICS_BRIDGE__REKEY"] = "true"
    system.settings["STREAM_METRICS_BRIDGE__GROUP_ID"] = f"{system.group}-rekeyed"
    bridge = await system.bridge()

    async def told() -> bool:
        return await bridge.figure("streammetrics_bridge_traces_total") == len(made)

    await wait_until(bridge.ready, 60, lambda: bridge.log_tail())
    await wait_until(told, 60, lambda: bridge.log_tail())
    exported = await live(system)

    assert exported[0].count(b"\n") == len(made)
    assert exported == (await replayed(system, internal))[0]
    assert exported == (await replayed(system))[0]


async def test_a_trace_of_five_thousand_spans_is_complete(system: BridgedSystem) -> None:
    """Its spans are in many records, among those of other traces."""
    wide = traces(5, 1, searches=1)[0]
    root = wide[-1]
    more = [
        SpanSpec(root.trace, 100 + n, 1, root.start_ms, root.end_ms, {}, root.resource, scope=SCOPE)
        for n in range(5_000)
    ]
    key = root.trace_id.hex().encode()
    parts = [Sent(key, as_protobuf(more[at : at + 50])) for at in range(0, len(more), 50)]
    bridge = await system.bridge()
    await system.start_workers(1)
    number = await system.send([*parts, whole(wide), *(whole(one) for one in traces(6, 5))])
    await system.interpreted(number)

    exported = await live(system)

    assert exported == (await replayed(system))[0]
    assert exported[0].count(b"\n") == 6
    assert await bridge.figure("streammetrics_bridge_spans_total") > 5_000


@pytest.mark.long
async def test_ten_thousand_traces_may_be_open_at_once(system: BridgedSystem) -> None:
    """Each waits for its root; traces beyond the limit are refused and reported."""
    system.settings["STREAM_METRICS_BRIDGE__OPEN_TRACES"] = "3000"
    made = traces(7, 10_000, searches=1)
    bridge = await system.bridge()
    number = await system.send(Sent(whole(one).key, as_protobuf(one[:-1])) for one in made)

    async def open_() -> bool:
        return await bridge.figure("streammetrics_bridge_open_traces") == 9_000

    await wait_until(open_, 120, lambda: bridge.log_tail())
    assert "no_room" in bridge.log_tail()
    number += await system.send(Sent(whole(one).key, as_protobuf(one[-1:])) for one in made)
    await system.interpreted(number, 120)

    assert await bridge.figure("streammetrics_bridge_late_spans_total") == 1_000
    produced = await system.in_input_topics()
    await system.start_workers(1)
    assert (await live(system)) == (await replayed(system))[0]
    assert len({record.key for record in produced.records}) > 1


async def test_two_instrumentations_of_a_service_stop_nobody(system: BridgedSystem) -> None:
    """The second recording of a search is refused, with the setting in the log, and the bridge goes
    on with others; with the setting, traces of other scopes are left out."""
    one, third = trace_of(8), trace_of(10)
    other = [replace(span, scope="langfuse-sdk", trace=9) for span in one]
    bridge = await system.bridge()
    await system.interpreted(await system.send([whole(one)]))
    await system.interpreted(1 + await system.send([whole(other), whole(third)]))

    assert bridge.exit_code is None
    assert await bridge.figure("streammetrics_bridge_turns_total") == 2
    tail = bridge.log_tail()
    assert tail.count("two_scopes") == 1
    assert f'otlp.scopes = {{"assistant" = ["{SCOPE}"]}}'.replace('"', '\\"') in tail

    assert await bridge.stop() == 0
    system.settings["STREAM_METRICS_OTLP__SCOPES"] = '{"assistant": ["langfuse-sdk"]}'
    bridge = await system.bridge()
    await system.interpreted(3 + await system.send([whole(trace_of(11))]))
    assert "left_out" in bridge.log_tail()


async def test_check_reports_problems_of_the_topic_of_traces(system: BridgedSystem) -> None:
    """It reports LogAppendTime and its consequences, and missing topics."""
    code, text = await said(system, "check")
    assert code == 0, text
    assert "LogAppendTime" not in text

    other = f"{system.traces}-created"
    await system.kafka.create_topic(other, 1)
    system.settings["STREAM_METRICS_BRIDGE__TOPIC"] = other
    code, text = await said(system, "check")

    assert code == 2
    assert "late spans with early timestamps may be told after a crash" in text
    assert f"{other}.dlq" in text
