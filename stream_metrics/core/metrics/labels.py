"""The sources of labels, which of them counts, and the metrics that depend on document labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeVar, get_args

HUMAN: Final = "human"
MODEL: Final = "model"
SOURCES: Final = (HUMAN, MODEL)
"""Who may have given a label. A label of one source never replaces one of the other."""

Counting = Literal["human_first", "human", "model"]
"""Whose labels count: a person's where there is one and else the model's, or only one source's."""
HUMAN_FIRST: Final[Counting] = "human_first"
COUNTING: Final[tuple[Counting, ...]] = get_args(Counting)

T = TypeVar("T")


def by_model(source: str | None, labeller: str | None, patterns: Sequence[str]) -> bool:
    """Whether labels are a model's.

    Args:
        source: What their event says, one of ``SOURCES``; None if it does not say it.
        labeller: Who gave them; None if the event does not say it.
        patterns: Case-insensitive patterns (``*``, ``?``) for labellers that are models. They apply
            to events that do not say their source.

    >>> by_model(None, "Judge-v3", ["judge*"]), by_model("human", "judge-v3", ["judge*"])
    (True, False)
    """
    if source is not None or labeller is None:
        return source == MODEL
    name = labeller.casefold()
    return any(fnmatchcase(name, pattern.casefold()) for pattern in patterns)


def counted(human: T | None, model: T | None, counting: Counting) -> T | None:
    """The label that counts, of a person's and a model's; None if none of those that may counts.

    >>> counted(0, 3, "human_first"), counted(None, 3, "human_first"), counted(0, 3, "model")
    (0, 3, 3)
    """
    if counting == MODEL or (human is None and counting != HUMAN):
        return model
    return human


def labelled_by(labelled: int, by_model: int) -> dict[str, dict[str, int]]:
    """Whose labels count, by source without those that have none; nothing if all are people's.

    >>> labelled_by(5, 2), labelled_by(2, 2), labelled_by(5, 0)
    ({'labelled_by': {'human': 3, 'model': 2}}, {'labelled_by': {'model': 2}}, {})
    """
    if not by_model:
        return {}
    by_human = labelled - by_model
    return {"labelled_by": ({HUMAN: by_human} if by_human else {}) | {MODEL: by_model}}


def labels_of_models(counts: Mapping[str, Any]) -> int:
    """How many of the labelled documents of a report have a model's label that counts.

    >>> labels_of_models({"labelled_by": {"human": 3, "model": 2}}), labels_of_models({})
    (2, 0)
    """
    number: int = counts.get("labelled_by", {}).get(MODEL, 0)
    return number


def by_model_text(counts: Mapping[str, Any]) -> str:
    """How many of the labelled documents of a report have a model's label; empty if none has.

    >>> by_model_text({"labelled_by": {"human": 3, "model": 1_002}}), by_model_text({})
    (', 1,002 of these by a model', '')
    """
    number = labels_of_models(counts)
    return f", {number:,} of these by a model" if number else ""


MODEL_OFF: Final = "Intervals of SRE and gains do not include how far the model is off."
"""What to know of figures in which labels of a model count."""


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
