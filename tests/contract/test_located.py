"""Which conversations are in the state, as `forget` shows them before it asks for confirmation."""

from __future__ import annotations

from stream_metrics.cli.forget import located
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters
from stream_metrics.live.ports import Position, StateStore
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.property.test_partition import TOPIC, once, options
from tests.unit.test_forget import forget
from tests.unit.test_state_partition import NOON_S, search


async def hold(store: StateStore, number: int, *conversations: str, forgotten: str = "") -> None:
    """Let a partition read a search of each conversation, then a forget of ``forgotten``."""
    shared = options()
    partition = StatePartition(
        number, shared, store, MemoryDeadLetters(), ConversationCache(100),
        SharedNames(store, shared), NoTelemetry(), b"token",
    )  # fmt: skip
    partition.adopt(await store.claim(number, b"token", {TOPIC: Position(0)}))
    sent = [search(name, 1, NOON_S, "a")[:2] for name in conversations]
    if forgotten:
        sent.append(forget(forgotten))
    await partition.process(
        [
            Record(value, key, NOON_S * 1000, TOPIC, number, offset)
            for offset, (key, value) in enumerate(sent)
        ],
        once,
    )


async def test_conversations_are_found_on_every_partition(store: StateStore) -> None:
    """One conversation may be on several, where producers choose partitions differently."""
    await hold(store, 0, "both", "one")
    await hold(store, 1, "both")

    found = await located(store, ["one", "both", "none"])

    assert found == {"one": [0], "both": [0, 1], "none": []}


async def test_a_forgotten_conversation_is_not_found(store: StateStore) -> None:
    """Its tombstone is stored, but no data."""
    await hold(store, 0, "gone", "there", forgotten="gone")

    assert await located(store, ["gone", "there"]) == {"gone": [], "there": [0]}


async def test_more_conversations_than_one_call_takes_are_all_found(
    store: StateStore,
) -> None:
    """Their position in the list does not matter."""
    await hold(store, 0, "first", "last")

    found = await located(store, ["first", *map(str, range(2_500)), "last"])

    assert [name for name, numbers in found.items() if numbers] == ["first", "last"]
    assert len(found) == 2_502


async def test_an_empty_namespace_has_no_conversations(store: StateStore) -> None:
    """Each conversation still has an answer."""
    assert await located(store, ["c"]) == {"c": []}
