"""Imports commands only when they are run.

Each command needs only a part of the program: `stream-metrics send` needs no statistics,
`stream-metrics evaluate` no Redis. Importing all of it takes longer than most commands run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from types import CodeType
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

MARKUP: Final = "rich"


class LazyCommands(Mapping[str, Any]):
    """Click's commands by name.

    ``places`` has the function of each, as ``module:function``; ``groups`` are groups of commands.
    """

    def __init__(self, places: Mapping[str, str], groups: Mapping[str, Any]) -> None:
        self._places = places
        self._groups = groups

    def __getitem__(self, name: str) -> Any:
        if name in self._groups:
            return self._groups[name]
        module, function = self._places[name].split(":")
        alone = typer.Typer(rich_markup_mode=MARKUP, add_completion=False)
        alone.command(name)(getattr(import_module(module), function))
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._places, *self._groups))

    def __len__(self) -> int:
        return len(self._places) + len(self._groups)

    def described(self) -> dict[str, Any]:
        """Return commands with only a name and help, without importing their modules."""
        described = {
            name: TyperCommand(name, help=_docstring(*place.split(":")))
            for name, place in self._places.items()
        }
        return {**described, **self._groups}


def lazy_group(places: Mapping[str, str]) -> type[TyperGroup]:
    """Make the class of a group whose commands are the functions at ``places``."""

    class Group(TyperGroup):
        """A group of commands that are imported when they are run."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands: Any = LazyCommands(places, self.commands)

        def list_commands(self, ctx: Any) -> list[str]:
            """Return the names in the order of the help."""
            return list(self.commands)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            """Print the help."""
            commands = self.commands
            self.commands = commands.described()
            try:
                super().format_help(ctx, formatter)
            finally:
                self.commands = commands

    return Group


def _docstring(module: str, function: str) -> str | None:
    """Return the function's docstring from the module's bytecode, without running the module."""
    spec = find_spec(module)
    loader = None if spec is None else spec.loader
    code = loader.get_code(module) if isinstance(loader, InspectLoader) else None
    for constant in code.co_consts if code is not None else ():
        if isinstance(constant, CodeType) and constant.co_name == function:
            docstring = constant.co_consts[0]
            return inspect.cleandoc(docstring) if isinstance(docstring, str) else None
    return None
