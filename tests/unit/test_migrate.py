"""Changed settings on old state: who refuses, which command is named, and migrations cut off."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from stream_metrics.adapters.memory import MemoryStore
from stream_metrics.ports import OnHold
from stream_metrics.settings import Settings
from stream_metrics.worker.export import export_state
from stream_metrics.worker.identity import MIGRATABLE, OtherIdentity, check_identity
from stream_metrics.worker.migrate import Migrate
from stream_metrics.worker.move import Unmovable, holding
from tests.fuse import Crash, Fuse, Fused
from tests.property.test_migrate import OLD, Configured, settings_with
from tests.property.test_reshard import partition_of
from tests.unit.test_reshard import HALF, TRAFFIC
from tests.unit.test_state_partition import NOON_S, search
from tests.unit.test_worst import searched

NEW = settings_with({"metrics": {"good_gain": 3, "windows": ["5m", "1h"]}})


async def halfway() -> Configured:
    """A group that has read half of the traffic, with a wipe that takes steps."""
    store = MemoryStore()
    store.wiped_at_once = 3
    group = Configured({"events": 2}, store)
    group.send(TRAFFIC[:HALF])
    await group.read()
    return group


def test_every_setting_that_migrates_is_one_of_the_state() -> None:
    """No name is misspelt, or of a setting that the state does not depend on."""
    every = settings_with({"metrics": {"retrieval": ["mrr"]}})

    assert every.of_state().keys() > MIGRATABLE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"metrics": {"good_gain": 3}},
            r"metrics.good_gain was 2, is 3\. .*stream-metrics migrate",
        ),
        ({"dedup": {"max_candidates": 8}}, "dedup.max_candidates was 64, .*metrics rebuild"),
        (
            {"metrics": {"good_gain": 3}, "limits": {"results_per_turn": 5}},
            "results_per_turn was 2000, is 5; metrics.good_gain .*stream-metrics rebuild",
        ),
    ],
)
def test_a_refusal_names_the_settings_and_the_way_out(
    changes: dict[str, dict[str, Any]], words: str
) -> None:
    """First the workers' settings; then migrate if it can apply all, else rebuild."""
    stored, ours = (
        Configured({"events": 1}, settings=settings).identity
        for settings in (OLD, settings_with(changes))
    )

    with pytest.raises(OtherIdentity, match=words) as raised:
        check_identity(stored, ours, 0)

    remedies = [str(raised.value).index(words) for words in ("same settings", "stop all workers")]
    assert remedies == sorted(remedies)


@pytest.mark.parametrize("others", [{}, {"metrics": {"good_gain": 3}}])
def test_without_the_workers_digest_key_nobody_is_told_to_rebuild(
    others: dict[str, dict[str, Any]],
) -> None:
    """The workers' settings are the remedy; wiping the state is not. The key itself is not told."""
    ours = settings_with({"state": {"digest_key": "another"}, **others})
    stored, mine = (Configured({"events": 1}, settings=each).identity for each in (OLD, ours))

    with pytest.raises(OtherIdentity, match=r"digest_key was .*Use the same settings") as raised:
        check_identity(stored, mine, 0)

    assert "environment file" in str(raised.value)
    for unwanted in ("rebuild", "migrate", "wipes", "a secret of the tests", "another"):
        assert unwanted not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dedup": {"max_candidates": 8}}, "max_candidates .* cannot be applied .* rebuild"),
        ({"metrics": {"windows": ["48h"]}, "state": {"ttl": "48h"}}, "windows 48h are longer"),
        ({"limits": {"turns_per_conversation": 5}}, "was 1000, is 5: it can only be raised"),
        ({"kafka": {"group_id": "stranger"}}, "group 'stream-metrics'"),
    ],
)
async def test_what_cannot_be_applied_is_refused(
    changes: dict[str, dict[str, Any]], words: str
) -> None:
    """Then nothing has changed, and workers with the old settings may start."""
    group = await halfway()
    before = await group.shown()

    with pytest.raises((Unmovable, OtherIdentity), match=words):
        await group.migrate(settings_with(changes))

    group.settings = OLD
    assert await group.store.held_by() is None
    assert await group.shown() == before


async def test_state_without_noted_settings_is_refused() -> None:
    """Nobody can tell what has changed."""
    group = await halfway()
    object.__setattr__(group.store._partitions[0].identity, "settings", "")  # type: ignore[attr-defined]

    with pytest.raises(Unmovable, match=r"does not record the settings .* rebuild"):
        await group.migrate(NEW)


async def test_the_time_is_told_from_which_on_a_longer_window_will_do() -> None:
    """Two migrations do not give what one is refused: before that record time, also after a
    reshard, the window is refused; at that time it is taken."""
    short = settings_with({"metrics": {"windows": ["1h"]}, "state": {"ttl": "1h"}})
    kept = settings_with({"metrics": {"windows": ["1h"]}, "state": {"ttl": "24h"}})
    long = settings_with({"metrics": {"windows": ["24h"]}, "state": {"ttl": "24h"}})
    group = Configured({"events": 1}, settings=short)
    group.send([search("c-1", 1, NOON_S, "document")])
    await group.read()
    with pytest.raises(Unmovable, match=r"Migrate only state\.ttl now, and") as first:
        await group.migrate(long)
    await group.migrate(kept)
    await group.reshard({"events": 2}, partitioners={"crc32": partition_of})
    with pytest.raises(Unmovable) as second:
        await group.migrate(long)
    told = datetime.fromisoformat(str(second.value).split("records of ")[1].split(" ")[0])
    assert str(told.astimezone(UTC)) in str(first.value).replace("T", " ").replace("Z", "+00:00")

    for at_s, refused in ((int(told.timestamp()) - 1, True), (int(told.timestamp()), False)):
        group.settings = kept
        group.send([search("c-2", at_s, at_s, "document")])
        await group.read()
        if refused:
            with pytest.raises(Unmovable, match="windows 24h"):
                await group.migrate(long)
        else:
            await group.migrate(long)


