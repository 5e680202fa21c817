"""What a rule of the page finds: a level, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stream_metrics.core.alerts.alert import CRITICAL, WARNING

OK: Final = "ok"
UNKNOWN: Final = "unknown"  # too little data
NONE: Final = "none"  # nothing to judge, such as for an agent that does not search now
# Of several findings the first of these is shown: an ok finding does not hide an unknown one.
LEVELS: Final = (CRITICAL, WARNING, UNKNOWN, OK, NONE)
FAULTS: Final = (CRITICAL, WARNING)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a rule for an agent (None: for the worker), with the reason.

    ``above`` means that a figure is above the rule's fixed threshold, but that it is not known
    whether this is unusual for the agent. ``since`` is the Unix time in seconds since when this is
    so, None if that is unknown or does not matter.
    """

    level: str
    why: str
    agent: str | None = None
    above: bool = False
    since: float | None = None


def percent_text(value: float) -> str:
    """A ratio as people say it.

    >>> percent_text(0.357)
    '36%'
    """
    return f"{value:.0%}"
