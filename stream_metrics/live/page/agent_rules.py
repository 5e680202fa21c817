"""The page's rules on agents: the evidence that a figure has shifted, which alerts go by, in words.

It is that of what has arrived, and so are the figures in its sentences. A rule with too little data
says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.evidence import LEAST_ACTIVE
from stream_metrics.core.alerts.figures import BY_NAME, Figure
from stream_metrics.core.alerts.hour import (
    LEAST_PARTS,
    Counts,
    active,
    label_parts,
    parts,
    ratio_of,
    usual,
)
from stream_metrics.core.alerts.shifts import Evidence, Noticed, Usual, noticed, would_show
from stream_metrics.core.alerts.standing import HOUR, Stands
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
    ``unit`` names what is judged, which ``items`` counts where the figure's denominator does not.
    ``subject`` names what could be judged, which ``subjects`` counts: if it is 0, there is nothing
    to judge. ``families`` are the codes of the families that this count needs, as ``named``;
    ``absent`` says what is the matter if it is no fault that no window has them.
    """

    figure: str
    sentence: str
    format: Callable[[float], str]
    unit: str
    subject: str
    subjects: Callable[[Sums], int]
    families: frozenset[str] = frozenset()
    named: str = ""
    absent: str = ""
    hint: Hint | None = None
    items: Callable[[Sums], int] | None = None


@dataclass(frozen=True, slots=True)
class _Judged:
    """A figure of an agent, as a rule looks at it."""

    measure: Measure
    course: Course
    stands: Stands

    @property
    def below(self) -> float:
        """What the denominator had in the last hour."""
        return sum(came.below for came in self.stands.hour)

    @property
    def items(self) -> int:
        """What is there to be judged in the last hour."""
        count = self.measure.items
        return round(self.below) if count is None else count(self.course.sums.get(RECENT, {}))

    def ratio(self, minutes: int = HOUR) -> float | None:
        """The figure of the last minutes, None without traffic."""
        lately = self.stands.hour[-minutes:]
        below = sum(came.below for came in lately)
        return sum(came.above for came in lately) / below if below > 0 else None

    def said(self, minutes: int = HOUR) -> str:
        """The figure of the last minutes, or of the whole hour, as a sentence."""
        minutes = min(minutes, HOUR) if self.ratio(minutes) is not None else HOUR
        value = self.ratio(minutes)
        span = {1: "minute", HOUR: "hour"}.get(minutes, f"{minutes} minutes")
        shown = self.measure.format(value or 0.0)
        return self.measure.sentence.format(shown, f"the last {span}")


