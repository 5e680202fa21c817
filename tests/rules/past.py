"""What rules on the scale of ``faster`` would have recorded before a test begins."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from stream_metrics.core.alerts.evidence import NET, RESIDUAL
from stream_metrics.core.alerts.figures import STRADDLED

USUAL_SECONDS: Final = 300
"""Long enough for the rules to know what is usual."""


class Counted(NamedTuple):
    """The results and duplicates of each second, up to now."""

    results: np.ndarray[Any, np.dtype[np.float64]]
    duplicates: np.ndarray[Any, np.dtype[np.float64]]


def record(promtool: str, data: Path, agents: Mapping[str, Counted]) -> None:
    """Give a Prometheus that has not started the series of SRR of these agents."""
    now = int(time.time())
    found: dict[str, list[str]] = {NET: [], RESIDUAL: []}
    for agent, (results, duplicates) in agents.items():
        seconds = range(now - len(results), now)
        labels = f'job="stream-metrics",agent="{agent}",figure="srr"'
        for part, values in (
            ("numerator", duplicates), ("denominator", results), ("active", results > 0)
        ):  # fmt: skip
            found[NET] += [
                f'{NET}{{{labels},part="{part}"}} {float(value)} {at}'
                for at, value in zip(seconds, values, strict=True)
            ]
        share = duplicates.sum() / results.sum()
        sums = np.convolve(duplicates - share * results, np.ones(STRADDLED), "same")
        found[RESIDUAL] += [
            f"{RESIDUAL}{{{labels}}} {value} {at}" for at, value in zip(seconds, sums, strict=True)
        ]
    lines = [line for name, of in found.items() for line in (f"# TYPE {name} gauge", *of)]
    data.mkdir(parents=True)
    samples = data.with_suffix(".om")
    samples.write_text("\n".join([*lines, "# EOF\n"]), encoding="utf-8")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(samples), str(data)],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
