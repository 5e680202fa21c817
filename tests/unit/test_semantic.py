"""Semantic similarity: batches, and the errors for missing models and invalid output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError
from stream_metrics.lab.evaluation.generation import score_turns
from stream_metrics.lab.evaluation.semantic import (
    CrossEncoderSimilarity,
    HashedWords,
    SbertSimilarity,
    check_model,
    cross_encoder,
    sbert,
)
from stream_metrics.lab.metrics.generation import AnsweredTurn

PAIRS = [("the Nile", "Nile"), ("Nile", "Po"), ("Nile is long", "Nile"), ("Po", "Nile"), ("", "Po")]


class Scripted(HashedWords):
    """``HashedWords`` that records its batches, and scores pairs by the lengths of their texts."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[Any]] = []

    def encode(self, texts: list[str]) -> Any:
        """The vectors; records the batch."""
        self.batches.append(texts)
        return super().encode(texts)

    def predict(self, pairs: list[tuple[str, str]]) -> Any:
        """The difference of the lengths of both texts, as a column; records the batch."""
        self.batches.append(pairs)
        return np.array([[len(one) - len(other)] for one, other in pairs])


def test_each_distinct_text_is_encoded_once() -> None:
    """Texts of similar length share a batch, which has at most the configured size."""
    encoder = Scripted()

    SbertSimilarity(encoder, batch_texts=2).similarities(PAIRS)

    assert encoder.batches == [["", "Po"], ["Nile", "the Nile"], ["Nile is long"]]


def test_each_distinct_pair_is_scored_once() -> None:
    """Scores are in the order of the pairs, for every size of batches."""
    scorer = Scripted()

    found = CrossEncoderSimilarity(scorer, batch_pairs=2).similarities([*PAIRS, PAIRS[0]])

    assert found == [4.0, 2.0, 8.0, -2.0, -2.0, 4.0]
    assert [len(batch) for batch in scorer.batches] == [2, 2, 1]


def test_a_cosine_does_not_depend_on_the_batch() -> None:
    """Values are equal for every size; a text without tokens is similar to none."""
    found = [SbertSimilarity(HashedWords(), batch_texts=size).similarities(PAIRS)
             for size in (1, 2, 32)]  # fmt: skip

    assert found[0] == found[1] == found[2]
    assert found[0] == [1.0, 0.0, 0.57735, 0.0, 0.0]


def test_a_turn_takes_the_best_reference() -> None:
    """The row has the score of the reference with the same words, not that of the first one."""
    turn = AnsweredTurn("c", answer="the Nile", references=["Po", "Nile"])

    row = next(score_turns([turn], {"sbert_similarity": SbertSimilarity(HashedWords())}))

    assert row["scores"]["sbert_similarity"] == 1.0


def test_a_model_gets_no_empty_batch() -> None:
    """Without pairs, no model is called."""
    encoder = Scripted()

    assert SbertSimilarity(encoder).similarities([]) == []
    assert encoder.batches == []


class Wrong:
    """A model with output of the wrong shape."""

    def encode(self, texts: list[str]) -> Any:
        """One vector for all texts."""
        return np.zeros(8)

    def predict(self, pairs: list[tuple[str, str]]) -> Any:
        """Two labels."""
        return np.zeros((len(pairs), 2))


def test_a_model_of_another_kind_is_refused() -> None:
    """The error has the shape unless each text has one row, or each pair one number."""
    with pytest.raises(ValueError, match=r"shape \(8,\) for 2 texts"):
        SbertSimilarity(Wrong()).similarities(PAIRS[:1])
    with pytest.raises(ValueError, match=r"shape \(1, 2\) for 1 pairs; take a model with one"):
        CrossEncoderSimilarity(Wrong()).similarities(PAIRS[:1])


def test_a_batch_holds_at_least_one() -> None:
    """A size of 0 would loop forever."""
    with pytest.raises(ValueError, match="a batch of 0"):
        SbertSimilarity(HashedWords(), batch_texts=0)


@pytest.mark.parametrize("load", [sbert, cross_encoder, check_model])
def test_without_the_extra_the_error_says_how_to_install_it(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is the case where sentence-transformers is not installed."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)

    with pytest.raises(ModuleNotFoundError, match=r"run: pip install '\.\[semantic\]'"):
        load(tmp_path)


@pytest.mark.parametrize("load", [sbert, cross_encoder, check_model])
def test_a_model_must_be_a_local_folder(load: Any, tmp_path: Path) -> None:
    """The name of a model on a hub is no path, and nothing is downloaded."""
    with pytest.raises(FileNotFoundError, match="no such folder; name one that holds a model"):
        load(tmp_path / "all-MiniLM-L6-v2")


@pytest.mark.parametrize("option", ["--sbert", "--cross-encoder"])
def test_a_missing_model_is_refused_before_a_replay_reads(option: str, tmp_path: Path) -> None:
    """It is a usage error, and nothing is written."""
    (tmp_path / "in.jsonl").write_text("")
    command = ["replay", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out")]

    done = CliRunner().invoke(app, [*command, option, str(tmp_path / "model")])

    assert isinstance(done.exception, UsageError)
    assert "model: no such folder" in str(done.exception)
    assert not (tmp_path / "out").exists()
