"""Watches the state and the group during a round, and checks what must never happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from stream_metrics.core.engine.codec import stored_header
from stream_metrics.live.layout import Generation, Layout
from stream_metrics.live.ports import (
    ConversationKey,
    PartitionState,
    StoreRefused,
    StoreUnavailable,
)
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.generations import state_in_force

LAYOUT_CHECK_SECONDS: Final = 0.05
LOOK_AT_COMMITS_SECONDS: Final = 0.4
READ_TIMEOUT_SECONDS: Final = 3.0

PartitionId = tuple[str, int]


def now() -> float:
    """The monotonic clock of all looks."""
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Look:
    """The stored offsets at a moment of the monotonic clock."""

    at: float
    offsets: dict[PartitionId, int]

    @property
    def total(self) -> int:
        """Offsets passed, of all partitions."""
        return sum(self.offsets.values())

    def behind(self, ends: dict[PartitionId, int]) -> int:
        """The number of offsets up to ``ends``."""
        return sum(max(0, end - self.offsets.get(place, 0)) for place, end in ends.items())


@dataclass
class Followed:
    """What was seen of one generation of state.

    ``offsets`` are those stored last, ``tokens`` the owners of each state partition in their order.
    ``excused`` are places with commits ahead of a state that went back.
    """

    offsets: dict[PartitionId, int] = field(default_factory=dict)
    tokens: dict[int, list[bytes]] = field(default_factory=dict)
    excused: set[PartitionId] = field(default_factory=set)


class Watcher:
    """Reads Redis and the commits of its groups continuously, without proxies.

    It follows the generation in force and the one that is being built; ``looks``, ``offsets`` and
    owners are those of the one in force. ``problems`` is what it found wrong. While ``may_go_back``
    is set, offsets and tokens may be those of an earlier time.
    """

    def __init__(
        self, redis: RedisOptions, bootstrap_servers: str, topics: tuple[str, ...]
    ) -> None:
        self.problems: list[str] = []
        self.looks: list[Look] = []
        self.rolled_back = 0
        self.may_go_back = False
        self._options = redis
        self._bootstrap = bootstrap_servers
        self._topics = topics
        self._followed: dict[str, Followed] = {}  # by the mark of a generation
        self._in_force = Followed()

    @property
    def total(self) -> int:
        """Offsets passed when it last looked."""
        return self.looks[-1].total if self.looks else 0

    @property
    def offsets(self) -> dict[PartitionId, int]:
        """The stored offsets of the generation in force when it last looked."""
        return self._in_force.offsets

    # -- the state ------------------------------------------------------------------------------

    async def watch_state(self) -> None:
        """Read the state until cancelled."""
        store = connect(self._options)
        try:
            while True:
                with suppress(StoreUnavailable, StoreRefused):
                    for generation in await followed(store):
                        self._take(generation, await states_of(store, generation))
                await asyncio.sleep(LAYOUT_CHECK_SECONDS)
        finally:
            await store.close()

    def _take(self, generation: Generation, states: dict[int, PartitionState]) -> None:
        seen, back = self._followed.setdefault(generation.mark, Followed()), 0
        for number, state in states.items():
            held = seen.tokens.setdefault(number, [])
            same = bool(held) and held[-1] == state.token
            if not same:
                self._new_token(held, number, state.token or b"")
            for topic, position in state.positions.items():
                place = (topic, number)
                before = seen.offsets.get(place, 0)
                if position.offset < before:
                    back += before - position.offset
                    if not self.may_go_back:
                        owner = "one owner" if same else "a change of owner"
                        self._wrong(
                            f"{place} went from {before} to {position.offset} under {owner} of "
                            f"generation {generation.number}"
                        )
                    seen.excused.add(place)
                seen.offsets[place] = position.offset
        self.rolled_back += back
        if generation.in_force:
            self._in_force = seen
            self.looks.append(Look(now(), dict(seen.offsets)))

    def _new_token(self, held: list[bytes], number: int, token: bytes) -> None:
        if token in held and not self.may_go_back:
            self._wrong(f"an earlier owner of state partition {number} is back")
        held.append(token)

    @property
    def owners(self) -> int:
        """Changes of owner seen so far."""
        return sum(map(len, self._in_force.tokens.values()))

    def owners_of(self, number: int) -> int:
        """Changes of owner of one state partition seen so far."""
        return len(self._in_force.tokens.get(number, ()))

    async def layout(self) -> Layout:
        """The generations that there are; raises as Redis does."""
        store = connect(self._options)
        try:
            return await store.layout()
        finally:
            await store.close()

    async def newest(self) -> Generation:
        """The generation that is being built, else the one in force; raises as Redis does."""
        layout = await self.layout()
        found = layout.building or layout.in_force
        assert found is not None
        return found

    def passed(self, generation: Generation, number: int) -> int:
        """Offsets that a state partition of a generation had passed when last looked at."""
        offsets = self._followed[generation.mark].offsets
        return sum(offset for place, offset in offsets.items() if place[1] == number)

    async def tags(self, numbers: Sequence[int]) -> list[str]:
        """The hash tags of state partitions in force."""
        found = (await self.layout()).in_force
        assert found is not None
        return [found.places[number] for number in numbers]

    async def keys_by_schema(self) -> dict[int, set[ConversationKey]]:
        """The conversations that Redis has, by the latest schema that a part of them is stored by.

        It reads them all. Raises ``StoreUnavailable`` or ``StoreRefused`` as Redis does.
        """
        store = connect(self._options)
        found: dict[int, set[ConversationKey]] = {}
        try:
            state = await state_in_force(store)
            for number in await state.partitions():
                async for key, stored in state.conversations(number):
                    found.setdefault(stored_header(stored.hot).schema, set()).add(key)
        finally:
            await store.close()
        return found

    def still_for(self, seconds: float, since: float) -> bool:
        """Whether offsets have not moved in the last ``seconds``, all of which are after then."""
        last = self.looks[-1]
        if last.at < since + seconds:
            return False
        recent = (look for look in reversed(self.looks) if look.at >= last.at - seconds)
        return all(look.offsets == last.offsets for look in recent)

    # -- the commits ----------------------------------------------------------------------------

    async def watch_commits(self) -> None:
        """Read the commits of each group, then its state, until cancelled."""
        store = connect(self._options)
        client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, request_timeout_ms=3_000)
        started = False
        try:
            while True:
                await asyncio.sleep(LOOK_AT_COMMITS_SECONDS)
                with suppress(KafkaError, OSError, TimeoutError, StoreUnavailable, StoreRefused):
                    async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                        if not started:
                            await client.start()
                            started = True
                        for generation in await followed(store):
                            commits = await client.list_consumer_group_offsets(generation.group)
                            states = await states_of(store, generation)
                            self._compare(generation, commits, states)
        finally:
            await client.close()
            await store.close()

    def _compare(
        self,
        generation: Generation,
        commits: dict[Any, Any],
        states: dict[int, PartitionState],
    ) -> None:
        excused = self._followed.setdefault(generation.mark, Followed()).excused
        for place, commit in commits.items():
            state = states.get(place.partition)
            if state is None or place.topic not in state.positions:
                continue
            key, stored = (place.topic, place.partition), state.positions[place.topic].offset
            if commit.offset <= stored:
                if not self.may_go_back:
                    excused.discard(key)
            elif not self.may_go_back and key not in excused:
                self._wrong(
                    f"{key}: commit {commit.offset} of group {generation.group} is ahead of the "
                    f"stored {stored}"
                )

    # -- the log --------------------------------------------------------------------------------

    async def ends(self, partitions: int) -> dict[PartitionId, int]:
        """The ends of the log as a reader of committed records sees them."""
        places = [TopicPartition(t, n) for t in self._topics for n in range(partitions)]
        while True:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                isolation_level="read_committed",
                request_timeout_ms=5_000,
            )
            try:
                async with asyncio.timeout(10):
                    await consumer.start()
                    found = await consumer.end_offsets(places)
                return {(place.topic, place.partition): end for place, end in found.items()}
            except (KafkaError, OSError, TimeoutError):
                await asyncio.sleep(0.2)
            finally:
                await consumer.stop()

    # -- progress -------------------------------------------------------------------------------

    def longest_pause(self, since: float, ends: dict[PartitionId, int]) -> float:
        """The longest time in seconds that a partition made no progress towards ``ends``."""
        longest = 0.0
        earlier = next((look for look in reversed(self.looks) if look.at < since), self.looks[0])
        looks = [look for look in self.looks if look.at >= since]
        for place, end in ends.items():
            moved = since
            before = earlier.offsets.get(place, 0)
            for look in looks:
                offset = look.offsets.get(place, 0)
                if offset != before:
                    longest = max(longest, look.at - moved)
                    moved, before = look.at, offset
                if offset >= end:
                    break
        return longest

    def first(self, condition: Callable[[Look], bool], since: float) -> float | None:
        """When a look first met ``condition`` after ``since``."""
        for look in self.looks:
            if look.at >= since and condition(look):
                return look.at
        return None

    def most_behind(self, ends: dict[PartitionId, int], since: float) -> int:
        """The most that was left until ``ends`` at any time since then."""
        return max((look.behind(ends) for look in self.looks if look.at >= since), default=0)

    def _wrong(self, what: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(what)


async def followed(store: RedisStore) -> list[Generation]:
    """The generation in force, and the one that is being built."""
    layout = await store.layout()
    return [generation for generation in (layout.in_force, layout.building) if generation]


async def states_of(store: RedisStore, generation: Generation) -> dict[int, PartitionState]:
    """Its claimed state partitions that are not being deleted."""
    state = store.generation(generation)
    found = {number: await state.describe(number) for number in await state.partitions()}
    return {n: held for n, held in found.items() if held.token is not None and not held.wiping}
