"""Imports commands only when they are run.

Each command needs only a part of the program: `stream-metrics send` needs no statistics,
`stream-metrics evaluate` no Redis. Importing all of it takes longer than most commands run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

MARKUP: Final = "rich"


class LazyCommand(TyperCommand):
    """A command with only a name and a line of help, until it is run or asked for its own help.

    ``place`` has its function, as ``module:function``.
    """

    def __init__(self, name: str, place: str, line: str) -> None:
        super().__init__(name, help=line)
        self._place = place

    def load(self) -> Any:
        """Import the function; returns the whole command."""
        module, function = self._place.split(":")
        alone = typer.Typer(rich_markup_mode=MARKUP, add_completion=False)
        alone.command(self.name)(getattr(import_module(module), function))
        return typer.main.get_command(alone)

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """The context of the whole command, which runs in it."""
        return self.load().make_context(*arguments, **named)


def lazy_group(
    commands: Mapping[str, tuple[str, str]], default: str | None = None
) -> type[TyperGroup]:
    """The class of a group that has these commands first: the place and the line of each.

    What names no command is for the one called ``default``, if there is one.
    """

    class Group(TyperGroup):
        """A group of commands that are imported when they are run."""

        def __init__(self, *, commands: Any, **options: Any) -> None:
            super().__init__(commands={**lazy, **commands}, **options)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """See ``click.Group``."""
            if default is not None and (not args or args[0] not in (*self.commands, "--help")):
                args = [default, *args]
            found: list[str] = super().parse_args(ctx, args)
            return found

    lazy = {name: LazyCommand(name, *about) for name, about in commands.items()}
    return Group
