"""What is told of agents: whose evidence, of which figures, and when nothing."""

from __future__ import annotations

from stream_metrics.core.alerts.arrivals import counts_of_state
from stream_metrics.core.alerts.figures import BY_NAME
from stream_metrics.core.alerts.shifts import added, gathered, pooled
from stream_metrics.core.alerts.standing import Standing
from stream_metrics.core.engine.config import OTHER
from tests.drill import gather
from tests.unit.test_shifts import SHORT, START, found

SRR = BY_NAME["srr"]
NOW = START + SHORT - 1


def steady(worse: int) -> dict[int, dict[str, int]]:
    """An agent a tenth of whose results are duplicates, and in the last minutes so many of 20."""
    return {
        START + n: {"results": 20, "duplicate_results": 2 if n < SHORT - 4 else worse}
        for n in range(SHORT)
    }


def test_evidence_about_an_agent_by_itself_is_told_with_the_ratio_that_came_lately() -> None:
    """The alert shows the ratio, and fires by the evidence."""
    counts = steady(20)

    told = Standing(gather.IN_USE).at({"a": counts}, NOW)["a"]["srr"]

    assert told.evidence == found(SRR, counts, NOW)
    assert told.evidence is not None
    assert told.evidence[-1] > 1
    assert told.ratio == (4 * 20 + 6 * 2) / 200


def test_a_member_has_the_evidence_of_its_pool_if_that_is_more() -> None:
    """What is too little in each of them may be enough in all; others have nothing of it."""
    agents = {name: steady(6) for name in ("a", "b", "c")}
    nats = gather.IN_USE["srr"]
    together = gathered(SRR, pooled([added(SRR, agents[name], NOW, nats) for name in "ab"]))

    told = Standing(gather.IN_USE).at(agents, NOW, {"a": "index", "b": "index"})

    assert together is not None
    expected = tuple(each.value for each in together)
    assert told["a"]["srr"].evidence == told["b"]["srr"].evidence == expected
    assert max(told["c"]["srr"].evidence or ()) < expected[0]


def test_nothing_is_told_of_a_mixture_of_agents() -> None:
    """Agents without series of their own have no usual value."""
    assert Standing(gather.IN_USE).at({OTHER: steady(20)}, NOW) == {}


def test_nothing_is_told_of_an_agent_that_sleeps() -> None:
    """From half an hour without traffic on, however much evidence there was."""
    standing, counts = Standing(gather.IN_USE), steady(20)

    assert standing.at({"a": counts}, NOW + 29)["a"]["srr"].evidence is not None
    assert standing.at({"a": counts}, NOW + 30)["a"]["srr"].evidence is None


def test_figures_that_state_does_not_count_are_not_told() -> None:
    """Searches of state without figures of loops are neither empty nor not."""
    searches = {"searches": 4, "empty_searches": 1}
    counts = {minute: of | searches for minute, of in steady(2).items()}

    told = [
        set(Standing(gather.IN_USE).at({"a": counts}, NOW, counts=kept)["a"])
        for kept in map(counts_of_state, (True, False))
    ]

    assert "empty_searches" in told[0]
    assert "empty_searches" not in told[1]
    assert "srr" in told[1]
