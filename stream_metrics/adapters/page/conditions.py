"""The conditions of the page's rules on agents: those of the alerts, on this worker's own windows.

A condition looks at one window, or at two together, and is met by what lies beyond a limit there.
What is usual is the same agent's last day. With too little to go by a rule says so instead of
guessing. Left out is what the page does not have: windows of ten minutes, and the last day as it
was an hour ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stream_metrics.adapters.page import figures
from stream_metrics.adapters.page.chance import (
    Surely,
    few_above,
    mean_below,
    relative_below,
    share_above,
    skewed_below,
    spread_below,
)
from stream_metrics.adapters.page.thresholds import (
    BASELINE,
    COVERED,
    DECISIONS,
    DROPS,
    EVEN_RERANKED,
    ITERATIONS,
    LABELLED_OF_USUAL,
    MISSED,
    MISSED_OF_USUAL,
    RERANKED,
    RERANKING,
    RERANKING_DROP,
    RESULTS,
    RESULTS_DROPS,
    ROUTES,
    ROUTING_DROP,
    SEARCHES,
    SRR_CRITICAL,
    SRR_OF_USUAL,
    SRR_WARNING,
    SRR_WINDOWS,
    USUAL_DECISIONS,
    USUAL_ITERATIONS,
    USUAL_RERANKED,
    USUAL_RESULTS,
    USUAL_ROUTES,
    USUAL_SEARCHES,
)
from stream_metrics.engine.windows import Sums

OK: Final = "ok"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
UNKNOWN: Final = "unknown"  # not enough to go by
LEVELS: Final = (CRITICAL, WARNING, OK, UNKNOWN)  # the worst first; unknown is no fault


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict of one rule on one agent (None: on the worker), with the reason in a sentence."""

    level: str
    why: str
    agent: str | None = None


ByWindow = Mapping[str, Sums]  # an agent's sums in each window that is kept
AgentRule = Callable[[ByWindow], Finding]


@dataclass(frozen=True, slots=True)
class Measure:
    """A ratio, and how many of ``what`` make it worth judging: ``counted`` says how many there are.

    ``enough`` is for the window judged, ``enough_usual`` for the baseline. ``surely`` says
    what is no chance. ``say`` puts a value into words, ``says`` that and a window into a sentence.
    """

    of: Callable[[Sums], figures.Figure]
    what: str
    enough: int
    enough_usual: int
    says: str
    say: Callable[[float], str]
    counted: Callable[[Sums], int]
    surely: Surely


@dataclass(frozen=True, slots=True)
class Condition:
    """What an alert asks of one window, or of two: ``beyond`` of all, and many in the last.

    ``beyond`` is asked for a value and the usual one. ``labels``: the window in which labels must
    have come, not much fewer than in the baseline. ``even``: a value that stands for what is usual,
    and how many there must be then.
    """

    level: str
    windows: tuple[str, ...]
    beyond: Callable[[float, float], bool]
    labels: str | None = None
    even: tuple[float, int] | None = None


def share(value: float) -> str:
    """A ratio as people say it.

    >>> share(0.357)
    '36%'
    """
    return f"{value:.0%}"


def rule(measure: Measure, conditions: Sequence[Condition]) -> AgentRule:
    """A rule of ``conditions``, the worst first: the first that is met is what it finds."""
    longest = conditions[-1].windows[-1]

    def judge(sums: ByWindow) -> Finding:
        day = sums.get(BASELINE, {})
        usual, known = measure.of(day)["value"], measure.counted(day)
        if known < measure.enough_usual:
            usual = None
        able = [c for c in conditions if _able(c, measure, sums, usual)]
        if not able and usual is None:
            why = f"{known} {measure.what} in {BASELINE}, {measure.enough_usual} are needed"
            return Finding(UNKNOWN, f"{why} to know what is usual")
        if not able:
            why = f"{measure.counted(sums.get(longest, {}))} {measure.what} in {longest}"
            return Finding(UNKNOWN, f"{why}, {measure.enough} are needed")
        met = [c for c in able if _met(c, measure, sums, usual)]
        certain = [c for c in met if _no_chance(c, measure, sums, usual)]
        trusted = [c for c in certain if _labelled(c, sums)]
        chosen = (trusted or certain or met or able[-1:])[0]
        value = measure.of(_last(sums, chosen))["value"]
        if value is None:
            return Finding(UNKNOWN, f"nothing to compare in {chosen.windows[-1]}")
        why = measure.says.format(measure.say(value), chosen.windows[-1])
        if usual is not None:
            why += f"; over {BASELINE} it is {measure.say(usual)}"
        if trusted:
            return Finding(chosen.level, why)
        if certain:
            return Finding(UNKNOWN, f"{why}, but few labels have come in {chosen.labels}")
        return Finding(OK, f"{why}, which may be chance" if met else why)

    return judge


def _last(sums: ByWindow, condition: Condition) -> Sums:
    """The sums of the condition's longest window."""
    return sums.get(condition.windows[-1], {})


def _able(condition: Condition, measure: Measure, sums: ByWindow, usual: float | None) -> bool:
    """Whether there is enough to ask the condition."""
    _, enough = condition.even or (usual, measure.enough)
    known = condition.even is not None or usual is not None
    return known and measure.counted(_last(sums, condition)) >= enough


def _met(condition: Condition, measure: Measure, sums: ByWindow, usual: float | None) -> bool:
    compared, _ = condition.even or (usual, 0)
    values = [measure.of(sums.get(window, {}))["value"] for window in condition.windows]
    return all(
        value is not None and compared is not None and condition.beyond(value, compared)
        for value in values
    )


