"""What a worker tells of agents is, at every minute, what the reference in numpy finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pytest

from stream_metrics.core.alerts.figures import BY_NAME, FIGURES, Figure
from stream_metrics.core.alerts.shifts import WATCHED, Added, gathered
from tests.drill import gather
from tests.drill.evidence import Reals
from tests.drill.told import evidence, steps, without_labels
from tests.rules.evidence import BAD, CALM, MINUTES, Agent, changed, traffic
from tests.unit.test_shifts import labels_missing, values

QUIET: Final = traffic(2, 0.5)
ILL: Final = changed(QUIET, slice(250, 320), traffic(22, 0.5, BAD))
ASLEEP: Final = {count: np.zeros(MINUTES) for count in QUIET}
FORGOTTEN: Final = {
    "results": 2_000, "duplicate_results": 380, "searches": 100, "settled_results": 2_000,
    "settled_good_results": 640, "settled_iterations": 90, "settled_gain": 500,
    "labelled_gate_decisions": 100, "missed_searches": 2, "labelled_routes": 100,
    "wrong_routes": 6, "rerank_ndcg_shown": 110, "rerank_ndcg_baseline": 100,
    "queried_searches": 100, "repeated_searches": 5, "empty_searches": 3,
}  # fmt: skip


def less(course: Mapping[str, Reals], minute: int, withdrawn: Mapping[str, float]) -> Agent:
    """An agent of which something is taken back in a minute."""
    left = {count: gained.copy() for count, gained in course.items()}
    for count, value in withdrawn.items():
        left[count][minute] -= value
    return Agent(left)


AGENTS: Final = {
    "calm": Agent(traffic(1, 1.0)),
    "a quiet agent with an incident": Agent(ILL),
    "a usual ratio of 0": Agent(traffic(5, 1.0, dict.fromkeys(CALM, 0.0))),
    "2,000 healthy results are forgotten": less(traffic(6, 1.0), 220, FORGOTTEN),
    "late labels take evidence back": less(
        ILL, 292, {"duplicate_results": 150, "missed_searches": 8, "wrong_routes": 8}
    ),
    "an agent with an incident goes to sleep": Agent(
        changed(
            changed(traffic(8, 0.6), slice(240, 300), traffic(28, 0.6, BAD)),
            slice(300, MINUTES),
            ASLEEP,
        )
    ),
    "a new agent is not judged": Agent(traffic(9, 1.0), since=240),
    "labels stay away": Agent(ILL, unlabelled=range(230, 320)),
    "labels stay away in the middle of an incident": Agent(
        changed(QUIET, slice(220, MINUTES), traffic(22, 0.5, BAD)), unlabelled=range(250, 390)
    ),
}


def compare(agent: Agent, figure: Figure) -> int:
    """Compare evidence at every minute; returns how many minutes were judged."""
    counts = {minute: dict(of) for minute, of in agent.counts().items()}
    nats = gather.IN_USE[figure.name]
    whole = {minute: counts.get(minute, {}) for minute in range(agent.since, MINUTES)}
    above, below = (values(whole, count) for count in (figure.above, figure.below))
    expected = gather.evidence(figure, above, below, nats, labels_missing(whole))[:, 0]

    told = evidence(figure, steps(figure, counts, MINUTES, nats, without_labels(counts, MINUTES)))

    assert np.isnan(told[:, : agent.since]).all()
    np.testing.assert_allclose(told[:, agent.since :], expected, rtol=0, atol=1e-9)
    return int((~np.isnan(told[0])).sum())


@pytest.mark.parametrize("agent", AGENTS)
def test_evidence_is_that_of_the_reference_at_every_minute(agent: str) -> None:
    """Of every figure and shift, in what may happen to an agent."""
    assert sum(compare(AGENTS[agent], figure) for figure in FIGURES) > 100


def test_evidence_that_lasts_is_that_of_the_last_twelve_hours() -> None:
    """Whoever has gone on since the first minute says what one that begins then says."""
    figure = BY_NAME["srr"]
    added = [Added((0.0015, 0.001), 1)] * (WATCHED + 40)

    found = evidence(figure, added)

    for minute in (500, WATCHED - 1, WATCHED, WATCHED + 1, WATCHED + 39):
        last = gathered(figure, added[: minute + 1])
        assert found[:, minute].tolist() == [each.value for each in last or ()]
