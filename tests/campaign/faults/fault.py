"""The base class of faults."""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.campaign.world import World


class Need(Enum):
    """The servers that a fault needs."""

    ANY = "any"
    PLAIN = "one broker, one Redis"
    THREE_BROKERS = "three brokers, one Redis"
    SENTINEL = "one broker, Redis with a replica and Sentinel"
    CLUSTER = "one broker, a Redis Cluster of three masters with a replica each"


ANY: Final = Need.ANY


class Extra(Enum):
    """What a round has in addition to its servers because one of its faults needs it."""

    OUTPUT = "an output topic"
    REDIS_CLOCK = "a clock of its own for Redis"


class Fault:
    """A fault that can be injected.

    ``hold`` is the range of seconds for which it is held. After it is healed workers may take
    ``wait_seconds``, the sum of the time-outs that stand between, and ``work_seconds``, which a
    busy machine makes longer, until they read again. ``may_go_back`` says that acknowledged writes
    to Redis may be lost. Of faults that are ``alone`` a round has one at most; those that come
    ``first`` strike before all others. ``quick`` faults are those of the short form.
    """

    name: str
    needs: Need = ANY
    extra: Extra | None = None
    hold: tuple[float, float] = (1.0, 5.0)
    wait_seconds: float = 0.0
    work_seconds: float = 1.0
    may_go_back: bool = False
    alone: bool = False
    first: bool = False
    quick: bool = False

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        """Inject the fault, hold it, and end it."""
        raise NotImplementedError