@pytest.mark.parametrize(("ours_s", "stores_s"), [(NOON_S, NOON_S + 900), (NOON_S + 900, NOON_S)])
async def test_a_clock_that_is_behind_does_not_promise_more(ours_s: int, stores_s: int) -> None:
    """Workers may have let conversations expire by the later of the two: that one says since when
    all was kept."""
    store = MemoryStore()
    store.clock = lambda: 1000 * stores_s
    short = settings_with({"metrics": {"windows": ["1h"]}, "state": {"ttl": "1h"}})
    group = Configured({"events": 1}, store, settings=short)
    group.send([search("c-1", 1, NOON_S, "document")])
    await group.read()
    group.settings = settings_with({"metrics": {"windows": ["1h"]}, "state": {"ttl": "24h"}})
    options = replace(group.options, now_ms=lambda: 1000 * ours_s)

    async with holding(store, "migrate") as mark:
        await Migrate(store, options, print, lambda _: None).run(mark)

    identity = (await store.describe(0)).identity
    assert identity is not None
    assert identity.kept_since_ms == 1000 * (NOON_S + 900 - 3600)


async def test_it_lists_what_changes() -> None:
    """Before it begins, by name, with the old value and the new."""
    group = await halfway()
    group.settings = NEW

    _, changes = await Migrate(group.store, group.options, print, lambda _: None).check()

    assert [change.name for change in changes] == ["metrics.good_gain", "metrics.windows"]
    assert (changes[0].before, changes[0].after) == (2, 3)


async def test_a_conversation_may_get_more_turns() -> None:
    """Those of it that were refused before are missing, and it stays marked; others are as if the
    limit had always been so."""
    group = Configured({"events": 1}, settings=_with_turns(2))
    group.send([_turn("many", 1), _turn("many", 2), _turn("many", 3), _turn("few", 1)])
    await group.read()
    await group.migrate(_with_turns(4))
    group.send([_turn("many", 4), _turn("few", 2), _turn("few", 3)])
    await group.read()

    found = await export_state(group.store, group.options.engine, group.options.windows, "all")

    assert [(row["conversation_id"], row["turn"], row["over_limit"]) for row in found.rows] == [
        ("few", 1, False),
        ("few", 2, False),
        ("few", 3, False),
        ("many", 1, False),
        ("many", 2, True),
        ("many", 4, False),
    ]


def _with_turns(limit: int) -> Settings:
    return settings_with({"limits": {"turns_per_conversation": limit}})


def _turn(conversation: str, number: int) -> Any:
    event = searched(conversation, 1, ["document"], turn=number, event_id=f"e-{number}")
    return conversation.encode(), json.dumps(event).encode(), NOON_S * 1000


@pytest.mark.slow
async def test_a_migration_may_be_cut_off_anywhere() -> None:
    """Wherever it dies, the state is that before or that after; workers are refused until it has
    been run again; and that ends as if nothing had happened."""
    other = Configured({"events": 2}, settings=NEW)
    other.send(TRAFFIC)
    await other.read()
    expected = await other.shown()
    first = await halfway()
    snapshot = first.store.snapshot()  # type: ignore[attr-defined]
    for left in count(0, 3):
        group = Configured({"events": 2}, first.store, first.letters, first.logs)
        first.store.restore(snapshot)  # type: ignore[attr-defined]
        group.store = Fused(first.store, Fuse(left))
        try:
            await group.migrate(NEW)
        except Crash:
            pass
        else:
            break
        group.store = first.store
        if await group.store.held_by() is not None:
            with pytest.raises(OnHold):
                await group.store.claim(0, b"worker", group.identity, {})
        await group.migrate(NEW)
        logs = {place: list(log) for place, log in first.logs.items()}
        group.logs = logs
        group.send(TRAFFIC[HALF:])
        await group.read()
        assert await group.shown() == expected, left
    assert left > 20


def test_the_settings_of_the_state_are_those_of_the_fingerprint() -> None:
    """A setting has part in the one exactly if it has part in the other."""
    for part in ("dedup", "limits", "metrics", "state"):
        for name in type(getattr(OLD, part)).model_fields:
            if name == "digest_key_file":
                continue
            other = settings_with({part: {name: _another(OLD, part, name)}})
            same = other.fingerprint() == OLD.fingerprint()
            assert same == (other.of_state() == OLD.of_state()), name


def _another(settings: Settings, part: str, name: str) -> Any:
    """Some other value of a setting."""
    given: dict[str, Any] = {
        "identical_content": "different", "gain_of_document": "max", "turn_scope": "last",
        "windows": ["1h"], "dimension": "release", "ttl": "30h", "digest_key": "x",
        "entity_types": [{"name": "x"}], "ignore_fields": ["x"], "agents": ["x"], "routes": ["x"],
        "retrieval": ["mrr"],
        "write_schema": 2, "tables": 1, "turns_per_conversation": 5,
    }  # fmt: skip
    value = getattr(getattr(settings, part), name)
    if name in given:
        return given[name]
    return not value if isinstance(value, bool) else value - 1
