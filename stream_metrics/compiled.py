"""Modules of this package that were compiled as they stand (``compiled/``), if they are installed.

``install`` makes imports find the compiled form of a module in place of its source. That is done
for all of them or for none, and only while each source is still the one that was compiled: who
changes a module runs it, not what it was before. ``STREAM_METRICS_KERNEL=python`` in the
environment leaves them aside, as it does the kernel.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parent


class Compiled(MetaPathFinder):
    """Finds modules by name in one folder."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """That of a compiled module, else None."""
        file = self._files.get(fullname)
        if file is None:
            return None
        loader = ExtensionFileLoader(fullname, str(file))
        return spec_from_file_location(fullname, file, loader=loader)


def install() -> bool:
    """Let imports find what is compiled; whether there is anything that fits the sources."""
    if os.environ.get("STREAM_METRICS_KERNEL") == "python":
        return False
    try:
        import stream_metrics_compiled as built
    except ModuleNotFoundError:
        return False
    folder = Path(str(built.__file__)).parent
    files = {name: _file(folder, name) for name in built.SOURCES}
    if not all(file.exists() for file in files.values()):  # they are another Python's
        return False
    if not all(_unchanged(name, digest) for name, digest in built.SOURCES.items()):
        return False
    sys.meta_path.insert(0, Compiled(files))
    return True


def _file(folder: Path, name: str) -> Path:
    *packages, module = name.split(".")[1:]
    return folder.joinpath(*packages, module + EXTENSION_SUFFIXES[0])


def _unchanged(name: str, digest: str) -> bool:
    """Whether the source of a module is the one with this SHA-256."""
    source = PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py")
    try:
        return hashlib.sha256(source.read_bytes()).hexdigest() == digest
    except FileNotFoundError:
        return False
