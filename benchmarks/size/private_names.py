"""Names that a package keeps to itself, and that its tests use all the same."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PUBLIC = frozenset({"_asdict", "_field_defaults", "_fields", "_make", "_replace"})
"""What a ``NamedTuple`` offers to everybody."""


class Use(NamedTuple):
    """One use of a private name."""

    file: str
    line: int
    name: str


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore, says something, and is no ``NamedTuple``'s.

    >>> [name for name in ("_x", "_", "__init__", "_replace", "x_") if is_private(name)]
    ['_x']
    """
    named = name.startswith("_") and not name.startswith("__") and name.strip("_") != ""
    return named and name not in PUBLIC


def private_names(files: Iterable[Path]) -> frozenset[str]:
    """The private names that some of the sources define: functions, classes, values, attributes."""
    return frozenset(
        name
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in _defined(node)
        if is_private(name)
    )


def uses(root: Path, files: Iterable[Path], private: frozenset[str]) -> Iterator[Use]:
    """Where sources import such names, or take them from an object that is not their own.

    ``self._x`` is a class's own affair, and so is a name that the file defines itself.
    """
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        own = {name for node in nodes for name in _defined(node)}
        for node in nodes:
            for name in _used(node):
                if name in private and name not in own:
                    line = getattr(node, "lineno", 0)
                    yield Use(file.relative_to(root).as_posix(), line, name)


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg


def _used(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and not _is_self(node):
        yield node.attr
    elif isinstance(node, ast.ImportFrom):
        yield from (alias.name for alias in node.names)


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
