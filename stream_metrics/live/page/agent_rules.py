"""The page's rules on agents: evidence that a figure has shifted, as the alerts gather it.

What is usual is that of the agent's last day without the last hour. The evidence is that of the
last hour, so that the page needs no more than the windows. A rule with too little data says what is
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Final, NamedTuple

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.calibration import FALSE_ALARMS, threshold
from stream_metrics.core.alerts.evidence import LATELY
from stream_metrics.core.alerts.figures import BY_NAME, Figure
from stream_metrics.core.alerts.hour import (
    LEAST_ACTIVE,
    Counts,
    Evidence,
    Noticed,
    Part,
    Step,
    Usual,
    active,
    gathered,
    label_parts,
    latest,
    noticed,
    parts,
    ratio_of,
    steps,
    together,
    unlabelled_minutes,
    usual,
    waits_for_labels,
)
from stream_metrics.core.alerts.thresholds import (
    BASELINE,
    COVERED,
    DECISIONS,
    LABELLED_OF_DAY,
    MISSED_HIGH,
    RECENT,
    RESULTS,
    SRR_HIGH,
    USUAL_RESULTS,
)
from stream_metrics.core.engine.windows import Sums
from stream_metrics.live.page import figures
from stream_metrics.live.page.courses import Course
from stream_metrics.live.page.finding import NONE, OK, UNKNOWN, Finding, percent_text

DAY_BEFORE: Final = "the day before the last hour"
LIKELY: Final = 0.5  # from so much evidence on, a figure that is no fault may be one soon

LOOPS_NAMED: Final = "figures of loops"
NO_LOOPS: Final = "no figures of loops are kept; they need dedup.tables 3 and a build"

REMEMBERED: Final = 64  # courses; there are fewer agents


AgentRule = Callable[[Course], Finding]


@dataclass(frozen=True, slots=True)
class Hint:
    """A fixed threshold for agents of which nothing is usual yet, from so many items on."""

    above: float
    items: int


@dataclass(frozen=True, slots=True)
class Measure:
    """How the page words a figure.

    ``sentence`` is a template for a value and a stretch of time, ``format`` formats a value.
    ``unit`` names what is judged, which ``items`` counts. ``subject`` names what could be judged,
    which ``subjects`` counts: if it is 0, there is nothing to judge. ``families`` are the codes of
    the families that it needs, as ``named``; ``absent`` says what is the matter if it is no fault
    that no window has them.
    """

    figure: str
    sentence: str
    format: Callable[[float], str]
    unit: str
    items: Callable[[Sums], int]
    subject: str
    subjects: Callable[[Sums], int]
    families: frozenset[str] = frozenset()
    named: str = ""
    absent: str = ""
    hint: Hint | None = None


@dataclass(frozen=True, slots=True)
class _Judged:
    """A course as a rule looks at it."""

    measure: Measure
    figure: Figure
    course: Course
    hour: Sequence[Part]
    day: Sequence[Part]
    unlabelled: frozenset[int]
    threshold: float

    @property
    def items(self) -> int:
        """What is there to be judged in the last hour."""
        return self.measure.items(self.course.sums[RECENT])

    def said(self, minutes: int | None = None) -> str:
        """The figure of the last minutes, or of the whole hour, as a sentence."""
        hour = self.hour if minutes is None else self.hour[-minutes:]
        value = ratio_of(hour)
        assert value is not None
        span = {1: "minute", len(self.hour): "hour"}.get(len(hour), f"{minutes} minutes")
        return self.measure.sentence.format(self.measure.format(value), f"the last {span}")

    def steps(self, known: Usual) -> list[list[Step]]:
        """What each minute adds to the evidence of a small and of a large shift."""
        return [
            steps(self.figure, shift, known, self.hour, self.threshold, self.unlabelled)
            for shift in self.figure.shifts
        ]


class _Look(NamedTuple):
    """What a rule finds about an agent, and what each minute adds to the evidence of its shifts.

    ``steps`` are None where nothing can be told of it, or where nothing has come lately.
    """

    finding: Finding
    steps: Sequence[Sequence[Step]] | None = None


class EvidenceRule:
    """The judgement of a figure by the evidence that it has shifted.

    Pages of several views judge the same courses, so the last findings are remembered.
    """

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._figure = BY_NAME[measure.figure]
        self._threshold = threshold(self._figure.name, FALSE_ALARMS)
        self._look = lru_cache(maxsize=REMEMBERED)(self._looked)

    def __call__(self, course: Course) -> Finding:
        """The finding about an agent by itself."""
        return self._look(course).finding

    def counts(self, course: Course) -> bool:
        """Whether an agent has evidence and traffic, so that alerts about its pool fire for it."""
        return self._look(course).steps is not None

    def level_of(self, pool: Iterable[Course]) -> str | None:
        """The level of the fault that agents have together; None without one."""
        agents = [steps for course in pool if (steps := self._look(course).steps) is not None]
        shifts = zip(*agents, strict=True)
        figure = self._figure
        return _level(figure, [latest(gathered(figure, together(each))) for each in shifts])

    def _looked(self, course: Course) -> _Look:
        judged = self._judged(course)
        if isinstance(judged, Finding):
            return _Look(judged)
        known = usual(self._figure, judged.day)
        if known is None:
            return _Look(_without_usual(judged))
        added = judged.steps(known)
        now = ratio_of(judged.hour[-max(LATELY) :]) is not None
        return _Look(_compared(judged, known, added), added if now else None)

    def _judged(self, course: Course) -> _Judged | Finding:
        """The course as it is judged, or why it cannot be."""
        measure, figure = self._measure, self._figure
        kept = frozenset[str]().union(*course.families.values())
        if measure.absent and not kept & measure.families:
            return Finding(NONE, measure.absent)
        for window in (RECENT, BASELINE):
            if window not in course.families:
                return Finding(UNKNOWN, f"the window {window} is not kept")
            if not course.families[window] >= measure.families:
                return Finding(UNKNOWN, f"the window {window} is kept without {measure.named}")
        if not measure.subjects(course.sums[RECENT]):
            return Finding(NONE, f"no {measure.subject} in the last hour")
        share = ratio_of(label_parts(course.day))
        if figure.labelled and share == 0:
            return Finding(UNKNOWN, f"no document of {DAY_BEFORE} has a label")
        waits = waits_for_labels(figure)
        unlabelled = unlabelled_minutes(course.hour, share or 0.0) if waits else frozenset[int]()
        hour, day = parts(figure, course.hour), parts(figure, course.day)
        return _Judged(measure, figure, course, hour, day, unlabelled, self._threshold)


def _level(figure: Figure, shifts: Sequence[Evidence]) -> str | None:
    """The level of a fault by the evidence of a small and of a large shift; None without one."""
    if not shifts or max(shifts).value < 1:
        return None
    return CRITICAL if shifts[-1].value >= 1 and figure.pages else WARNING


def _compared(judged: _Judged, known: Usual, added: Sequence[Sequence[Step]]) -> Finding:
    """The finding where it is known what is usual; ``added`` is what minutes add to evidence."""
    measure, figure = judged.measure, judged.figure
    usually = f"usually it is {measure.format(known.ratio)}"
    small, large = (latest(gathered(figure, each)) for each in added)
    level, most = _level(figure, (small, large)), max(small, large)
    if level is not None:
        minutes = (large if level == CRITICAL else most).minutes
        return Finding(level, f"{judged.said(minutes)}; {usually}")
    least = noticed(figure, known, judged.threshold)
    if least is None:
        return Finding(NONE, f"{usually}, and can hardly get worse")
    below = sum(part.below for part in judged.hour)
    if below < least.below:
        return Finding(UNKNOWN, _too_few(judged, known, least, below))
    why = f"{judged.said()}; {usually}"
    labelled = [
        part.below for minute, part in enumerate(judged.hour) if minute not in judged.unlabelled
    ]
    if sum(labelled) < least.below:
        return Finding(UNKNOWN, f"{why}, but few labels have come")
    if not _would_show(judged, known, least):
        only = f"{sum(below > 0 for below in labelled)} of 60 minutes had {measure.unit}"
        return Finding(UNKNOWN, f"{why}, but only {only}, too few to tell a shift")
    return Finding(OK, f"{why}, which may be chance" if most.value >= LIKELY else why)


def _would_show(judged: _Judged, known: Usual, least: Noticed) -> bool:
    """Whether evidence of a shift would have reached its threshold in the traffic of this hour.

    A minute adds no more than its limit, and evidence ages without traffic.
    """
    shifted = [Part(least.ratio * part.below, part.below) for part in judged.hour]
    shifts = replace(judged, hour=shifted).steps(known)
    return max(max(gathered(judged.figure, added)) for added in shifts) >= 1


def _too_few(judged: _Judged, known: Usual, least: Noticed, below: float) -> str:
    """The message that a shift would not be noticed in so little traffic."""
    measure = judged.measure
    why = f"{judged.items} {measure.unit} in the last hour"
    shifted, usually = measure.format(least.ratio), measure.format(known.ratio)
    if not below:
        return why
    needed = ceil(judged.items * least.below / below)
    return f"{why}, {needed} are needed to tell {shifted} from the usual {usually}"


def _without_usual(judged: _Judged) -> Finding:
    """The finding without a usual value: only whether the fixed threshold is exceeded."""
    measure = judged.measure
    missing = (
        f"{active(judged.day)} stretches of 24 minutes with {measure.unit} in {DAY_BEFORE}, "
        f"{LEAST_ACTIVE} are needed to know what is usual"
    )
    value, hint = ratio_of(judged.hour), measure.hint
    if value is None or hint is None or judged.items < hint.items or value <= hint.above:
        return Finding(UNKNOWN, missing)
    return Finding(
        UNKNOWN,
        f"{judged.said()}, which is above {measure.format(hint.above)}; whether that is unusual "
        f"cannot be told yet: {missing}",
        above=True,
    )


def usual_ratio(name: str, day: Sequence[Counts]) -> float | None:
    """The usual value of a figure, or of the share of labelled documents (``coverage``).

    None if too little is known in these parts of a day, and for what nobody labels.
    """
    labels = label_parts(day)
    if name == "coverage":
        return ratio_of(labels) if active(labels) >= LEAST_ACTIVE else None
    figure = BY_NAME[name]
    if figure.labelled and ratio_of(labels) == 0:
        return None
    known = usual(figure, parts(figure, day))
    return known and known.ratio


def is_new(course: Course) -> bool:
    """Whether an agent that searches now has not searched for long enough to know what is usual."""
    stretches = sum(bool(part.get("searches")) for part in course.day)
    searches = course.sums.get(RECENT, {}).get("s", 0)
    return bool(course.day) and searches > 0 and stretches < LEAST_ACTIVE


# -- the rules -------------------------------------------------------------------------------------


def _whole(of: Callable[[Sums], figures.Figure]) -> Callable[[Sums], int]:
    return lambda sums: int(of(sums)["whole"])


def _count(*heads: str) -> Callable[[Sums], int]:
    """Counts by the heads of series codes."""
    return lambda sums: sum(n for code, n in sums.items() if code.partition("|")[0] in heads)


def _skips(sums: Sums) -> int:
    return int(figures.gate(sums)["skips"]["part"])


def _labelled_decisions(sums: Sums) -> int:
    return int(figures.gate(sums)["missed_share"]["whole"])


def _labelled_routes(sums: Sums) -> int:
    return int(figures.routing(sums)["accuracy"]["whole"])


srr_spike: Final = EvidenceRule(
    Measure(
        "srr", "{} of its results in {} repeat what the turn had already", percent_text,
        "results", _count("r"), "results", _count("r"), hint=Hint(SRR_HIGH, RESULTS),
    )
)  # fmt: skip

results_drop: Final = EvidenceRule(
    Measure(
        "results", "a search returns {} results in {}", "{:.1f}".format,
        "searches", _count("s"), "searches", _count("s"),
    )
)  # fmt: skip

searches_empty: Final = EvidenceRule(
    Measure(
        "empty_searches", "{} of its searches in {} returned nothing", percent_text,
        "searches", _count("s"), "searches", _count("s"),
        frozenset("e"), LOOPS_NAMED, absent=NO_LOOPS,
    )
)  # fmt: skip

searches_repeated: Final = EvidenceRule(
    Measure(
        "repeated_searches", "{} of its searches in {} ask again what the turn had asked",
        percent_text,
        "searches with a query", _count("a"), "searches with a query", _count("a"),
        frozenset({"a", "aa"}), LOOPS_NAMED, absent=NO_LOOPS,
    )
)  # fmt: skip

sre_drop: Final = EvidenceRule(
    Measure(
        "sre", "SRE is {} in {}", percent_text,
        "labelled results", _whole(figures.sre), "results", _count("r"),
    )
)  # fmt: skip

gain_drop: Final = EvidenceRule(
    Measure(
        "gain", "good gain per iteration is {} in {}", "{:.2f}".format,
        "labelled iterations", _whole(figures.gain), "iterations", _count("i"),
    )
)  # fmt: skip

missed_retrievals: Final = EvidenceRule(
    Measure(
        "missed_searches", "the gate skipped a search that was needed in {} of the cases of {}",
        percent_text, "labelled decisions", _labelled_decisions, "skipped searches", _skips,
        frozenset("q"), "gate decisions", hint=Hint(MISSED_HIGH, DECISIONS),
    )
)  # fmt: skip

routing_drop: Final = EvidenceRule(
    Measure(
        "wrong_routes", "{} of the searches of {} took the best route",
        lambda wrong: percent_text(1 - wrong),
        "labelled routes", _labelled_routes, "routed searches", _count("R"),
        frozenset("R"), "routes",
    )
)  # fmt: skip

reranking_worse: Final = EvidenceRule(
    Measure(
        "reranking", "NDCG after reranking is {} of that before in {}", percent_text,
        "reranked searches", _count("kc"), "reranked searches", _count("kc"),
        frozenset({"ks", "kc"}), "reranked searches",
    )
)  # fmt: skip


def labels_missing(course: Course) -> Finding:
    """Far fewer documents of the last hour have a label than usual; there is no such alert."""
    sums = course.sums
    for window in (COVERED, BASELINE):
        if window not in sums:
            return Finding(UNKNOWN, f"the window {window} is not kept")
    now = figures.coverage(sums[COVERED])
    usual_share = figures.coverage(figures.day_before(sums))
    if not now["whole"]:
        return Finding(NONE, f"no documents in {COVERED}")
    if not now["part"] and not usual_share["part"]:
        return Finding(UNKNOWN, f"no label has come in {BASELINE}")
    if usual_share["whole"] < USUAL_RESULTS:
        why = f"{usual_share['whole']} documents in {DAY_BEFORE}, {USUAL_RESULTS} are needed"
        return Finding(UNKNOWN, f"{why} to know what is usual")
    if now["whole"] < RESULTS:
        return Finding(UNKNOWN, f"{now['whole']} documents in {COVERED}, {RESULTS} are needed")
    level = OK if now["value"] > LABELLED_OF_DAY * usual_share["value"] else WARNING
    why = f"{percent_text(now['value'])} of the documents of {COVERED} have a label"
    return Finding(level, f"{why}; usually it is {percent_text(usual_share['value'])}")
