"""Imports from one module of ours to another, and those that go against the floors."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.size.tree import FLOORS, Floors

BELOW: Final[Mapping[str, frozenset[str]]] = {
    "core": frozenset({"core"}),
    "clients": frozenset({"core", "clients"}),
    "live": frozenset({"core", "clients", "live"}),
    "lab": frozenset({"core", "clients", "lab"}),
    "cli": frozenset(FLOORS),
}
"""What each floor may import."""


class Import(NamedTuple):
    """One module of ours that another imports; both as paths from the root."""

    importer: str
    imported: str


def imports(root: Path, package: str = "stream_metrics") -> Iterator[Import]:
    """Every import between modules of the package, also those in functions and for types only."""
    files = {
        _name(file, root): file.relative_to(root).as_posix() for file in _modules(root, package)
    }
    for path in files.values():
        tree = ast.parse((root / path).read_text(encoding="utf-8"))
        found = {files[name] for name in _imported(tree, files)} - {path}
        yield from (Import(path, one) for one in sorted(found))


def against(found: Iterable[Import], floors: Floors) -> list[tuple[str, str, Import]]:
    """Imports of a floor that the importer's floor must not know, with both floors."""
    return [
        (here, there, one)
        for one in found
        if (there := floors.floor_of(one.imported))
        not in BELOW[here := floors.floor_of(one.importer)]
    ]


def _modules(root: Path, package: str) -> list[Path]:
    return sorted((root / package).rglob("*.py"))


def _name(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.AST, known: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else str(node.module)
