"""Semantic similarity of answers by local models (the extra ``semantic``).

``sbert`` and ``cross_encoder`` load a local model by its path; nothing is downloaded.
``SbertSimilarity`` and ``CrossEncoderSimilarity`` accept any ``Encoder`` or ``PairScorer``.
``HashedWords`` is an encoder without weights.

Values are rounded to ``DECIMALS``, because the last bits of a model's results depend on the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core.metrics.text import tokens
from stream_metrics.lab.evaluation.generation import BadSimilarity
from stream_metrics.lab.extras import install_hint
from stream_metrics.lab.metrics.generation import Similarity

BATCH_TEXTS: Final = 32
DECIMALS: Final = 6

Floats = NDArray[np.float64]
_T = TypeVar("_T")


class BadModel(Exception):
    """The folder does not contain a model of the required kind."""


class Encoder(Protocol):
    """Computes vectors of texts."""

    def encode(self, texts: list[str]) -> Any:
        """The vectors of a batch of texts, as rows of an array."""


class PairScorer(Protocol):
    """Scores pairs of texts."""

    def predict(self, pairs: list[tuple[str, str]]) -> Any:
        """One number for each pair of a batch."""


class SbertSimilarity:
    """Cosine of the embeddings of two texts, in [-1, 1]; 0.0 if one of them is all zeros.

    Each distinct text is encoded once per call, in batches of texts of similar length.

    Args:
        encoder: The model.
        batch_texts: The number of texts in a batch.

    Raises:
        ValueError: The batch size is less than 1.
        BadSimilarity: Raised by ``similarities`` if the encoder does not return one vector per
            text.

    >>> SbertSimilarity(HashedWords()).similarities([("the Nile", "Nile"), ("Nile", "?")])
    [1.0, 0.0]
    """

    def __init__(self, encoder: Encoder, *, batch_texts: int = BATCH_TEXTS) -> None:
        self._encoder, self._size = encoder, _at_least_one(batch_texts)

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The cosine of each pair, in the order given."""
        texts = sorted(
            {text for pair in pairs for text in pair}, key=lambda text: (len(text), text)
        )
        vectors: dict[str, Floats] = {}
        for batch in _batches(texts, self._size):
            rows = np.asarray(self._encoder.encode(batch), dtype=np.float64)
            if rows.ndim != 2 or len(rows) != len(batch):
                raise BadSimilarity(
                    f"the encoder gave an array of shape {rows.shape} for {len(batch)} texts; "
                    "one row per text is needed"
                )
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
            vectors.update(zip(batch, unit, strict=True))
        cosines = (float(vectors[one] @ vectors[other]) for one, other in pairs)
        return [round(min(1.0, max(-1.0, cosine)), DECIMALS) + 0.0 for cosine in cosines]


