"""Waiting for Kafka: for brokers that do not answer, and for rights that were taken away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from aiokafka.errors import IllegalStateError, KafkaError

from stream_metrics.adapters.kafka.errors import FencedInstance
from stream_metrics.adapters.kafka.rights import DENIED, Right, lacking
from stream_metrics.settings import KafkaSettings
from stream_metrics.worker.patience import Patience, Reasons

T = TypeVar("T")


class KafkaPatience:
    """Repeats a call until Kafka answers it. The reason is ``kafka`` or ``rights`` meanwhile.

    Every wait ends with ``Stopped`` once the worker is to stop.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        patience: Patience,
        reasons: Reasons,
        rights: Sequence[Right] = (),
    ) -> None:
        self._settings = settings
        self._rights = rights
        self._patience = patience
        self._reasons = reasons

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of ``call``. Raises whatever is neither silence nor a lack of rights."""
        while True:
            self._reasons.beat()
            try:
                result = await call()
            except (IllegalStateError, FencedInstance):
                raise
            except DENIED:
                await self.for_rights()
            except (KafkaError, OSError, TimeoutError) as error:
                self._reasons.set("kafka", f"brokers do not answer: {type(error).__name__}")
                await self._patience.pause(1.0)
            else:
                self._reasons.clear("kafka")
                return result

    async def for_rights(self) -> None:
        """Say which rights were taken away, and wait until they are given back."""
        while why := await self(self._look):
            self._reasons.set("rights", why)
            await self._patience.pause(2.0)
        self._reasons.clear("rights")
        await self._patience.pause(1.0)  # a broker may hear of it later than another

    async def _look(self) -> str:
        return await lacking(self._settings, self._rights)
