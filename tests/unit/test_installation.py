"""What is installed has what its commands need, and no text advises what cannot be installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "stream_metrics"
ON_SPARK = PACKAGE / "spark.py"
OWN = ("stream-metrics", "stream-metrics-client")

READ = (".md", ".py", ".toml", ".yml", ".yaml", ".sh", ".rs", "Makefile", "Dockerfile")

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LOCAL = re.compile(r"['\"`]\.(?:/(\w+))?\[([a-z][\w,-]*)\]")

_COMMAND = re.compile(r"\b(?:pip3?|pipx|uv)(?: pip| tool)? (?:install|add|run)\b[^\n;&#]*")
_UPLOAD = re.compile(r"\b(?:twine upload|uv publish|cargo publish)\b.*")
_OURS = re.compile(rf"(?<![\w./-])(?:{'|'.join(OWN)})(?![\w-])|upload|publish")


@lru_cache
def extras(folder: str = "") -> dict[str, list[str]]:
    """The distributions that a project's base installation needs, at "", and each of its extras."""
    found = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"": found.get("dependencies", []), **found.get("optional-dependencies", {})}
    return {extra: [distribution(need) for need in needs] for extra, needs in wanted.items()}


def distribution(requirement: str) -> str:
    """The normalised name of the distribution that a requirement is about."""
    found = _NAME.match(requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """The other packages that a module imports, each with whether that is when it is imported."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names = [one.name for one in node.names]
            case ast.ImportFrom(module=str(name), level=0):
                names = [name]
            case _:
                continue
        for name in names:
            top = name.partition(".")[0]
            if top not in {*sys.stdlib_module_names, "compression", "stream_metrics"}:
                yield top, node not in inside


installed = lru_cache(packages_distributions)


@lru_cache
def distributions(name: str) -> frozenset[str]:
    """The distributions that have a package to import."""
    return frozenset(map(distribution, installed().get(name, [name])))


def matches(pattern: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
    """Where a pattern is found in the files that people read, or that run or print something."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in done.stdout.split("\0"):
        file = ROOT / name
        if name.endswith(READ) and file != Path(__file__) and file.is_file():
            for found in pattern.finditer(file.read_text(encoding="utf-8")):
                yield file.relative_to(ROOT), found


def test_what_modules_import_is_installed() -> None:
    """The base installation has it; what extras have is imported by the functions that need it.

    One module may import more: the one for Spark.
    """
    optional = {need for extra, needs in extras().items() if extra != "dev" for need in needs}
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in PACKAGE.rglob("*.py")
        if file != ON_SPARK
        for name, at_once in imports(file)
        if not distributions(name) & ({*extras()[""]} if at_once else optional)
    ]

    assert missing == []


def test_the_image_has_each_package_of_the_base_installation() -> None:
    """Its pins, from which ``make demo`` is installed as well, have all that commands need."""
    pins = (ROOT / "deploy/docker/requirements.txt").read_text(encoding="utf-8")
    pinned = {distribution(line) for line in re.findall(r"^[a-z0-9].*==", pins, re.M)}

    assert {*extras()[""]} <= pinned


def test_advice_names_extras_that_exist() -> None:
    """``'.[parquet]'`` installs something, wherever it is written."""
    unknown = [
        f"{file}: {found[0]}"
        for file, found in matches(_LOCAL)
        if not {*found[2].split(",")} <= {*extras(found[1] or "")}
    ]

    assert unknown == []


def test_hints_of_commands_name_extras_that_exist() -> None:
    """A command that lacks a package says which extra has it."""
    hints = re.compile(r"install_hint\(\s*\"[^\"]+\", \"([^\"]+)\", \"([^\"]+)\"")
    found = [(one[1], one[2]) for _, one in matches(hints)]

    assert len(found) > 3
    assert [(package, extra) for package, extra in found if package not in extras()[extra]] == []


def test_nothing_advises_our_packages_from_an_index() -> None:
    """They are on none, so that anybody could put others there under these names."""
    found = [*matches(_COMMAND), *matches(_UPLOAD)]

    assert len(found) > 5
    assert [f"{file}: {one[0]}" for file, one in found if _OURS.search(one[0])] == []


def test_no_extra_needs_a_package_of_ours() -> None:
    """Only the tools for development name this package, for its other extras."""
    assert [extra for extra, needs in extras().items() if {*needs} & {*OWN}] == ["dev"]
