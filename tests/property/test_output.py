"""Read to its end, or by the largest version, the output topic has the rows of a replay."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import (
    MemoryDeadLetters,
    MemoryMessage,
    MemoryOutputs,
    MemorySnapshot,
    MemoryStore,
    MemoryTopic,
)
from stream_metrics.live.ports import OutputMessage, Position
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.partition import PartitionLost, StatePartition
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.helpers import examples
from tests.property.test_forget import is_forget
from tests.property.test_partition import once, options
from tests.strategies import arrivals, streams

TOPICS = ("events", "labels")
Logs = dict[tuple[str, int], list[Record]]
Hook = Callable[[], Awaitable[None]]
Reads = list[tuple[int, str, int]]  # partition, topic, how many records

NOON_S = 1_718_020_800
_TOKENS = count()


class Crash(Exception):
    """The process dies."""


class Hooked:
    """Calls a hook before and after every asynchronous method of ``inner``."""

    def __init__(self, inner: Any, hook: Hook) -> None:
        self._inner, self._hook = inner, hook

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            await self._hook()
            result = await found(*arguments, **options)
            await self._hook()
            return result

        return call


class SplitSends(Hooked):
    """An output that sends messages in two halves, with a hook in between."""

    async def send(self, messages: list[OutputMessage]) -> None:
        """Send one half, then the other."""
        await self._hook()
        await self._inner.send(messages[: len(messages) // 2])
        await self._hook()
        await self._inner.send(messages[len(messages) // 2 :])
        await self._hook()


@dataclass
class World:
    """What outlives the workers: the logs, the store and the output topic."""

    logs: Logs
    store: MemoryStore
    topic: MemoryTopic
    turn_scope: str = "last"


async def nothing() -> None:
    """A hook that does nothing."""


class Worker:
    """A process that takes partitions over and reads their logs."""

    def __init__(self, world: World, cache_results: int, hook: Hook = nothing) -> None:
        self._world = world
        self._store: Any = Hooked(world.store, hook)
        self._outputs = MemoryOutputs(world.topic)
        self._cache_results = cache_results
        self._hook = hook
        self._open: dict[int, StatePartition] = {}

    async def read(self, reads: Reads, *, again: bool) -> None:
        """Do these reads; with ``again``, take lost partitions over again."""
        for number, topic, size in reads:
            try:
                partition = await self._partition(number)
                start = partition.positions[topic].offset
                records = self._world.logs[topic, number][start : start + size]
                if records:
                    await partition.process(records, once)
                else:
                    await partition.check(once)
            except PartitionLost:
                self._open.pop(number, None)
                if not again:
                    return

    async def finish(self, sizes: Iterable[int] = ()) -> None:
        """Read the remaining records, in batches of these sizes, then all at once."""
        pieces = iter(sizes)
        while left := await self._left():
            size = next(pieces, 1_000)
            await self.read([(number, topic, size) for number, topic in left], again=True)

    async def _left(self) -> list[tuple[int, str]]:
        left = []
        for (topic, number), log in self._world.logs.items():
            state = await self._world.store.describe(number)
            if state.token is None or state.positions[topic].offset < len(log):
                left.append((number, topic))
        return left

    async def _partition(self, number: int) -> StatePartition:
        partition = self._open.get(number)
        if partition is None:
            token = b"token-%d" % next(_TOKENS)
            output: Any = SplitSends(self._outputs.of(number), self._hook)
            identity = Identity("group", 1, "fingerprint", dict.fromkeys(TOPICS, 2))
            shared = replace(options(), identity=identity, turn_scope=self._world.turn_scope)
            partition = StatePartition(
                number,
                shared,
                self._store,
                MemoryDeadLetters(),
                ConversationCache(self._cache_results),
                SharedNames(self._store, shared),
                NoTelemetry(),
                token,
                output,
            )
            start = {topic: Position(0) for topic in TOPICS}
            partition.adopt(await self._store.claim(number, token, start))
            self._open[number] = partition
        return partition


def logs_of(records: list[tuple[bytes, bytes]], partitions: int) -> Logs:
    """The logs with each record on its key's partition, and forgets on all partitions."""
    logs: Logs = {(topic, number): [] for topic in TOPICS for number in range(partitions)}
    for key, value in records:
        places = list(logs)
        if not is_forget(value):
            places = [(TOPICS[zlib.crc32(value) % 2], zlib.crc32(key) % partitions)]
        for topic, number in places:
            log = logs[topic, number]
            log.append(Record(value, key, None, topic, number, len(log)))
    return logs


