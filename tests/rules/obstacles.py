"""Cases of the alerts about what workers and bridges wait for, from the table of obstacles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stream_metrics.core.alerts.obstacles import NOT_READY, OBSTACLES, WAITING, Obstacle
from tests.rules.cases import GONE, Case, Phase, Series, gauge
from tests.rules.workers import ALERT, BRIDGE, HERE, OTHER, QUIET, restarted, silent

Of = dict[str, str]  # the labels of a service

SERVICES: Final[dict[str, tuple[str, Of]]] = {
    "worker": ("streammetrics_obstacles", {}),
    "bridge": ("streammetrics_bridge_obstacles", BRIDGE),
}
ROLL_OUT: Final = 1  # minutes for which an instance may be without its partitions
REBALANCE: Final = 5


def services(obstacle: Obstacle) -> Iterable[str]:
    """The services that may have the obstacle."""
    if obstacle.worker:
        yield "worker"
    if obstacle.bridge:
        yield "bridge"


def there(service: str, reason: str, *phases: Phase, **more: str) -> Series:
    """The series of an obstacle."""
    metric, of = SERVICES[service]
    return gauge(metric, *phases, **{**of, **more}, reason=reason)


def every_other(alert: str) -> Series:
    """All obstacles of all other alerts, for an hour."""
    found: Series = {}
    for obstacle in OBSTACLES:
        for service in services(obstacle):
            found |= there(service, obstacle.reason, (60, float(obstacle.alert != alert)))
    return found


def cases(alert: str, wait: int) -> list[Case]:
    """It fires for each of its obstacles that lasts for ``wait`` minutes, and for nothing else."""
    shortly = REBALANCE if alert == NOT_READY else ROLL_OUT
    found = [Case("is silent on every other reason", every_other(alert), silent(60))]
    for obstacle in OBSTACLES:
        if obstacle.alert != alert:
            continue
        reason = obstacle.reason
        for service in services(obstacle):
            here = {**HERE, **SERVICES[service][1], "reason": reason}
            found += [
                Case(f"fires while a {service} has the reason {reason}, and resolves at once",
                     there(service, reason, (20, 0), (20, 1), (20, 0)),
                     {19: (), 20 + wait - 1: (), 20 + wait + 1: [here], 39: [here], 41: ()}),
                Case(f"is silent on a {service} that has the reason {reason} for a roll-out",
                     there(service, reason, (20, 0), (shortly, 1), (20, 0)), silent(40)),
            ]  # fmt: skip
        if obstacle.worker:
            found += [
                Case(f"is silent while workers restart one after the other ({reason})",
                     there("worker", reason, (20, 0), (2, GONE), (1, 1), (30, 0))
                     | there("worker", reason, (25, 0), (2, GONE), (1, 1), (30, 0), **OTHER),
                     silent(50)),
                Case(f"names the worker with the reason {reason}",
                     there("worker", reason, (60, 1)) | there("worker", reason, (60, 0), **OTHER),
                     {50: [{**HERE, "reason": reason}]}),
            ]  # fmt: skip
    return found


def _owned(
    owned: Iterable[tuple[int, float | None]],
    halted: float = 0,
    state: str = "live",
    of: Of | None = None,
) -> Series:
    """A worker that owns some of four partitions, of the state in force or of a build."""
    phases, more = list(owned), of or {}

    def all_along(value: float) -> list[Phase]:
        return [(minutes, None if owns is None else value) for minutes, owns in phases]

    return (
        gauge("streammetrics_assigned_partitions", *phases, **more)
        | gauge("streammetrics_halted_partitions", *all_along(halted), **more)
        | gauge("streammetrics_state_partitions", *all_along(4), **more)
        | gauge("streammetrics_generation", *all_along(state == "live"), state="live", **more)
    )


UNOWNED: Final = [
    Case("fires when a worker has gone and nobody takes over, and resolves",
         _owned([(50, 2), (20, 4)]) | _owned([(20, 2), (50, GONE)], of=OTHER),
         {19: (), 24: (), 27: [ALERT], 49: [ALERT], 51: ()}),
    Case("fires when no worker has any", _owned([(20, 4), (20, 0)]), {19: (), 27: [ALERT]}),
    Case("is silent where two workers have all", _owned([(60, 1)]) | _owned([(60, 3)], of=OTHER),
         silent(60)),
    Case("is silent on a rebalance", _owned([(20, 4), (2, 0), (20, 4)]), silent(40)),
    Case("is silent while a worker restarts", _owned(restarted(4)), silent(QUIET + 60)),
    Case("is silent about halted partitions, which have an alert", _owned([(60, 3)], halted=1),
         silent(60)),
    Case("is silent about what a build does not have yet",
         _owned([(60, 4)]) | _owned([(60, 0)], state="building", of=OTHER), silent(60)),
    Case("is not taken in by the partitions of a build",
         _owned([(60, 2)]) | _owned([(60, 4)], state="building", of=OTHER), {30: [ALERT]}),
]  # fmt: skip

CASES: Final = {
    **{alert.name: cases(alert.name, int(alert.rules[0].wait[:-1])) for alert in WAITING},
    "StreamMetricsPartitionsUnowned": UNOWNED,
}
