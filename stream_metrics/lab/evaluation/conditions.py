"""Conditions for ``--fail-if``, such as ``srr>0.4``, under which a command fails."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Final, NamedTuple

from stream_metrics.core.metrics.labels import nothing_labelled
from stream_metrics.core.metrics.numerals import read_number
from stream_metrics.lab.evaluation.observations import UnknownFigure, canonical_name, uses_labels

Figures = Mapping[str, Mapping[str, float | bool | None]]
"""The parts of each figure by its name: ``value``, and others such as ``ci_low``."""

VALUE: Final = "value"
ANY: Final = "any"
COMBINED: Final = ".combined"
"""The end of the names of estimates, by people and a model together. They are compared by intervals
without a p that is adjusted, so they do not count for ``any``."""
BOOLEAN_PARTS: Final = ("worse",)
"""Parts that are true or false and are written without a comparison."""
OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_COMPARED: Final = re.compile(r"(?P<left>[^<>]+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<bound>[^<>=\s]+)")


class ConditionError(ValueError):
    """The text is not a condition, or names an unknown figure."""


class Condition(NamedTuple):
    """One condition.

    Attributes:
        text: The text as given.
        left: The figure, with or without a part.
        sign: The comparison operator. None: the part is boolean.
        bound: The value to compare with.
    """

    text: str
    left: str
    sign: str | None = None
    bound: float = 0.0


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConditionError: The text is not a condition. The message shows the syntax.

    >>> parse_condition("srr > 0.4")[1:]
    ('srr', '>', 0.4)
    >>> parse_condition("ndcg@10.worse")[1:3]
    ('ndcg@10.worse', None)
    """
    written = text.strip()
    match = _COMPARED.fullmatch(written)
    if match is None:
        if written.rpartition(".")[2] in BOOLEAN_PARTS and not re.search(r"[<>]", written):
            return Condition(text, written)
        raise ConditionError(
            f"{text!r} is not a condition: write a figure, one of > >= < <= and a number, as in "
            "'srr>0.4'; for a comparison also 'ndcg@10.difference<-0.02' or 'ndcg@10.worse'"
        )
    try:
        bound = read_number(match["bound"])
    except ValueError:
        bound = float("nan")
    if not isfinite(bound):
        raise ConditionError(f"{text!r}: {match['bound']!r} is not a number")
    return Condition(text, match["left"], match["sign"], bound)


def resolve(
    gate: Condition, names: Sequence[str], parts: Sequence[str] = (VALUE,)
) -> tuple[str, str]:
    """The canonical name of a condition's figure, and its part.

    Raises:
        ConditionError: There is no such figure or part. The message names the nearest ones.

    >>> resolve(parse_condition("ndcg_at_5.ci_low<0.5"), ["ndcg@5", "mrr"], ["value", "ci_low"])
    ('ndcg@5', 'ci_low')
    """
    head, dot, tail = gate.left.rpartition(".")
    boolean = gate.sign is None
    with_part = bool(dot) and tail in parts
    if boolean and not with_part:
        raise ConditionError(f"{gate.text!r}: .{tail} applies to comparisons only")
    if with_part and (tail in BOOLEAN_PARTS) != boolean:
        raise ConditionError(f"{gate.text!r}: .{tail} is true or false and takes no comparison")
    if head == ANY and boolean:
        return ANY, tail
    try:
        if with_part and gate.left not in names:
            return canonical_name(head, names), tail
        return canonical_name(gate.left, names), VALUE
    except UnknownFigure as error:
        also = ", ".join(part for part in parts if part != VALUE)
        hint = f"; a figure may be followed by a dot and one of {also}" if dot and also else ""
        raise ConditionError(f"{gate.text!r}: {error}{hint}") from error


def violations(
    gates: Sequence[Condition], figures: Mapping[str, Figures], parts: Sequence[str] = (VALUE,)
) -> list[str]:
    """A message for each condition that holds; empty if none does.

    An undefined figure also counts: a check that could not be made has not been passed.

    Args:
        gates: The conditions.
        figures: The figures of each run, by its name. A run with an empty name is not named in
            messages.
        parts: The parts that a figure may have.

    Raises:
        ConditionError: A condition names an unknown figure or part.

    >>> violations([parse_condition("srr>0.4")], {"": {"srr": {"value": 0.5}}})
    ["'srr>0.4': srr is 0.5000"]
    """
    names = list(dict.fromkeys(name for one in figures.values() for name in one))
    said = []
    for gate in gates:
        name, part = resolve(gate, names, parts)
        for run, found in figures.items():
            tested = [one for one in names if not one.endswith(COMBINED)]
            wanted = tested if name == ANY else [name]
            if name == ANY and not any(_defined(found.get(one), part) for one in wanted):
                said.append(
                    f"{gate.text!r}: nothing could be tested" + (f" in {run}" if run else "")
                )
            for one in wanted:
                why = _why(gate, one, part, found, skip_undefined=name == ANY)
                if why is not None:
                    said.append(f"{gate.text!r}: {why}" + (f" in {run}" if run else ""))
    return said


def _defined(found: Mapping[str, float | bool | None] | None, part: str) -> bool:
    return found is not None and found.get(part) is not None


def _why(
    gate: Condition,
    name: str,
    part: str,
    figures: Figures,
    *,
    skip_undefined: bool,
) -> str | None:
    """Why the condition holds for a figure; None if it does not hold."""
    value = figures.get(name, {}).get(part)
    about = name if part == VALUE else f"{name}.{part}"
    if value is None:
        unlabelled = uses_labels(name) and nothing_labelled(
            _count(figures, "unique"), _count(figures, "labelled")
        )
        why = ", because no document has a label" if unlabelled else ""
        return None if skip_undefined else f"{about} is not defined{why}"
    if gate.sign is None:
        return f"{name} is significantly worse" if value else None
    shown = f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
    return f"{about} is {shown}" if OPERATORS[gate.sign](value, gate.bound) else None


def _count(figures: Figures, name: str) -> float:
    return figures.get(f"counts.{name}", {}).get(VALUE) or 0
