"""Charts as inline SVG, each with a table of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from stream_metrics.lab.reports.html.markup import parts, table

WIDTH: Final = 360
HEIGHT: Final = 150
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 8, 24
ACROSS: Final = WIDTH - LEFT - RIGHT
HIGH: Final = HEIGHT - TOP - BOTTOM
TEMPLATE: Final = "pictures.html.j2"


class Line(NamedTuple):
    """The values of a line in a chart, in one of the page's tones."""

    title: str
    tone: int
    values: Sequence[float | None]


class Tick(NamedTuple):
    """A horizontal grid line with its label."""

    y: float
    label: str


class AxisLabel(NamedTuple):
    """A label of the horizontal axis."""

    x: float
    anchor: str
    label: str


class Frame(NamedTuple):
    """The axes and size of a chart."""

    across: Sequence[Tick]
    along: Sequence[AxisLabel]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT


class Bar(NamedTuple):
    """A bar of a histogram."""

    x: float
    y: float
    width: float
    height: float


class Point(NamedTuple):
    """A point of a line, and whether it is connected to the one before."""

    x: float
    y: float
    connected: bool


class Polyline(NamedTuple):
    """The coordinates of a line in a chart."""

    tone: int
    spots: Sequence[Point]


def histogram(title: str, about: str, bins: Sequence[tuple[str, int]], what: str) -> Markup:
    """A histogram of how many ``what`` are in each bin."""
    most = max((n for _, n in bins), default=0) or 1
    wide = ACROSS / len(bins)
    bars = [
        Bar(LEFT + at * wide + 1, HEIGHT - BOTTOM - HIGH * n / most, wide - 2, HIGH * n / most)
        for at, (_, n) in enumerate(bins)
    ]
    frame = _frame([(0, "0"), (0.5, ""), (1, f"{most:,}")], [(0.0, "0"), (0.5, "0.5"), (1.0, "1")])
    said = f"Histogram of {title}: " + ", ".join(f"{where}: {n:,}" for where, n in bins if n)
    picture = parts(TEMPLATE).histogram(frame, said, bars)
    rows = [(where, f"{n:,}") for where, n in bins]
    return _figure(title, about, picture, (), table(title, ("From–to", what), rows))


def lines(
    title: str, about: str, places: Sequence[str], several: Sequence[Line], behind: Markup
) -> Markup:
    """A chart of values between 0 and 1; a line has a gap where a value is None."""
    steps = max(1, len(places) - 1)
    drawn = [
        Polyline(
            line.tone,
            [
                Point(
                    LEFT + at * (ACROSS / steps),
                    TOP + (1 - value) * HIGH,
                    at > 0 and line.values[at - 1] is not None,
                )
                for at, value in enumerate(line.values)
                if value is not None
            ],
        )
        for line in several
    ]
    frame = _frame(
        [(0, "0"), (0.5, "0.5"), (1, "1")],
        [(at / steps, place) for at, place in enumerate(places)],
    )
    said = "; ".join(
        f"{line.title} by iteration: "
        + ", ".join("-" if value is None else f"{value:.2f}" for value in line.values)
        for line in several
    )
    picture = parts(TEMPLATE).lines(frame, said, drawn)
    return _figure(title, about, picture, several, behind)


def interval(low: float | None, value: float | None, high: float | None, span: float) -> Markup:
    """A difference with its interval on an axis from −span to span."""
    if low is None or high is None or value is None or not span:
        return Markup()

    def at(x: float) -> float:
        return 60 + 56 * max(-1.0, min(1.0, x / span))

    found: Markup = parts(TEMPLATE).interval(at(low), at(value), at(high))
    return found


def _figure(
    title: str, about: str, picture: Markup, legend: Sequence[Line], behind: Markup
) -> Markup:
    found: Markup = parts(TEMPLATE).figure(title, about, picture, legend, behind)
    return found


def _frame(across: Sequence[tuple[float, str]], along: Sequence[tuple[float, str]]) -> Frame:
    """A frame with grid lines at shares of its height and labels at shares of its width."""
    return Frame(
        [Tick(TOP + (1 - share) * HIGH, label) for share, label in across],
        [
            AxisLabel(
                LEFT + share * ACROSS,
                "start" if share < 0.05 else "end" if share > 0.95 else "middle",
                label,
            )
            for share, label in along
        ],
    )
