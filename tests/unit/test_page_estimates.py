"""The page shows estimates from labels of random samples, and where the model is off."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from stream_metrics.core.alerts.estimates import Interval, estimates
from stream_metrics.live.page.estimates import OFF_SHOWN, Covered, covered, is_off, judges_off
from tests.label_sums import added, random_conversation, random_sums
from tests.page import Showcase
from tests.unit.test_state_partition import NOON_S
from tests.unit.test_worst import labelled, searched

DOCS = "abcdefghij"


def judged(n: int, agent: str, sources: tuple[str, ...], kinder: int = 0) -> list[dict[str, Any]]:
    """The events of a conversation of whose ten documents half are good, and a model's labels that
    call ``kinder`` more of them good."""
    name = f"{agent}-{n}"
    events = [searched(name, 1, DOCS, agent=agent)]
    for source in sources:
        good = 5 + n % 2 + (kinder if source == "model" else 0)
        gains = {f"1.{at}.{doc}": 3 if at < good else 0 for at, doc in enumerate(DOCS)}
        said = {"source": source, "sample": "random", "event_id": f"{name}-{source}"}
        events.append(labelled(name, gains) | said)
    return events


SAMPLED = tuple(
    event
    for n in range(12)
    for one, kinder in (("it-desk", 2), ("hr-helper", 0))
    for sources in (("human", "model"), ("model",))
    for event in judged(n + 100 * len(sources), one, sources, kinder)
)
"""Events of two agents, about one of which a model is off."""


async def shown(agent: str | None = None, window: str = "1h") -> Any:
    """The estimates on the page of a worker."""
    showcase = await Showcase.new(*SAMPLED)
    try:
        return (await showcase.state(window, agent))["estimates"]
    finally:
        showcase.board.close()
        showcase.worst.close()


async def test_the_page_shows_estimates_with_their_bounds() -> None:
    """Those of the agents shown together, from the window that has them."""
    found = await shown()
    value, low, high = found["figures"]["sre"]["combined"]

    assert found["window"] == "24h"
    assert low < value < high
    conversations = {"both": 24, "people": 0, "model": 24, "unlabelled": 0}
    assert found["figures"]["sre"]["conversations"] == conversations
    assert found["figures"]["gain"]["human"][0] == pytest.approx(3 * 5.5)


async def test_the_page_says_about_which_agents_the_model_is_off() -> None:
    """In words, and of the chosen agent alone if one is chosen."""
    assert (await shown())["off"] == ["20 points too kind to it-desk"]
    assert (await shown("hr-helper"))["off"] == []
    assert (await shown("it-desk"))["figures"]["sre"]["conversations"]["both"] == 12


@pytest.mark.parametrize(
    ("ended_ago_ms", "cut_off"),
    [(-1, True), (86_399_999, True), (86_400_000, False), (None, False)],
)
async def test_a_window_with_a_day_whose_sample_ended_early_has_no_combined_estimate(
    ended_ago_ms: int | None, *, cut_off: bool
) -> None:
    """People's own stays."""
    events = [event for n in range(3) for event in judged(n, "it-desk", ("human", "model"))]
    showcase = await Showcase.new(*events)
    until_ms = None if ended_ago_ms is None else showcase.now_us // 1000 - ended_ago_ms
    board = showcase.board
    board.inputs = replace(board.inputs, incomplete_until_ms=lambda: until_ms)
    try:
        found = (await showcase.state("24h"))["estimates"]
    finally:
        board.close()
        showcase.worst.close()
    sre = found["figures"]["sre"]
    assert (found["cut_off"], sre["combined"] is None) == (cut_off, cut_off)
    assert sre["human"] is not None


@pytest.mark.parametrize(("due", "behind"), [(2, False), (3, True)])
async def test_while_the_judge_is_behind_nothing_is_estimated_from_its_labels(
    due: int, *, behind: bool
) -> None:
    """With more turns to label than 5% of the conversations with its labels, of all agents, also
    where one is chosen. People's own stays."""
    showcase = await Showcase.new(*SAMPLED)
    board = showcase.board
    board.inputs = replace(board.inputs, due_turns=lambda: due)
    try:
        found = (await showcase.state("24h", "it-desk"))["estimates"]
    finally:
        board.close()
        showcase.worst.close()
    sre = found["figures"]["sre"]
    assert (sre["behind"], found["off"] == [], found["due"]) == (behind, behind, due)
    assert (sre["combined"] is None, sre["model"] is None) == (behind, behind)
    assert sre["human"] is not None


