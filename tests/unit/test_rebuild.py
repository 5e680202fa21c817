"""State that is wiped and read again: cut off, refused, and what is told to be lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from itertools import count

import pytest

from stream_metrics.adapters.memory import MemoryStore
from stream_metrics.ports import OnHold, Record, Wiped
from stream_metrics.settings import Settings
from stream_metrics.worker.astray import Place
from stream_metrics.worker.identity import OtherIdentity
from stream_metrics.worker.move import Unmovable, holding
from stream_metrics.worker.rebuild import Former, Reach, Rebuild
from stream_metrics.worker.source import Extent
from tests.fuse import Crash, Fuse, Fused
from tests.property.test_migrate import Configured, settings_with
from tests.unit.test_reshard import HALF, TRAFFIC
from tests.unit.test_state_partition import NOON_S, search

NEW = settings_with({"dedup": {"max_candidates": 2}, "metrics": {"dimension": "release"}})


class Kept:
    """The logs of a group, of which some beginnings are deleted."""

    def __init__(self, group: Configured, firsts: Mapping[Place, int] | None = None) -> None:
        self._group = group
        self._firsts = firsts or {}

    async def extents(self, places: Collection[Place]) -> dict[Place, Extent]:
        """See ``Starts``."""
        logs = self._group.logs
        return {p: Extent(self._firsts.get(p, 0), len(logs.get(p, []))) for p in places}

    async def records(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> AsyncIterator[Record]:
        """See ``Starts``."""
        for place, start in starts.items():
            for record in self._group.logs.get(place, [])[start : ends[place]]:
                yield record

    async def oldest_ms(self, places: Collection[Place]) -> dict[Place, int]:
        """See ``Starts``."""
        found = {}
        for place in places:
            if log := self._group.logs.get(place, [])[self._firsts.get(place, 0) :]:
                found[place] = log[0].timestamp_ms or 0
        return found


def rebuilding(group: Configured, firsts: Mapping[Place, int] | None = None) -> Rebuild:
    """The command's work, with the group's settings."""
    return Rebuild(group.store, Kept(group, firsts), group.options, lambda _: None)


async def rebuild(group: Configured) -> None:
    """What the command does, and workers that start after it."""
    group.partitions = {}
    async with holding(group.store, "rebuild") as mark:
        await rebuilding(group).run(mark)


async def filled() -> Configured:
    """A group that has read the traffic."""
    store = MemoryStore()
    store.wiped_at_once = 3
    group = Configured({"events": 2}, store)
    group.send(TRAFFIC)
    await group.read()
    return group


async def anew() -> object:
    """What workers show that had the new settings all along."""
    group = Configured({"events": 2}, settings=NEW)
    group.send(TRAFFIC)
    await group.read()
    return await group.shown()


async def test_other_settings_read_the_topics_again() -> None:
    """Rows and windows are those of workers that had them all along."""
    group = await filled()
    group.settings = NEW

    await rebuild(group)

    assert sum([await group.store.count(n) for n in await group.store.partitions()]) == 0
    await group.read()
    assert await group.shown() == await anew()


@pytest.mark.slow
async def test_a_rebuild_may_be_cut_off_anywhere() -> None:
    """Wherever it dies, workers are refused until it has been run again; and that ends as if
    nothing had happened."""
    expected = await anew()
    first = await filled()
    snapshot = first.store.snapshot()  # type: ignore[attr-defined]
    for left in count(0, 2):
        first.store.restore(snapshot)  # type: ignore[attr-defined]
        group = Configured({"events": 2}, first.store, first.letters, first.logs, settings=NEW)
        group.store = Fused(first.store, Fuse(left))
        try:
            await rebuild(group)
        except Crash:
            pass
        else:
            break
        group.store = first.store
        if await group.store.held_by() is not None:
            with pytest.raises(OnHold):
                await group.store.claim(0, b"worker", group.identity, {})
        await rebuild(group)
        await group.read()
        assert await group.shown() == expected, left
    assert left > 10


async def test_half_a_wipe_is_no_obstacle() -> None:
    """What a policy's wipe has left is replaced like state."""
    group = await filled()
    before = await group.shown()
    assert await group.store.wipe(1) != Wiped()

    await rebuild(group)

    assert await group.store.unfinished() == []
    await group.read()
    assert await group.shown() == before


async def test_lost_state_is_read_again() -> None:
    """An empty namespace gets partitions at the starts of the logs."""
    group = await filled()
    before = await group.shown()
    group.store = MemoryStore()

    await rebuild(group)

    await group.read()
    assert await group.shown() == before


async def test_it_tells_how_far_back_the_topics_go() -> None:
    """By topic: how much is gone, from when on it is there, and whose records are all gone."""
    group = Configured({"events": 1, "labels": 1})
    group.send([search(f"c{n}", 1, NOON_S + n, "a") for n in range(4)], {"events": 1})
    await group.read()

    reach = await rebuilding(group, {("events", 0): 3}).reach()

    assert reach == [Reach("events", 3, 1000 * (NOON_S + 3), 3), Reach("labels")]


