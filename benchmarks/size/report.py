"""The report on one commit, as text."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.figures import section, table
from benchmarks.size.call_path import Function, Ways, files_of
from benchmarks.size.imports import Import
from benchmarks.size.lines import statements
from benchmarks.size.private_names import private_names, uses
from benchmarks.size.tree import FLOORS, SERVICES, File

LARGEST = 500
"""Physical lines of a module that is not yet large."""
SLOWEST = 10


def lines(commit: str, files: Sequence[File]) -> str:
    """Logical lines by floor and language; what reads traces apart as well."""
    parts = [
        *((floor, [file for file in files if file.floor == floor]) for floor in FLOORS),
        (" + ".join(SERVICES), [file for file in files if file.floor in SERVICES]),
        ("all", files),
        ("of these, traces", [file for file in files if file.reads_traces]),
    ]
    languages = sorted({file.language for file in files}, key=lambda one: (one != "Python", one))
    rows: list[tuple[str, ...]] = [("", "files", *languages)]
    for name, of_part in parts:
        by_language: Counter[str] = Counter()
        for file in of_part:
            by_language[file.language] += file.logical
        counts = (f"{by_language[one]:,}" for one in languages)
        rows.append((name, f"{len(of_part):,}", *counts))
    right = tuple(range(1, len(languages) + 2))
    return section(f"Logical lines that the wheel installs: {commit}", table(rows, right=right))


def large_modules(files: Iterable[File]) -> str:
    """The modules with more lines than ``LARGEST``."""
    large = sorted(
        (file for file in files if file.physical > LARGEST), key=lambda one: -one.physical
    )
    rows = [(file.path, str(file.physical)) for file in large]
    return section(
        f"Modules over {LARGEST} lines, all of them counted: {len(large)}",
        table(rows, right=(1,)) if rows else "none\n",
    )


def private_uses(root: Path, *, names: bool) -> str:
    """How often tests use private names of the package."""
    private = private_names((root / "stream_metrics").rglob("*.py"))
    found = list(uses(root, sorted((root / "tests").rglob("*.py")), private))
    blocks = [
        f"{len(found)} uses of {len({use.name for use in found})} names in "
        f"{len({use.file for use in found})} files of tests\n"
    ]
    if names and found:
        blocks.append(table([(use.name, f"{use.file}:{use.line}") for use in sorted(found)]))
    return section("Private names in tests", *blocks)


def crossings(found: Sequence[tuple[str, str, Import]], *, names: bool) -> str:
    """Imports against the floors."""
    counts = Counter((here, there) for here, there, _ in found)
    rows = [
        (f"{here} imports {there}", str(count)) for (here, there), count in counts.most_common()
    ]
    blocks = [table(rows, right=(1,)) if rows else "none\n"]
    if names and found:
        blocks.append(table([(one.importer, one.imported) for _, _, one in found]))
    return section(f"Imports against the floors: {len(found)}", *blocks)


def ways(root: Path, found: Ways, *, names: bool) -> str:
    """Files and lines on the way of an event and of a late label."""
    parts = {
        "one event": found.event,
        "one late label": found.label,
        "an idle worker, scraped once": found.idle,
    }
    rows = [("", "files", "logical lines", "functions called", "their logical lines")]
    for name, functions in parts.items():
        files = files_of(functions)
        called = {file: {line for where, line in functions if where == file} for file in files}
        trees = {file: ast.parse((root / file).read_text(encoding="utf-8")) for file in files}
        rows.append(
            (
                name,
                f"{len(files):,}",
                f"{sum(len(statements(tree)) for tree in trees.values()):,}",
                f"{len(functions):,}",
                f"{sum(_of_functions(trees[file], called[file]) for file in files):,}",
            )
        )
    blocks = [table(rows, right=(1, 2, 3, 4))]
    if names:
        blocks += [_listed(name, functions) for name, functions in parts.items()]
    return section("The way from Kafka to /metrics, without the kernel", *blocks)


def _of_functions(tree: ast.AST, first_lines: set[int]) -> int:
    """Logical lines of the functions that begin on these lines; of nested ones once."""
    inside = {
        id(statement)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _first_line(node) in first_lines
        for statement in statements(node)
    }
    return len(inside)


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The line that code objects name: that of the first decorator, if there is one."""
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _listed(name: str, functions: frozenset[Function]) -> str:
    counts = Counter(file for file, _ in functions)
    return f"{name}: functions called by file\n" + table(
        [(file, str(count)) for file, count in sorted(counts.items())], right=(1,)
    )


def times_of_tests(file: Path) -> str:
    """The sum of test times in a file of JUnit's format, by folder, and the slowest tests.

    Raises:
        ValueError: It is no such file.
    """
    try:
        tree = ElementTree.parse(file)  # noqa: S314  (pytest wrote it for us)
    except ElementTree.ParseError as error:
        raise ValueError(f"{file} is not XML: {error}") from None
    cases = [
        (case.get("classname", ""), case.get("name", ""), float(case.get("time", "0")))
        for case in tree.iter("testcase")
    ]
    if not cases:
        raise ValueError(f"{file} has no test case; pytest --junit-xml writes one for each test")
    folders: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for module, _, seconds in cases:
        folder = ".".join(module.split(".")[:2])
        folders[folder] += seconds  # type: ignore[assignment]
        counts[folder] += 1
    rows = [("", "tests", "seconds")]
    rows += [(name, str(counts[name]), f"{spent:.0f}") for name, spent in folders.most_common()]
    rows.append(("all", str(len(cases)), f"{sum(spent for _, _, spent in cases):.0f}"))
    slowest = sorted(cases, key=lambda case: -case[2])[:SLOWEST]
    return section(
        f"Test times: {file.name}",
        table(rows, right=(1, 2)),
        table([(f"{spent:.1f} s", f"{module}::{name}") for module, name, spent in slowest]),
    )
