"""All faults by their names."""

from __future__ import annotations

from tests.campaign.faults import both, kafka, network, redis, replicated, workers
from tests.campaign.faults.fault import ANY, Fault, Need

__all__ = ["ANY", "FAULTS", "Fault", "Need"]

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        *workers.FAULTS,
        *redis.FAULTS,
        *network.FAULTS,
        *kafka.FAULTS,
        *replicated.FAULTS,
        *both.FAULTS,
    )
}
