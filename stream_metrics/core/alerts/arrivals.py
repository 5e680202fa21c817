"""Counts by arrival: what a batch adds to each agent's figures and what it takes back.

Windows put a search at the time of its event, and correct it there when a label comes. Evidence
needs each change once, in the minute in which it arrives.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from stream_metrics.core.engine.cells import CODES, LOOPS

# Families that are counted as they are.
_WHOLE: Final = ("d", "r", "s", "sg", "sr", "sG", "si", "a", "aa", "e")

COUNTS: Final[dict[str, str]] = {
    **{CODES[head].name: CODES[head].help for head in _WHOLE},
    "labelled_gate_decisions": "Gate decisions with a label",
    "missed_searches": "Skipped searches that were needed",
    "labelled_routes": "Routed searches with a label",
    "wrong_routes": "Routed searches that did not take the best route",
    "rerank_ndcg_shown": "NDCG of searches after reranking, in billionths",
    "rerank_ndcg_baseline": "NDCG of searches before reranking, in billionths",
}
"""The counts, with what each is."""

OF_LOOPS: Final = frozenset(
    series.name for series in CODES.values() if series.group == LOOPS and series.name in COUNTS
)
"""Counts that state under tables without ``loops`` does not have."""

BILLIONTHS: Final = frozenset({"rerank_ndcg_shown", "rerank_ndcg_baseline"})
"""Counts in billionths of what they count."""

YOUNG_MS: Final = 600_000
"""Records further than this from the present are no news: a backlog or a state that is read again
repeats hours, and what was wrong then must not look as if it were wrong now."""


def is_young(timestamp_ms: int | None, now_ms: int) -> bool:
    """Whether a record of this timestamp is news; one without a timestamp is not.

    >>> is_young(1_000, 600_000), is_young(1_000, 601_000), is_young(None, 0)
    (True, False, False)
    """
    return timestamp_ms is not None and abs(now_ms - timestamp_ms) < YOUNG_MS


def counts_of_state(loops: bool) -> frozenset[str]:
    """The counts of state with or without figures of loops; the others are absent, not 0.

    >>> "searches" in counts_of_state(False), "empty_searches" in counts_of_state(False)
    (True, False)
    """
    return frozenset(COUNTS) if loops else frozenset(COUNTS) - OF_LOOPS


@lru_cache(maxsize=8_192)
def counts_of(code: str) -> tuple[str, ...]:
    """The counts to which a series code adds.

    >>> counts_of("q|skip|yes"), counts_of("u")
    (('labelled_gate_decisions', 'missed_searches'), ())
    """
    head, *labels = code.split("|")
    if head in _WHOLE:
        return (CODES[head].name,)
    match head, *labels:
        case "q", "skip", "yes":
            return "labelled_gate_decisions", "missed_searches"
        case "q", _, "yes" | "no":
            return ("labelled_gate_decisions",)
        case "R", _, "no":
            return "labelled_routes", "wrong_routes"
        case "R", _, "yes":
            return ("labelled_routes",)
        case "ks", order:
            return (f"rerank_ndcg_{order}",)
    return ()
