"""Compile modules of ``stream_metrics`` as they stand, with mypyc, from their types.

The package that this makes holds the compiled modules and the digest of each source, by which
``stream_metrics.compiled`` sees whether they are still those of the sources beside it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from mypyc.build import mypycify
from setuptools import setup

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NAME = "stream_metrics_compiled"
MODULES = (
    "engine.cells",
    "engine.codec",
    "engine.ranked",
    "engine.row",
    "engine.state",
    "engine.step",
    "engine.taken",
    "engine.turn",
    "engine.windows",
    "metrics.decisions",
    "metrics.exact",
    "metrics.gain",
)
"""What costs a worker most, by the profile (``make profile``); nothing that checks types itself."""


def sources() -> dict[str, Path]:
    """The files to compile, by module."""
    return {
        f"stream_metrics.{name}": Path("stream_metrics", *name.split(".")).with_suffix(".py")
        for name in MODULES
    }


def write_package(folder: Path) -> None:
    """The Python part of the package: which sources were compiled."""
    folder.mkdir(parents=True, exist_ok=True)
    digests = {
        module: hashlib.sha256((ROOT / path).read_bytes()).hexdigest()
        for module, path in sources().items()
    }
    lines = [f'    "{module}": "{digest}",' for module, digest in digests.items()]
    text = ['"""SHA-256 of the sources that were compiled."""', "", "SOURCES = {", *lines, "}", ""]
    (folder / "__init__.py").write_text("\n".join(text), encoding="utf-8")


write_package(HERE / "build" / NAME)
here = Path.cwd()
os.chdir(ROOT)  # mypyc finds the types by pyproject.toml, and modules by their place
try:
    extensions = mypycify(
        [str(path) for path in sources().values()],
        group_name=NAME,
        target_dir=str(HERE / "build" / "c"),
    )
finally:
    os.chdir(here)
for extension in extensions:
    # In a folder of their own, so that none shadows its source by its place.
    extension.name = extension.name.replace("stream_metrics.", f"{NAME}.")
    extension.sources = [str(ROOT / source) for source in extension.sources]
    extension.depends = [str(ROOT / source) for source in extension.depends]
setup(ext_modules=extensions)
