"""What holds under limits so tight that every stream reaches them, with forgets in between.

What a limit refuses depends on the order of arrival, so there is no reference. Limits are kept,
conversations are consistent and add up to the windows, and forgotten events are gone. Only what a
replay says is missing equals what the reference, which knows no limits, has besides.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.engine.codec import (
    add_fingerprints,
    decode_conversation,
    decode_sums,
)
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.plan import waiting_labels
from stream_metrics.core.engine.registers import BY_CODE, LABEL_TYPES
from stream_metrics.core.engine.state import SEARCH, Conversation
from stream_metrics.core.engine.step import Step
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import StoredConversation
from stream_metrics.live.readers.audit import AuditOptions, audit
from stream_metrics.live.worker.options import conversation_key
from stream_metrics.live.worker.partition import StatePartition
from tests import oracle
from tests.property.test_partition import TOPIC, once, opened, options
from tests.strategies import Draw, KeyedRecord
from tests.unit.test_audit import never

LIMITS = st.builds(
    Limits,
    results_per_turn=st.integers(1, 6),
    searches_per_turn=st.integers(1, 3),
    values_per_turn=st.sampled_from([4, 100_000]),
    iterations_per_turn=st.integers(1, 2),
    waiting_labels=st.integers(1, 3),
    turns_per_conversation=st.integers(1, 2),
)

# --- streams of one conversation with few ids ---------------------------------------------------

START_S = 1_718_020_800
_RESULT_ID = st.sampled_from([f"r{n}" for n in range(6)])
_SEARCH_ID = st.sampled_from([f"s{n}" for n in range(4)])
_ITERATION = st.integers(1, 3)
_SEARCH = st.fixed_dictionaries(
    {
        "search_id": _SEARCH_ID,
        "results": st.lists(
            st.fixed_dictionaries(
                {"result_id": _RESULT_ID, "doc_id": st.sampled_from(["D-1", "D-2", "D-3"])},
                optional={"gain": st.integers(0, 4), "ids": st.just({"file_id": ["a"] * 12})},
            ),
            max_size=3,
        ),
    },
    optional={"ordinal": st.integers(0, 1), "routing": st.just({"selected": "files"})},
)
_SEARCHES = st.fixed_dictionaries(
    {
        "type": st.just("search_iteration"),
        "iteration": _ITERATION,
        "searches": st.lists(_SEARCH, max_size=2),
    },
    optional={"gate": st.sampled_from([{"decision": "search"}, {"decision": "skip"}])},
)
_LABELS = st.fixed_dictionaries(
    {
        "type": st.just("relevance_labels"),
        "labels": st.lists(
            st.fixed_dictionaries({"result_id": _RESULT_ID, "gain": st.integers(0, 4)}),
            min_size=1,
            max_size=4,
        ),
    },
    optional={
        "routing": st.tuples(
            st.fixed_dictionaries({"search_id": _SEARCH_ID, "optimal": st.just("files")})
        ),
        "gate": st.tuples(
            st.fixed_dictionaries({"iteration": _ITERATION, "search_needed": st.booleans()})
        ),
        "source": st.sampled_from(["model", "human"]),
        "sample": st.just("random"),
    },
)
_COMPLETED = st.fixed_dictionaries(
    {"type": st.just("turn_completed"), "relevant": st.just(["D-1"])}
)
_FORGET = st.just({"type": "forget"})
_KINDS: list[st.SearchStrategy[dict[str, Any]]] = [
    _SEARCHES,
    _SEARCHES,
    _LABELS,
    _LABELS,
    _LABELS,
    _FORGET,
    _FORGET,
    _COMPLETED,
]
_EVENT = st.tuples(st.one_of(_KINDS), st.integers(0, 5), st.sampled_from([1, 1, 1, 2]))


@st.composite
def crowded(draw: Draw) -> list[list[KeyedRecord]]:
    """Batches of records about the same few searches and results of conversation ``c1``."""
    records: list[KeyedRecord] = []
    least = draw(st.sampled_from([0, 5, 10]))
    for number, (event, second, turn) in enumerate(
        draw(st.lists(_EVENT, min_size=least, max_size=14))
    ):
        event = {**event, "event_id": f"e{number:02}", "occurred_at": START_S + second}
        if event["type"] != "forget":
            event["turn"] = turn
        text = json.dumps({**event, "conversation_id": "c1"})
        records.append((b"c1", text.encode(), None))
    bounds = sorted({0, len(records), *draw(st.lists(st.integers(0, len(records)), max_size=2))})
    return [records[low:high] for low, high in pairwise(bounds)]


class Kept:
    """A state partition with limits, and its stored state."""

    def __init__(self, limits: Limits) -> None:
        self.engine = EngineConfig(limits=limits)
        self.options = options()
        self.store, self.letters = MemoryStore(), MemoryDeadLetters()
        self._partition: StatePartition | None = None

    async def take(self, batches: Iterable[list[KeyedRecord]], cache_results: int = 1_000) -> None:
        """Process the records, batch by batch."""
        partition = self._partition
        if partition is None:
            partition = self._partition = await opened(
                self.store, self.letters, cache_results, engine=self.engine
            )
        for batch in batches:
            first = partition.positions[TOPIC].offset
            records = [Record(v, k, t, TOPIC, 0, first + n) for n, (k, v, t) in enumerate(batch)]
            await partition.process(records, once)

    async def stored(self, name: str) -> StoredConversation:
        """What is stored of a conversation."""
        return (await self.store.load(0, [(conversation_key(name), True)]))[0]

    async def names(self) -> list[str]:
        """The conversations that are not tombstones."""
        held = [parts.hot async for _, parts in self.store.conversations(0)]
        found = [decode_conversation("", hot, "k").conversation_id for hot in held]
        return sorted(name for name in found if name)

    def read(self, name: str, parts: StoredConversation) -> Conversation:
        """The conversation as a worker reads it after its start."""
        conversation = decode_conversation(name, parts.hot, "k")
        dedups, rules = self.options.dedups, self.engine.rules
        step = Step(self.engine, lambda key_id: dedups.of(rules, self.options.keys[key_id]))
        add_fingerprints(conversation, parts.fingerprints or {}, step.dedup_of("k"))
        step.restore(conversation)
        return conversation


def check(conversation: Conversation, limits: Limits) -> None:
    """Limits are kept, items and their events agree, and every event is newer than the forget."""
    turns = conversation.turns.values()
    assert sum(turn.exists for turn in turns) <= limits.turns_per_conversation
    for kind in LABEL_TYPES:
        waiting = sum(waiting_labels(turn, kind) for turn in turns)
        assert waiting <= limits.waiting_labels
    for turn in turns:
        assert len(turn.result_searches) == turn.results <= limits.results_per_turn
        assert len(turn.winners[SEARCH]) <= limits.searches_per_turn
        assert turn.extra_values <= limits.values_per_turn
        assert len(turn.iterations) <= limits.iterations_per_turn
        events = [event for event in conversation.events.values() if event.turn == turn.number]
        assert events or turn.refused
        if conversation.forgotten is not None:
            assert all(event.version[:2] > conversation.forgotten[:2] for event in events)
        assert not any(event.empty and event is not turn.newest for event in events)
        held = [
            (register.turn_index, key, event)
            for event in events
            for register in BY_CODE[event.kind].registers
            for key in event.items[register.event_index]
        ]
        assert all(turn.winners[at][key] is event for at, key, event in held)
        assert len(held) == sum(map(len, turn.winners))


@given(crowded(), LIMITS)
def test_a_replay_counts_what_the_reference_has_besides(
    batches: list[list[KeyedRecord]], limits: Limits
) -> None:
    """Searches, their results, gate decisions and labels that a limit has kept out are counted."""
    engine = Replay(EngineConfig(limits=limits), turn_scope="all")
    for batch in batches:
        for key, value, timestamp_ms in batch:
            engine.feed(Record(value, key, timestamp_ms))
        engine.flush()
    given_records = [oracle.Record(value, key, at) for batch in batches for key, value, at in batch]

    lost: list[list[oracle.Won]] = [[], [], []]
    held = {turn.number: turn for each in engine.conversations() for turn in each.turns.values()}
    for turn in oracle.evaluate(given_records).turns:
        kinds: tuple[Any, ...] = (turn.gain_labels, turn.routing_labels, turn.gate_labels)
        own = held.get(turn.number)
        registers: dict[int, dict[Any, oracle.Won]] = {0: turn.searches, 1: turn.gates}
        if own is not None and own.exists:
            registers |= {2 + at: by_source["human"] for at, by_source in enumerate(kinds)}
            registers |= {6 + at: by_source["model"] for at, by_source in enumerate(kinds)}
        for at, register in registers.items():
            winners = {} if own is None else own.winners[at]
            lost[min(at, 2)] += [
                won
                for key, won in register.items()
                if key not in winners or winners[key].version[:2] != won.event.version
            ]
    searches, decisions, missing_labels = lost
    found = engine.outcome().beyond_limit
    results = sum(len(won.entry["results"]) for won in searches)
    assert found[1:] == (len(searches), results, len(decisions), len(missing_labels))
    assert bool(found.turns) >= any(lost)


def in_turn(*events: dict[str, Any]) -> list[list[KeyedRecord]]:
    """A batch of one record for each event, in a turn of conversation ``c1``, a second apart."""
    return [
        [
            (
                b"c1",
                json.dumps(
                    {
                        "event_id": f"e{at}",
                        "occurred_at": START_S + at,
                        "conversation_id": "c1",
                        "turn": 1,
                        **event,
                    }
                ).encode(),
                None,
            )
        ]
        for at, event in enumerate(events)
    ]


def search_of(*result_ids: str) -> dict[str, Any]:
    """A search with these results."""
    results = [{"result_id": one, "doc_id": one} for one in result_ids]
    search = {"search_id": "s", "results": results}
    return {"type": "search_iteration", "iteration": 1, "searches": [search]}


def labels_of(*result_ids: str) -> dict[str, Any]:
    """Labels of these results, in this order."""
    labels = [{"result_id": one, "gain": 2} for one in result_ids]
    return {"type": "relevance_labels", "labels": labels}


@given(crowded(), LIMITS)
def test_what_is_refused_does_not_depend_on_what_is_cached(
    batches: list[list[KeyedRecord]], limits: Limits
) -> None:
    """State that is read anew for each batch is the state of a conversation that stays cached."""
    cached, reread = asyncio.run(both(batches, limits))

    assert cached == reread


def test_labels_of_an_event_are_refused_in_its_own_order() -> None:
    """Although the register has another one, in which the label that was there first is first."""
    batches = in_turn(search_of("x", "y"), labels_of("x"), labels_of("y", "x"), search_of())

    cached, reread = asyncio.run(both(batches, Limits(waiting_labels=1)))

    assert cached == reread


async def both(
    batches: list[list[KeyedRecord]], limits: Limits
) -> tuple[StoredConversation, StoredConversation]:
    """What is stored of ``c1`` by a partition that caches it, and by one that reads it anew."""
    cached, reread = Kept(limits), Kept(limits)
    await cached.take(batches, 100_000)
    await reread.take(batches, 0)
    return await cached.stored("c1"), await reread.stored("c1")


@given(st.data())
def test_forgets_under_tight_limits(data: st.DataObject) -> None:
    """No event fails, limits are kept, and the conversations add up to the windows."""
    limits = data.draw(LIMITS)
    batches = data.draw(crowded())
    cache_results = data.draw(st.sampled_from([0, 100_000]))

    async def run() -> None:
        kept = Kept(limits)
        await kept.take(batches, cache_results)
        assert not [its.message for its in kept.letters.letters if its.reason == "internal_error"]
        for name in await kept.names():
            check(kept.read(name, await kept.stored(name)), limits)
        found = await audit(kept.store, AuditOptions(kept.engine, DEFAULT_WINDOWS), never)
        assert (found.differences, found.unreadable) == ([], [])

    asyncio.run(run())


@given(crowded(), LIMITS, st.lists(st.integers(0, 14), max_size=4))
def test_batch_boundaries_have_no_effect(
    batches: list[list[KeyedRecord]], limits: Limits, cuts: list[int]
) -> None:
    """Limits are applied event by event, in the order of the log."""
    records = [record for batch in batches for record in batch]
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    ways = [
        [records],
        [[record] for record in records],
        [records[low:high] for low, high in pairwise(bounds)],
    ]

    async def run() -> None:
        stored = []
        for way in ways:
            kept = Kept(limits)
            await kept.take(way)
            buckets = await kept.store.buckets(0)
            sums = {at: decode_sums(data) for at, data in buckets.items()}
            stored.append((await kept.stored("c1"), sums))
        assert stored[1:] == stored[:-1]

    asyncio.run(run())
