"""Pictures as inline SVG, each with its table behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from stream_metrics.adapters.html.markup import Child, Safe, element, table

WIDTH: Final = 360
HEIGHT: Final = 150
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 8, 24


class Line(NamedTuple):
    """A line of a chart, in one of the page's tones."""

    title: str
    tone: int
    values: Sequence[float | None]


def figure(title: str, about: str, picture: Child, behind: Child) -> Safe:
    """A picture with its caption and table."""
    return element(
        "figure",
        element("figcaption", element("h3", title), element("p", about, class_="muted")),
        picture,
        element("details", element("summary", "Table of ", title), behind),
        class_="card chart",
    )


def histogram(title: str, about: str, bins: Sequence[tuple[str, int]], what: str) -> Safe:
    """How many of ``what`` lie in each bin."""
    most = max((n for _, n in bins), default=0) or 1
    across = (WIDTH - LEFT - RIGHT) / len(bins)
    high = HEIGHT - TOP - BOTTOM
    drawn: list[Safe] = list(_grid([(0, "0"), (0.5, ""), (1, f"{most:,}")]))
    for at, (_, n) in enumerate(bins):
        tall = high * n / most
        drawn.append(
            element(
                "rect",
                class_="bar",
                x=_n(LEFT + at * across + 1),
                y=_n(HEIGHT - BOTTOM - tall),
                width=_n(across - 2),
                height=_n(tall),
            )
        )
    for share, label in ((0.0, "0"), (0.5, "0.5"), (1.0, "1")):
        drawn.append(_below(LEFT + share * (WIDTH - LEFT - RIGHT), label, share))
    said = f"Histogram of {title}: " + ", ".join(f"{where}: {n:,}" for where, n in bins if n)
    rows = [(where, f"{n:,}") for where, n in bins]
    return figure(title, about, _svg(said, drawn), table(title, ("From–to", what), rows))


def lines(
    title: str, about: str, places: Sequence[str], several: Sequence[Line], behind: Child
) -> Safe:
    """Values between 0 and 1 at each place; a line has a gap where there is none."""
    wide = WIDTH - LEFT - RIGHT
    step = wide / max(1, len(places) - 1)
    drawn: list[Safe] = list(_grid([(0, "0"), (0.5, "0.5"), (1, "1")]))
    for line in several:
        path, spots = "", []
        for at, value in enumerate(line.values):
            if value is not None:
                x, y = _n(LEFT + at * step), _n(TOP + (1 - value) * (HEIGHT - TOP - BOTTOM))
                path += f"{'M' if at == 0 or line.values[at - 1] is None else 'L'}{x} {y}"
                spots.append(element("circle", class_="spot", cx=x, cy=y, r=3))
        drawn.append(
            element("g", element("path", class_="line", d=path), *spots, class_=f"tone-{line.tone}")
        )
    for at, place in enumerate(places):
        drawn.append(_below(LEFT + at * step, place, at / max(1, len(places) - 1)))
    said = "; ".join(
        f"{line.title} by iteration: "
        + ", ".join("-" if value is None else f"{value:.2f}" for value in line.values)
        for line in several
    )
    legend = element(
        "p",
        *(
            element("span", element("span", class_="key"), line.title, class_=f"tone-{line.tone}")
            for line in several
        ),
        class_="legend",
    )
    return figure(title, about, [_svg(said, drawn), legend], behind)


def interval(low: float | None, value: float | None, high: float | None, span: float) -> Safe:
    """A difference with its interval on a line from −span to span, 0 in the middle."""
    if low is None or high is None or value is None or not span:
        return Safe("")

    def at(x: float) -> str:
        return _n(60 + 56 * max(-1.0, min(1.0, x / span)))

    return element(
        "svg",
        element("line", class_="grid", x1=60, x2=60, y1=0, y2=16),
        element("line", class_="range", x1=at(low), x2=at(high), y1=8, y2=8),
        element("circle", class_="spot", cx=at(value), cy=8, r=4),
        viewBox="0 0 120 16", width=120, height=16, aria_hidden="true", class_="tone-1",
    )  # fmt: skip


def _svg(said: str, drawn: Sequence[Safe]) -> Safe:
    return element(
        "svg", *drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=said, class_="tone-1"
    )


def _grid(ticks: Sequence[tuple[float, str]]) -> Sequence[Safe]:
    found = []
    for share, label in ticks:
        y = TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)
        found.append(element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=_n(y), y2=_n(y)))
        if label:
            found.append(
                element("text", label, class_="tick", x=LEFT - 5, y=_n(y + 4), text_anchor="end")
            )
    return found


def _below(x: float, label: str, share: float) -> Safe:
    anchor = "start" if share < 0.05 else "end" if share > 0.95 else "middle"
    return element("text", label, class_="tick", x=_n(x), y=HEIGHT - 8, text_anchor=anchor)


def _n(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")
