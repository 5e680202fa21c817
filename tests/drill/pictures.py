"""Operating curves as pictures: how late an alarm is, against how many false ones there are.

A picture of a figure has a panel for each band of traffic. Where a share of the incidents is missed
that is larger than a median or a ninth decile allows, the line is at the top.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from tests.drill.bands import BANDS, Band, in_band
from tests.drill.curves import EVIDENCE, Sweep, delays
from tests.drill.score import Caught

TITLES: Final[Mapping[str, str]] = {
    "srr": "Results repeat what the turn had (SRR)",
    "results": "Searches return fewer results",
    "sre": "Fewer results are good and new (SRE)",
    "gain": "Iterations gain less",
    "missed_searches": "The gate skips searches that were needed",
    "wrong_routes": "The router takes wrong routes",
    "reranking": "The reranker makes the order worse",
    "repeated_searches": "Searches repeat a query of their turn",
    "empty_searches": "Searches return nothing",
}
PLAIN: Final = "5m, for 5m"
COLUMNS: Final = 3
WIDTH, HEIGHT = 250.0, 170.0  # of a panel
GAP_X, GAP_Y = 40.0, 56.0
LEFT, TOP = 62.0, 92.0
LEAST, MOST = 0.03, 100.0  # false alarms a month and agent
LATEST: Final = 40.0  # minutes
MISSED: Final = 46.0  # where missed incidents are drawn
STYLE: Final = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .paper { fill: #ffffff }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .evidence { stroke: #0969da; fill: none; stroke-width: 2 }
  .fixed { stroke: #bc4c00; fill: none; stroke-width: 2 }
  .rare { stroke-dasharray: 5 4; stroke-width: 1.5 }
  .former { stroke: #1a7f37; fill: #1a7f37; stroke-width: 2 }
  .hollow { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .paper { fill: #0d1117 }
    .grid { stroke: #3d444d }
    .evidence { stroke: #4493f8 }
    .fixed { stroke: #f0883e }
    .former { stroke: #3fb950; fill: #3fb950 }
    .hollow { fill: #0d1117 }
  }
"""


class Former(NamedTuple):
    """The former rules: their false alarms a month and agent, and when they caught what.

    They caught nothing of a figure that they did not know.
    """

    a_month: float
    found: Sequence[Caught]


