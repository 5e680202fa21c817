"""All alerts: the one table from which rules, texts and the page's judgement come."""

from __future__ import annotations

from typing import Final

from stream_metrics.core.alerts.obstacles import WAITING
from stream_metrics.core.alerts.pipeline import PIPELINE
from stream_metrics.core.alerts.quality import LABELLING, QUALITY

ALERTS: Final = (*QUALITY, *LABELLING, *WAITING, *PIPELINE)
