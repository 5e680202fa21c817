"""Generates the parts of the Helm chart that come from elsewhere; a test compares them.

``python -m deploy.helm`` writes the definitions of ``settings``, ``secrets`` and ``files`` in
``values.schema.json``, from the settings themselves, and the alert rules as a PrometheusRule. The
dashboards are written by ``python -m deploy.dashboards``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

CHART: Final = Path(__file__).parent / "stream-metrics"
