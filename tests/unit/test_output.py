"""The messages on the output topic about a conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import Row, canonical, conversation_rows
from stream_metrics.core.engine.state import Conversation
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.live.health import Health
from stream_metrics.live.memory import (
    MemoryDeadLetters,
    MemoryOutput,
    MemoryOutputs,
    MemoryStore,
    MemoryTopic,
)
from stream_metrics.live.ports import BatchWrite, Position, WriteResult
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.partition import PartitionLost, StatePartition
from stream_metrics.live.worker.retry import RetryPolicy
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_state_partition import DAY_MS, NOON_S, search

Sent = tuple[bytes, bytes, int]


def label(conversation: str, number: int, at_s: int, result_id: str, gain: int | None) -> Sent:
    """A label of one result."""
    return event(
        {
            "type": "relevance_labels",
            "event_id": f"l-{number}",
            "occurred_at": at_s,
            "conversation_id": conversation,
            "turn": 1,
            "labels": [{"result_id": result_id, "gain": gain}],
        }
    )


def forget(conversation: str, at_s: int) -> Sent:
    """A forget."""
    return event(
        {
            "type": "forget",
            "event_id": "f-1",
            "occurred_at": at_s,
            "conversation_id": conversation,
        }
    )


def event(content: dict[str, Any]) -> Sent:
    """Key, value and timestamp of an event."""
    key = content["conversation_id"].encode()
    return key, json.dumps(content).encode(), content["occurred_at"] * 1000


class DyingStore(MemoryStore):
    """A store whose owner crashes before its next write, if told to."""

    dies = False

    async def write(self, batch: BatchWrite) -> WriteResult:
        """Raise instead of writing."""
        if self.dies:
            self.dies = False
            raise ConnectionAbortedError
        return await super().write(batch)


class Scene:
    """State partition 0 of a group, and its output topic."""

    def __init__(self, **changes: Any) -> None:
        self.store, self.topic = DyingStore(), MemoryTopic()
        self.letters = MemoryDeadLetters()
        self.changes = changes
        self.owner: StatePartition
        self.output: MemoryOutput

    async def take_over(self) -> None:
        """Let a new process become the owner."""
        self.output = MemoryOutputs(self.topic).of(0)
        self.owner = await opened(self.store, self.letters, 1_000, self.output, **self.changes)

    async def read(self, *sent: Sent, at: int | None = None) -> None:
        """Process one batch at the owner's position."""
        first = self.owner.positions[TOPIC].offset if at is None else at
        records = [Record(v, k, t, TOPIC, 0, first + n) for n, (k, v, t) in enumerate(sent)]
        await self.owner.process(records, once)

    async def die_before_write(self, *sent: Sent) -> None:
        """Crash during a batch after its rows were sent; then create a new owner."""
        self.store.dies = True
        with pytest.raises(ConnectionAbortedError):
            await self.read(*sent)
        await self.take_over()

    @property
    def values(self) -> list[Any]:
        """The decoded messages."""
        return [m.value if m.value is None else json.loads(m.value) for m in self.topic.messages]

    async def same_as_export(self) -> bool:
        """Whether both kinds of readers end with the rows of the store."""
        export = await export_state(self.store, EngineConfig(), DEFAULT_WINDOWS, "last")
        expected = {row["conversation_id"]: canonical(row).encode() for row in export.rows}
        return all(
            {name: m.value for name, m in kept.items() if m.value is not None} == expected
            for kept in (self.topic.largest(), self.topic.compacted())
        )


@pytest.fixture
async def scene() -> Scene:
    """A scene with an owner."""
    made = Scene()
    await made.take_over()
    return made


async def test_a_changed_row_is_sent_once_per_batch(scene: Scene) -> None:
    """Two events of one conversation in a batch give one message, with the row of an export."""
    await scene.read(search("c", 1, NOON_S, "a"), search("c", 2, NOON_S + 1, "a", "b"))

    assert [m.conversation_id for m in scene.topic.messages] == ["c"]
    assert [row["results"] for row in scene.values] == [3]
    assert await scene.same_as_export()


