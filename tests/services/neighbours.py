"""Three services that send good traces, and a fourth that sends whatever it likes.

All send to one OpenTelemetry Collector, which writes to one topic of traces, which a bridge and
workers read. What the three are told must not depend on the fourth.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.servers import Collector
from deploy.local.waiting import wait_until
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry.otlp.payloads import OtlpDecoder
from tests.otlp import RETRIEVER, START_NS, SpanSpec, as_protobuf, documents
from tests.services.bridged import BridgedSystem
from tests.services.live import said

GOOD: Final = ("support", "shop", "desk")
HOSTILE: Final = "hostile"
SCOPE: Final = "openinference.instrumentation.langchain"
SETTINGS: Final = {
    "metrics__agents": json.dumps(GOOD),
    "metrics__turn_scope": "all",
    "otlp__max_spans": "5000",
}
REFUSED: Final = frozenset(
    ("two_scopes", "no_identity", "content_off", "no_conversation", "cycle", "time_out_of_range",
     "outside_turn", "too_large", "unrecognised", "label_other_name")
)  # fmt: skip
"""The reasons for which the bridge refuses traces of the fourth service within the settle time."""
FILES: Final = ("conversations.jsonl", "windows.json")

Spans = list[SpanSpec]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000 - START_NS // 1_000_000


class Turns:
    """Makes turns that have just ended; trace ids are numbers from a seed on."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def trace_id(self) -> int:
        """A new one."""
        return self._chance.getrandbits(126) + 1

    def turn(
        self, service: str, scope: str = SCOPE, session: str = "", searches: int = 0, **turn: Any
    ) -> Spans:
        """A turn of an agent named like its service, with some searches and repeated results."""
        chance, trace = self._chance, self.trace_id()
        searches = searches or chance.randint(1, 3)
        # Turns of one conversation that begin in the same microsecond are one turn.
        begin = (_now_ms() - 100 * searches - 50) // 2 * 2 + (service == HOSTILE)
        of: dict[str, Any] = {"scope": scope, "resource": {"service.name": service}}
        named = {"gen_ai.agent.name": service, "session.id": session or f"{service} {trace % 50}"}
        spans = [
            SpanSpec(
                trace, 1, 0, begin, begin + 100 * searches + 50,
                {"openinference.span.kind": "AGENT", **named, **turn}, **of,
            )
        ]  # fmt: skip
        for number in range(searches):
            at = begin + 10 + 100 * number
            found = documents(*chance.sample(range(12), 4), content=f"text of {service}")
            spans += [
                SpanSpec(trace, 10 + number, 1, at, at + 5, {"openinference.span.kind": "LLM"},
                         **of),
                SpanSpec(trace, 20 + number, 1, at + 10, at + 60,
                         {**RETRIEVER, **found, "input.value": f"question {chance.random()}"},
                         **of),
            ]  # fmt: skip
        return spans


