"""The former rules of windows in numpy, for worlds that no Prometheus has looked at.

The conditions are those of the rule file; only the series that it asks for are worked out here.
"""

from __future__ import annotations

import ast
import re
from functools import cache, reduce
from typing import Any, Final, NamedTuple

import numpy as np

from tests.drill.evaluation import Firing, Rule
from tests.drill.evidence import AGO, Reals
from tests.drill.gather import KEEP, usual_share
from tests.drill.judge import RATIO_OF, fired, quotient, window_sum
from tests.drill.power import Ratio
from tests.drill.series import WINDOWS
from tests.drill.simulation import World

PREFIX: Final = "Window"  # of these alerts, before the name of the alert of today
_ALERT: Final = re.compile(
    r"alert: (\w+)\n +expr: \|\n(.*?)\n +for: (\w+)\n.*?severity: (\w+)\n", re.DOTALL
)
_RECORDED: Final = re.compile(r"window:streammetrics_(\w+):(\w+?)_?(\d+[mh])?\b(\{[^}]*\})?")
_WAITS: Final = {"30s": 0, "1m": 1}  # whole minutes


class Recorded(NamedTuple):
    """A recorded ratio: what it divides, what it counts, and how much of that a usual day needs."""

    ratio: Ratio
    counted: tuple[str, ...]
    least: int = 0


_SRR, _SRE, _GAIN, _RESULTS, _MISSED, _ROUTED, _RERANKED, *_ = RATIO_OF.values()
RATIOS: Final = {
    "duplicate_results_per_results": Recorded(_SRR, _SRR.below, 1_000),
    "results_per_searches": Recorded(_RESULTS, _RESULTS.below, 100),
    "settled_good_results_per_settled_results": Recorded(_SRE, _SRE.below, 1_000),
    "settled_gain_per_settled_iterations": Recorded(_GAIN, _GAIN.below, 100),
    "missed_searches_per_labelled_decisions": Recorded(_MISSED, _MISSED.below, 100),
    "correct_routes_per_labelled_routes": Recorded(_ROUTED, _ROUTED.below, 100),
    "rerank_ndcg_shown_per_baseline": Recorded(_RERANKED, ("kc",), 100),
    "labelled_results_per_unique_results": Recorded(Ratio(("l",), ("u",)), ("u",)),
}
COUNTS: Final = {
    "results": _SRR.below,
    "searches": _RESULTS.below,
    "settled_results": _SRE.below,
    "settled_iterations": _GAIN.below,
    "labelled_gate_decisions": _MISSED.below,
    "labelled_routes": _ROUTED.below,
    "reranked_searches": ("kc",),
}


def judge_windows(world: World) -> tuple[list[Rule], list[Firing]]:
    """The alerts of windows, and every time that one fires."""
    rules: list[Rule] = []
    found: list[Firing] = []
    names = {**_FUNCTIONS, "recorded": cache(lambda *of: _recorded(world, *of))}
    text = (WINDOWS / "alerts.rules.yml").read_text(encoding="utf-8")
    for name, expression, wait, severity in _ALERT.findall(text):
        rules.append(Rule(name, severity, "", _WAITS[wait], KEEP))
        with np.errstate(divide="ignore", invalid="ignore"):  # of windows without searches
            holds = eval(_compiled(expression), {"__builtins__": {}}, names)  # noqa: S307
        found += fired(world, rules[-1], holds)
    return rules, found


class _Arrays(ast.NodeTransformer):
    """``and`` and ``or`` for arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return reduce(lambda left, right: ast.BinOp(left, operator, right), node.values)


def _compiled(expression: str) -> Any:
    """An expression in PromQL, as far as it is written as in Python."""
    python = _RECORDED.sub(r"recorded('\1', '\2', '\3')", expression).replace("^", "**")
    tree = _Arrays().visit(ast.parse(f"({python})", mode="eval"))
    return compile(ast.fix_missing_locations(tree), "<rule>", "eval")


_FUNCTIONS: Final[dict[str, Any]] = {
    "sqrt": np.sqrt,
    "asin": np.arcsin,
    "sin": np.sin,
    "ln": np.log,
    "clamp": np.clip,
    "clamp_min": np.maximum,
    "clamp_max": np.minimum,
}


def _recorded(world: World, name: str, what: str, window: str) -> Reals:
    """A recorded series, by agent and minute; NaN where it has no value."""
    if what == "sum":
        return _sum(world, window, COUNTS[name])
    of = RATIOS[name]
    parts = [_sum(world, "24h" if what == "baseline" else window, codes) for codes in of.ratio]
    if what == "usual":
        return usual_share(*parts)
    found = quotient(*parts)
    if what == "baseline":
        enough = _sum(world, "24h", of.counted) >= of.least
        return _ago(np.where(enough, found, np.nan), AGO)
    return found


def _sum(world: World, window: str, codes: tuple[str, ...]) -> Reals:
    """Sums of a window; ten minutes are two windows of five."""
    if window == "10m":
        last = window_sum(world, "5m", codes)
        return last + _ago(last, 5)
    return window_sum(world, window, codes)


def _ago(values: Reals, minutes: int) -> Reals:
    """What was so many minutes before; NaN before the first."""
    found = np.full_like(values, np.nan)
    found[..., minutes:] = values[..., :-minutes]
    return found
