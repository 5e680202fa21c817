"""A real Prometheus gathers evidence over its own restart; a minute of the rules is a second."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from aiohttp import web

from deploy.local.servers import Prometheus
from deploy.local.waiting import wait_until
from stream_metrics.core.alerts.evidence import CUSUM
from tests.rules.faster import FLAGS, faster
from tests.rules.past import USUAL_SECONDS, Counted, record
from tests.services.test_evidence_rules import groups

pytestmark = [pytest.mark.service, pytest.mark.long]

CALM_SECONDS: Final = 10
SECONDS: Final = 600
USUAL_SHARE: Final = 0.25
WITHIN_SECONDS: Final = 120
NET: Final = 'agent:streammetrics_arrivals:net_1m{figure="srr", part="denominator"}'
STEP: Final = "agent:streammetrics_evidence:step"
RESUMED: Final = 5  # steps
SRR: Final = '{figure="srr", shift="large"}'


class Traffic:
    """The counters of a worker, by the seconds since it began; an incident follows calm ones."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.results = rng.integers(10, 60, SECONDS)
        share = np.where(np.arange(SECONDS) < CALM_SECONDS, USUAL_SHARE, 0.45)
        self.duplicates = rng.binomial(self.results, share)
        self._began = time.monotonic()

    def arrived(self) -> int:
        """How many results have arrived by now."""
        return int(self.results[: self._now()].sum())

    def text(self) -> str:
        """What the worker exports."""
        now = self._now()
        lines = ["process_start_time_seconds 1000"]
        for count, gained in (("results", self.results), ("duplicate_results", self.duplicates)):
            total = gained[:now].sum()
            lines.append(f'streammetrics_arrived_{count}_total{{agent="a"}} {total}')
            lines.append(f'streammetrics_withdrawn_{count}_total{{agent="a"}} 0')
        return "\n".join([*lines, ""])

    def _now(self) -> int:
        return int(time.monotonic() - self._began)


@asynccontextmanager
async def worker(traffic: Traffic) -> AsyncIterator[str]:
    """The address of a server that exports the traffic."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=traffic.text())

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


def rules(folder: Path) -> Path:
    """The file with the rules of evidence, a second for each minute."""
    file = folder / "rules.json"
    file.write_text(json.dumps({"groups": faster(groups())}), encoding="utf-8")
    return file


def usual(promtool: str, data: Path) -> None:
    """What rules would have recorded of the agent in the time before."""
    rng = np.random.default_rng(4)
    results = rng.integers(10, 60, USUAL_SECONDS)
    duplicates = rng.binomial(results, USUAL_SHARE)
    record(promtool, data, {"a": Counted(results.astype(float), duplicates.astype(float))})


async def samples(prometheus: Prometheus, series: str) -> dict[float, float]:
    """All samples of a series by time."""
    answer = await prometheus.get("/api/v1/query", query=f"{series}[10m]")
    found = answer["data"]["result"]
    return {float(at): float(value) for at, value in found[0]["values"]} if found else {}


async def test_evidence_outlives_a_restart_and_nothing_counts_twice(
    promtool_path: str, tmp_path: Path
) -> None:
    """It goes on from its last value, and rises by no more than each minute's step."""
    usual(promtool_path, tmp_path / "one" / "data")
    traffic, began = Traffic(), time.time()
    async with worker(traffic) as address:
        jobs, files = {"stream-metrics": [address]}, [rules(tmp_path)]

        async with Prometheus(tmp_path / "one", jobs, rule_files=files, flags=FLAGS) as before:

            async def suspicious() -> bool:
                found = await samples(before, CUSUM + SRR)
                return bool(found) and list(found.values())[-1] > 0.3

            await wait_until(suspicious, WITHIN_SECONDS + CALM_SECONDS, "no evidence is gathered")
            stopped = time.time()
        async with Prometheus(tmp_path / "one", jobs, rule_files=files, flags=FLAGS) as after:

            async def goes_on() -> bool:
                found = await samples(after, STEP + SRR)
                return sum(at > stopped for at in found) >= RESUMED

            await wait_until(goes_on, WITHIN_SECONDS, "no evidence is added after the restart")
            evidence = await samples(after, CUSUM + SRR)
            steps = await samples(after, STEP + SRR)
            counted = await samples(after, NET)

    assert max(evidence) > stopped
    for last, now in pairwise(sorted(evidence)):
        added = max(steps.get(now, 0.0), 0.0)
        assert evidence[now] <= evidence[last] + added + 1e-9
        if last <= stopped < now:
            assert evidence[now] > 0.9 * evidence[last]
    assert steps.keys() <= counted.keys()
    assert 0 < sum(of for at, of in counted.items() if at > began) <= traffic.arrived()
