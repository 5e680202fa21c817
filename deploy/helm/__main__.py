"""Write the generated files of the chart: ``python -m deploy.helm``."""

from __future__ import annotations

from pathlib import Path

from deploy.helm import CHART
from deploy.helm.schema import SCHEMA, values_schema
from stream_metrics.core.alerts.files import prometheus_rule


def files() -> dict[Path, str]:
    """The text of each generated file."""
    return {SCHEMA: values_schema(), CHART / "files" / "prometheusrule.yaml": prometheus_rule()}


def main() -> None:
    """Write every file."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