@dataclass
class Hostile:
    """What the fourth service sends: each kind is a trace or several, as OTLP in protobuf."""

    turns: Turns
    sent: Counter[str] = field(default_factory=Counter)

    def kinds(self) -> dict[str, Callable[[], Sequence[Spans]]]:
        """Each kind by name; most are named after the reason for which the bridge refuses them."""
        return {
            "two_scopes": self._twice,
            "another scope": lambda: [self._turn(scope="a scope of a new release")],
            "no_identity": lambda: [
                self._changed(self._turn(), lambda a: {**RETRIEVER, **documents(*[""] * 3)})
            ],
            "content_off": lambda: [self._changed(self._turn(), lambda a: dict(RETRIEVER))],
            "no_conversation": self._disagreeing,
            "incomplete": lambda: [self._turn()[1:]],
            "endless": lambda: [self._turn()[1:] for _ in range(50)],
            "cycle": self._cycle,
            "time_out_of_range": self._in_another_century,
            "outside_turn": self._outside,
            "turn_conflict": self._conflicting,
            "too_large": self._too_large,
            "huge text": lambda: [self._turn(**{"input.value": "x" * 700_000})],
            "names": lambda: [
                self._turn(**{"gen_ai.agent.name": f"agent {self.turns.trace_id()}"})
                for _ in range(20)
            ],
            "long names": lambda: [
                self._turn(**{"gen_ai.agent.name": "n" * 5_000, "session.id": "s" * 5_000})
            ],
            "conversations of others": lambda: [
                self._turn(session=f"{service} {at}") for service in GOOD for at in range(7)
            ],
            "labels": lambda: [self._labelled()],
            "unrecognised": lambda: [
                self._changed(
                    self._turn(), lambda a: {**a, "openinference.span.kind": "VECTOR_SEARCH"}
                )
            ],
        }

    def _turn(self, **turn: Any) -> Spans:
        return self.turns.turn(HOSTILE, **turn)

    def _changed(
        self, spans: Spans, change: Callable[[Mapping[str, Any]], dict[str, Any]]
    ) -> Spans:
        return [
            replace(one, attributes=change(one.attributes)) if one.span >= 20 else one
            for one in spans
        ]

    def _twice(self) -> list[Spans]:
        spans, other = self._turn(), self.turns.trace_id()
        return [spans, [replace(one, trace=other, scope="langfuse-sdk") for one in spans]]

    def _disagreeing(self) -> list[Spans]:
        spans = self._turn(searches=2)
        return [
            [
                replace(one, attributes={**one.attributes, "session.id": f"s{one.span}"})
                for one in spans
            ]
        ]

    def _cycle(self) -> list[Spans]:
        spans = self._turn()
        return [[replace(one, parent=one.span) if one.span >= 20 else one for one in spans]]

    def _in_another_century(self) -> list[Spans]:
        spans = self._turn()
        shift = random.Random(spans[0].trace).choice([-1_500_000_000_000, 5_000_000_000_000])
        return [
            [
                replace(one, start_ms=one.start_ms + shift, end_ms=one.end_ms + shift)
                for one in spans
            ]
        ]

    def _outside(self) -> list[Spans]:
        spans = self._turn()
        lost = replace(spans[-1], span=90, parent=91)
        chain = replace(spans[0], span=91, attributes={"openinference.span.kind": "CHAIN"})
        top = replace(spans[0], span=92, attributes={})
        return [
            [top, replace(chain, parent=92), lost,
             *(replace(one, parent=92) if one.span == 1 else one for one in spans)]
        ]  # fmt: skip

    def _conflicting(self) -> list[Spans]:
        spans, other = self._turn(session="same"), self.turns.trace_id()
        return [spans, [replace(one, trace=other) for one in spans]]

    def _too_large(self) -> list[Spans]:
        spans = self._turn(searches=1)
        return [[spans[0], *(replace(spans[1], span=100 + at) for at in range(6_000)), spans[2]]]

    def _labelled(self) -> Spans:
        spans = self._turn(searches=1)
        scored = {
            "openinference.span.kind": "EVALUATOR",
            "metadata": '{"document_id": 7}',
            "score": "?",
        }
        return [*spans, replace(spans[1], span=95, attributes=scored)]


DAMAGED: Final = (
    b"\xff" * 50,
    b"",
    b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"kind": 1180591620717411303424}]}]}]}',
    b'{"resourceSpans": ' + b"[" * 3_000,
    b'{"resourceLogs": []}',
)


@dataclass
class Freshness:
    """How long after the end of a turn its service's count of turns included it, in seconds."""

    ended: dict[str, list[float]] = field(default_factory=lambda: {one: [] for one in GOOD})
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GOOD, 0))
    seconds: list[float] = field(default_factory=list)

    def observe(self, counts: Mapping[str, float], now: float) -> None:
        """Note what ``/metrics`` shows."""
        for service, count in counts.items():
            while self.seen[service] < count:
                self.seconds.append(now - self.ended[service][self.seen[service]])
                self.seen[service] += 1

    def percentile(self, share: float) -> float:
        """The seconds within which that share of the turns was seen."""
        order = sorted(self.seconds)
        return order[min(len(order) - 1, int(share * len(order)))]


