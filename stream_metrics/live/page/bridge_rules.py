"""The page's rules on a bridge in the same process: what it refuses, and how far it is behind."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.thresholds import LAG_SECONDS, LATE_SHARE, REFUSED_SHARE
from stream_metrics.live.page.finding import NONE, OK, Finding
from stream_metrics.live.page.worker_rules import Worker

MINUTES: Final = 15
MAX_NAMED: Final = 5  # refusals in a text
_LATELY: Final = f"in the last {MINUTES} minutes"
_TRACE, _REASON, _SPAN = "trace", "reason", "span"


class RecentTraces:
    """Counts what a bridge did in the last ``MINUTES``, and judges that as the alerts do.

    It counts on the event loop, and may judge in another thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minutes: deque[tuple[int, Counter[tuple[str, str, str]]]] = deque()

    def trace_closed(self, agent: str, outcome: str) -> None:
        """Count a closed trace of an agent."""
        self._now()[_TRACE, agent, outcome] += 1

    def refused(self, agent: str, reason: str, number: int) -> None:
        """Count what was refused of an agent."""
        self._now()[_REASON, agent, reason] += number

    def spans(self, read: int, late: int) -> None:
        """Count spans, and late ones among them."""
        now = self._now()
        now[_SPAN, "", "read"] += read
        now[_SPAN, "", "late"] += late

    def of_refusals(self, _: Worker) -> Finding:
        """Much is refused of an agent, or comes too late."""
        sums = self._sums()
        by_agent: dict[str, Counter[str]] = {}
        for (kind, agent, outcome), number in sums.items():
            if kind == _TRACE:
                by_agent.setdefault(agent, Counter())[outcome] += number
        told = sum(counts["told"] for counts in by_agent.values())
        parts = [f"{told:,} traces became events {_LATELY}"]
        if named := [
            f"{reason} of {agent} {number:,} {'time' if number == 1 else 'times'}"
            for (kind, agent, reason), number in sums.most_common()
            if kind == _REASON
        ]:
            more = [f"{len(named) - MAX_NAMED:,} more"] if len(named) > MAX_NAMED else []
            parts.append(f"refused: {', '.join([*named[:MAX_NAMED], *more])}")
        read, late = sums[_SPAN, "", "read"], sums[_SPAN, "", "late"]
        if late:
            parts.append(f"{late:,} of {read:,} spans came after their trace was complete")
        if not by_agent and len(parts) == 1:
            return Finding(NONE, f"no trace was complete {_LATELY}")
        much = late > LATE_SHARE * read or any(
            counts["refused"] > REFUSED_SHARE * counts.total() for counts in by_agent.values()
        )
        return Finding(WARNING if much else OK, "; ".join(parts))

    def of_scopes(self, _: Worker) -> Finding:
        """Two instrumentations record the same, or all that an agent sends is left out."""
        sums = self._sums()
        twice = [who for kind, who, why in sums if (kind, why) == (_REASON, "two_scopes")]
        out = [
            who
            for kind, who, why in sums
            if (kind, why) == (_REASON, "left_out") and not sums[_TRACE, who, "told"]
        ]
        said = {
            "two instrumentations record the searches of": twice,
            "otlp.scopes leaves out all of": out,
        }
        parts = [f"{what} {', '.join(sorted(who))}" for what, who in said.items() if who]
        return Finding(WARNING if parts else OK, "; ".join(parts) or "no instrumentation is twice")

    def _now(self) -> Counter[tuple[str, str, str]]:
        minute = self._minute()
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, Counter()))
        while self._minutes[0][0] <= minute - MINUTES:
            self._minutes.popleft()
        return self._minutes[-1][1]

    def _minute(self) -> int:
        return int(self._clock() // 60)

    def _sums(self) -> Counter[tuple[str, str, str]]:
        """Those that are above zero, of the last minutes."""
        sums: Counter[tuple[str, str, str]] = Counter()
        oldest = self._minute() - MINUTES
        for minute, counts in tuple(self._minutes):
            if minute > oldest:
                sums.update(counts.copy())
        return +sums


def behind(seconds: float | None) -> Finding:
    """Traces wait to be read for minutes; ``seconds`` is the age of the next one."""
    if seconds is None:
        return Finding(NONE, "it is not known yet how many traces are left to read")
    return Finding(
        CRITICAL if seconds > LAG_SECONDS else OK,
        f"traces are read {seconds:,.0f} s after they came",
    )
