"""The conditions of the page's rules, each a function from figures to a finding in words.

Ratios are of the long window unless a rule says otherwise; what is usual is the same agent's over
the baseline window. With too little to go by a condition says so instead of guessing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from stream_metrics.adapters.page import figures
from stream_metrics.adapters.page.operating import History, Operating, increase
from stream_metrics.engine.windows import Sums

OK: Final = "ok"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
UNKNOWN: Final = "unknown"  # not enough to go by
LEVELS: Final = (CRITICAL, WARNING, OK, UNKNOWN)  # the worst first; unknown is no fault

SHORT: Final = "5m"
LONG: Final = "1h"
BASELINE: Final = "24h"

# Where Prometheus has an alert for it, the threshold is that alert's; a test compares.
SRR_WARNING: Final = 0.25
SRR_CRITICAL: Final = 0.4
SRR_OF_USUAL: Final = 1.5
DROP_WARNING: Final = 0.8  # of what is usual
DROP_CRITICAL: Final = 0.5
RESULTS_DROP: Final = 0.5  # of what is usual
MISSED_WARNING: Final = 0.2
ROUTING_DROP: Final = 0.1  # below what is usual
RERANK_WARNING: Final = 0.98  # of the order before
COVERAGE_WARNING: Final = 0.3
RESULTS: Final = 200  # enough for a share of results
DECISIONS: Final = 50  # enough for a share of labelled decisions, searches or iterations
LAG_WARNING_SECONDS: Final = 120.0
LAG_CRITICAL_SECONDS: Final = 300.0
DEAD_WARNING: Final = 0.02
DEAD_CRITICAL: Final = 0.1
MEMORY_WARNING: Final = 0.8
MEMORY_CRITICAL: Final = 0.9
RECENT_SECONDS: Final = 300.0
LETTERS: Final = 5  # dead letters that make a share of them worth a word


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict of one rule on one agent (None: on the worker), with the reason in a sentence."""

    level: str
    why: str
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Window3:
    """An agent's sums over the short, the long and the baseline window."""

    short: Sums = field(default_factory=dict)
    long: Sums = field(default_factory=dict)
    baseline: Sums = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Worker:
    """The worker's operations: now, before, and the reasons why it is not ready."""

    now: Operating
    history: History
    reasons: Mapping[str, str]


AgentRule = Callable[[Window3], Finding]
WorkerRule = Callable[[Worker], Finding]


def share(value: float) -> str:
    """A ratio as people say it.

    >>> share(0.357)
    '36%'
    """
    return f"{value:.0%}"


# -- agents ---------------------------------------------------------------------------------------


def srr_spike(sums: Window3) -> Finding:
    """Short and long window above the threshold, and above 1.5 times what is usual."""
    short, long = figures.srr(sums.short), figures.srr(sums.long)
    usual = figures.srr(sums.baseline)
    if long["whole"] < RESULTS:
        return Finding(UNKNOWN, f"{long['whole']} results in {LONG}, {RESULTS} are needed")
    now, before = short["value"], usual["value"] or 0.0
    lesser = min(long["value"], long["value"] if now is None else now)
    spike = now is not None and lesser > SRR_OF_USUAL * before
    level = OK
    if spike and lesser > SRR_WARNING:
        level = CRITICAL if lesser > SRR_CRITICAL else WARNING
    repeats = f"{share(long['value'])} of its results in {LONG} repeat what the turn had already"
    return Finding(level, f"{repeats}; over {BASELINE} it is {share(before)}")


def results_drop(sums: Window3) -> Finding:
    """Searches find far less than usual, in the short and the long window, or nothing."""
    short, long, usual = map(figures.found, (sums.short, sums.long, sums.baseline))
    if long["whole"] < DECISIONS or not usual["value"]:
        return Finding(UNKNOWN, f"{long['whole']} searches in {LONG}, {DECISIONS} are needed")
    now = long["value"] if short["value"] is None else short["value"]
    low = max(now, long["value"]) < RESULTS_DROP * usual["value"]
    why = f"a search returns {long['value']:.1f} results in {LONG}; over {BASELINE} it is"
    return Finding(CRITICAL if low else OK, f"{why} {usual['value']:.1f}")


def drop(of: Callable[[Sums], figures.Figure], enough: int, words: str, of_what: str) -> AgentRule:
    """A figure of settled iterations far below what is usual, in the short and the long window."""

    def judge(sums: Window3) -> Finding:
        short, long, usual = of(sums.short), of(sums.long), of(sums.baseline)
        if long["whole"] < enough or not usual["value"]:
            return Finding(
                UNKNOWN, f"{long['whole']} labelled {of_what} in {LONG}, {enough} are needed"
            )
        now = long["value"] if short["value"] is None else short["value"]
        greater = max(now, long["value"]) / usual["value"]
        level = OK
        if greater < DROP_WARNING:
            level = CRITICAL if greater < DROP_CRITICAL else WARNING
        why = f"{words} is {long['value']:.2f} in {LONG}; over {BASELINE} it is"
        return Finding(level, f"{why} {usual['value']:.2f}")

    return judge


