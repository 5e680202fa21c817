"""``--fail-if``: conditions under which a command ends with exit code 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console

from stream_metrics.cli.common import UsageError, printable
from stream_metrics.evaluation.gates import (
    Condition,
    ConditionError,
    Figures,
    parse_condition,
    resolve,
    violations,
)

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        help="Exit with code 1 if this condition holds, such as 'srr>0.4'. May be repeated. A "
        "metric without a value fails too.",
        show_default=False,
    ),
]


def read_gates(
    texts: Sequence[str] | None, names: Sequence[str] | None, parts: Sequence[str]
) -> list[Condition]:
    """The conditions of ``--fail-if``, before anything is computed.

    Args:
        texts: As given.
        names: The figures that there will be; None if that is not known yet.
        parts: What a figure may be asked for.

    Raises:
        UsageError: One is no condition, or names what there is not.
    """
    try:
        gates = [parse_condition(text) for text in texts or ()]
        for gate in gates if names is not None else ():
            resolve(gate, names or (), parts)
    except ConditionError as error:
        raise UsageError(f"--fail-if {error}") from error
    return gates


def fail_if_crossed(
    gates: Sequence[Condition], figures: Mapping[str, Figures], parts: Sequence[str]
) -> None:
    """End with exit code 1 and a line on standard error for each condition that holds.

    Raises:
        UsageError: A condition names what there is not.
        typer.Exit: One holds.
    """
    try:
        said = violations(gates, figures, parts)
    except ConditionError as error:
        raise UsageError(f"--fail-if {error}") from error
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in said:
        errors.print("[red]failed:[/red]", end=" ")
        errors.print(printable(line), markup=False)
    if said:
        raise typer.Exit(1)
