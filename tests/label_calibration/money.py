"""How wide the interval of SRE is for what labels cost, as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from stream_metrics.core.alerts.estimates import estimates
from stream_metrics.core.metrics.label_sums import BOTH, MODEL, SUMS
from tests.drill.pictures import STYLE
from tests.label_calibration.study import generator_of
from tests.label_calibration.world import Pool, World, pool

BY_PERSON: Final = 0.3
"""What a label of a document costs by a person who labels a hundred of them an hour."""
BY_MODEL: Final = 0.001
BUDGETS: Final = (250, 500, 1_000, 2_000, 4_000, 8_000)
KAPPAS: Final = (0.4, 0.65, 0.85)
_JUDGED: Final = (0, 100, 300, 1_000, 3_000, 10_000, 20_000)
_FEWEST: Final = 10  # conversations by people
_FIGURE: Final = "sre"

ALONE: Final = "people alone"
Lines = Mapping[str, Sequence[float]]
"""The widths for each budget, in points, by who labels."""


class Split(NamedTuple):
    """What money buys: conversations by people (which the model judges too), and by the model."""

    people: int
    model: int


def widths() -> dict[str, list[float]]:
    """The narrowest interval for each budget: of people alone, and with models of some kappas."""
    found: dict[str, list[float]] = {}
    for kappa in KAPPAS:
        world = World(kappa=kappa)
        conversations = pool(world, generator_of("money", world))
        for name, judged in ((ALONE, _JUDGED[:1]), (f"with a model, κ {kappa:g}", _JUDGED[1:])):
            found[name] = [
                min(_width(conversations, split) for split in _splits(conversations, money, judged))
                for money in BUDGETS
            ]
    return found


def _splits(conversations: Pool, money: float, judged: Sequence[int]) -> Iterator[Split]:
    documents = float(conversations.base[_FIGURE].mean())
    for model in judged:
        both = documents * (BY_PERSON + (BY_MODEL if model else 0))
        people = int((money - model * documents * BY_MODEL) / both)
        if people >= _FEWEST:
            yield Split(people, model)


def _width(conversations: Pool, split: Split) -> float:
    """The width of the interval, in points, where sums are what is expected of them."""
    means = {name: of.mean() for name, of in conversations.products(_FIGURE).items()}
    found = estimates(
        _FIGURE,
        {
            sample: {name: round(means[name] * size) for name in SUMS[sample]}
            for sample, size in ((BOTH, split.people), (MODEL, split.model))
        },
    ).combined
    assert found is not None
    assert found.high is not None
    assert found.low is not None
    return 100 * (found.high - found.low)


def table(lines: Lines) -> str:
    """The widths as a Markdown table."""
    head = " | ".join(f"{money:,}" for money in BUDGETS)
    rows = [
        f"| {name} | " + " | ".join(f"{width:.1f}" for width in of) + " |"
        for name, of in lines.items()
    ]
    return "\n".join([f"| | {head} |", "|---|" + "---|" * len(BUDGETS), *rows, ""])


LEFT, TOP, WIDTH, HEIGHT = 62.0, 92.0, 690.0, 260.0
_WIDEST: Final = 20.0  # points
_KINDS: Final = ("fixed", "evidence rare", "evidence", "former hollow")


def picture(lines: Lines) -> str:
    """The widths against money, in SVG."""
    what = "Width of the 95% interval of SRE, by what the labels cost"
    width, height = LEFT + WIDTH + 30, TOP + HEIGHT + 50
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(what)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="6"/>',
        _text(LEFT, 28, what, "title"),
        *_axes(),
    ]
    for place, ((name, of), kind) in enumerate(zip(lines.items(), _KINDS, strict=True)):
        x = LEFT + 178 * place
        style = ' style="fill:none"' if kind == "former hollow" else ""
        found += [f'<path class="{kind}"{style} d="M{x:g} 50h26"/>', _text(x + 32, 54, name)]
        places = (f"{_x(m):.1f} {_y(w):.1f}" for m, w in zip(BUDGETS, of, strict=True))
        found.append(f'<path class="{kind}"{style} d="M{" ".join(places)}"/>')
    return "\n".join([*found, "</svg>"]) + "\n"


def _axes() -> Iterator[str]:
    for points in range(0, int(_WIDEST) + 1, 5):
        yield f'<path class="grid" d="M{LEFT:g} {_y(points):.1f}h{WIDTH:g}"/>'
        yield _text(LEFT - 6, _y(points) + 4, f"{points}", "small", "end")
    yield _text(LEFT - 30, TOP - 10, "points", "small")
    for money in BUDGETS:
        yield f'<path class="grid" d="M{_x(money):.1f} {TOP:g}v{HEIGHT:g}"/>'
        yield _text(_x(money), TOP + HEIGHT + 15, f"{money:,}", "small", "middle")
    yield _text(LEFT, TOP + HEIGHT + 34, "money for the labels of a window", "small")


def _x(money: float) -> float:
    return LEFT + WIDTH * math.log(money / BUDGETS[0]) / math.log(BUDGETS[-1] / BUDGETS[0])


def _y(points: float) -> float:
    return TOP + HEIGHT * (1 - min(points, _WIDEST) / _WIDEST)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{chosen} text-anchor="{anchor}">{escape(text)}</text>'
