"""The rules on a bridge in the process of a page, and that somebody is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_metrics.live.notify.episodes import State
from stream_metrics.live.page.bridge_rules import MAX_NAMED, RecentTraces, behind
from stream_metrics.live.page.notices import Charges
from stream_metrics.live.page.operations import History, OperationsSample
from stream_metrics.live.page.worker_rules import Worker
from tests.helpers import wait_until
from tests.unit.test_serve import working

NOBODY = Worker(OperationsSample(0), History(), {})


def recent(*closed: tuple[str, str], clock: list[float] | None = None) -> RecentTraces:
    """What a bridge did with some traces, each of an agent, at the only time of a clock."""
    times = [0.0] if clock is None else clock
    made = RecentTraces(lambda: times[-1])
    for agent, outcome in closed:
        made.trace_closed(agent, outcome)
    return made


@pytest.mark.parametrize(
    ("refused", "level"), [(0, "ok"), (5, "ok"), (6, "warning")], ids=["none", "few", "many"]
)
def test_more_than_few_refused_traces_of_any_agent_are_a_fault(refused: int, level: str) -> None:
    """However many traces of others are told."""
    told = [("a", "told")] * (100 - refused) + [("b", "told")] * 10_000

    assert recent(*told, *[("a", "refused")] * refused).of_refusals(NOBODY).level == level


def test_a_fault_of_traces_ends_once_it_is_mended() -> None:
    """After as long as the alert goes back: what was refused since the start does not count."""
    clock = [0.0]
    made = recent(("a", "refused"), clock=clock)
    made.refused("a", "no_identity", 2)
    first = made.of_refusals(NOBODY)
    clock.append(15 * 60.0)

    assert (first.level, first.why.partition("; ")[2]) == (
        "warning",
        "refused: no_identity of a 2 times",
    )
    assert made.of_refusals(NOBODY).level == "none"
    made.trace_closed("a", "told")
    assert made.of_refusals(NOBODY).level == "ok"


def test_spans_that_come_too_late_are_a_fault() -> None:
    """From one in a hundred on, also where no trace is complete."""
    made = recent()
    made.spans(100, 1)
    before = made.of_refusals(NOBODY)
    made.spans(0, 1)

    assert before.level == "ok"
    assert made.of_refusals(NOBODY).level == "warning"
    assert "2 of 100 spans" in made.of_refusals(NOBODY).why


def test_no_more_refusals_are_named_than_people_read() -> None:
    """The most frequent ones come first, and the others are counted."""
    made = recent()
    for number in range(MAX_NAMED + 2):
        made.refused(f"agent-{number}", "cycle", number + 1)

    why = made.of_refusals(NOBODY).why

    assert f"refused: cycle of agent-{MAX_NAMED + 1} {MAX_NAMED + 2} times" in why
    assert why.endswith("2 more")


def test_an_instrumentation_has_to_be_chosen() -> None:
    """Where two record the same, or a setting leaves out all of an agent."""
    made = recent(("b", "told"))
    for agent in ("b", "c"):
        made.refused(agent, "left_out", 1)
    left_out = made.of_scopes(NOBODY)
    made.refused("a", "two_scopes", 1)

    assert recent().of_scopes(NOBODY).level == "ok"
    assert (left_out.level, left_out.why) == ("warning", "otlp.scopes leaves out all of c")
    assert "two instrumentations record the searches of a" in made.of_scopes(NOBODY).why


def test_traces_that_wait_for_minutes_are_behind() -> None:
    """How many wait is not known at first."""
    assert [behind(at).level for at in (None, 120.0, 121.0)] == ["none", "ok", "critical"]


async def test_somebody_is_told_of_traces_that_are_refused(tmp_path: Path) -> None:
    """By the process that refuses them, for as long as the alert's rule waits."""
    async with working(tmp_path) as (process, _, _):
        await wait_until(lambda: process.health.ready, 30, "it does not read")
        process.traces.page.trace_closed("support", "refused")
        board = process._board  # noqa: SLF001
        charges = Charges(board.inputs.rules)
        found, looked = charges.of_worker(await board.judged(agents=False), "here:9464")

    assert {"traces_refused", "traces_scopes", "traces_behind"} <= looked
    states = {one.key.rule: one.state for one in found}
    assert states["traces_refused"] == State.FAULT
    assert states["traces_scopes"] == State.FINE
    assert charges.timing("traces_refused", "warning").wait == 300
