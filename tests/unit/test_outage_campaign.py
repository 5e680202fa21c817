"""What the campaign of outages calls wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stream_metrics.core.alerts.obstacles import KAFKA, RIGHTS
from tests.outage_campaign import page, problems
from tests.services.outages import BRIDGE, BY_NAME, WORKER, Minute, Result

AWAY = Minute(
    1, True, {f"pending: {KAFKA} (kafka)": 3}, "Waiting for Kafka.", "waiting for Kafka",
    "unknown, since 12:00, when Kafka last told it",
    {"worker 1": "503 kafka", "worker 2": "503 kafka", "bridge": "503 kafka"},
    "waiting; The bridge is waiting", "complete up to 12:00", 0, 1_000.0,
    {"worker 1": 5, "worker 2": 5, "bridge": 5}, "waiting: brokers do not answer",
    {WORKER: [], BRIDGE: []},
)  # fmt: skip
BACK = replace(
    AWAY, number=2, away=False, alerts={}, pill="live", tile="0.0 s, 0 records left to read",
    readyz=dict.fromkeys(AWAY.readyz, "200"), bridge="reading and writing; Nothing was refused",
    read_up_to=1_120.0, lag={WORKER: [0.0], BRIDGE: [0.0]},
)  # fmt: skip
ALERT = f"{KAFKA} (kafka)"


def told(minute: Minute = AWAY, **found: Any) -> Result:
    """An outage of Kafka that went as it should, but for these."""
    of: dict[str, Any] = {
        "began": 1_000.0, "minutes": [minute, BACK], "fired": {ALERT: 150.0}, "cause": "no answer",
        "ready_after": 5.0, "resolved_after": 20.0, **found,
    }  # fmt: skip
    return Result("kafka", **of)


def test_an_outage_that_is_told_as_it_is_has_no_problem() -> None:
    """Its row on the page says that nothing was wrong."""
    assert problems(BY_NAME["kafka"], told()) == []
    assert "| after 5 s | in minute 1 | after 20 s | 0 | 0 |  | nothing |" in page(
        [told()], "a machine"
    )


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (told(fired={}), "fires not at all"),
        (told(fired={ALERT: 400.0}), "fires 400 s after the beginning"),
        (told(fired={ALERT: 150.0, f"{RIGHTS} (rights)": 160.0}), "other causes are alerted"),
        (told(cause=""), "no log has"),
        (told(ready_after=None), "ready not at all"),
        (told(minutes=[AWAY]), "an alert is still there"),
        (told(wrong=["windows.json differs"]), "windows.json differs"),
        (told(replace(AWAY, lag={WORKER: [0.0], BRIDGE: []})), "exports a lag of 0"),
        (told(replace(AWAY, pill="live")), "calls itself live"),
        (told(replace(AWAY, tile="0.0 s, 0 records left to read")), "shows a lag of 0.0 s"),
        (told(replace(AWAY, read_up_to=1_060.0)), "top says"),
        (told(replace(AWAY, readyz={**AWAY.readyz, "bridge": "200"})), "of bridge says 200"),
        (told(replace(AWAY, lines={"worker 1": 6_000})), "logs 6000 lines"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_what_misleads_somebody_on_call_is_a_problem(result: Result, said: str) -> None:
    """A missing or wrong alert, a value that is not known, and a flood of lines all are."""
    assert any(said in one for one in problems(BY_NAME["kafka"], result))