async def test_a_sample_that_is_not_labelled_gives_no_estimate_from_a_models_labels() -> None:
    """More than 5% of the results that were drawn have none. People's own estimate stays."""
    drawn = [
        event
        for n in range(3)
        for event in (searched(f"drawn-{n}", 1, DOCS, agent="it-desk"), in_sample(f"drawn-{n}"))
    ]
    showcase = await Showcase.new(*SAMPLED, *drawn)
    try:
        found = (await showcase.state("24h"))["estimates"]
    finally:
        showcase.board.close()
        showcase.worst.close()
    sre = found["figures"]["sre"]
    assert (sre["incomplete"], sre["conversations"]["unlabelled"]) == (True, 3)
    assert (sre["combined"], sre["model"], found["off"]) == (None, None, [])
    assert sre["human"] is not None


@pytest.mark.parametrize(
    ("turns", "drawn", "part"),
    [
        ((0, 50, 50), (0, 6, 0), (None, 20.0)),
        ((50, 0, 50), (0, 0, 6), (20.0, None)),
        ((50, 50, 50), (0, 6, 0), (10.0, 20.0)),
        ((50, 0, 50), (0, 0, 5), (None, None)),
        ((5, 0, 95), (0, 0, 200), (None, None)),
        ((6, 0, 94), (0, 0, 200), (20.0, None)),
        ((50, 50, 50), (1, 0, 1), (None, None)),
        ((50, 50, 50), (0, 0, 0), (None, None)),
    ],
)
def test_a_side_of_a_window_is_not_covered_where_chance_would_have_drawn_several(
    turns: tuple[int, ...], drawn: tuple[int, ...], part: tuple[float | None, ...]
) -> None:
    """More than five conversations, and of more than 5% of the turns. A sample that is small, or
    is missing in between, says nothing of when it was drawn."""
    samples = ("both", "people", "unlabelled")
    buckets = [
        {"t": t, f"L|gain|{sample}|n": n}
        for t, n, sample in zip(turns, drawn, samples, strict=True)
    ]

    assert covered(buckets, [0.0, 10.0, 20.0]) == Covered(*part)


async def test_the_page_says_since_when_its_sample_is_drawn() -> None:
    """Of the turns of the hours before nothing is known."""
    early_s = NOON_S - 6 * 3_600
    early = [searched(f"early-{n}", 1, DOCS, early_s) for n in range(60)]
    showcase = await Showcase.new(*SAMPLED, *early)
    try:
        found = (await showcase.state("24h"))["estimates"]
    finally:
        showcase.board.close()
        showcase.worst.close()
    assert early_s < found["since"] <= NOON_S
    assert found["until"] is None


def in_sample(conversation: str) -> dict[str, Any]:
    """The event that puts a turn into the model's sample, without labels."""
    said = {"source": "model", "sample": "random", "event_id": f"{conversation}-drawn"}
    return labelled(conversation, {}) | said


async def test_the_page_has_no_estimates_without_random_samples() -> None:
    """Labels of turns that were chosen say nothing of others."""
    showcase = await Showcase.new(searched("c", 1, DOCS), labelled("c", {"1.0.a": 3}))
    try:
        assert (await showcase.state("24h"))["estimates"] is None
    finally:
        showcase.board.close()
        showcase.worst.close()


def test_the_agents_with_the_most_are_named() -> None:
    """A judge that is off about many agents is named for the worst of them."""
    generator = Random(1)
    agents = {}
    for at in range(OFF_SHOWN + 2):
        many = [random_conversation(generator, 1) for _ in range(200)]
        strict = [one._replace(model=one.people * (9 - at) // 10) for one in many]
        sums = added("both", strict)
        agents[f"agent-{at}"] = {f"L|sre|both|{name}": value for name, value in sums.items()}
    found = judges_off(agents)

    assert len(found) == OFF_SHOWN
    assert all(" too strict to agent-" in words for words in found)
    assert found[0].endswith(f"agent-{OFF_SHOWN + 1}")


def test_a_judge_is_off_only_beyond_chance() -> None:
    """Not where 0 is in the interval, nor without an interval."""
    assert not is_off(Interval(0.1, None, None))
    assert not is_off(Interval(0.1, -0.01, 0.2))
    assert is_off(Interval(0.1, 0.01, 0.2))
    assert is_off(Interval(-0.1, -0.2, -0.01))
    noisy = random_sums(Random(2), "sre", (4, 0, 0))
    assert estimates("sre", noisy).off is not None
