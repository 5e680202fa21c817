"""Compile modules of ``stream_metrics`` as they stand, with mypyc, from their types.

The package that this makes holds the compiled modules and the digest of each source that was read
for them, by which ``stream_metrics.compiled`` sees whether they are still those of the sources
beside it.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from mypyc.build import mypycify
from setuptools import setup

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NAME = "stream_metrics_compiled"
MODULES = (
    "engine.cells",
    "engine.changes",
    "engine.codec",
    "engine.derive",
    "engine.plan",
    "engine.ranked",
    "engine.registers",
    "engine.row",
    "engine.state",
    "engine.step",
    "engine.taken",
    "engine.windows",
    "metrics.decisions",
    "metrics.exact",
    "metrics.gain",
    "metrics.registry",
)
"""What costs a worker most, by the profile (``make profile``); nothing that checks types itself."""


def source(module: str) -> Path:
    """The file of a module or package, from the root."""
    path = Path(*module.split("."))
    return path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")


def imported(path: Path) -> Iterator[str]:
    """What a source imports, wherever it does; some are names in a module, and no modules."""
    for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))


def read(modules: list[str]) -> set[Path]:
    """The sources of modules, and of all in ``stream_metrics`` that they import, directly or not.

    The compiler copies constants and the layout of classes out of them.
    """
    found: set[Path] = set()
    left = list(modules)
    while left:
        module = left.pop()
        path = source(module)
        if module.startswith("stream_metrics.") and path not in found and (ROOT / path).exists():
            found.add(path)
            left += imported(path)
    return found


def write_package(folder: Path, modules: list[str]) -> None:
    """The Python part of the package: which modules were compiled, from which sources."""
    folder.mkdir(parents=True, exist_ok=True)
    digests = {
        path.relative_to("stream_metrics").as_posix(): hashlib.sha256(
            (ROOT / path).read_bytes()
        ).hexdigest()
        for path in sorted(read(modules))
    }
    lines = [
        '"""The modules that are compiled, and the SHA-256 of each source read for them."""',
        "",
        "MODULES = (",
        *(f'    "{module}",' for module in modules),
        ")",
        "SOURCES = {",
        *(f'    "{path}": "{digest}",' for path, digest in digests.items()),
        "}",
        "",
    ]
    (folder / "__init__.py").write_text("\n".join(lines), encoding="utf-8")


compiled = [f"stream_metrics.{name}" for name in MODULES]
write_package(HERE / "build" / NAME, compiled)
here = Path.cwd()
os.chdir(ROOT)  # mypyc finds the types by pyproject.toml, and modules by their place
try:
    extensions = mypycify(
        [str(source(module)) for module in compiled],
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
