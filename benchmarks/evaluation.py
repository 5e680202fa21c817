"""What Prometheus needs to evaluate the rules that gather evidence, against their interval.

Four workers export counters of 50 agents, whose rules have recorded a whole day before. A real
Prometheus evaluates the rule files that ``stream-metrics rules`` writes.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import numpy as np
from aiohttp import web

from benchmarks.figures import Figure, figures_table, section
from deploy.local.servers import Prometheus, promtool
from stream_metrics.core.alerts.arrivals import COUNTS
from stream_metrics.core.alerts.evidence import CUSUM, NET, RESIDUAL, SHIFTS, WAYS
from stream_metrics.core.alerts.figures import FIGURES
from stream_metrics.core.alerts.files import rule_files

WORKERS: Final = 4
AGENTS: Final = 50
DAY_MINUTES: Final = 26 * 60
INTERVAL_SECONDS: Final = 60
GROUP: Final = "stream-metrics.evidence"


def run(*, quick: bool = False, rounds: int | None = None) -> str:
    """Measure, and return the report."""
    agents, evaluations = (5 if quick else AGENTS), rounds or (2 if quick else 5)
    seconds, series = asyncio.run(_run(agents, evaluations))
    share = [one / INTERVAL_SECONDS for one in seconds]
    figures = [
        Figure("evaluation of the group", seconds, "s"),
        Figure("  ÷ its interval of a minute", share, ""),
        Figure("series of evidence", [series], "series"),
    ]
    title = f"rules: evidence about {agents} agents of {WORKERS} workers, after a day"
    return section(title, figures_table(figures))


async def _run(agents: int, evaluations: int) -> tuple[list[float], float]:
    with tempfile.TemporaryDirectory(prefix="rules-") as place:
        folder = Path(place)
        files = [folder / name for name in rule_files()]
        for file, text in zip(files, rule_files().values(), strict=True):
            file.write_text(text, encoding="utf-8")
        _record_a_day(folder, agents)
        async with AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(_worker(number, agents))
                for number in range(WORKERS)
            ]
            jobs = {"stream-metrics": workers}
            prometheus = await stack.enter_async_context(
                Prometheus(folder / "prometheus", jobs, rule_files=files, interval="15s")
            )
            return await _watch(prometheus, agents, evaluations)


async def _watch(
    prometheus: Prometheus, agents: int, evaluations: int
) -> tuple[list[float], float]:
    """How long each evaluation took, from the first on in which all agents are judged."""
    found: dict[str, float] = {}
    while True:
        await asyncio.sleep(INTERVAL_SECONDS / 4)
        judged = await prometheus.query(f"count({CUSUM})")
        series = float(judged[0]["value"][1]) if judged else 0.0
        if series < agents * len(FIGURES) * len(SHIFTS):
            continue
        answer = await prometheus.get("/api/v1/rules", type="record")
        (group,) = (one for one in answer["data"]["groups"] if one["name"] == GROUP)
        found[group["lastEvaluation"]] = group["evaluationTime"]
        if len(found) == evaluations:
            return list(found.values()), series


def _record_a_day(folder: Path, agents: int) -> None:
    """Back-fill what the rules would have recorded in a day and two hours."""
    now = int(time.time()) // 60 * 60
    minutes = range(now - 60 * DAY_MINUTES, now, 60)
    samples, data = folder / "day.om", folder / "prometheus" / "data"
    with samples.open("w", encoding="utf-8") as file:
        for name in (NET, RESIDUAL):
            file.write(f"# TYPE {name} gauge\n")
            for labels, values in _recorded(name, agents, len(minutes)):
                file.writelines(
                    f"{name}{{{labels}}} {value} {at}\n"
                    for at, value in zip(minutes, values.tolist(), strict=True)
                )
        file.write("# EOF\n")
    data.mkdir(parents=True)
    subprocess.run(
        [promtool(), "tsdb", "create-blocks-from", "openmetrics", "--quiet", samples, data],
        capture_output=True, check=True,
    )  # fmt: skip
    samples.unlink()


def _recorded(
    name: str, agents: int, minutes: int
) -> Iterator[tuple[str, np.ndarray[tuple[int], np.dtype[np.float64]]]]:
    rng = np.random.default_rng(1)
    for agent in range(agents):
        for figure in FIGURES:
            labels = f'job="stream-metrics",agent="agent-{agent}",figure="{figure.name}"'
            below = rng.poisson(20.0, minutes).astype(float)
            if name == RESIDUAL:
                if figure.model is not None:
                    yield labels, rng.normal(size=minutes)
                continue
            yield f'{labels},part="numerator"', rng.binomial(below.astype(int), 0.3).astype(float)
            yield f'{labels},part="denominator"', below
            yield f'{labels},part="active"', (below > 0).astype(float)


@asynccontextmanager
async def _worker(number: int, agents: int) -> AsyncIterator[str]:
    """The address of a page with the counters of a worker, which grow all the time."""
    began = time.time()

    async def metrics(_: web.Request) -> web.Response:
        gained = int(10 * (time.time() - began))
        lines = [f"process_start_time_seconds {began}"]
        for agent in range(agents):
            for place, count in enumerate(COUNTS):
                for way in WAYS:
                    value = gained * (1 + place % 3) if way == "arrived" else 0
                    name = f"streammetrics_{way}_{count}_total"
                    lines.append(f'{name}{{agent="agent-{agent}"}} {value}')
        return web.Response(text="\n".join([*lines, ""]))

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
