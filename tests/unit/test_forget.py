"""The erasure by a forget event, and what remains of a forgotten conversation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stream_metrics.core.engine.codec import decode_conversation
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.state import RESULT_LABEL
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events import Limits
from stream_metrics.live.readers.audit import AuditOptions, audit
from stream_metrics.live.worker.options import conversation_key
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.property.test_forget import PARTITIONS, TOPICS, Topics
from tests.unit.test_audit import never
from tests.unit.test_state_partition import DAY_MS, NOON_S, Fed, search

SECRET = "canary-conversation"
TEXT = "canary-text"


def forget(conversation: str = SECRET, at_s: float = NOON_S + 100) -> tuple[bytes, bytes]:
    """A forget event; only the conversation's id identifies it."""
    event = {
        "type": "forget",
        "event_id": "f-1",
        "occurred_at": at_s,
        "conversation_id": conversation,
    }
    return conversation.encode(), json.dumps(event).encode()


def canary_search(
    number: int = 1, at_s: int = NOON_S, conversation: str = SECRET, **changes: Any
) -> tuple[bytes, bytes]:
    """A search in which every text is a canary."""
    results = [
        {
            "result_id": f"canary-result-{number}-{n}",
            "doc_id": f"{TEXT}-{n}",
            "title": TEXT,
            "snippet": TEXT,
            "url": f"https://example.org/{TEXT}",
        }
        for n in range(2)
    ]
    event = {
        "type": "search_iteration",
        "event_id": f"canary-event-{number}",
        "occurred_at": at_s,
        "conversation_id": conversation,
        "turn": 1,
        "iteration": number,
        "searches": [{"search_id": f"canary-search-{number}", "query": TEXT, "results": results}],
    } | changes
    return conversation.encode(), json.dumps(event).encode()


def labelled(at_s: int = NOON_S + 1) -> tuple[bytes, bytes]:
    """Labels of results, of a route and of a gate, and of items that never come."""
    event = {
        "type": "relevance_labels",
        "event_id": "canary-label",
        "occurred_at": at_s,
        "conversation_id": SECRET,
        "turn": 1,
        "labels": [{"result_id": f"canary-result-{n}-0", "gain": 3} for n in (1, 99)],
        "routing": [{"search_id": "canary-search-1", "optimal": "canary-route"}],
        "gate": [{"iteration": 1, "search_needed": True}],
    }
    return SECRET.encode(), json.dumps(event).encode()


def labels_of(name: str, at_s: int) -> tuple[bytes, bytes]:
    """A label of a result that never comes."""
    key, value = labelled(at_s)
    event = {**json.loads(value), "event_id": f"canary-label-{name}", "routing": [], "gate": []}
    event["labels"] = [{"result_id": f"canary-{name}", "gain": 1}]
    return key, json.dumps(event).encode()


def completed(turn: int = 1) -> tuple[bytes, bytes]:
    """The end of a turn."""
    event = {
        "type": "turn_completed",
        "event_id": f"canary-end-{turn}",
        "occurred_at": NOON_S + 2,
        "conversation_id": SECRET,
        "turn": turn,
        "relevant": [f"{TEXT}-0"],
    }
    return SECRET.encode(), json.dumps(event).encode()


WHOLE = (canary_search(1), canary_search(2, NOON_S + 1), labelled(), completed(), completed(turn=2))
OTHER = canary_search(conversation="another", event_id="e", searches=[], gate={"decision": "skip"})


async def filled(*sent: tuple[bytes, bytes], topic: str | None = None) -> Topics:
    """Topics, with a partition that was read after each record."""
    topics = Topics()
    for key, value in sent:
        topics.send(key, value, topic)
        await topics.read()
    return topics


async def sums(topics: Topics) -> list[dict[str, Any]]:
    """All window sums."""
    found: list[dict[str, Any]] = (await topics.export()).windows_document(None)["sums"]
    return found


async def test_a_forgotten_conversation_leaves_its_digest_and_a_version() -> None:
    """No id and no text remains in the store, nor anything in rows and windows."""
    topics = await filled(*WHOLE, OTHER, forget())

    assert b"canary" not in await topics.everything()
    assert [row["conversation_id"] for row in (await topics.export()).rows] == ["another"]
    assert await sums(topics) == await sums(await filled(OTHER, forget("nobody")))
    key = conversation_key(SECRET)
    for number in range(PARTITIONS):
        stored = [found.hot async for k, found in topics.store.conversations(number) if k == key]
        assert [list(hot) for hot in stored] == [[b"c"]]


@pytest.mark.parametrize("topic", TOPICS)
async def test_a_forget_also_applies_to_later_arrivals(topic: str) -> None:
    """On any topic, the tombstone rejects events that are not newer."""
    topics = await filled(forget(), *WHOLE, topic=topic)

    assert b"canary" not in await topics.everything()
    assert ((await topics.export()).rows, await sums(topics)) == ([], [])


async def test_a_tombstone_survives_a_restart() -> None:
    """New workers find it in the store and reject the events."""
    topics = await filled(*WHOLE, forget())
    topics.restart()
    for key, value in WHOLE:
        topics.send(key, value)
    await topics.read()

    assert b"canary" not in await topics.everything()


