"""A worker's operational figures by minute, for both the page and the alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stream_metrics.core.alerts.obstacles import OBSTACLES
from stream_metrics.live.page.operations import History, OperationsSample
from stream_metrics.live.page.rules import RULES, judge
from stream_metrics.live.page.worker_rules import Worker
from stream_metrics.live.runaways import RunawayTurn
from tests.rules.cases import Series, name
from tests.rules.page import Judged

MINUTES: Final = 60
# Rules that say how their alert differs are not compared with it.
ALERTS: Final = {rule.name: rule.alert for rule in RULES if rule.of_worker and not rule.differs}

# What the page reads, and the series that the alerts ask for.
_SERIES: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    "lag_seconds": ("streammetrics_consumer_lag_seconds", {"topic": "t", "partition": "0"}),
    "dead_letters": ("streammetrics_dead_letters_total", {"reason": "malformed"}),
    "events": ("streammetrics_events_total", {"type": "search_iteration", "outcome": "new"}),
    "offset_gaps": ("streammetrics_offset_gaps_total", {"topic": "t"}),
    "halted_partitions": ("streammetrics_halted_partitions", {}),
    "memory_bytes": ("streammetrics_redis_memory_bytes", {}),
    "memory_limit_bytes": ("streammetrics_redis_memory_limit_bytes", {}),
}
_FAULTS: Final = ("critical", "warning")


@dataclass(frozen=True, slots=True)
class Course:
    """A worker whose figures go as ``values`` say, a minute after the other, up to now.

    ``obstacles`` are the reasons for which it has waited since five minutes ago, ``iterations``
    those that a turn has had which has run away since then.
    """

    name: str
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    obstacles: Sequence[str] = ()
    iterations: int = 0

    def series(self) -> Series:
        """What it exports, under a job of its own; before its first value there is none."""
        of = {"job": self.name, "instance": "worker-1:9464"}
        waits = {
            name("streammetrics_obstacles", **of, reason=reason): f"0x{MINUTES - 6} 1x4"
            for reason in self.obstacles
        }
        if self.iterations:
            runs_away = name("streammetrics_runaway_turn_iterations", **of, agent="a")
            waits[runs_away] = f"0x{MINUTES - 6} {self.iterations}x4"
        return waits | {
            name(metric, **of, **labels): " ".join(
                ["_"] * (MINUTES - len(values)) + [f"{value:g}" for value in values]
            )
            for figure, values in self.values.items()
            for metric, labels in (_SERIES[figure],)
        }

    def page(self) -> Judged:
        """What its page says now; of lag what is critical, since the alert asks no more."""
        history, now = History(), OperationsSample(0.0)
        minutes = max(map(len, self.values.values()), default=0)
        for minute in range(minutes):
            at = {
                figure: values[minute - minutes]
                for figure, values in self.values.items()
                if len(values) >= minutes - minute
            }
            now = OperationsSample(60.0 * minute, lag_records=1.0, **at)
            history.add(now)
        runaways = [RunawayTurn("a", "c", 1, self.iterations, 0)] if self.iterations else []
        waits = dict.fromkeys(self.obstacles, "it waits")
        states = judge({}, Worker(now, history, waits, runaways=runaways))
        return frozenset(
            (state["alert"], state["level"])
            for state in states
            if state["name"] in ALERTS
            and state["level"] in (("critical",) if state["name"] == "lag" else _FAULTS)
        )


def growing(a_minute: float, minutes: int = MINUTES) -> list[float]:
    """A counter."""
    return [a_minute * minute for minute in range(minutes)]


def after(minutes: int, value: float = 1.0) -> list[float]:
    """A counter that is 0 until so many minutes ago."""
    return [0.0] * (MINUTES - minutes) + [value] * minutes


def letters(dead: float, events: float) -> dict[str, list[float]]:
    """The numbers of dead letters and events per minute."""
    return {"dead_letters": growing(dead), "events": growing(events)}


COURSES: Final = (
    Course("lag grows", {"lag_seconds": [100.0] * 20 + [120, 120.5, 120.7, 121]}),
    Course("lag grew to 120 s", {"lag_seconds": [100.0] * 20 + [119, 119.5, 119.7, 120]}),
    Course("lag stands", {"lag_seconds": [121.0] * 20}),
    Course("lag goes down", {"lag_seconds": [900.0 - 30 * minute for minute in range(20)]}),
    Course("lag stands high", {"lag_seconds": [901.0] * 20}),
    Course("lag stands at 900 s", {"lag_seconds": [900.0] * 20}),
    Course("lag hardly goes down", {"lag_seconds": [940.0] * 10 + [930.0] * 9 + [901]}),
    Course("lag goes down from high", {"lag_seconds": [1000.0] * 10 + [950.0] * 9 + [901]}),
    Course("lag of a young worker", {"lag_seconds": [200, 300]}),
    Course("letters 2%", letters(2, 98)),
    Course("letters over 2%", letters(2.1, 97.9)),
    Course("letters all", letters(30, 0)),
    Course("letters of few records", letters(1, 8)),
    Course("letters of enough records", letters(1, 10)),
    Course("memory 80%", {"memory_bytes": [800] * 60, "memory_limit_bytes": [1000] * 60}),
    Course("memory 81%", {"memory_bytes": [801] * 60, "memory_limit_bytes": [1000] * 60}),
    Course("memory without limit", {"memory_bytes": [801] * 60, "memory_limit_bytes": [0] * 60}),
    Course("gap 5 minutes ago", {"offset_gaps": after(5)}),
    Course("gap 14 minutes ago", {"offset_gaps": after(14)}),
    Course("gap 40 minutes ago", {"offset_gaps": after(40)}),
    Course("gap at the start", {"offset_gaps": [1.0] * 5}),
    Course("no gap", {"offset_gaps": [0.0] * 60}),
    Course("halted", {"halted_partitions": after(2)}),
    Course("not halted any more", {"halted_partitions": [1.0] * 10 + [0.0] * 50}),
    *(
        Course(f"waits: {one.reason}", obstacles=[one.reason])
        for one in OBSTACLES
        if one.worker and one.reason != "halted"
    ),
    Course("a turn runs away", iterations=60),
    Course("has not joined without Kafka", obstacles=["assignment", "kafka"]),
)
