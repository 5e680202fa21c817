"""Settings that are changed by ``migrate`` in the middle of a stream give what they always gave."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.ports import Identity
from stream_metrics.runtime import identity, partition_options
from stream_metrics.settings import Settings
from stream_metrics.worker.audit import Audit, AuditOptions, audit
from stream_metrics.worker.export import Export, export_state
from stream_metrics.worker.migrate import Migrate
from stream_metrics.worker.move import Unmovable, holding
from stream_metrics.worker.options import PartitionOptions
from tests.property.test_partition import once
from tests.property.test_reshard import Group, sound
from tests.strategies import KeyedRecord, arrivals, streams
from tests.unit.test_audit import never
from tests.unit.test_state_partition import NOON_S, search

KEY: dict[str, Any] = {"digest_key": "a secret of the tests"}
OLD = Settings.model_validate({"state": KEY, "metrics": {"turn_scope": "all"}})


def settings_with(changes: dict[str, dict[str, Any]]) -> Settings:
    """The same with changes."""
    parts: dict[str, dict[str, Any]] = {"state": KEY, "metrics": {"turn_scope": "all"}}
    return Settings.model_validate(
        {name: parts.get(name, {}) | changes.get(name, {}) for name in {*parts, *changes}}
    )


CHANGES: list[dict[str, dict[str, Any]]] = [
    {"metrics": {"good_gain": 3}},
    {"metrics": {"gain_of_document": "max"}},
    {"metrics": {"windows": ["10m", "24h"]}},
    {"metrics": {"agents": ["zoe"], "routes": ["web"]}},
    {"metrics": {"retrieval": ["judged@2", "ndcg@10", "recall@2"]}},
    {"state": {"ttl": "48h"}},
    {"metrics": {"good_gain": 1, "windows": ["5m"]}, "state": {"ttl": "30h"}},
]


@dataclass
class Configured(Group):
    """A group whose workers have settings."""

    settings: Settings = field(default_factory=lambda: OLD)

    @property
    def identity(self) -> Identity:
        """Of the state that workers build now."""
        return identity(self.settings, dict(self.counts))

    @property
    def options(self) -> PartitionOptions:
        """What workers are started with now."""
        return replace(partition_options(self.settings), identity=self.identity, now_ms=None)

    async def migrate(self, settings: Settings) -> None:
        """What the command does."""
        self.partitions = {}
        self.settings = settings
        async with holding(self.store, "migrate") as mark:
            work = Migrate(self.store, self.options, print, lambda _: None, self.outputs)
            await work.run(mark)

    async def export(self) -> Export:
        """What the store holds."""
        options = self.options
        return await export_state(self.store, options.engine, options.windows, "all")

    async def audit(self) -> Audit:
        """Windows against conversations."""
        shared = self.options
        options = AuditOptions(
            self.identity, shared.engine, shared.windows, shared.agents, shared.routes
        )
        return await audit(self.store, options, never)


@pytest.mark.slow
@given(st.data())
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_migration_in_the_middle_of_a_stream(
    changes: dict[str, dict[str, Any]], data: st.DataObject
) -> None:
    """Rows and windows are those of workers that had the new settings all along; and back again."""
    stream: list[KeyedRecord] = [(key, value, None) for key, value, _ in data.draw(streams())]
    batches = data.draw(arrivals(stream))
    cut = data.draw(st.integers(0, len(batches)))
    new = settings_with(changes)

    async def run() -> None:
        group, other = Configured({"events": 2}), Configured({"events": 2}, settings=new)
        await group.read()
        for batch in batches[:cut]:
            group.send(batch)
            await group.read()
        before = await group.shown()
        await group.migrate(new)
        await group.migrate(OLD)
        assert await group.shown() == before
        await group.migrate(new)
        assert sound(await group.audit())
        for batch in batches[cut:]:
            group.send(batch)
            await group.read()
        assert sound(await group.audit())
        for batch in batches:
            other.send(batch)
            await other.read()
        assert await group.shown() == await other.shown()

    asyncio.run(run())


SHORT = settings_with({"metrics": {"windows": ["1h"]}, "state": {"ttl": "1h"}})
KEPT = settings_with({"metrics": {"windows": ["1h"]}, "state": {"ttl": "24h"}})
LONG = settings_with({"metrics": {"windows": ["1h", "12h", "24h"]}, "state": {"ttl": "24h"}})


@given(st.data())
def test_windows_come_when_what_was_kept_fills_them(data: st.DataObject) -> None:
    """After a longer ttl longer windows are refused until what has expired before has left them;
    then they are those of workers that had both all along."""
    minutes = data.draw(st.lists(st.integers(1, 40 * 60), min_size=2, max_size=25, unique=True))
    times_s = [NOON_S + 60 * minute for minute in sorted(minutes)]
    raised = data.draw(st.integers(1, len(times_s)))
    tried = data.draw(st.integers(raised, len(times_s)))

    async def run() -> None:
        group = Configured({"events": 2}, settings=SHORT)
        other = Configured({"events": 2}, settings=LONG)
        for at, at_s in enumerate(times_s):
            if at == raised:
                await group.migrate(KEPT)
            if at == tried:
                await _widened(group, other)
            for each in (group, other):
                each.send([search(f"c-{at}", 1, at_s, "document")])
                await each.read()
                await _expire_to(each, 1000 * at_s)
        if raised < len(times_s):
            await _widened(group, other)

    asyncio.run(run())


async def _widened(group: Configured, other: Configured) -> None:
    """Take the long windows, unless that is refused; then it is too early for them."""
    before = await group.shown()
    try:
        await group.migrate(LONG)
    except Unmovable:
        group.settings = KEPT
        assert await group.shown() == before
        return
    assert sound(await group.audit())
    assert (await group.shown())[1] == (await other.shown())[1]


async def _expire_to(group: Configured, horizon_ms: int) -> None:
    """What has no record for so long expires."""
    for number in range(group.count):
        partition = group.partitions[number]
        await partition.expire(horizon_ms, once)
