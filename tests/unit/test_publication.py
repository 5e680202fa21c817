"""What a worker publishes for a generation that is being built, and after its switch."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs

from stream_metrics.core.engine.codec import stored_header
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import Row, conversation_rows
from stream_metrics.core.engine.state import Conversation, DamagedState
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import DeadLetter, Origin, Record
from stream_metrics.live.layout import Generation, Identity
from stream_metrics.live.memory import (
    MemoryDeadLetters,
    MemoryOutputs,
    MemoryStore,
    MemoryTopic,
)
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationKey,
    ConversationWrite,
    PartitionState,
    Position,
    StateStore,
    StoredConversation,
    StoreUnavailable,
    Superseded,
)
from stream_metrics.live.worker.ownership.announce import Announcement, AnnouncementScope, Announcer
from stream_metrics.live.worker.ownership.generations import begin, change
from stream_metrics.live.worker.ownership.switch import announced
from stream_metrics.live.worker.ownership.takeover import NotPrepared
from stream_metrics.live.worker.ownership.tombstones import CARRIED, carry
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.publication import Publication, belongs
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.property.test_partition import IDENTITY, TOPIC, once, opened
from tests.unit.test_state_partition import NOON_S, search

NEW = replace(IDENTITY, fingerprint="new")


async def two() -> tuple[MemoryStore, Generation, Generation]:
    """A namespace with a generation in force and one being built."""
    space = MemoryStore()
    old = await begin(space, IDENTITY, 0)
    building = (await change(space, lambda now: now.registered(NEW, "b2", 1))).building
    assert building is not None
    return space, old, building


async def switched(space: MemoryStore) -> Generation:
    """Put the built generation in force."""
    await change(space, lambda now: now.switched(2, 5))
    found = (await change(space, lambda now: now.unmuted(2))).in_force
    assert found is not None
    return found


class Damaged:
    """A store in which these partitions of a generation, the first by default, are unreadable, as
    in Redis with offsets that are not numbers and lists of another type."""

    def __init__(
        self,
        inner: Any,
        number: int = 0,
        partitions: Collection[int] = (0, 1),
        damaged: int = 1,
    ) -> None:
        self._inner = inner
        self._number = number
        self._partitions = partitions
        self._damaged = damaged

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def generation(self, generation: Generation) -> Any:
        """See ``StateStore.generation``."""
        found = self._inner.generation(generation)
        return Damaged(found, generation.number, self._partitions, self._damaged)

    async def describe(self, partition: int) -> PartitionState:
        """See ``StateStore.describe``."""
        if self._number == self._damaged and partition in self._partitions:
            raise DamagedState("offsets")
        found: PartitionState = await self._inner.describe(partition)
        return found

    async def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """See ``StateStore.conversations``; the first one is read before the damage."""
        async for found in self._inner.conversations(partition):
            yield found
            if self._number == self._damaged and partition in self._partitions:
                raise DamagedState("a list")


def letter(offset: int, topic: str = TOPIC, partition: int = 0) -> DeadLetter:
    """A letter of a record."""
    return DeadLetter(Record(b"bad", b"k", 1, topic, partition, offset), "not_json", "it is none")


def offsets(letters: MemoryDeadLetters) -> list[int]:
    """The offsets of the records whose letters were written."""
    return [found.record.produced.offset for found in letters.letters]


async def read_up_to(store: StateStore, offset: int, topic: str = TOPIC) -> None:
    """Let a partition have read up to this offset."""
    await store.claim(0, b"old", {topic: Position(offset)})


# -- dead letters


async def test_letters_of_records_that_were_read_are_not_written_again() -> None:
    """The generation in force wrote them before it moved its offset; all others are new."""
    space, old, building = await two()
    await read_up_to(space.generation(old), 5)
    letters = MemoryDeadLetters()

    await Publication(space, building, letters, None).letters.send([letter(4), letter(5)])

    assert offsets(letters) == [5]


async def test_letters_are_written_if_the_old_offsets_are_unreadable() -> None:
    """A build often repairs damaged state, so it must not halt."""
    space, old, building = await two()
    await read_up_to(space.generation(old), 5)
    letters, store = MemoryDeadLetters(), cast(StateStore, Damaged(space))

    await Publication(store, building, letters, None).letters.send([letter(4), letter(5)])

    assert offsets(letters) == [4, 5]


async def test_the_old_offsets_are_read_again_as_they_advance() -> None:
    """This happens as soon as a record is after the known ones."""
    space, old, building = await two()
    state, letters = space.generation(old), MemoryDeadLetters()
    await read_up_to(state, 5)
    muted = Publication(space, building, letters, None)
    await muted.letters.send([letter(7)])
    await state.wipe(0)
    await state.wipe(0)
    await read_up_to(state, 9)

    await muted.letters.send([letter(8)])

    assert offsets(letters) == [7]


async def test_a_copy_counts_by_the_offset_of_its_record() -> None:
    """The new generation reads an internal topic, and the old one the input itself."""
    space, old, building = await two()
    await read_up_to(space.generation(old), 5)
    letters = MemoryDeadLetters()
    copies = [
        structs.replace(
            letter(1_000 + offset, "internal", 3).record, origin=Origin(TOPIC, 0, offset, b"k")
        )
        for offset in (4, 5)
    ]

    sent = [DeadLetter(copy, "not_json", "it is none") for copy in copies]
    await Publication(space, building, letters, None).letters.send(sent)

    assert offsets(letters) == [5]


async def test_all_letters_of_a_new_topic_are_written() -> None:
    """No other generation has read it."""
    space, old, building = await two()
    await read_up_to(space.generation(old), 5)
    letters = MemoryDeadLetters()

    await Publication(space, building, letters, None).letters.send([letter(0, "other")])

    assert offsets(letters) == [0]


async def test_the_generation_in_force_writes_all_letters() -> None:
    """This includes records that the generation before has read, which a rewind brings again."""
    space, old, _ = await two()
    await read_up_to(space.generation(old), 5)
    letters = MemoryDeadLetters()

    await Publication(space, old, letters, None).letters.send([letter(1)])

    assert offsets(letters) == [1]


# -- rows


async def test_a_muted_worker_sends_no_rows_and_exports_no_windows() -> None:
    """It does both as soon as it is unmuted."""
    space, _, building = await two()
    topic = MemoryTopic()
    publication = Publication(space, building, MemoryDeadLetters(), MemoryOutputs(topic))
    assert publication.outputs is not None
    windows, output = [object()], publication.outputs.of(0)
    partition = await owner(
        space.generation(building), [*EVENTS[:2], forget("c1", NOON_S + 9)], output=output
    )
    assert (topic.messages, publication.windows(windows)) == ([], [])  # type: ignore[arg-type]
    assert not output.begun

    await switched(space)
    publication.muted = False
    key, value, stamp = EVENTS[3]
    await partition.process([Record(value, key, stamp, TOPIC, 0, 3)], once)

    assert [message.conversation_id for message in topic.messages] == ["c3"]
    assert publication.windows(windows) == windows  # type: ignore[arg-type]


async def test_an_output_begins_only_once_the_layout_has_been_read() -> None:
    """A worker of a retired generation that could not read it tries again, and sends nothing."""
    space, old, _ = await two()
    topic = MemoryTopic()
    outputs = Publication(space, old, MemoryDeadLetters(), MemoryOutputs(topic)).outputs
    assert outputs is not None
    way = outputs.of(0)
    await switched(space)
    space.available = False
    with pytest.raises(StoreUnavailable):
        await way.begin()
    space.available = True

    assert not way.begun
    with pytest.raises(Superseded):
        await way.begin()
    assert not outputs.of(0).begun


async def owner(
    store: StateStore, events: Sequence[tuple[bytes, bytes, int]], **options: Any
) -> StatePartition:
    """The owner of a partition that has read these events."""
    partition = await opened(store, MemoryDeadLetters(), 100, **options)
    records = [
        Record(value, key, stamp, TOPIC, 0, offset)
        for offset, (key, value, stamp) in enumerate(events)
    ]
    await partition.process(records, once)
    return partition


def forget(name: str, at_s: int) -> tuple[bytes, bytes, int]:
    """The event that erases a conversation."""
    event = {"type": "forget", "event_id": "f", "occurred_at": at_s, "conversation_id": name}
    return name.encode(), json.dumps(event).encode(), 1000 * at_s


EVENTS = [search(f"c{number}", 1, NOON_S + number, "a") for number in range(7)]


async def announced_after(
    before: Sequence[tuple[bytes, bytes, int]],
    now: Sequence[tuple[bytes, bytes, int]],
    ttl_ms: int,
    *,
    damaged: bool = False,
) -> tuple[dict[str, bytes | None], StatePartition, AnnouncementScope]:
    """Messages on the topic if the generation before had read other events."""
    space, old, building = await two()
    was: StateStore = space.generation(old)
    state, topic = space.generation(building), MemoryTopic()
    await owner(was, before)
    if damaged:
        was = cast(StateStore, Damaged(was, old.number))
    output = MemoryOutputs(topic).of(0)
    partition = await owner(state, now, output=output)
    topic.messages.clear()
    scope = AnnouncementScope(
        state, EngineConfig(), "last", ttl_ms, "mark", [(was, 0)], page_size=2
    )
    announcer = Announcer(lambda _: scope, once, NoTelemetry())
    for _ in range(20):
        await announcer.step(partition)
    return {m.conversation_id: m.value for m in topic.messages}, partition, scope


async def test_all_rows_are_announced_once() -> None:
    """They are sent page by page; once that is recorded, nothing more is sent."""
    sent, partition, _ = await announced_after(EVENTS, EVENTS, 10**9)

    assert sent.keys() == {f"c{number}" for number in range(7)}
    assert None not in sent.values()
    assert partition.marks == {"mark"}


async def test_conversations_without_a_row_any_more_get_null() -> None:
    """They were forgotten since, or the new settings reject them."""
    sent, _, _ = await announced_after(EVENTS, [*EVENTS[:5], forget("c1", NOON_S + 50)], 10**9)

    assert {name for name, value in sent.items() if value is None} == {"c1", "c5", "c6"}


async def test_all_rows_are_announced_if_the_old_state_is_damaged() -> None:
    """Rows that cannot be listed stay on the topic; the new state is not halted."""
    sent, partition, _ = await announced_after(EVENTS, EVENTS[:5], 10**9, damaged=True)

    assert {f"c{number}" for number in range(5)} <= {name for name, row in sent.items() if row}
    assert partition.marks == {"mark"}


async def test_the_last_row_of_an_expired_conversation_stays() -> None:
    """Without a build it would stay, too."""
    late = search("c9", 1, NOON_S + 5_000, "a")
    sent, _, _ = await announced_after(EVENTS, [late], 1_000_000)

    assert sent.keys() == {"c9"}


async def test_an_interrupted_announcement_starts_again() -> None:
    """The next owner of the partition sends all rows."""
    sent, partition, scope = await announced_after(EVENTS, EVENTS, 10**9)
    partition.marks.clear()
    again = Announcement(partition, scope, NoTelemetry())

    await again.step(once)

    assert len(sent) == 7
    assert not again.belongs_to(partition, "another mark")


async def test_a_conversation_that_cannot_be_announced_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug in making its row is reported; its last row stays on the topic, others are sent."""

    class Counts(NoTelemetry):
        """Keeps the bugs."""

        def bug(self, bug: Bug) -> None:
            """Keep it."""
            bugs.append(bug.kind)

    def failing(conversation: Conversation, turn_scope: str) -> list[Row]:
        if conversation.conversation_id == "c1":
            raise ZeroDivisionError
        return conversation_rows(conversation, turn_scope)

    bugs: list[str] = []
    space, _, building = await two()
    topic = MemoryTopic()
    output = MemoryOutputs(topic).of(0)
    partition = await owner(space.generation(building), EVENTS[:3], output=output)
    topic.messages.clear()
    monkeypatch.setattr("stream_metrics.live.worker.ownership.announce.conversation_rows", failing)
    scope = AnnouncementScope(
        space.generation(building), EngineConfig(), "last", 10**9, "mark", page_size=9
    )

    await Announcement(partition, scope, Counts()).step(once)

    assert {message.conversation_id for message in topic.messages} == {"c0", "c2"}
    assert [kind.partition(" at ")[0] for kind in bugs] == ["ZeroDivisionError"]
    assert partition.marks == {"mark"}