def picture(figure: str, swept: Mapping[str, Sweep], former: Former) -> str:
    """The picture of a figure, in SVG."""
    rows = -(-len(BANDS) // COLUMNS)
    width = LEFT + COLUMNS * (WIDTH + GAP_X)
    height = TOP + rows * (HEIGHT + GAP_Y) + 8
    what = f"{TITLES[figure]}: minutes until the alarm against false alarms"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(what)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="6"/>',
        _text(LEFT, 28, TITLES[figure], "title"),
        *_legend(bool(former.found)),
        *(
            line
            for number, band in enumerate(BANDS)
            for line in _panel(number, band, swept, former)
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _legend(with_former: bool) -> Iterator[str]:
    y = 54.0
    for x, middle, kind, what in (
        (LEFT, 126, "evidence", "evidence: median"),
        (LEFT + 232, 226, "fixed", f"fixed threshold, {PLAIN}: median"),
    ):
        yield f'<path class="{kind}" d="M{x:g} {y - 4:g}h26"/>'
        yield _text(x + 32, y, what)
        yield f'<path class="{kind} rare" d="M{x + 32 + middle:g} {y - 4:g}h26"/>'
        yield _text(x + 64 + middle, y, "90%")
    if not with_former:
        return
    x = LEFT + 606
    yield f'<circle class="former" cx="{x:g}" cy="{y - 4:g}" r="4"/>'
    yield _text(x + 10, y, "former rules: median")
    yield f'<circle class="former hollow" cx="{x + 146:g}" cy="{y - 4:g}" r="4"/>'
    yield _text(x + 156, y, "90%")


def _panel(number: int, band: Band, swept: Mapping[str, Sweep], former: Former) -> Iterator[str]:
    left = LEFT + (number % COLUMNS) * (WIDTH + GAP_X)
    top = TOP + (number // COLUMNS) * (HEIGHT + GAP_Y)
    count = len(in_band(swept[EVIDENCE].points[0].found, band))
    plural = "" if count == 1 else "s"
    yield _text(left, top - 6, f"{band} turns in ten minutes: {count} incident{plural}")
    for minutes in range(0, int(LATEST) + 1, 10):
        y = _y(top, minutes)
        yield f'<path class="grid" d="M{left:g} {y:.1f}h{WIDTH:g}"/>'
        yield _text(left - 6, y + 4, f"{minutes}", "small", "end")
    yield _text(left - 6, _y(top, MISSED) + 4, "missed", "small", "end")
    yield from _alarms_axis(left, top)
    if not count:
        return
    for name, kind in ((EVIDENCE, "evidence"), (PLAIN, "fixed")):
        sweep = swept[name]
        found = [
            (sweep.a_month(point), delays(in_band(point.found, band))) for point in sweep.points
        ]
        for place, more in ((0, ""), (1, " rare")):
            line = [(a_month, late[place]) for a_month, late in found]
            yield _line(left, top, line, f"{kind}{more}")
    if not former.found:
        return
    for late, more in zip(delays(in_band(former.found, band)), ("", " hollow"), strict=True):
        yield (
            f'<circle class="former{more}" cx="{_x(left, former.a_month):.1f}" '
            f'cy="{_y(top, late):.1f}" r="4"/>'
        )


def _alarms_axis(left: float, top: float) -> Iterator[str]:
    for a_month in (0.1, 1, 10, 100):
        x = _x(left, a_month)
        yield f'<path class="grid" d="M{x:.1f} {top:g}v{HEIGHT:g}"/>'
        yield _text(x, top + HEIGHT + 15, f"{a_month:g}", "small", "middle")
    yield _text(left, top + HEIGHT + 30, "false alarms a month and agent", "small")


def _line(left: float, top: float, points: Iterable[tuple[float, float]], kind: str) -> str:
    """A line through points; of those beyond an end of the axis, the nearest is kept."""
    placed = sorted((_x(left, a_month), _y(top, minutes)) for a_month, minutes in points)
    path = " ".join(f"{x:.1f} {y:.1f}" for x, y in dict(placed).items())
    return f'<path class="{kind}" d="M{path}"/>'


def _x(left: float, a_month: float) -> float:
    share = math.log(min(max(a_month, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return left + WIDTH * share


def _y(top: float, minutes: float) -> float:
    shown = minutes if minutes <= LATEST else MISSED
    return top + HEIGHT * (1 - shown / MISSED)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{chosen} text-anchor="{anchor}">{escape(text)}</text>'


_BAND_LINES: Final = ("fixed rare", "fixed", "evidence rare", "evidence")
Line = Sequence[tuple[float, float]]


def budget_picture(lines: Mapping[str, Mapping[str, Line]], in_use: Mapping[str, float]) -> str:
    """The share in time against false alarms, a panel for each figure and a line for each band.

    ``lines`` have false alarms a month and agent with the share, by figure and band. ``in_use`` has
    the false alarms with the threshold of the rules, where a panel has an upright line.
    """
    rows = -(-len(lines) // COLUMNS)
    width = LEFT + COLUMNS * (WIDTH + GAP_X)
    height = TOP + rows * (HEIGHT + GAP_Y) + 8
    what = "Share of incidents of real size that is noticed in time"
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{what}, by false alarms">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="6"/>',
        _text(LEFT, 28, what, "title"),
    ]
    for place, (band, kind) in enumerate(zip(next(iter(lines.values())), _BAND_LINES, strict=True)):
        x = LEFT + 170 * place
        found += [f'<path class="{kind}" d="M{x:g} 50h26"/>', _text(x + 32, 54, f"{band} turns")]
    found += [
        f'<path class="former" d="M{LEFT + 680:g} 42v14"/>', _text(LEFT + 690, 54, "the rules have")
    ]  # fmt: skip
    for number, (figure, by_band) in enumerate(lines.items()):
        left = LEFT + (number % COLUMNS) * (WIDTH + GAP_X)
        top = TOP + (number // COLUMNS) * (HEIGHT + GAP_Y)
        found += [*_shares_panel(left, top, by_band), _text(left, top - 6, TITLES[figure])]
        x = _x(left, in_use[figure])
        found.append(f'<path class="former" d="M{x:.1f} {top:g}v{HEIGHT:g}"/>')
    return "\n".join([*found, "</svg>"]) + "\n"


def _shares_panel(left: float, top: float, by_band: Mapping[str, Line]) -> Iterator[str]:
    for percent in range(0, 101, 25):
        y = top + HEIGHT * (1 - percent / 100)
        yield f'<path class="grid" d="M{left:g} {y:.1f}h{WIDTH:g}"/>'
        yield _text(left - 6, y + 4, f"{percent}%", "small", "end")
    yield from _alarms_axis(left, top)
    for line, kind in zip(by_band.values(), _BAND_LINES, strict=True):
        placed = {f"{_x(left, alarms):.1f}": top + HEIGHT * (1 - share) for alarms, share in line}
        path = " ".join(f"{x} {y:.1f}" for x, y in placed.items())
        yield f'<path class="{kind}" stroke-linecap="round" d="M{path}h0"/>'  # of one, a dot
