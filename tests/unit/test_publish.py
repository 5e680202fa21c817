"""The output topic of a group whose state is moved holds the rows of the new state."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from stream_metrics.adapters.memory import MemoryOutputs, MemoryStore, MemoryTopic
from stream_metrics.ports import OnHold, OutputFenced, OutputMessage, OutputUnavailable
from stream_metrics.worker.move import Unmovable
from stream_metrics.worker.publish import Unsent, publish
from tests.fuse import Crash, Fuse, Fused
from tests.property.test_migrate import OLD, Configured, settings_with
from tests.property.test_reshard import Group, whole
from tests.unit.test_reshard import HALF, TRAFFIC
from tests.unit.test_state_partition import NOON_S, search

NEW = settings_with({"metrics": {"good_gain": 3}})


def forgotten(conversation: str) -> tuple[bytes, bytes, int]:
    """An event that erases it."""
    event = {
        "type": "forget",
        "event_id": f"f-{conversation}",
        "occurred_at": NOON_S + 500,
        "conversation_id": conversation,
    }
    return conversation.encode(), json.dumps(event).encode(), (NOON_S + 500) * 1000


async def halfway() -> Configured:
    """A group that has read half of the traffic, and has an output topic."""
    store = MemoryStore()
    store.wiped_at_once = 3
    group = Configured({"events": 2}, store, topic=MemoryTopic())
    group.send(TRAFFIC[:HALF])
    await group.read()
    return group


async def test_a_migration_sends_all_rows() -> None:
    """Those of conversations that no event comes for any more, too."""
    group = await halfway()
    assert await whole(group)

    await group.migrate(NEW)

    assert await whole(group)


@pytest.mark.slow
async def test_a_migration_that_is_cut_off_sends_all_rows_in_the_end() -> None:
    """Wherever it dies, once it has been run again the topic is whole."""
    first = await halfway()
    snapshot = first.store.snapshot()  # type: ignore[attr-defined]
    for left in count(0, 5):
        first.store.restore(snapshot)  # type: ignore[attr-defined]
        group = Configured({"events": 2}, first.store, topic=first.topic)
        group.store = Fused(first.store, Fuse(left))
        try:
            await group.migrate(NEW)
        except Crash:
            pass
        else:
            break
        group.store = first.store
        await group.migrate(NEW)
        assert await whole(group), left
    assert left > 20


def without_topic_after_switch(group: Group) -> None:
    """The output topic is away from the next switch on."""
    inner = group.store.switch

    async def switch(*arguments: Any) -> None:
        group.store.switch = inner  # type: ignore[method-assign]
        await inner(*arguments)
        assert group.topic is not None
        group.topic.available = False

    group.store.switch = switch  # type: ignore[assignment, method-assign]


async def unsent() -> Configured:
    """A group whose migration has switched, and could not send the rows."""
    group = await halfway()
    without_topic_after_switch(group)
    with pytest.raises(Unsent, match=r"in use, but some of their rows .* no worker can start"):
        await group.migrate(NEW)
    assert group.topic is not None
    group.topic.available = True
    assert not await whole(group)
    return group


@pytest.mark.slow
async def test_rows_that_were_not_sent_keep_the_workers_out() -> None:
    """They would hide that old rows stay; run again, the command sends them."""
    group = await unsent()
    assert await group.store.held_by() == "migrate"

    await group.migrate(NEW)

    assert await whole(group)
    assert await group.store.held_by() is None


async def test_another_command_sends_the_rows_that_were_not_sent() -> None:
    """Whoever takes the hold over takes that over, too, though it changes no row itself."""
    group = await unsent()

    await group.reshard({"events": 3})

    assert await whole(group)
    assert await group.store.held_by() is None


async def test_a_refusal_does_not_forget_rows_that_were_not_sent() -> None:
    """A command that has taken the hold over, and gives up, leaves it."""
    group = await unsent()

    with pytest.raises(Unmovable, match="recreated"):
        await group.reshard({"events": 1})

    assert await group.store.held_by() == "reshard"
    assert await group.store.switched()


async def test_a_topic_that_cannot_be_written_stops_a_migration_before_its_switch() -> None:
    """Then nothing has changed, and workers may start as they were."""
    group = await halfway()
    before = await group.shown()
    assert group.topic is not None
    group.topic.available = False

    with pytest.raises(OutputUnavailable) as raised:
        await group.migrate(NEW)

    assert not isinstance(raised.value, Unsent)
    group.settings = OLD
    assert await group.store.held_by() is None
    assert await group.shown() == before


async def test_a_run_that_was_taken_over_sends_nothing() -> None:
    """Workers may have written newer rows by then."""
    group = await halfway()
    assert group.topic is not None
    await group.store.hold(b"later", "migrate")
    sent = len(group.topic.messages)

    with pytest.raises(OnHold):
        await publish(
            group.store,
            b"earlier",
            MemoryOutputs(group.topic),
            group.options.engine,
            "all",
            lambda _: None,
        )

    assert len(group.topic.messages) == sent


async def test_a_reshard_sends_what_it_takes_along() -> None:
    """Rows that unread records change, and null for a conversation that they forget."""
    group = Group({"events": 2}, topic=MemoryTopic())
    group.send([search(f"c-{n}", 1, NOON_S, "a", "b") for n in range(8)])
    await group.read()
    group.send([search("c-1", 2, NOON_S + 60, "a"), search("c-2", 2, NOON_S + 60, "c")])
    group.send([forgotten("c-5")])

    await group.reshard({"events": 4})

    assert await whole(group)


async def test_nothing_of_an_earlier_worker_arrives_after_a_reshard() -> None:
    """A worker that stood still meanwhile cannot put an old row behind a newer one."""
    group = await halfway()
    assert group.topic is not None
    still = MemoryOutputs(group.topic)
    for number in (0, 1):
        await still.of(number).begin()

    await group.reshard({"events": 3})

    for number in (0, 1):
        with pytest.raises(OutputFenced):
            await still.of(number).send([OutputMessage("c", b"old")])