async def test_a_rewind_to_before_the_forget_forgets_again() -> None:
    """A store that went back has the conversation again, until the forget is read again."""
    topics = await filled(*WHOLE)
    past = topics.store.snapshot()
    for key, value in (forget(), *WHOLE):
        topics.send(key, value)
    await topics.read()
    topics.restart(past)
    assert b"canary" in await topics.everything()

    await topics.read(TOPICS[::-1])

    assert b"canary" not in await topics.everything()


async def test_newer_events_start_the_conversation_again() -> None:
    """They count, and the conversation has its id again."""
    newer = canary_search(3, NOON_S + 200)
    topics = await filled(*WHOLE, forget(), *WHOLE, newer)
    topics.restart()

    rows = (await topics.export()).rows

    assert [(row["conversation_id"], row["n"]) for row in rows] == [(SECRET, 1)]
    assert rows == (await (await filled(newer, *WHOLE, forget())).export()).rows
    assert rows == topics.replay().rows()


async def test_the_state_does_not_depend_on_the_order_of_the_forget() -> None:
    """The stored bytes are equal whether it came before or after the events."""
    newer = canary_search(3, NOON_S + 200)
    first = await filled(forget(), *WHOLE, newer)
    last = await filled(newer, *WHOLE, forget())

    assert sorted((await first.everything()).split(b"\n")) == sorted(
        (await last.everything()).split(b"\n")
    )


async def test_a_tombstone_expires_like_a_conversation() -> None:
    """A day after its last record nothing is left, and the windows are correct."""
    fed = await Fed.new()
    await fed.take(search(SECRET, 1, NOON_S, "a"), (*forget(), NOON_S * 1000))
    assert await fed.state.expire(NOON_S * 1000 + DAY_MS, once_more) == 0
    assert await fed.state.expire(NOON_S * 1000 + DAY_MS + 1, once_more) == 1

    assert [key async for key, _ in fed.store.conversations(0)] == []


async def once_more(call: Any) -> Any:
    """Call once, without retries."""
    return await call()


async def test_the_windows_are_correct_after_a_forget() -> None:
    """An audit finds the forgotten conversation subtracted from every bucket."""
    topics = await filled(*WHOLE, OTHER, forget(), canary_search(3, NOON_S + 200))

    found = await audit(topics.store, AuditOptions(EngineConfig(), DEFAULT_WINDOWS), never)

    assert (found.differences, found.unreadable, found.partitions) == ([], [], PARTITIONS)


async def test_a_turn_with_only_refused_labels_is_forgotten_too() -> None:
    """It does not keep a conversation from becoming a tombstone."""
    engine = EngineConfig(limits=replace(Limits(), waiting_labels=1))
    fed = await Fed.new(engine=engine)
    for turn in (1, 2):
        key, value = labelled()
        event = json.loads(value) | {"turn": turn, "event_id": f"l-{turn}"}
        await fed.take((key, json.dumps(event).encode(), NOON_S * 1000))
    await fed.take((*forget(), NOON_S * 1000))

    parts = [held.hot async for _, held in fed.store.conversations(0)]
    assert [list(hot) for hot in parts] == [[b"c"]]
    assert SECRET.encode() not in parts[0][b"c"]


async def test_a_forget_in_a_batch_with_too_many_labels_erases_them() -> None:
    """Waiting labels and a forget of some of them may come in one batch without a rejection."""
    engine = EngineConfig(limits=replace(Limits(), waiting_labels=2))
    fed = await Fed.new(engine=engine)
    newer = [labels_of(f"n-{n}", NOON_S + 200) for n in range(3)]
    older = [labels_of(f"o-{n}", NOON_S + 1) for n in range(2)]
    await fed.take(*((*sent, NOON_S * 1000) for sent in (*newer, *older, forget())))

    assert fed.letters.letters == []
    parts = [held.hot async for _, held in fed.store.conversations(0)]
    turn = decode_conversation(SECRET, parts[0], "k").turns[1]
    assert sorted(turn.winners[RESULT_LABEL]) == ["canary-n-0", "canary-n-1"]
    assert turn.refused == 3, "when the last of them came, two were there already"


class Counting(NoTelemetry):
    """Adds up observations."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def observe(self, observations: Any) -> None:
        """Add the observations."""
        for name, n in observations.counts.items():
            self.counts[name] = self.counts.get(name, 0) + n


async def test_a_forget_on_another_partition_is_no_key_mismatch() -> None:
    """Only events that belong to one partition show that a producer hashes keys differently."""
    counting = Counting()
    fed = await Fed.new(partitioner=lambda _: 7, telemetry=counting)

    await fed.take((*forget(), NOON_S * 1000))
    assert counting.counts.get("partitioner_mismatches", 0) == 0

    await fed.take(search("elsewhere", 1, NOON_S, "a"))
    assert counting.counts["partitioner_mismatches"] == 1


async def test_a_report_counts_a_forgotten_event_once() -> None:
    """Six records of one forget count as six records and one forget."""
    topics = await filled(*WHOLE, OTHER, forget())

    found = topics.replay().outcome()

    assert found.events == len(WHOLE) + 1 + PARTITIONS * len(TOPICS)
    assert (found.forgotten, found.conversations, found.invalid) == (len(WHOLE), 2, 0)
