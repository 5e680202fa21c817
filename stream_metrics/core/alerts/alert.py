"""What an alert is: its conditions, texts and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

CRITICAL: Final = "critical"
WARNING: Final = "warning"

WHO: Final = "{{ or $labels.agent $labels.release }}"
RUNBOOK: Final = "docs/runbooks/{alert}.md"  # in the repository
PERCENT: Final = "{{ $value | humanizePercentage }}"


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert of one severity: critical pages somebody, warning is a message for working hours.

    ``wait`` and ``keep`` are ``for`` and ``keep_firing_for``.
    """

    severity: str
    expr: str
    wait: str
    keep: str | None
    summary: str
    description: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert, with one rule for each severity.

    ``fires`` says for people when it fires. ``board`` is the dashboard to look at, ``label`` the
    label that becomes a variable of it.
    """

    name: str
    group: str
    severity: str
    fires: str
    board: str
    rules: tuple[Rule, ...]
    label: Literal["agent", "instance"] | None = None


@dataclass(frozen=True, slots=True)
class Links:
    """Templates of the links in alerts; ``{board}``, ``{label}`` and ``{alert}`` are filled in."""

    dashboard: str = "http://localhost:3000/d/stream-metrics-{board}"
    variable: str = "?var-{label}="
    runbook: str = RUNBOOK

    def of(self, alert: Alert) -> dict[str, str]:
        """The links of an alert, as annotations."""
        link = self.dashboard.replace("{board}", alert.board)
        if alert.label is not None:
            variable = self.variable.replace("{label}", alert.label)
            link += f"{variable}{{{{ $labels.{alert.label} | urlquery }}}}"
        return {
            "dashboard_url": link,
            "runbook_url": self.runbook.replace("{alert}", alert.name),
        }


LOCAL: Final = Links()  # Grafana on this machine, and runbooks in the repository
