"""A live system that something is taken away from, and what it says of itself meanwhile.

Three brokers that deny by default, Redis, Prometheus with the shipped rules, two workers and a
bridge, with a few events and traces a second, of which some are invalid.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from playwright.async_api import Browser, Error, async_playwright, expect

from deploy.local.certificates import Authority
from deploy.local.install import chromium
from deploy.local.kafka.cluster import Kafka
from deploy.local.kafka.security import Grant, Security, grant, revoke
from deploy.local.servers import Prometheus, RedisServer
from deploy.local.stack import prometheus_config, write_rules, write_targets
from deploy.local.waiting import wait_until
from tests.services.bridged import BridgedSystem, bridged
from tests.services.live import Worker, run_command, said
from tests.services.neighbours import FILES
from tests.services.outages import BRIDGE, DIRECT, WORKER, Minute, Outage, Result, Traffic
from tests.services.secured import names_of, renamed, worker_grants

PASSWORD: Final = "a secret of the tests"
DEFAULTS: Final = {
    "kafka__session_timeout_ms": "10000",
    "kafka__heartbeat_interval_ms": "3000",
    "redis__socket_timeout_seconds": "5",
    "state__batch_records": "500",
}
"""Settings that systems of tests shorten."""


@dataclass
class Stage:
    """Servers and services, with what looks at them."""

    kafka: Kafka
    redis: RedisServer
    system: BridgedSystem
    prometheus: Prometheus
    browser: Browser
    rights: dict[str, list[Grant]]
    read: dict[str, int] = field(default_factory=dict)  # bytes of each log
    told: list[str] = field(default_factory=list)

    @property
    def services(self) -> dict[str, Worker]:
        """Workers and bridge by name."""
        first, second = self.system.workers
        return {"worker 1": first, "worker 2": second, "bridge": self.system.bridges[0]}

    def lost(self, outage: Outage) -> tuple[str, Grant] | None:
        """The user and the right that an outage takes."""
        if outage.right is None:
            return None
        operation, kind, suffix = outage.right
        [user] = outage.whose
        wanted = Grant(operation, kind, f"{self.system.group}{suffix}")
        assert wanted in self.rights[user], f"{wanted} is not needed"
        return user, wanted

    async def take(self, outage: Outage) -> None:
        """Begin the outage."""
        for number in outage.brokers:
            self.kafka.brokers[number - 1].kill9()
        if outage.redis:
            self.redis.kill9()
        if lost := self.lost(outage):
            await revoke(self.kafka.bootstrap_servers, *lost)

    async def give_back(self, outage: Outage) -> None:
        """End the outage; returns once the servers answer."""
        await asyncio.gather(*(self.kafka.brokers[one - 1].start() for one in outage.brokers))
        if outage.redis:
            await self.redis.start()
        if lost := self.lost(outage):
            await grant(self.kafka.bootstrap_servers, *lost)

    async def alerts(self) -> Counter[str]:
        """The number of alerts by state, name and reason."""
        answer = await self.prometheus.get("/api/v1/alerts")
        found: Counter[str] = Counter()
        for alert in answer["data"]["alerts"]:
            of = alert["labels"]
            reason = f" ({of['reason']})" if "reason" in of else ""
            found[f"{alert['state']}: {of['alertname']}{reason}"] += 1
        return found

    async def everyone_ready(self) -> bool:
        """Whether both workers and the bridge are."""
        return all([await one.ready() for one in self.services.values()])

    async def look(self, number: int, away: bool) -> Minute:
        """Ask everything that a person on call would ask."""
        verdict, pill, tile = await self._page()
        top, code, up_to = await self._top()
        lines, sentence = self._logged()
        services = self.services
        readyz = {name: _reasons(*await one.readyz()) for name, one in services.items()}
        workers = [services["worker 1"].address, services["worker 2"].address]
        lag = {
            WORKER: await _samples(workers, "streammetrics_consumer_lag_records"),
            BRIDGE: await _samples(
                [services["bridge"].address], "streammetrics_bridge_lag_records"
            ),
        }
        return Minute(
            number, away, dict(sorted((await self.alerts()).items())), verdict, pill, tile, readyz,
            await self._bridge_page(), top, code, up_to, lines, sentence, lag,
        )  # fmt: skip

    async def _page(self) -> tuple[str, str, str]:
        """The worker's page: its verdict, its pill and its tile of the lag."""
        context = await self.browser.new_context(timezone_id="UTC")
        page = await context.new_page()
        try:
            await page.goto(f"http://{self.services['worker 1'].address}/")
            await expect(page.locator("#tile-lag .value")).to_be_visible(timeout=20_000)
            parts = ("#verdict-title", "#verdict-text", "#connection-text")
            title, text, pill = [(await page.inner_text(one)).strip() for one in parts]
            tile = await page.inner_text("#tile-lag .value")
            about = await page.inner_text("#tile-lag .about")
        except (Error, AssertionError) as error:
            return f"no page: {str(error).splitlines()[0]}", "no page", "no page"
        finally:
            await context.close()
        return f"{title}. {text}".strip(), pill, f"{tile}, {about}"

    async def _bridge_page(self) -> str:
        """The pill and the verdict of the bridge's page."""
        context = await self.browser.new_context()
        page = await context.new_page()
        try:
            await page.goto(f"http://{self.services['bridge'].address}/")
            return f"{await page.inner_text('.pill')}; {await page.inner_text('.verdict h2')}"
        except (Error, AssertionError) as error:
            return f"no page: {str(error).splitlines()[0]}"
        finally:
            await context.close()

    async def _top(self) -> tuple[str, int, float | None]:
        """What `top` says of completeness, or its error; its exit code; up to when it is."""
        wide = {"COLUMNS": "300", **self.system.environment}
        code, out, error = await run_command(wide, "top", "--limit", "1", "--pairs", "0")
        lines = (out if code == 0 else error).strip().splitlines()
        words = lines[2] if code == 0 else " ".join(" ".join(lines).split())
        until = re.search(r"complete up to (\S+ \S+Z)", words)
        if until is None:
            return words, code, None
        return words, code, datetime.strptime(until[1], "%Y-%m-%d %H:%M:%S%z").timestamp()

    def _logged(self) -> tuple[dict[str, int], str]:
        """The lines since the last look, by service, and the most frequent sentence in them."""
        numbers, said, kinds = dict[str, int](), dict[str, str](), Counter[str]()
        for name, one in self.services.items():
            text = one.log.read_bytes()[self.read.get(name, 0) :]
            self.read[name] = self.read.get(name, 0) + len(text)
            lines = text.decode("utf-8", "replace").splitlines()
            numbers[name] = len(lines)
            for line in lines:
                sentence = _sentence(line)
                kind = re.sub(r"\d+", "N", sentence)
                kinds[kind] += 1
                said.setdefault(kind, sentence)
            self.told += lines
        return numbers, said[kinds.most_common(1)[0][0]] if kinds else ""


