"""The conditions of alerts about the evidence that figures have shifted.

Workers compute evidence from the minutes of arrival (``core/alerts/shifts.py``). The one that owns
partition 0 exports it for the whole group, in units of the threshold.
"""

from __future__ import annotations

from typing import Final

SMALL: Final = "small"
LARGE: Final = "large"
SHIFTS: Final = (SMALL, LARGE)
LEAST_ACTIVE: Final = 30  # minutes with traffic in the usual day; without them nothing is judged
IDLE_LOSES: Final = 0.01  # of the evidence, in a minute without traffic or labels
LATELY: Final = (10, 30)  # minutes; the longer one where the shorter one had no traffic

LEVEL: Final = "streammetrics_evidence"
NOW: Final = "streammetrics_arrived_ratio"
TOLD: Final = "streammetrics_evidence_timestamp_seconds"


def shifted(figure: str, shift: str | None = None) -> str:
    """The condition that a figure has shifted, by the size of ``shift`` or by any.

    Its value is the ratio of what has arrived ``LATELY``; without traffic in that time, there is
    none. While partition 0 moves, two workers may tell of an agent.
    """
    size = "" if shift is None else f', shift="{shift}"'
    return (
        f'max without (instance, pod, figure) ({NOW}{{figure="{figure}"}})\n'
        "and max without (instance, pod, figure, direction, shift) (\n"
        f'  {LEVEL}{{figure="{figure}"{size}}}\n) > 1'
    )


def untold(seconds: int) -> str:
    """The condition that workers run on the state in force, but none has told evidence lately.

    While a backlog is read, what is told is old, but comes nearer.
    """
    told = f"max without (instance, pod) ({TOLD})"
    return (
        'max without (instance, pod, state) (streammetrics_generation{state="live"} > 0)\n'
        f"unless {told} > time() - {seconds}\n"
        f"unless {told} > max without (instance, pod) ({TOLD} offset 3m) + 180"
    )