@dataclass
class Outcome:
    """What was sent and seen, and what differs from a replay without the fourth service."""

    good_turns: int = 0
    hostile: Counter[str] = field(default_factory=Counter)
    refused: dict[str, float] = field(default_factory=dict)
    freshness: Freshness = field(default_factory=Freshness)
    restarts: int = 0
    rows: int = 0
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def run(
    system: BridgedSystem, collector: Collector, seed: int, seconds: float, pause: float = 0.5
) -> Outcome:
    """Send for some time, then compare; a turn of each good service every ``pause`` seconds."""
    done, turns = Outcome(), Turns(seed)
    hostile = Hostile(Turns(seed + 1))
    kinds, begun = hostile.kinds(), time.monotonic()
    bridge = await system.bridge()
    await system.start_workers(1)
    worker = system.workers[0]
    await wait_until(worker.pages, 60, worker.log_tail)
    sent, stop = asyncio.Event(), asyncio.Event()

    async def send(spans: Spans) -> int:
        return await collector.export(as_protobuf(spans))

    async def good(service: str) -> None:
        while not sent.is_set():
            spans = turns.turn(service)
            assert await send(spans) == 200, collector.log_tail()
            done.freshness.ended[service].append(time.time())
            done.good_turns += 1
            await _pause(sent, pause)

    async def fourth() -> None:
        chance = random.Random(seed)
        async with AIOKafkaProducer(bootstrap_servers=system.kafka.bootstrap_servers) as producer:
            names: list[str] = []
            while not sent.is_set():
                if not names:
                    names = list(kinds)
                    for value in DAMAGED:
                        id = f"{chance.getrandbits(100):032x}".encode()
                        for key in (None, b"a key", id):
                            await producer.send_and_wait(system.traces, value, key=key)
                    done.hostile["damaged"] += 1
                name = names.pop(chance.randrange(len(names)))
                # A trace that the Collector does not accept is no loss.
                await asyncio.gather(*(send(spans) for spans in kinds[name]()))
                done.hostile[name] += 1
                await _pause(sent, pause / 2)

    async def watch() -> None:
        while not stop.is_set():
            counts = await _turns_of([one.address for one in system.workers])
            done.freshness.observe(counts, time.time())
            await _pause(stop, 0.25)

    tasks = [asyncio.create_task(one) for one in (*map(good, GOOD), fourth())]
    watching = asyncio.create_task(watch())
    ends = begun + seconds

    def enough() -> bool:
        for task in (*tasks, watching):
            if task.done():
                task.result()
        return time.monotonic() >= ends and done.hostile.keys() >= kinds.keys()

    await wait_until(enough, seconds + 120, lambda: f"sent: {done.hostile}")
    sent.set()  # what is being sent is sent, and counted
    await asyncio.gather(*tasks)

    async def all_seen() -> bool:
        if watching.done():
            await watching
        return sum(done.freshness.seen.values()) >= done.good_turns

    await wait_until(all_seen, 120, lambda: f"{done.freshness.seen} of {done.good_turns}")
    stop.set()
    await watching
    done.restarts = len(system.bridges) - 1 + (bridge.exit_code is not None)

    async def all_refused() -> bool:
        done.refused = await _refused(bridge.address)
        return done.refused.keys() >= REFUSED

    await wait_until(all_refused, 60, lambda: f"refused: {done.refused}")
    await _compare(system, done)
    done.seconds = time.monotonic() - begun
    return done


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


async def _families(address: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as got:
        return text_string_to_metric_families(await got.text())


async def _turns_of(addresses: Sequence[str]) -> dict[str, float]:
    found = dict.fromkeys(GOOD, 0.0)
    for address in addresses:
        for family in await _families(address):
            for sample in family.samples:
                if sample.name == "streammetrics_window_turns" and sample.labels["window"] == "24h":
                    agent = sample.labels["agent"]
                    if agent in found:
                        found[agent] += sample.value
    return found


async def _refused(address: str) -> dict[str, float]:
    found: Counter[str] = Counter()
    for family in await _families(address):
        for sample in family.samples:
            if sample.name == "streammetrics_bridge_refused_total":
                found[sample.labels["reason"]] += sample.value
    return {reason: number for reason, number in sorted(found.items()) if number}


async def _compare(system: BridgedSystem, done: Outcome) -> None:
    """Compare the export of the live state with a replay of the traces of the three services."""
    log = await system.in_traces()
    alone = f"{system.traces}-alone"
    await system.kafka.create_topic(alone, 3, {"message.timestamp.type": "CreateTime"})
    now = str(time.time_ns() // 1_000 + 10_000_000)
    async with AIOKafkaProducer(bootstrap_servers=system.kafka.bootstrap_servers) as producer:
        for record in log:
            if _is_good(record):
                await producer.send(
                    alone, record.value, key=record.key, partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )  # fmt: skip
        await producer.flush()
    live, replayed = system.folder / "live", system.folder / "replayed"
    for folder, arguments in ((live, ["export"]), (replayed, ["replay", f"kafka:{alone}"])):
        code, text = await said(system, *arguments, "--out", str(folder), "--now", now)
        if code:
            raise RuntimeError(text)
    done.rows = len(_of_good(replayed, "conversations.jsonl"))
    done.differences = [name for name in FILES if _of_good(live, name) != _of_good(replayed, name)]


def _is_good(record: Record) -> bool:
    spans = OtlpDecoder().spans(record.value)
    return isinstance(spans, list) and any(
        one.resource.get("service.name") in GOOD for one in spans
    )


def _of_good(folder: Path, name: str) -> list[str]:
    """The rows, or the figures of windows, of the good agents."""
    text = (folder / name).read_text(encoding="utf-8")
    rows = (
        json.loads(text)["sums"] if name.endswith(".json") else map(json.loads, text.splitlines())
    )
    return sorted(json.dumps(row, sort_keys=True) for row in rows if row["agent"] in GOOD)