class EvidenceRule:
    """The judgement of a figure by the evidence that it has shifted."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._figure = BY_NAME[measure.figure]

    def __call__(self, course: Course) -> Finding:
        """The finding about an agent by itself."""
        stands = (course.evidence or {}).get(self._figure.name)
        if stands is None or all(came.below == 0 for came in stands.hour):
            without = self._without_traffic(course)
            if without is not None:
                return without
        if course.evidence is None:
            return Finding(UNKNOWN, "the evidence is not known now; the log says why")
        judged = _Judged(self._measure, course, stands or _nothing(self._figure))
        share = ratio_of(label_parts(course.day))
        level = _level(self._figure, judged.stands.own) if self.counts(course) else None
        if level is None and self._figure.labelled and share == 0:
            return Finding(UNKNOWN, f"no document of {DAY_BEFORE} has a label")
        known, own = judged.stands.usual, judged.stands.own
        if known is None or own is None:
            return _without_usual(judged)
        return _compared(judged, known, own, level)

    def counts(self, course: Course) -> bool:
        """Whether an agent has evidence and traffic, so that alerts about its pool fire for it."""
        stands = (course.evidence or {}).get(self._figure.name)
        return stands is not None and stands.evidence is not None

    def pool_level(self, course: Course) -> str | None:
        """The level of the fault that an agent has together with others; None without one."""
        stands = (course.evidence or {}).get(self._figure.name)
        if stands is None or stands.evidence is None:
            return None
        return _level(self._figure, stands.pooled)

    def _without_traffic(self, course: Course) -> Finding | None:
        """The finding where nothing that can be judged came in the last hour; None if it may
        still come of what is there."""
        measure, families = self._measure, course.families
        if measure.absent and not frozenset[str]().union(*families.values()) & measure.families:
            return Finding(NONE, measure.absent)
        if RECENT not in families:
            return Finding(UNKNOWN, f"the window {RECENT} is not kept")
        if not families[RECENT] >= measure.families:
            return Finding(UNKNOWN, f"the window {RECENT} is kept without {measure.named}")
        if not measure.subjects(course.sums[RECENT]):
            return Finding(NONE, f"no {measure.subject} in the last hour")
        return None


def _nothing(figure: Figure) -> Stands:
    """What there is of a figure of which nothing has come yet."""
    return Stands(figure, 0.0, None, None, None, None, 0, ())


def _level(figure: Figure, shifts: Sequence[Evidence] | None) -> str | None:
    """The level of a fault by the evidence of a small and of a large shift; None without one."""
    if not shifts or max(shifts).value <= 1:
        return None
    return CRITICAL if shifts[-1].value > 1 and figure.pages else WARNING


def _compared(judged: _Judged, known: Usual, own: Sequence[Evidence], level: str | None) -> Finding:
    """The finding where it is known what is usual."""
    measure, stands = judged.measure, judged.stands
    figure, hour = stands.figure, stands.hour
    usually = f"usually it is {measure.format(known.ratio)}"
    if level is not None:
        minutes = (own[-1] if level == CRITICAL else max(own)).minutes
        return Finding(level, f"{judged.said(minutes)}; {usually}")
    least = noticed(figure, known, stands.threshold)
    if least is None:
        return Finding(NONE, f"{usually}, and can hardly get worse")
    if judged.below < least.below:
        return Finding(UNKNOWN, _too_few(judged, known, least))
    why = f"{judged.said()}; {usually}"
    if sum(came.below for came in hour if came.judged) < least.below:
        return Finding(UNKNOWN, f"{why}, but few labels have come")
    if not would_show(figure, known, least.ratio, hour, stands.threshold):
        some = sum(came.judged and came.below > 0 for came in hour)
        only = f"{some} of 60 minutes had {measure.unit}"
        return Finding(UNKNOWN, f"{why}, but only {only}, too few to tell a shift")
    return Finding(OK, f"{why}, which may be chance" if max(own).value >= LIKELY else why)


def _too_few(judged: _Judged, known: Usual, least: Noticed) -> str:
    """The message that a shift would not be noticed in so little traffic."""
    measure, below = judged.measure, judged.below
    why = f"{judged.items} {measure.unit} in the last hour"
    shifted, usually = measure.format(least.ratio), measure.format(known.ratio)
    if below <= 0:
        return why
    needed = ceil(judged.items * least.below / below)
    return f"{why}, {needed} are needed to tell {shifted} from the usual {usually}"


def _without_usual(judged: _Judged) -> Finding:
    """The finding without a usual value: only whether the fixed threshold is exceeded."""
    measure, minutes = judged.measure, judged.stands.active
    missing = (
        f"{minutes} minutes with {measure.unit} in {DAY_BEFORE}, {LEAST_ACTIVE} are needed to know "
        "what is usual"
        if minutes < LEAST_ACTIVE
        else f"three hours with {measure.unit} are needed to know what is usual"
    )
    value, hint = judged.ratio(), measure.hint
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
        return ratio_of(labels) if active(labels) >= LEAST_PARTS else None
    figure = BY_NAME[name]
    if figure.labelled and ratio_of(labels) == 0:
        return None
    known = usual(figure, parts(figure, day))
    return known and known.ratio


def is_new(course: Course) -> bool:
    """Whether an agent that searches now has not searched for long enough to know what is usual."""
    stretches = sum(bool(part.get("searches")) for part in course.day)
    searches = course.sums.get(RECENT, {}).get("s", 0)
    return bool(course.day) and searches > 0 and stretches < LEAST_PARTS


# -- the rules -------------------------------------------------------------------------------------


def _count(*heads: str) -> Callable[[Sums], int]:
    """Counts by the heads of series codes."""
    return lambda sums: sum(n for code, n in sums.items() if code.partition("|")[0] in heads)


def _skips(sums: Sums) -> int:
    return int(figures.gate(sums)["skips"]["part"])


srr_spike: Final = EvidenceRule(
    Measure(
        "srr", "{} of its results in {} repeat what the turn had already", percent_text,
        "results", "results", _count("r"), hint=Hint(SRR_HIGH, RESULTS),
    )
)  # fmt: skip

results_drop: Final = EvidenceRule(
    Measure(
        "results", "a search returns {} results in {}", "{:.1f}".format,
        "searches", "searches", _count("s"),
    )
)  # fmt: skip

searches_empty: Final = EvidenceRule(
    Measure(
        "empty_searches", "{} of its searches in {} returned nothing", percent_text,
        "searches", "searches", _count("s"),
        frozenset("e"), LOOPS_NAMED, absent=NO_LOOPS,
    )
)  # fmt: skip

searches_repeated: Final = EvidenceRule(
    Measure(
        "repeated_searches", "{} of its searches in {} ask again what the turn had asked",
        percent_text,
        "searches with a query", "searches with a query", _count("a"),
        frozenset({"a", "aa"}), LOOPS_NAMED, absent=NO_LOOPS,
    )
)  # fmt: skip

sre_drop: Final = EvidenceRule(
    Measure(
        "sre", "SRE is {} in {}", percent_text,
        "labelled results", "results", _count("r"),
    )
)  # fmt: skip

gain_drop: Final = EvidenceRule(
    Measure(
        "gain", "good gain per iteration is {} in {}", "{:.2f}".format,
        "labelled iterations", "iterations", _count("i"),
    )
)  # fmt: skip

missed_retrievals: Final = EvidenceRule(
    Measure(
        "missed_searches", "the gate skipped a search that was needed in {} of the cases of {}",
        percent_text, "labelled decisions", "skipped searches", _skips,
        frozenset("q"), "gate decisions", hint=Hint(MISSED_HIGH, DECISIONS),
    )
)  # fmt: skip

routing_drop: Final = EvidenceRule(
    Measure(
        "wrong_routes", "{} of the searches of {} took the best route",
        lambda wrong: percent_text(1 - wrong),
        "labelled routes", "routed searches", _count("R"),
        frozenset("R"), "routes",
    )
)  # fmt: skip

reranking_worse: Final = EvidenceRule(
    Measure(
        "reranking", "NDCG after reranking is {} of that before in {}", percent_text,
        "reranked searches", "reranked searches", _count("kc"),
        frozenset({"ks", "kc"}), "reranked searches", items=_count("kc"),
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
