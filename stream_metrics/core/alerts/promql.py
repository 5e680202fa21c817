"""Formulas that are either computed or written as PromQL, so that each is stated once.

The functions take numbers and return numbers, or take expressions and return an expression. A
comparison of expressions is a filter, as in PromQL; join comparisons with ``&`` and ``|``.

>>> def bound(usual, count):
...     return usual + 4.5 * sqrt(4 * usual * (1 - usual) / count)
>>> bound(0.1, 900)
0.19
>>> bound(Promql("baseline"), Promql("results"))
Promql('baseline + 4.5 * sqrt(4 * baseline * (1 - baseline) / results)')
"""

from __future__ import annotations

import math
from typing import Any, Final

Value = Any  # a number or an expression: what formulas are written with
_OR, _AND, _COMPARED, _ADDED, _TIMES, _POWER, _ATOM = range(7)


class Promql:
    """An expression; ``level`` is that of its outermost operator, by which it gets parentheses."""

    __slots__ = ("_level", "text")

    def __init__(self, text: str, level: int = _ATOM) -> None:
        self.text: Final = text
        self._level = level

    def __repr__(self) -> str:
        return f"Promql({self.text!r})"

    def __add__(self, other: Value) -> Promql:
        return _joined(self, "+", other, _ADDED)

    def __radd__(self, other: Value) -> Promql:
        return _joined(other, "+", self, _ADDED)

    def __sub__(self, other: Value) -> Promql:
        return _joined(self, "-", other, _ADDED)

    def __rsub__(self, other: Value) -> Promql:
        return _joined(other, "-", self, _ADDED)

    def __mul__(self, other: Value) -> Promql:
        return _joined(self, "*", other, _TIMES)

    def __rmul__(self, other: Value) -> Promql:
        return _joined(other, "*", self, _TIMES)

    def __truediv__(self, other: Value) -> Promql:
        return _joined(self, "/", other, _TIMES)

    def __rtruediv__(self, other: Value) -> Promql:
        return _joined(other, "/", self, _TIMES)

    def __pow__(self, other: Value) -> Promql:
        return _joined(self, "^", other, _POWER)

    def __gt__(self, other: Value) -> Promql:
        return _joined(self, ">", other, _COMPARED)

    def __ge__(self, other: Value) -> Promql:
        return _joined(self, ">=", other, _COMPARED)

    def __lt__(self, other: Value) -> Promql:
        return _joined(self, "<", other, _COMPARED)

    def __and__(self, other: Promql) -> Promql:
        return Promql(f"{self.within(_AND)}\nand {other.within(_COMPARED)}", _AND)

    def __or__(self, other: Promql) -> Promql:
        return Promql(f"{self.within(_OR)}\nor {other.within(_AND)}", _OR)

    def within(self, level: int) -> str:
        """The text, in parentheses if it must not mix with an operator of this level."""
        return self.text if self._level >= level else f"({self.text})"


def _joined(left: Value, operator: str, right: Value, level: int) -> Promql:
    return Promql(f"{_text(left, level)} {operator} {_text(right, level + 1)}", level)


def _text(value: Value, level: int = _OR) -> str:
    return value.within(level) if isinstance(value, Promql) else f"{value:.12g}"


def _call(name: str, *values: Value) -> Promql:
    return Promql(f"{name}({', '.join(map(_text, values))})")


def sqrt(value: Value) -> Value:
    """The square root."""
    return _call("sqrt", value) if isinstance(value, Promql) else math.sqrt(value)


def at_least(value: Value, low: Value) -> Value:
    """The larger of both."""
    if isinstance(low, Promql):
        return (value >= low) | low
    return _call("clamp_min", value, low) if isinstance(value, Promql) else max(value, low)


def at_most(value: Value, high: Value) -> Value:
    """The smaller of both."""
    if isinstance(high, Promql):
        return (value < high) | high
    return _call("clamp_max", value, high) if isinstance(value, Promql) else min(value, high)


def between(value: Value, low: float, high: float) -> Value:
    """The value, or ``low`` or ``high`` if it is beyond it."""
    if isinstance(value, Promql):
        return _call("clamp", value, low, high)
    return min(max(value, low), high)


def over(above: Value, below: Value) -> Value:
    """The ratio; 0 where the denominator is not positive.

    >>> over(3, 4), over(3, 0)
    (0.75, 0.0)
    >>> print(over(Promql("hits"), Promql("asked")).text)
    hits / (asked > 0)
    or 0 * asked
    """
    if isinstance(below, Promql):
        return (above / (below > 0)) | 0 * below
    return above / below if below > 0 else 0.0


def exp(value: Value) -> Value:
    """The exponential function."""
    return _call("exp", value) if isinstance(value, Promql) else math.exp(value)
