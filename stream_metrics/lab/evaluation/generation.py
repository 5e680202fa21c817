"""Scores of answers: the rows of ``turns.jsonl`` and the block ``generation`` of a report.

``score_turns`` produces rows, in any process. ``Generation`` summarises rows from any shard and in
any order into the same block.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import isfinite, nan
from typing import Any, Final, NamedTuple

import numpy as np

from stream_metrics.core.events.turns import turn_text
from stream_metrics.core.metrics.text import base_language
from stream_metrics.core.metrics.words import ARTICLES, WORDS_VERSION
from stream_metrics.lab.evaluation.estimates import (
    Block,
    Dimensions,
    Estimates,
    Intervals,
    dimensions_of,
)
from stream_metrics.lab.metrics.generation import (
    BY_NAME,
    LEXICAL,
    SEMANTIC,
    AnsweredTurn,
    Similarity,
    words_of,
)

Row = dict[str, Any]

OTHER: Final = "other"
"""All languages without lists of articles and stopwords."""
BATCH_TURNS: Final = 256
"""Turns whose texts a model scores in one batch."""

_NO_MODELS: Final[Mapping[str, Similarity]] = {}


class BadSimilarity(ValueError):
    """A model returned the wrong number of values or a non-finite value."""


# -- rows -------------------------------------------------------------------------------------


def score_turns(
    turns: Iterable[AnsweredTurn],
    models: Mapping[str, Similarity] = _NO_MODELS,
    *,
    batch_turns: int = BATCH_TURNS,
) -> Iterator[Row]:
    """Score the turns that have an answer: the rows of ``turns.jsonl``, in the order of the turns.

    Args:
        turns: Turns with or without an answer.
        models: The model of each semantic metric, by metric name (``generation.SEMANTIC``).
            Metrics without a model are not in the rows.
        batch_turns: The number of turns that a model scores at a time.

    Raises:
        ValueError: A model is given for a metric that takes none.
        BadSimilarity: A model returned too few values, or a non-finite one.

    >>> turn = AnsweredTurn("c", answer="the Nile", references=["Nile"], texts=["The Nile is long"])
    >>> next(score_turns([turn]))["scores"]["exact_match"]
    1.0
    """
    for name in models:
        if name not in SEMANTIC:
            raise ValueError(f"{name!r} takes no model; those that do are {', '.join(SEMANTIC)}")
    left = (turn for turn in turns if turn.answer is not None)
    while batch := list(islice(left, batch_turns)):
        judged = {name: _judged(name, models[name], batch) for name in SEMANTIC if name in models}
        for at, turn in enumerate(batch):
            row = _row(turn)
            row["scores"] |= {name: values[at] for name, values in judged.items()}
            yield row


def _row(turn: AnsweredTurn) -> Row:
    words = words_of(turn)
    scores: dict[str, float | None] = {}
    for name in LEXICAL:
        compute = BY_NAME[name].compute
        assert compute is not None
        scores[name] = compute(words)
    return {
        "conversation_id": turn.conversation_id,
        "turn": turn.turn,
        "agent": turn.agent,
        "dimensions": {name: turn.dimensions[name] for name in sorted(turn.dimensions)},
        "n_tokens": len(words.answer or ()),
        "n_references": len(words.references),
        "n_texts": words.texts,
        "scores": scores,
    }


def _judged(name: str, model: Similarity, turns: Sequence[AnsweredTurn]) -> list[float | None]:
    """Each turn's highest similarity to a reference answer; None without reference answers."""
    asked = [
        (at, (turn.answer or "", reference))
        for at, turn in enumerate(turns)
        for reference in turn.references
    ]
    pairs = list(dict.fromkeys(pair for _, pair in asked))
    given = model.similarities(pairs) if pairs else []
    if len(given) != len(pairs):
        raise BadSimilarity(f"{name}: the model gave {len(given)} values for {len(pairs)} pairs")
    by_pair = {pair: float(value) for pair, value in zip(pairs, given, strict=True)}
    best: list[float | None] = [None] * len(turns)
    for at, pair in asked:
        value = by_pair[pair]
        if not isfinite(value):
            turn = turns[at]
            raise BadSimilarity(
                f"{name}: the model gave {value} for turn {turn_text(turn.turn)} of conversation "
                f"{turn.conversation_id!r}; take another model"
            )
        found = best[at]
        best[at] = value if found is None else max(found, value)
    return best


# -- the block of a report --------------------------------------------------------------------


class RowKey(NamedTuple):
    unit: str
    dimensions: Mapping[str, str]


class Generation:
    """Summarises rows of ``turns.jsonl`` into the block ``generation``.

    The block is identical whatever the order of the rows and however they were divided among files.
    The scores, conversation id and dimensions of each row are kept in memory.
    """

    def __init__(self) -> None:
        self._places: list[RowKey] = []
        self._values: dict[str, array[float]] = {}
        self._counts: Counter[str] = Counter()
        self._languages: Counter[str] = Counter()
        self._dimensions = Dimensions()

    @property
    def dimensions(self) -> set[str]:
        """The names of all dimensions that some row has."""
        return self._dimensions.names

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row; raises ``KeyError`` if it is malformed."""
        known = self._dimensions.of(row)
        scores: Mapping[str, float | None] = row["scores"]
        for name in scores:
            if name not in self._values:
                self._values[name] = array("d", [nan] * len(self._places))
        for name, values in self._values.items():
            value = scores.get(name)
            values.append(nan if value is None else value)
        self._places.append(RowKey(row["conversation_id"], known))
        self._counts["empty_answer"] += not row["n_tokens"]
        self._counts["without_reference"] += not row["n_references"]
        self._counts["without_text"] += not row["n_texts"]
        language = base_language(known.get("language"))
        self._languages[language if language in ARTICLES else OTHER] += 1

    def block(
        self,
        *,
        intervals: Intervals | None = Intervals(),  # noqa: B008 - a value, never changed
        dimensions: Sequence[str] | None = None,
        words_version: int = WORDS_VERSION,
    ) -> Block | None:
        """The block; None without rows.

        Args:
            intervals: How to compute intervals, by resampling conversations. None: no bounds.
            dimensions: The dimensions to split by. None: each with 2 to ``MOST_STRATA`` values, the
                language first.
            words_version: The version of the rules for words by which the rows were computed.

        Raises:
            UnknownDimension: No turn has that dimension.
        """
        if not self._places:
            return None
        split = dimensions_of(self._places, dimensions, "turn")
        names = [name for name in BY_NAME if name in self._values]
        columns = {name: np.array(self._values[name]) for name in names}
        estimates = Estimates(self._places, intervals)
        return {
            "unit": "conversation",
            "turns": len(self._places),
            "turns_with_empty_answer": self._counts["empty_answer"],
            "turns_without_reference": self._counts["without_reference"],
            "turns_without_text": self._counts["without_text"],
            "words_version": words_version,
            "languages": dict(sorted(self._languages.items())),
            "metrics": estimates.over_all(columns),
            "strata": {name: estimates.of_strata(name, columns) for name in split},
        }
