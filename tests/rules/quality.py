"""Cases of the alerts about one agent's ratios: the same claims for each alert."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.rules.cases import GONE, QUIET_MINUTES, Case, Phase, Series, gauge, wobbling

BAD_MINUTES: Final = 20
AFTER_MINUTES: Final = 30
Level = tuple[int, "float | None", float]  # minutes, ratio, denominator

WINDOW: Final = "streammetrics_window_"


def _parts(above: str, below: str, **labels: str) -> Callable[..., Series]:
    """Series of a ratio of two families."""

    def made(levels: Sequence[Level], **more: str) -> Series:
        return gauge(f"{WINDOW}{above}", *_product(levels), **labels, **more) | gauge(
            f"{WINDOW}{below}", *_total(levels), **labels, **more
        )

    return made


def _answers(metric: str, hit: Mapping[str, str], miss: Mapping[str, str]) -> Callable[..., Series]:
    """Series of a share of one family: those that ``hit`` of all."""

    def made(levels: Sequence[Level], **more: str) -> Series:
        rest = [(n, None if r is None else 1 - r, total) for n, r, total in levels]
        return gauge(f"{WINDOW}{metric}", *_product(levels), **hit, **more) | gauge(
            f"{WINDOW}{metric}", *_product(rest), **miss, **more
        )

    return made


def _reranking(levels: Sequence[Level], **more: str) -> Series:
    sums = [(n, ratio, 0.7e9 * total) for n, ratio, total in levels]
    return (
        gauge(f"{WINDOW}rerank_ndcg_sum", *_product(sums), order="shown", **more)
        | gauge(f"{WINDOW}rerank_ndcg_sum", *_total(sums), order="baseline", **more)
        | gauge(f"{WINDOW}rerank_ndcg_count", *_total(levels), **more)
    )


def _product(levels: Sequence[Level]) -> list[Phase]:
    return [(n, None if ratio is None else ratio * total) for n, ratio, total in levels]


def _total(levels: Sequence[Level]) -> list[Phase]:
    return [(n, GONE if ratio is None else total) for n, ratio, total in levels]


@dataclass(frozen=True, slots=True)
class Subject:
    """An alert about a ratio: its series, what is healthy and what is bad, and of how many.

    ``noise``: how far the ratio goes up and down on a healthy day. ``few``: too few to tell.
    ``judged``: the rule looks at the share of documents with a label beside.
    """

    alert: str
    severities: tuple[str, ...]
    series: Callable[..., Series]
    healthy: float
    bad: float
    noise: float
    volumes: Mapping[str, float]
    few: Mapping[str, float]
    judged: bool = False


RESULTS: Final = {"1m": 300.0, "5m": 1_500.0, "30m": 9_000.0, "24h": 200_000.0}
FEW_RESULTS: Final = {"1m": 20.0, "5m": 90.0, "30m": 190.0, "24h": 4_000.0}
SEARCHES: Final = {"5m": 150.0, "30m": 900.0, "24h": 20_000.0}
FEW_SEARCHES: Final = {"5m": 9.0, "30m": 18.0, "24h": 400.0}
ITERATIONS: Final = {"5m": 100.0, "30m": 600.0, "24h": 14_000.0}
FEW_ITERATIONS: Final = {"5m": 9.0, "30m": 18.0, "24h": 300.0}
DECISIONS: Final = {"5m": 60.0, "1h": 700.0, "24h": 9_000.0}
DOCUMENTS: Final = {"5m": 1_500.0, "1h": 18_000.0}
ALL_DOCUMENTS: Final = {**DOCUMENTS, "24h": 200_000.0}
JUDGED: Final = _parts("labelled_results", "unique_results")
FEW_DOCUMENTS: Final = {"5m": 100.0, "1h": 190.0}
FEW_DECISIONS: Final = {"5m": 4.0, "1h": 9.0, "24h": 100.0}
FEW_OF_THE_GATE: Final = {"5m": 2.0, "1h": 4.0, "24h": 100.0}

SUBJECTS: Final = (
    Subject("SRRSpike", ("critical", "warning"),
            _parts("duplicate_results", "results"), 0.22, 0.6, 0.04, RESULTS, FEW_RESULTS),
    Subject("StreamMetricsResultsDrop", ("critical",),
            _parts("results", "searches"), 10.0, 1.0, 1.0, SEARCHES, FEW_SEARCHES),
    Subject("StreamMetricsEfficiencyDrop", ("critical",),
            _parts("settled_good_results", "settled_results"), 0.3, 0.1, 0.04, RESULTS,
            FEW_RESULTS, judged=True),
    Subject("StreamMetricsGainDrop", ("warning",),
            _parts("settled_gain", "settled_iterations"), 6.0, 2.0, 0.7, ITERATIONS,
            FEW_ITERATIONS, judged=True),
    Subject("StreamMetricsRetrievalMissed", ("critical",),
            _answers("gate_decisions", {"decision": "skip", "needed": "yes"},
                     {"decision": "search", "needed": "yes"}),
            0.03, 0.6, 0.03, DECISIONS, FEW_OF_THE_GATE),
    Subject("StreamMetricsRoutingAccuracyDrop", ("warning",),
            _answers("routed_searches", {"route": "wiki", "correct": "yes"},
                     {"route": "wiki", "correct": "no"}),
            0.9, 0.3, 0.05, DECISIONS, FEW_DECISIONS),
    Subject("StreamMetricsRerankingWorse", ("warning",), _reranking, 1.1, 0.7, 0.08, DECISIONS,
            FEW_DECISIONS),
    Subject("StreamMetricsJudgedShareLow", ("warning",),
            JUDGED, 0.9, 0.4, 0.04, DOCUMENTS,
            FEW_DOCUMENTS),
)  # fmt: skip


def labelled(name: str, usual: Sequence[tuple[int, float | None]], **labels: str) -> Series:
    """An agent's share of documents with a label, as shares of 0.95; a day of it stays."""
    made: Series = {}
    for window, volume in ALL_DOCUMENTS.items():
        levels = [
            (n, share if share is None else 0.95 * (1 if window == "24h" else share), volume)
            for n, share in usual
        ]
        made |= JUDGED(levels, agent=name, window=window, **labels)
    return made


