"""A worker without servers, by settings, and its state as JSON from one process to the other."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any, Final

import msgspec

from stream_metrics.cli.options import identity, partition_options, settings_for_state
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.record import Record
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import Position
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.ownership.generations import begin, generation_to_join
from stream_metrics.live.worker.ownership.identity import OtherIdentity
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.golden import TOPIC, dump, restored
from tests.property.test_partition import once

COUNTS: Final = {TOPIC: 1}
TYPES: Final = ("LaterType", "Forum", "File")
State = dict[str, Any]


def records(first: int) -> list[Record]:
    """A conversation: of each type two results that only share the id of a space."""
    event = {
        "type": "search_iteration",
        "event_id": f"e{first}",
        "occurred_at": 1_718_020_800 + first,
        "conversation_id": f"c{first}",
        "turn": 1,
        "iteration": 1,
        "searches": [
            {
                "search_id": "s",
                "results": [
                    {
                        "result_id": f"{kind}-{number}",
                        "entity_type": kind,
                        "ids": {"space_id": kind},
                    }
                    for kind in TYPES
                    for number in range(2)
                ],
            }
        ],
    }
    value = json.dumps(event).encode()
    key = str(event["conversation_id"]).encode()
    return [Record(value, key, 1_718_020_800_000 + first, TOPIC, 0, first)]


async def worked(settings: Settings, store: MemoryStore, first: int) -> None:
    """Let a worker with these settings read the conversation at the offset ``first``."""
    layout = await store.layout()
    if (
        generation_to_join(
            layout, lambda built: identity(settings_for_state(settings, built), COUNTS)
        )
        is None
    ):
        await begin(store, identity(settings, COUNTS), 0)
    built = (await store.layout()).in_force
    assert built is not None
    settings = settings_for_state(settings, built.identity)
    options = replace(partition_options(settings), identity=identity(settings, COUNTS))
    partition = StatePartition(
        0, options, store, MemoryDeadLetters(), ConversationCache(1_000),
        SharedNames(store, options), NoTelemetry(), b"owner",
    )  # fmt: skip
    start = {TOPIC: Position(0)}
    partition.adopt(await store.claim(0, b"owner", start))
    await partition.process(records(first), once)


async def told(settings: Settings, store: MemoryStore) -> State:
    """What there is to know of the state, with all its bytes."""
    generation = (await store.layout()).in_force
    assert generation is not None
    built = generation.identity
    found = settings_for_state(settings, built)
    config, specs = found.engine_config(), found.metrics.window_specs()
    export = await export_state(store, config, specs, "all")
    return {
        "tables": found.dedup.in_force().number,
        "rows": list(export.rows),
        "dump": await dump(store),
        "identity": msgspec.to_builtins(built),
    }


async def read(state: State) -> MemoryStore:
    """The store of which ``told`` has told."""
    return await restored(state["dump"], msgspec.convert(state["identity"], Identity))


async def _new() -> State:
    store = MemoryStore()
    await worked(Settings(), store, 0)
    return await told(Settings(), store)


async def _go_on(state: State, number: int) -> State:
    """Go on with the state by default, and try to with other tables."""
    store, refusal = await read(state), ""
    try:
        explicit = Settings.model_validate({"dedup": {"tables": number}})
        await worked(explicit, store, 1)
    except OtherIdentity as refused:
        refusal = str(refused)
    await worked(Settings(), store, 1)
    return {**await told(Settings(), store), "refusal": refusal}


def main(number: int) -> None:
    """Do what the command line asks for, and print the state."""
    if sys.argv[1:] == ["on"]:
        print(json.dumps(asyncio.run(_go_on(json.load(sys.stdin), number))))
    else:
        print(json.dumps(asyncio.run(_new())))
