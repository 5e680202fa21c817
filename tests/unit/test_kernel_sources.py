"""What the kernel has, the order of its modules, and what the documents say of both."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from stream_metrics.core import compiled

Module = tuple[str, ...]

PROJECT = Path(__file__).parents[2]
ROOT = PROJECT / "kernel" / "src"
TYPES = PROJECT / "stream_metrics" / "_engine.pyi"
MADE_BY_HELPERS = frozenset({"Fingerprints", "Index"})
"""Classes whose objects the program gets from a ``Deduplicator``."""
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


def test_the_program_calls_all_that_the_kernel_has() -> None:
    """Each function and class of the kernel is called by the program, or made by one that is."""
    typed = ast.parse(TYPES.read_text(encoding="utf-8")).body
    named = {one.name for one in typed if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    program = (file.read_text("utf-8") for file in (PROJECT / "stream_metrics").rglob("*.py"))
    called = {name for text in program for name in re.findall(r"\bcompiled\.(\w+)\(", text)}

    assert named - MADE_BY_HELPERS == set(compiled.__all__)
    assert set(compiled.__all__) <= called


def test_the_page_lists_each_module_of_the_kernel_with_its_helpers() -> None:
    """In the table those with helpers, below it those that they share."""
    page = (PROJECT / "docs" / "concepts" / "compiled.md").read_text(encoding="utf-8")
    section = page.partition("## What the kernel has")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.M)
    shared = re.findall(r"`(\w+)`", section.partition("They share ")[2].partition(".\n")[0])
    helpers = {
        module[0]: set(re.findall(r"(?:wrap_pyfunction!\(|add_class::<)(\w+)", code))
        for module, code in SOURCES.items()
        if len(module) == 1
    }

    assert {name: set(re.findall(r"\w+", named)) for name, named in rows} == {
        name: found - MADE_BY_HELPERS for name, found in helpers.items() if found
    }
    assert sorted(shared) == sorted(name for name, found in helpers.items() if not found)


def test_the_documents_name_what_mypyc_compiles_and_which_of_it_the_kernel_repeats() -> None:
    """The folders of the modules, and each module that calls a helper of the kernel."""
    page = (PROJECT / "docs" / "concepts" / "compiled.md").read_text(encoding="utf-8")
    decision = next((PROJECT / "docs" / "adr").glob("0004-*.md")).read_text(encoding="utf-8")
    listed = [Path(path) for path in runpy.run_path(str(PROJECT / "setup.py"))["MODULES"]]
    named = page.partition("**The compiled engine** is ")[2].partition(", compiled")[0]
    calls = [one for one in listed if "= compiled." in (PROJECT / one).read_text("utf-8")]

    assert {f"stream_metrics/{one}" for one in re.findall("`(.+?)`", named)} == {
        str(one.parent) for one in listed
    }
    assert {f"stream_metrics/{one}" for one in re.findall(r"`(core/[\w/]+\.py):", decision)} == {
        str(one) for one in calls
    }
