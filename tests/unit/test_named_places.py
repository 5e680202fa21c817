"""Docstrings and comments name modules, functions and files that exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from stream_metrics.cli.settings import Settings
from tests.unit.test_docs import names_in

ROOT = Path(__file__).parents[2]
ROOMS = (
    "stream_metrics",
    "client",
    "kernel/src",
    "docs",
    "deploy",
    "examples",
    "benchmarks",
    "tests",
)
PROGRAMS = {".py", ".rs", ".js", ".lua"}
DATA = {"json", "jsonl", "html", "parquet"}
NOT_OURS = {"openinference.span.kind", "evaluations.0.evaluation.score"}  # attributes of spans

_NAME = re.compile(r"`([a-z]\w*(?:\.\w+)+)`")
_PATH = re.compile(
    r"(?<![\w./:$*}{-])[a-z][\w-]*(?:/[\w.-]+)+\.(?:py|rs|js|lua|toml|ya?ml|md)(?!\w)"
)


@lru_cache
def paths() -> list[Path]:
    """The files of this repository, as far as sources name them."""
    places = ("[!.]*.*", "[!.]*/*.*", *(f"{room}/**/*.*" for room in ROOMS))
    return [path for place in places for path in ROOT.glob(place)]


@lru_cache
def sources() -> dict[Path, str]:
    """The texts of all programs."""
    programs = (path for path in paths() if path.suffix in PROGRAMS)
    return {path: path.read_text(encoding="utf-8") for path in programs}


@lru_cache
def modules() -> dict[tuple[str, ...], list[Path]]:
    """Modules and packages by the last parts of their names, also those with types alone here."""
    found = defaultdict(list)
    for path in paths():
        if path.suffix in {".py", ".pyi"}:
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            for first in range(len(parts)):
                found[parts[first:]].append(path)
    return found


@lru_cache
def files() -> frozenset[str]:
    """The last parts of all paths, as far up as the root."""
    parts = [path.relative_to(ROOT).parts for path in paths()]
    return frozenset("/".join(each[first:]) for each in parts for first in range(len(each)))


def is_there(name: str) -> bool:
    """Whether the dotted name is that of a module, or of something in one."""
    parts = tuple(name.split("."))
    return parts in modules() or any(
        ".".join(parts[size:]) in names_in(path)
        for size in range(1, len(parts))
        for path in modules().get(parts[:size], ())
    )


def is_setting(name: str) -> bool:
    """Whether it is a setting, or follows from some."""
    table, _, rest = name.partition(".")
    field = Settings.model_fields.get(table)
    return field is not None and rest in {
        *dir(field.annotation),
        *getattr(field.annotation, "model_fields", ()),
    }


def named(pattern: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    """Each name with the file that has it."""
    for path, text in sources().items():
        yield from ((path, match[1]) for match in pattern.finditer(text))


def objects(path: Path) -> set[str]:
    """The names of all arguments and attributes in a module."""
    nodes = list(ast.walk(ast.parse(sources()[path])))
    attributes = {one.attr.removeprefix("_") for one in nodes if isinstance(one, ast.Attribute)}
    return attributes.union(one.arg for one in nodes if isinstance(one, ast.arg))


def test_modules_and_what_they_have_are_there() -> None:
    """``package.module.function`` is there, if it begins with a module's name; in the kernel's
    comments it names the Python that is repeated."""
    begins = {part for parts in modules() for part in parts}
    found = list(named(_NAME))
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in found
        if name.split(".")[0] in begins
        and name.split(".")[-1] not in DATA
        and name not in files() | NOT_OURS
        and not is_there(name)
        and not is_setting(name)
        and not (path.suffix == ".py" and name.split(".")[0] in objects(path))
    ]

    assert len([path for path, _ in found if path.suffix == ".rs"]) > 15
    assert missing == []


def test_files_are_there() -> None:
    """A path is that of a file, from the root or from a folder on; tests make some up."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in sources().items()
        if "unit" not in path.parts
        for name in _PATH.findall(text)
        if name not in files()
    ]

    assert missing == []
