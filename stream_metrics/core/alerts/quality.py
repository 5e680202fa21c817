"""The alerts about what agents find, and about its labels."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from stream_metrics.core.alerts.alert import CRITICAL, PERCENT, WARNING, WHO, Alert, Rule
from stream_metrics.core.alerts.recording import BUSY, LABELS_CAME, LABELS_USUAL, SEARCHED
from stream_metrics.core.alerts.thresholds import (
    DECISIONS,
    DRIFT,
    DRIFT_YESTERDAY,
    DROPS,
    EVEN_RERANKED,
    ITERATIONS,
    JUDGED_OF_USUAL,
    MISSED,
    MISSED_OF_USUAL,
    ORPHAN_LABELS,
    ORPHAN_SHARE,
    RERANKED,
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
)
from stream_metrics.core.alerts.windows import (
    CORRECT_ROUTES,
    GAIN,
    LABELLED,
    MISSED_SEARCHES,
    RERANKED_ORDER,
    RESULTS_PER_SEARCH,
    SRE,
    SRR,
    WindowRule,
    indented,
)

_QUALITY: Final = "quality"
_LABELLING: Final = "labelling"
_DAY: Final = SRR.ratio.value("24h").text
_WEEK_BEFORE: Final = f"{_DAY}[7d:1h] offset 2d"


def _limits(limits: Iterable[tuple[str, str]]) -> str:
    """Limits with their windows.

    >>> _limits([("5m", "20%"), ("10m", "20%"), ("1h", "10%")])
    '20% in 5m or 10m, or 10% in 1h'
    """
    return ", or ".join(
        f"{limit} in {' or '.join(window for window, _ in same)}"
        for limit, same in groupby(limits, lambda pair: pair[1])
    )


_DROP: Final = (
    f"below {_limits((window, f'{part:.0%}') for window, part, _ in DROPS)}, of that of its last "
    "day"
)


def _hour(counter: str) -> str:
    return f"sum without (instance, pod) (increase(streammetrics_labels_{counter}[1h]))"


def _judged(window: str) -> str:
    value, usual = LABELLED.value(window), LABELLED.usual(window)
    count = LABELLED.number(window)
    whole = (
        (value < JUDGED_OF_USUAL * usual)
        & LABELLED.bound(value, usual, count)
        & (count >= LABELLED.min_count)
    )
    return f"({indented(whole.text)}\n)"


def _of_windows(
    name: str, of: WindowRule, severity: str, fires: str, summary: str, description: str,
    *, board: str = "quality", wait: str = "1m",
) -> Alert:  # fmt: skip
    rule = Rule(severity, of.promql(severity), wait, "10m", summary, description)
    return Alert(name, _QUALITY, severity, fires, board, (rule,), "agent")


QUALITY: Final = (
    Alert(
        "SRRSpike", _QUALITY, f"critical from {SRR_CRITICAL:.0%}, warning from {SRR_WARNING:.0%}",
        f"over {SRR_WARNING:.0%} of an agent's results repeat what the turn had already, which is "
        f"over {SRR_OF_USUAL:g} times the share of its last day, in "
        f"{' or '.join(' and '.join(pair) for pair in SRR_WINDOWS)}; from {RESULTS} results on",
        "quality",
        tuple(
            Rule(
                severity, SRR.promql(severity), "1m", "10m", summary,
                f"{PERCENT} of the results of {WHO} repeat what the turn had already: over "
                f"{limit:.0%}, and over {SRR_OF_USUAL:g} times its own last day.",
            )
            for severity, limit, summary in (
                (CRITICAL, SRR_CRITICAL, f"{WHO} keeps finding what it has already"),
                (WARNING, SRR_WARNING, f"{WHO} finds more of what it has already than usual"),
            )
        ),
        "agent",
    ),
    # A baseline of one day follows a slow drift. Compares today and yesterday, each a whole day,
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
                f"and {SRR.ratio.number('24h').text} >= 1000",
                "1h", "1h", f"{WHO} repeats itself more from day to day",
                f"{PERCENT} of the results of {WHO} in the last day repeat what the turn had "
                f"already: {DRIFT:g} times its week before, and it was on the way yesterday.",
            ),
        ),
        "agent",
    ),
    # Ratios of results do not show that results are missing: without results there are no SRR, SRE
    # or labels.
    _of_windows(
        "StreamMetricsResultsDrop", RESULTS_PER_SEARCH, CRITICAL,
        f"an agent's searches return less than {RESULTS_DROPS[0][1]:.0%} of the results of its "
        f"last day in {' or '.join(window for window, _ in RESULTS_DROPS)}; from "
        f"{SEARCHES} searches on",
        f"Searches of {WHO} find half of what they did, or nothing",
        f"A search of {WHO} returns {{{{ $value | humanize }}}} results: less than "
        f"{RESULTS_DROPS[0][1]:.0%} of what is usual in its own last day, and less than chance "
        "explains.",
    ),
    _of_windows(
        "StreamMetricsEfficiencyDrop", SRE, CRITICAL,
        f"an agent's SRE is {_DROP}; from {RESULTS} labelled results on",
        f"{WHO} finds little that is good and new",
        f"{PERCENT} of the labelled results of {WHO} are good and new: less than usual in its own "
        "last day, and than chance explains.",
    ),
    _of_windows(
        "StreamMetricsGainDrop", GAIN, WARNING,
        f"an agent's good gain per iteration is {_DROP}; from {ITERATIONS} labelled iterations on",
        f"An iteration of {WHO} brings less than usual",
        f"A labelled iteration of {WHO} gains {{{{ $value | humanize }}}}: less than usual in its "
        "own last day, and than chance explains.",
        board="iterations",
    ),
    _of_windows(
        "StreamMetricsRetrievalMissed", MISSED_SEARCHES, CRITICAL,
        f"over {_limits((window, f'{limit:.0%}') for window, limit in MISSED.items())}, of an "
        "agent's labelled gate decisions skipped a search that was needed, which is over "
        f"{MISSED_OF_USUAL:g} times the share of its last day; from {DECISIONS} decisions on",
        f"The gate of {WHO} skips searches that are needed",
        f"In {PERCENT} of the labelled decisions of {WHO} the gate skipped a search that was "
        f"needed: over {MISSED['5m']:.0%} of some minutes, or {MISSED['1h']:.0%} of an hour, and "
        "more than chance makes of its own last day.",
        board="decisions",
    ),
    _of_windows(
        "StreamMetricsRoutingAccuracyDrop", CORRECT_ROUTES, WARNING,
        "the share of an agent's searches that took the best route is lower than on its last day "
        f"by {_limits((window, f'{100 * by:g} points') for window, by in ROUTING_DROP.items())}; "
        f"from {ROUTES} labelled searches on",
        f"The router of {WHO} takes the wrong route more often",
        f"{PERCENT} of the labelled searches of {WHO} took the best route: less than in its own "
        "last day, by more than chance explains.",
        board="decisions", wait="30s",
    ),
    _of_windows(
        "StreamMetricsRerankingWorse", RERANKED_ORDER, WARNING,
        "reranking lowers NDCG instead of raising it, for some minutes although it usually helps "
        "more, or for a whole hour; or over an hour it raises NDCG by "
        f"{100 * RERANKING_DROP:g} percentage points less than usual; from {RERANKED} labelled "
        f"searches on, or {EVEN_RERANKED} where nothing is usual",
        f"The reranker of {WHO} makes the order worse, or betters it less",
        f"The order that {WHO} shows has {PERCENT} of the NDCG of the order before reranking: less "
        "than in its own last day, or for an hour worse than no reranking.",
        wait="30s",
    ),
)  # fmt: skip

LABELLING: Final = (
    Alert(
        "StreamMetricsJudgedShareLow", _LABELLING, WARNING,
        f"of the documents found in 5m or 1h, the share with a label is below {JUDGED_OF_USUAL:g} "
        f"of what is usual so soon after the search; from {RESULTS} documents on",
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
