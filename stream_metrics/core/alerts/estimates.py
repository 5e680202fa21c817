"""Estimates of a figure from labels by people and by a model, each with a 95% interval.

Their formulas take the sums of ``core/metrics/label_sums.py``, as numbers or as expressions of
PromQL: pages and reports compute what Prometheus records.

A model's labels are many and biased, people's are few and right. The combined estimate takes the
figure from the model's labels, and how far they are off from the conversations that both labelled
(prediction-powered inference: Angelopoulos, Duchi, Zrnic, "PPI++", arXiv 2311.01453). It holds
however bad the model is; a bad model narrows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import hypot
from typing import Final, NamedTuple

from stream_metrics.core.alerts.promql import (
    Value,
    at_least,
    at_most,
    between,
    exp,
    over,
    sqrt,
)
from stream_metrics.core.engine.cells import BY_SERIES, split_code
from stream_metrics.core.metrics.label_sums import SUMS, in_units, is_share

Keep = Callable[[str, Value], Value]
"""Names a value that is used several times: it records an expression, and leaves numbers alone."""

FEWEST: Final = 2
"""Conversations that people must have labelled for an interval."""
UNSEEN: Final = 3
"""Of people's relative variance, how often its square is added to the variance of an estimate.

Few conversations have bad results where most results are good, and the fewer of them a sample has,
the less it knows of how they vary. Simulations have shown that three is enough.
"""
_DUE_SHARE: Final = 0.05
_FEWEST_DUE: Final = 1  # the turn, or the conversation, that a judge asks about
EDGE: Final = 0.05
"""The part of a conversation by which an estimate differs at least from 0 and 1, for its bounds."""
_TUNED: Final = 2  # λ comes from the conversations that the variance comes from
_MOST: Final = 700  # exp of more is no double
_UNLIMITED: Final = 1e9
_SUMS: Final = BY_SERIES["label_sums"] + "|"


class Sums(NamedTuple):
    """The sums of a sample; one that it does not have is 0."""

    n: Value = 0
    b: Value = 0
    y: Value = 0
    f: Value = 0
    bb: Value = 0
    by: Value = 0
    bf: Value = 0
    yy: Value = 0
    yf: Value = 0
    ff: Value = 0


class Found(NamedTuple):
    """An estimate, and the square of its standard error."""

    value: Value
    variance: Value


class Bounds(NamedTuple):
    """An estimate within the range of its figure, and the bounds of its interval."""

    value: Value
    low: Value
    high: Value


class Interval(NamedTuple):
    """An estimate with the bounds of its 95% interval.

    The bounds are None where people labelled fewer than two conversations.
    """

    value: float
    low: float | None
    high: float | None


class Estimates(NamedTuple):
    """The estimates of a figure; None where nothing was labelled that they are made from.

    Attributes:
        human: From people's labels alone.
        model: From the model's labels alone. It has no interval, because they do not say how far
            they are off.
        combined: From both; None where both labelled fewer than two conversations.
        off: How much more the model finds than people do, where both labelled.
        incomplete: Whether more than 5% of the model's sample has no labels of it (``incomplete``);
            then nothing is estimated from its labels.
        conversations: The number of conversations of each sample, and of those of which the model
            has not labelled everything that was drawn.
    """

    human: Interval | None
    model: float | None
    combined: Interval | None
    off: Interval | None
    incomplete: bool
    conversations: Mapping[str, int]


def estimates(figure: str, sums: Mapping[str, Mapping[str, int]]) -> Estimates:
    """The estimates of a figure from the sums of each sample; sums that are 0 may be missing.

    >>> two = {"n": 2, "b": 20, "y": 12, "bb": 200, "by": 120, "yy": 80}
    >>> found = estimates("sre", {"people": two})
    >>> found.human.value, found.combined
    (0.6, None)
    """
    both, people, only, unlabelled = parts = [
        Sums(**{name: in_units(figure, name, n) for name, n in sums.get(sample, {}).items()})
        for sample in SUMS
    ]
    share = float(is_share(figure))
    labelled = both.n + people.n
    missing = incomplete(both, only, unlabelled)
    pairs = 0 if missing else both.n
    return Estimates(
        _interval(human(both, people, share, as_number), labelled) if labelled else None,
        model(both, only) if both.n + only.n and not missing else None,
        _interval(combined(both, only, share, as_number), pairs) if pairs >= FEWEST else None,
        _interval(off(both, as_number), pairs) if pairs else None,
        bool(missing),
        {name: int(one.n) for name, one in zip(SUMS, parts, strict=True)},
    )


def estimates_of(sums: Mapping[str, int]) -> dict[str, Estimates]:
    """The estimates of each figure, from sums by series code; other series are left out."""
    by_figure: dict[str, dict[str, dict[str, int]]] = {}
    for code, value in sums.items():
        if code.startswith(_SUMS):
            figure, sample, name = split_code(code)[1]
            by_figure.setdefault(figure, {}).setdefault(sample, {})[name] = value
    return {figure: estimates(figure, of) for figure, of in sorted(by_figure.items())}


def most_due(judged: Value) -> Value:
    """How many turns a judge may have yet to label, where so many conversations have its labels.

    With more, estimates from its labels are biased, since it is done with short turns first.

    >>> most_due(600), most_due(3)
    (30.0, 1)
    """
    return at_least(_DUE_SHARE * judged, _FEWEST_DUE)


def incomplete(both: Sums, only: Sums, unlabelled: Sums) -> Value:
    """Whether too much of the model's sample has no labels of it, so that estimates are biased.

    It is, if that is more than 5% of what a figure divides by, of more than one conversation: of
    the results for SRE, the iterations for gain, the searches for NDCG. What a judge is asked about
    later, or never, since its budget was spent, differs from what it has labelled.

    >>> both, only = Sums(n=10, b=100), Sums(n=50, b=850)
    >>> [incomplete(both, only, Sums(n=n, b=b)) for n, b in ((2, 50), (2, 51), (1, 51))]
    [False, True, False]
    """
    drawn = both.b + only.b + unlabelled.b
    return (unlabelled.b > _DUE_SHARE * drawn) & (unlabelled.n > _FEWEST_DUE)


def difference(one: Interval, other: Interval) -> Interval:
    """How much ``one`` is above ``other``, an estimate from another sample; both have bounds.

    The distances of the bounds from their estimates are added as errors are (the square-and-add
    method: Newcombe, Statistics in Medicine 17, 1998), so that the interval is as asymmetric as
    they are.

    >>> tuple(round(x, 6) for x in difference(Interval(0.5, 0.44, 0.56), Interval(0.3, 0.22, 0.38)))
    (0.2, 0.1, 0.3)
    """
    assert one.low is not None
    assert one.high is not None
    assert other.low is not None
    assert other.high is not None
    value = one.value - other.value
    return Interval(
        value,
        value - hypot(one.value - one.low, other.high - other.value),
        value + hypot(one.high - one.value, other.value - other.low),
    )


def as_number(_name: str, value: Value) -> Value:
    """Leaves a number alone."""
    return value


def _interval(found: Bounds, conversations: int) -> Interval:
    if conversations < FEWEST:
        return Interval(found.value, None, None)
    return Interval(*found)


def t_quantile(degrees: Value) -> Value:
    """The 97.5% quantile of Student's t with ``degrees`` of freedom, 1 or more.

    A quotient of cubics, whose relative error for whole numbers is below 2e-8.

    >>> round(t_quantile(1), 5), round(t_quantile(59), 6)
    (12.7062, 2.000995)
    """
    above = ((1.95996398454 * degrees + 0.69109724) * degrees + 1.23144776) * degrees + 0.64776884
    below = ((degrees - 0.85775586) * degrees + 0.22637246) * degrees - 0.012076
    return above / below


def human(both: Sums, people: Sums, share: Value, keep: Keep) -> Bounds:
    """People's labels alone: the ratio over all conversations of their random sample."""
    n, b, y, bb, by, yy = (
        keep(f"human_{name}", getattr(both, name) + getattr(people, name))
        for name in ("n", "b", "y", "bb", "by", "yy")
    )
    found = _ratio("human", keep, Sums(n=n, b=b, bb=bb), y, by, yy)
    return bounds("human", found, found, n, share, keep)


