"""The dashboards, one module each."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.bridge import BRIDGE
from deploy.dashboards.boards.decisions import DECISIONS
from deploy.dashboards.boards.deduplication import DEDUPLICATION
from deploy.dashboards.boards.iterations import ITERATIONS
from deploy.dashboards.boards.pipeline import PIPELINE
from deploy.dashboards.boards.quality import QUALITY

BOARDS: Final = (QUALITY, ITERATIONS, DECISIONS, DEDUPLICATION, PIPELINE, BRIDGE)