async def test_invalid_records_send_nothing(scene: Scene) -> None:
    """They belong to no conversation."""
    await scene.read(search("c", 1, NOON_S, "a"))
    await scene.read((b"c", b"junk", NOON_S * 1000))

    assert len(scene.topic.messages) == 1


@pytest.mark.parametrize(
    "again", [search("c", 1, NOON_S, "a"), search("c", 2, NOON_S - 2, "b"), forget("c", NOON_S - 1)]
)
async def test_events_that_change_nothing_send_the_row_again(scene: Scene, again: Sent) -> None:
    """These are redelivered, or come late for a forget; an owner that was replaced may have told
    of them without what came since."""
    await scene.read(forget("c", NOON_S - 1), search("c", 1, NOON_S, "a"))
    await scene.read(again)

    first, second = scene.topic.messages
    assert first.value == second.value
    assert first.version < second.version


async def test_a_conversation_without_a_turn_sends_nothing(scene: Scene) -> None:
    """Waiting labels give no message until their result comes."""
    await scene.read(label("c", 1, NOON_S, "1-0", 3))
    assert scene.values == []

    await scene.read(search("c", 1, NOON_S, "a"))
    assert [row["gain"] for row in scene.values] == [3]


async def test_a_late_label_sends_the_row_again(scene: Scene) -> None:
    """The row with the label follows the row without it, with a higher version."""
    await scene.read(search("c", 1, NOON_S, "a"))
    await scene.read(label("c", 1, NOON_S + 60, "1-0", 4))

    assert [row["gain"] for row in scene.values] == [0, 4]
    first, second = scene.topic.messages
    assert first.version < second.version


async def test_forgetting_sends_null(scene: Scene) -> None:
    """A forgotten conversation gets null; newer events start it again."""
    await scene.read(search("c", 1, NOON_S, "a"))
    await scene.read(forget("c", NOON_S + 1))
    assert scene.values[1:] == [None]

    await scene.read(search("c", 2, NOON_S + 2, "a", "b"))
    assert scene.values[-1]["results"] == 2
    assert await scene.same_as_export()


async def test_a_forget_of_a_conversation_on_another_partition_sends_nothing(scene: Scene) -> None:
    """A forget is on every partition.

    Where the conversation is unknown nothing is sent, so that no newer row of its own partition is
    lost.
    """
    await scene.read(forget("c", NOON_S))
    await scene.read(forget("c", NOON_S))

    assert scene.topic.messages == []


async def test_a_row_sent_before_a_crash_is_retracted(scene: Scene) -> None:
    """The row was sent but the state not written; the next owner reads the forget first and sends
    null."""
    await scene.die_before_write(search("c", 1, NOON_S, "a"))
    await scene.read(forget("c", NOON_S + 1))
    await scene.read(search("c", 1, NOON_S, "a"))

    assert scene.values[-1] is None
    assert await scene.same_as_export()


async def test_an_unchanged_row_is_sent_after_a_crash(scene: Scene) -> None:
    """The row with a label was sent but the state not written.

    Then the label comes with its withdrawal, so the row is unchanged, but the topic has the label's
    row.
    """
    await scene.read(search("c", 1, NOON_S, "a"))
    await scene.die_before_write(label("c", 1, NOON_S + 1, "1-0", 4))
    await scene.read(label("c", 1, NOON_S + 1, "1-0", 4), label("c", 2, NOON_S + 2, "1-0", None))

    assert [row["gain"] for row in scene.values] == [0, 4, 0]
    assert await scene.same_as_export()


async def test_expiry_sends_nothing(scene: Scene) -> None:
    """The last row of a conversation stays on the topic until later events replace it."""
    await scene.read(search("c", 1, NOON_S, "a", "b"))
    await scene.owner.expire(NOON_S * 1000 + DAY_MS + 1, once)
    assert len(scene.topic.messages) == 1

    await scene.read(search("c", 2, NOON_S + 90_000, "a"))
    assert [row["results"] for row in scene.values] == [2, 1]