async def muted_owner(
    space: MemoryStore, topic: MemoryTopic | None = None
) -> tuple[Publication, StatePartition, Generation]:
    """The owner of a partition that is announced, whose worker is muted."""
    new = await switched(space)
    outputs = MemoryOutputs(topic or MemoryTopic())
    publication = Publication(space, new, MemoryDeadLetters(), outputs)
    assert publication.outputs is not None
    partition = await owner(space.generation(new), EVENTS[:2], output=publication.outputs.of(0))
    await partition.put([], [announced(new, ())], once)
    publication.muted = True
    return publication, partition, new


async def test_rows_that_a_muted_worker_drops_are_to_be_announced() -> None:
    """The partition is not announced any more once the batch that they belong to is written."""
    publication, partition, new = await muted_owner((await two())[0])
    key, value, stamp = EVENTS[2]

    await partition.process([Record(value, key, stamp, TOPIC, 0, 2)], once)
    publication.muted = False

    assert announced(new, partition.marks) not in partition.marks


async def test_a_muted_worker_of_an_announced_partition_erases_what_is_forgotten() -> None:
    """No announcement would, once the previous generation is purged."""
    topic = MemoryTopic()
    _, partition, _ = await muted_owner((await two())[0], topic)
    batches = [[forget("c1", NOON_S + 9), EVENTS[2]], [EVENTS[3], forget("c0", NOON_S + 9)]]

    for first, batch in zip((2, 4), batches, strict=True):
        records = [
            Record(value, key, stamp, TOPIC, 0, first + at)
            for at, (key, value, stamp) in enumerate(batch)
        ]
        await partition.process(records, once)

    sent = [(message.conversation_id, message.value) for message in topic.messages[-2:]]
    assert sent == [("c1", None), ("c0", None)]