class CrossEncoderSimilarity:
    """The score of a model that reads both texts of a pair, on the model's own scale.

    Args:
        scorer: The model.
        batch_pairs: The number of pairs in a batch.

    Raises:
        ValueError: The batch size is less than 1.
        BadSimilarity: Raised by ``similarities`` if the model does not return one number per
            pair.
    """

    def __init__(self, scorer: PairScorer, *, batch_pairs: int = BATCH_TEXTS) -> None:
        self._scorer, self._size = scorer, _at_least_one(batch_pairs)

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The score of each pair, in the order given; each distinct pair is scored once."""
        distinct = sorted(set(pairs), key=lambda pair: (len(pair[0]) + len(pair[1]), pair))
        scores: dict[tuple[str, str], float] = {}
        for batch in _batches(distinct, self._size):
            found = np.asarray(self._scorer.predict(batch), dtype=np.float64)
            if found.shape not in ((len(batch),), (len(batch), 1)):
                raise BadSimilarity(
                    f"the cross-encoder gave an array of shape {found.shape} for {len(batch)} "
                    "pairs; take a model with one label"
                )
            scores.update(zip(batch, found.reshape(-1).tolist(), strict=True))
        return [round(scores[pair], DECIMALS) + 0.0 for pair in pairs]


class HashedWords:
    """An encoder without weights that counts tokens by hash.

    It does not capture meaning. It is an example of an ``Encoder``, and allows trying semantic
    metrics without a model.
    """

    def __init__(self, dimensions: int = 256) -> None:
        self._dimensions = dimensions

    def encode(self, texts: list[str]) -> Floats:
        """One row per text; a text without tokens has zeros only."""
        rows = np.zeros((len(texts), self._dimensions))
        for row, text in zip(rows, texts, strict=True):
            for token in tokens(text):
                hashed = int.from_bytes(blake2b(token.encode(), digest_size=8).digest())
                row[hashed % self._dimensions] += 1
        return rows


# -- sentence-transformers --------------------------------------------------------------------


def sbert(path: Path, *, batch_texts: int = BATCH_TEXTS) -> SbertSimilarity:
    """Similarity by the sentence-transformers model in the folder ``path``.

    Raises:
        FileNotFoundError: There is no such folder.
        BadModel: The folder does not contain such a model.
        ModuleNotFoundError: sentence-transformers is not installed; the message says how to.
    """
    return SbertSimilarity(_loaded("SentenceTransformer", path), batch_texts=batch_texts)


def cross_encoder(path: Path, *, batch_pairs: int = BATCH_TEXTS) -> CrossEncoderSimilarity:
    """Similarity by the cross-encoder in the folder ``path``.

    Raises:
        FileNotFoundError: There is no such folder.
        BadModel: The folder does not contain such a model.
        ModuleNotFoundError: sentence-transformers is not installed; the message says how to.
    """
    return CrossEncoderSimilarity(_loaded("CrossEncoder", path), batch_pairs=batch_pairs)


_LOADERS: Final[Mapping[str, Callable[[Path], Similarity]]] = {
    "sbert_similarity": sbert,
    "cross_encoder_similarity": cross_encoder,
}


@lru_cache(maxsize=1)
def models_of(folders: tuple[tuple[str, str], ...]) -> Mapping[str, Similarity]:
    """Load the models of metrics from their folders, once per process.

    Raises:
        BadModel: A folder does not contain such a model.
        FileNotFoundError, ModuleNotFoundError: As for ``check_model``.
    """
    return {name: _LOADERS[name](Path(folder)) for name, folder in folders}


def check_model(path: Path) -> None:
    """Check that a model can probably be loaded, without loading it.

    Raises:
        FileNotFoundError: There is no such folder.
        ModuleNotFoundError: sentence-transformers is not installed; the message says how to.
    """
    _folder(path)
    if find_spec("sentence_transformers") is None:
        raise _missing()


class _WithoutProgressBar:
    """Wraps a sentence-transformers model to hide progress bars and pass batches unchanged."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def encode(self, texts: list[str]) -> Any:
        return self._model.encode(texts, batch_size=len(texts), show_progress_bar=False)

    def predict(self, pairs: list[tuple[str, str]]) -> Any:
        return self._model.predict(pairs, batch_size=len(pairs), show_progress_bar=False)


def _loaded(kind: str, path: Path) -> _WithoutProgressBar:
    folder = _folder(path)
    library = _library()
    try:
        return _WithoutProgressBar(getattr(library, kind)(folder, local_files_only=True))
    except (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadModel(f"{path}: no {kind} can be loaded from this folder: {first}") from error


def _folder(path: Path) -> str:
    if not path.is_dir():
        raise FileNotFoundError(
            f"{path}: no such folder; name one that holds a model, as its save method writes it"
        )
    return str(path)


def _library() -> Any:
    try:
        import sentence_transformers
    except ModuleNotFoundError as error:
        if error.name != "sentence_transformers":
            raise
        raise _missing() from error
    return sentence_transformers


def _missing() -> ModuleNotFoundError:
    return ModuleNotFoundError(
        install_hint("semantic similarity", "sentence-transformers", "semantic"),
        name="sentence_transformers",
    )


def _at_least_one(size: int) -> int:
    if size < 1:
        raise ValueError(f"a batch of {size}: it holds at least 1")
    return size


def _batches(items: list[_T], size: int) -> Iterator[list[_T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
