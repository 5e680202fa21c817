"""Function calls per event, which do not depend on the machine; times are not checked.

A count is the same in every run and on every machine, so one slightly above the recorded count is a
change of the code. So is a much lower one: there is less work, or some is not done, or not counted.
If the change is intended, record the new counts: the failure prints the lines for ``RECORDED``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice
from typing import Final

from benchmarks.workload import as_records
from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, generate

MARGIN: Final = 0.03
"""The share by which a count may exceed the recorded one."""
LESS: Final = 0.2
"""The share by which it may be lower: more, as later versions of Python make fewer calls."""
SEED: Final = 8
CONVERSATIONS: Final = 700
HOUR_SECONDS: Final = 3_600
LATEST_SECONDS: Final = 5_400  # the last labels come at most this long after the first event

RECORDED: Final[Mapping[str, float]] = {
    "Python calls, with the kernel": 115.503,
    "C calls, with the kernel": 151.8915,
    "Python calls, in Python": 382.37,
    "C calls, in Python": 734.36,
    "Redis commands, going on": 0.739,
    "round trips, going on": 0.006,
    "bytes to Redis, going on": 1_228.788,
    "bytes from Redis, going on": 0.784,
    "Redis commands, taking over": 0.787,
    "round trips, taking over": 0.009,
    "bytes to Redis, taking over": 1_284.364,
    "bytes from Redis, taking over": 55.142,
    "state bytes a result": 108.433,
    "state bytes a further value": 17.125,
    "state bytes a label": 12.482,
}
"""Of a record, in batches that begin with 320 and grow to 500, but for state bytes.

Calls are those of Python 3.11; later ones make fewer. Commands are all that Redis runs, in scripts
too. A worker that goes on holds its conversations; one that takes over reads them from Redis.
"""


def records(count: int) -> list[Record]:
    """Seeded traffic that came to its end within the last hours, as state expires by record time.

    It begins with an hour, so that event times fall into buckets of windows as in every run.
    """
    start = (int(time.time()) - LATEST_SECONDS) // HOUR_SECONDS * HOUR_SECONDS
    profile = TrafficProfile(
        seed=SEED, conversations=CONVERSATIONS, start=start, duration_seconds=HOUR_SECONDS
    )
    sent = list(islice(generate(profile), count))
    assert len(sent) == count, "more conversations are needed"
    return as_records(sent)


def hold(found: Mapping[str, float], recorded: Mapping[str, float] = RECORDED) -> None:
    """Fail if any count has grown, or is much lower.

    Raises ``AssertionError`` that names the differences, their size and the remedy.
    """
    shares = {name: value / recorded[name] - 1 for name, value in found.items()}
    grown = [name for name, share in shares.items() if share > MARGIN]
    fewer = [name for name, share in shares.items() if share < -LESS]
    said = [
        f"{name}: {found[name]:,.2f}, which is {abs(shares[name]):.1%} "
        f"{'above' if shares[name] > 0 else 'below'} the recorded {recorded[name]:,.2f}"
        for name in (*grown, *fewer)
    ]
    assert not said, "\n".join(
        [
            f"an event is not as much work as it was ({MARGIN:.0%} more and {LESS:.0%} less are "
            "allowed):",
            *said,
            *(["If more is meant, say in the commit what it is good for."] if grown else []),
            *(["If less is done, see that all of it is done still, and counted."] if fewer else []),
            "Then record the new counts in tests/counts.py:",
            *(f'    "{name}": {found[name]:_.7g},' for name in (*grown, *fewer)),
        ]
    )