async def test_a_muted_worker_that_drops_no_row_asks_for_none() -> None:
    """Offsets without records, and batches without messages, leave the announcement complete."""
    _, partition, new = await muted_owner((await two())[0])

    await partition.process([Record(b"bad", b"k", NOON_S * 1000, TOPIC, 0, 2)], once)
    await partition.advance({TOPIC: 9}, once)

    assert announced(new, partition.marks) in partition.marks


async def test_an_announcement_during_which_the_worker_was_muted_starts_again() -> None:
    """Its page was dropped, or a row of a conversation that it had passed."""
    space, _, _ = await two()
    publication, partition, new = await muted_owner(space)
    publication.muted = False
    scope = AnnouncementScope(
        space.generation(new), EngineConfig(), "last", 10**9, "mark", page_size=1
    )
    announcement = Announcement(partition, scope, NoTelemetry())
    await announcement.step(once)
    publication.muted = True
    await announcement.step(once)
    publication.muted = False

    assert not announcement.belongs_to(partition, "mark")


# -- tombstones


@pytest.mark.parametrize("later", [[], [search("c1", 2, NOON_S + 60, "a")]])
async def test_forgotten_conversations_stay_forgotten(
    later: list[tuple[bytes, bytes, int]],
) -> None:
    """This holds even if the log begins after the forget, and if the conversation has started
    again."""
    space, old, building = await two()
    was, state = space.generation(old), space.generation(building)
    await owner(was, [*EVENTS[:3], forget("c1", NOON_S + 50), *later])
    partition = await opened(state, MemoryDeadLetters(), 100)
    await carry(partition, [(was, 0)], old.number, "k", 1, once)
    assert partition.marks == {CARRIED}
    key, value, stamp = EVENTS[1]
    await partition.process([Record(value, key, stamp, TOPIC, 0, 0)], once)

    [(_, parts)] = [found async for found in state.conversations(0)]
    header = stored_header(parts.hot)
    assert (header.conversation_id, header.forgotten is not None) == ("", True)


