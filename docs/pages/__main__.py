"""Write the pages into a directory: ``python -m docs.pages docs/reference``."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.pages.alerts import alerts_page, runbook
from docs.pages.answers import answers_page
from docs.pages.deduplication import deduplication_page
from docs.pages.prometheus import prometheus_page
from docs.pages.ranked import ranked_page
from docs.pages.settings import settings_page
from docs.pages.turns import turns_page
from stream_metrics.core.alerts.table import ALERTS
from stream_metrics.core.contract import rendered
from stream_metrics.core.events.rejections import rejections


def pages() -> dict[str, str]:
    """The generated pages and documents, by path."""
    return {
        "metrics.md": turns_page(),
        "metrics-retrieval.md": ranked_page(),
        "metrics-answers.md": answers_page(),
        "metrics-prometheus.md": prometheus_page(),
        "deduplication.md": deduplication_page(),
        "settings.md": settings_page(),
        "alerts.md": alerts_page(),
        "rejections.md": rejections(),
        **{f"contract/{name}": text for name, text in rendered().items()},
    }


def runbooks(folder: Path) -> dict[Path, str]:
    """The runbooks of a folder, with heads as they are now."""
    paths = {alert: folder / f"{alert.name}.md" for alert in ALERTS}
    return {path: runbook(alert, path.read_text("utf-8")) for alert, path in paths.items()}


def write(folder: Path) -> None:
    """Write the pages into the folder."""
    (folder / "contract").mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    for path, text in runbooks(folder.parent / "runbooks").items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
