"""The parts of a replay, by the functions on the stack."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.machine import ROOT
from benchmarks.stacks import PARTS, STAGES, part_of


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (["main", "run", "compute", "Replay.feed", "read_again"], "pieces: decoding and digests"),
        (["main", "compute", "Replay.feed", "Replay.flush"], "pieces: the engine's step"),
        (["main", "compute", "write_lines"], "pieces"),
        (["main", "write_report_of_pieces", "write_lines"], "merging"),
        (["main", "_run"], "start and end"),
    ],
)
def test_a_stack_belongs_to_its_innermost_part(names: list[str], part: str) -> None:
    """The outermost function of a stage decides first."""
    assert part_of(names) == part


def test_each_part_has_a_function() -> None:
    """A function that has another name now would be missing in the table without a word."""
    known = {name for path in (ROOT / "stream_metrics").rglob("*.py") for name in functions(path)}

    for functions_of in (STAGES, *PARTS.values()):
        for part, names in functions_of.items():
            assert known.intersection(names), f"{part}: none of {names} is left"


def functions(path: Path) -> Iterator[str]:
    """The qualified names of the functions in a file."""

    def inside(node: ast.AST, prefix: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from inside(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}"
                yield from inside(child, f"{prefix}{child.name}.<locals>.")
            else:
                yield from inside(child, prefix)

    return inside(ast.parse(path.read_text()), "")
