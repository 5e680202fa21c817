"""Write the dashboards: ``python -m deploy.dashboards``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.dashboards.boards import BOARDS
from deploy.dashboards.panels import render

FOLDER: Final = Path(__file__).parents[2] / "grafana" / "dashboards"


def files() -> Iterator[tuple[Path, str]]:
    """The file and the content of each dashboard."""
    for board in BOARDS:
        name = board.uid.removeprefix("stream-metrics-")
        text = json.dumps(render(board, BOARDS), indent=2, ensure_ascii=False)
        yield FOLDER / f"{name}.json", text + "\n"


def main() -> None:
    """Write every dashboard."""
    for path, text in files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