def cases(subject: Subject) -> list[Case]:
    """The claims about one alert."""
    healthy, bad = subject.healthy, subject.bad

    def agent(
        name: str,
        *ratios: tuple[int, float | None],
        volumes: Mapping[str, float] = subject.volumes,
        **labels: str,
    ) -> Series:
        """An agent's windows: the short ones go through ``ratios``, the day stays healthy."""
        made: Series = {}
        for window, volume in volumes.items():
            levels = [
                (n, ratio if ratio is None or window != "24h" else healthy, volume)
                for n, ratio in ratios
            ]
            made |= subject.series(levels, agent=name, window=window, **labels)
        if subject.judged:
            phases = [(n, None if ratio is None else 1.0) for n, ratio in ratios]
            made |= labelled(name, phases, **labels)
        return made

    incident = ((QUIET_MINUTES, healthy), (BAD_MINUTES, bad), (AFTER_MINUTES, healthy))
    fired = [{"agent": "a", "severity": severity} for severity in subject.severities]
    early, late = QUIET_MINUTES + 4, QUIET_MINUTES + BAD_MINUTES - 1
    over = QUIET_MINUTES + BAD_MINUTES + 17  # five of the older half, ten kept, and some
    end = QUIET_MINUTES + BAD_MINUTES + AFTER_MINUTES - 1
    silent = dict.fromkeys(range(QUIET_MINUTES, end, 5), ())
    noise = [(n, value) for n, value in wobbling(end, healthy, subject.noise)]
    handed_over = QUIET_MINUTES + BAD_MINUTES // 2
    rest = BAD_MINUTES + AFTER_MINUTES
    return [
        Case("fires within four minutes, and resolves when it is over", agent("a", *incident),
             {QUIET_MINUTES - 1: (), early: fired, late: fired, over: (), end: ()}),
        Case("is silent on noise", agent("a", *noise), silent),
        Case("is silent where too few were counted", agent("a", *incident, volumes=subject.few),
             silent),
        Case("is silent while a worker restarts",
             agent("a", (QUIET_MINUTES, healthy), (2, GONE), (rest, healthy)), silent),
        Case("is silent on a deploy, when another worker takes the sums over",
             agent("a", (QUIET_MINUTES, healthy), (rest, GONE))
             | agent("a", (QUIET_MINUTES + 1, GONE), (rest - 1, healthy), instance="worker-2:9464"),
             silent),
        Case("goes on firing through a deploy",
             agent("a", (QUIET_MINUTES, healthy), (BAD_MINUTES // 2, bad), (rest, GONE))
             | agent("a", (handed_over + 1, GONE), (rest, bad), instance="worker-2:9464"),
             {handed_over - 1: fired, handed_over + 1: fired, handed_over + 6: fired}),
        Case("adds up what two workers hold of an agent",
             agent("a", *incident) | agent("a", *incident, instance="worker-2:9464"),
             {early: fired, over: ()}),
        Case("names the one bad agent among many",
             {series: values for name in "bcdefgh"
              for series, values in agent(name, (end, healthy)).items()}
             | agent("a", *incident),
             {early: fired, over: ()}),
    ]  # fmt: skip


def unjudged(subject: Subject) -> list[Case]:
    """A rule about settled iterations does not fire because labels are missing."""
    end = QUIET_MINUTES + BAD_MINUTES
    made: Series = labelled("a", [(QUIET_MINUTES, 1.0), (BAD_MINUTES, 0.1)])
    for window, volume in subject.volumes.items():
        bad = 0.0 if window != "24h" else subject.healthy
        made |= subject.series(
            [(QUIET_MINUTES, subject.healthy, volume), (BAD_MINUTES, bad, volume)],
            agent="a", window=window,
        )  # fmt: skip
    silent = dict.fromkeys(range(QUIET_MINUTES, end, 5), ())
    return [Case("is silent while labels are missing, and only what needs none is settled", made,
                 silent)]  # fmt: skip


def without_zeros() -> list[Case]:
    """A worker with very many series leaves out zeros."""
    series: Series = {}
    for window, volume in DECISIONS.items():
        of = {"agent": "a", "window": window, "route": "wiki"}
        right, wrong = (0.9 * volume, 0.1 * volume)
        then: Sequence[Phase] = [(BAD_MINUTES, GONE if window != "24h" else right)]
        series |= gauge(f"{WINDOW}routed_searches", (QUIET_MINUTES, right), *then, correct="yes",
                        **of)  # fmt: skip
        bad = volume if window != "24h" else wrong
        series |= gauge(f"{WINDOW}routed_searches", (QUIET_MINUTES, wrong), (BAD_MINUTES, bad),
                        correct="no", **of)  # fmt: skip
    fired = [{"agent": "a", "severity": "warning"}]
    return [Case("fires where no right route is left, and so no series of them", series,
                 {QUIET_MINUTES - 1: (), QUIET_MINUTES + 15: fired})]  # fmt: skip


def of_busy_and_quiet() -> list[Case]:
    """The baseline weighs documents, not minutes."""
    few_labels, all_labels = (20, 0.4, 15_000.0), (20, 1.0, 300.0)
    levels: Sequence[Level] = [few_labels, all_labels, (QUIET_MINUTES - 20, 0.4, 1_500.0)]
    silent = dict.fromkeys(range(QUIET_MINUTES - 5, QUIET_MINUTES + 20, 5), ())
    return [Case("is silent where quiet minutes had many labels, and most documents never had",
                 JUDGED(levels, agent="a", window="5m"), silent)]  # fmt: skip


def of_new_rerankers() -> list[Case]:
    """Agents without a baseline: only the order before reranking counts."""
    minutes = 60

    def new(*ratios: tuple[int, float], searches: float = 700.0, name: str = "a") -> Series:
        made: Series = {}
        for window, total in {"5m": searches / 12, "1h": searches}.items():
            levels: Sequence[Level] = [(n, ratio, total) for n, ratio in ratios]
            made |= _reranking(levels, agent=name, window=window)
        return made

    fired = [{"agent": "a", "severity": "warning"}]
    silent = dict.fromkeys(range(0, minutes, 5), ())
    return [
        Case("fires where a new agent's reranker is bad from the first day, and resolves",
             new((minutes, 0.9), (30, 1.1)), {5: fired, minutes - 1: fired, minutes + 12: ()}),
        Case("is silent about a new agent whose reranker is good", new((minutes, 1.1)), silent),
        Case("is silent where a new agent's reranker changes nothing", new((minutes, 0.98)),
             silent),
        Case("is silent on 40 searches that chance may have made worse",
             new((minutes, 0.87), searches=40), silent),
        Case("is silent where a new agent has 29 reranked searches in an hour",
             new((minutes, 0.5), searches=29), silent),
        Case("is silent about other agents' rerankers, added up under `other`",
             new((minutes, 0.7), name="other"), silent),
    ]  # fmt: skip


def searching(searches: Mapping[str, float], *short: Phase, long: Sequence[Phase] = ()) -> Series:
    """An agent's searches and results: of five minutes, of 30 (by default the same), and
    of a day."""
    series: Series = {}
    of_window = {"5m": short, "30m": long or short, "24h": [(sum(n for n, _ in short), 10.0)]}
    for window, phases in of_window.items():
        of, total = {"agent": "a", "window": window}, searches[window]
        results = [(n, found if found is None else found * total) for n, found in phases]
        made = gauge(f"{WINDOW}results", *results, **of)
        series |= made | gauge(f"{WINDOW}searches", *[(n, total) for n, _ in phases], **of)
    return series


def of_an_index() -> list[Case]:
    """An index that is empty, and one that had bad luck."""
    fired = [{"agent": "a", "severity": "critical"}]
    silent = dict.fromkeys(range(QUIET_MINUTES, QUIET_MINUTES + BAD_MINUTES, 5), ())
    empty = searching(SEARCHES, (QUIET_MINUTES, 10.0), (BAD_MINUTES, GONE))
    quiet = {"5m": 5.0, "30m": 30.0, "24h": 1_000.0}
    late = [(QUIET_MINUTES + 15, 10.0), (BAD_MINUTES, 0.0)]  # 30 minutes take a while to be empty
    unlucky = (QUIET_MINUTES, 10.0), (4, 4.0), (BAD_MINUTES - 4, 10.0)
    return [
        Case("fires where nothing is found, and so no series of results is left", empty,
             {QUIET_MINUTES - 1: (), QUIET_MINUTES + 4: fired}),
        Case("fires where there are 30 searches in half an hour",
             searching(quiet, (QUIET_MINUTES, 10.0), (BAD_MINUTES + 15, 0.0), long=late),
             {QUIET_MINUTES + 14: (), QUIET_MINUTES + 19: fired}),
        Case("is silent on less than half of 20 searches, which chance may bring",
             searching({**SEARCHES, "5m": 20.0}, *unlucky,
                       long=[(QUIET_MINUTES + BAD_MINUTES, 10.0)]), silent),
    ]  # fmt: skip


def spiking(**of: str) -> Series:
    """SRR goes up, of an agent or of whatever else sums are by; the day stays healthy."""
    series: Series = {}
    for window, volume in RESULTS.items():
        ratio = 0.6 if window != "24h" else 0.22
        levels: Sequence[Level] = [(QUIET_MINUTES, 0.22, volume), (BAD_MINUTES, ratio, volume)]
        series |= SUBJECTS[0].series(levels, window=window, **of)
    return series


def of_others() -> list[Case]:
    """There is no baseline for sums under ``other``."""
    silent = dict.fromkeys(range(QUIET_MINUTES, QUIET_MINUTES + BAD_MINUTES, 5), ())
    return [
        Case("is silent about agents that are added up under `other`", spiking(agent="other"),
             silent),
        Case("is silent about releases that are added up under `other`", spiking(release="other"),
             silent),
    ]  # fmt: skip


def of_releases() -> list[Case]:
    """Cases with releases as the dimension."""
    series = spiking(release="v2")
    for window, volume in RESULTS.items():
        series |= SUBJECTS[0].series([(QUIET_MINUTES + BAD_MINUTES, 0.22, volume)], release="v1",
                                     window=window)  # fmt: skip
    fired = [{"release": "v2", "severity": severity} for severity in ("critical", "warning")]
    return [Case("names the release, where sums are by release", series,
                 {QUIET_MINUTES - 1: (), QUIET_MINUTES + 10: fired})]  # fmt: skip


def of_a_handful() -> list[Case]:
    """Four decisions in five minutes, of an agent whose gate wrongly skips three of a hundred."""
    gate = next(one for one in SUBJECTS if one.alert == "StreamMetricsRetrievalMissed")

    def missed(share: float) -> Series:
        series: Series = {}
        for window, volume in {"5m": 4.0, "1h": 40.0, "24h": 1_000.0}.items():
            then = share if window == "5m" else gate.healthy
            levels = [(QUIET_MINUTES, gate.healthy, volume), (BAD_MINUTES, then, volume)]
            series |= gate.series(levels, agent="a", window=window)
        return series

    end = QUIET_MINUTES + BAD_MINUTES
    fired = [{"agent": "a", "severity": "critical"}]
    return [
        Case("fires when three of a handful are missed", missed(0.75),
             {QUIET_MINUTES - 1: (), QUIET_MINUTES + 7: fired, end - 1: fired}),
        Case("is silent when one of a handful is missed", missed(0.25),
             dict.fromkeys(range(QUIET_MINUTES, end, 5), ())),
    ]  # fmt: skip


CASES: Final = {subject.alert: cases(subject) for subject in SUBJECTS}
for _subject in SUBJECTS:
    if _subject.judged:
        CASES[_subject.alert] += unjudged(_subject)
CASES["StreamMetricsRetrievalMissed"] += of_a_handful()
CASES["StreamMetricsRoutingAccuracyDrop"] += without_zeros()
CASES["StreamMetricsResultsDrop"] += of_an_index()
CASES["StreamMetricsJudgedShareLow"] += of_busy_and_quiet()
CASES["StreamMetricsRerankingWorse"] += of_new_rerankers()
CASES["SRRSpike"] += [*of_others(), *of_releases()]