async def test_with_turn_scope_all_a_message_has_every_row() -> None:
    """It is the list of the conversation's rows."""
    scene = Scene(turn_scope="all")
    await scene.take_over()
    key, value, stamp = search("c", 2, NOON_S + 1, "b")
    second = json.dumps({**json.loads(value), "turn": 2}).encode()

    await scene.read(search("c", 1, NOON_S, "a"), (key, second, stamp))

    assert [[row["turn"] for row in rows] for rows in scene.values] == [[1, 2]]


async def test_a_replaced_owner_sends_nothing_more(scene: Scene) -> None:
    """An owner that paused during a takeover neither sends nor writes."""
    await scene.read(search("c", 1, NOON_S, "a"))
    asleep = scene.owner
    await scene.store.claim(0, b"another", {TOPIC: Position(0)})
    await MemoryOutputs(scene.topic).of(0).begin()

    key, value, stamp = search("c", 2, NOON_S, "b")
    with pytest.raises(PartitionLost, match="fenced"):
        await asleep.process([Record(value, key, stamp, TOPIC, 0, 1)], once)

    assert len(scene.topic.messages) == 1


async def test_an_owner_fenced_by_mistake_continues(scene: Scene) -> None:
    """If a process that does not own the partition initialises its transactions, the owner
    initialises them again."""
    await scene.read(search("c", 1, NOON_S, "a"))
    await MemoryOutputs(scene.topic).of(0).begin()

    await scene.read(search("c", 2, NOON_S, "b"))

    assert [row["results"] for row in scene.values] == [1, 2]


async def test_a_successor_replaced_before_its_first_row_sends_nothing() -> None:
    """A worker pauses between its claim and its first row while another takes over.

    On resuming it checks the owner and stops.
    """
    scene = Scene()
    await scene.take_over()
    asleep = scene.owner
    await scene.store.claim(0, b"another", {TOPIC: Position(0)})

    key, value, stamp = search("c", 1, NOON_S, "a")
    with pytest.raises(PartitionLost, match="fenced"):
        await asleep.process([Record(value, key, stamp, TOPIC, 0, 0)], once)

    assert scene.topic.messages == []


async def test_the_batch_waits_for_an_unavailable_topic(scene: Scene) -> None:
    """The reason is shown; afterwards both row and state are written."""
    health = Health(reasons={})
    seen: list[dict[str, str]] = []

    class Watched(RetryPolicy):
        async def pause(self, seconds: float) -> None:
            seen.append(dict(health.reasons))
            scene.topic.available = len(seen) == 3

    scene.topic.available = False
    key, value, stamp = search("c", 1, NOON_S, "a")
    retry = Watched(health, lambda: None)
    await scene.owner.process([Record(value, key, stamp, TOPIC, 0, 0)], retry)

    assert [list(reasons) for reasons in seen] == [["output"]] * 3
    assert health.reasons == {}
    assert await scene.same_as_export()


async def test_a_bug_in_a_row_rejects_its_event(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event becomes a dead letter, and the conversation is unchanged."""

    def failing(conversation: Conversation, scope: str) -> list[Row]:
        rows = conversation_rows(conversation, scope)
        if rows and rows[0]["results"] > 1:
            raise ZeroDivisionError("a bug of the test's")
        return rows

    await scene.read(search("c", 1, NOON_S, "a"))
    monkeypatch.setattr("stream_metrics.live.worker.output.conversation_rows", failing)
    await scene.read(search("c", 2, NOON_S + 1, "b"), search("d", 1, NOON_S, "a"))
    monkeypatch.undo()

    assert [letter.reason for letter in scene.letters.letters] == ["internal_error"]
    assert [row["conversation_id"] for row in scene.values] == ["c", "d"]
    assert await scene.same_as_export()


async def test_without_an_output_topic_no_row_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing rows costs nothing then."""

    def expensive(*_: object) -> list[Row]:
        raise AssertionError("a row was made")

    monkeypatch.setattr("stream_metrics.live.worker.output.conversation_rows", expensive)
    owner = await opened(MemoryStore(), MemoryDeadLetters(), 1_000)
    key, value, stamp = search("c", 1, NOON_S, "a")

    await owner.process([Record(value, key, stamp, TOPIC, 0, 0)], once)
