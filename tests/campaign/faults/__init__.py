"""All faults by name."""

from __future__ import annotations

from tests.campaign.faults import (
    both,
    builds,
    clocks,
    kafka,
    network,
    redis,
    replicated,
    topics,
    upgrade,
    workers,
)
from tests.campaign.faults.fault import ANY, Extra, Fault, Need

__all__ = ["ANY", "FAULTS", "Extra", "Fault", "Need"]

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        *workers.FAULTS,
        *upgrade.FAULTS,
        *redis.FAULTS,
        *network.FAULTS,
        *kafka.FAULTS,
        *topics.FAULTS,
        *clocks.FAULTS,
        *replicated.FAULTS,
        *both.FAULTS,
        *builds.FAULTS,
    )
}
