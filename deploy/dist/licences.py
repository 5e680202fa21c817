"""The licences of everything that a wheel or an image of a release contains, in one text."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

KERNEL = Path("kernel/Cargo.toml")
_NAMES = ("licen", "copying", "notice", "copyright", "unlicense")
_LIST = """\
import importlib.metadata as m, json, sys
print(json.dumps([
    [d.metadata["Name"], d.version, d.metadata["License-Expression"] or d.metadata["License"] or "",
     [str(d.locate_file(f)) for f in d.files or []]]
    for d in m.distributions()]))
"""


def third_party(python: Path) -> str:
    """The licences of the packages that ``python`` has, and of the kernel's crates."""
    found = sorted([*_packages(python), *_crates()], key=lambda one: one[0].lower())
    rule = "=" * 100
    parts = [f"{rule}\n{title}\n{rule}\n\n{text.strip()}\n" for title, text in found]
    return "\n".join(parts)


def _packages(python: Path) -> Iterator[tuple[str, str]]:
    done = subprocess.run([python, "-I", "-c", _LIST], capture_output=True, text=True, check=True)
    for name, version, licence, files in json.loads(done.stdout):
        if not name.startswith("stream-metrics") and name not in ("pip", "setuptools"):
            texts = _texts(Path(file) for file in files if ".dist-info/" in file)
            yield f"{name} {version} (Python)", "\n\n".join([licence.split("\n")[0], *texts])


def _crates() -> Iterator[tuple[str, str]]:
    done = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", KERNEL],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for crate in json.loads(done.stdout)["packages"]:
        if crate["source"] is not None:
            texts = _texts(Path(crate["manifest_path"]).parent.iterdir())
            title = f"{crate['name']} {crate['version']} (Rust)"
            yield title, "\n\n".join([crate["license"] or "", *texts])


def _texts(files: Iterator[Path]) -> list[str]:
    """The texts of those files whose names say that they hold a licence."""
    named = sorted(file for file in files if file.name.lower().startswith(_NAMES))
    return [file.read_text(encoding="utf-8", errors="replace") for file in named if file.is_file()]
