"""``python -m tests.compiled F``: the digest of a state partition after recorded records.

F has pickled records. The output is JSON with the form of the engine and the digest of all state.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import pickle
import sys
from pathlib import Path

from benchmarks.inprocess import InProcess
from stream_metrics.core.engine import step
from stream_metrics.core.events.record import Record
from stream_metrics.live.worker.options import conversation_key


async def digest(records: list[Record]) -> str:
    """The digest of the stored windows and conversations."""
    path = await InProcess().open()
    await path.process(records)
    ids = {name for name in map(_conversation, records) if name is not None}
    keys = sorted(map(conversation_key, ids))
    stored = await path.store.load(0, [(key, True) for key in keys])
    buckets = await path.store.buckets(0)
    windows = path.partition.windows.windows
    assert {window for window, _, _ in buckets} > {window.name for window in windows}
    said = [
        *[
            (sorted(parts.hot.items()), sorted((parts.fingerprints or {}).items()))
            for parts in stored
        ],
        sorted(buckets.items()),
    ]
    return hashlib.sha256(repr(said).encode()).hexdigest()


def _conversation(record: Record) -> str | None:
    try:
        return str(json.loads(record.value or b"")["conversation_id"])
    except (KeyError, TypeError, ValueError):
        return None


def main() -> None:
    """Digest the records of a file."""
    records = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301
    print(
        json.dumps(
            {"engine": Path(str(step.__file__)).suffix, "state": asyncio.run(digest(records))}
        )
    )


if __name__ == "__main__":
    main()
