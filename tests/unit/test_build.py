"""When a build is needed, and when it may replace the generation in force."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

import pytest

from stream_metrics.cli.options import kafka_settings_for
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Extent
from stream_metrics.live.layout import NOTHING, Generation, Identity, Layout
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationWrite,
    Position,
    StateStore,
    StoreUnavailable,
)
from stream_metrics.live.worker.ownership.build import (
    CAUGHT_UP_MS,
    DAY_MS,
    HEARTBEAT_TIMEOUT_MS,
    HOUR_MS,
    KEY_BYTES,
    CannotBuild,
    PartitionId,
    check_copies,
    check_counts,
    differences,
    needed_bytes,
    pause_reason,
    progress,
    short_logs,
)
from stream_metrics.live.worker.ownership.generations import (
    Step,
    admit,
    begin,
    change,
    generation_to_join,
    join,
)
from stream_metrics.live.worker.ownership.identity import OtherIdentity
from stream_metrics.live.worker.publication import before
from tests.unit.test_publication import Damaged

NOW_MS = 1_800_000_000_000
OLD = Identity("group", 1, "old", {"events": 2}, '{"metrics.good_gain": 2, "state.ttl": "24h"}')
NEW = Identity("group", 1, "new", {"events": 2}, '{"metrics.good_gain": 3, "state.ttl": "24h"}')
LIVE = NOTHING.begun(OLD, "a", 1)


@dataclass
class ScriptedLogs:
    """Logs with given starts, and a first record or none."""

    first: dict[PartitionId, int]
    oldest: dict[PartitionId, int] = field(default_factory=dict)

    async def extents(self, places: Collection[PartitionId]) -> Mapping[PartitionId, Extent]:
        """See ``Logs``."""
        return {place: Extent(self.first.get(place, 0), 1_000) for place in places}

    async def oldest_ms(self, places: Collection[PartitionId]) -> Mapping[PartitionId, int]:
        """See ``Logs``."""
        return {place: self.oldest[place] for place in places if place in self.oldest}


# -- differences


def test_settings_that_differ_are_listed_with_both_values() -> None:
    """Nothing is listed if state is rebuilt with equal settings."""
    assert differences(OLD, NEW) == ["metrics.good_gain was 2, is 3"]
    assert differences(OLD, OLD) == []


def test_topics_and_schema_that_differ_are_listed() -> None:
    """The list describes them in words."""
    other = replace(OLD, schema_version=2, partition_counts={"events": 3})

    assert differences(OLD, other) == [
        "topics and their partitions were {'events': 2}, are {'events': 3}",
        "schema was 1, is 2",
    ]


@pytest.mark.parametrize(
    ("internal_topic", "value_format", "refused"),
    [("copies", "cloudevents", True), ("others", "cloudevents", False), ("copies", "json", False)],
)
def test_copies_in_another_value_format_are_not_read_by_a_build(
    internal_topic: str, value_format: str, refused: bool
) -> None:
    """The error asks for a new internal topic."""
    live = Identity("group", 1, "one", {"copies": 2}, '{"metrics.good_gain": 2}')
    settings = json.dumps({"metrics.good_gain": 3, "kafka.value_format": value_format})
    ours = Identity("group", 1, "other", {internal_topic: 2}, settings)

    with pytest.raises(CannotBuild, match="Name a new topic") if refused else nullcontext():
        check_copies(live, ours, internal_topic)


# -- the generation of a worker


@pytest.mark.parametrize(
    ("ours", "build", "number"),
    [(OLD, False, 1), (OLD, True, 1), (NEW, False, 2), (NEW, True, 2)],
)
def test_a_worker_joins_the_generation_with_its_settings(
    ours: Identity, build: bool, number: int
) -> None:
    """That is the generation in force or the one being built."""
    found = generation_to_join(LIVE.registered(NEW, "b", 2), lambda _: ours, build=build)

    assert found is not None
    assert found.number == number


@pytest.mark.parametrize(("build", "number"), [(False, 1), (True, 2)])
def test_an_option_decides_if_both_generations_fit(build: bool, number: int) -> None:
    """A repair builds state with equal settings."""
    found = generation_to_join(LIVE.registered(OLD, "b", 2), lambda _: OLD, build=build)

    assert found is not None
    assert found.number == number


def test_a_worker_that_fits_no_generation_is_refused() -> None:
    """The error lists the differences from the state in force and the remedy."""
    with pytest.raises(OtherIdentity, match=r"good_gain was 2, is 3.*stream-metrics build"):
        generation_to_join(LIVE, lambda _: NEW)
    assert generation_to_join(NOTHING, lambda _: NEW) is None


T = TypeVar("T")


@dataclass
class Joining:
    """Calls of a worker that joins; somebody else takes a step of the layout before one of them."""

    store: MemoryStore
    step: Step
    before: int
    calls: int = 0

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """See ``Retry``."""
        if self.calls == self.before:
            await change(self.store, self.step)
        self.calls += 1
        return await call()

    async def join(self, ours: Identity) -> tuple[Generation, Layout]:
        """What a worker with these settings joins, which writes schema 2."""

        async def first() -> Identity:
            return ours

        return await join(self.store, lambda _: ours, first, 2, lambda: NOW_MS, self)


@pytest.mark.parametrize(
    ("state", "before"), [(True, 0), (True, 1), (False, 1), (False, 2), (False, 3)]
)
async def test_a_worker_begins_anew_if_the_namespace_is_purged_while_it_joins(
    state: bool, before: int
) -> None:
    """Whatever it had chosen or created before, it works on a generation that exists."""
    store = MemoryStore()
    if state:
        await begin(store, OLD, 0)

    found, _ = await Joining(store, Layout.emptied, before).join(OLD)

    layout = await store.layout()
    assert [g.mark for g in layout.generations] == [found.mark]
    assert layout.generations[0].identity.schema_version == 2


async def test_a_worker_knows_the_layout_in_which_it_has_joined() -> None:
    """It can put that back if the store loses it right after, and copy tombstones of the generation
    that it is to replace."""
    store = MemoryStore()
    await begin(store, OLD, 0)
    await change(store, lambda now: now.registered(NEW, "b", 1, retained=True))

    found, layout = await Joining(store, lambda now: now, before=0).join(NEW)

    assert layout == await store.layout()
    assert [found.mark, before(layout, found)] == ["b", layout.in_force]


async def test_a_worker_puts_back_what_the_store_loses_while_it_joins() -> None:
    """It joins the generation that it has chosen, and does not begin anew."""
    store = MemoryStore()
    old = await begin(store, OLD, 0)
    emptied = MemoryStore().snapshot()

    def lose(layout: Layout) -> Layout:
        store.restore(emptied)
        return layout

    found, _ = await Joining(store, lose, before=1).join(OLD)

    assert found.mark == old.mark
    assert [g.mark for g in (await store.layout()).generations] == [old.mark]


@pytest.mark.parametrize("before", [1, 2])
async def test_a_worker_puts_back_a_switch_that_the_store_loses_while_it_joins(before: int) -> None:
    """What it returns says that its generation is live, not that it is being built."""
    store = MemoryStore()
    await begin(store, OLD, 0)
    await change(store, lambda now: now.registered(NEW, "b", 1))
    earlier = store.snapshot()
    await change(store, lambda now: now.switched(2, 2))

    def lose(layout: Layout) -> Layout:
        store.restore(earlier)
        return layout

    found, layout = await Joining(store, lose, before).join(NEW)

    assert found == layout.in_force
    assert found.number == 2


async def test_a_worker_does_not_begin_anew_while_others_admit_names() -> None:
    """Somebody works on state that the store has lost, and will put it back; a purge says that
    nobody does."""
    store = MemoryStore()
    await admit(store, "agents", ["a"], [], 9)
    joining = Joining(store, lambda now: now, before=0)

    with pytest.raises(StoreUnavailable, match="has lost the list of the generations of state"):
        await joining.join(OLD)
    await change(store, Layout.emptied)

    assert (await joining.join(OLD))[0].state == "live"


async def test_a_worker_is_refused_if_its_build_is_given_up_while_it_joins() -> None:
    """The error lists what differs from the state in force."""
    store = MemoryStore()
    await begin(store, OLD, 0)
    await change(store, lambda now: now.registered(NEW, "b", 1))

    with pytest.raises(OtherIdentity, match="good_gain was 2, is 3"):
        await Joining(store, lambda now: now.abandoned(2), before=1).join(NEW)


@pytest.mark.parametrize(
    ("layout", "group", "start"),
    [(LIVE, "group", "latest"), (LIVE.registered(NEW, "b", 2), "group.2", "earliest")],
)
def test_a_build_reads_from_the_start_of_the_log(layout: Layout, group: str, start: str) -> None:
    """It ignores ``kafka.start`` and has its own group; the first generation follows it."""
    kafka = KafkaSettings(group_id="group", start="latest")

    found = kafka_settings_for(kafka, layout.generations[-1])

    assert (found.group_id, found.start) == (group, start)


# -- added partitions


def grown(topic: str, at_ms: int) -> Layout:
    """A topic that got partitions at that time."""
    return LIVE.has_grown([topic], at_ms)


@pytest.mark.parametrize(
    ("layout", "ours", "oldest"),
    [
        (LIVE, replace(NEW, partition_counts={"events": 3}), {("events", 0): 5}),
        (grown("events", NOW_MS), NEW, {("events", 0): NOW_MS}),
        (grown("events", NOW_MS), NEW, {("events", 0): NOW_MS + HOUR_MS, ("events", 1): 1 << 60}),
    ],
)
def test_records_older_than_added_partitions_need_the_internal_topic(
    layout: Layout, ours: Identity, oldest: dict[PartitionId, int]
) -> None:
    """Read directly, one conversation would be counted as two."""
    with pytest.raises(CannotBuild, match=r"kafka\.repartition_topic"):
        check_counts(layout, ours, oldest)


@pytest.mark.parametrize(
    ("layout", "ours", "oldest"),
    [
        (LIVE, NEW, {("events", 0): 5}),
        (LIVE, replace(NEW, partition_counts={"internal": 7}), {}),
        (grown("events", NOW_MS), replace(NEW, partition_counts={"internal": 7}), {}),
        (grown("events", NOW_MS), NEW, {("events", 0): NOW_MS + HOUR_MS + 1}),
        (grown("events", NOW_MS), NEW, {}),
        (
            grown("events", NOW_MS),
            replace(NEW, partition_counts={"events": 3}),
            {("events", 0): NOW_MS + HOUR_MS + 1},
        ),
    ],
)
def test_topics_without_older_records_can_be_read_directly(
    layout: Layout, ours: Identity, oldest: dict[PartitionId, int]
) -> None:
    """These are internal topics and logs that begin after the change."""
    check_counts(layout, ours, oldest)


# -- reach


async def test_a_log_must_reach_back_as_far_as_the_metrics() -> None:
    """It needs the time to live, the longest window and a day, to the millisecond."""
    places = [("events", number) for number in range(4)]
    needed = NOW_MS - 3 * DAY_MS  # both are a day
    logs = ScriptedLogs(
        {places[1]: 7, places[2]: 7, places[3]: 7},
        {places[1]: needed, places[2]: needed + 1},
    )

    found = await short_logs(logs, places, DEFAULT_WINDOWS, DAY_MS, NOW_MS)

    assert [line.partition(" ")[0] for line in found] == ["events/2", "events/3"]
    assert all("figures would be too low until" in line for line in found)


# -- memory


async def test_the_needed_memory_is_estimated_from_a_sample() -> None:
    """It covers parts, names and keys of conversations, and buckets; damaged values count too."""
    space = MemoryStore()
    generation = await begin(space, OLD, 0)
    state = space.generation(generation)
    await state.claim(0, b"t", {"events": Position(0)})
    conversations = [
        ConversationWrite(n.to_bytes(16, "big"), {b"p": bytes(99)}, {b"f": bytes(199)}, 1 + n)
        for n in range(200)
    ]
    await state.write(
        BatchWrite(0, b"t", b"1", {"events": 0}, {"events": Position(1)}, conversations)
    )

    assert await needed_bytes(space, generation) == 200 * (2 * KEY_BYTES + 300)
    one_damaged = cast(StateStore, Damaged(space, partitions=[1]))
    assert await needed_bytes(one_damaged, generation) == 2 * 200 * (2 * KEY_BYTES + 300)
    all_damaged = cast(StateStore, Damaged(space))
    assert await needed_bytes(all_damaged, generation) is None


@pytest.mark.parametrize(
    ("share", "was_full", "waits"),
    [(0.85, False, False), (0.851, False, True), (0.84, True, True), (0.83, True, False)],
)
def test_a_build_pauses_while_redis_is_nearly_full(
    share: float, was_full: bool, waits: bool
) -> None:
    """It resumes at a lower level, so that it does not flap."""
    assert bool(pause_reason(share, paused=was_full)) == waits


# -- progress


async def built(behind: list[int | None], *, silent_ms: int = 0) -> tuple[MemoryStore, Generation]:
    """A generation whose workers report how far behind they are."""
    space = MemoryStore()
    generation = await begin(space, OLD, 0)
    state = space.generation(generation)
    space.clock = lambda: NOW_MS
    for number, behind_ms in enumerate(behind):
        await state.claim(number, b"t", {"events": Position(0)})
        await state.heartbeat(number, b"t", "worker", behind_ms)
    space.clock = lambda: NOW_MS + silent_ms
    return space, generation


@pytest.mark.parametrize(
    ("behind", "silent_ms", "caught_up"),
    [
        ([0, CAUGHT_UP_MS], 0, True),
        ([0, CAUGHT_UP_MS], HEARTBEAT_TIMEOUT_MS, True),
        ([0, CAUGHT_UP_MS + 1], 0, False),
        ([0, None], 0, False),
        ([0], 0, False),
        ([0, 0], HEARTBEAT_TIMEOUT_MS + 1, False),
        ([], 0, False),
    ],
)
async def test_a_build_has_caught_up_once_all_of_its_partitions_have(
    behind: list[int | None], silent_ms: int, caught_up: bool
) -> None:
    """Only recent heartbeats count, and a missing one counts as behind."""
    space, generation = await built(behind, silent_ms=silent_ms)

    assert (await progress(space, generation)).caught_up == caught_up
