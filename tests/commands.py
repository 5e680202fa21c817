"""All commands of ``stream-metrics``."""

from __future__ import annotations

from typing import Any

import typer

from stream_metrics.cli import app
from stream_metrics.cli.lazy_commands import LazyCommand


def commands() -> dict[str, Any]:
    """Every command by its words, as ``dlq list``, and the program itself by none."""
    found: dict[str, Any] = {}

    def visit(command: Any, words: str) -> None:
        found[words] = command.load() if isinstance(command, LazyCommand) else command
        for name, inner in getattr(command, "commands", {}).items():
            visit(inner, f"{words} {name}".strip())

    visit(typer.main.get_command(app), "")
    return found


def leaves() -> dict[str, Any]:
    """The same without groups of commands."""
    return {name: each for name, each in commands().items() if not hasattr(each, "commands")}
