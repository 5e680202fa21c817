"""The code that one event runs on its way from Kafka to ``/metrics``, and one late label.

A worker runs on real servers, as Python, with a recorder in it. A *way* is what is called from the
moment at which a record is produced until ``/metrics`` counts it and was scraped once more. Timers
may fire in between, so each way is recorded several times, and only functions that were called
every time are counted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiokafka import AIOKafkaProducer

from benchmarks.processes import SCRAPE, records_done
from benchmarks.servers import DIGEST_KEY
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import free_port
from deploy.local.servers import RedisServer
from deploy.local.stack import Command
from deploy.local.waiting import wait_until

TOPIC: Final = "search-iterations"
LABELS: Final = "relevance-labels"
TIMES: Final = 5
COUNTED_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 5.0
RECORDER: Final = Path(__file__).with_name("recorder.py")

Function = tuple[str, int]
"""A file, from the root of the checkout, and the line on which a function begins."""


@dataclass(frozen=True, slots=True)
class Ways:
    """The functions on each way, and those called by an idle worker that is scraped."""

    event: frozenset[Function]
    label: frozenset[Function]
    idle: frozenset[Function]


def recorded(root: Path) -> Ways:
    """Record the ways in the checkout at ``root``."""
    return asyncio.run(_recorded(root))


async def _recorded(root: Path) -> Ways:
    with tempfile.TemporaryDirectory(prefix="way-") as name:
        folder = Path(name)
        async with (
            Kafka(folder / "kafka") as kafka,
            RedisServer(folder / "redis", fsync="everysec") as redis,
        ):
            for topic in (TOPIC, LABELS, f"{TOPIC}.dlq", f"{LABELS}.dlq"):
                await kafka.create_topic(topic, 1, {"retention.ms": "-1"})
            async with (
                _RecordedWorker(folder / "worker", root, kafka, redis) as worker,
                AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer,
                aiohttp.ClientSession(timeout=SCRAPE) as session,
            ):
                return await _Walk(worker, producer, session).ways()


class _RecordedWorker(Command):
    """``stream-metrics worker`` of a checkout, with the recorder in it."""

    def __init__(self, folder: Path, root: Path, kafka: Kafka, redis: RedisServer) -> None:
        port = free_port()
        self.socket = folder / "recorder"
        self.metrics = f"http://127.0.0.1:{port}/metrics"
        settings = {
            "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "KAFKA__TOPICS": json.dumps([TOPIC, LABELS]),
            "REDIS__URL": redis.url,
            "STATE__DIGEST_KEY": DIGEST_KEY,
            "LOG__LEVEL": "WARNING",
            "WEB__PORT": str(port),
            "KERNEL": "python",
        }
        super().__init__(
            folder,
            # -P: neither the recorder's folder nor the working directory are looked through.
            [
                sys.executable,
                "-P",
                str(RECORDER),
                str(self.socket),
                str(root),
                "stream_metrics",
                "worker",
            ],
            {
                "PYTHONPATH": str(root),
                **{f"STREAM_METRICS_{name}": value for name, value in settings.items()},
            },
            f"http://127.0.0.1:{port}/readyz",
        )

    async def ask(self, request: str) -> frozenset[Function]:
        """What the recorder answers."""
        reader, writer = await asyncio.open_unix_connection(str(self.socket), limit=2**24)
        try:
            writer.write(request.encode() + b"\n")
            return frozenset((file, line) for file, line in json.loads(await reader.readline()))
        finally:
            writer.close()


class _Walk:
    """Sends records one at a time, and records what each calls."""

    def __init__(
        self, worker: _RecordedWorker, producer: AIOKafkaProducer, session: aiohttp.ClientSession
    ) -> None:
        self._worker, self._producer, self._session = worker, producer, session
        self._sent = 0

    async def ways(self) -> Ways:
        """Record each way ``TIMES`` times."""
        await self._go(TOPIC, search("warm-up", 1))  # what happens once in a process
        await self._go(LABELS, label("warm-up"))
        events, labels = [], []
        for time_ in range(TIMES):
            conversation = f"c-{time_}"
            await self._go(TOPIC, search(conversation, 1))
            events.append(await self._go(TOPIC, search(conversation, 2)))
            labels.append(await self._go(LABELS, label(conversation)))
        await self._worker.ask("start")
        await asyncio.sleep(IDLE_SECONDS)
        await self._scrape()
        idle = await self._worker.ask("stop")
        return Ways(frozenset.intersection(*events), frozenset.intersection(*labels), idle)

    async def _go(self, topic: str, event: dict[str, Any]) -> frozenset[Function]:
        await self._worker.ask("start")
        await self._producer.send_and_wait(
            topic, json.dumps(event).encode(), key=event["conversation_id"].encode()
        )
        self._sent += 1

        async def counted() -> bool:
            return records_done(await self._scrape()) >= self._sent

        await wait_until(counted, COUNTED_SECONDS, f"/metrics has not counted a record of {topic}")
        await self._scrape()
        return await self._worker.ask("stop")

    async def _scrape(self) -> str:
        async with self._session.get(self._worker.metrics) as answer:
            answer.raise_for_status()
            return await answer.text()


def search(conversation: str, iteration: int) -> dict[str, Any]:
    """An iteration of two results; the second one repeats a result of the first."""
    found = ("handbook#travel", "handbook#expenses" if iteration == 1 else "faq#trains")
    return {
        "type": "search_iteration",
        "event_id": f"{conversation}-{iteration}",
        "occurred_at": time.time(),
        "conversation_id": conversation,
        "turn": 1,
        "iteration": iteration,
        "agent": "support",
        "searches": [
            {
                "search_id": f"s-{iteration}",
                "results": [
                    {"result_id": f"r-{iteration}-{rank}", "doc_id": document, "title": document}
                    for rank, document in enumerate(found)
                ],
            }
        ],
    }


def label(conversation: str) -> dict[str, Any]:
    """A label for a result of the first iteration."""
    return {
        "type": "relevance_labels",
        "event_id": f"{conversation}-label",
        "occurred_at": time.time(),
        "conversation_id": conversation,
        "turn": 1,
        "labels": [{"result_id": "r-1-0", "gain": 3}],
    }


def files_of(functions: Iterable[Function]) -> list[str]:
    """The files that hold some of the functions, by name."""
    return sorted({file for file, _ in functions})
