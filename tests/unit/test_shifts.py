"""Evidence from counts by minute is that of the reference in numpy, whatever came before."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.alerts.arrivals import BILLIONTHS
from stream_metrics.core.alerts.figures import BY_NAME, FIGURES, Figure
from stream_metrics.core.alerts.shifts import (
    HORIZON,
    WATCHED,
    Added,
    Came,
    Evidence,
    Usual,
    Watch,
    added,
    gathered,
    noticed,
    pooled,
    ratio_lately,
    span,
    unlabelled,
    would_show,
)
from tests.drill import gather
from tests.drill.evidence import Reals, accumulate, steps

START = 29_000_000  # a minute, divisible by five
SHORT = 240  # minutes: the usual day has enough after 90 of them
LABELS = ("labelled_results", "unique_results")

seeds = st.integers(0, 2**32 - 1)
Counts = dict[int, dict[str, int]]


def history(
    figure: Figure, seed: int, minutes: int = SHORT, start: int = START, labels: bool = True
) -> Counts:
    """Counts of an agent that gets worse at the end, some of which are taken back."""
    rng = Random(seed)
    usual = rng.choice([0.0, 0.05, 0.3, 0.9])
    worse = rng.choice([usual, 0.0, 0.6, 1.0])
    traffic = rng.choice([0.3, 0.7, 0.95])
    since, silent = minutes - rng.randrange(1, 90), rng.randrange(minutes)
    counts: Counts = {}
    for number in range(minutes):
        of = counts[start + number] = dict.fromkeys((figure.above, figure.below, *LABELS), 0)
        if number and rng.random() > traffic:
            continue
        below = rng.randrange(-3, 40) or 1
        share = worse if number >= since else usual
        above = sum(rng.random() < share for _ in range(abs(below)))
        unit = 1_000_000_000 if figure.below in BILLIONTHS else 1
        of[figure.below] = unit * (below if number else abs(below))
        of[figure.above] = unit * (above if below > 0 else -above)
        of["unique_results"] = abs(below)
        came = rng.random() if labels and number != silent else 0.05
        of["labelled_results"] = int(came * abs(below))
    return counts


def values(counts: Counts, count: str) -> Reals:
    """What a count gained, for one agent, as the reference takes it."""
    unit = 1e-9 if count in BILLIONTHS else 1.0
    return np.array([[unit * counts[minute].get(count, 0) for minute in sorted(counts)]])


def labels_missing(counts: Counts) -> gather.Flags:
    """The minutes in which labels are missing, by the reference."""
    hours = []
    for count in LABELS:
        sums = np.cumsum(np.pad(values(counts, count), ((0, 0), (60, 0))), axis=-1)
        hours.append(sums[..., 60:] - sums[..., :-60])
    return gather.are_unlabelled(*hours)


def reference(figure: Figure, counts: Counts, threshold: float) -> Reals:
    """The evidence by shift and minute, by the reference."""
    above, below = values(counts, figure.above), values(counts, figure.below)
    missing = labels_missing(counts)
    return gather.evidence(figure, above, below, threshold, missing)[:, 0]


def found(figure: Figure, counts: Counts, now: int) -> tuple[float, ...] | None:
    """The evidence of both shifts as of ``now``."""
    now_there = gathered(figure, added(figure, counts, now, gather.IN_USE[figure.name]))
    return None if now_there is None else tuple(each.value for each in now_there)


@settings(max_examples=8)
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
@given(seed=seeds, back=st.integers(0, 140))
def test_evidence_is_that_of_the_reference(figure: Figure, seed: int, back: int) -> None:
    """At any minute, also when some was taken back or labels were missing."""
    counts = history(figure, seed)
    minute = SHORT - 1 - back
    expected = reference(figure, counts, gather.IN_USE[figure.name])[:, minute]

    now = found(figure, counts, START + minute)

    if now is None:
        assert np.isnan(expected).all()
    else:
        assert now == pytest.approx(expected.tolist(), abs=1e-9)


def test_evidence_of_a_full_horizon_begins_twelve_hours_ago() -> None:
    """It is the reference's sum of the steps of these hours, each with a whole usual day."""
    figure = BY_NAME["sre"]
    counts = history(figure, 1, HORIZON + 40)
    now = START + HORIZON + 39
    above, below = values(counts, figure.above), values(counts, figure.below)
    missing = labels_missing(counts)
    threshold = gather.IN_USE[figure.name]
    step = steps(above, below, gather.weights(figure, above, below), missing)[..., -WATCHED:]
    idle = np.broadcast_to((below <= 0) | missing, (2, *below.shape))[..., -WATCHED:]

    sums = accumulate(step, threshold, idle, figure.most)[:, 0, -1] / threshold

    assert found(figure, counts, now) == pytest.approx(sums.tolist(), abs=1e-9)


