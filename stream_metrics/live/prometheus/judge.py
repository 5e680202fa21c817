"""The metrics of a judge: what it grades, what it asks and spends, and its progress."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry

from stream_metrics.core.alerts.obstacles import BRIDGE
from stream_metrics.core.judge.budget import PICOS, Cost
from stream_metrics.live.judge.asking import REASON
from stream_metrics.live.judge.asking import Outcome as CallOutcome
from stream_metrics.live.judge.endpoint import FAILURES
from stream_metrics.live.judge.judge import OUTCOMES, Outcome
from stream_metrics.live.judge.ledger import State
from stream_metrics.live.prometheus.catalogue import PREFIX
from stream_metrics.live.prometheus.service_metrics import (
    ENDS_TOLD,
    UNKNOWN,
    Reading,
    ServiceMetrics,
)

JUDGE: Final = PREFIX + "judge_"
CALLS: Final[tuple[CallOutcome, ...]] = ("graded", "no_grade", *FAILURES)
_ALL: Final = "of all judges together"


class JudgeMetrics(ServiceMetrics):
    """The metrics of a judge; all calls come from the event loop's thread.

    ``topics``, which it reads, have series from the start.
    """

    prefix = JUDGE

    def __init__(self, registry: CollectorRegistry, topics: Iterable[str] = ()) -> None:
        super().__init__(registry)
        counter, gauge, place = self._counter, self._gauge, ("topic", "partition")
        turns = counter(
            "turns",
            "Turns of the sample that were due, by outcome: labelled; no_grade, if a document was "
            "given up; budget, if it was spent; no_query or no_text, if they have no texts.",
            "outcome",
        )
        self._turns = {outcome: turns.labels(outcome) for outcome in OUTCOMES}
        self._documents = counter("documents", "Documents of turns that were labelled.")
        self._cached = counter("cached_grades", "Grades that were known from equal texts.")
        calls = counter(
            "calls",
            "Calls of the model, by outcome: graded; no_grade, if the answer is none; else how "
            "they failed.",
            "outcome",
        )
        self._calls = {outcome: calls.labels(outcome) for outcome in CALLS}
        self._tokens = counter("tokens", "Tokens that calls used, or may have used.")
        self._money = counter("money", "What these tokens cost.")
        self._open = gauge(
            "open_turns",
            "Turns of the sample in memory, also those that are labelled: more of them may come, "
            "for `judge.turn_max` after their last event.",
        )
        self._bytes = gauge("open_bytes", "Bytes of their events.")
        self._asked = gauge("asked_turns", "Turns whose documents are being asked about.")
        self._due = gauge(
            "due_turns",
            "Turns of the sample that are due and have no outcome yet, those asked about included; "
            "after a start, all turns that are read again until the labels are known. While all "
            "judges together have many, there are no estimates from a model's labels.",
        )
        self._spent = gauge(
            "budget_used", f"What is reserved of today's budget (UTC), {_ALL}.", "budget"
        )
        self._limit = gauge(
            "budget_limit", f"The limits of a day, {_ALL}; none without a limit.", "budget"
        )
        self._rate = self._known_gauge(
            "sample_rate", "The share of today's conversations (UTC) in the sample; none if unused."
        )
        self._incomplete = self._known_gauge(
            "incomplete_until_timestamp_seconds",
            "The end of the latest day whose sample ended early because the budget was spent, "
            f"{_ALL}. Windows that reach back before it have no combined estimate; none if no "
            "sample of the last 8 days did.",
        )
        self._reading = Reading(
            gauge("lag_records", f"Unread records of the partition; {UNKNOWN}.", *place),
            gauge("lag_seconds", f"Age of the next record to read; {UNKNOWN}.", *place),
            self._known_gauge(
                "complete_until_timestamp_seconds",
                f"Time up to which all partitions of this judge have been read; {UNKNOWN}.",
            ),
            self._known_gauge("log_ends_timestamp_seconds", ENDS_TOLD),
            counter(
                "offset_gaps", "Times that records needed next were missing from the log.", "topic"
            ),
        )
        for topic in topics:
            self._reading.gaps.labels(topic)
        self._ready = gauge("ready", "1 if this judge is reading and asking, else 0.")
        obstacles = gauge(
            "obstacles",
            f"1 if this reason keeps the judge from reading or asking, else 0; {REASON} is that of "
            "the model.",
            "reason",
        )
        self._obstacles = {reason: obstacles.labels(reason) for reason in (REASON, *BRIDGE)}

    def _obstacle(self, reason: str) -> str:
        return REASON if reason == REASON else super()._obstacle(reason)

    # -- judge.judge.JudgeCounts, judge.asking.CallCounts ----------------------------------------

    def judged(self, outcome: Outcome, documents: int) -> None:
        """Count a turn, and its documents that have labels now."""
        self._turns[outcome].inc()
        self._documents.inc(documents)

    def called(self, outcome: CallOutcome, used: Cost) -> None:
        """Count a call."""
        self._calls[outcome].inc()
        self._tokens.inc(used.tokens)
        self._money.inc(used.picos / PICOS)

    def cached(self) -> None:
        """Count a grade that was known."""
        self._cached.inc()

    def sizes(self, turns: int, open_bytes: int, asked: int, due: int) -> None:
        """Set the numbers of turns, and the size of their events."""
        self._open.set(turns)
        self._bytes.set(open_bytes)
        self._asked.set(asked)
        self._due.set(due)

    def budget(self, state: State) -> None:
        """Set what is spent."""
        limits, total = state.limits, state.spending.total
        self._spent.labels("tokens").set(total.tokens)
        self._spent.labels("money").set(total.picos / PICOS)
        if limits.tokens_per_day is not None:
            self._limit.labels("tokens").set(limits.tokens_per_day)
        if limits.picos_per_day is not None:
            self._limit.labels("money").set(limits.picos_per_day / PICOS)
        self._rate.set(state.rate)
        until_ms = state.incomplete_until_ms
        self._incomplete.set(None if until_ms is None else until_ms / 1000)