async def test_an_empty_log_has_lost_all() -> None:
    """There is no oldest record, and every conversation is bare."""
    group = Configured({"events": 1})
    group.send([search("c", 1, NOON_S, "a")])
    await group.read()

    assert await rebuilding(group, {("events", 0): 1}).reach() == [Reach("events", 1, None, 1)]


async def test_what_was_read_of_other_topics_is_told() -> None:
    """Conversations without a record on the new topics are lost, though those begin at 0."""
    group = Configured({"events": 1})
    group.send([search(f"c{n}", 1, NOON_S + n, "a") for n in range(4)])
    await group.read()
    await group.reshard({"events-2": 1})
    group.send([search("c3", 2, NOON_S + 9, "a")])
    await group.read()

    work = rebuilding(group)

    assert await work.reach() == [Reach("events-2")]
    assert await work.former() == Former(1000 * (NOON_S + 3), 3)


async def test_nothing_is_said_of_other_topics_where_there_were_none() -> None:
    """Neither of a new group, nor after a migration."""
    group = await filled()
    await group.migrate(settings_with({"metrics": {"good_gain": 3}}))

    assert await rebuilding(group).former() is None


async def test_topics_that_got_partitions_are_refused() -> None:
    """Older records lie where the old count put them."""
    group = await filled()
    group.counts = {"events": 3}

    with pytest.raises(Unmovable, match="stream-metrics reshard"):
        await rebuilding(group).reach()


async def grown() -> Configured:
    """A group whose topic got a third partition between two halves of the traffic."""
    group = Configured({"events": 2})
    group.send(TRAFFIC[:HALF])
    await group.read()
    await group.reshard({"events": 3})
    group.send(TRAFFIC[HALF:])
    await group.read()
    return group


async def test_records_of_an_earlier_count_are_not_read_again() -> None:
    """After a reshard of the same topics the older records lie where the old count put them."""
    group = await grown()
    before = await group.shown()

    with pytest.raises(Unmovable, match=r"of an earlier count, .*kafka-delete-records"):
        await rebuild(group)

    assert await group.store.held_by() is None
    assert await group.shown() == before


async def test_once_records_of_an_earlier_count_are_gone_the_rest_is_read() -> None:
    """Logs that begin where the reshard found their ends hold every key where it belongs; nothing
    of the earlier count is noted any more."""
    group = await grown()
    noted = (await group.store.describe(0)).identity
    assert noted is not None
    ends = {("events", number): end for number, end in enumerate(noted.outgrown["events"])}
    group.partitions = {}

    async with holding(group.store, "rebuild") as mark:
        await rebuilding(group, ends).run(mark)

    state = await group.store.describe(0)
    assert state.identity is not None
    assert (state.identity.outgrown, state.positions["events"].offset) == ({}, ends["events", 0])


async def test_a_migration_keeps_in_mind_where_an_earlier_count_ended() -> None:
    """Nor may records be read again after it that lie where an earlier count put them."""
    group = await grown()
    await group.migrate(settings_with({"metrics": {"good_gain": 3}}))

    with pytest.raises(Unmovable, match="earlier count"):
        await rebuild(group)


OTHERS = [search(f"o{n}", 1, NOON_S + 9_000 + n, "a") for n in range(len(TRAFFIC))]


@pytest.mark.parametrize("share", [0.1, 1.0], ids=["short", "long"])
@pytest.mark.parametrize("settings", [settings_with({}), NEW], ids=["same", "changed"])
async def test_a_topic_made_anew_after_a_reshard_is_read(share: float, settings: Settings) -> None:
    """Nothing in it was put there by an earlier count, be it shorter than the former one or not."""
    group = await grown()
    group.logs, group.settings = {}, settings
    others = OTHERS[: round(share * len(OTHERS))]
    group.send(others)

    await rebuild(group)

    await group.read()
    whole = Configured({"events": 3}, settings=settings)
    whole.send(others)
    await whole.read()
    assert await group.shown() == await whole.shown()


async def test_it_says_that_a_topic_was_made_anew() -> None:
    """Before it asks, since somebody may know better."""
    group = await grown()
    group.logs = {}
    said: list[str] = []

    await Rebuild(group.store, Kept(group), group.options, said.append).reach()

    assert [line.startswith("events: recreated") for line in said] == [True]


@pytest.mark.parametrize("settings", [settings_with({}), NEW], ids=["same", "changed"])
async def test_a_log_that_has_lost_records_does_not_make_another_topic(settings: Settings) -> None:
    """Others of the topic are recognised, though digests may have got another key: records of an
    earlier count are there still."""
    group = await grown()
    group.settings = settings
    del group.logs["events", 0][5:]

    with pytest.raises(Unmovable, match="of an earlier count, "):
        await rebuild(group)


async def test_another_groups_state_is_refused() -> None:
    """A namespace by mistake is not wiped."""
    group = await filled()
    stranger = replace(group.identity, group="stranger")
    options = replace(group.options, identity=stranger)

    with pytest.raises(OtherIdentity, match="belongs to group 'stream-metrics'"):
        await Rebuild(group.store, Kept(group), options, print).reach()