def test_evidence_needs_no_minute_before_the_horizon() -> None:
    """State that dropped older minutes, or never had them, gives the same to the last digit."""
    figure = BY_NAME["srr"]
    counts = history(figure, 7, HORIZON + 30)
    now = START + HORIZON + 29
    kept = {minute: counts[minute] for minute in counts if minute > now - HORIZON}

    assert len(kept) == HORIZON
    assert found(figure, kept, now) == found(figure, counts, now)


def test_evidence_does_not_depend_on_older_evidence_once_it_was_0() -> None:
    """What is left out by beginning twelve hours ago is gone at the first minute without any."""
    figure = BY_NAME["srr"]
    steps_of = added(figure, history(figure, 2), START + SHORT - 1, 9.0)
    cleared = [Added((-9.0, -9.0), 1), *steps_of[-60:]]
    raised = [Added((2.0, 2.0), 1), *cleared]

    assert gathered(figure, raised) == gathered(figure, cleared)


@given(seed=seeds)
@settings(max_examples=10)
def test_minutes_may_come_in_any_order(seed: int) -> None:
    """Partitions are read at their own pace, and labels of an hour ago may come at any time."""
    figure = BY_NAME["gain"]
    counts = history(figure, seed)
    order = list(counts)
    Random(seed).shuffle(order)

    assert found(figure, {m: counts[m] for m in order}, max(order)) == found(
        figure, counts, max(order)
    )


@given(seed=seeds)
@settings(max_examples=10)
def test_labels_are_missing_where_the_reference_says_so(seed: int) -> None:
    """By the share of the last hour, against that of the day."""
    counts = history(BY_NAME["sre"], seed, minutes=400)
    missing = {START + int(at) for at in np.flatnonzero(labels_missing(counts)[0])}

    assert set(unlabelled(counts, START + 399)) == missing


@given(seed=seeds)
@settings(max_examples=10)
def test_a_pool_has_the_evidence_of_the_steps_of_its_agents_together(seed: int) -> None:
    """One that came later counts from then on, and a minute is idle only if it is for all."""
    figure, now = BY_NAME["empty_searches"], START + SHORT - 1
    threshold = gather.IN_USE[figure.name]
    agents = [history(figure, seed), history(figure, seed + 1, SHORT - 100, START + 100)]
    each = []
    traffic = np.zeros(SHORT)
    for counts in agents:
        above, below = values(counts, figure.above), values(counts, figure.below)
        of = steps(above, below, gather.weights(figure, above, below))[:, 0]
        each.append(np.pad(of, ((0, 0), (SHORT - len(counts), 0)), constant_values=np.nan))
        traffic += np.pad(below[0], (SHORT - len(counts), 0))
    unknown: gather.Flags = np.all(np.isnan(each), axis=0)
    step = np.where(unknown, np.nan, np.nansum(each, axis=0))
    idle = np.broadcast_to(traffic <= 0, step.shape)
    expected = accumulate(step, threshold, idle, figure.most)[:, -1] / threshold

    together = gathered(figure, pooled(added(figure, of, now, threshold) for of in agents))

    if np.isnan(step[:, -1]).any():
        assert together is None
    else:
        found_together = [each.value for each in together or ()]
        assert found_together == pytest.approx(expected.tolist(), abs=1e-9)


@given(seed=seeds, silent=st.integers(0, 40))
@settings(max_examples=10)
def test_no_ratio_is_told_without_traffic_in_half_an_hour(seed: int, silent: int) -> None:
    """Where the reference lets no alert be active, there is no value of it."""
    figure = BY_NAME["wrong_routes"]
    counts = history(figure, seed)
    for minute in range(SHORT - silent, SHORT):
        counts[START + minute] = {}
    after = np.pad(values(counts, figure.below), ((0, 0), (0, 1)))  # a rule sees what is over
    active = gather.lately(after)[0, -1]

    assert (ratio_lately(figure, counts, START + SHORT - 1) is not None) == active


