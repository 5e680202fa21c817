"""The window history of a replay, backfilled into a real Prometheus."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local.servers import Prometheus
from stream_metrics.lab.traffic import TrafficProfile
from tests.helpers import wait_until

pytestmark = pytest.mark.service

MINUTE_US = 60_000_000
NAMED = (
    'label_replace({__name__=~"streammetrics_window_.+"}, '
    '"name", "$1", "__name__", "streammetrics_window_(.+)")'
)
QUERY = f"sum without (instance, job) ({NAMED})"


def run(*arguments: str) -> None:
    """Run one of our commands, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "stream_metrics", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def make_blocks(promtool_path: str, text: Path, data: Path) -> None:
    """Import the text into the data folder of a Prometheus that is not running."""
    made = subprocess.run(
        [promtool_path, "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert made.returncode == 0, made.stderr


Sums = dict[tuple[tuple[str, str], ...], int]


def sums_of(rows: Sequence[dict[str, Any]]) -> Sums:
    """Nonzero sums, by their labels."""
    return {
        tuple(sorted((k, v) for k, v in row.items() if k != "value")): row["value"] for row in rows
    }


async def queried(prometheus: Prometheus, at_us: int) -> Sums:
    """Nonzero sums in Prometheus at a time, by their labels."""
    answer = await prometheus.get("/api/v1/query", query=QUERY, time=str(at_us // 1_000_000))
    return sums_of(
        [
            {**series["metric"], "value": int(float(series["value"][1]))}
            for series in answer["data"]["result"]
            if float(series["value"][1])
        ]
    )


async def test_backfilled_history_equals_the_windows(tmp_path: Path, promtool_path: str) -> None:
    """At any time of a replay, backfilled blocks have the sums of ``windows.json`` at that time."""
    recording, report = tmp_path / "day.jsonl", tmp_path / "report"
    run("generate", "--conversations", "150", "--hours", "5", "--out", str(recording))
    run("replay", str(recording), "--out", str(report))
    run("backfill", str(report))
    prometheus = Prometheus(
        tmp_path / "prometheus", flags=["--storage.tsdb.retention.time=100y"], interval="15s"
    )
    data = prometheus.folder / "data"
    data.mkdir(parents=True)
    make_blocks(promtool_path, report / "openmetrics.txt", data)
    start_us = TrafficProfile().start * 1_000_000 // MINUTE_US * MINUTE_US

    async with prometheus:
        await wait_until(lambda: queried(prometheus, start_us + 60 * MINUTE_US), 30, "no blocks")
        for minutes in (7, 61, 180, 299):
            at_us = start_us + minutes * MINUTE_US
            run("replay", str(recording), "--now", str(at_us), "--out", str(tmp_path / "then"))
            document = json.loads((tmp_path / "then" / "windows.json").read_text())
            expected = sums_of(document["sums"])
            assert len(expected) > 50
            assert await queried(prometheus, at_us) == expected, f"after {minutes} minutes"
