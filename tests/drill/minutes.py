"""What arrives at a worker minute by minute, as it counts it for rules that gather evidence.

A change counts in the minute in which it arrives, and only if its record is younger than ten
minutes then: what comes late after a stall of the consumer is no evidence about now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from stream_metrics.core.alerts.arrivals import COUNTS, net_arrivals
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.windows import Names
from tests.drill.library import Numbers
from tests.drill.rows import Changes
from tests.drill.series import TARGET, Series
from tests.drill.sums import added, minute_of
from tests.drill.world import (
    MINUTE,
    OF_DELIVERY,
    SECOND,
    START_US,
    Agent,
    Incident,
    Libraries,
    Placed,
    place,
)

YOUNG_US: Final = 10 * MINUTE
BILLIONTH: Final = 1e-9
WAYS: Final = ("arrived", "withdrawn")

Ways = Mapping[str, Numbers]
"""What arrived and what was withdrawn, by minute."""


Placing = Callable[[Agent, Sequence[Incident], int, Generator, Libraries], Placed]
"""How the turns of an agent are placed in time; ``place``, or as it."""


def place_young(
    agent: Agent, incidents: Sequence[Incident], minutes: int, rng: Generator, shelf: Libraries,
    placing: Placing = place,
) -> tuple[Placed, Placed]:  # fmt: skip
    """The agent's turns, and those of their changes whose records are young when they arrive.

    Both are drawn from the same numbers. Without long stalls of delivery, a record is read soon
    after it is sent; labels that a labeller sends late are as young as any other record.
    """
    delivered = [
        incident
        for incident in incidents
        if incident.kind not in OF_DELIVERY or incident.end_us - incident.start_us < YOUNG_US
    ]
    again = deepcopy(rng)
    placed = placing(agent, incidents, minutes, rng, shelf)
    if len(delivered) == len(incidents):
        return placed, placed
    sent_us = placing(agent, delivered, minutes, again, shelf).at_us
    return placed, only(placed, placed.at_us - sent_us < YOUNG_US)


def only(placed: Placed, chosen: NDArray[np.bool_]) -> Placed:
    """The changes that are chosen."""
    return replace(
        placed, at_us=placed.at_us[chosen], about_us=placed.about_us[chosen],
        labels=placed.labels[chosen], deltas=placed.deltas[chosen],
    )  # fmt: skip


def counted(changes: Changes, minutes: int) -> dict[str, Ways]:
    """By count, what arrived and what was withdrawn in the minute that ends at each scrape."""
    at = np.minimum(minute_of(changes.at_us), minutes)
    found: dict[str, Ways] = {}
    for count, codes in _codes(changes.columns).items():
        places, deltas = changes.of(codes)
        at_places = at[places]
        found[count] = {
            way: added(at_places, np.maximum(0.0, sign * deltas), minutes)
            for way, sign in zip(WAYS, (1, -1), strict=True)
        }
    return found


def counters(agent: str, found: Mapping[str, Ways], resets: Sequence[int]) -> list[Series]:
    """The counters of a worker that begins at 0 in the minutes ``resets``."""
    return [
        Series(
            f"streammetrics_{way}_{count}_total",
            {**TARGET, "agent": agent},
            _since(gained, resets) * (BILLIONTH if count.startswith("rerank_ndcg") else 1),
        )
        for count, ways in found.items()
        for way, gained in ways.items()
    ]


def process_starts(minutes: int, resets: Sequence[int]) -> Series:
    """When the worker's process started, in seconds."""
    starts = np.array([0, *resets])
    latest = starts[np.searchsorted(starts, np.arange(minutes), side="right") - 1]
    return Series("process_start_time_seconds", TARGET, START_US // SECOND + 60 * latest)


def net(found: Mapping[str, Ways], count: str) -> NDArray[np.float64]:
    """What a count gained by minute, less what was withdrawn."""
    arrived, withdrawn = (found[count][way] for way in WAYS)
    scale = BILLIONTH if count.startswith("rerank_ndcg") else 1.0
    return np.asarray((arrived - withdrawn) * scale, np.float64)


def _codes(known: Iterable[str]) -> dict[str, list[str]]:
    """The codes that add to each count."""
    names = Names(frozenset({""}), frozenset())
    found: dict[str, list[str]] = {count: [] for count in COUNTS}
    for code in known:
        for count in net_arrivals([(1, Cell(0, "", {code: 1}))], names).get("", {}):
            found[count].append(code)
    return found


def _since(gained: Numbers, resets: Sequence[int]) -> Numbers:
    """Running totals; what comes in the minute of a reset is the first that the new one has."""
    total = np.cumsum(gained)
    for reset in sorted(resets):
        total[reset:] -= total[reset - 1]
    return np.asarray(total)
