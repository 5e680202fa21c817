"""A real OpenTelemetry Collector with ``deploy/otel/collector.yaml``, exporting to real Kafka."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Collector, RedisServer
from deploy.local.traces import COLLECTOR_CONFIG, TRACES_TOPIC_CONFIG
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from tests.conftest import factory
from tests.helpers import rest_long, wait_until
from tests.otlp import SpanSpec, as_protobuf
from tests.services.live import LiveSystem, Produced, recorded, said
from tests.telemetry import CAPTURES, EXPECTED

pytestmark = pytest.mark.service

PARTITIONS = 3
ENCODINGS = ("otlp_proto", "otlp_json")
COMPRESSIONS = ("zstd", "none", "gzip", "snappy", "lz4")
PROGRAMS = (
    "langchain-openinference-graph",
    "langchain-openinference-partool",
    "langchain-openllmetry-tool",
    "llamaindex-openinference-wide",
    "haystack-openinference-rank",
)
# Every encoding and compression, each with the traces of some program.
CASES = [
    (encoding, compression, PROGRAMS[number % len(PROGRAMS)])
    for number, (compression, encoding) in enumerate(itertools.product(COMPRESSIONS, ENCODINGS))
]
JSON = "application/json"

Starts = Callable[..., Awaitable[Collector]]


@pytest_asyncio.fixture
async def start(kafka: Kafka, tmp_path: Path) -> AsyncIterator[Starts]:
    """Starts Collectors that write to the session's Kafka; all are killed at the end."""
    async with factory(Collector, tmp_path) as started:

        async def starting(topic: str, *changes: str) -> Collector:
            return await started(
                COLLECTOR_CONFIG, kafka.bootstrap_servers, topic=topic, changes=changes
            )

        yield starting


@pytest_asyncio.fixture
async def topic(kafka: Kafka) -> str:
    """A topic created as the guide says."""
    return await kafka.create_topic(
        f"spans-{uuid.uuid4().hex[:8]}", PARTITIONS, TRACES_TOPIC_CONFIG
    )


def requests(program: str, size: int, seed: int = 1) -> list[bytes]:
    """The spans that a program exported, shuffled, in requests of a few spans each."""
    text = gzip.decompress((CAPTURES / f"{program}.jsonl.gz").read_bytes())
    spans = [one for line in text.splitlines() for one in alone(json.loads(line))]
    random.Random(seed).shuffle(spans)
    return [
        json.dumps({"resourceSpans": spans[at : at + size]}).encode()
        for at in range(0, len(spans), size)
    ]