def missed_retrievals(sums: Window3) -> Finding:
    """The gate skips searches that were needed."""
    missed = figures.gate(sums.long)["missed_share"]
    if missed["whole"] < DECISIONS:
        return Finding(
            UNKNOWN, f"{missed['whole']} labelled decisions in {LONG}, {DECISIONS} are needed"
        )
    level = WARNING if missed["value"] > MISSED_WARNING else OK
    return Finding(
        level, f"the gate skipped a search that was needed in {share(missed['value'])} of cases"
    )


def routing_drop(sums: Window3) -> Finding:
    """The router chooses the best route less often than usual."""
    long = figures.routing(sums.long)["accuracy"]
    usual = figures.routing(sums.baseline)["accuracy"]
    if long["whole"] < DECISIONS or not usual["value"]:
        return Finding(
            UNKNOWN, f"{long['whole']} labelled routes in {LONG}, {DECISIONS} are needed"
        )
    level = WARNING if long["value"] < usual["value"] - ROUTING_DROP else OK
    why = f"{share(long['value'])} of searches in {LONG} took the best route"
    return Finding(level, f"{why}; over {BASELINE} it is {share(usual['value'])}")


def reranking_worse(sums: Window3) -> Finding:
    """The order shown is worse than the one before reranking."""
    searches = sums.long.get("kc", 0)
    value = figures.reranking(sums.long)["value"]
    if searches < DECISIONS or value is None:
        return Finding(UNKNOWN, f"{searches} reranked searches in {LONG}, {DECISIONS} are needed")
    level = WARNING if value < RERANK_WARNING else OK
    words = "better" if value >= 1 else "worse"
    return Finding(level, f"NDCG after reranking is {share(abs(value - 1))} {words} than before it")


def labels_missing(sums: Window3) -> Finding:
    """Labels have stopped, or too few results have one."""
    long, usual = figures.coverage(sums.long), figures.coverage(sums.baseline)
    if not usual["part"]:
        return Finding(UNKNOWN, f"no label has come in {BASELINE}")
    if long["whole"] < RESULTS:
        return Finding(UNKNOWN, f"{long['whole']} documents in {LONG}, {RESULTS} are needed")
    if not long["part"]:
        return Finding(CRITICAL, f"no document of {LONG} has a label; labels have stopped")
    level = WARNING if long["value"] < COVERAGE_WARNING else OK
    return Finding(level, f"{share(long['value'])} of the documents of {LONG} have a label")


# -- the worker -----------------------------------------------------------------------------------


def not_ready(worker: Worker) -> Finding:
    """Whatever keeps the worker from reading and writing."""
    if not worker.reasons:
        return Finding(OK, "the worker reads and writes")
    return Finding(CRITICAL, "; ".join(f"{n}: {why}" for n, why in sorted(worker.reasons.items())))


def lag(worker: Worker) -> Finding:
    """The worker is behind the end of its topics."""
    seconds, records = worker.now.lag_seconds, worker.now.lag_records
    if seconds is None or records is None:
        return Finding(UNKNOWN, "no partition is read from Kafka")
    level = OK
    if seconds > LAG_WARNING_SECONDS:
        level = CRITICAL if seconds > LAG_CRITICAL_SECONDS else WARNING
    return Finding(level, f"{records:,.0f} records, {seconds:,.0f} s behind the end of the topics")


def dead_letters(worker: Worker) -> Finding:
    """The share of records that were turned away, in the last five minutes."""
    before = worker.history.since(worker.now.at - RECENT_SECONDS)
    grown = increase(worker.now, before, ("dead_letters", "events"))
    dead, records = grown["dead_letters"], grown["dead_letters"] + grown["events"]
    if not records:
        return Finding(UNKNOWN, "no record was read in the last 5 minutes")
    level = OK
    if dead >= LETTERS and dead / records > DEAD_WARNING:
        level = CRITICAL if dead / records > DEAD_CRITICAL else WARNING
    why = f"{dead:,.0f} of {records:,.0f} records were turned away in the last 5 minutes"
    return Finding(level, why)


def memory(worker: Worker) -> Finding:
    """Redis comes near its memory limit."""
    used, limit = worker.now.memory_bytes, worker.now.memory_limit_bytes
    if not used:
        return Finding(UNKNOWN, "Redis has not said how much memory it uses")
    if not limit:
        return Finding(OK, f"Redis uses {used / 2**20:,.0f} MiB; it has no limit of its own")
    level = OK
    if used / limit > MEMORY_WARNING:
        level = CRITICAL if used / limit > MEMORY_CRITICAL else WARNING
    return Finding(
        level, f"Redis uses {share(used / limit)} of its limit of {limit / 2**20:,.0f} MiB"
    )


def offset_gaps(worker: Worker) -> Finding:
    """Records between state and log are gone."""
    gaps = worker.now.offset_gaps
    if gaps:
        return Finding(CRITICAL, f"{gaps:,.0f} times records that the state needs were gone")
    return Finding(OK, "all records that the state needs were there")
