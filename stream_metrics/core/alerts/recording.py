"""The recording rules that alerts of windows ask for.

Window sums are gauges that are summed over workers; ``without`` keeps all other labels of a site,
such as job, namespace or cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from stream_metrics.core.alerts.windows import LABELLED, NAMED, RERANKED, SRR


class Record(NamedTuple):
    """A recording rule; ``labels`` are those that it adds."""

    name: str
    expr: str
    labels: Mapping[str, str] = MappingProxyType({})


_EVENTS: Final = "job:streammetrics_events:increase_5m"
LABELS_CAME: Final = f'sum without (type) ({_EVENTS}{{type="relevance_labels"}})'
SEARCHED: Final = f'sum without (type) ({_EVENTS}{{type="search_iteration"}})'
LABELS_USUAL: Final = "job:streammetrics_stretches_with_labels_per_stretches:ratio_1d"
BUSY: Final = 50  # searches in five minutes, among whose results some get labels
_LABELLED: Final = "agent:streammetrics_labelled_results:sum"
_AGES: Final = ("5m", "1h")


def window_records() -> Iterator[Record]:
    """Ratios and counts of windows, by agent or release."""
    for ratio in (SRR, RERANKED, LABELLED):
        yield from (Record(name, expr) for name, expr in ratio.records())
    for window in _AGES:
        yield Record(f"{_LABELLED}_{window}", LABELLED.part(window))
    yield Record(
        _EVENTS,
        "sum without (instance, pod, outcome) (increase(streammetrics_events_total[5m]))",
    )


def usual_records() -> Iterator[Record]:
    """Usual values that no window has: sums of all windows of the last day, as of an hour ago.

    The share of labelled documents in the last minutes depends on how long labels take, and
    therefore on the window. Each document counts the same in busy and in quiet minutes.
    """
    for window in _AGES:
        value, whole = LABELLED.value(window).text, LABELLED.number(window).text
        yield Record(
            LABELLED.usual(window).text,
            f"sum_over_time({_LABELLED}_{window}{{{NAMED}}}[1d] offset 1h)\n"
            f"  / (sum_over_time({whole}{{{NAMED}}}[1d] offset 1h) > 0)\n"
            f"  and count_over_time({value}{{{NAMED}}}[1d:5m] offset 1h) >= 6",
        )
    # Among a day's periods of five minutes with searches, the share in which a label arrived.
    busy = f"{SEARCHED} >= {BUSY}"
    yield Record(
        LABELS_USUAL,
        f"avg_over_time((\n  ({LABELS_CAME} > bool 0)\n  and {busy}\n)[1d:5m] offset 10m)\n"
        f"  and count_over_time(({busy})[1d:5m] offset 10m) >= 12",
    )