def alone(export: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each span of an export with its resource and its scope."""
    for of_resource in export["resourceSpans"]:
        for of_scope in of_resource["scopeSpans"]:
            for span in of_scope["spans"]:
                yield {**of_resource, "scopeSpans": [{**of_scope, "spans": [span]}]}


def ids(payloads: Sequence[bytes]) -> Counter[tuple[str, str]]:
    """The number of occurrences of each span, by trace id and span id."""
    return Counter((span.trace_id, span.span_id) for one in payloads for span in spans_of(one))


async def arrived(kafka: Kafka, topic: str, sent: Sequence[bytes]) -> tuple[Record, ...]:
    """The records of the topic, once they contain each of these spans."""
    wanted = ids(sent).keys()
    found: tuple[Record, ...] = ()

    async def there() -> bool:
        nonlocal found
        found = await recorded(kafka, [topic])
        return wanted <= ids([one.value or b"" for one in found]).keys()

    await wait_until(there, 60, lambda: f"not all of {len(wanted)} spans arrived in {topic}")
    return found


@pytest.mark.parametrize(("encoding", "compression", "program"), rest_long(CASES, 4))
async def test_spans_sent_to_the_collector_give_the_programs_figures(
    kafka: Kafka,
    redis_server: RedisServer,
    tmp_path: Path,
    start: Starts,
    topic: str,
    encoding: str,
    compression: str,
    program: str,
) -> None:
    """For each encoding and compression a record has one trace and its id as key, a trace is in one
    partition, and a replay of the topic gives the figures that the program recorded."""
    collector = await start(
        topic,
        f"exporters::kafka::traces::encoding: {encoding}",
        f"exporters::kafka::producer::compression: {compression}",
    )
    sent = requests(program, size=5)
    answers = await asyncio.gather(*(collector.export(one, JSON) for one in sent))
    assert set(answers) == {200}, collector.log_tail()

    records = await arrived(kafka, topic, sent)
    partitions: dict[str, set[int]] = {}
    for record in records:
        assert record.value is not None
        assert record.value.startswith(b"{") == (encoding == "otlp_json")
        [trace] = {trace for trace, _ in ids([record.value])}
        assert record.key == trace.encode()
        partitions.setdefault(trace, set()).add(record.partition)
    assert {len(found) for found in partitions.values()} == {1}
    assert await figures(LiveSystem(
        kafka, redis_server, tmp_path, topic, (topic,), Produced((), frozenset(), 0)
    )) == expected(program)  # fmt: skip


async def figures(system: LiveSystem) -> list[tuple[str, int, int, float]]:
    """The rows of turns with results in a replay of the system's topic."""
    out = system.folder / "report"
    source = f"kafka:{system.topics[0]}"
    code, text = await said(system, "replay", source, "--turn-scope", "all", "--out", str(out))
    assert code == 0, text
    lines = (out / "conversations.jsonl").read_text().splitlines()
    return [
        (row["conversation_id"], len(row["iterations"]), row["results"], row["srr"])
        for row in map(json.loads, lines)
        if row["results"]
    ]


def expected(program: str) -> list[tuple[str, int, int, float]]:
    """The figures that the program recorded."""
    return [
        (row["conversation_id"], row["iterations"], row["results"], row["srr"])
        for row in EXPECTED[program]
    ]


@pytest.mark.parametrize("how", ["kill9", "stop"])
async def test_no_accepted_span_is_lost_when_the_collector_stops(
    kafka: Kafka, start: Starts, topic: str, how: str
) -> None:
    """If senders repeat only requests that were not accepted, every span arrives although the
    Collector is killed, or stopped, and restarted."""
    collector = await start(topic)
    sent = [
        as_protobuf([SpanSpec(trace, span, parent=0 if span == 1 else 1) for span in (1, 2, 3)])
        for trace in range(1, 201)
    ]
    waiting, accepted, refused = iter(sent), 0, 0

    async def deliver() -> None:
        nonlocal accepted, refused
        for one in waiting:
            while await collector.export(one) != 200:
                refused += 1
                await wait_until(collector.ready, 30, "the Collector does not become ready")
            accepted += 1

    senders = [asyncio.create_task(deliver()) for _ in range(8)]
    for goal in (20, 100):

        def enough(goal: int = goal) -> bool:
            return accepted >= goal

        await wait_until(enough, 30, "the Collector accepts nothing")
        if how == "kill9":
            collector.kill9()
        await collector.restart()
    await asyncio.gather(*senders)

    assert refused
    assert len(await arrived(kafka, topic, sent)) >= accepted == len(sent)


async def test_a_trace_longer_than_a_record_is_split(
    kafka: Kafka, start: Starts, topic: str
) -> None:
    """24 MB of spans of one trace, sent in requests of 6 MB, become records that the topic accepts,
    all with the same key."""
    collector = await start(topic)
    text = random.Random(3).randbytes(300_000).hex()
    spans = [
        SpanSpec(1, span, parent=span - 1, attributes={"input.value": text})
        for span in range(1, 41)
    ]
    sent = [as_protobuf(spans[at : at + 10]) for at in range(0, 40, 10)]

    assert set(await asyncio.gather(*map(collector.export, sent))) == {200}, collector.log_tail()

    records = await arrived(kafka, topic, sent)
    assert len(records) > 1
    assert {record.key for record in records} == {spans[0].trace_id.hex().encode()}


@pytest.mark.long
async def test_spans_sent_during_a_kafka_outage_arrive_later(
    kafka_factory: Callable[..., Awaitable[Kafka]], tmp_path: Path
) -> None:
    """The Collector answers a request only once Kafka has its spans, after any retries."""
    kafka = await kafka_factory()
    topic = await kafka.create_topic("spans", PARTITIONS, TRACES_TOPIC_CONFIG)
    sent = [as_protobuf([SpanSpec(trace, 1)]) for trace in range(1, 21)]
    server = Collector(
        tmp_path / "collector", COLLECTOR_CONFIG, kafka.bootstrap_servers, topic=topic
    )
    async with server as collector:
        assert await collector.export(sent[0]) == 200
        kafka.kill9()
        exporting = [asyncio.create_task(collector.export(one)) for one in sent[1:]]
        await wait_until(
            lambda: "unable to open connection to broker" in collector.log_tail(), 30,
            "the Collector does not notice that Kafka is unavailable",
        )  # fmt: skip
        assert not any(task.done() for task in exporting)

        await kafka.start()

        assert set(await asyncio.gather(*exporting)) == {200}, collector.log_tail()
        await arrived(kafka, topic, sent)
