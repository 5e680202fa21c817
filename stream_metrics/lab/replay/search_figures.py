"""What a report says of searches, taken from their rows where these are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from stream_metrics.lab.evaluation.retrieval import Retrieval, RetrievalState
from stream_metrics.lab.evaluation.scoring import ScoredRankings
from stream_metrics.lab.evaluation.summaries import Queries, QueriesState

_State = tuple[RetrievalState, QueriesState]

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(_State).decode


class SearchFigures:
    """Takes rows of ``queries.jsonl`` with scores by these metrics, sorted.

    Attributes:
        retrieval: Makes the block of the report.
        shown: The summary for the page.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        self.retrieval, self.shown = Retrieval(metrics), Queries.of(metrics)

    def add(self, row: Mapping[str, Any], without: Sequence[int]) -> None:
        """Add a row; ``without`` as for ``Retrieval.add``, which says what it raises."""
        self.retrieval.add(row, without)
        self.shown.add(row)

    def add_scored(self, scored: ScoredRankings, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add searches that have just been scored, with their rows."""
        self.retrieval.add_scored(scored)
        self.shown.add_scored(scored, rows)

    def save(self, path: Path) -> None:
        """Write to a file what has been taken."""
        path.write_bytes(_ENCODE((self.retrieval.state, self.shown.state)))

    @classmethod
    def load(cls, metrics: Sequence[str], paths: Iterable[Path]) -> Self:
        """What was saved of parts that have no conversation in common."""
        found = cls(metrics)
        shown = []
        for path in paths:
            retrieval, queries = _DECODE(path.read_bytes())
            found.retrieval.add_state(retrieval)
            shown.append(queries)
        found.shown.add_states(shown)
        return found
