"""The conditions of the page's rules on agents: those of the alerts, on this worker's own windows.

A condition looks at one window, or at two together, and is met by what lies beyond a limit there.
What is usual is the same agent's last day without the last hour. A rule that has too little data
says so instead of guessing. Left out is what the page does not have: windows of ten minutes.
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
    RECENT,
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
from stream_metrics.metrics.labelled import nothing_labelled

OK: Final = "ok"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
UNKNOWN: Final = "unknown"  # there is something to judge, and too little data to judge it
NONE: Final = "none"  # there is nothing to judge, such as for an agent that does not search now
# What is shown for several findings is the first of these: one that is unknown is not hidden by
# another that is fine.
LEVELS: Final = (CRITICAL, WARNING, UNKNOWN, OK, NONE)
DAY_BEFORE: Final = "the day before the last hour"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict of one rule on one agent (None: on the worker), with the reason in a sentence.

    ``above``: a figure is above the rule's fixed threshold, and whether that is unusual for the
    agent is not known.
    """

    level: str
    why: str
    agent: str | None = None
    above: bool = False


ByWindow = Mapping[str, Sums]  # an agent's sums in each window that is kept
AgentRule = Callable[[ByWindow], Finding]


@dataclass(frozen=True, slots=True)
class Measure:
    """A ratio, and how many of ``what`` make it worth judging: ``counted`` says how many there are.

    ``enough`` is for the window judged, ``enough_usual`` for the baseline. ``surely`` says
    what is no chance. ``say`` puts a value into words, ``says`` that and a window into a sentence.
    ``there`` counts what could be judged, ``things`` names it: with 0 of it there is nothing to
    judge, and with too few of ``what`` among them, too little data.
    """

    of: Callable[[Sums], figures.Figure]
    what: str
    enough: int
    enough_usual: int
    says: str
    say: Callable[[float], str]
    counted: Callable[[Sums], int]
    surely: Surely
    things: str
    there: Callable[[Sums], int]


@dataclass(frozen=True, slots=True)
class Condition:
    """What an alert asks of one window, or of two: ``beyond`` of all, and many in the last.

    ``beyond`` is asked for a value and the usual one. ``labels``: the window in which labels must
    have come, not much fewer than in the baseline. ``even``: a value that stands for what is usual,
    and how many there must be then. ``limit``: a fixed threshold that a value must exceed as well.
    """

    level: str
    windows: tuple[str, ...]
    beyond: Callable[[float, float], bool]
    labels: str | None = None
    even: tuple[float, int] | None = None
    limit: float | None = None


def share(value: float) -> str:
    """A ratio as people say it.

    >>> share(0.357)
    '36%'
    """
    return f"{value:.0%}"


def rule(measure: Measure, conditions: Sequence[Condition]) -> AgentRule:
    """A rule of ``conditions``, the worst first: the first that is met is what it finds."""
    longest = conditions[-1].windows[-1]
    windows = {window for condition in conditions for window in condition.windows}
    uses_labels = {c.labels for c in conditions if c.labels is not None}
    asked = windows | uses_labels

    def judge(sums: ByWindow) -> Finding:
        for window in (longest, BASELINE, RECENT):
            if window not in sums:
                return Finding(UNKNOWN, f"the window {window} is not kept")
        now, day = sums[longest], figures.day_before(sums)
        if not any(measure.there(sums.get(window, {})) for window in windows):
            return Finding(NONE, f"no {measure.things} in {longest}")
        unlabelled = uses_labels and nothing_labelled(day.get("u", 0), day.get("l", 0))
        known = 0 if unlabelled else measure.counted(day)
        usual = measure.of(day)["value"] if known >= measure.enough_usual else None
        able = [c for c in conditions if _able(c, measure, sums, usual)]
        if not able and usual is None:
            return _without_usual(measure, conditions, sums, known)
        if not able:
            why = f"{measure.counted(now)} {measure.what} in {longest}"
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
            why += f"; usually it is {measure.say(usual)}"
        if trusted:
            return Finding(chosen.level, why)
        if certain:
            return Finding(UNKNOWN, f"{why}, but few labels have come in {chosen.labels}")
        why = f"{why}, which may be chance" if met else why
        if usual is None:  # the other conditions were not asked
            return Finding(UNKNOWN, f"{why}; {_needed(measure, known)}")
        if left_out := sorted(asked - sums.keys()):
            return Finding(UNKNOWN, f"{why}; the window {left_out[0]} is not kept")
        return Finding(OK, why)

    return judge


def _without_usual(
    measure: Measure, conditions: Sequence[Condition], sums: ByWindow, known: int
) -> Finding:
    """What can be said without knowing what is usual: whether fixed thresholds are exceeded."""
    needed = _needed(measure, known)
    limited = [
        (condition, condition.limit)
        for condition in conditions
        if condition.limit is not None and measure.counted(_last(sums, condition)) >= measure.enough
    ]
    if not limited:
        return Finding(UNKNOWN, needed)
    above = [(c, limit) for c, limit in limited if _exceeded(c, measure, sums)]
    condition, limit = (above or limited[-1:])[0]
    value, window = measure.of(_last(sums, condition))["value"], condition.windows[-1]
    why = measure.says.format(measure.say(value), window)
    if not above:  # whatever is usual, the rule does not fire
        return Finding(OK, f"{why}, which is not above {measure.say(limit)}")
    return Finding(
        UNKNOWN,
        f"{why}, which is above {measure.say(limit)}; whether that is unusual cannot be told yet: "
        f"{needed}",
        above=True,
    )


def _needed(measure: Measure, known: int) -> str:
    """How much the day before has, and how much would tell what is usual."""
    return (
        f"{known} {measure.what} in {DAY_BEFORE}, {measure.enough_usual} are needed to know "
        "what is usual"
    )


