"""``python -m tests.golden SCHEMA [TABLES]``: write a new file; one that is there stays."""

from __future__ import annotations

import asyncio
import json
import sys

from tests.golden import TABLES, dump, path, written


async def _write(schema: int, tables: int = TABLES) -> None:
    found = await dump(await written(schema, tables))
    with path(schema, tables).open("x", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    asyncio.run(_write(*map(int, sys.argv[1:])))
