"""Figures for both the page and the alerts: an agent's sums by window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stream_metrics.core.alerts.thresholds import (
    DECISIONS,
    EVEN_RERANKED,
    ITERATIONS,
    RERANKED,
    RESULTS,
    ROUTES,
    SEARCHES,
    USUAL_DECISIONS,
    USUAL_ITERATIONS,
    USUAL_RERANKED,
    USUAL_RESULTS,
    USUAL_ROUTES,
    USUAL_SEARCHES,
)
from stream_metrics.core.engine.cells import split_code
from stream_metrics.live.page.operations import History, OperationsSample
from stream_metrics.live.page.rules import RULES, judge
from stream_metrics.live.page.worker_rules import Worker
from tests.rules.cases import QUIET_MINUTES, Series, gauge

Sums = dict[str, int]
Judged = frozenset[tuple[str, str]]  # alerts, each with a severity

MANY: Final = 1_000_000  # too many for chance to explain a difference
BAD_MINUTES: Final = 3
WINDOWS: Final = ("1m", "5m", "30m", "1h", "24h")
ALERTS: Final = {rule.name: rule.alert for rule in RULES if rule.alert and rule.of_agent}


def srr(part: int, whole: int) -> Sums:
    """Duplicates of results."""
    return {"d": part, "r": whole}


def found(part: int, whole: int) -> Sums:
    """Results of searches."""
    return {"r": part, "s": whole}


def sre(part: int, whole: int) -> Sums:
    """Good ones of the results of settled iterations."""
    return {"sg": part, "sr": whole}


def gain(part: int, whole: int) -> Sums:
    """Gain of settled iterations."""
    return {"sG": part, "si": whole}


def missed(part: int, whole: int) -> Sums:
    """Missed searches of labelled decisions."""
    return {"q|skip|yes": part, "q|search|yes": whole - part}


def routing(part: int, whole: int) -> Sums:
    """Best routes of labelled searches."""
    return {"R|a|yes": part, "R|a|no": whole - part}


def reranking(part: int, whole: int) -> Sums:
    """NDCG shown by NDCG before, of as many searches as the latter says."""
    return {"ks|shown": 1_000 * part, "ks|baseline": 1_000 * whole, "kc": whole}


def with_day(sums: Mapping[str, Sums], before: Sums) -> dict[str, Sums]:
    """``sums`` with a last day that is ``before`` until the last hour, and then as in ``1h``."""
    hour = sums["1h"]
    day = {code: before.get(code, 0) + hour.get(code, 0) for code in before.keys() | hour.keys()}
    return {**sums, "24h": day}


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that was calm for ``QUIET_MINUTES``, and whose sums are others since.

    ``day`` are the sums of every window unless ``before`` or ``now`` has others. ``minutes``: for
    how long those of ``now`` have been so.
    """

    name: str
    day: Sums
    now: Mapping[str, Sums] = field(default_factory=dict)
    before: Mapping[str, Sums] = field(default_factory=dict)
    minutes: int = BAD_MINUTES

    def series(self) -> Series:
        """What two workers export of it, half and half."""
        found: Series = {}
        calm_minutes = QUIET_MINUTES + BAD_MINUTES - self.minutes
        for window in WINDOWS:
            before = {**self.day, **self.before.get(window, {})}
            for code, value in self._sums(window).items():
                family, labels = split_code(code)
                if window not in (family.windows or WINDOWS):
                    continue
                was = before.get(code, 0)
                named = dict(zip(family.labels, labels, strict=True))
                named |= {"agent": self.name, "window": window}
                halves = ((was // 2, value // 2), (was - was // 2, value - value // 2))
                for number, (then, now) in enumerate(halves):
                    found |= gauge(
                        f"streammetrics_window_{family.name}",
                        (calm_minutes, then),
                        (self.minutes, now),
                        **{**named, "instance": f"worker-{number}:9464"},
                    )
        return found

    def _sums(self, window: str) -> Sums:
        return {**self.day, **self.now.get(window, {})}

    def page(self) -> Judged:
        """What the page of a worker says that has both halves."""
        sums = with_day({w: self._sums(w) for w in WINDOWS}, self._sums("24h"))
        states = judge({self.name: sums}, Worker(OperationsSample(0), History(), {}))
        return frozenset(
            (state["alert"], state["level"])
            for state in states
            if state["name"] in ALERTS and state["level"] in ("critical", "warning")
        )


def labelled(part: int, whole: int = MANY) -> Sums:
    """Unique documents, of which some have a label."""
    return {"l": part, "u": whole}


@dataclass(frozen=True, slots=True)
class Subject:
    """A ratio that is judged, in parts of ``MANY``: what is usual, and what is too much, or little.

    ``limits``: for each window, or pair of windows, those at which something changes. ``high``: a
    high ratio is bad. ``beside``: what else must be there for the alert to look at all.
    """

    name: str
    of: Callable[[int, int], Sums]
    usual: int
    limits: Mapping[tuple[str, ...], Sequence[int]]
    enough: int
    enough_usual: int
    high: bool = False
    beside: Sums = field(default_factory=dict)

    def _agent(self, name: str, windows: Iterable[str], sums: Sums, known: int = MANY) -> Agent:
        day = {**self.of(self.usual * known // MANY, known), **self.beside}
        windows = tuple(windows)
        return Agent(
            f"{self.name} {name} in {' '.join(windows)}", day, dict.fromkeys(windows, sums)
        )

    def _worst(self, count: int) -> Sums:
        return self.of(count if self.high else 0, count)

    def agents(self) -> Iterator[Agent]:
        """Both sides of each limit, and of what is enough, here and in the last day."""
        for windows, limits in self.limits.items():
            for part in (limit + step for limit in limits for step in (-1, 0, 1)):
                yield self._agent(str(part), windows, self.of(part, MANY))
            for count in (self.enough, self.enough - 1):
                yield self._agent(f"of {count}", windows, self._worst(count))
            # From nothing to more than is usual: what chance explains, and what not.
            most = max(1, -(-self.usual // MANY))
            for count in (self.enough, 4 * self.enough):
                for eighths in range(9):
                    part = count * most * eighths // 8
                    yield self._agent(f"{part} of {count}", windows, self.of(part, count))
        every = {window for windows in self.limits for window in windows}
        for known in (self.enough_usual, self.enough_usual - 1):
            yield self._agent(f"with {known} usual", sorted(every), self._worst(MANY), known)


SUBJECTS: Final = (
    Subject(
        "SRR", srr, 100_000, dict.fromkeys((("1m", "5m"), ("5m", "30m")), (250_000, 400_000)),
        RESULTS, USUAL_RESULTS, high=True,
    ),
    Subject(
        "SRR, 30% usual", srr, 300_000, dict.fromkeys((("1m", "5m"), ("5m", "30m")), (450_000,)),
        RESULTS, USUAL_RESULTS, high=True,
    ),
    Subject(
        "SRR alone", srr, 100_000, dict.fromkeys((("1m",), ("5m",), ("30m",)), (300_000,)),
        RESULTS, USUAL_RESULTS, high=True,
    ),
    Subject(
        "results", found, 10 * MANY, {("5m",): (5 * MANY,), ("30m",): (5 * MANY,)},
        SEARCHES, USUAL_SEARCHES,
    ),
    Subject(
        "SRE", sre, 500_000, {("5m",): (400_000,), ("30m",): (425_000,), ("1h",): (300_000,)},
        RESULTS, USUAL_RESULTS, beside=labelled(MANY // 2),
    ),
    Subject(
        "gain", gain, 3 * MANY, {("5m",): (2_400_000,), ("30m",): (2_550_000,)},
        ITERATIONS, USUAL_ITERATIONS, beside=labelled(MANY // 2),
    ),
    Subject(
        "missed searches", missed, 20_000, {("5m",): (200_000,), ("1h",): (100_000,)},
        DECISIONS, USUAL_DECISIONS, high=True,
    ),
    Subject(
        "missed searches, 20% usual", missed, 200_000, {("5m",): (300_000,), ("1h",): (300_000,)},
        DECISIONS, USUAL_DECISIONS, high=True,
    ),
    Subject(
        "missed searches, none usual", missed, 0, {("5m",): (200_000,), ("1h",): (100_000,)},
        DECISIONS, USUAL_DECISIONS, high=True,
    ),
    Subject(
        "best routes", routing, 900_000, {("5m",): (800_000,), ("1h",): (850_000,)},
        ROUTES, USUAL_ROUTES,
    ),
    Subject(
        "NDCG", reranking, 1_100_000, {("5m",): (MANY,), ("1h",): (1_050_000,)},
        RERANKED, USUAL_RERANKED,
    ),
)  # fmt: skip

_GOOD: Final = {**sre(MANY // 2, MANY), **gain(3 * MANY, MANY), **labelled(MANY // 2)}
_POOR: Final = {**sre(MANY // 10, MANY), **gain(MANY, MANY)}

AGREED: Final = (
    *(agent for subject in SUBJECTS for agent in subject.agents()),
    # Fewer labels than 0.4 of the last day's: settled iterations say nothing.
    *(
        Agent(f"{part} labelled in 5m", _GOOD, {"5m": {**_POOR, **labelled(part)}})
        for part in (100_000, 199_999, 400_000)
    ),
    *(
        Agent(f"{part} labelled in 1h", _GOOD, {"30m": _POOR, "1h": labelled(part)})
        for part in (100_000, 199_999, 400_000)
    ),
    # A reranker that was never of use, by what so many searches tell, or nothing of what is usual.
    *(
        Agent(f"{part} of {count} reranked", reranking(part, count), {"5m": reranking(0, 0)})
        for count, parts in (
            (MANY, (998_999, 999_001)),
            (400, (379, 381)),
            (EVEN_RERANKED, (0,)),
            (EVEN_RERANKED - 1, (0,)),
        )
        for part in parts
    ),
    # A fault does not become usual while it lasts for an hour.
    Agent(
        "an hour",
        srr(100_000, MANY),
        dict.fromkeys(("1m", "5m", "30m", "1h"), srr(MANY // 2, MANY)),
    ),
    # Where all searches are missed anyway, nothing is new.
    Agent("all missed anyway", missed(MANY, MANY)),
    # A mixture has no usual behaviour.
    Agent("other", srr(100_000, MANY), dict.fromkeys(("1m", "5m"), srr(MANY // 2, MANY))),
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that the page does not know: what it says, and which alerts fire."""

    agent: Agent
    page: Judged
    alerts: Judged


_MISSED: Final = frozenset({("StreamMetricsRetrievalMissed", "critical")})
_SPIKE: Final = frozenset({("SRRSpike", "critical")})
_SRE: Final = frozenset({("StreamMetricsEfficiencyDrop", "critical")})
_NONE: Final[Judged] = frozenset()

UNKNOWN_TO_PAGE: Final = (
    Unknown(
        # Each five minutes alone have too few.
        Agent(
            "ten minutes",
            missed(20_000, MANY),
            {"5m": missed(DECISIONS - 1, DECISIONS - 1)},
            before={"5m": missed(DECISIONS - 1, DECISIONS - 1)},
        ),
        page=_NONE,
        alerts=_MISSED,
    ),
    Unknown(
        Agent(
            "for", srr(100_000, MANY), dict.fromkeys(("1m", "5m"), srr(500_000, MANY)), minutes=1
        ),
        page=_SPIKE,
        alerts=_NONE,
    ),
    Unknown(
        Agent("usual labels", _GOOD, {"5m": {**_POOR, **labelled(300_000)}}),
        page=_SRE | {("StreamMetricsGainDrop", "warning")},
        alerts=_NONE,
    ),
)
