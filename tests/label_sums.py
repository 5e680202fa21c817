"""Sums of labelled conversations, for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from stream_metrics.core.metrics.label_sums import (
    BOTH,
    MODEL,
    PEOPLE,
    SEARCH_UNITS,
    Labelled,
    conversation_sums,
)

Sums = dict[str, dict[str, int]]


def added(sample: str, conversations: Iterable[Labelled]) -> dict[str, int]:
    """The sums of conversations."""
    total: Counter[str] = Counter()
    for one in conversations:
        total.update(conversation_sums(sample, one))
    return dict(total)


def random_sums(generator: Random, figure: str, sizes: tuple[int, int, int]) -> Sums:
    """The sums of random conversations: that many of each sample."""
    unit = 3 if figure == "gain" else 1 if figure == "sre" else SEARCH_UNITS
    return {
        sample: added(sample, [random_conversation(generator, unit) for _ in range(size)])
        for sample, size in zip((BOTH, PEOPLE, MODEL), sizes, strict=True)
        if size
    }


def random_conversation(generator: Random, unit: int) -> Labelled:
    """A conversation whose people and model agree to a degree."""
    base = generator.randint(1, 40)
    people = generator.randint(0, base * unit)
    model = min(
        base * unit, max(0, people + generator.randint(-base * unit // 4, base * unit // 3))
    )
    return Labelled(base, people, model)