def model(both: Sums, only: Sums) -> Value:
    """The model's labels alone: the ratio over all conversations of its random sample."""
    return over(both.f + only.f, both.b + only.b)


def off(both: Sums, keep: Keep) -> Bounds:
    """How far the model's ratio is above people's, over the conversations that both labelled."""
    found = _ratio(
        "off", keep, both,
        both.f - both.y, both.bf - both.by, both.ff - 2 * both.yf + both.yy,
    )  # fmt: skip
    degrees = keep("off_degrees", at_least(both.n - 1, 1))
    half = keep("off_half", t_quantile(degrees) * sqrt(found.variance))
    return Bounds(found.value, found.value - half, found.value + half)


def combined(both: Sums, only: Sums, share: Value, keep: Keep) -> Bounds:
    """What the model says of the conversations that it alone labelled, put right by people.

    The estimate is ``λ·m + d``, with ``m`` the model's ratio in these conversations, and ``d``
    people's ratio less ``λ`` times the model's in those that both labelled.
    """
    people = _ratio("both", keep, both, both.y, both.by, both.yy)
    weight = keep("weight", weight_of(both, only, keep))
    found = mixed(both, only, weight, keep)
    wide = Found(found.value, found.variance * (1 + over(_TUNED * weight, both.n)))
    return bounds("combined", wide, people, both.n, share, keep)


