"""``python -m tests.golden N``: write the file of a new schema; one that is there stays."""

from __future__ import annotations

import asyncio
import json
import sys

from tests.golden import dump, path, written


async def _write(schema: int) -> None:
    found = await dump(await written(schema))
    with path(schema).open("x", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    asyncio.run(_write(int(sys.argv[1])))
