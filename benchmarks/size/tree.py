"""The files of a commit: which of them the wheel installs, and on which floor each stands."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from setuptools import Distribution

from benchmarks.size.lines import language_of, logical_lines

FLOORS: Final = ("core", "clients", "live", "lab", "cli")
SERVICES: Final = ("core", "clients", "live")
"""The floors that a service is made of."""
KERNEL: Final = "kernel/src"
TABLE: Final = Path(__file__).with_name("floors.toml")


class UnknownFile(ValueError):
    """The table does not say on which floor a file stands."""


@dataclass(frozen=True, slots=True)
class Floors:
    """What ``floors.toml`` says."""

    floors: dict[str, str]
    traces: Sequence[str]
    left_out: Sequence[str]

    @classmethod
    def read(cls, file: Path = TABLE) -> Floors:
        """Read a table.

        Raises:
            ValueError: It names a floor that there is not.
        """
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        if unknown := set(table["floors"].values()) - set(FLOORS):
            raise ValueError(f"{file.name}: no such floor: {', '.join(sorted(unknown))}")
        return cls(table["floors"], table["traces"]["files"], table["left_out"]["files"])

    def floor_of(self, path: str) -> str:
        """The floor of a file, by the longest name that matches.

        Raises:
            UnknownFile: No name does.
        """
        names = [name for name in self.floors if _matches(path, name)]
        if not names:
            raise UnknownFile(f"{path} is on no floor: add it to {TABLE.name}")
        return self.floors[max(names, key=len)]


def _matches(path: str, name: str) -> bool:
    return path.startswith(name) if name.endswith("/") else path == name


def among(path: str, names: Sequence[str]) -> bool:
    """Whether one of the names stands for the file."""
    return any(_matches(path, name) for name in names)


@dataclass(frozen=True, slots=True)
class File:
    """An installed file: its path from the root, floor, language, and lines."""

    path: str
    floor: str
    language: str
    logical: int
    physical: int
    reads_traces: bool


@contextmanager
def checkout(commit: str, repository: Path) -> Iterator[Path]:
    """The folder with the files of ``commit``, which may also be a folder with a checkout.

    Raises:
        ValueError: It is neither a checkout nor a commit of the repository.
    """
    if (Path(commit) / "pyproject.toml").is_file():
        yield Path(commit).resolve()
        return
    made = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=repository, capture_output=True, check=False
    )
    if made.returncode:
        raise ValueError(
            f"{commit} is neither a checkout nor a commit: {made.stderr.decode().strip()}"
        )
    with TemporaryDirectory(prefix="size-") as folder:
        with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def installed(root: Path) -> list[str]:
    """The paths of what the wheel installs, as the build itself finds them."""
    with chdir(root):
        distribution = Distribution({"script_name": "setup.py"})
        distribution.parse_config_files()
        build = distribution.get_command_obj("build_py")
        build.ensure_finalized()
        names = set(build.get_source_files())
        for _, folder, _, data in build.data_files:
            names.update(os.path.join(folder, name) for name in data)
        return sorted(Path(os.path.normpath(name)).as_posix() for name in names)


def measured(root: Path, floors: Floors) -> list[File]:
    """What the wheel installs and the source of the kernel, counted.

    Raises:
        UnknownFile: A file is on no floor.
        UnknownLanguage: A file is in a language that nothing here counts.
    """
    kernel = sorted(file.relative_to(root).as_posix() for file in root.glob(f"{KERNEL}/**/*.rs"))
    return [
        _measured(root, path, floors)
        for path in (*installed(root), *kernel)
        if not among(path, floors.left_out)
    ]


def _measured(root: Path, path: str, floors: Floors) -> File:
    file = Path(path)
    text = (root / path).read_text(encoding="utf-8")
    return File(
        path,
        floors.floor_of(path),
        language_of(file),
        logical_lines(file, text),
        len(text.splitlines()),
        among(path, floors.traces),
    )
