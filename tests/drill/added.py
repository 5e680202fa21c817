"""What the rules about loops add: how soon incidents are called with them and without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tests.drill.bands import BANDS, in_band, share_within
from tests.drill.gather import ALERT_OF
from tests.drill.plan import KINDS
from tests.drill.run import Drill
from tests.drill.score import Caught, after, caught, spread

NEW: Final = frozenset({ALERT_OF["repeated_searches"], ALERT_OF["empty_searches"]})
OTHERS: Final = frozenset(ALERT_OF.values()) - NEW


def by_any(drills: Sequence[Drill], alerts: frozenset[str]) -> list[Caught]:
    """Incidents that the rules about loops are meant for, as caught by the first of some alerts.

    An alert that another alert's incident raises by chance counts, as it would for its reader.
    """
    found = []
    for drill in drills:
        for one in caught(drill):
            if one.kind.alert in NEW:
                times = (after(drill.firings, alert, one.incident) for alert in alerts)
                soonest = min((time for time in times if time is not None), default=None)
                found.append(replace(one, minutes=soonest))
    return found


def added_table(drills: Sequence[Drill]) -> Iterator[str]:
    """The rows of the table: by incident and traffic, without these rules and with them."""
    yield (
        "| incident | turns in the first ten minutes | without: in time | minutes, median (90%) | "
        "with: in time | minutes, median (90%) |"
    )
    yield "|---|---|---|---|---|---|"
    without, both = by_any(drills, OTHERS), by_any(drills, OTHERS | NEW)
    for kind in (kind for kind in KINDS if kind.alert in NEW):
        of_kind = [[one for one in of if one.kind == kind and one.real] for of in (without, both)]
        if not of_kind[0]:
            continue
        for band in BANDS:
            yield _row(kind.says, str(band), [in_band(of, band) for of in of_kind])
        yield _row(kind.says, "all", of_kind)


def _row(says: str, turns: str, found: Sequence[Sequence[Caught]]) -> str:
    cells = [f"{share_within(of)} | {spread([one.minutes for one in of])}" for of in found]
    return f"| {says} | {turns} | {' | '.join(cells)} |"
