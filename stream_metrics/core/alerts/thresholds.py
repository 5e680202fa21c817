"""The thresholds of the alerts, the page and the dashboards. Ratios have no unit."""

from __future__ import annotations

from typing import Final

# The usual value is that of the last day without its last hour, which excludes a new incident.
BASELINE, RECENT = "24h", "1h"

# Above these, the page points out an agent that has no usual value yet.
SRR_HIGH: Final = 0.4
MISSED_HIGH: Final = 0.2  # of labelled gate decisions
DECISIONS: Final = 5  # to say so

# With fewer labels, settled iterations do not represent the others. Of the share of the last day,
# and of the usual share so soon after the search, below which an alert of its own fires.
LABELLED_OF_DAY: Final = 0.4
JUDGED_OF_USUAL: Final = 0.7
COVERED: Final = "1h"  # the window of the page's rule on missing labels

RERANKING: Final = 1.0  # of the NDCG before; below, reranking does harm
RERANKED_SEARCHES: Final = 30  # labelled ones in an hour, to tell that without a usual value

RESULTS, USUAL_RESULTS = 200, 1_000  # to judge a share of documents, and to know its usual value

DRIFT, DRIFT_YESTERDAY = 1.2, 1.1  # SRR of a day, of that of the week before

LAG_SECONDS, LAG_GROWS_SECONDS = 120, 180  # so much, and more than so long ago
LAG_LONG_SECONDS, LAG_STAYS_SECONDS, LAG_STAYS = 900, 600, 0.95  # or this share of it
DEAD_LETTER_SHARE: Final = 0.02
DEAD_LETTER_SECONDS: Final = 600
DEAD_LETTER_RECORDS: Final = 100  # read in that time
MEMORY_SHARE: Final = 0.8
GAP_SECONDS: Final = 900
SILENT_SECONDS: Final = 180  # without progress
EVIDENCE_SECONDS: Final = 600  # since the last minute for which evidence is told
ORPHAN_SHARE, ORPHAN_LABELS = 0.1, 100  # labels of an hour that wait, of at least so many
REFUSED_SHARE, LATE_SHARE = 0.05, 0.01  # traces that the bridge refuses, spans that come too late
JUDGE_LAG_SECONDS: Final = 900  # estimates are of 24 hours or more
