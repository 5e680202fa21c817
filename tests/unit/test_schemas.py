"""The stored format: every published schema can be read, and is still written byte for byte."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import structs
from pydantic import ValidationError

from stream_metrics.cli.settings import Settings
from stream_metrics.core.dedup.tables import published
from stream_metrics.core.engine.codec import (
    SCHEMAS,
    UnknownSchema,
    decode_sums,
    encode_sums,
    stored_header,
)
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.readers.audit import AuditOptions, audit
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.ownership.identity import OtherIdentity, check_identity
from tests.golden import (
    SOURCES,
    TABLES,
    TOPIC,
    config,
    dump,
    identity,
    owner,
    path,
    read,
    records,
    stored,
    stored_in,
    with_sources,
    written,
)
from tests.property.test_partition import once
from tests.unit.test_audit import never

STATE_WITH_SOURCES = SOURCES.with_suffix(".json")


async def shown(store: MemoryStore) -> tuple[list[str], str]:
    """Rows and windows of a state whose sums are consistent."""
    found = await audit(store, AuditOptions(config(), DEFAULT_WINDOWS), never)
    assert (found.differences, found.unreadable, found.busy) == ([], [], [])
    export = await export_state(store, config(), DEFAULT_WINDOWS, "all")
    return [canonical(row) for row in export.rows], canonical(export.windows_document(None))


def unordered(dumped: dict[str, Any]) -> dict[str, Any]:
    """A state whose buckets have their sums in one order, without the names that were given.

    Both depend on how records were put together: sums stand as they came, and an agent is named
    that a turn had for a while.
    """
    found: dict[str, Any] = json.loads(json.dumps(dumped))
    del found["names"]
    for bucket in found["buckets"]:
        sums = decode_sums(bytes.fromhex(bucket[-1]))
        bucket[-1] = encode_sums(dict(sorted(sums.items()))).hex()
    return found


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_a_schema_is_still_written_byte_for_byte(schema: int) -> None:
    """The same input gives the bytes of the file; a difference needs a new schema."""
    expected = json.loads(path(schema).read_text(encoding="utf-8"))

    assert unordered(await dump(await written(schema))) == unordered(expected)


@pytest.mark.parametrize("tables", [number for number in published() if number != TABLES])
async def test_state_under_later_tables_is_still_written_byte_for_byte(tables: int) -> None:
    """A difference needs the next tables."""
    expected = json.loads(path(SCHEMAS[0], tables).read_text(encoding="utf-8"))

    assert unordered(await dump(await written(SCHEMAS[0], tables))) == unordered(expected)


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_a_schema_is_still_read(schema: int) -> None:
    """The file gives the same rows and windows as its input does now, and is consistent."""
    store = await stored(schema)

    assert await shown(store) == await shown(await written(SCHEMAS[-1]))


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("found", SCHEMAS)
async def test_a_worker_continues_with_any_schema(schema: int, found: int) -> None:
    """Events that are in the file count only once, and others count, whichever schema it writes."""
    later = [
        structs.replace(r, offset=r.offset + 1_000, value=_after(r.value))
        for r in records()
        if r.value and b'"search_iteration"' in r.value
    ]
    again = [structs.replace(r, offset=r.offset + 500) for r in records()]
    stores = await stored(found), await written(1)
    for store, writes in zip(stores, (schema, 1), strict=True):
        partition = await owner(store, writes, b"next")
        await partition.process(again, once)
        await partition.process(later, once)

    assert await shown(stores[0]) == await shown(stores[1])


def _after(value: bytes | None) -> bytes:
    """The same event in another turn."""
    event = json.loads(value or b"")
    return json.dumps({**event, "event_id": event["event_id"] + "x", "turn": 9}).encode()


async def test_short_ids_make_the_state_smaller() -> None:
    """The state of conversations with UUIDs is smaller by a third."""
    sizes = []
    for schema in (1, 2):
        found = json.loads(path(schema).read_text(encoding="utf-8"))["conversations"]
        largest = max(found.values(), key=lambda parts: sum(map(len, parts["hot"].values())))
        sizes.append(sum(map(len, largest["hot"].values())))

    assert sizes[1] < sizes[0] * 2 / 3


async def test_labels_by_source_are_still_written_byte_for_byte() -> None:
    """The same input gives the bytes of the file; a difference needs a new schema."""
    expected = read(STATE_WITH_SOURCES)

    assert unordered(await dump(await with_sources(1))) == unordered(expected)


async def test_labels_by_source_are_still_read() -> None:
    """The file gives the rows and windows of its input, and goes on as the input does."""
    stores = await stored_in(read(STATE_WITH_SOURCES), 1), await with_sources(2)
    later = [
        structs.replace(r, offset=r.offset + 1_000, value=_after(r.value))
        for r in records(SOURCES)
        if r.value and b'"forget"' not in r.value
    ]

    first = [await shown(store) for store in stores]
    for store in stores:
        partition = await owner(store, 1, b"next")
        await partition.process(later, once)

    assert first[0] == first[1]
    assert await shown(stores[0]) == await shown(stores[1])
    assert first[0] != await shown(stores[0])


async def test_only_conversations_with_sources_have_the_third_schema() -> None:
    """An earlier release reads all others, and says of these that a later one wrote them."""
    store = await with_sources(1)

    schemas = {}
    async for _, parts in store.conversations(0):
        header = stored_header(parts.hot)
        schemas[header.conversation_id] = header.schema
    assert schemas == {"both": 3, "drawn": 3, "people": 1, "forgotten": 1, "waiting": 3}


async def test_labels_of_a_model_that_come_to_stored_state_change_its_schema() -> None:
    """An event without any label does not, whoever sent it, and leaves the stored bytes alone."""
    store = await written(2)
    before = await dump(store)
    found = next(r for r in records() if r.value and b'"search_iteration"' in r.value)
    sent = json.loads(found.value or b"") | {"type": "relevance_labels", "source": "model"}
    empty = sent | {"event_id": "empty", "labels": []}
    label = sent | {"event_id": "label", "labels": [{"result_id": "any", "gain": 1}]}
    partition = await owner(store, 2, b"next")

    async def send(body: dict[str, Any]) -> None:
        offset = partition.positions[TOPIC].offset
        record = structs.replace(found, value=json.dumps(body).encode(), offset=offset)
        await partition.process([record], once)

    await send(empty)
    unchanged = await dump(store)
    await send(label)
    await send(label | {"event_id": "again", "occurred_at": label["occurred_at"], "turn": 2})

    assert unchanged["conversations"] == before["conversations"]
    schemas = {
        header.schema
        async for _, parts in store.conversations(0)
        if (header := stored_header(parts.hot)).conversation_id == sent["conversation_id"]
    }
    assert schemas == {3}


def test_a_conversation_of_a_later_schema_is_refused() -> None:
    """It is refused before it is decoded, and the error says which schemas can be read."""
    header = msgspec.msgpack.encode((4, "c", "k", None))

    with pytest.raises(UnknownSchema, match="schema 4; this release reads 1, 2 and 3"):
        stored_header({b"c": header})


def test_state_of_a_later_schema_is_refused() -> None:
    """The error has the remedy: the later release can write a schema that this one reads."""
    later = Identity("group", 3, "fingerprint", {TOPIC: 1})

    with pytest.raises(OtherIdentity, match=r"schema 3, .* 1 and 2.*state\.write_schema=2"):
        check_identity(later, identity(1))


def test_the_older_schema_is_written_by_default() -> None:
    """The previous release can then continue with the state of this one."""
    assert Settings.model_validate({}).state.write_schema == SCHEMAS[-2]


def test_the_schema_is_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value is text; one that this release cannot write is refused."""
    monkeypatch.setenv("STREAM_METRICS_STATE__WRITE_SCHEMA", "2")
    assert Settings().state.write_schema == 2

    monkeypatch.setenv("STREAM_METRICS_STATE__WRITE_SCHEMA", "3")
    with pytest.raises(ValidationError):
        Settings()


def test_the_written_schema_is_not_part_of_the_state() -> None:
    """Workers that write different schemas share the state."""
    later = Settings.model_validate({"state": {"write_schema": 2}})

    assert later.fingerprint() == Settings.model_validate({}).fingerprint()
