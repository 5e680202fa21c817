"""State as each schema stores it: files that stay for ever, and whatever writes and reads them.

``records.jsonl`` is the input: some conversations, of which every second one has UUIDs for ids, one
that is forgotten, and one that expires. ``schema-N.json`` is the state partition that a worker
makes of it which writes schema N, as hexadecimal digits, under the deduplication tables of then
(``TABLES``). ``tables-N.json`` is that of the oldest schema under tables N. ``sources.json`` is
that of ``sources.jsonl``: labels of people and of a model, with random samples.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from stream_metrics.core.alerts.minutes import keeps_minutes
from stream_metrics.core.dedup.tables import DedupRules, published
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import BatchWrite, ConversationWrite, Position, Written
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import PartitionOptions
from stream_metrics.live.worker.ownership.generations import admit, begin
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.property.test_partition import once

FOLDER: Final = Path(__file__).parent
RECORDS: Final = FOLDER / "records.jsonl"
SOURCES: Final = FOLDER / "sources.jsonl"
TOPIC: Final = "events"
TTL_MS: Final = 86_400_000
KINDS: Final = ("agents", "routes")
KEYS: Final = {"k": b"secret"}
TABLES: Final = 1

Stored = dict[str, Any]


def path(schema: int, tables: int = TABLES) -> Path:
    """The file of a schema, or of later tables."""
    return FOLDER / (f"schema-{schema}.json" if tables == TABLES else f"tables-{tables}.json")


def config(tables: int = TABLES) -> EngineConfig:
    """The engine under these tables."""
    of_number = published()[tables]
    return EngineConfig(rules=DedupRules(types=of_number.types, tables=of_number))


def records(file: Path = RECORDS) -> list[Record]:
    """The input."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [
        Record(each["value"].encode(), each["key"].encode(), each["timestamp"], TOPIC, 0, number)
        for number, each in enumerate(map(json.loads, lines))
    ]


def identity(schema: int) -> Identity:
    """Of a worker that writes a schema."""
    return Identity("group", schema, "fingerprint", {TOPIC: 1})


def options(schema: int, tables: int = TABLES) -> PartitionOptions:
    """What that worker is started with."""
    return PartitionOptions(identity(schema), config(tables), "k", KEYS, DEFAULT_WINDOWS)


async def owner(
    store: MemoryStore, schema: int, token: bytes, tables: int = TABLES
) -> StatePartition:
    """That worker, which has just claimed the partition."""
    shared = options(schema, tables)
    partition = StatePartition(
        0, shared, store, MemoryDeadLetters(), ConversationCache(1_000),
        SharedNames(store, shared), NoTelemetry(), token,
    )  # fmt: skip
    start = {TOPIC: Position(0)}
    partition.adopt(await store.claim(0, token, start))
    return partition


async def written(schema: int, tables: int = TABLES) -> MemoryStore:
    """The state that a worker makes of the input, the oldest conversation expired."""
    store = MemoryStore()
    await begin(store, identity(schema), 0)
    partition = await owner(store, schema, b"owner", tables)
    sent = records()
    await partition.process(sent, once)
    oldest = min([c.last_record_ms async for _, c in store.conversations(0)])
    await partition.expire(oldest + 1 + TTL_MS, once)
    return store


async def with_sources(schema: int) -> MemoryStore:
    """The state of a worker that has read ``sources.jsonl``; nothing is expired."""
    store = MemoryStore()
    await begin(store, identity(schema), 0)
    partition = await owner(store, schema, b"owner")
    await partition.process(records(SOURCES), once)
    return store


async def dump(store: MemoryStore) -> Stored:
    """A partition as it is kept in a file; without minutes of arrival, which are no part of a
    schema: older releases ignore them."""
    state, layout = await store.describe(0), await store.layout()
    assert layout.in_force is not None
    conversations: Stored = {}
    async for key, parts in store.conversations(0):
        [only] = await store.load(0, [(key, True)], hot=False)
        conversations[key.hex()] = {
            "last_record_ms": parts.last_record_ms,
            "hot": _hexed(parts.hot),
            "fingerprints": _hexed(only.fingerprints or {}),
        }
    buckets = await store.buckets(0)
    return {
        "schema": layout.in_force.identity.schema_version,
        "positions": {
            topic: [p.offset, p.last_timestamp_ms, p.last_digest.hex(), p.record_time_ms,
                    p.event_time_us]
            for topic, p in state.positions.items()
        },
        "names": {kind: sorted(layout.names.get(kind, ())) for kind in KINDS},
        "buckets": [
            [*place, data.hex()]
            for place, data in sorted(buckets.items()) if not keeps_minutes(place[0])
        ],
        "conversations": dict(sorted(conversations.items())),
    }  # fmt: skip


async def stored(schema: int) -> MemoryStore:
    """A store with what the file of a schema holds."""
    return await stored_in(read(path(schema)), schema)


def read(file: Path) -> Stored:
    """What a file holds."""
    found: Stored = json.loads(file.read_text(encoding="utf-8"))
    return found


async def stored_in(found: Stored, schema: int) -> MemoryStore:
    """A store with what a file of that schema holds."""
    assert found["schema"] == schema
    return await restored(found, identity(schema))


async def restored(found: Stored, built: Identity) -> MemoryStore:
    """A store with what ``dump`` gave, of a partition with that identity."""
    store = MemoryStore()
    positions = {
        topic: Position(offset, stamp, bytes.fromhex(digest), record_ms, event_us)
        for topic, (offset, stamp, digest, record_ms, event_us) in found["positions"].items()
    }
    await begin(store, built, 0)
    await store.claim(0, b"file", positions)
    for kind, names in found["names"].items():
        await admit(store, kind, names, (), 50)
    conversations = [
        ConversationWrite(
            bytes.fromhex(key),
            _bytes(parts["hot"]),
            _bytes(parts["fingerprints"]),
            parts["last_record_ms"],
        )
        for key, parts in found["conversations"].items()
    ]
    buckets = {
        (window, bucket, agent): bytes.fromhex(data)
        for window, bucket, agent, data in found["buckets"]
    }
    batch = BatchWrite(0, b"file", b"file", {}, {}, conversations, dict(buckets))
    assert await store.write(batch) == Written()
    return store


def _hexed(parts: dict[bytes, bytes]) -> dict[str, str]:
    return {name.hex(): part.hex() for name, part in sorted(parts.items())}


def _bytes(parts: dict[str, str]) -> dict[bytes, bytes | None]:
    return {bytes.fromhex(name): bytes.fromhex(part) for name, part in parts.items()}
