"""What the state and the group say while a round runs, and what they must never say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from stream_metrics.adapters.redis.connect import RedisOptions, connect
from stream_metrics.engine.codec import stored_header
from stream_metrics.ports import ConversationKey, PartitionState, StoreRefused, StoreUnavailable
from stream_metrics.worker.generations import state_in_force

LOOK_SECONDS: Final = 0.05
LOOK_AT_COMMITS_SECONDS: Final = 0.4
PATIENCE_SECONDS: Final = 3.0

Place = tuple[str, int]


def now() -> float:
    """The clock of all looks."""
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Look:
    """The stored offsets at a moment of the monotonic clock."""

    at: float
    offsets: dict[Place, int]

    @property
    def total(self) -> int:
        """Offsets passed, of all partitions."""
        return sum(self.offsets.values())

    def behind(self, ends: dict[Place, int]) -> int:
        """Offsets left until ``ends``."""
        return sum(max(0, end - self.offsets.get(place, 0)) for place, end in ends.items())


class Watcher:
    """Looks at Redis and at the group's commits without a pause, past all proxies.

    ``problems`` is what it found wrong. While ``may_go_back`` is set, offsets and tokens may be
    those of an earlier time.
    """

    def __init__(
        self, redis: RedisOptions, bootstrap_servers: str, group: str, topics: tuple[str, ...]
    ) -> None:
        self.problems: list[str] = []
        self.looks: list[Look] = []
        self.rolled_back = 0
        self.may_go_back = False
        self.offsets: dict[Place, int] = {}
        self._options = redis
        self._bootstrap = bootstrap_servers
        self._group = group
        self._topics = topics
        self._tokens: dict[int, list[bytes]] = {}
        self._excused: set[Place] = set()  # commits there are ahead of a state that went back
        self._places: list[TopicPartition] = []

    @property
    def total(self) -> int:
        """Offsets passed when it last looked."""
        return self.looks[-1].total if self.looks else 0

    # -- the state ------------------------------------------------------------------------------

    async def watch_state(self) -> None:
        """Look at the state until cancelled."""
        store = connect(self._options)
        try:
            while True:
                with suppress(StoreUnavailable, StoreRefused):
                    state = await state_in_force(store)
                    states = {n: await state.describe(n) for n in await state.partitions()}
                    self._take(states)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await store.close()

    def _take(self, states: dict[int, PartitionState]) -> None:
        back = 0
        for number, state in states.items():
            held = self._tokens.setdefault(number, [])
            same = bool(held) and held[-1] == state.token
            if not same:
                self._new_token(number, state.token or b"")
            for topic, position in state.positions.items():
                place = (topic, number)
                before = self.offsets.get(place, 0)
                if position.offset < before:
                    back += before - position.offset
                    if not self.may_go_back:
                        owner = "one owner" if same else "a change of owner"
                        self._wrong(
                            f"{place} went from {before} to {position.offset} under {owner}"
                        )
                    self._excused.add(place)
                self.offsets[place] = position.offset
        self.rolled_back += back
        self.looks.append(Look(now(), dict(self.offsets)))

    def _new_token(self, number: int, token: bytes) -> None:
        held = self._tokens[number]
        if token in held and not self.may_go_back:
            self._wrong(f"an earlier owner of state partition {number} is back")
        held.append(token)

    @property
    def owners(self) -> int:
        """Changes of owner seen so far."""
        return sum(self.owners_of(number) for number in self._tokens)

    def owners_of(self, number: int) -> int:
        """Changes of owner of one state partition seen so far."""
        return len(self._tokens.get(number, ()))

    async def tags(self, numbers: Sequence[int]) -> list[str]:
        """The hash tags of state partitions in force."""
        store = connect(self._options)
        try:
            found = (await store.layout()).in_force
        finally:
            await store.close()
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
        """Look at the group's commits, then at the state, until cancelled."""
        store = connect(self._options)
        client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, request_timeout_ms=3_000)
        started = False
        try:
            while True:
                await asyncio.sleep(LOOK_AT_COMMITS_SECONDS)
                with suppress(KafkaError, OSError, TimeoutError, StoreUnavailable, StoreRefused):
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        if not started:
                            await client.start()
                            started = True
                        commits = await client.list_consumer_group_offsets(self._group)
                        state = await state_in_force(store)
                    states = {n: await state.describe(n) for n in await state.partitions()}
                    self._compare(commits, states)
        finally:
            await client.close()
            await store.close()

    def _compare(self, commits: dict[Any, Any], states: dict[int, PartitionState]) -> None:
        for place, commit in commits.items():
            state = states.get(place.partition)
            if state is None or place.topic not in state.positions:
                continue
            key, stored = (place.topic, place.partition), state.positions[place.topic].offset
            if commit.offset <= stored:
                if not self.may_go_back:
                    self._excused.discard(key)
            elif not self.may_go_back and key not in self._excused:
                self._wrong(f"{key}: commit {commit.offset} is ahead of the stored {stored}")

    # -- the log --------------------------------------------------------------------------------

    async def ends(self, partitions: int) -> dict[Place, int]:
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

    def longest_pause(self, since: float, ends: dict[Place, int]) -> float:
        """Seconds of the longest time for which a partition on its way to ``ends`` stood still."""
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

    def most_behind(self, ends: dict[Place, int], since: float) -> int:
        """The most that was left until ``ends`` at any time since then."""
        return max((look.behind(ends) for look in self.looks if look.at >= since), default=0)

    def _wrong(self, what: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(what)
