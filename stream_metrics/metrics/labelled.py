"""Which figures are made of the labels of documents, and when there is nothing to make them of."""

from __future__ import annotations

from typing import Final

OF_LABELS: Final = frozenset({"cg", "rg", "dcg", "drg", "avg_gain", "rag", "drag", "sre"})
"""Without a label these are 0 by definition. Summaries show no value then, because nobody has
judged what was found."""


def nothing_labelled(unique: float, labelled: float) -> bool:
    """Whether documents were found and none of them has a label.

    Args:
        unique: How many documents were found.
        labelled: How many of them have a label.

    >>> nothing_labelled(5, 0), nothing_labelled(5, 1), nothing_labelled(0, 0)
    (True, False, False)
    """
    return bool(unique) and not labelled
