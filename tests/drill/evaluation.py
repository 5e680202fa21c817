"""The real rule files over simulated weeks, evaluated by a real Prometheus.

``promtool`` back-fills the samples, and then what the recording rules make of them. Each alert's
expression is asked for minute by minute; only ``for`` and ``keep_firing_for`` are worked out here.
Alerts that numpy judges are left out, and so is what only they ask for, which was nearly all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from deploy.local.process import ServerFailed
from deploy.local.servers import Prometheus, promtool
from tests.drill.asked import recorded_for, without
from tests.drill.gather import ALERT_OF
from tests.drill.plan import KINDS
from tests.drill.series import WINDOW_RECORDING, Series, asked_for, window_codes, write
from tests.drill.world import MINUTE, SECOND, START_US

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "deploy" / "prometheus"
RECORDING: Final = (*WINDOW_RECORDING, RULES / "recording.rules.yml", RULES / "usual.rules.yml")
ALERTS: Final = (RULES / "alerts.rules.yml", Path(__file__).with_name("plain.rules.yml"))
PLAIN_OF: Final = {kind.alert: kind.plain for kind in KINDS}
BY_NUMPY: Final = frozenset({*ALERT_OF.values(), *map(PLAIN_OF.__getitem__, ALERT_OF.values())})
"""Alerts that numpy judges."""
OF_JUDGES: Final = frozenset({"StreamMetricsJudgeBehind", "StreamMetricsJudgeBudgetSpent"})
"""Alerts about judges, of which no world has any."""
SOURCES: Final = tuple(
    Path(__file__).with_name(f"{name}.py") for name in ("asked", "evaluation", "gather", "run")
)
"""What decides, beside rules and worlds, what fires."""

CHUNK_MINUTES: Final = 3 * 1440
POINTS: Final = 10_000  # a range query may give 11,000 a series
_FLAGS: Final = (
    "--storage.tsdb.retention.time=100y",
    "--query.timeout=10m",
    "--query.max-samples=500000000",
    "--query.lookback-delta=2m",
)


class Rule(NamedTuple):
    """An alert rule as Prometheus read it; durations in minutes."""

    name: str
    severity: str
    expression: str
    pending: int
    keep: int


class Firing(NamedTuple):
    """One alert that fired: of which rule, with which labels, in which minutes (end excluded)."""

    rule: Rule
    labels: dict[str, str]
    start: int
    end: int


def firings(rule: Rule, labels: dict[str, str], active: Iterable[int]) -> list[Firing]:
    """What Prometheus makes of the minutes in which an expression gave a series.

    >>> rule = Rule("A", "page", "up == 0", pending=2, keep=3)
    >>> [(f.start, f.end) for f in firings(rule, {}, [1, 2, 3, 4, 6, 20, 21])]
    [(3, 10)]
    """
    found: list[Firing] = []
    began = last = None
    for minute in active:
        alight = found and minute <= found[-1].end
        if last is None or (minute > last + 1 and not alight):
            began = minute
        last = minute
        assert began is not None
        if minute - began < rule.pending and not alight:
            continue
        end = minute + 1 + rule.keep
        if alight:
            found[-1] = found[-1]._replace(end=end)
        else:
            found.append(Firing(rule, labels, minute, end))
    return found


@dataclass(slots=True)
class Weeks:
    """A Prometheus that holds simulated samples of ``minutes`` minutes, in ``folder``."""

    folder: Path
    minutes: int
    _files: int = field(default=0, init=False)

    async def fill(self, series: Sequence[Series], gaps: frozenset[int] = frozenset()) -> None:
        """Back-fill samples; ``gaps`` are minutes whose scrape failed."""
        for start in range(0, self.minutes, CHUNK_MINUTES):
            part = range(start, min(self.minutes, start + CHUNK_MINUTES))
            path = self.folder / f"samples-{self._files}.om"
            self._files += 1
            write(path, series, part, gaps)
            await _promtool(
                "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=60h", "--quiet",
                str(path), str(self._data),
            )  # fmt: skip
            path.unlink()

    async def record(self) -> None:
        """Back-fill what alerts ask for, one file of rules after the other."""
        start = START_US // SECOND
        for number, text in enumerate(recording()):
            file = self.folder / f"recording-{number}.rules.yml"
            file.write_text(text, encoding="utf-8")
            async with self._prometheus() as prometheus:
                await _promtool(
                    "tsdb", "create-blocks-from", "rules", "--max-block-duration=60h", "--quiet",
                    f"--url={prometheus.url}", f"--start={start}",
                    f"--end={start + self.minutes * 60}", "--eval-interval=60s",
                    f"--output-dir={self._data}", str(file),
                )  # fmt: skip

    async def fire(self) -> tuple[list[Rule], list[Firing]]:
        """The alerts that numpy does not judge, and every time that one fires."""
        found: list[Firing] = []
        async with self._prometheus(ALERTS) as prometheus:
            rules = [
                rule for rule in await rules_of(prometheus) if rule.name not in BY_NUMPY | OF_JUDGES
            ]
            for rule in rules:
                for labels, active in await self._ask(prometheus, rule.expression):
                    found += firings(rule, labels, active)
        return rules, found

    async def _ask(
        self, prometheus: Prometheus, expression: str
    ) -> list[tuple[dict[str, str], list[int]]]:
        """The series of an expression, each with the minutes in which it is there."""
        active: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for first in range(0, self.minutes, POINTS):
            last = min(self.minutes, first + POINTS) - 1
            answer = await _get(
                f"{prometheus.url}/api/v1/query_range",
                query=expression,
                start=str((START_US + first * MINUTE) // SECOND),
                end=str((START_US + last * MINUTE) // SECOND),
                step="60",
            )
            for series in answer["data"]["result"]:
                labels = {k: v for k, v in series["metric"].items() if k != "__name__"}
                minutes = [(int(at) * SECOND - START_US) // MINUTE for at, _ in series["values"]]
                active.setdefault(tuple(sorted(labels.items())), []).extend(minutes)
        # The sides of an `or` have names of their own, but a minute is in one of them only.
        return [(dict(labels), sorted(minutes)) for labels, minutes in active.items()]

    @property
    def _data(self) -> Path:
        return self.folder / "prometheus" / "data"

    def _prometheus(self, files: Sequence[Path] = ()) -> Prometheus:
        self._data.mkdir(parents=True, exist_ok=True)
        return Prometheus(
            self.folder / "prometheus", {}, rule_files=files, interval="1h", flags=_FLAGS
        )


def alert_texts() -> list[str]:
    """The files of alerts, without those that numpy judges, and those about judges."""
    return [without(file.read_text(encoding="utf-8"), BY_NUMPY | OF_JUDGES) for file in ALERTS]


def recording() -> list[str]:
    """The files of recording rules, as far as the alerts ask for them."""
    return [text for text in recorded_for(alert_texts(), RECORDING) if text]


def recorded_codes() -> dict[str, tuple[str, ...]]:
    """By window, the codes of the sums that are recorded."""
    return window_codes(asked_for(recording()))


async def rules_of(prometheus: Prometheus) -> list[Rule]:
    """The alert rules that a Prometheus has loaded."""
    answer = await prometheus.get("/api/v1/rules", type="alert")
    return [
        Rule(
            rule["name"], rule["labels"].get("severity", ""), rule["query"],
            int(rule["duration"]) // 60, int(rule.get("keepFiringFor", 0)) // 60,
        )
        for group in answer["data"]["groups"]
        for rule in group["rules"]
    ]  # fmt: skip


async def _promtool(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        promtool(), *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=dict(os.environ),
    )  # fmt: skip
    said, _ = await process.communicate()
    if process.returncode:
        raise ServerFailed(f"promtool {' '.join(arguments)}:\n{said.decode()[-4_000:]}")


async def _get(url: str, **parameters: str) -> Any:
    timeout = aiohttp.ClientTimeout(total=900)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(url, data=parameters) as answer,
    ):
        if answer.status != 200:
            raise ServerFailed(f"{url} {parameters}: {answer.status} {await answer.text()}")
        return await answer.json()
