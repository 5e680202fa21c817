"""Cases of the alert about documents without a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.rules.cases import GONE, QUIET_MINUTES, Case, Series, gauge, wobbling

BAD_MINUTES: Final = 20
AFTER_MINUTES: Final = 30
END: Final = QUIET_MINUTES + BAD_MINUTES + AFTER_MINUTES - 1
HEALTHY, BAD, NOISE = 0.9, 0.4, 0.04
Level = tuple[int, "float | None", float]  # minutes, share with a label, documents

DOCUMENTS: Final = {"5m": 1_500.0, "1h": 18_000.0}
FEW: Final = {"5m": 100.0, "1h": 190.0}
SILENT: Final = dict.fromkeys(range(QUIET_MINUTES, END, 5), ())
INCIDENT: Final = (QUIET_MINUTES, HEALTHY), (BAD_MINUTES, BAD), (AFTER_MINUTES, HEALTHY)
FIRED: Final = [{"agent": "a", "severity": "warning"}]


def labelled(levels: Sequence[Level], **labels: str) -> Series:
    """Documents and how many of them have a label, in one window."""
    parts = [(n, None if share is None else share * total) for n, share, total in levels]
    whole = [(n, GONE if share is None else total) for n, share, total in levels]
    return gauge("streammetrics_window_labelled_results", *parts, **labels) | gauge(
        "streammetrics_window_unique_results", *whole, **labels
    )


def agent(
    name: str,
    *shares: tuple[int, float | None],
    documents: Mapping[str, float] = DOCUMENTS,
    **labels: str,
) -> Series:
    """An agent whose share of documents with a label goes through ``shares``."""
    made: Series = {}
    for window, total in documents.items():
        levels = [(n, share, total) for n, share in shares]
        made |= labelled(levels, agent=name, window=window, **labels)
    return made


def cases() -> list[Case]:
    """The claims about the alert."""
    rest = BAD_MINUTES + AFTER_MINUTES
    early, over = QUIET_MINUTES + 4, QUIET_MINUTES + BAD_MINUTES + 17
    other = "worker-2:9464"
    few_labels, all_labels = (20, 0.4, 15_000.0), (20, 1.0, 300.0)
    levels: Sequence[Level] = [few_labels, all_labels, (QUIET_MINUTES - 20, 0.4, 1_500.0)]
    return [
        Case("fires within four minutes for the one agent among many, and resolves",
             {series: values for name in "bcd"
              for series, values in agent(name, (END, HEALTHY)).items()} | agent("a", *INCIDENT),
             {QUIET_MINUTES - 1: (), early: FIRED, over - 18: FIRED, over: (), END: ()}),
        Case("is silent on noise", agent("a", *wobbling(END, HEALTHY, NOISE)), SILENT),
        Case("is silent about a few documents", agent("a", *INCIDENT, documents=FEW), SILENT),
        Case("is silent while a worker restarts",
             agent("a", (QUIET_MINUTES, HEALTHY), (2, GONE), (rest, HEALTHY)), SILENT),
        Case("is silent on a deploy, when another worker takes the sums over",
             agent("a", (QUIET_MINUTES, HEALTHY), (rest, GONE))
             | agent("a", (QUIET_MINUTES + 1, GONE), (rest - 1, HEALTHY), instance=other), SILENT),
        Case("adds up what two workers hold of an agent",
             agent("a", *INCIDENT) | agent("a", *INCIDENT, instance=other),
             {early: FIRED, over: ()}),
        Case("is silent where quiet minutes had many labels, and most documents never had",
             labelled(levels, agent="a", window="5m"),
             dict.fromkeys(range(QUIET_MINUTES - 5, QUIET_MINUTES + 20, 5), ())),
    ]  # fmt: skip


CASES: Final = {"StreamMetricsJudgedShareLow": cases()}
