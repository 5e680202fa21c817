"""The page's rules on the worker: obstacles, lag, dead letters, Redis memory, offset gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.obstacles import (
    BY_REASON,
    GAP,
    NOT_READY,
    REDIS,
    Obstacle,
    kind_of,
)
from stream_metrics.core.alerts.thresholds import (
    DEAD_LETTER_RECORDS,
    DEAD_LETTER_SECONDS,
    DEAD_LETTER_SHARE,
    GAP_SECONDS,
    LAG_GROWS_SECONDS,
    LAG_LONG_SECONDS,
    LAG_SECONDS,
    LAG_STAYS,
    LAG_STAYS_SECONDS,
    MEMORY_SHARE,
)
from stream_metrics.core.events.turns import turn_text
from stream_metrics.live.page.finding import LEVELS, NONE, OK, UNKNOWN, Finding, percent_text
from stream_metrics.live.page.group import FULL_COVERAGE, Coverage
from stream_metrics.live.page.operations import History, OperationsSample, increase
from stream_metrics.live.runaways import RunawayTurn

NAMED_TURNS: Final = 3
UNREAD: Final = "the metrics of this worker could not be read: {}"


@dataclass(frozen=True, slots=True)
class Worker:
    """The worker's operational metrics, now and before, and the reasons why it is not ready.

    ``since`` has the Unix time in seconds at which each reason began, as far as it is known.
    ``partitions`` is the number of state partitions that it owns; ``coverage`` is that of the page.
    ``runaways`` are the turns that run away, the longest first.
    """

    now: OperationsSample
    history: History
    reasons: Mapping[str, str]
    partitions: int = 1
    coverage: Coverage = FULL_COVERAGE
    since: Mapping[str, float] = field(default_factory=dict)
    runaways: Sequence[RunawayTurn] = ()

    def obstacles(self, alert: str) -> Mapping[str, Obstacle]:
        """The reasons of the obstacles that an alert is about."""
        named = {reason: BY_REASON[kind_of(reason)] for reason in self.reasons}
        return {reason: one for reason, one in named.items() if one.alert == alert}

    def reason(self, name: str) -> str:
        """A reason with its name, as a part of a sentence."""
        return f"{name}: {self.reasons[name].removesuffix('.')}"

    def began(self, reasons: Iterable[str]) -> float | None:
        """When the first of some reasons began; None if that is unknown."""
        return min((self.since[reason] for reason in reasons if reason in self.since), default=None)


WorkerRule = Callable[[Worker], Finding]


@dataclass(frozen=True, slots=True)
class Waits:
    """The obstacles of an alert, which keep the worker from reading and writing.

    ``asks`` is the alert about what has to answer before anybody knows of these; empty if that is
    nothing.
    """

    alert: str
    asks: str = ""

    def __call__(self, worker: Worker) -> Finding:
        """The reasons of ``/readyz``, and since when."""
        found = worker.obstacles(self.alert)
        if not found and (away := worker.obstacles(self.asks)):
            name = next(iter(away.values())).waits_for
            why = f"{name} does not answer, so this is not known"
            return Finding(UNKNOWN, why, since=worker.began(away))
        if not found:
            return Finding(OK, "nothing waits for this")
        if self.alert == NOT_READY and len(found) < len(worker.reasons):
            return Finding(NONE, "the worker waits for something else first")
        why = "; ".join(worker.reason(name) for name in sorted(found))
        level = min((one.severity for one in found.values()), key=LEVELS.index)
        return Finding(level, why, since=worker.began(found))


def partitions(worker: Worker) -> Finding:
    """The figures do not include all partitions up to now."""
    problems = worker.coverage.problems
    if worker.coverage.total is None and not problems:
        return Finding(UNKNOWN, "it is not known yet how many partitions there are")
    if not problems:
        return Finding(OK, "figures are of all partitions")
    return Finding(WARNING, "; ".join(problems))


def lag(worker: Worker) -> Finding:
    """The worker's lag; critical if it does not shrink."""
    now = worker.now
    if now.lag_seconds is None or now.lag_records is None:
        if not worker.partitions:
            return Finding(NONE, "this worker owns no partition")
        if now.lag_known_at is None:
            return Finding(UNKNOWN, "it is not known yet how far the topics reach")
        why = "Kafka does not say how far the topics reach, so it is not known what is left to read"
        return Finding(UNKNOWN, why, since=now.lag_known_at)
    why = f"{now.lag_records:,.0f} records, {now.lag_seconds:,.0f} s behind the end of what is read"
    if now.lag_seconds <= LAG_SECONDS:
        return Finding(OK, why)

    def before(seconds: float) -> float:
        sample = worker.history.before(now.at - seconds)
        known = None if sample is None else sample.lag_seconds
        return float("inf") if known is None else known

    stays = now.lag_seconds > LAG_STAYS * before(LAG_STAYS_SECONDS)
    if now.lag_seconds > before(LAG_GROWS_SECONDS) or (
        now.lag_seconds > LAG_LONG_SECONDS and stays
    ):
        return Finding(CRITICAL, f"{why}, and it comes no nearer")
    return Finding(WARNING, why)


