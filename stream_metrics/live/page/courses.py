"""How agents fared: their sums by window, and what is counted in each bucket of two of them.

Like the sums, the counts are kept from one document to the next, and only buckets that have changed
are read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stream_metrics.core.alerts.arrivals import counts_of
from stream_metrics.core.alerts.hour import Counts
from stream_metrics.core.alerts.standing import Stands, Told
from stream_metrics.core.alerts.thresholds import BASELINE, RECENT
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.window_sums import Bucket, WindowSums
from stream_metrics.core.engine.windows import Sums

_LABELS: Final = {code: (CODES[code].name,) for code in ("u", "l")}

ByWindow = Mapping[str, Sums]  # an agent's sums in each window that is kept


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """What the page knows of an agent.

    ``hour`` has the counts of each minute of the last hour, ``day`` those of each part of the last
    day without that hour, the oldest first. ``families`` are the codes of the families of series
    that each window has. ``evidence`` is what stands of figures, by name; None if that is not
    known.
    """

    sums: ByWindow
    hour: Sequence[Counts] = ()
    day: Sequence[Counts] = ()
    families: Mapping[str, frozenset[str]] = field(default_factory=dict)
    evidence: Mapping[str, Stands] | None = None


class Courses(WindowSums):
    """The sums of all windows over several partitions, and the courses of all agents."""

    def __init__(self, specs: Sequence[Window]) -> None:
        super().__init__()
        self._specs: dict[str, Window] = {}
        self._courses: dict[str, tuple[range, Course]] = {}  # with their last minutes
        self._told: Told | None = None
        self.keep(specs)
        self._counts: dict[str, dict[str, dict[int, dict[str, int]]]] = {RECENT: {}, BASELINE: {}}

    def keep(self, specs: Sequence[Window]) -> None:
        """Note which windows are kept, with which families."""
        found = {spec.name: spec for spec in specs}
        if found != self._specs:
            self._specs = found
            self._courses.clear()

    def tell(self, told: Told | None) -> None:
        """Note what stands; None if that is not known."""
        if told is not self._told:
            self._told = told
            self._courses.clear()

    def add(self, window: str, at: Bucket, sums: Sums, sign: int) -> None:
        """Add what a bucket has, or subtract what it had."""
        super().add(window, at, sums, sign)
        if window not in self._counts:
            return
        number, agent = at
        self._courses.pop(agent, None)
        by_bucket = self._counts[window].setdefault(agent, {})
        counts = by_bucket.setdefault(number, {})
        for code, value in sums.items():
            for count in _LABELS.get(code) or counts_of(code):
                total = counts.get(count, 0) + sign * value
                if total:
                    counts[count] = total
                else:
                    counts.pop(count, None)
        if not counts:
            del by_bucket[number]

    def course(self, agent: str, now_us: int) -> Course:
        """The course of an agent up to ``now_us``; the same object until something changes."""
        minute = self._numbers(RECENT, now_us)[-1:]
        made = self._courses.get(agent)
        if made is not None and made[0] == minute:
            return made[1]
        course = Course(
            {name: self.of(name, agent) for name in self._specs},
            list(self._hour(agent, now_us)),
            self._day(agent, now_us),
            {name: spec.heads for name, spec in self._specs.items()},
            None if self._told is None else self._told.get(agent, {}),
        )
        if any(agent in by_agent for by_agent in self._counts.values()):
            self._courses[agent] = (minute, course)
        return course

    def _hour(self, agent: str, now_us: int) -> Iterator[Counts]:
        found = self._counts[RECENT].get(agent, {})
        return (found.get(number, {}) for number in self._numbers(RECENT, now_us))

    def _day(self, agent: str, now_us: int) -> list[Counts]:
        """The last day, without what lies in the last hour."""
        if not self._specs.keys() >= {RECENT, BASELINE}:
            return []
        found = self._counts[BASELINE].get(agent, {})
        day = {n: dict(found.get(n, {})) for n in self._numbers(BASELINE, now_us)}
        minutes_each = self._specs[BASELINE].bucket_us // self._specs[RECENT].bucket_us
        minutes = zip(self._numbers(RECENT, now_us), self._hour(agent, now_us), strict=True)
        for number, counts in minutes:
            into = day[number // minutes_each]
            for count, value in counts.items():
                into[count] = into.get(count, 0) - value
        return list(day.values())

    def _numbers(self, window: str, now_us: int) -> range:
        """The buckets of a window; none if it is not kept."""
        return self._specs[window].numbers(now_us) if window in self._specs else range(0)


def together(days: Iterable[Sequence[Counts]]) -> list[Counts]:
    """The counts of several agents in each part of a day.

    >>> together([[{"results": 3}, {}], [{"results": 1}, {"results": 2}]])
    [Counter({'results': 4}), Counter({'results': 2})]
    """
    found = []
    for at_once in zip(*days, strict=True):
        found.append(Counter[str]())
        for counts in at_once:
            found[-1].update(counts)
    return list(found)
