"""A picture has every band, and shows what is missed at the top."""

from __future__ import annotations

import re

import pytest

from tests.drill.bands import BANDS
from tests.drill.curves import EVIDENCE, Point, Sweep
from tests.drill.pictures import PLAIN, TITLES, Former, picture
from tests.drill.plan import KINDS
from tests.drill.score import Caught
from tests.drill.world import START_US, Incident

(KIND, *_) = KINDS


def caught(minutes: int | None) -> list[Caught]:
    """One incident of an agent with 7 turns in ten minutes."""
    incident = Incident(KIND.name, "a", START_US, START_US + 1, 0.8)
    return [Caught(KIND, incident, False, 3.0, 10, minutes, None, 7, None)]


def drawn(*minutes: int | None) -> str:
    """The picture of a threshold that catches the incident after so many minutes."""
    sweep = Sweep(10.0, [Point(float(at), 10, caught(late)) for at, late in enumerate(minutes)])
    return picture("srr", {EVIDENCE: sweep, PLAIN: sweep}, Former(1.0, caught(minutes[0])))


@pytest.mark.parametrize("figure", TITLES)
def test_a_picture_is_svg_with_a_panel_for_each_band(figure: str) -> None:
    """Each says how many incidents it has."""
    sweep = Sweep(10.0, [Point(1.0, 10, caught(5))])
    text = picture(figure, {EVIDENCE: sweep, PLAIN: sweep}, Former(1.0, caught(5)))

    titles = re.findall(r"<text[^>]*>([^<]*)</text>", text)

    for band in BANDS:
        count = "1 incident" if 7 in band else "0 incidents"
        assert f"{band} turns in ten minutes: {count}" in titles


def test_former_rules_that_did_not_know_a_figure_are_not_drawn() -> None:
    """Neither in a panel nor in the legend."""
    sweep = Sweep(10.0, [Point(1.0, 10, caught(5))])

    text = picture("repeated_searches", {EVIDENCE: sweep, PLAIN: sweep}, Former(0.0, []))

    assert "6-9 turns in ten minutes: 1 incident" in text
    assert "former rules" not in text
    assert "<circle" not in text


def test_a_later_alarm_is_higher_and_a_missed_one_the_highest() -> None:
    """By the circle of the former rules."""
    heights = [
        float(re.findall(r'class="former" cx="[^"]+" cy="([^"]+)"', drawn(late))[1])
        for late in (3, 30, None)
    ]

    assert heights == sorted(heights, reverse=True)
