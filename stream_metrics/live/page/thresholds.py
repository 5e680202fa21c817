"""The thresholds of the page and the dashboards, which are those of the alerts.

The alerts are in ``deploy/prometheus/alerts.rules.yml``; ``tests/services/test_page_alerts.py``
evaluates both with the same figures. Ratios have no unit.
"""

from __future__ import annotations

from typing import Final

# The usual value is that of the last day without its last hour, which excludes a new incident.
BASELINE, RECENT = "24h", "1h"

# SRR, of a short and a long window together.
SRR_WINDOWS: Final = (("1m", "5m"), ("5m", "30m"))
SRR_WARNING, SRR_CRITICAL = 0.25, 0.4
SRR_OF_USUAL: Final = 1.5

RESULTS_DROPS: Final = (("5m", 0.5), ("30m", 0.5))  # results by search, of what is usual

# SRE and gain: window, share of the usual value, and the window whose labels must have arrived.
DROPS: Final = (("5m", 0.8, "5m"), ("30m", 0.85, "1h"))
LABELLED_OF_USUAL: Final = 0.4  # with fewer labels, settled iterations do not represent the others
COVERED: Final = "1h"  # the window of the page's rule on missing labels

MISSED: Final = {"5m": 0.2, "1h": 0.1}  # of labelled gate decisions
MISSED_OF_USUAL: Final = 1.5
ROUTING_DROP: Final = {"5m": 0.1, "1h": 0.05}  # below what is usual
RERANKING: Final = 1.0  # of the NDCG before, in 5m
RERANKING_DROP: Final = 0.05  # below what is usual, in 1h

# The minimum number of items to judge a ratio, in its own window and in the baseline.
RESULTS, USUAL_RESULTS = 200, 1_000
ITERATIONS, USUAL_ITERATIONS = 20, 100
DECISIONS, USUAL_DECISIONS = 5, 100
ROUTES, USUAL_ROUTES = 10, 100
SEARCHES, USUAL_SEARCHES = 20, 100
RERANKED, USUAL_RERANKED = 10, 100
EVEN_RERANKED: Final = 30  # where RERANKING stands for what is usual, in 1h

LAG_SECONDS, LAG_GROWS_SECONDS = 120, 180  # so much, and more than so long ago
LAG_LONG_SECONDS, LAG_STAYS_SECONDS, LAG_STAYS = 900, 600, 0.95  # or this share of it
DEAD_LETTER_SHARE: Final = 0.02
DEAD_LETTER_SECONDS: Final = 600
DEAD_LETTER_RECORDS: Final = 100  # read in that time
MEMORY_SHARE: Final = 0.8
GAP_SECONDS: Final = 900