def _reasons(status: int, body: dict[str, Any]) -> str:
    return " ".join([str(status), *sorted(body.get("reasons", {}))])


def _sentence(line: str) -> str:
    """What a line says, with the reason if it is about a wait."""
    try:
        found = json.loads(line)
        return ": ".join(str(found[part]) for part in ("event", "why") if part in found)
    except (ValueError, TypeError):
        return line


async def _samples(addresses: Iterable[str], name: str) -> list[float]:
    found = []
    for address in addresses:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"http://{address}/metrics") as answer,
        ):
            lines = (await answer.text()).splitlines()
        found += [
            float(line.rpartition(" ")[2])
            for line in lines
            if line.partition("{")[0].partition(" ")[0] == name
        ]
    return found


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """Everything, running and ready, with all rights that the guides list."""
    security = Security(Authority(folder / "ca"), {WORKER: PASSWORD, BRIDGE: PASSWORD})
    async with (
        Kafka(folder / "kafka", brokers=3, security=security) as kafka,
        RedisServer(folder / "redis") as redis,
        async_playwright() as playwright,
    ):
        system = await bridged(kafka, redis, folder / "outage", **DEFAULTS)
        rights = _rights(system)
        common = system.settings
        for user, granted in rights.items():
            await grant(kafka.bootstrap_servers, user, *granted)
        try:
            system.settings = common | _login(kafka, security, WORKER)
            await system.start_workers(2)
            system.settings = common | _login(kafka, security, BRIDGE)
            bridge = await system.bridge()
            system.settings = common  # commands have all rights
            prometheus = Prometheus(folder / "prometheus", config=_watching(folder, system))
            browser = await playwright.chromium.launch(executable_path=chromium())
            async with prometheus, browser:
                stage = Stage(kafka, redis, system, prometheus, browser, rights)
                await wait_until(stage.everyone_ready, 120, bridge.log_tail)
                yield stage
        finally:
            for one in (*system.bridges, *system.workers):
                one.kill9()


def _rights(system: BridgedSystem) -> dict[str, list[Grant]]:
    """The rights that the guides give to workers and to the bridge."""
    events, labels = system.topics
    group = f"{system.group}-bridge"
    return {
        WORKER: renamed(worker_grants()["plain"], names_of((events, labels), system.group)),
        BRIDGE: [
            Grant("Read", "topic", system.traces),
            Grant("Read", "group", group),
            Grant("Write", "topic", f"{system.traces}.dlq"),
            *(Grant("Write", "topic", topic) for topic in system.topics),
        ],
    }