def mixed(both: Sums, only: Sums, weight: Value, keep: Keep) -> Found:
    """The combined estimate with ``weight`` as its ``λ``."""
    apart = _ratio(
        "apart", keep, both,
        both.y - weight * both.f,
        both.by - weight * both.bf,
        both.yy - 2 * weight * both.yf + weight * weight * both.ff,
    )  # fmt: skip
    alone = _ratio("alone", keep, only, only.f, only.bf, only.ff)
    return Found(
        keep("combined", weight * alone.value + apart.value),
        keep("combined_variance", weight * weight * alone.variance + apart.variance),
    )


def _ratio(name: str, keep: Keep, sums: Sums, z: Value, bz: Value, zz: Value) -> Found:
    """The ratio of the sums of ``z`` and ``b``, and its variance, from that of the residuals."""
    value = keep(name, over(z, sums.b))
    squares = at_least(zz - 2 * value * bz + value * value * sums.bb, 0)
    variance = over(over(sums.n * squares, sums.n - 1), sums.b * sums.b)
    return Found(value, keep(f"{name}_variance", variance))


def weight_of(both: Sums, only: Sums, keep: Keep) -> Value:
    """``λ``: how much of the model's ratio to take, so that the variance is least.

    It is the covariance of people's and the model's residuals, where both labelled, over the
    variance of the model's residuals in all conversations, and over ``1 + n_both / n_model``.
    Without at least two conversations that the model alone labelled it is 0.
    """
    people = keep("both_by_people", over(both.y, both.b))
    by_model = keep("both_by_model", over(both.f, both.b))
    together = both.yf - by_model * both.by - people * both.bf + people * by_model * both.bb
    n, bb, bf, ff = (
        keep(f"judged_{name}", getattr(both, name) + getattr(only, name))
        for name in ("n", "bb", "bf", "ff")
    )
    ratio = keep("judged", model(both, only))
    squares = keep("judged_squares", ff - 2 * ratio * bf + ratio * ratio * bb)
    enough = between(only.n - 1, 0, 1)
    return between(over(enough * together * only.n * (n - 1), both.n * n * squares), 0, 1)


def bounds(name: str, found: Found, people: Found, n: Value, share: Value, keep: Keep) -> Bounds:
    """The interval of an estimate for which people labelled ``n`` conversations.

    It is symmetric about the log-odds of a share (``share`` is 1), and about the logarithm of
    another figure (0). ``people`` is the estimate from their labels alone, for ``UNSEEN``.
    """
    edge = keep(f"{name}_edge", over(EDGE, n))
    least = edge * edge
    value = keep(f"{name}_inside", _inside(found.value, edge, share))
    by_people = value
    if people is not found:
        by_people = keep(f"{name}_by_people", _inside(people.value, edge, share))
    unseen = at_least(people.variance, least) / (by_people * (1 - share * by_people))
    unseen = keep(f"{name}_unseen", unseen)
    variance = at_least(found.variance, least) + UNSEEN * unseen * unseen
    error = keep(f"{name}_error", sqrt(variance) / (value * (1 - share * value)))
    quantile = keep(f"{name}_quantile", t_quantile(keep(f"{name}_degrees", at_least(n - 1, 1))))
    factor = keep(f"{name}_factor", exp(at_most(quantile * error, _MOST)))
    low = value / (share * value + (1 - share * value) * factor)
    high = value / (share * value + (1 - share * value) / factor)
    shown = keep(f"{name}_shown", _inside(found.value, 0, share))
    return Bounds(shown, at_most(low, shown), at_least(high, shown))


def _inside(value: Value, edge: Value, share: Value) -> Value:
    """The value, at least ``edge``, and for a share at most ``1 - edge``."""
    return at_most(at_least(value, edge), 1 - edge + (1 - share) * _UNLIMITED)
