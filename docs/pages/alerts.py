"""``docs/reference/alerts.md`` and the heads of the runbooks, from the table of alerts."""

from __future__ import annotations

from typing import Final

from docs.pages import page
from stream_metrics.core.alerts.alert import Alert
from stream_metrics.core.alerts.table import ALERTS

_INTRO: Final = """\
# All alerts

A critical alert pages somebody, a warning is a message for working hours. Each alert links its
runbook. [Alerts](../guides/alerts.md) says how to install and change them.
"""
_BODY: Final = "## What it means\n"


def alerts_page() -> str:
    """The page with all alerts."""
    head = ["| alert | severity | fires when |", "|---|---|---|"]
    rows = [
        f"| [{alert.name}](../runbooks/{alert.name}.md) | {alert.severity} | {alert.fires} |"
        for alert in ALERTS
    ]
    return page(_INTRO, *head, *rows, "")


def runbook(alert: Alert, text: str) -> str:
    """The runbook with a head that says when the alert fires; what follows is written by hand."""
    _, heading, body = text.partition(_BODY)
    head = f"# {alert.name}\n\nFires when {alert.fires}.\n\nSeverity: {alert.severity}.\n\n"
    return f"{head}{heading}{body}"
