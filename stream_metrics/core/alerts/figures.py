"""The figures for which evidence of a shift is gathered, minute by minute."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Final

STRADDLED: Final = 3
_EXAMPLE: Final = 0.05  # a usual share of wrong decisions
MOST: Final = 0.45  # of the threshold; a turn may straddle two minutes, so two must not suffice
LEAST: Final = 0.05
LOW: Final = 0.02  # less than half of the least shift: from there, a ratio cannot fall that far


@dataclass(frozen=True, slots=True)
class Normal:
    """A ratio whose numerator is normal with a variance that is measured, and has a floor.

    The floor is ``times * p**power * (1 - p)**complement`` for each unit of the denominator.
    It is measured over sums of ``STRADDLED`` minutes, because results of a turn straddle minutes.
    """

    times: float
    power: int
    complement: int

    def floor(self, usual: float) -> float:
        """The least variance."""
        found: float = self.times * usual**self.power * (1 - usual) ** self.complement
        return found


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift that is looked for: by ``times`` the usual ratio, and at least by ``least``."""

    times: float
    least: float = LEAST

    def size(self, usual: float) -> float:
        """The size of the shift."""
        return max(self.times * usual, self.least)


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio of two counts by arrival.

    ``above`` and ``below`` are counts. ``sign`` is the bad direction. The usual ratio is taken to
    be between ``LOW`` and ``high``. ``model`` is None for decisions, which are right or wrong each
    for itself. ``labelled`` means that only iterations count whose labels have come. A minute
    changes evidence of a ``limited`` figure by ``MOST`` at most, because searches of a turn are
    much alike. A large shift ``pages`` somebody.
    """

    name: str
    above: str
    below: str
    sign: int
    shifts: tuple[Shift, Shift]
    model: Normal | None = None
    high: float = 0.98
    labelled: bool = False
    limited: bool = False
    pages: bool = False

    @property
    def most(self) -> float:
        """What a minute adds to evidence or takes away at most, in units of the threshold."""
        return MOST if self.limited else inf

    def beyond(self, shift: Shift) -> str:
        """Where the ratio is while evidence of the shift grows, in words.

        >>> BY_NAME["srr"].beyond(BY_NAME["srr"].shifts[0])
        'over 1.45 times the usual share'
        >>> [BY_NAME[name].beyond(Shift(0.5, 0.25)) for name in ("results", "wrong_routes")]
        ['below 75% of what is usual', 'over 15% where 5% are usual']
        >>> BY_NAME["empty_searches"].beyond(Shift(0.5, 0.24))
        'over 17% where 5% are usual'
        """
        if self.model is None:
            above, below = self.weights(shift, _EXAMPLE, 0.0)
            return _over(-below / above)
        if self.sign > 0:
            if shift.least > LEAST:
                return _over(_EXAMPLE + shift.size(_EXAMPLE) / 2)
            return f"over {1 + shift.times / 2:g} times the usual share"
        return f"below {100 - 50 * shift.times:g}% of what is usual"

    def weights(self, shift: Shift, usual: float, variance: float) -> tuple[float, float]:
        """What a unit of the numerator and one of the denominator add to the evidence, in nats.

        It is the logarithm of the likelihood ratio of the shifted and the usual ratio.
        """
        size = shift.size(usual)
        if self.model is None:
            shifted = min(usual + size, self.high)
            miss = log((1 - shifted) / (1 - usual))
            return log(shifted / usual) - miss, miss
        return (
            self.sign * size / variance,
            -1 * size / variance * (self.sign * usual + size / 2),
        )


def _over(ratio: float) -> str:
    return f"over {ratio:.0%} where {_EXAMPLE:.0%} are usual"


_UNLIMITED: Final = 1e6

FIGURES: Final = (
    Figure(
        "srr", "duplicate_results", "results", 1, (Shift(0.9), Shift(1.8)), Normal(2, 1, 1),
        pages=True,
    ),
    Figure(
        "results", "results", "searches", -1, (Shift(0.5), Shift(0.9)), Normal(0.1, 2, 0),
        high=_UNLIMITED, limited=True, pages=True,
    ),
    Figure(
        "sre", "settled_good_results", "settled_results", -1, (Shift(0.4), Shift(0.65)),
        Normal(1.5, 1, 1), labelled=True, pages=True,
    ),
    Figure(
        "gain", "settled_gain", "settled_iterations", -1, (Shift(0.4), Shift(0.65)),
        Normal(3, 1, 0), high=_UNLIMITED, labelled=True,
    ),
    Figure(
        "missed_searches", "missed_searches", "labelled_gate_decisions", 1,
        (Shift(5, 0.25), Shift(10, 0.5)), limited=True, pages=True,
    ),
    Figure(
        "wrong_routes", "wrong_routes", "labelled_routes", 1, (Shift(3, 0.2), Shift(6, 0.4)),
        limited=True,
    ),
    Figure(
        "reranking", "rerank_ndcg_shown", "rerank_ndcg_baseline", -1, (Shift(0.25), Shift(0.45)),
        Normal(0.02, 0, 0), high=10, limited=True,
    ),
    Figure(
        "repeated_searches", "repeated_searches", "queried_searches", 1,
        (Shift(1.5, 0.15), Shift(4, 0.4)), Normal(2, 1, 1),
    ),
    Figure(
        "empty_searches", "empty_searches", "searches", 1,
        (Shift(1.5, 0.15), Shift(4, 0.4)), Normal(2, 1, 1), limited=True, pages=True,
    ),
)  # fmt: skip
BY_NAME: Final = {figure.name: figure for figure in FIGURES}
