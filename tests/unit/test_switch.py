"""One generation takes the place of another: whoever dies, wakes late or goes back meanwhile.

Everybody takes one call at a time, in an order that the test draws: two who finish the switch, a
worker of the old generation that sleeps between any two of its calls, and owners of the new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, count, product
from random import Random
from typing import Any, Final

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from stream_metrics.live.layout import Generation, Identity, InvalidTransition, Layout, encode
from stream_metrics.live.memory import (
    MemoryOutput,
    MemoryOutputs,
    MemorySnapshot,
    MemoryStore,
    MemoryTopic,
)
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationWrite,
    Fenced,
    OutputFenced,
    OutputMessage,
    Position,
    StoreUnavailable,
    Superseded,
    Written,
)
from stream_metrics.live.worker.ownership.generations import admit, begin, change
from stream_metrics.live.worker.ownership.switch import (
    LayoutWatcher,
    announced,
    announcements,
    decide,
    delete_all,
    finish,
    forget_purged,
    freeze,
    give_up,
    roll_forward,
    unsent,
)
from stream_metrics.live.worker.publication import Publication
from tests.helpers import examples
from tests.unit.test_publication import Damaged

PARTITIONS: Final = 2
OLD = Identity("group", 1, "old", {"events": PARTITIONS})
NEW = replace(OLD, fingerprint="new")
SEEDS: Final = 150

Work = Coroutine[Any, Any, None]


class Turn:
    """Waits until it is this actor's turn."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Stepped:
    """Passes calls on, each in a turn of its own."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "generation":
            return lambda generation: Stepped(found(generation))
        if name == "of":
            return lambda number: Stepped(found(number))
        if not callable(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            await Turn()
            return await found(*arguments, **options)

        return call


class Outputs(MemoryOutputs):
    """The ways of a generation, under ids of its own."""

    def __init__(self, topic: MemoryTopic, generation: Generation) -> None:
        super().__init__(topic)
        self._generation = generation

    def of(self, partition: int) -> MemoryOutput:
        """See ``Outputs.of``."""
        return super().of(100 * self._generation.number + partition)


class Fence:
    """Fences the producers of a generation, one transactional id after the other."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic

    async def fence_producers(self, generation: Generation) -> None:
        """See ``ownership.switch.Fence``."""
        for number in range(generation.identity.count):
            await Turn()
            await Outputs(self._topic, generation).of(number).begin()


