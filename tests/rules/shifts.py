"""Cases of the alerts about figures that shift: evidence of a few turns fires them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stream_metrics.core.alerts.figures import BY_NAME
from tests.rules.cases import Case, Series, gauge
from tests.rules.evidence import BAD, CALM, MINUTES, Agent, changed, told, traffic

BEGINS, ENDS = 210, 232  # minutes of the incident
OVER: Final = 310  # until evidence has drained, and ten minutes more
SILENT: Final = dict.fromkeys(range(100, OVER, 10), ())
RATE: Final = 1.0  # turns a minute
SLIGHT: Final = {"srr": 0.44}  # between the two sizes of shifts


@dataclass(frozen=True, slots=True)
class Subject:
    """An alert, and what of ``traffic`` goes bad.

    ``minutes``: after how many it fires. ``figure`` is that of the evidence.
    """

    alert: str
    goes_bad: str
    figure: str
    minutes: int
    pages: bool = False
    labelled: bool = False

    @property
    def fired(self) -> list[dict[str, str]]:
        """What fires of an agent ``a``: a page has a message beside it."""
        severities = ("critical", "warning") if self.pages else ("warning",)
        return [{"agent": "a", "severity": severity} for severity in severities]


SUBJECTS: Final = (
    Subject("SRRSpike", "srr", "srr", 10, pages=True),
    Subject("StreamMetricsResultsDrop", "found", "results", 6, pages=True),
    Subject("StreamMetricsEfficiencyDrop", "sre", "sre", 8, pages=True, labelled=True),
    Subject("StreamMetricsGainDrop", "gain", "gain", 18, labelled=True),
    Subject("StreamMetricsRetrievalMissed", "missed", "missed_searches", 7, pages=True),
    Subject("StreamMetricsRoutingAccuracyDrop", "wrong", "wrong_routes", 11),
    Subject("StreamMetricsRerankingWorse", "shown", "reranking", 7),
    Subject("StreamMetricsSearchesRepeated", "repeated", "repeated_searches", 10),
    Subject("StreamMetricsSearchesEmpty", "empty", "empty_searches", 9, pages=True),
)


def agent(
    seed: int,
    bad: Mapping[str, float] | None = None,
    name: str = "a",
    rate: float = RATE,
    **more: object,
) -> Agent:
    """An agent that is calm, but for the incident if some of its figures are ``bad`` then."""
    course = traffic(seed, rate)
    if bad:
        course = changed(course, slice(BEGINS, ENDS), traffic(seed, rate, {**CALM, **bad}))
    return replace(Agent(course, label=("agent", name)), **more)  # type: ignore[arg-type]


def together(
    figure: str,
    *agents: Agent,
    pool: Iterable[str] = (),
    tellers: Sequence[tuple[str, range]] = (("worker-1", range(MINUTES)),),
) -> Series:
    """What workers tell of a figure of several agents."""
    return told(BY_NAME[figure], agents, pool, tellers)


def cases(subject: Subject) -> list[Case]:
    """The claims about one alert."""
    bad = {subject.goes_bad: BAD[subject.goes_bad]}
    of = subject.figure
    troubled = agent(1, bad)
    fires = {BEGINS - 1: (), BEGINS + subject.minutes: subject.fired, ENDS: subject.fired, OVER: ()}
    found = [
        Case("fires for the one bad agent among three, and resolves when it is over",
             together(of, troubled, *(agent(seed, name=f"b{seed}") for seed in (2, 3))), fires),
        Case("is silent about a new agent", together(of, agent(7, bad, since=BEGINS - 40)), SILENT),
    ]  # fmt: skip
    if subject.labelled:
        missing = replace(troubled, unlabelled=range(BEGINS - 60, OVER))
        found.append(Case("is silent while labels are missing, and only what needs none is settled",
                          together(of, missing), SILENT))  # fmt: skip
    return found


def of_sizes() -> list[Case]:
    """A shift that is not large does not page."""
    fired = [{"agent": "a", "severity": "warning"}]
    return [
        Case("is a warning if SRR is between 1.45 and 1.9 times the usual share",
             together("srr", agent(1, SLIGHT, rate=2.0)), {BEGINS + 15: fired, OVER: ()}),
    ]  # fmt: skip


def of_tellers() -> list[Case]:
    """Whoever has partition 0 tells, which moves from worker to worker."""
    troubled, fires = agent(1, {"srr": BAD["srr"]}), SUBJECTS[0].fired
    soon = BEGINS + SUBJECTS[0].minutes
    both = (("worker-1", range(soon + 2)), ("worker-2", range(soon, MINUTES)))
    gap = (("worker-1", range(soon + 2)), ("worker-2", range(soon + 7, MINUTES)))
    restart = (("worker-1", range(BEGINS - 1)), ("worker-1b", range(BEGINS + 2, MINUTES)))
    nobody = (("worker-1", range(BEGINS)),)
    return [
        Case("is one alert while two workers tell of the agent",
             together("srr", troubled, tellers=both), dict.fromkeys(range(soon, soon + 4), fires)),
        Case("goes on while no worker tells for some minutes",
             together("srr", troubled, tellers=gap), dict.fromkeys(range(soon, ENDS), fires)),
        Case("fires as soon for an agent whose worker has restarted",
             together("srr", troubled, tellers=restart), {soon: fires}),
        Case("is silent about what nobody tells", together("srr", troubled, tellers=nobody),
             SILENT),
    ]  # fmt: skip


def of_names() -> list[Case]:
    """Where counts are by release."""
    releases = (
        agent(1, {"srr": BAD["srr"]}, label=("release", "v2")), agent(2, label=("release", "v1")),
    )  # fmt: skip
    fired = [{"release": "v2", "severity": severity} for severity in ("critical", "warning")]
    return [
        Case("names the release, where counts are by release", together("srr", *releases),
             {BEGINS - 1: (), BEGINS + 10: fired}),
    ]  # fmt: skip


def of_pools() -> list[Case]:
    """Quiet agents that share an index."""
    members = {"a": 21, "b": 22, "c": 24, "d": 26, "e": 34}
    agents = [agent(seed, {"srr": 0.42}, one, 0.7) for one, seed in members.items()]
    alone = agent(30, name="alone", rate=0.7)
    minute = BEGINS + 10
    fired = [{"agent": one, "severity": "warning"} for one in members]
    return [
        Case("fires for all agents of a pool, and for no other",
             together("srr", *agents, alone, pool=members), {BEGINS - 1: (), minute: fired}),
        Case("is silent about each of them without the pool", together("srr", *agents, alone),
             {minute: ()}),
    ]  # fmt: skip


def emptied(minutes: int, name: str) -> Agent:
    """An agent with a search a minute, and many that find nothing in some minutes."""
    searches = np.ones(MINUTES)
    searches[BEGINS : BEGINS + minutes] = 50
    results = 10 * searches
    results[BEGINS : BEGINS + minutes] = 0
    return Agent({"searches": searches, "results": results}, label=("agent", name))


def of_turns() -> list[Case]:
    """What a turn may spoil, which is two minutes, does not fire; a third minute does."""
    silent = dict.fromkeys(range(BEGINS - 1, BEGINS + 12), ())
    fired = [{"agent": one, "severity": level} for level in ("critical", "warning") for one in "ab"]
    return [
        Case("is silent about two minutes in which nothing was found",
             together("results", emptied(2, "a")), silent),
        Case("is silent if two agents of a pool found nothing in the same two minutes",
             together("results", emptied(2, "a"), emptied(2, "b"), pool="ab"), silent),
        Case("fires from the third minute on",
             together("results", emptied(3, "a"), emptied(3, "b"), pool="ab"),
             {BEGINS + 1: (), BEGINS + 3: fired}),
    ]  # fmt: skip


def of_rerankers() -> list[Case]:
    """Agents whose reranker was bad from its first day: only the order before it counts."""
    minutes = 60

    def new(*ratios: tuple[int, float], searches: float = 700.0, name: str = "a") -> Series:
        of = {"agent": name, "window": "1h"}
        shown = [(n, ratio * 0.7e9 * searches) for n, ratio in ratios]
        before = [(n, 0.7e9 * searches) for n, _ in ratios]
        return (
            gauge("streammetrics_window_rerank_ndcg_sum", *shown, order="shown", **of)
            | gauge("streammetrics_window_rerank_ndcg_sum", *before, order="baseline", **of)
            | gauge("streammetrics_window_rerank_ndcg_count",
                    *[(n, searches) for n, _ in ratios], **of)
        )  # fmt: skip

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


CASES: Final = {subject.alert: cases(subject) for subject in SUBJECTS}
CASES["SRRSpike"] += [*of_sizes(), *of_names(), *of_tellers(), *of_pools()]
CASES["StreamMetricsResultsDrop"] += of_turns()
CASES["StreamMetricsRerankingWorse"] += of_rerankers()
