"""The order of the kernel's Rust modules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

Module = tuple[str, ...]

ROOT = Path(__file__).parents[2] / "kernel" / "src"
SOURCES: dict[Module, str] = {
    tuple(
        part for part in file.relative_to(ROOT).with_suffix("").parts if part not in ("lib", "mod")
    ): re.sub(r"//.*", "", file.read_text(encoding="utf-8"))
    for file in ROOT.rglob("*.rs")
}
"""The code of each module by its path in the crate."""


def used(module: Module, code: str) -> Iterator[Module]:
    """The modules that a module declares, and those on its paths from ``super`` and ``crate``."""
    for child in re.findall(r"\bmod (\w+);", code):
        yield (*module, child)
    for start, way, end in re.findall(r"\b(crate|super)::((?:\w+::)*)(\w+|\{[^}]*\})", code):
        for name in re.findall(r"[\w:]+", end):
            path = (*(module[:-1] if start == "super" else ()), *way.split("::")[:-1], name)
            yield next(path[:size] for size in range(len(path), -1, -1) if path[:size] in SOURCES)


@pytest.mark.parametrize("levels", [1, 9], ids=["files and folders", "all files"])
def test_the_modules_of_the_kernel_have_an_order(levels: int) -> None:
    """None of them uses one that uses it: each can be read after those that it uses."""
    graph: dict[Module, set[Module]] = {}
    for module, code in SOURCES.items():
        found = {other[:levels] for other in used(module, code)}
        graph.setdefault(module[:levels], set()).update(found - {module[:levels]})

    assert len(graph) > 1
    TopologicalSorter(graph).prepare()  # which raises if there is a cycle


def test_the_order_that_deduplication_describes_is_that_of_its_modules() -> None:
    """A module uses only modules of the groups before its own, of which each is named once."""
    described = (ROOT / "dedup" / "mod.rs").read_text(encoding="utf-8").partition("mod digests")[0]
    order = described.partition("the order is ")[2].partition(". A module")[0]
    place: dict[Module, int] = {
        ("dedup", name): number
        for number, group in enumerate(order.split(";"))
        for name in re.findall(r"`(\w+)`", group)
    }

    assert set(used(("dedup",), SOURCES["dedup",])) == set(place)
    for module in place:
        for other in used(module, SOURCES[module]):
            assert other[0] != "dedup" or place[other] < place[module]
