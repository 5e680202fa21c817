"""Evidence about many agents is that about each, and alarms are those of Prometheus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.alerts.figures import BY_NAME, FIGURES, Figure
from stream_metrics.core.alerts.table import ALERTS
from tests.drill.evaluation import Rule, firings
from tests.drill.gather import (
    ALERT_OF,
    KEEP,
    alarms,
    are_unlabelled,
    evidence,
    lately,
)
from tests.drill.plan import KINDS

MINUTES = 400


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.sampled_from([(0, 10), (5, 0), (0, 0)]))
def test_alarms_begin_when_those_of_prometheus_do(
    active: list[bool], waits: tuple[int, int]
) -> None:
    """With a wait before an alert fires, or with minutes for which it keeps firing."""
    pending, keep = waits
    rule = Rule("A", "page", "", pending, keep)
    expected = [one.start for one in firings(rule, {}, np.flatnonzero(active).tolist())]

    assert np.flatnonzero(alarms(np.array(active), pending, keep)).tolist() == expected


def counts(figure: Figure, seed: int, agents: int) -> tuple[np.ndarray, np.ndarray]:
    """What comes to some agents by minute, with a time in which the ratio is bad."""
    rng = np.random.default_rng(seed)
    below = 10.0 * rng.poisson(1.0, (agents, MINUTES))
    share = np.full(MINUTES, 0.3)
    share[-40:] = 0.7 if figure.sign > 0 else 0.05
    return rng.binomial(below.astype(int), share).astype(float), below


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_agents_and_thresholds_are_judged_as_if_each_were_alone(figure: Figure) -> None:
    """All of them at once only saves time."""
    above, below = counts(figure, 1, 3)
    thresholds = np.array([4.0, 9.0])

    together = evidence(figure, above, below, thresholds)

    assert together.shape == (2, 2, 3, MINUTES)
    assert np.nanmax(together) >= 1
    for number, threshold in enumerate(thresholds):
        for agent in range(3):
            alone = evidence(figure, above[agent], below[agent], threshold)
            np.testing.assert_allclose(together[number, :, agent], alone, rtol=1e-12)


def test_labels_are_missing_if_their_share_is_far_below_the_usual_one() -> None:
    """Before there is a usual share, labels are not known to come either."""
    unique = np.full(3_000, 100.0)
    labelled = np.full(3_000, 80.0)
    labelled[2_000:2_010] = 50.0

    found = are_unlabelled(labelled, unique)

    assert found[:80].all()
    assert not found[120:2_000].any()
    assert found[2_000:2_010].all()
    assert not found[2_010:].any()


def test_every_figure_has_the_alert_of_some_incident() -> None:
    """So that each is judged by incidents that are meant for it."""
    assert set(ALERT_OF.values()) <= {kind.alert for kind in KINDS}
    assert ALERT_OF.keys() == {figure.name for figure in FIGURES}


def test_an_alert_needs_traffic_in_the_last_half_hour() -> None:
    """That of the present minute counts as well."""
    found = lately(np.array([0.0, 5.0, *[0.0] * 40]))

    assert np.flatnonzero(found).tolist() == list(range(1, 31))
    assert lately(np.array([[5.0, np.nan, 0.0], [0.0, 0.0, 0.0]])).tolist() == [
        [True, True, True], [False] * 3,
    ]  # fmt: skip


def test_alerts_of_the_drill_are_those_of_the_table() -> None:
    """Each by the evidence of its figure, with the same severities and times."""
    alerts = {alert.name: alert for alert in ALERTS}
    for figure, name in ALERT_OF.items():
        rules = alerts[name].rules
        paging = {"critical"} if BY_NAME[figure].pages else set()
        assert {rule.severity for rule in rules} == {"warning"} | paging
        for rule in rules:
            assert f'figure="{figure}"' in rule.expr
            assert (rule.wait, rule.keep) == ("0s", f"{KEEP}m")
