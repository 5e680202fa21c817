"""Judges as processes, on a real Kafka and an endpoint with faults."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.kafka.cluster import Kafka
from deploy.local.waiting import wait_until
from stream_metrics.core.judge.budget import PICOS
from stream_metrics.core.judge.sample import Sampler
from tests.canaries import Canaries
from tests.forked import COMMAND
from tests.judged import drawn, turn_events, wanted, written
from tests.model_endpoint import FAULTS, ModelEndpoint, model_endpoint
from tests.services.live import LEFT_OVER, Worker, recorded, run_command

KEY = "a secret of the tests"
PARTITIONS = 6
SETTLE_SECONDS = 1
ROUND_SECONDS = 1  # more than a judge takes to look at turns that are due


class JudgeProcess(Worker):
    """``stream-metrics judge``, serving HTTP on a free port."""

    def __init__(self, folder: Path, name: str, environment: Mapping[str, str]) -> None:
        super().__init__(folder, name, environment)
        self._environment = {**environment, "STREAM_METRICS_JUDGE__PORT": str(self.port)}

    def command(self) -> list[str]:
        """The documented command."""
        return [*COMMAND, "judge"]

    async def metrics(self) -> str:
        """What it exports."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.address}/metrics") as answer,
        ):
            return await answer.text()

    async def sample(self, name: str) -> float:
        """The sample of a series, named with its labels; 0 if there is none."""
        found = [line for line in (await self.metrics()).splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in found)


@dataclass
class JudgedSystem:
    """Input topics, and the judges that read them."""

    kafka: Kafka
    folder: Path
    name: str
    endpoint: ModelEndpoint
    settings: dict[str, str] = field(default_factory=dict)
    judges: list[JudgeProcess] = field(default_factory=list)
    sent: int = 0

    @property
    def topics(self) -> tuple[str, str]:
        """The topics of searches and labels."""
        return f"{self.name}-searches", f"{self.name}-labels"

    @property
    def environment(self) -> dict[str, str]:
        """The settings of judges."""
        searches, labels = self.topics
        return {
            "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "STREAM_METRICS_KAFKA__TOPICS": f'["{searches}", "{labels}"]',
            "STREAM_METRICS_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "STREAM_METRICS_KAFKA__HEARTBEAT_INTERVAL_MS": "500",
            "STREAM_METRICS_STATE__DIGEST_KEY": KEY,
            "STREAM_METRICS_JUDGE__URL": self.endpoint.url,
            "STREAM_METRICS_JUDGE__KEY": "planted-key-of-the-endpoint",
            "STREAM_METRICS_JUDGE__MODEL": "m",
            "STREAM_METRICS_JUDGE__RATE": "1.0",
            "STREAM_METRICS_JUDGE__START": "earliest",
            "STREAM_METRICS_JUDGE__SETTLE": f"{SETTLE_SECONDS}s",
            "STREAM_METRICS_JUDGE__TIMEOUT_SECONDS": "1",
            "STREAM_METRICS_JUDGE__CALLS_PER_MINUTE": "100000",
            "STREAM_METRICS_JUDGE__ATTEMPTS": "50",
            "STREAM_METRICS_JUDGE__CONCURRENCY": "8",
            "STREAM_METRICS_JUDGE__INPUT_PRICE": "2.0",
            "STREAM_METRICS_JUDGE__OUTPUT_PRICE": "8.0",
            "STREAM_METRICS_JUDGE__GROUP_ID": f"{self.name}-judge",
            "STREAM_METRICS_JUDGE__BUDGET_TOPIC": f"{self.name}-budget",
            **self.settings,
        }

    async def judge(self) -> JudgeProcess:
        """Start a judge, and wait until it serves HTTP or has exited."""
        name = f"{self.name}-judge-{len(self.judges)}"
        one = JudgeProcess(self.folder, name, self.environment)
        one.launch()
        self.judges.append(one)

        async def there() -> bool:
            return one.exit_code is not None or await one.pages()

        await wait_until(there, 60, one.log_tail)
        return one

    async def send(self, events: list[dict[str, Any]]) -> None:
        """Send events to the topic of searches."""
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for event in events:
                key = event["conversation_id"].encode()
                await producer.send(self.topics[0], json.dumps(event).encode(), key=key)
            await producer.flush()
        self.sent += len(events)

    async def labels(self) -> dict[tuple[str, int, str], int]:
        """The labels in the topic."""
        return written(await recorded(self.kafka, self.topics[1:]))

    async def wanted(self) -> dict[tuple[str, int, str], int]:
        """The labels that must be there in the end."""
        records = await recorded(self.kafka, self.topics[:1])
        return wanted(records, Sampler(KEY.encode()), 1.0, 8_000)

    async def finished(self, within_seconds: float = 120) -> None:
        """Wait until all documents have their labels."""

        async def done() -> bool:
            assert all(one.exit_code in (None, -9) for one in self.judges), self.logs()
            return await self.labels() == expected

        expected = await self.wanted()
        await wait_until(done, within_seconds, self.logs)

    def logs(self) -> str:
        """What the judges say."""
        return "\n".join(one.log_tail() for one in self.judges)

    def kill_all(self) -> None:
        """Kill every judge."""
        for one in self.judges:
            one.kill9()


