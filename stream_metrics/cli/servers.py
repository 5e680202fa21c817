"""Kafka and Redis as the place of a command; see ``places.Place``."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from typing import Any, TypeVar

from stream_metrics.cli.check_servers import check_servers
from stream_metrics.cli.common import UsageError
from stream_metrics.cli.group_members import describe_group_members
from stream_metrics.cli.kafka import run_kafka
from stream_metrics.cli.places import Checked, Send
from stream_metrics.cli.redis import open_store, redis_errors
from stream_metrics.cli.settings import Settings, mask_url
from stream_metrics.clients.kafka.partition_reader import KafkaLogs, open_consumer
from stream_metrics.clients.kafka.producer import open_producer, send_all
from stream_metrics.clients.kafka.topics import equal_counts, partition_counts
from stream_metrics.live.kafka.dead_letter_reader import read_letters
from stream_metrics.live.kafka.output import KafkaFence
from stream_metrics.live.layout import Generation
from stream_metrics.live.letters import Forgotten, Letter, Resubmitted
from stream_metrics.live.ports import StateStore
from stream_metrics.live.redis.check import memory_bytes
from stream_metrics.live.redis.keys import Keys
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.build import PAUSE_ABOVE, CannotBuild, Logs, needed_bytes
from stream_metrics.live.worker.ownership.switch import SETTLE_SECONDS, Fence, NoFence

T = TypeVar("T")


class Servers:
    """Kafka and Redis of these settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def name(self) -> str:
        """The namespace."""
        return f"namespace {self.settings.namespace!r}"

    @property
    def where(self) -> str:
        """The namespace, and the Redis it is in."""
        return f"{self.name} in {mask_url(self.settings.redis.url)}"

    @property
    def confirmation(self) -> tuple[str, str]:
        """See ``Place.confirmation``."""
        return "the namespace", self.settings.namespace

    @property
    def starting(self) -> str:
        """See ``Place.starting``."""
        return "start the workers"

    def no_state(self) -> UsageError:
        """See ``Place.no_state``."""
        return UsageError(f"{self.name} has no state. Use the worker's redis.namespace")

    def errors(self, advice: str = "") -> AbstractContextManager[None]:
        """See ``Place.errors``."""
        return redis_errors(self.settings, advice)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See ``Place.run``."""
        return run_kafka(self.settings, work)

    @asynccontextmanager
    async def store(self, *, writes: bool = False) -> AsyncIterator[StateStore]:
        """See ``Place.store``."""
        async with open_store(self.settings) as store:
            yield store

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """See ``Place.partition_counts``."""
        return await partition_counts(self.settings.kafka, topics)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[Send]:
        """See ``Place.sending``."""
        async with open_producer(self.settings.kafka) as producer:
            yield partial(send_all, producer)

    def letters(
        self, topics: Sequence[str]
    ) -> AsyncGenerator[Letter | Resubmitted | Forgotten, None]:
        """See ``Place.letters``."""
        return read_letters(self.settings.kafka, topics)

    async def check(self, *, keys: bool) -> Checked:
        """See ``Place.check``."""
        return await check_servers(self.settings, keys=keys)

    def of_namespace(self, namespace: str | None) -> Servers:
        """See ``Place.of_namespace``."""
        if not namespace:
            return self
        try:
            Keys(namespace)
        except ValueError as error:
            raise UsageError(f"--namespace: {error}") from error
        redis = self.settings.redis.model_copy(update={"namespace": namespace})
        return Servers(self.settings.model_copy(update={"redis": redis}))

    async def users(self, groups: Sequence[str]) -> str:
        """See ``Place.users``."""
        return await describe_group_members(self.settings, groups)

    async def purged(self, store: StateStore, groups: Sequence[str]) -> str:
        """See ``Place.purged``."""
        assert isinstance(store, RedisStore)
        await store.drop_notes()
        return (
            "The group's committed offsets are in Kafka: delete the group\n"
            "there too (kafka-consumer-groups --delete) before you use its name again"
        )

    async def state_counts(self) -> dict[str, int]:
        """See ``Place.state_counts``."""
        return await equal_counts(self.settings.kafka)

    @asynccontextmanager
    async def logs(self) -> AsyncIterator[Logs]:
        """See ``Place.logs``."""
        async with open_consumer(self.settings.kafka) as consumer:
            yield KafkaLogs(consumer)

    async def room(self, store: StateStore, live: Generation) -> str:
        """See ``Place.room``: a line about the memory of Redis."""
        assert isinstance(store, RedisStore)
        needed = await needed_bytes(store, live)
        used, limit = await memory_bytes(store)
        more = "an unknown number of" if needed is None else f"about {needed:,}"
        what = f"memory: {more} bytes more; Redis uses {used:,}"
        if limit and used + (needed or 0) > PAUSE_ABOVE * limit:
            raise CannotBuild(
                f"{what} of {limit:,}, and a build pauses at {PAUSE_ABOVE:.0%}. Raise "
                "maxmemory, or shorten state.ttl first"
            )
        return f"{what} of {limit:,}" if limit else f"{what}, without a limit"

    def fence(self) -> Fence:
        """See ``Place.fence``."""
        kafka = self.settings.kafka
        return NoFence() if kafka.output_topic is None else KafkaFence(kafka)

    async def settle(self) -> None:
        """See ``Place.settle``."""
        await asyncio.sleep(SETTLE_SECONDS)

    @property
    def staying(self) -> str:
        """See ``Place.staying``."""
        return ""

    @property
    def keeping(self) -> str:
        """See ``Place.keeping``."""
        return "Let Kafka keep records longer"

    @asynccontextmanager
    async def building(self, option: str) -> AsyncIterator[str]:
        """See ``Place.building``: workers do it, which somebody has to start."""
        yield f"Start workers with these settings: stream-metrics worker{option}"

    def finishing(self) -> AbstractAsyncContextManager[None]:
        """See ``Place.finishing``: workers do it."""
        return nullcontext()

    def told(self, message: str) -> str:
        """See ``Place.told``."""
        return message