class World:
    """Two generations of one namespace, of which the new one has caught up, and their
    invariants."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.topic = MemoryTopic()
        self.old: Generation
        self.new: Generation
        self.layout: Layout
        self.shown: list[str] = []  # by whom windows were shown, in order
        self.now_ms = partial(next, count(10))  # later at each call

    @classmethod
    async def made(cls) -> World:
        """With state in both generations."""
        world = cls()
        world.old = await begin(world.store, OLD, 0)
        world.layout = await change(world.store, lambda now: now.registered(NEW, "b2", 1))
        assert world.layout.building is not None
        world.new = world.layout.building
        for generation, token in ((world.old, b"old"), (world.new, b"new")):
            state = world.store.generation(generation)
            for number in range(PARTITIONS):
                await state.claim(number, token, {"events": Position(0)})
        return world

    # -- actors

    async def decide(self) -> None:
        """The command."""
        store: Any = Stepped(self.store)
        await decide(store, 2, self.now_ms())
        await self.finish()

    async def finish(self) -> None:
        """A process that finds the switch unfinished."""
        store: Any = Stepped(self.store)
        try:
            await finish(store, Fence(self.topic), self.rest)
        except InvalidTransition:
            return

    async def rest(self) -> None:
        """A step in which others may do anything."""
        await Turn()

    async def old_worker(self, number: int) -> None:
        """Write and send as if nothing had happened, and take over again if refused."""
        store: Any = Stepped(self.store)
        publication = Publication(
            store,
            self.old,
            Stepped(None),
            Stepped(Outputs(self.topic, self.old)),
        )
        assert publication.outputs is not None
        way, state, token = publication.outputs.of(number), store.generation(self.old), b"old"
        for offset in range(3):
            try:
                if not way.begun:
                    await way.begin()
                    if (await state.describe(number)).token != token:
                        token = b"old again"
                        await state.claim(number, token, {"events": Position(0)})
                await way.send([OutputMessage("c", b"old")])
            except OutputFenced:
                continue
            except Superseded as superseded:
                await roll_forward(store, self.old, superseded, self.now_ms())
                return
            self.shown.append("old")
            write = await state.write(batch(number, offset, token))
            assert write in (Written(), Fenced()) or type(write).__name__ == "Moved"

    async def new_owner(self, number: int) -> None:
        """Read the layout until it is unmuted, then send rows and record that."""
        store: Any = Stepped(self.store)
        publication = Publication(
            store,
            self.new,
            Stepped(None),
            Stepped(Outputs(self.topic, self.new)),
        )
        assert publication.outputs is not None
        way, state = publication.outputs.of(number), store.generation(self.new)

        def muted(is_muted: bool) -> None:
            publication.muted = is_muted

        watcher = LayoutWatcher(
            store, self.layout, self.new, Fence(self.topic), self.rest, muted, self.now_ms
        )
        for _ in range(8):
            await watcher.look()
            if publication.muted:
                continue
            if not way.begun:
                await way.begin()
            await way.send([OutputMessage("c", b"new")])
            current = (await store.layout()).of(2)
            if current is not None:
                mark = announced(current, ())
                written = replace(batch(number, 0, b"new"), positions={}, marks=[mark])
                await state.write(replace(written, batch_id=mark.encode()))

    # -- what must hold

    def check_topic(self) -> None:
        """No message of the old generation follows one of the new generation."""
        values = [message.value for message in self.topic.messages]
        if b"new" in values:
            assert b"old" not in values[values.index(b"new") :], values

    async def settle_rows(self) -> None:
        """Unmute the new generation, and send its rows; the old one is not purged yet."""
        await freeze(self.store, self.old, 2)
        layout = await change(self.store, lambda now: now.unmuted(2))
        state, live = self.store.generation(self.new), layout.of(2)
        assert live is not None
        for number in range(PARTITIONS):
            written = replace(batch(number, 0, b"new"), marks=[announced(live, ())])
            await state.write(written)

    async def settle(self, *, cleared: bool = False) -> None:
        """End all faults; the workers of the new generation continue.

        With ``cleared`` another generation is about to be registered.
        """
        for _ in range(4):
            for number in range(PARTITIONS):
                await self.new_owner(number)
        layout = await self.store.layout()
        assert [(g.state, g.purged) for g in layout.generations] == [
            ("retired", True),
            ("live", False),
        ]
        state = self.store.generation(self.old)
        if cleared:
            await forget_purged(self.store, self.old)
        assert await state.partitions() == []
        for number in range(PARTITIONS):
            with pytest.raises(Superseded):
                await state.claim(number, b"late", {"events": Position(0)})
        assert self.topic.messages[-1].value == b"new"


def batch(number: int, offset: int, token: bytes) -> BatchWrite:
    """The next record of a partition."""
    return BatchWrite(
        number, token, b"%b %d" % (token, offset), {"events": offset},
        {"events": Position(offset + 1)}, [ConversationWrite(bytes(16), {b"p": b"1"})],
    )  # fmt: skip


def ran(work: Awaitable[Any]) -> Any:
    """The result of a coroutine that waits for nothing but its own turns."""
    running = work.__await__()
    try:
        while True:
            next(running)
    except StopIteration as done:
        return done.value


def step(work: Work) -> bool:
    """Run one turn; returns whether there is another."""
    try:
        work.send(None)
    except StopIteration:
        return False
    return True


def actors(world: World) -> dict[str, Callable[[], Work]]:
    """All actors."""
    return {
        "decide": world.decide,
        "finish": world.finish,
        **{f"old {n}": lambda n=n: world.old_worker(n) for n in range(PARTITIONS)},  # type: ignore[misc]
        **{f"new {n}": lambda n=n: world.new_owner(n) for n in range(PARTITIONS)},  # type: ignore[misc]
    }


def test_a_switch_without_trouble() -> None:
    """The new generation is live, its rows are sent, and the old one is purged."""
    world = ran(World.made())
    ran(world.decide())
    ran(world.settle())
    world.check_topic()


def test_damaged_state_is_replaced_too() -> None:
    """Nobody can read the offsets of the old generation; that it is frozen can be seen all the
    same."""
    world = ran(World.made())
    damaged: Any = Damaged(world.store)
    ran(change(damaged, lambda now: now.switched(2, 5)))
    ran(finish(damaged, Fence(world.topic), world.rest))
    assert ran(world.store.layout()).of(2).state == "live"
    ran(world.settle())


def test_damage_of_the_new_state_ends_no_worker_while_a_switch_is_unfinished() -> None:
    """Its partition is not announced, so the old generation is kept until it is repaired."""
    world = ran(World.made())
    ran(change(world.store, lambda now: now.switched(2, 5)))
    damaged: Any = Damaged(world.store, partitions=[1], damaged=2)
    watcher = LayoutWatcher(
        damaged,
        world.layout,
        world.new,
        Fence(world.topic),
        world.rest,
        lambda _: None,
        world.now_ms,
    )

    ran(watcher.look())

    assert [(g.state, g.purged) for g in watcher.newest.generations] == [
        ("retired", False),
        ("live", False),
    ]
    assert ran(announcements(damaged, world.new)) == ([0, 1], [1])
    ran(world.settle())


def test_a_switch_that_begins_again_while_the_old_state_is_deleted_ends_the_deletion() -> None:
    """Whoever deletes finds that out before the next partition."""
    world = ran(World.made())
    ran(world.decide())
    for number in range(PARTITIONS):
        owner = world.new_owner(number)
        while number in ran(announcements(world.store, ran(world.store.layout()).in_force)).missing:
            assert step(owner)
        owner.close()
    state, finishing = world.store.generation(world.old), world.finish()
    while ran(state.describe(0)).positions:
        assert step(finishing)

    def begin_again(now: Layout) -> Layout:
        again = structs.replace(now.generations[1], state="fencing", since_ms=99)
        return structs.replace(
            now, version=now.version + 1, generations=(now.generations[0], again)
        )

    ran(change(world.store, begin_again))
    while step(finishing):
        pass

    assert ran(state.describe(1)).positions
    assert not ran(world.store.layout()).generations[0].purged


def test_a_build_that_was_given_up_cannot_replace_the_live_generation() -> None:
    """The layout has lost that; a frozen partition tells of it."""
    world = ran(World.made())
    ran(world.store.generation(world.new).freeze(1, 1))

    with pytest.raises(InvalidTransition, match="partition 1 of generation 2 is frozen"):
        ran(decide(world.store, 2, world.now_ms()))


def test_a_worker_of_a_deleted_namespace_decides_nothing_about_the_next_one() -> None:
    """Generations of both have the same numbers."""
    world = ran(World.made())
    earlier = structs.replace(world.old, mark="earlier")

    ran(roll_forward(world.store, earlier, Superseded(1, 2), world.now_ms()))

    assert ran(world.store.layout()) == world.layout


def test_a_switch_that_cannot_be_finished_yet_is_logged() -> None:
    """The store loses that partitions were frozen, until the worker tries again; the reason is in
    the log."""
    world = ran(World.made())
    decided = ran(change(world.store, lambda now: now.switched(2, 5)))
    before = world.store.snapshot()

    async def goes_back() -> None:
        world.store.restore(before)

    watcher = LayoutWatcher(
        world.store, decided, world.new, Fence(world.topic), goes_back, lambda _: None, world.now_ms
    )
    with capture_logs() as logs:
        ran(watcher.look())

    assert [line["reason"] for line in logs] == ["the store has lost that generation 1 was frozen"]
    assert ran(world.store.layout()).in_force.state == "fencing"


def test_a_build_over_damaged_state_can_be_abandoned() -> None:
    """Nobody needs to read that state for it."""
    world = ran(World.made())
    damaged: Any = Damaged(world.store)

    ran(give_up(damaged, 2))

    assert ran(world.store.layout()).of(2).state == "abandoned"


def test_a_build_that_has_frozen_damaged_state_cannot_be_abandoned() -> None:
    """One partition that is frozen tells of a switch, also where its offsets cannot be read."""
    world = ran(World.made())
    damaged: Any = Damaged(world.store)
    ran(world.store.generation(world.old).freeze(0, 2))

    with pytest.raises(InvalidTransition, match="is taking the place of 1"):
        ran(give_up(damaged, 2))


@pytest.mark.parametrize("dies", [*range(40), None])
def test_the_command_may_be_killed_at_any_step(dies: int | None) -> None:
    """From the decision on, workers of the new generation do the rest."""
    world = ran(World.made())
    deciding = world.decide()
    for _ in range(10_000 if dies is None else dies):
        if not step(deciding):
            break
    deciding.close()
    decided = ran(world.store.layout()).in_force.number == 2

    if not decided:
        for number in range(PARTITIONS):
            ran(world.new_owner(number))
        assert [g.state for g in ran(world.store.layout()).generations] == ["live", "building"]
        ran(world.decide())
    ran(world.settle())
    world.check_topic()


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("at", "long"), [*product((4, 9, 14, 19, 24, 29, 100), range(14))])
def test_an_old_worker_paused_during_the_switch_does_no_harm(
    at: int, long: int, lost: bool
) -> None:
    """It is stopped after any of its calls, and wakes in the middle of the switch, or when rows of
    the new generation are sent; also where the store has lost that its partition is frozen."""
    world = ran(World.made())
    late, switching = world.old_worker(0), world.decide()
    for _ in range(long):
        step_once(late)
    past = world.store.snapshot().copy()
    for _ in range(at):
        step_once(switching)
    if at == 100:
        for number in range(PARTITIONS):
            ran(world.new_owner(number))
        assert world.topic.messages[-1].value == b"new"
    if lost:
        place = (world.old.mark, 0)
        content = world.store.snapshot().copy()
        content.frozen.pop(place, None)
        content.partitions[place] = past.partitions[place]
        world.store.restore(MemorySnapshot(content))
    with suppress(Superseded):
        while step_once(late):
            pass
    while step_once(switching):
        pass
    ran(world.settle(cleared=lost))
    world.check_topic()


@pytest.mark.parametrize("turns", range(29))
def test_a_late_worker_is_refused_during_a_purge(turns: int) -> None:
    """At every step of a purge it is refused, or begins what is deleted after it; it never hears of
    another generation, and nothing of it is left."""
    world = ran(World.made())
    store: Any = Stepped(world.store)
    deleting = delete_all(store)
    for _ in range(turns):
        step_once(deleting)
    deleted = []
    for generation, number in product((world.old, world.new), range(PARTITIONS)):
        try:
            ran(world.store.generation(generation).claim(number, b"late", {"events": Position(0)}))
        except Superseded as superseded:
            deleted.append(superseded)
    while step_once(deleting):
        pass

    assert len(deleted) >= (turns > 2)
    assert all("is deleted, or is being deleted" in str(one) for one in deleted)
    assert ran(world.store.layout()).generations == ()
    for generation in (world.old, world.new):
        assert ran(world.store.generation(generation).partitions()) == []


@pytest.mark.parametrize("turns", range(10))
def test_a_build_that_begins_during_a_purge_is_deleted_too(turns: int) -> None:
    """At every step of the purge, from when it has read the layout; or the build is refused."""
    store = MemoryStore()
    ran(begin(store, OLD, 0))
    stepped: Any = Stepped(store)
    deleting = delete_all(stepped)
    for _ in range(turns):
        step_once(deleting)
    with suppress(InvalidTransition):
        building = ran(change(store, lambda now: now.registered(NEW, "b2", 1))).building
        ran(store.generation(building).claim(0, b"new", {"events": Position(0)}))
    while step_once(deleting):
        pass

    assert ran(store.layout()).is_emptied
    late = store.generation(Generation(2, "b2", "building", NEW))
    assert (ran(late.partitions()), ran(late.frozen_by(0))) == ([], 0)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("anew", [False, True])
def test_a_worker_that_slept_through_a_purge_ends_and_brings_nothing_back(
    number: int, anew: bool
) -> None:
    """Of the generation in force or of one that was being built; also if somebody has begun anew.
    It puts back neither the layout nor a name, a topic that grew, or a partition."""
    world = ran(World.made())
    generation = world.layout.of(number)
    assert generation is not None
    watcher = LayoutWatcher(
        world.store,
        world.layout,
        generation,
        Fence(world.topic),
        world.rest,
        lambda _: None,
        world.now_ms,
    )
    ran(delete_all(world.store))
    if anew:
        ran(begin(world.store, NEW, 9))
    purged = ran(world.store.layout())

    if not anew:
        ran(admit(world.store, "agents", ["late"], [], 9))
        ran(change(world.store, lambda now: now.has_grown(["events"], 9)))
    with pytest.raises((Superseded, StoreUnavailable)):
        ran(world.store.generation(generation).claim(0, b"late", {"events": Position(0)}))
    with pytest.raises(Superseded, match="is deleted, or is being deleted"):
        ran(watcher.look())

    assert ran(world.store.layout()) == purged
    assert ran(world.store.generation(generation).partitions()) == []


def test_a_worker_whose_build_the_store_has_lost_is_told_so() -> None:
    """Another build was registered under its number before a worker has put it back."""
    world = ran(World.made())
    watcher = LayoutWatcher(
        world.store, world.layout, world.new, Fence(world.topic), world.rest, lambda _: None,
        world.now_ms,
    )  # fmt: skip
    content = world.store.snapshot().copy()
    content.layout = encode(structs.replace(world.layout, last=1, generations=(world.old,)))
    world.store.restore(MemorySnapshot(content))
    ran(change(world.store, lambda now: now.registered(NEW, "another", 9)))

    with pytest.raises(Superseded, match="or the store has lost it, and state was begun or built"):
        ran(watcher.look())


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("admitted", [0, 1, 9])
def test_a_worker_puts_back_a_layout_that_the_store_has_lost(number: int, admitted: int) -> None:
    """Until then its partitions cannot be claimed, however many names were admitted since."""
    world = ran(World.made())
    generation = world.layout.of(number)
    assert generation is not None
    state, start = world.store.generation(generation), {"events": Position(0)}
    watcher = LayoutWatcher(
        world.store,
        world.layout,
        generation,
        Fence(world.topic),
        world.rest,
        lambda _: None,
        world.now_ms,
    )
    world.store.restore(MemoryStore().snapshot())
    for name in map(str, range(admitted)):
        ran(admit(world.store, "agents", [name], [], 9))

    with pytest.raises(StoreUnavailable, match=f"has lost the entry of generation {number}"):
        ran(state.claim(0, b"mine", start))
    assert ran(state.partitions()) == []
    ran(watcher.look())
    ran(state.claim(0, b"mine", start))

    assert ran(world.store.layout()).generations == world.layout.generations
    assert len(ran(world.store.layout()).names.get("agents", ())) == admitted


@pytest.mark.parametrize("unmuted", [False, True])
@pytest.mark.parametrize("turns", range(2, 14))
def test_who_finishes_a_switch_does_not_end_one_that_has_begun_again(
    unmuted: bool, turns: int
) -> None:
    """The store has lost the switch, and another worker has put it back, at any of its calls: an
    old worker may have started in between."""
    world = ran(World.made())
    ran(change(world.store, lambda now: now.switched(2, 5)))
    if unmuted:
        ran(world.settle_rows())
    finishing = world.finish()
    for _ in range(turns):
        step_once(finishing)
    now = ran(world.store.layout())
    content, again = world.store.snapshot().copy(), now.put_back(world.layout, 9)
    content.layout = encode(structs.replace(again, version=now.version + 1))
    world.store.restore(MemorySnapshot(content))
    while step_once(finishing):
        pass

    assert [(g.state, g.purged) for g in ran(world.store.layout()).generations] == [
        ("retired", False),
        ("fencing", False),
    ]


@pytest.mark.parametrize("turns", range(40))
def test_a_worker_forgets_nothing_if_the_layout_goes_back_while_it_purges(turns: int) -> None:
    """Its generation stays live for it, whatever the store has lost when it is done."""
    world = ran(World.made())
    ran(change(world.store, lambda now: now.switched(2, 5)))
    fencing = world.store.snapshot().copy().layout
    ran(world.settle_rows())
    muted: list[bool] = []
    newest = ran(world.store.layout())
    store: Any = Stepped(world.store)
    watcher = LayoutWatcher(
        store, newest, newest.of(2), Fence(world.topic), world.rest, muted.append, world.now_ms
    )
    looking = watcher.look()
    for _ in range(turns):
        step_once(looking)
    content = world.store.snapshot().copy()
    content.layout = fencing
    world.store.restore(MemorySnapshot(content))
    while step_once(looking):
        pass
    ran(watcher.look())

    assert not any(muted)
    assert [(g.state, g.purged) for g in ran(world.store.layout()).generations] == [
        ("retired", True),
        ("live", False),
    ]


def test_a_partition_is_announced_again_after_a_muted_owner_has_read_it() -> None:
    """One that is not announced needs no mark for that, and neither does a second muted owner."""
    generation = Generation(2, "b", "live", NEW, since_ms=5)
    marks: set[str] = set()
    assert unsent(marks) == []

    for _ in range(3):
        marks.add(announced(generation, marks))
        asked = unsent(marks)
        assert len(asked) == 1
        marks.update(asked)

        assert unsent(marks) == []
        assert announced(generation, marks) not in marks


def step_once(work: Work) -> bool:
    """One turn of work that may be over."""
    return work.cr_frame is not None and step(work)  # type: ignore[attr-defined]


@pytest.mark.parametrize("before", range(8))
def test_old_workers_send_nothing_once_new_owners_have(before: int) -> None:
    """An old worker sleeps while a switch gets anywhere and a new owner sends what it may."""
    for turns in range(40):
        world = ran(World.made())
        sleeping, deciding, sending = world.old_worker(1), world.decide(), world.new_owner(0)
        for work in before * [sleeping] + turns * [deciding]:
            step_once(work)
        count = len(world.topic.messages)
        while len(world.topic.messages) == count and step_once(sending):
            pass

        with suppress(Superseded):
            ran(sleeping)

        world.check_topic()
        deciding.close()
        sending.close()


def test_two_processes_can_finish_a_switch_concurrently() -> None:
    """This holds for every order of their first turns."""
    turns = 10
    for mine in combinations(range(turns), turns // 2):
        world = ran(World.made())
        ran(change(world.store, lambda now: now.switched(2, 5)))
        one, two = world.finish(), world.finish()
        for turn in range(turns):
            step_once(one if turn in mine else two)
        for work in (one, two):
            while step_once(work):
                pass
        ran(world.settle())


def went_back(world: World, past: Any, rng: Random) -> None:
    """The store goes back: all of it, the layout alone, or single partitions."""
    content, before = world.store.snapshot().copy(), past.copy()
    what = rng.choice(("all", "layout", "partitions"))
    if what == "all":
        world.store.restore(past)
        return
    if what == "layout":
        content.layout = before.layout
        world.store.restore(MemorySnapshot(content))
        return
    for place in set(content.partitions) | set(before.partitions):
        if rng.random() < 0.5:
            for now, then in (
                (content.partitions, before.partitions),
                (content.frozen, before.frozen),
            ):
                now.pop(place, None)
                if place in then:
                    now[place] = then[place]
    world.store.restore(MemorySnapshot(content))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS + examples(300)))
def test_the_topic_is_in_order_and_the_switch_ends_despite_faults(seed: int) -> None:
    """Actors crash, sleep or restart, and the store goes back now and then."""
    rng = Random(seed)
    world = ran(World.made())
    made = actors(world)
    running: dict[str, Work] = {}
    goes_back = seed % 2
    past = world.store.snapshot()
    for _ in range(rng.randint(20, 250)):
        name = rng.choice(list(made))
        if name not in running or running[name].cr_frame is None:  # type: ignore[attr-defined]
            running[name] = made[name]()
        try:
            step(running[name])
        except Superseded:
            assert name.startswith("old")
        if rng.random() < 0.02:
            running.pop(name).close()
        if goes_back and rng.random() < 0.03:
            past = world.store.snapshot()
        if goes_back and rng.random() < 0.01:
            went_back(world, past, rng)
    for work in running.values():
        work.close()
    if goes_back == 0:
        world.check_topic()
    if ran(world.store.layout()).in_force.number == 1:
        ran(world.decide())
    ran(world.settle(cleared=bool(goes_back)))
