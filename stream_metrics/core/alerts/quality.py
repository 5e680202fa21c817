"""The alerts about what agents find, and about its labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stream_metrics.core.alerts.alert import CRITICAL, PERCENT, WARNING, WHO, Alert, Rule
from stream_metrics.core.alerts.bounds import share_below, spread_below
from stream_metrics.core.alerts.evidence import LARGE, shifted
from stream_metrics.core.alerts.figures import BY_NAME
from stream_metrics.core.alerts.promql import Promql
from stream_metrics.core.alerts.recording import BUSY, LABELS_CAME, LABELS_USUAL, SEARCHED
from stream_metrics.core.alerts.thresholds import (
    DRIFT,
    DRIFT_YESTERDAY,
    JUDGED_OF_USUAL,
    ORPHAN_LABELS,
    ORPHAN_SHARE,
    RERANKED_SEARCHES,
    RERANKING,
    RESULTS,
)
from stream_metrics.core.alerts.windows import LABELLED, NAMED, RERANKED, SRR, indented

_QUALITY: Final = "quality"
_SHIFTED: Final = (
    " This, or the same figure of its pool, has shifted from the last day by more than chance "
    "explains."
)
_LABELLING: Final = "labelling"
_DAY: Final = SRR.value("24h").text
_WEEK_BEFORE: Final = f"{_DAY}[7d:1h] offset 2d"


def _hour(counter: str) -> str:
    return f"sum without (instance, pod) (increase(streammetrics_labels_{counter}[1h]))"


# The labels of a turn arrive together: the variance is about 20 times that of independent results.
# Over an hour, the variance is larger still for agents with few turns: with 4.5 deviations, an
# agent had 0.17 false alarms a month.
_FEW_LABELS: Final = share_below(6, 20, least=0.05)


def _judged(window: str) -> str:
    value, usual = LABELLED.value(window), LABELLED.usual(window)
    count = LABELLED.number(window)
    whole = (
        (value < JUDGED_OF_USUAL * usual) & _FEW_LABELS(value, usual, count) & (count >= RESULTS)
    )
    return f"({indented(whole.text)}\n)"


def _shifts(
    name: str, figure: str, what: str, summary: str, description: str, *, board: str = "quality",
    more: str = "", fires: str = "",
) -> Alert:  # fmt: skip
    """An alert about the evidence that a figure has shifted.

    ``what`` says what has happened, ``description`` what the figure is. The alert also fires by
    the condition ``more``, of which ``fires`` tells.
    """
    of = BY_NAME[figure]
    small, large = map(of.beyond, of.shifts)
    expr = shifted(figure)
    warning = Rule(
        WARNING,
        f"{expr}\n{more}" if more else expr,
        "0s",
        "10m",
        summary,
        description if more else description + _SHIFTED,
    )
    rules: tuple[Rule, ...] = (warning,)
    severity = WARNING
    if of.pages:
        rules = (replace(warning, severity=CRITICAL, expr=shifted(figure, LARGE)), warning)
        severity = f"critical if the figure is {large}, else warning"
    fires = (
        f"{what} than on its last day, by more than chance explains; evidence of that grows while "
        f"the figure is {small}{fires}"
    )
    return Alert(name, _QUALITY, severity, fires, board, rules, "agent")


# A reranker that was bad from its first day has no usual value to be compared with. For one search,
# the ratio of the two NDCGs has a standard deviation of 0.25.
_NEVER_BETTER: Final = spread_below(4, 0.25)(
    RERANKED.value("1h"), RERANKING, RERANKED.number("1h")
) & (Promql(f"{RERANKED.number('1h').text}{{{NAMED}}}") >= RERANKED_SEARCHES)

QUALITY: Final = (
    _shifts(
        "SRRSpike", "srr", "more of an agent's results repeat what the turn had already",
        f"{WHO} finds more of what it has already than usual",
        f"{PERCENT} of the latest results of {WHO} repeat what the turn had already.",
    ),
    # A usual value of one day follows a slow drift. Compares today and yesterday, each a whole day,
    # with the week before; a bad hour affects a whole day for one day only.
    Alert(
        "StreamMetricsRedundancyDrift", _QUALITY, WARNING,
        f"an agent's SRR of the last day is over {DRIFT:g} times that of the week before, and was "
        "already rising the day before",
        "quality",
        (
            Rule(
                WARNING,
                f"({_DAY} > {DRIFT:g} * avg_over_time({_WEEK_BEFORE}))\n"
                f"and ({_DAY} offset 1d > {DRIFT_YESTERDAY:g} * avg_over_time({_WEEK_BEFORE}))\n"
                f"and count_over_time({_WEEK_BEFORE}) >= 72\n"
                f"and {SRR.number('24h').text} >= 1000",
                "1h", "1h", f"{WHO} repeats itself more from day to day",
                f"{PERCENT} of the results of {WHO} in the last day repeat what the turn had "
                f"already: {DRIFT:g} times its week before, and it was on the way yesterday.",
            ),
        ),
        "agent",
    ),
    # Ratios of results do not show that results are missing: without results there are no SRR, SRE
    # or labels.
    _shifts(
        "StreamMetricsResultsDrop", "results", "an agent's searches return fewer results",
        f"Searches of {WHO} find less than they did, or nothing",
        f"The latest searches of {WHO} returned {{{{ $value | humanize }}}} results each.",
    ),
    # A gap of one route lowers results by that route's share, which may be too little to tell.
    _shifts(
        "StreamMetricsSearchesEmpty", "empty_searches",
        "more of an agent's searches return nothing",
        f"More searches of {WHO} find nothing",
        f"{PERCENT} of the latest searches of {WHO} returned nothing.",
    ),
    _shifts(
        "StreamMetricsSearchesRepeated", "repeated_searches",
        "more of an agent's searches repeat the query and the route of an earlier search of the "
        "turn",
        f"{WHO} asks again what it has asked",
        f"{PERCENT} of the latest searches of {WHO} with a query repeat one of their turn.",
    ),
    # Workers measure only turns that have as many iterations as alerts.runaway_iterations says.
    Alert(
        "StreamMetricsRunawayTurn", _QUALITY, CRITICAL,
        "a turn has `alerts.runaway_iterations` iterations or more, and goes on",
        "iterations",
        (
            Rule(
                CRITICAL, "max without (instance, pod) (streammetrics_runaway_turn_iterations) > 0",
                "0s", "2m", f"A turn of {WHO} runs away",
                f"A turn of {WHO} has {{{{ $value }}}} iterations and goes on. The page of any "
                "worker, and `stream-metrics top`, name its conversation.",
            ),
        ),
        "agent",
    ),
    _shifts(
        "StreamMetricsEfficiencyDrop", "sre",
        "fewer of an agent's labelled results are good and new",
        f"{WHO} finds little that is good and new",
        f"{PERCENT} of the latest labelled results of {WHO} are good and new.",
    ),
    _shifts(
        "StreamMetricsGainDrop", "gain", "an agent's labelled iterations gain less",
        f"An iteration of {WHO} brings less than usual",
        f"The latest labelled iterations of {WHO} gained {{{{ $value | humanize }}}} each.",
        board="iterations",
    ),
    _shifts(
        "StreamMetricsRetrievalMissed", "missed_searches",
        "more of an agent's labelled gate decisions skip a search that is needed",
        f"The gate of {WHO} skips searches that are needed",
        f"In {PERCENT} of the latest labelled decisions of {WHO} the gate skipped a search that "
        "was needed.",
        board="decisions",
    ),
    _shifts(
        "StreamMetricsRoutingAccuracyDrop", "wrong_routes",
        "more of an agent's labelled searches do not take the best route",
        f"The router of {WHO} takes the wrong route more often",
        f"{PERCENT} of the latest labelled searches of {WHO} did not take the best route.",
        board="decisions",
    ),
    _shifts(
        "StreamMetricsRerankingWorse", "reranking",
        "reranking betters the order of an agent's results less, or makes it worse",
        f"The reranker of {WHO} makes the order worse, or betters it less",
        f"The order that {WHO} shows has {PERCENT} of the NDCG of the order before reranking: less "
        "than on its last day, by more than chance explains, or below 100% for an hour.",
        more=f"or ({indented(_NEVER_BETTER.text)}\n)",
        fires="; also when reranking lowers NDCG for a whole hour, from "
        f"{RERANKED_SEARCHES} labelled searches on",
    ),
)  # fmt: skip

LABELLING: Final = (
    Alert(
        "StreamMetricsJudgedShareLow", _LABELLING, WARNING,
        f"of the documents found in 5m or 1h, the share with a label is below {JUDGED_OF_USUAL:g} "
        f"of what is usual so soon after the search, by more than chance explains; from {RESULTS} "
        "documents on",
        "quality",
        (
            Rule(
                WARNING, "\nor ".join(map(_judged, ("5m", "1h"))), "2m", "10m",
                f"Fewer documents of {WHO} have a label than usual",
                f"{PERCENT} of the documents that {WHO} found lately have a label, less than "
                f"{JUDGED_OF_USUAL:g} of what is usual at that age. SRE and gain rest on these.",
            ),
        ),
        "agent",
    ),
    # No label event in five minutes with searches, although on one of the last three days nearly
    # all such periods had one. Three days, so that the outage itself does not become the baseline.
    Alert(
        "StreamMetricsLabelsStopped", _LABELLING, CRITICAL,
        f"no label has arrived for five minutes, in which agents searched {BUSY} times or more",
        "pipeline",
        (
            Rule(
                CRITICAL,
                f"{LABELS_CAME} == 0\nand {SEARCHED} >= {BUSY}\n"
                f"and max_over_time({LABELS_USUAL}[3d]) > 0.95",
                "1m", "5m", "No labels come any more",
                "Agents search, and no label event has come for five minutes. SRE, gain, gate, "
                "routing and reranking stand still until labels come again.",
            ),
        ),
    ),
    Alert(
        "StreamMetricsOrphanLabels", _LABELLING, WARNING,
        f"over {ORPHAN_SHARE:.0%} of an hour's labels refer to a result that has not arrived",
        "pipeline",
        (
            Rule(
                WARNING,
                f"({_hour('waiting_total')}\n  - {_hour('found_total')}\n) / (\n"
                f"  {_hour('waiting_total')}\n  - {_hour('found_total')}\n"
                "  + sum without (instance, pod) "
                "(increase(streammetrics_label_delay_seconds_count[1h]))\n"
                f"  > {ORPHAN_LABELS}\n) > {ORPHAN_SHARE:g}",
                "15m", "10m", "Labels name results that nobody sent",
                f"{PERCENT} of the labels of the last hour wait for a result that has not come to "
                "the same partition.",
            ),
        ),
    ),
    Alert(
        "StreamMetricsTopicsKeyedDifferently", _LABELLING, WARNING,
        "the producers of two input topics use different partitioners",
        "pipeline",
        (
            Rule(
                WARNING,
                "max without (instance, pod) (streammetrics_topics_keyed_differently) == 1",
                "5m", "10m", "Input topics are keyed by different partitioners",
                "Producers place the keys of two input topics by different partitioners, so the "
                "labels of most conversations do not reach their searches. "
                "`stream-metrics check --topics` names them.",
            ),
        ),
    ),
)  # fmt: skip
