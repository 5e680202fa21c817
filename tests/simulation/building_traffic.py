"""What builds read and lead to: forget records in the traffic, and the outcome of one pass."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final

from stream_metrics.core.events.times import rfc3339
from stream_metrics.lab.traffic import TrafficRecord
from tests import oracle
from tests.simulation.system import traffic

FORGOTTEN: Final = 4  # number of conversations to forget, if any


@lru_cache
def forgets(seed: int) -> tuple[TrafficRecord, ...]:
    """Forget records of conversations with records in both halves of the traffic; later records of
    these conversations are forgotten, too."""
    records, half = traffic(seed), len(traffic(seed)) // 2
    before, after = (
        {r.key or b"" for r in part if r.valid} for part in (records[:half], records[half:])
    )
    at_ms = records[half].timestamp_ms
    found = []
    for key in sorted(before & after)[:FORGOTTEN]:
        event = {
            "schema_version": "1",
            "type": "forget",
            "event_id": f"forget-{key.decode()}",
            "occurred_at": rfc3339(1000 * records[-1].timestamp_ms),
            "conversation_id": key.decode(),
        }
        found.append(TrafficRecord("events", key, json.dumps(event).encode(), at_ms, valid=True))
    return tuple(found)


@lru_cache
def expected(
    seed: int, good_gain: int, keyed: bool, retained: bool
) -> tuple[dict[str, str], str, int]:
    """The outcome of one pass over the retained traffic without forgotten conversations: rows,
    windows, and their time."""
    read = traffic(seed)
    if retained:
        read = (*forgets(seed), *read[len(read) // 2 :])
    records = [oracle.Record(r.value, r.key, r.timestamp_ms) for r in read]
    outcome = oracle.evaluate(records, keyed=keyed, good_gain=good_gain)
    now_us = 1000 * traffic(seed)[-1].timestamp_ms
    rows = {str(json.loads(row)["conversation_id"]): row for row in outcome.rows}
    return rows, outcome.windows(now_us), now_us
