"""The thresholds of the alerts, the page and the dashboards. Ratios have no unit."""

from __future__ import annotations

from typing import Final

# The usual value is that of the last day without its last hour, which excludes a new incident.
BASELINE, RECENT = "24h", "1h"

# SRR, of a short and a long window together.
SRR_WINDOWS: Final = (("1m", "5m"), ("5m", "10m"), ("5m", "30m"))
SRR_WARNING, SRR_CRITICAL = 0.25, 0.4
SRR_OF_USUAL: Final = 1.5

# Results by search, of what is usual.
RESULTS_DROPS: Final = (("5m", 0.5), ("10m", 0.5), ("30m", 0.5))

# SRE and gain: window, share of the usual value, and the window whose labels must have arrived.
DROPS: Final = (("5m", 0.8, "5m"), ("10m", 0.8, "5m"), ("30m", 0.85, "1h"))
# With fewer labels, settled iterations do not represent the others. Of the share of the last day,
# and of the usual share so soon after the search, below which an alert of its own fires.
LABELLED_OF_DAY: Final = 0.4
JUDGED_OF_USUAL: Final = 0.7
COVERED: Final = "1h"  # the window of the page's rule on missing labels

MISSED: Final = {"5m": 0.2, "10m": 0.2, "1h": 0.1}  # of labelled gate decisions
MISSED_OF_USUAL: Final = 1.5
ROUTING_DROP: Final = {"5m": 0.1, "10m": 0.1, "1h": 0.05}  # below what is usual
RERANKING: Final = 1.0  # of the NDCG before, in 5m and 10m
RERANKING_DROP: Final = 0.05  # below what is usual, in 1h

# The minimum number of items to judge a ratio, in its own window and in the baseline.
RESULTS, USUAL_RESULTS = 200, 1_000
ITERATIONS, USUAL_ITERATIONS = 20, 100
DECISIONS, USUAL_DECISIONS = 5, 100
ROUTES, USUAL_ROUTES = 10, 100
SEARCHES, USUAL_SEARCHES = 20, 100
RERANKED, USUAL_RERANKED = 10, 100
EVEN_RERANKED: Final = 30  # where RERANKING stands for what is usual, in 1h

DRIFT, DRIFT_YESTERDAY = 1.2, 1.1  # SRR of a day, of that of the week before

LAG_SECONDS, LAG_GROWS_SECONDS = 120, 180  # so much, and more than so long ago
LAG_LONG_SECONDS, LAG_STAYS_SECONDS, LAG_STAYS = 900, 600, 0.95  # or this share of it
DEAD_LETTER_SHARE: Final = 0.02
DEAD_LETTER_SECONDS: Final = 600
DEAD_LETTER_RECORDS: Final = 100  # read in that time
MEMORY_SHARE: Final = 0.8
GAP_SECONDS: Final = 900
SILENT_SECONDS: Final = 180  # without progress
ORPHAN_SHARE, ORPHAN_LABELS = 0.1, 100  # labels of an hour that wait, of at least so many
REFUSED_SHARE, LATE_SHARE = 0.05, 0.01  # traces that the bridge refuses, spans that come too late
