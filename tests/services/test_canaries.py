"""No text of an event leaves the worker through Redis, its log or its pages."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.core.dedup.tables import EntityType, newest
from stream_metrics.core.events import BadRecord, Limits, decode
from stream_metrics.lab.traffic import TrafficRecord
from tests.canaries import HANDLES, Canaries, unpacked
from tests.corpus import FIELDS, FULL
from tests.helpers import wait_until
from tests.services.live import LiveSystem, Worker, produce, said, stored
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

Redises = Callable[..., Awaitable[RedisServer]]
Event = dict[str, Any]

FORGOTTEN = "forgotten"
SHOWN = ("agent", "selected", "unknown.name")
"""Texts that `/metrics` may show: agents, routes, and unknown fields of events."""
PAGES = ("/metrics", "/healthz", "/readyz", "/", "/nowhere")
LIMITS = Limits(record_bytes=40_000, url_bytes=1_000)
SETTINGS = {
    "STREAM_METRICS_LOG__LEVEL": "DEBUG",
    "STREAM_METRICS_LIMITS__RECORD_BYTES": str(LIMITS.record_bytes),
    "STREAM_METRICS_LIMITS__URL_BYTES": str(LIMITS.url_bytes),
    "STREAM_METRICS_KAFKA__DEAD_LETTER_MAX_BYTES": "20000",
    "STREAM_METRICS_METRICS__WINDOWS": '["1h", "24h"]',
}


def changed(kind: str, second: float, **changes: Any) -> Event:
    """An event of a type with all fields, at a time, with changes."""
    event: Event = json.loads(json.dumps(FULL[kind]))
    return {**event, "occurred_at": second, **changes}


def of_type(kind: EntityType | None) -> Event:
    """Fields that identify results of an entity type; None is an unknown type."""
    names = sorted(kind.names_in_rules() - {"*"}) if kind is not None else ["author", "place"]
    ids = sorted(kind.definitive or {"some_id"}) if kind is not None else ["some_id"]
    return {
        "entity_type": kind.name if kind is not None else "Recipe",
        "ids": {name: ["a", "b"] for name in ids},
        "fields": {name: "v" for name in names if not name.startswith("id:")},
    }


def searches(numbers: Iterator[int], members: Event) -> list[Event]:
    """Searches for the same results, with and without definitive ids."""
    (search, empty) = FULL["search_iteration"]["searches"]
    (full, bare) = search["results"]
    number = next(numbers)
    without = {name: value for name, value in members.items() if name != "ids"}
    results = [
        {**full, **members, "result_id": f"r-{number}"},
        {**full, **without, "doc_id": None, "result_id": f"s-{number}"},
        {**bare, "result_id": f"t-{number}", "title": "t", "url": full["url"]},
    ]
    return [
        {**search, "search_id": f"s-{number}", "results": results},
        {**empty, "search_id": f"e-{number}", "query": "q"},
    ]


def conversation(kind: EntityType | None, second: int) -> Iterator[Event]:
    """Early labels, duplicates, a late search, a replaced one, two contents with one version, and
    the end of a turn."""
    numbers = iter(range(1, 100))
    members = of_type(kind)
    shared = searches(numbers, members)
    labels = [{"result_id": "r-1", "gain": 3}, {"result_id": "nobody", "gain": 1}]
    yield changed("relevance_labels", second + 9, event_id="l-1", labels=labels)
    yield changed("search_iteration", second + 3, event_id="i-2", iteration=2, searches=shared)
    later = searches(numbers, members)
    yield changed("search_iteration", second + 5, event_id="i-3", iteration=3, searches=later)
    first = searches(numbers, members)
    yield changed("search_iteration", second + 1, event_id="i-1", iteration=1, searches=first)
    yield changed("search_iteration", second + 7, event_id="i-4", iteration=3, searches=later)
    yield changed("search_iteration", second + 7, event_id="i-4", iteration=3, searches=first)
    yield changed("turn_completed", second + 8, event_id="t-1")


def good(canaries: Canaries, second: int) -> Iterator[TrafficRecord]:
    """A conversation for each entity type, and one that is forgotten."""
    for number, kind in enumerate([*newest().types, None]):
        for event in conversation(kind, second):
            yield record(canaries.planted(event, str(number)))
    for event in (*conversation(None, second), changed("forget", second + 60, event_id="f-1")):
        yield record(canaries.planted(event, FORGOTTEN))


def record(event: Event) -> TrafficRecord:
    """The event as a producer sends it."""
    stream = "events" if event["type"] == "search_iteration" else "labels"
    key, value = event["conversation_id"].encode(), json.dumps(event).encode()
    return TrafficRecord(stream, key, value, int(1000 * time.time()), True)  # type: ignore[arg-type]


def bad(canaries: Canaries, second: int) -> Iterator[TrafficRecord]:
    """Invalid records for every reason, with canaries in keys, names and values, and with an
    invalid value for every field."""
    word = canaries.word
    for kind in FULL:
        event = canaries.planted(changed(kind, second), "bad")
        key, text = event["conversation_id"].encode(), json.dumps(event)
        deep = "[" * 70 + "]" * 70
        for value in (
            text[:-3],
            text[:-1] + f', "{word("bad.tail")}": \\x41}}',
            text.replace('"', "'"),
            text.replace(f'"{kind}"', json.dumps(canaries.text("bad.type"))),
            text[:-1] + f', "version": 2, "{word("bad.newer")}": 1}}',
            text[:-1] + f', "{word("bad.deep")}": {deep}}}',
            text[:-1] + f', "x": "{word("bad.large") * 4_000}"}}',
            text[:-1] + f', "occurred_at": "{word("bad.time")}"}}',
            text[:-1] + ', "occurred_at": 9e9}',
        ):
            yield broken(kind, key, value)
        yield broken(kind, None, text)
        yield broken(kind, word("bad.key").encode(), text)
        yield broken(kind, word("bad.tombstone").encode(), None)
    for field in FIELDS:
        place = f"bad.{field}"
        for token in ({word(place): [word(place)]}, [word(place), 1.5], canaries.text(place)):
            event = canaries.planted(changed(field.type, second), "bad")
            node: Any = event
            for step in field.path[:-1]:
                node = node[step]
            node[field.path[-1]] = token
            value = json.dumps(event)
            key = str(event.get("conversation_id")).encode()
            if refused(key, value):
                yield broken(field.type, key, value)


def refused(key: bytes, value: str) -> bool:
    """Whether the worker must reject it."""
    return isinstance(decode(value.encode(), key=key, limits=LIMITS), BadRecord)


def broken(kind: str, key: bytes | None, value: str | None) -> TrafficRecord:
    """A record that becomes a dead letter."""
    stream = "events" if kind == "search_iteration" else "labels"
    data: Any = None if value is None else value.encode()
    return TrafficRecord(stream, key, data, int(1000 * time.time()), False)  # type: ignore[arg-type]


async def page(worker: Worker, path: str, accept: str = "*/*") -> bytes:
    """Status, headers and body of a page."""
    async with (
        aiohttp.ClientSession(headers={"Accept": accept}) as session,
        session.get(f"http://{worker.address}{path}") as answer,
    ):
        return f"{answer.status} {answer.headers} ".encode() + await answer.read()


async def kept(redis: RedisServer) -> dict[str, bytes]:
    """The content of Redis: names of keys, decompressed values, and a snapshot on disk."""
    client: Any = Redis.from_url(redis.url)
    names = [name async for name in client.scan_iter(count=1_000)]
    values = []
    for name in names:
        if await client.type(name) == b"hash":
            values.append(unpacked(await client.hgetall(name)))
        else:
            values.append(unpacked(await client.zrange(name, 0, -1)))
    await client.save()
    await client.aclose()
    return {
        "names": b"\n".join(names),
        "values": b"\n".join(values),
        "snapshot": (redis.folder / "dump.rdb").read_bytes(),
    }


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["", "python"], ids=["compiled", "python"])
async def test_no_text_leaves_the_worker(
    kafka: Kafka, redis_factory: Redises, tmp_path: Path, kernel: str
) -> None:
    """With a canary in every text of valid and invalid events, Redis has only those of handles, the
    pages only those of agents and routes, and the log and dead-letter headers none."""
    redis = await redis_factory(options={"rdbcompression": "no"})
    group = f"canaries-{kernel or 'compiled'}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    canaries, second = Canaries(), int(time.time()) - 600
    sent = [*good(canaries, second), *bad(canaries, second)]
    header = (canaries.word("header.name"), canaries.text("header").encode())
    produced = await produce(kafka, {"events": topics[0], "labels": topics[1]}, sent, [header])
    system = LiveSystem(kafka, redis, tmp_path / group, group, topics, produced)
    system.settings = {**SETTINGS, "STREAM_METRICS_KERNEL": kernel}
    await system.start_workers(1)
    worker = system.workers[0]
    await system.reach(1.0)
    await wait_until(worker.ready, 60, worker.log_tail)
    pages = {path: await page(worker, path) for path in PAGES}
    pages["OpenMetrics"] = await page(worker, "/metrics", "application/openmetrics-text")
    in_redis = await kept(redis)
    assert await system.stop_workers() == [0]
    letters = await stored(kafka, [f"{topic}.dlq" for topic in topics])
    headers = b"\n".join(b"%b %b" % (n.encode(), v) for r in letters for n, v in r.headers)
    files = b"".join(path.read_bytes() for path in redis.folder.rglob("*.aof"))

    code, listed = await said(system, "dlq", "list")

    assert await system.dead_letters() == produced.broken
    shown = canaries.found(pages["/metrics"])
    assert all(place.endswith(SHOWN) for place in shown)
    assert all(any(place.endswith(one) for place in shown) for one in SHOWN), "it finds these"
    for where, data in {**in_redis, "append-only file": files}.items():
        assert canaries.found(data, allowed=HANDLES) == set(), where
    for where in ("values", "snapshot"):
        held = canaries.found(in_redis[where])
        assert {place.rpartition(".")[2] for place in held} == HANDLES, "the search finds these"
        left = {place for place in held if FORGOTTEN in place and not place.endswith(SHOWN)}
        assert left == {f"{FORGOTTEN}.f-1.event_id"}, "the tombstone's version"
    assert canaries.found(in_redis["names"]) == set()
    for path, data in pages.items():
        assert canaries.found(data, allowed=SHOWN) == set(), path
    assert canaries.found(worker.log.read_bytes()) == set()
    assert canaries.found(redis.log.read_bytes()) == set()
    assert canaries.found(headers) == set()
    assert code == 0, listed
    assert canaries.found(listed.encode()) == set()
    assert canaries.found(b"".join(r.value or b"" for r in letters)), "these hold the records"