def runaway_turns(worker: Worker) -> Finding:
    """Turns with very many iterations go on."""
    if not worker.runaways:
        return Finding(OK, "no turn runs away")
    named = [
        f"turn {turn_text(one.turn)} of conversation {one.conversation_id} ({one.agent}) has "
        f"{one.iterations:,} iterations"
        for one in worker.runaways[:NAMED_TURNS]
    ]
    more = len(worker.runaways) - len(named)
    named += [f"{more:,} more run away"] if more else []
    return Finding(CRITICAL, "; ".join(named))


def dead_letters(worker: Worker) -> Finding:
    """The share of records rejected in the last ten minutes."""
    if worker.history.failure:
        return Finding(UNKNOWN, UNREAD.format(worker.history.failure))
    before = worker.history.since(worker.now.at - DEAD_LETTER_SECONDS)
    if before is None:
        return Finding(UNKNOWN, "the worker has just started")
    grown = increase(worker.now, before, ("dead_letters", "events"))
    dead, records = grown["dead_letters"], grown["dead_letters"] + grown["events"]
    minutes = f"the last {DEAD_LETTER_SECONDS // 60} minutes"
    if not records:
        return Finding(NONE, f"no record was read in {minutes}")
    why = f"{dead:,.0f} of {records:,.0f} records rejected in {minutes}"
    if dead and records < DEAD_LETTER_RECORDS:
        return Finding(UNKNOWN, f"{why}, and a share is judged from {DEAD_LETTER_RECORDS} on")
    return Finding(WARNING if dead / records > DEAD_LETTER_SHARE else OK, why)


def memory(worker: Worker) -> Finding:
    """Redis memory is near its limit."""
    used, limit = worker.now.memory_bytes, worker.now.memory_limit_bytes
    if used is None or limit is None:
        why = "Redis does not say how much memory it uses"
        return Finding(UNKNOWN, why, since=worker.began(worker.obstacles(REDIS)))
    if not limit:
        return Finding(OK, f"Redis uses {used / 2**20:,.0f} MiB; it has no limit of its own")
    level = WARNING if used / limit > MEMORY_SHARE else OK
    return Finding(
        level, f"Redis uses {percent_text(used / limit)} of its limit of {limit / 2**20:,.0f} MiB"
    )


def offset_gaps(worker: Worker) -> Finding:
    """Records that the state needs were deleted recently, or a partition is halted."""
    now, before = worker.now, worker.history.before(worker.now.at - GAP_SECONDS)
    gaps = now.offset_gaps - (before.offset_gaps if before else 0)
    if now.halted_partitions:
        halted = worker.obstacles(GAP)
        stand = f"{now.halted_partitions:,.0f} partitions stand still by policy"
        why = "; ".join([stand, *(worker.reason(name) for name in sorted(halted))])
        return Finding(CRITICAL, why, since=worker.began(halted))
    if worker.history.failure:
        return Finding(UNKNOWN, UNREAD.format(worker.history.failure))
    if gaps:
        minutes = GAP_SECONDS // 60
        return Finding(
            CRITICAL,
            f"{gaps:,.0f} times in {minutes} minutes records that the state needs were gone",
        )
    return Finding(OK, "all records that the state needs were there")
