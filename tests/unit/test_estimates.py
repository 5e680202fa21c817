"""Estimates from labels by people and by a model are what other implementations compute."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scipy import stats

from stream_metrics.core.alerts.estimates import (
    Found,
    Sums,
    as_number,
    estimates,
    mixed,
    t_quantile,
    weight_of,
)
from stream_metrics.core.metrics.label_sums import (
    BOTH,
    MODEL,
    PEOPLE,
    SUMS,
    UNLABELLED,
    Labelled,
)
from tests.label_sums import added

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "data" / "estimates" / "golden.json").read_text(encoding="utf-8")
)
SINGLE = GOLDEN["single_turns"]
CLUSTERED = GOLDEN["conversations"]


def sums_of(sample: str, conversations: list[Labelled]) -> Sums:
    """The sums of a sample, as formulas take them."""
    return Sums(**added(sample, conversations))


def close(value: float) -> Any:
    """Equality to 1e-9."""
    return pytest.approx(value, rel=1e-9)


def divided_by_n(both: Sums, only: Sums, weight: float) -> float:
    """The variance of an estimate, with variances that divide by n instead of by n - 1."""
    apart = mixed(both, Sums(), weight, as_number).variance
    judged = mixed(both, only, weight, as_number).variance - apart
    return float(apart * (both.n - 1) / both.n + judged * (only.n - 1) / only.n)


@pytest.mark.parametrize("case", SINGLE, ids=lambda case: case["name"])
def test_single_turns_are_estimated_as_by_other_programs(case: dict[str, Any]) -> None:
    """With a base of 1, the weight, estimate and error equal those of ppi-python and truescore."""
    both = sums_of(BOTH, [Labelled(1, y, f) for y, f in case["both"]])
    only = sums_of(MODEL, [Labelled(1, model=f) for f in case["model"]])
    weight = weight_of(both, only, as_number)
    found = mixed(both, only, weight, as_number)

    assert weight == close(case["truescore"]["lambda"])
    assert found.value == close(case["truescore"]["point"])
    assert found.value == close(case["ppi_python"]["point"])
    assert sqrt(found.variance) == close(case["truescore"]["standard_error"])
    assert sqrt(divided_by_n(both, only, weight)) == close(case["ppi_python"]["standard_error"])


@pytest.mark.parametrize("case", CLUSTERED, ids=lambda case: f"{case['name']}, {case['lambda']}")
def test_conversations_are_estimated_as_clusters_of_turns(case: dict[str, Any]) -> None:
    """For any weight, estimate and error equal those of truescore for turns in clusters."""
    found = mixed(
        sums_of(BOTH, [Labelled(*one) for one in case["both"]]),
        sums_of(MODEL, [Labelled(b, model=f) for b, f in case["model"]]),
        case["lambda"],
        as_number,
    )

    assert found.value == close(case["truescore"]["point"])
    assert sqrt(found.variance) == close(case["truescore"]["standard_error"])


def conversation(generator: Random) -> Labelled:
    """A conversation in which a model is too kind."""
    base, good = generator.randint(5, 40), generator.uniform(0.2, 0.9)
    people = sum(generator.random() < good for _ in range(base))
    kind = sum(generator.random() < 0.2 for _ in range(base - people))
    return Labelled(base, people, people + kind - generator.randint(0, min(3, people)))


def test_the_error_is_that_of_a_jackknife() -> None:
    """Leaving out each conversation in turn gives the same error, but for the order of 1 / n."""
    generator = Random(7)
    both = [conversation(generator) for _ in range(300)]
    only = [conversation(generator) for _ in range(900)]
    h, m = sums_of(BOTH, both), sums_of(MODEL, only)

    def estimate(of_both: Sums, of_only: Sums) -> Found:
        return mixed(of_both, of_only, weight_of(of_both, of_only, as_number), as_number)

    def less(all_of_them: Sums, sample: str, one: Labelled) -> Sums:
        return Sums(*(a - b for a, b in zip(all_of_them, sums_of(sample, [one]), strict=True)))

    without = [
        [estimate(less(h, BOTH, one), m).value for one in both],
        [estimate(h, less(m, MODEL, one)).value for one in only],
    ]
    variance = 0.0
    for values in without:
        mean = sum(values) / len(values)
        variance += (len(values) - 1) / len(values) * sum((one - mean) ** 2 for one in values)

    assert sqrt(estimate(h, m).variance) == pytest.approx(sqrt(variance), rel=0.02)


def test_quantiles_are_those_of_students_t() -> None:
    """The quotient of cubics is within 2e-8 of the quantile for all degrees of freedom."""
    for degrees in (*range(1, 500), 1_000, 10_000, 10_000_000):
        assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=2e-8)


def test_people_alone_give_a_classical_interval() -> None:
    """Without conversations that the model alone labelled, combined is what people say."""
    generator = Random(3)
    both = added(BOTH, [conversation(generator) for _ in range(50)])
    found = estimates("sre", {BOTH: both})

    assert found.combined == found.human
    assert found.human == estimates("sre", {PEOPLE: both}).human


def test_a_conversation_without_a_model_narrows_what_people_say_alone() -> None:
    """People's sample where no model judged counts for their estimate, and for no other."""
    generator = Random(4)
    both = added(BOTH, [conversation(generator) for _ in range(30)])
    people = added(PEOPLE, [conversation(generator) for _ in range(30)])
    less, more = (estimates("sre", {BOTH: both, PEOPLE: sums}) for sums in ({}, people))

    assert more.human is not None
    assert less.human is not None
    assert more.human.value == (both["y"] + people["y"]) / (both["b"] + people["b"])
    assert width(more.human) < width(less.human)
    assert (more.combined, more.off, more.model) == (less.combined, less.off, less.model)
    assert more.conversations == {BOTH: 30, PEOPLE: 30, MODEL: 0, UNLABELLED: 0}


