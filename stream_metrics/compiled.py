"""Modules of this package that were compiled as they stand (``compiled/``), if they are installed.

``install`` makes imports find the compiled form of a module in place of its source. That is done
for all of them or for none, and only while each source that the compiler read is the same still,
which are those too that it only took constants and types from: who changes a module runs it, not
what it was before. ``STREAM_METRICS_KERNEL=python`` in the environment leaves them aside, as it
does the kernel.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parent
BROKEN = (
    "the installation of stream-metrics-compiled is incomplete. Install it again (make kernel), or "
    "set STREAM_METRICS_KERNEL=python to use Python code"
)


class Loader(ExtensionFileLoader):
    """Says what to do where the file of a module cannot be loaded."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module; what it imports has errors of its own."""
        try:
            return super().create_module(spec)
        except ImportError as error:
            if error.path != self.path:
                raise
            raise ImportError(BROKEN, name=error.name, path=error.path) from error


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
        loader = Loader(fullname, str(file))
        return spec_from_file_location(fullname, file, loader=loader)


def install() -> bool:
    """Let imports find what is compiled; whether there is anything that fits the sources."""
    if os.environ.get("STREAM_METRICS_KERNEL") == "python":
        return False
    try:
        import stream_metrics_compiled as built
    except ModuleNotFoundError:
        return False
    modules, sources = getattr(built, "MODULES", ()), getattr(built, "SOURCES", {})
    if not modules:  # a folder that was left behind, or of another version
        return False
    folder = Path(str(built.__file__)).parent
    files = {name: _file(folder, name) for name in modules}
    if not all(file.exists() for file in files.values()):  # they are another Python's
        return False
    if not all(_unchanged(path, digest) for path, digest in sources.items()):
        return False
    try:
        import_module(f"{built.__name__}__mypyc")  # where the code of all modules is
    except ImportError as error:
        raise ImportError(BROKEN) from error
    sys.meta_path.insert(0, Compiled(files))
    return True


def _file(folder: Path, name: str) -> Path:
    *packages, module = name.split(".")[1:]
    return folder.joinpath(*packages, module + EXTENSION_SUFFIXES[0])


def _unchanged(path: str, digest: str) -> bool:
    """Whether a source is the one with this SHA-256; there may be none, as in a zip."""
    try:
        return hashlib.sha256((PACKAGE / path).read_bytes()).hexdigest() == digest
    except OSError:
        return False
