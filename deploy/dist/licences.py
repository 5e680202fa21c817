"""The licences of everything that a wheel or an image of a release contains, in one text."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    found = sorted([*_packages(python), *_licences_of_crates()], key=lambda one: one[0].lower())
    rule = "=" * 100
    parts = [f"{rule}\n{title}\n{rule}\n\n{text.strip()}\n" for title, text in found]
    return "\n".join(parts)


def _packages(python: Path) -> Iterator[tuple[str, str]]:
    done = subprocess.run([python, "-I", "-c", _LIST], capture_output=True, text=True, check=True)
    for name, version, licence, files in json.loads(done.stdout):
        if not name.startswith("stream-metrics") and name not in ("pip", "setuptools"):
            texts = _texts(Path(file) for file in files if ".dist-info/" in file)
            yield f"{name} {version} (Python)", "\n\n".join([licence.split("\n")[0], *texts])


def bill_of_crates() -> str:
    """The kernel's crates as a bill of materials: CycloneDX, in JSON."""
    components = [
        {
            "type": "library",
            "name": crate["name"],
            "version": crate["version"],
            "purl": f"pkg:cargo/{crate['name']}@{crate['version']}",
            "licenses": [{"expression": crate["license"].replace("/", " OR ")}],
        }
        for crate in _crates()
    ]
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
    return json.dumps(bill, indent=2) + "\n"


def _crates() -> Iterator[dict[str, Any]]:
    """What cargo knows of each crate that the kernel is built from."""
    done = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", KERNEL],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    yield from (crate for crate in json.loads(done.stdout)["packages"] if crate["source"])


def _licences_of_crates() -> Iterator[tuple[str, str]]:
    for crate in _crates():
        texts = _texts(Path(crate["manifest_path"]).parent.iterdir())
        title = f"{crate['name']} {crate['version']} (Rust)"
        yield title, "\n\n".join([crate["license"] or "", *texts])


def _texts(files: Iterator[Path]) -> list[str]:
    """The texts of those files whose names say that they hold a licence."""
    named = sorted(file for file in files if file.name.lower().startswith(_NAMES))
    return [file.read_text(encoding="utf-8", errors="replace") for file in named if file.is_file()]
