"""``python -m tests.golden SCHEMA [TABLES]``: write a new file; one that is there stays.

``python -m tests.golden sources`` writes ``sources.json``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.golden import SOURCES, TABLES, Stored, dump, path, with_sources, written


async def _write(schema: int, tables: int = TABLES) -> None:
    _keep(path(schema, tables), await dump(await written(schema, tables)))


async def _write_sources() -> None:
    _keep(SOURCES.with_suffix(".json"), await dump(await with_sources(1)))


def _keep(name: Path, found: Stored) -> None:
    with name.open("x", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    asyncio.run(
        _write_sources() if sys.argv[1:] == ["sources"] else _write(*map(int, sys.argv[1:]))
    )