async def judged(
    kafka: Kafka, folder: Path, endpoint: ModelEndpoint, **settings: str
) -> JudgedSystem:
    """A system without judges."""
    name = f"judged-{random.randrange(10**9)}"
    named = {f"STREAM_METRICS_JUDGE__{key.upper()}": value for key, value in settings.items()}
    system = JudgedSystem(kafka, folder, name, endpoint, named)
    for topic in system.topics:
        await kafka.create_topic(topic, PARTITIONS)
    return system


def conversations(first: int, count: int, seed: int = 1) -> list[dict[str, Any]]:
    """The events of some conversations of now."""
    chance, now = random.Random(seed + first), time.time()
    found: list[dict[str, Any]] = []
    for number in range(first, first + count):
        found += turn_events(f"c{number}", 1, now, chance)
    return found


async def test_three_judges_with_kills_label_exactly_and_within_the_budget(
    kafka: Kafka, tmp_path: Path
) -> None:
    """Judges come, are killed and come back while calls meet faults: each document has its label
    in the end, and no budget is exceeded by the endpoint's own count."""
    with model_endpoint(misfortunes=FAULTS, share=0.15) as endpoint:
        system = await judged(
            kafka,
            tmp_path,
            endpoint,
            calls_per_minute="600",
            tokens_per_day="2000000",
            money_per_day="20",
        )
        for _ in range(3):
            await system.judge()

        def has_asked(since: int) -> bool:
            return len(endpoint.calls) > since

        for wave in range(4):
            before = len(endpoint.calls)
            await system.send(conversations(wave * 15, 15))
            await wait_until(partial(has_asked, before), 60, system.logs)
            system.judges[wave].kill9()
            await system.judge()
        await system.finished(240)
        assert endpoint.busiest(60) <= 600
        assert endpoint.cost.tokens <= 2_000_000
        assert endpoint.cost.picos <= 20 * PICOS
        system.kill_all()


async def test_judges_stop_together_when_the_day_is_spent(kafka: Kafka, tmp_path: Path) -> None:
    """Each kill leaves calls in flight that nobody settles: they stay in the budget, which is used
    for most of what it allows and never exceeded. A judge that comes later asks nothing."""
    with model_endpoint(misfortunes=FAULTS, share=0.1) as endpoint:
        tokens = 60_000
        system = await judged(kafka, tmp_path, endpoint, tokens_per_day=str(tokens))
        for _ in range(3):
            await system.judge()
        await system.send(conversations(0, 40))
        for number in range(2):
            least = 20 * (number + 1)
            await wait_until(partial(_called, endpoint, least), 60, system.logs)
            system.judges[number].kill9()
            await system.judge()

        async def spent() -> bool:
            alive = [one for one in system.judges if one.exit_code is None and await one.pages()]
            return bool(alive) and all(
                [
                    await one.sample("streammetrics_judge_incomplete_until_timestamp_seconds") > 0
                    for one in alive
                ]
            )

        await wait_until(spent, 120, system.logs)
        assert tokens / 3 < endpoint.cost.tokens <= tokens
        calls = len(endpoint.calls)
        late = await system.judge()
        await system.send(conversations(100, 5))
        await wait_until(partial(_decided, system, time.time()), 60, system.logs)
        assert len(endpoint.calls) == calls
        await wait_until(partial(_drawn, system, 45), 30, system.logs)
        assert "the budget of the day is spent" in late.log_tail()
        labels, expected = await system.labels(), await system.wanted()
        assert labels.items() <= expected.items()
        turns = {at[:2] for at in labels}
        assert {at for at in expected if at[:2] in turns} == labels.keys(), "turns are whole"
        system.kill_all()