@dataclass
class Script:
    """What two workers do, and what happens to the store.

    The first worker pauses (or dies) at its ``stops``-th outside call. Meanwhile the store may be
    rolled back to the first worker's ``remembers``-th call, and the second worker reads; with
    ``reads_all`` it reads to the end, in batches of ``sizes``. Then the first worker resumes, and
    the worker named by ``ends`` reads the rest.
    """

    first: Reads
    second: Reads
    sizes: list[int]
    reads_all: bool
    stops: int
    dies: bool
    remembers: int | None
    again: bool
    ends: str
    cache_results: int


async def play(world: World, script: Script) -> None:
    """Run the script to its end."""
    steps = 0
    past: list[MemorySnapshot] = []
    stopped, go_on = asyncio.Event(), asyncio.Event()

    async def hook() -> None:
        nonlocal steps
        if steps == script.remembers:
            past.append(world.store.snapshot())
        if steps == script.stops:
            stopped.set()
            if script.dies:
                raise Crash
            await go_on.wait()
        steps += 1

    first = Worker(world, script.cache_results, hook)
    second = Worker(world, script.cache_results)

    async def work() -> None:
        try:
            await first.read(script.first, again=script.again)
        except Crash:
            return

    task = asyncio.create_task(work())
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if past:
        world.store.restore(past[0])
    await second.read(script.second, again=True)
    if script.reads_all:
        await second.finish(script.sizes)
    go_on.set()
    await task
    await (second if script.ends == "second" or script.dies else first).finish()


def rows_kept(kept: Mapping[str, MemoryMessage], turn_scope: str) -> list[str]:
    """A reader's final rows, in the order of ``export``."""
    values = [kept[name].value for name in sorted(kept)]
    texts = [value.decode() for value in values if value is not None]
    if turn_scope == "all":
        return [row for text in texts for row in split(text)]
    return texts


def split(text: str) -> list[str]:
    """The rows of a message that is a list of rows."""
    return [canonical(row) for row in json.loads(text)]


