"""Look at each panel of a system at work, and write the page: ``python -m tests.shown``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from deploy.local.kafka.cluster import Kafka
from tests.shown.page import PAGE, page
from tests.shown.panels import all_seen
from tests.shown.system import WITHIN_SECONDS, live_traffic, shown


def main() -> int:
    """Run it all, and write the page."""
    with tempfile.TemporaryDirectory(prefix="shown-") as folder:
        text = asyncio.run(_look(Path(folder)))
    PAGE.write_text(text, encoding="utf-8")
    return 0


async def _look(folder: Path) -> str:
    async with Kafka(folder / "kafka") as kafka, shown(kafka, folder) as watched:
        async with live_traffic(watched):
            seen = await all_seen(watched.prometheus, WITHIN_SECONDS)
        return page(seen, watched.system.total)


if __name__ == "__main__":
    sys.exit(main())
