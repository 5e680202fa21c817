"""What keeps a worker or a bridge from reading and writing, and which alert fires if it lasts.

``/readyz`` names the reasons, and ``streammetrics_obstacles`` has a series for each. What lasts
longer than a roll-out or a rebalance takes is an alert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stream_metrics.core.alerts.alert import CRITICAL, WARNING, Alert, Rule

REDIS: Final = "StreamMetricsRedisUnreachable"
KAFKA: Final = "StreamMetricsKafkaUnreachable"
FETCH: Final = "StreamMetricsFetchFails"
RIGHTS: Final = "StreamMetricsRightsMissing"
TOPICS: Final = "StreamMetricsTopicsMissing"
WRITES: Final = "StreamMetricsWritesRefused"
READING: Final = "StreamMetricsReadingStopped"
GAP: Final = "StreamMetricsOffsetGap"
PROGRESS: Final = "StreamMetricsNoProgress"
NOT_READY: Final = "StreamMetricsNotReady"
BRIDGE_PART: Final = "bridge_"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason on ``/readyz``, which is also the value of the label ``reason``.

    ``waits_for`` continues "it waits for". ``alert`` is the name of the alert that fires if the
    obstacle lasts. ``passes`` tells whether the service goes on by itself once the obstacle is
    gone, so that a restart does not help. ``worker`` and ``bridge`` tell who can have it.
    """

    reason: str
    waits_for: str
    alert: str
    passes: bool = True
    severity: str = CRITICAL
    worker: bool = True
    bridge: bool = True


OBSTACLES: Final = (
    Obstacle("redis", "Redis", REDIS, bridge=False),
    Obstacle("kafka", "Kafka", KAFKA),
    Obstacle("fetch", "records that the client can read", FETCH, passes=False),
    Obstacle("rights", "a right in Kafka", RIGHTS),
    Obstacle("topics", "a missing topic", TOPICS),
    Obstacle("dead_letters", "the dead-letter topic", WRITES),
    Obstacle("output", "the output topic", WRITES, bridge=False),
    Obstacle("topic", "the topics that the bridge writes", WRITES, worker=False),
    Obstacle("repartition_topic", "the internal topic", WRITES, bridge=False),
    Obstacle("disk", "room on the disk", WRITES, bridge=False),
    Obstacle("backlog", "records to be read before it accepts more", WRITES, bridge=False),
    Obstacle("partitions", "a build for other partition counts", READING, bridge=False),
    Obstacle("reading", "memory in Redis for a build", READING, severity=WARNING, bridge=False),
    Obstacle("halted", "a decision about a halted partition", GAP, passes=False),
    Obstacle("watchdog", "a restart", PROGRESS, passes=False),
    Obstacle("loop", "a restart", PROGRESS, passes=False),
    Obstacle("assignment", "its partitions", NOT_READY, passes=False),
    Obstacle("other", "something else", NOT_READY, passes=False),
)  # fmt: skip
BY_REASON: Final = {obstacle.reason: obstacle for obstacle in OBSTACLES}
WORKER: Final = tuple(obstacle.reason for obstacle in OBSTACLES if obstacle.worker)
BRIDGE: Final = tuple(obstacle.reason for obstacle in OBSTACLES if obstacle.bridge)
PASSING: Final = frozenset(obstacle.reason for obstacle in OBSTACLES if obstacle.passes)


def kind_of(reason: str, copying: str = "repartition_") -> str:
    """The obstacle that a reason on ``/readyz`` is; ``other`` if the table does not have it.

    The part that fills an internal topic begins its reasons with ``copying``, a bridge in the
    process of a worker with ``BRIDGE_PART``, and those of halted partitions end in a number.

    >>> [kind_of(one) for one in ("redis", "partition-3", "repartition_kafka", "strange")]
    ['redis', 'halted', 'kafka', 'other']
    >>> kind_of("bridge_disk")
    'disk'
    """
    if reason in BY_REASON:
        return reason
    part = reason.removeprefix(copying).removeprefix(BRIDGE_PART)
    if part in BY_REASON:
        return part
    return "halted" if part.rpartition("-")[2].isdecimal() else "other"