@st.composite
def few_events(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Searches, labels and forgets of two conversations, with times in any order; some come twice,
    written in another way, and so perhaps in another topic."""
    records: list[tuple[bytes, bytes]] = []
    for number in range(draw(st.integers(2, 8))):
        conversation = draw(st.sampled_from(["c", "d"]))
        kind = draw(st.sampled_from(["search", "search", "label", "forget"]))
        event: dict[str, Any] = {
            "event_id": f"e{number}",
            "occurred_at": NOON_S + draw(st.integers(0, 8)),
            "conversation_id": conversation,
        }
        if kind == "forget":
            event |= {"type": "forget"}
        elif kind == "label":
            result_id = f"r{draw(st.integers(0, number))}"
            label = {"result_id": result_id, "gain": draw(st.sampled_from([3, 0, None]))}
            event |= {"type": "relevance_labels", "turn": 1, "labels": [label]}
        else:
            results = [{"result_id": f"r{number}", "doc_id": draw(st.sampled_from("ab"))}]
            searches = [{"search_id": f"s{number}", "results": results}]
            event |= {"type": "search_iteration", "turn": draw(st.integers(1, 2))}
            event |= {"iteration": number + 1, "searches": searches}
        spaces = draw(st.sampled_from([[0], [0], [0, 1]]))
        records += ((conversation.encode(), json.dumps(event).encode() + b" " * n) for n in spaces)
    return draw(st.permutations(records)) if draw(st.booleans()) else records


@st.composite
def any_events(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Events of any stream, in any order of arrival."""
    drawn = draw(streams())
    batches = draw(arrivals([(key, value, None) for key, value, _ in drawn]))
    return [(key, value) for batch in batches for key, value, _ in batch]


@st.composite
def scripts(draw: st.DrawFn, partitions: int) -> Script:
    """Any script."""
    reads = st.lists(
        st.tuples(
            st.integers(0, partitions - 1), st.sampled_from(TOPICS), st.sampled_from([1, 2, 5, 99])
        ),
        min_size=1,
        max_size=5,
    )
    return Script(
        first=draw(reads),
        second=draw(reads | st.just([])),
        sizes=draw(st.lists(st.integers(1, 3), max_size=4)),
        reads_all=draw(st.booleans()),
        stops=draw(st.integers(0, 40)),
        dies=draw(st.sampled_from([False, False, True])),
        remembers=draw(st.none() | st.integers(0, 20)),
        again=draw(st.booleans()),
        ends=draw(st.sampled_from(["first", "second"])),
        cache_results=draw(st.sampled_from([0, 100_000])),
    )


def check(records: list[tuple[bytes, bytes]], data: st.DataObject, turn_scope: str) -> None:
    """Run a script over the records; both kinds of readers end with the rows of one pass."""
    partitions = data.draw(st.sampled_from([1, 1, 2]))
    check_script(records, partitions, data.draw(scripts(partitions)), turn_scope)


def check_script(
    records: list[tuple[bytes, bytes]], partitions: int, script: Script, turn_scope: str
) -> None:
    """The same for a script."""
    world = World(logs_of(records, partitions), MemoryStore(), MemoryTopic(), turn_scope)

    asyncio.run(play(world, script))

    replay = Replay(turn_scope=turn_scope)
    for log in world.logs.values():
        for record in log:
            replay.feed(record)
    rows = [canonical(row) for row in replay.rows()]
    export = asyncio.run(export_state(world.store, EngineConfig(), DEFAULT_WINDOWS, turn_scope))
    assert [canonical(row) for row in export.rows] == rows
    assert rows_kept(world.topic.largest(), turn_scope) == rows
    assert rows_kept(world.topic.compacted(), turn_scope) == rows


def test_an_event_that_a_forget_covers_takes_back_what_a_replaced_owner_told() -> None:
    """The first owner tells of a search beside a later one while another owner reads the forget;
    its successor, for whom the search comes too late, tells of the later one alone."""

    def event(number: int, at_s: int, kind: str, **content: Any) -> tuple[bytes, bytes]:
        event = {"event_id": f"e{number}", "occurred_at": at_s, "conversation_id": "d"}
        return b"d", json.dumps(event | {"type": kind} | content).encode()

    def search(number: int, at_s: int) -> tuple[bytes, bytes]:
        results = [{"result_id": f"r{number}", "doc_id": "a"}]
        searches = [{"search_id": f"s{number}", "results": results}]
        return event(number, at_s, "search_iteration", turn=1, iteration=number, searches=searches)

    def topic_of(record: tuple[bytes, bytes]) -> str:
        return TOPICS[zlib.crc32(record[1]) % 2]

    later = next(one for n in range(1, 50) if topic_of(one := search(n, NOON_S + 1)) == "events")
    covered = next(one for n in range(51, 98) if topic_of(one := search(n, NOON_S)) == "labels")
    records = [later, covered, event(99, NOON_S, "forget")]
    first, second = [(0, "events", 1), (0, "labels", 1)], [(0, "events", 1)]

    for stops in range(40):
        script = Script(first, second, [], False, stops, False, None, False, "first", 0)
        check_script(records, 1, script, "last")


@pytest.mark.slow
@settings(max_examples=examples(1_000))
@given(records=few_events(), data=st.data())
def test_readers_have_the_rows_of_one_pass_despite_faults(
    records: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    """For any batches, crashes, pauses and rollbacks of the store, the output topic has the rows of
    one pass."""
    check(records, data, "last")


@given(records=any_events(), data=st.data(), turn_scope=st.sampled_from(["last", "all"]))
def test_readers_have_the_rows_of_one_pass_for_any_events(
    records: list[tuple[bytes, bytes]], data: st.DataObject, turn_scope: str
) -> None:
    """The same holds for streams with every kind of event, and for rows by turn."""
    check(records, data, turn_scope)
