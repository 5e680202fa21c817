"""Conditions such as ``srr>0.4`` under which a command fails: what ``--fail-if`` takes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Final, NamedTuple

from stream_metrics.evaluation.observed import UnknownFigure, canonical_name, of_labels
from stream_metrics.metrics.labelled import nothing_labelled
from stream_metrics.metrics.numerals import read_number

Figures = Mapping[str, Mapping[str, float | bool | None]]
"""By the name of a figure its parts: ``value``, and others such as ``ci_low``."""

VALUE: Final = "value"
ANY: Final = "any"
CONDITIONS: Final = ("worse",)
"""Parts that are true or false; they are written without a comparison."""
OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_COMPARED: Final = re.compile(r"(?P<left>[^<>]+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<bound>[^<>=\s]+)")


class GateError(ValueError):
    """What was given is no condition, or names what is not there."""


class Gate(NamedTuple):
    """One condition.

    Attributes:
        text: As it was given.
        left: The figure, with a part or without.
        sign: The comparison; None: the part is true or false by itself.
        bound: What is compared with.
    """

    text: str
    left: str
    sign: str | None = None
    bound: float = 0.0


def parse_gate(text: str) -> Gate:
    """The condition that ``text`` writes.

    Raises:
        GateError: It is none; the message says how one is written.

    >>> parse_gate("srr > 0.4")[1:]
    ('srr', '>', 0.4)
    >>> parse_gate("ndcg@10.worse")[1:3]
    ('ndcg@10.worse', None)
    """
    written = text.strip()
    match = _COMPARED.fullmatch(written)
    if match is None:
        if written.rpartition(".")[2] in CONDITIONS and not re.search(r"[<>]", written):
            return Gate(text, written)
        raise GateError(
            f"{text!r} is no condition: write a figure, one of > >= < <= and a number, as in "
            "'srr>0.4'; of a comparison also 'ndcg@10.difference<-0.02' or 'ndcg@10.worse'"
        )
    try:
        bound = read_number(match["bound"])
    except ValueError:
        bound = float("nan")
    if not isfinite(bound):
        raise GateError(f"{text!r}: {match['bound']!r} is no number")
    return Gate(text, match["left"], match["sign"], bound)


def resolved(gate: Gate, names: Sequence[str], parts: Sequence[str] = (VALUE,)) -> tuple[str, str]:
    """The figure and the part that a condition is about, among those there are.

    Raises:
        GateError: There is no such figure or part; the message has the nearest.

    >>> resolved(parse_gate("ndcg_at_5.ci_low<0.5"), ["ndcg@5", "mrr"], ["value", "ci_low"])
    ('ndcg@5', 'ci_low')
    """
    head, dot, tail = gate.left.rpartition(".")
    boolean = gate.sign is None
    with_part = bool(dot) and tail in parts
    if boolean and not with_part:
        raise GateError(f"{gate.text!r}: .{tail} is of comparisons only")
    if with_part and (tail in CONDITIONS) != boolean:
        raise GateError(f"{gate.text!r}: .{tail} is true or false, and compared with nothing")
    if head == ANY and boolean:
        return ANY, tail
    try:
        if with_part and gate.left not in names:
            return canonical_name(head, names), tail
        return canonical_name(gate.left, names), VALUE
    except UnknownFigure as error:
        also = ", ".join(part for part in parts if part != VALUE)
        hint = f"; behind a figure may stand a point and one of {also}" if dot and also else ""
        raise GateError(f"{gate.text!r}: {error}{hint}") from error


def crossed(
    gates: Sequence[Gate], figures: Mapping[str, Figures], parts: Sequence[str] = (VALUE,)
) -> list[str]:
    """What to say of each condition that holds; nothing if none does.

    A figure that is not defined fails as well: a check that could not be made has not been passed.

    Args:
        gates: The conditions.
        figures: Of each run, by its name; the name is not said if there is only one.
        parts: What a figure may be asked for.

    Raises:
        GateError: A condition names what is not there.

    >>> crossed([parse_gate("srr>0.4")], {"": {"srr": {"value": 0.5}}})
    ["'srr>0.4': srr is 0.5000"]
    """
    names = list(dict.fromkeys(name for one in figures.values() for name in one))
    said = []
    for gate in gates:
        name, part = resolved(gate, names, parts)
        for run, found in figures.items():
            wanted = names if name == ANY else [name]
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
    gate: Gate,
    name: str,
    part: str,
    figures: Figures,
    *,
    skip_undefined: bool,
) -> str | None:
    """Why a condition holds; None if it does not."""
    value = figures.get(name, {}).get(part)
    about = name if part == VALUE else f"{name}.{part}"
    if value is None:
        unlabelled = of_labels(name) and nothing_labelled(
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
