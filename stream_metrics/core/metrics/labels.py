"""The metrics that depend on document labels, and when they have no basis."""

from __future__ import annotations

from typing import Final

LABEL_METRICS: Final = frozenset({"cg", "rg", "dcg", "drg", "avg_gain", "rag", "drag", "sre"})
"""By definition, these are 0 if no document has a label. Summaries then show no value, because the
documents found were not judged."""


def nothing_labelled(unique: float, labelled: float) -> bool:
    """Whether documents were found and none of them has a label.

    Args:
        unique: The number of documents found.
        labelled: The number of those with a label.

    >>> nothing_labelled(5, 0), nothing_labelled(5, 1), nothing_labelled(0, 0)
    (True, False, False)
    """
    return bool(unique) and not labelled