@settings(max_examples=8)
@pytest.mark.parametrize("name", ["gain", "reranking"])
@given(seed=seeds, late=st.integers(1, 30))
def test_going_on_gives_what_beginning_anew_gives(name: str, seed: int, late: int) -> None:
    """Also where a partition was behind, and fills a minute that was judged before."""
    figure, threshold = BY_NAME[name], gather.IN_USE[name]
    counts = history(figure, seed)
    watch = Watch(figure, threshold)
    for now in range(START + SHORT - 20, START + SHORT):
        if now == START + SHORT - 5:
            counts[now - late] = dict(counts[now - 100])
        seen = {minute: of for minute, of in counts.items() if minute <= now}

        assert watch.added(seen, now) == added(figure, seen, now, threshold)


@pytest.mark.parametrize("name", ["srr", "sre"])
def test_going_on_over_the_horizon_gives_what_beginning_anew_gives(name: str) -> None:
    """Minutes are left behind, at last those of an agent that paused, and nothing is the matter."""
    figure, counts = BY_NAME[name], history(BY_NAME[name], 3, 200)
    counts |= history(figure, 4, 3_100, START + 900)
    watch = Watch(figure, 9.0)
    for back in (400, 283, 282, 281, 100, 82, 81, 0):
        now = START + 3_999 - back
        seen = {minute: of for minute, of in counts.items() if minute <= now}

        assert watch.added(seen, now) == added(figure, seen, now, 9.0)


def test_an_agent_without_minutes_has_no_evidence() -> None:
    """Nor has one whose day is too short to know what is usual."""
    figure = BY_NAME["srr"]

    assert found(figure, {}, START) is None
    assert found(figure, {START: {"results": 10, "duplicate_results": 9}}, START + 5) is None
    assert span({}, START) == range(START + 1, START + 1)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
@given(ratio=st.floats(0.0, 1.0), variance=st.floats(0.05, 20))
def test_what_is_said_to_be_noticed_reaches_the_threshold(
    figure: Figure, ratio: float, variance: float
) -> None:
    """That much traffic at that ratio, in an hour, is evidence of 1, or more if it tells of both
    shifts."""
    usual, nats = Usual(ratio, variance), gather.IN_USE[figure.name]
    least = noticed(figure, usual, nats)
    if least is None:
        return
    minutes = [Came(0.0, 1.001 * least.below / 60, judged=True)] * 60

    assert would_show(figure, usual, least.ratio, minutes, nats)
    assert not would_show(figure, usual, usual.assumed(figure), minutes, nats)


def test_what_comes_in_one_minute_would_not_show_where_a_minute_is_limited() -> None:
    """It may be one turn; nor does what nobody labels."""
    figure, usual = BY_NAME["results"], Usual(9.0, 10.0)
    busy, silent = Came(0.0, 1_000.0, judged=True), Came(0.0, 0.0, judged=True)
    unlabelled = busy._replace(judged=False)

    assert would_show(figure, usual, 1.0, [busy] * 3, 9.0)
    assert not would_show(figure, usual, 1.0, [busy] * 2 + [silent] * 3, 9.0)
    assert not would_show(figure, usual, 1.0, [unlabelled] * 60, 9.0)


@pytest.mark.parametrize(("name", "ratio"), [("srr", 0.95), ("sre", 0.01), ("missed_searches", 1)])
def test_a_ratio_near_its_end_cannot_be_seen_to_shift(name: str, ratio: float) -> None:
    """Nothing that may come would be evidence."""
    assert noticed(BY_NAME[name], Usual(ratio, 1.0), 10.0) is None


def test_evidence_lasts_since_it_was_last_0() -> None:
    """These are the minutes in which the figure has most likely been shifted."""
    minutes = [Added(steps, 1) for steps in ((0.5, 0.5), (-1.0, 0.1), (0.2, -3.0), (0.7, 0.0))]

    assert gathered(BY_NAME["srr"], minutes) == (Evidence(0.2 + 0.7, 2), Evidence(0.0, 0))