def _login(kafka: Kafka, security: Security, user: str) -> dict[str, str]:
    return {
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": kafka.secured_servers,
        "STREAM_METRICS_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "STREAM_METRICS_KAFKA__SASL_USERNAME": user,
        "STREAM_METRICS_KAFKA__SASL_PASSWORD": PASSWORD,
        "STREAM_METRICS_KAFKA__SSL_CA_FILE": str(security.authority.certificate),
    }


def _watching(folder: Path, system: BridgedSystem) -> str:
    """The configuration of Prometheus, with all rules as they are shipped."""
    workers, bridges = ([one.address for one in of] for of in (system.workers, system.bridges))
    targets, rules = folder / "targets", folder / "rules"
    write_targets(targets, workers=workers, bridges=bridges, alertmanagers=[])
    write_rules(rules, f"http://{workers[0]}/")
    return prometheus_config(targets, rules)


async def compare(system: BridgedSystem, traffic: Traffic, result: Result) -> None:
    """Add to ``result.wrong`` what was lost, or counted twice."""
    await system.interpreted(len(await system.in_traces()), 120)
    await system.counted()
    now = system.produced.last_us
    live, replayed = await system.compare(now)
    traces = system.folder / "of-traces"
    source = f"kafka:{system.traces}"
    code, text = await said(system, "replay", source, "--out", str(traces), "--now", str(now))
    if code:
        result.wrong.append(f"the replay of the traces failed: {text}")
    for name in FILES:
        if (live / name).read_bytes() != (replayed / name).read_bytes():
            result.wrong.append(f"{name} differs from a replay of the input topics")
    rows = [
        [row for row in (folder / FILES[0]).read_text().splitlines() if DIRECT not in row]
        for folder in (live, traces)
    ]
    if sorted(rows[0]) != sorted(rows[1]):
        result.wrong.append("rows differ from a replay of the traces")
    result.rows = len((live / FILES[0]).read_text().splitlines())
    code, text = await said(system, "audit")
    if code:
        result.wrong.append(f"audit: {text}")
    letters = await system.dead_letters()
    if lost := traffic.invalid - letters:
        result.wrong.append(f"{len(lost)} dead letters are missing")
    if not traffic.unsent and (more := letters - traffic.invalid):
        result.wrong.append(f"{len(more)} dead letters are of valid records")


async def run(outage: Outage, folder: Path, minutes: int, after: int) -> Result:
    """One outage of some minutes on servers of its own, and some minutes more."""
    result = Result(outage.name)
    async with staged(folder) as stage, asyncio.TaskGroup() as tasks:
        traffic = Traffic(stage.kafka, stage.system)
        sending = tasks.create_task(traffic.run(60 * (minutes + after + 5)))
        await _calm(stage)
        await stage.look(0, away=False)
        began = result.began = time.time()
        watching = tasks.create_task(_watch(stage, result))
        await stage.take(outage)
        await traffic.damaged(everywhere=True)
        for number in range(1, minutes + 1):
            await _until(began + 60 * number)
            result.minutes.append(await stage.look(number, away=True))
        await stage.give_back(outage)
        back = time.time()

        async def usual() -> bool:
            if result.ready_after is None and await stage.everyone_ready():
                result.ready_after = time.time() - back
            if result.resolved_after is None and not await stage.alerts():
                result.resolved_after = time.time() - back
            return None not in (result.ready_after, result.resolved_after)

        for number in range(1, after + 1):
            with suppress(AssertionError):
                await wait_until(usual, back + 60 * number - time.time(), "not as usual yet")
            await _until(back + 60 * number)
            result.minutes.append(await stage.look(minutes + number, away=False))
        watching.cancel()
        named = re.compile(outage.named)
        result.cause = next((_sentence(line) for line in stage.told if named.search(line)), "")
        traffic.over.set()
        await sending
        result.sent, result.unsent = traffic.sent, traffic.unsent
        for name, one in stage.services.items():
            if one.exit_code is not None:
                result.wrong.append(f"{name} ended with exit code {one.exit_code}")
        await compare(stage.system, traffic, result)
    return result


async def _calm(stage: Stage) -> None:
    """Wait until Prometheus has figures of all, nothing is alerted, and traffic is counted."""

    async def calm() -> bool:
        up = await stage.prometheus.query("sum(up) == 3")
        turns = await stage.prometheus.query("sum(streammetrics_window_turns) > 0")
        return bool(up and turns) and not await stage.alerts() and await stage.everyone_ready()

    await wait_until(calm, 180, lambda: stage.system.workers[0].log_tail())


async def _watch(stage: Stage, result: Result) -> None:
    """Note when each alert fires for the first time."""
    while True:
        for alert in await stage.alerts():
            state, _, name = alert.partition(": ")
            if state == "firing":
                result.fired.setdefault(name, time.time() - result.began)
        await asyncio.sleep(2)


async def _until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - time.time()))