def width(interval: Any) -> float:
    """How wide an interval is."""
    return float(interval.high - interval.low)


def test_fewer_than_two_conversations_have_no_interval() -> None:
    """One conversation by people is shown without bounds, and combined with nothing."""
    one = added(BOTH, [Labelled(10, 4, 5)])
    found = estimates("sre", {BOTH: one, MODEL: added(MODEL, [Labelled(10, model=7)] * 3)})

    assert found.human == (0.4, None, None)
    assert found.off == (0.1, None, None)
    assert found.combined is None
    assert found.model == 26 / 40
    assert estimates("sre", {}) == (None, None, None, None, False, dict.fromkeys(SUMS, 0))


@pytest.mark.parametrize(
    ("conversations", "results", "is_incomplete"),
    [(2, 10, False), (2, 11, True), (1, 11, False)],
)
def test_a_sample_of_which_the_model_has_not_labelled_a_part_gives_no_estimate_from_its_labels(
    conversations: int, results: int, *, is_incomplete: bool
) -> None:
    """Above 5% of the results that were drawn, of more than one conversation. People's stays."""
    both = added(BOTH, [Labelled(10, good, good + 1) for good in (4, 5, 6)])
    only = added(MODEL, [Labelled(16, model=good) for good in range(10)])
    unlabelled = {"n": conversations, "b": results}
    found = estimates("sre", {BOTH: both, MODEL: only, UNLABELLED: unlabelled})

    assert found.incomplete == is_incomplete
    assert found.human is not None
    from_model = (found.model, found.combined, found.off)
    assert [one is None for one in from_model] == [is_incomplete] * 3
    assert found.conversations[UNLABELLED] == conversations


def test_a_judge_that_is_too_kind_is_off_upwards() -> None:
    """What the judge is off is its ratio less people's, with an interval of its own."""
    found = estimates("sre", {BOTH: added(BOTH, [Labelled(10, 5, 6), Labelled(20, 9, 11)] * 20)})

    assert found.off is not None
    assert found.off.value == pytest.approx(0.1)
    assert found.off.low is not None
    assert 0 < found.off.low < 0.1


@pytest.mark.parametrize("n", [30, 60, 600])
def test_only_good_results_do_not_prove_that_all_are_good(n: int) -> None:
    """Where all of n conversations are good, the interval begins near 1 - 3 / n."""
    found = estimates("sre", {PEOPLE: added(PEOPLE, [Labelled(15, 15)] * n)}).human

    assert found is not None
    assert found.value == found.high == 1
    assert found.low == pytest.approx(1 - 3 / n, abs=1 / n)


def test_figures_of_searches_are_in_their_own_units() -> None:
    """Ten-thousandths of NDCG become shares, in estimates and bounds alike."""
    generator = Random(5)
    shares = [conversation(generator) for _ in range(40)]
    scaled = [Labelled(one.base, 10_000 * one.people, 10_000 * one.model) for one in shares]
    ndcg = estimates("ndcg@10", {BOTH: added(BOTH, scaled)}).human
    sre = estimates("sre", {BOTH: added(BOTH, shares)}).human

    assert ndcg == pytest.approx(sre, rel=1e-9)


def test_the_gain_of_an_iteration_has_no_upper_limit() -> None:
    """Estimates of gain may be above 1, with bounds that are symmetric about their logarithm."""
    generator = Random(6)
    both = [Labelled(b, 4 * y, 4 * f) for b, y, f in (conversation(generator) for _ in range(60))]
    found = estimates("gain", {BOTH: added(BOTH, both)}).human

    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low > 1
    assert found.value**2 == pytest.approx(found.low * found.high)


def test_labels_of_people_are_worth_more_with_a_good_judge() -> None:
    """A thousand conversations that a good judge labelled make the interval much narrower."""
    generator = Random(8)
    both = [conversation(generator) for _ in range(60)]
    only = [conversation(generator) for _ in range(1_000)]
    found = estimates("sre", {BOTH: added(BOTH, both), MODEL: added(MODEL, only)})

    assert found.human is not None
    assert found.combined is not None
    assert width(found.combined) < 0.6 * width(found.human)