async def test_a_build_halts_at_an_unreadable_conversation() -> None:
    """An unreadable conversation of the generation before may be a tombstone.

    The reason names that generation, as the one being built is not damaged.
    """
    space, old, building = await two()
    was, state = space.generation(old), space.generation(building)
    held = await owner(was, [*EVENTS[:3], forget("c1", NOON_S + 50)])
    torn = ConversationWrite(b"torn".ljust(16), {b"c": b"torn"})
    expected, after = {TOPIC: 4}, {TOPIC: Position(5)}
    await was.write(BatchWrite(0, held.token, b"torn", expected, after, [torn]))
    partition = await opened(state, MemoryDeadLetters(), 100)

    with pytest.raises(
        NotPrepared, match=r"partition 0 of generation 1, which is damaged.*give-up"
    ):
        await carry(partition, [(was, 0)], old.number, "k", 1, once)

    assert partition.marks == set()


# -- whose conversations they were

DIRECT = Identity("group", 1, "old", {"events": 2})
INTERNAL = Identity("group", 1, "new", {"internal": 3})


@pytest.mark.parametrize(
    ("other", "ours", "internal", "mine"),
    [
        (DIRECT, replace(DIRECT, fingerprint="new"), False, [True, True]),
        (DIRECT, replace(DIRECT, partition_counts={"events": 2, "labels": 2}), False, [True, True]),
        (DIRECT, INTERNAL, True, [False, True]),
        (INTERNAL, INTERNAL, True, [True, True]),
        (INTERNAL, DIRECT, False, [False, False]),
        (DIRECT, replace(DIRECT, partition_counts={"others": 2}), False, [False, False]),
    ],
)
def test_a_partition_speaks_for_no_conversation_that_may_belong_to_another_one(
    other: Identity, ours: Identity, internal: bool, mine: list[bool]
) -> None:
    """A null for a conversation that another partition has would take its row from the output
    topic."""
    found = belongs(other, ours, 1, (lambda name: int(name == b"b")) if internal else None)

    assert [found(name) for name in "ab"] == mine