def lasting(alert: str) -> str:
    """The condition that a worker or a bridge has an obstacle of an alert, by instance and reason.

    >>> lasting(READING)
    'streammetrics_obstacles{reason=~"partitions|reading"} == 1'
    """
    services = {
        "streammetrics_obstacles": [obstacle for obstacle in OBSTACLES if obstacle.worker],
        "streammetrics_bridge_obstacles": [obstacle for obstacle in OBSTACLES if obstacle.bridge],
    }
    by_metric = {
        metric: "|".join(obstacle.reason for obstacle in obstacles if obstacle.alert == alert)
        for metric, obstacles in services.items()
    }
    return "\nor ".join(
        f'{metric}{{reason=~"{reasons}"}} == 1' for metric, reasons in by_metric.items() if reasons
    )


WAITS: Final = f'streammetrics_obstacles{{reason=~"{"|".join(sorted(PASSING))}"}} == 1'
"""A worker waits for something that has an alert of its own, and is not stuck."""

_UNEXPLAINED: Final = "|".join(
    obstacle.reason for obstacle in OBSTACLES if obstacle.alert == NOT_READY
)
_EXPLAINED: Final = " or ".join(
    f'streammetrics_{service}obstacles{{reason!~"{_UNEXPLAINED}"}} == 1'
    for service in ("", "bridge_")
)
_WHO: Final = "{{ $labels.job }} on {{ $labels.instance }}"
_NOTHING_LOST: Final = "Nothing is lost while Kafka keeps the records; the figures stand still."


def _alert(
    name: str, fires: str, wait: str, summary: str, description: str, expr: str | None = None
) -> Alert:
    rule = Rule(CRITICAL, expr or lasting(name), wait, None, summary, description)
    return Alert(name, "pipeline", CRITICAL, fires, "pipeline", (rule,), "instance")


WAITING: Final = (
    _alert(
        KAFKA, "a worker or a bridge has not reached Kafka for two minutes", "2m",
        f"No Kafka for {_WHO}",
        f"{_WHO} gets no answer from the brokers, and waits. How far it is behind is unknown "
        f"meanwhile. {_NOTHING_LOST}",
    ),
    _alert(
        FETCH, "a worker or a bridge cannot read what Kafka sends for two minutes", "2m",
        f"Records cannot be fetched by {_WHO}",
        f"Brokers answer {_WHO}, but what they send cannot be read, such as a batch with a wrong "
        f"checksum. {_NOTHING_LOST}",
    ),
    _alert(
        RIGHTS, "Kafka has denied a worker or a bridge a right for two minutes", "2m",
        f"Kafka denies {_WHO} a right",
        f"{_WHO} waits for a right, which its /readyz names. {_NOTHING_LOST}",
    ),
    _alert(
        TOPICS, "a topic that a worker or a bridge reads has been missing for two minutes", "2m",
        f"A topic of {_WHO} is missing",
        f"A topic was deleted that {_WHO} reads; its /readyz names it. What the topic had and was "
        "not read is lost.",
    ),
    _alert(
        WRITES, "a topic has not accepted what a worker or a bridge writes for two minutes: dead "
        "letters, rows of the output topic, or copies and events for the next one to read; or "
        "`stream-metrics serve` has accepted no events, because its disk is full or too many wait "
        "to be read", "2m",
        f"{_WHO} stands still: what it writes is not accepted ({{{{ $labels.reason }}}})",
        f"{_WHO} waits until Kafka, or its disk, stores what it writes, which would be missing "
        "otherwise. Its /readyz names the topic or file and why; `stream-metrics check` tests all "
        f"topics. {_NOTHING_LOST}",
    ),
    # A rebalance, and taking over partitions, take a minute or two; a build's tombstones longer.
    _alert(
        NOT_READY, "a worker or a bridge has had no partitions for ten minutes although nothing "
        "else is in its way, or an obstacle without an alert of its own", "10m",
        f"{_WHO} is not ready ({{{{ $labels.reason }}}})",
        f"{_WHO} has not begun to read for ten minutes. Its /readyz and its log say what it waits "
        "for.",
        f"({lasting(NOT_READY)})\nunless on (job, instance, pod) ({_EXPLAINED})",
    ),
)  # fmt: skip
