"""What the workers of one generation use: a store, outputs and a fence, all with faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from stream_metrics.live.layout import Generation
from stream_metrics.live.memory import MemoryOutput, MemoryOutputs, MemoryTopic
from stream_metrics.live.ports import StoreUnavailable
from tests.simulation.faults import Died, Fault, FaultInjector
from tests.simulation.system import ImmediateRetry


class FaultyStore(FaultInjector):
    """A store with faults, also in the stores of its generations."""

    def __getattr__(self, name: str) -> Any:
        if name == "generation":
            inner: Any = self._inner
            return lambda generation: FaultyStore(
                inner.generation(generation), self._fault, self._seen
            )
        if name == "conversations":
            return self._listed
        return super().__getattr__(name)

    async def _listed(self, partition: int) -> AsyncIterator[Any]:
        """List conversations, with a possible fault before each of them."""
        inner: Any = self._inner
        async for found in inner.conversations(partition):
            kind = self._fault.due()
            if kind in ("dies before", "dies after"):
                raise Died("conversations")
            if kind in ("refused", "answer lost"):
                raise StoreUnavailable("conversations")
            yield found


class Outputs(MemoryOutputs):
    """The outputs of one generation, with their own transactional ids."""

    def __init__(self, topic: MemoryTopic, generation: Generation) -> None:
        super().__init__(topic)
        self._first = 100 * generation.number

    def of(self, partition: int) -> MemoryOutput:
        """See ``Outputs.of``."""
        return super().of(self._first + partition)

    async def keep(self, partitions: Collection[int]) -> None:
        """See ``Outputs.keep``."""
        await super().keep([self._first + partition for partition in partitions])


@dataclass
class Fence:
    """Fences the producers of a generation; may end halfway."""

    topic: MemoryTopic
    fault: Fault

    async def fence_producers(self, generation: Generation) -> None:
        """See ``ownership.switch.Fence``."""
        for number in range(generation.identity.count):
            if self.fault.due() in ("dies before", "dies after"):
                raise Died("begin")
            await Outputs(self.topic, generation).of(number).begin()


class WatchingRetry(ImmediateRetry):
    """RetryPolicy of a worker that looks at the layout meanwhile, as its own task does."""

    look: Callable[[], Awaitable[None]]
    pauses = 0

    async def pause(self, seconds: float) -> None:
        """Do not wait, but look at the layout each third time."""
        self.pauses += 1
        if self.pauses % 3 == 0:
            with suppress(StoreUnavailable):
                await self.look()
