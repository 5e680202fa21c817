"""The output of a worker in Prometheus' own linter."""

from __future__ import annotations

import asyncio
import subprocess

from prometheus_client import CollectorRegistry

from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.codec import encode_sums
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.engine.windows import Windows
from stream_metrics.live.health import Health
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.web import Pages

NOW_US = 1_700_000_000_000_000


def page() -> bytes:
    """A page with a series in every family."""
    registry = CollectorRegistry()
    operations = Operations(registry, topics=["search-iterations"])
    operations.lag("search-iterations", 0, 5, 0.5)
    windows = Windows()
    for window in DEFAULT_WINDOWS:
        sums = {
            "|".join((head, *("x" for _ in series.labels))): 1_000_000_007
            for head, series in CODES.items()
            if head in window.heads
        }
        windows.load(window.name, NOW_US // window.bucket_us, 'an "agent"\\', encode_sums(sums))
    pages = Pages(registry, Health(), WindowCollector(lambda: [windows], lambda: NOW_US))
    _, _, body = asyncio.run(pages.metrics_response())
    pages.close()
    return body


def test_promtool_reports_only_sums_and_counts_of_windows(promtool_path: str) -> None:
    """Names, types and help texts pass the linter.

    Gauges that end in _sum or _count are meant: they are a windowed mean's two halves, which no
    histogram or summary can carry, because those only grow.
    """
    run = subprocess.run(
        [promtool_path, "check", "metrics"],
        input=page(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    lines = run.stderr.decode().splitlines()
    lint = 'non-histogram and non-summary metrics should not have "_{}" suffix'
    meant = [
        f"streammetrics_window_{series.name} {lint.format(suffix)}"
        for series in CODES.values()
        for suffix in ("sum", "count")
        if series.name.endswith("_" + suffix)
    ]

    assert sorted(lines) == sorted(meant)
    assert run.stdout == b""