def _values(condition: Condition, measure: Measure, sums: ByWindow) -> list[float | None]:
    return [measure.of(sums.get(window, {}))["value"] for window in condition.windows]


def _exceeded(condition: Condition, measure: Measure, sums: ByWindow) -> bool:
    """Whether the figure is above the fixed threshold, if there is one, in all windows."""
    limit = condition.limit
    return limit is None or all(
        value is not None and value > limit for value in _values(condition, measure, sums)
    )


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
    return _exceeded(condition, measure, sums) and all(
        value is not None and compared is not None and condition.beyond(value, compared)
        for value in _values(condition, measure, sums)
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
    usual = figures.coverage(figures.day_before(sums))["value"]
    return now is not None and usual is not None and now > LABELLED_OF_USUAL * usual


def is_fresh(sums: ByWindow) -> bool:
    """Whether all that an agent searched in the last day lies in its last hour.

    Nothing is known then of what is usual for it.
    """
    kept = BASELINE in sums and RECENT in sums
    return kept and bool(sums[BASELINE].get("s")) and not figures.day_before(sums).get("s")


# -- what the alerts ask ---------------------------------------------------------------------------


def _whole(of: Callable[[Sums], figures.Figure]) -> Callable[[Sums], int]:
    return lambda sums: int(of(sums)["whole"])


def _count(*heads: str) -> Callable[[Sums], int]:
    """Adds up sums by what their codes begin with."""
    return lambda sums: sum(n for code, n in sums.items() if code.partition("|")[0] in heads)


def _skips(sums: Sums) -> int:
    skips: int = figures.gate(sums)["skips"]["part"]
    return skips


def _above_usual(times: float) -> Callable[[float, float], bool]:
    return lambda value, usual: value > times * usual


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
        share_above(4.5, 4), "results", _count("r"),
    ),
    [
        Condition(level, windows, _above_usual(SRR_OF_USUAL), limit=limit)
        for level, limit in ((CRITICAL, SRR_CRITICAL), (WARNING, SRR_WARNING))
        for windows in SRR_WINDOWS
    ],
)  # fmt: skip

results_drop: Final = rule(
    Measure(
        figures.found, "searches", SEARCHES, USUAL_SEARCHES,
        "a search returns {} results in {}", "{:.1f}".format, _whole(figures.found),
        relative_below(4, 0.75), "searches", _count("s"),
    ),
    [Condition(CRITICAL, (window,), _below_usual(part)) for window, part in RESULTS_DROPS],
)  # fmt: skip

sre_drop: Final = rule(
    Measure(
        figures.sre, "labelled results", RESULTS, USUAL_RESULTS,
        "SRE is {} in {}", "{:.2f}".format, _whole(figures.sre),
        skewed_below(4, 2.5), "results", _count("r", "sr"),
    ),
    _drops(CRITICAL),
)  # fmt: skip

gain_drop: Final = rule(
    Measure(
        figures.gain, "labelled iterations", ITERATIONS, USUAL_ITERATIONS,
        "good gain per iteration is {} in {}", "{:.2f}".format, _whole(figures.gain),
        mean_below(4, 6), "iterations", _count("i", "si"),
    ),
    _drops(WARNING),
)  # fmt: skip

missed_retrievals: Final = rule(
    Measure(
        missed_share, "labelled decisions", DECISIONS, USUAL_DECISIONS,
        "the gate skipped a search that was needed in {} of the cases of {}",
        share, _whole(missed_share), few_above(4, least=0.02), "skipped searches", _skips,
    ),
    [
        Condition(CRITICAL, (window,), _above_usual(MISSED_OF_USUAL), limit=limit)
        for window, limit in MISSED.items()
    ],
)  # fmt: skip

routing_drop: Final = rule(
    Measure(
        routing_accuracy, "labelled routes", ROUTES, USUAL_ROUTES,
        "{} of the searches of {} took the best route", share, _whole(routing_accuracy),
        skewed_below(4, 1, most=0.98), "routed searches", _count("R"),
    ),
    [Condition(WARNING, (window,), _under_usual(by)) for window, by in ROUTING_DROP.items()],
)  # fmt: skip

reranking_worse: Final = rule(
    Measure(
        figures.reranking, "reranked searches", RERANKED, USUAL_RERANKED,
        "NDCG after reranking is {} of that before in {}", share, lambda sums: sums.get("kc", 0),
        spread_below(4, 0.25), "reranked searches", _count("kc"),
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
    """Far fewer documents of an hour have a label than usual; no alert asks this."""
    for window in (COVERED, BASELINE):
        if window not in sums:
            return Finding(UNKNOWN, f"the window {window} is not kept")
    now = figures.coverage(sums[COVERED])
    usual = figures.coverage(figures.day_before(sums))
    if not now["whole"]:
        return Finding(NONE, f"no documents in {COVERED}")
    if not now["part"] and not usual["part"]:
        return Finding(UNKNOWN, f"no label has come in {BASELINE}")
    if usual["whole"] < USUAL_RESULTS:
        why = f"{usual['whole']} documents in {DAY_BEFORE}, {USUAL_RESULTS} are needed"
        return Finding(UNKNOWN, f"{why} to know what is usual")
    if now["whole"] < RESULTS:
        return Finding(UNKNOWN, f"{now['whole']} documents in {COVERED}, {RESULTS} are needed")
    level = OK if now["value"] > LABELLED_OF_USUAL * usual["value"] else WARNING
    why = f"{share(now['value'])} of the documents of {COVERED} have a label"
    return Finding(level, f"{why}; usually it is {share(usual['value'])}")
