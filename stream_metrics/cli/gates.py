"""``--fail-if``: conditions that make a command exit with code 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from stream_metrics.cli.common import UsageError, printable, stderr_console
from stream_metrics.lab.evaluation.conditions import (
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
    """Parse the conditions of ``--fail-if``, before anything is computed.

    Args:
        texts: The conditions as given.
        names: The names of the figures; None if they are not known yet.
        parts: The parts that a figure has.

    Raises:
        UsageError: A condition is invalid, or names an unknown figure or part.
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
    """Print a line on standard error for each condition that holds, and exit with code 1.

    Raises:
        UsageError: A condition names an unknown figure.
        typer.Exit: A condition holds.
    """
    try:
        said = violations(gates, figures, parts)
    except ConditionError as error:
        raise UsageError(f"--fail-if {error}") from error
    errors = stderr_console()
    for line in said:
        errors.print("[red]failed:[/red]", end=" ")
        errors.print(printable(line), markup=False)
    if said:
        raise typer.Exit(1)