async def _drawn(system: JudgedSystem, turns: int) -> bool:
    """Whether the labels say of so many turns that they are in the sample."""
    return len(drawn(await recorded(system.kafka, system.topics[1:]))) == turns


async def _decided(system: JudgedSystem, until: float) -> bool:
    """Whether all turns that were sent up to a time are due and have an outcome."""
    alive = [one for one in system.judges if one.exit_code is None]
    complete = "streammetrics_judge_complete_until_timestamp_seconds"
    spent = 'streammetrics_judge_turns_total{outcome="budget"}'
    settled = until + SETTLE_SECONDS + ROUND_SECONDS
    return sum([await one.sample(spent) for one in alive]) > 0 and all(
        [
            await one.sample(complete) > settled
            and await one.sample("streammetrics_judge_due_turns") == 0
            for one in alive
        ]
    )


@pytest.mark.long
async def test_no_minute_has_more_calls_than_all_judges_may_make(
    kafka: Kafka, tmp_path: Path
) -> None:
    """Three judges with enough to ask make just as many, and then wait; one that comes instead of
    a killed one makes none."""
    with model_endpoint() as endpoint:
        system = await judged(kafka, tmp_path, endpoint, calls_per_minute="30")
        for _ in range(3):
            await system.judge()
        await system.send(conversations(0, 40))
        await wait_until(partial(_called, endpoint, 30), 60, system.logs)
        system.judges[0].kill9()
        late = await system.judge()
        await wait_until(late.ready, 60, late.log_tail)
        assert len(endpoint.calls) == 30
        first = min(call.at for call in endpoint.calls)
        await wait_until(partial(_called, endpoint, 35), 90, system.logs)
        assert endpoint.busiest(60) <= 30
        assert sorted(call.at for call in endpoint.calls)[30] - first >= 60
        system.kill_all()


def _called(endpoint: ModelEndpoint, times: int) -> bool:
    return len(endpoint.calls) >= times


async def test_texts_are_in_no_topic_log_or_metric_of_a_judge(kafka: Kafka, tmp_path: Path) -> None:
    """But in the topic that had them."""
    canaries = Canaries()
    with model_endpoint(misfortunes=FAULTS, share=0.3) as endpoint:
        system = await judged(kafka, tmp_path, endpoint)
        one = await system.judge()
        events = conversations(0, 3)
        await system.send([canaries.planted(e, e["conversation_id"]) for e in events])
        await wait_until(lambda: _some(system), 90, system.logs)
        topics = (system.topics[1], f"{system.name}-budget")
        stored = b"".join((r.key or b"") + (r.value or b"") for r in await recorded(kafka, topics))
        metrics = (await one.metrics()).encode()
        told = (stored, metrics, one.log_tail().encode())
        handles = ("conversation_id", "result_id", "search_id", "event_id", "agent", "release")
        assert canaries.found(b"".join(told), allowed=handles) == set()
        assert b"planted-key" not in b"".join(told)
        assert await one.stop() == 0
        said = one.log.read_text()
        assert not any(sign in said for sign in LEFT_OVER), said


async def _some(system: JudgedSystem) -> bool:
    return len({at[0] for at in await system.labels()}) == 3


async def test_what_prevents_a_judge_is_said(kafka: Kafka, tmp_path: Path) -> None:
    """Before it asks anything."""
    with model_endpoint() as endpoint:
        system = await judged(kafka, tmp_path, endpoint)
        await kafka.create_topic(f"{system.name}-budget", 3)
        code, _, said = await run_command(system.environment, "judge", "--web-port", "0")
        assert (code, "must have one" in said) == (2, True)
        environment = {**system.environment, "STREAM_METRICS_JUDGE__MODEL": ""}
        code, _, said = await run_command(environment, "judge")
        assert (code, "set judge.model" in said) == (2, True)
