"""Where panels draw a line: as the alert rules have it, which a test compares.

The rules are ``deploy/prometheus/alerts.rules.yml``. Ratios have no unit.
"""

from __future__ import annotations

from typing import Final

SRR_WARNING, SRR_CRITICAL = 0.25, 0.4
MISSED_SEARCHES: Final = 0.2
DEAD_LETTER_SHARE: Final = 0.02
LAG_SECONDS: Final = 120
MEMORY_SHARE: Final = 0.8
RERANKING: Final = 1.0
