"""What arrives in each minute of the log, as a worker's state has it for evidence.

A change counts in the minute in which its record was written, however late that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from stream_metrics.core.alerts.arrivals import BILLIONTHS, COUNTS, counts_of
from tests.drill.library import Numbers
from tests.drill.rows import Changes
from tests.drill.sums import added, minute_of
from tests.drill.world import OF_DELIVERY, Agent, Incident, Libraries, Placed, place

LABELS: Final = {"labelled_results": "l", "unique_results": "u"}
"""What tells whether labels are missing, with its code."""

Placing = Callable[[Agent, Sequence[Incident], int, Generator, Libraries], Placed]
"""How the turns of an agent are placed in time; ``place``, or as it."""


def place_written(
    agent: Agent, incidents: Sequence[Incident], minutes: int, rng: Generator, shelf: Libraries,
    placing: Placing = place,
) -> tuple[Placed, Placed]:  # fmt: skip
    """The agent's turns as they are read, and as their records were written.

    Both are drawn from the same numbers. Labels that a labeller sends late are written late.
    """
    again = deepcopy(rng)
    placed = placing(agent, incidents, minutes, rng, shelf)
    sent = [incident for incident in incidents if incident.kind not in OF_DELIVERY]
    if len(sent) == len(incidents):
        return placed, placed
    return placed, placing(agent, sent, minutes, again, shelf)


def counted(changes: Changes, minutes: int) -> dict[str, Numbers]:
    """By count, what arrived less what was taken back, in the minute that ends at each scrape."""
    at = np.minimum(minute_of(changes.at_us), minutes)
    found: dict[str, Numbers] = {}
    for count, codes in _codes(changes.columns).items():
        places, deltas = changes.of(codes)
        found[count] = added(at[places], deltas, minutes)
    return found


def net(found: Mapping[str, Numbers], count: str) -> NDArray[np.float64]:
    """What a count gained by minute, in its unit."""
    return np.asarray(found[count] * (1e-9 if count in BILLIONTHS else 1.0), np.float64)


def _codes(known: Iterable[str]) -> dict[str, list[str]]:
    """The codes that add to each count."""
    found: dict[str, list[str]] = {count: [] for count in COUNTS}
    for code in known:
        for count in counts_of(code):
            found[count].append(code)
    return found | {count: [code] for count, code in LABELS.items()}