def _no_chance(condition: Condition, measure: Measure, sums: ByWindow, usual: float | None) -> bool:
    """Whether the longest window of a condition that is met lies beyond what chance explains."""
    compared, _ = condition.even or (usual, 0)
    last = _last(sums, condition)
    value = measure.of(last)["value"]
    if value is None or compared is None:
        return False
    return measure.surely(value, compared, measure.counted(last))


def _labelled(condition: Condition, sums: ByWindow) -> bool:
    """Whether enough labels have come for settled iterations to stand for the others."""
    if condition.labels is None:
        return True
    now = figures.coverage(sums.get(condition.labels, {}))["value"]
    usual = figures.coverage(sums.get(BASELINE, {}))["value"]
    return now is not None and usual is not None and now > LABELLED_OF_USUAL * usual


# -- what the alerts ask ---------------------------------------------------------------------------


def _whole(of: Callable[[Sums], figures.Figure]) -> Callable[[Sums], int]:
    return lambda sums: int(of(sums)["whole"])


def _above_both(limit: float, times: float) -> Callable[[float, float], bool]:
    return lambda value, usual: value > limit and value > times * usual


def _drops(level: str) -> list[Condition]:
    return [
        Condition(level, (window,), _below_usual(part), labels) for window, part, labels in DROPS
    ]


def _below_usual(part: float) -> Callable[[float, float], bool]:
    return lambda value, usual: value < part * usual


def _under_usual(by: float) -> Callable[[float, float], bool]:
    return lambda value, usual: value < usual - by


def missed_share(sums: Sums) -> figures.Figure:
    """Searches that were skipped and needed, of labelled gate decisions."""
    missed: figures.Figure = figures.gate(sums)["missed_share"]
    return missed


def routing_accuracy(sums: Sums) -> figures.Figure:
    """Searches that took the best route, of those whose best route is known."""
    accuracy: figures.Figure = figures.routing(sums)["accuracy"]
    return accuracy


srr_spike: Final = rule(
    Measure(
        figures.srr, "results", RESULTS, USUAL_RESULTS,
        "{} of its results in {} repeat what the turn had already", share, _whole(figures.srr),
        share_above(4.5, 4),
    ),
    [
        Condition(level, windows, _above_both(limit, SRR_OF_USUAL))
        for level, limit in ((CRITICAL, SRR_CRITICAL), (WARNING, SRR_WARNING))
        for windows in SRR_WINDOWS
    ],
)  # fmt: skip

results_drop: Final = rule(
    Measure(
        figures.found, "searches", SEARCHES, USUAL_SEARCHES,
        "a search returns {} results in {}", "{:.1f}".format, _whole(figures.found),
        relative_below(4, 0.75),
    ),
    [Condition(CRITICAL, (window,), _below_usual(part)) for window, part in RESULTS_DROPS],
)  # fmt: skip

sre_drop: Final = rule(
    Measure(
        figures.sre, "labelled results", RESULTS, USUAL_RESULTS,
        "SRE is {} in {}", "{:.2f}".format, _whole(figures.sre),
        skewed_below(4, 2.5),
    ),
    _drops(CRITICAL),
)  # fmt: skip

gain_drop: Final = rule(
    Measure(
        figures.gain, "labelled iterations", ITERATIONS, USUAL_ITERATIONS,
        "good gain an iteration is {} in {}", "{:.2f}".format, _whole(figures.gain),
        mean_below(4, 6),
    ),
    _drops(WARNING),
)  # fmt: skip

missed_retrievals: Final = rule(
    Measure(
        missed_share, "labelled decisions", DECISIONS, USUAL_DECISIONS,
        "the gate skipped a search that was needed in {} of the cases of {}",
        share, _whole(missed_share), few_above(4, least=0.02),
    ),
    [
        Condition(CRITICAL, (window,), _above_both(limit, MISSED_OF_USUAL))
        for window, limit in MISSED.items()
    ],
)  # fmt: skip

routing_drop: Final = rule(
    Measure(
        routing_accuracy, "labelled routes", ROUTES, USUAL_ROUTES,
        "{} of the searches of {} took the best route", share, _whole(routing_accuracy),
        skewed_below(4, 1, most=0.98),
    ),
    [Condition(WARNING, (window,), _under_usual(by)) for window, by in ROUTING_DROP.items()],
)  # fmt: skip

reranking_worse: Final = rule(
    Measure(
        figures.reranking, "reranked searches", RERANKED, USUAL_RERANKED,
        "NDCG after reranking is {} of that before in {}", share, lambda sums: sums.get("kc", 0),
        spread_below(4, 0.25),
    ),
    [
        Condition(WARNING, ("5m",), lambda value, _: value < RERANKING),
        Condition(WARNING, ("1h",), _under_usual(RERANKING_DROP)),
        Condition(
            WARNING, ("1h",), lambda value, _: value < RERANKING, even=(RERANKING, EVEN_RERANKED)
        ),
    ],
)  # fmt: skip


def labels_missing(sums: ByWindow) -> Finding:
    """Far fewer documents of an hour have a label than in the baseline; no alert asks this."""
    long = figures.coverage(sums.get(COVERED, {}))
    usual = figures.coverage(sums.get(BASELINE, {}))
    if not usual["part"]:
        return Finding(UNKNOWN, f"no label has come in {BASELINE}")
    if long["whole"] < RESULTS:
        return Finding(UNKNOWN, f"{long['whole']} documents in {COVERED}, {RESULTS} are needed")
    level = OK if long["value"] > LABELLED_OF_USUAL * usual["value"] else WARNING
    why = f"{share(long['value'])} of the documents of {COVERED} have a label"
    return Finding(level, f"{why}; over {BASELINE} it is {share(usual['value'])}")
