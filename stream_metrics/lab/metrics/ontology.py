"""The similarity of retrieved terms to expected ones in an ontology."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from stream_metrics.core.metrics.ranking.batch import Judged


class Ontology(Protocol):
    """Similarities of an ontology's terms."""

    @property
    def formulas(self) -> frozenset[str]:
        """The names of the similarities, which the option ``formula`` accepts."""

    @property
    def unbounded(self) -> frozenset[str]:
        """The formulas whose values may be outside [0, 1]."""

    def similarity(self, expected: str, retrieved: str, formula: str) -> float:
        """The similarity of two terms; 0.0 for a term that is not in the ontology."""


def nearest(
    ontology: Ontology, expected: Sequence[str], retrieved: Iterable[str], formula: str
) -> list[float]:
    """Each retrieved term's largest similarity to an expected one; 1.0 for an exact match.

    Raises:
        ValueError: The ontology has no such formula, or the formula returns a value outside [0, 1]
            without being declared as unbounded.
    """
    if formula not in ontology.formulas:
        known = ", ".join(sorted(ontology.formulas))
        raise ValueError(f"the ontology has no formula {formula!r}; it has {known}")
    found = []
    for term in retrieved:
        values = [
            1.0 if term == one else ontology.similarity(one, term, formula) for one in expected
        ]
        for one, value in zip(expected, values, strict=True):
            if not 0.0 <= value <= 1.0 and (value != value or formula not in ontology.unbounded):
                raise ValueError(
                    f"the similarity {formula!r} of {one} and {term} is {value:g}, which is not in "
                    "[0, 1]; choose another formula, or declare it as unbounded"
                )
        found.append(max(values))
    return found


def with_similarities(
    row: Judged,
    ontology: Ontology,
    expected: Sequence[str],
    retrieved: Sequence[str],
    formulas: Mapping[str, int | None],
) -> Judged:
    """Add to a judged ranking the similarities that ``max_ont_sim`` needs.

    Args:
        row: The ranking.
        ontology: The source of the similarities.
        expected: The terms that should have been found. If empty, the metric is undefined.
        retrieved: The terms of the ranking, by rank.
        formulas: The similarities to compute, each with the depth to which it is needed; None is
            the whole ranking.

    Raises:
        ValueError: As for ``nearest``, or the ranking does not have one term per rank.
    """
    if len(retrieved) != len(row.grades):
        raise ValueError(f"{len(retrieved)} terms for a ranking of {len(row.grades)} results")
    found: dict[str, Sequence[float] | None] = dict.fromkeys(formulas)
    if expected:
        for formula, depth in formulas.items():
            near = nearest(ontology, expected, retrieved[:depth], formula)
            found[formula] = near + [0.0] * (len(retrieved) - len(near))
    return row._replace(similarities={**row.similarities, **found})
