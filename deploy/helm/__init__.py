"""The Helm chart, and what checks it.

The folder ``stream-metrics`` has no alert rules and no dashboards: a complete chart has copies of
those of the repository. ``python -m deploy.helm FOLDER`` writes one, and everything that checks or
packages the chart does so with a complete one. Standard library only.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

CHART: Final = Path(__file__).parent / "stream-metrics"
COPIED: Final = {
    "dashboards": "grafana/dashboards/*.json",
    "rules": "deploy/prometheus/*.rules.yml",
}
"""What a complete chart has in the folders of its ``files``, by patterns in the repository."""


def write_chart(folder: Path) -> Path:
    """Write a complete chart to ``folder``, where it replaces an earlier one; returns its path."""
    chart = folder / CHART.name
    shutil.rmtree(chart, ignore_errors=True)
    shutil.copytree(CHART, chart)
    for name, pattern in COPIED.items():
        place = chart / "files" / name
        place.mkdir(parents=True)
        for path in Path(__file__).parents[2].glob(pattern):
            shutil.copy(path, place)
    return chart
