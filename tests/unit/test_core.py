"""What the page about the core says of it as a whole."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "stream_metrics" / "core"
PAGE = (ROOT / "docs" / "concepts" / "core.md").read_text(encoding="utf-8")
OUTSIDE = {"io", "os", "select", "shutil", "socket", "subprocess", "sys", "tempfile"}
FILES = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes"),
    *("exists", "is_file", "is_dir", "iterdir", "glob", "rglob", "stat", "mkdir", "unlink"),
}


def touched(module: Path) -> Iterator[str]:
    """The modules that a module imports from ``OUTSIDE``, and its calls of ``FILES``."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                yield from OUTSIDE & {name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module="io", names=[ast.alias(name="BytesIO" | "StringIO")]):
                continue  # in memory
            case ast.ImportFrom(module=str(name)):
                yield from OUTSIDE & {name.partition(".")[0]}
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in FILES:
                yield name


def test_one_module_of_the_core_knows_files_and_the_environment() -> None:
    """It is the one that the page names; clocks and the like are forbidden in pyproject.toml."""
    exception = re.search(r"a file, except that `(.+?)`", PAGE)
    knowing = {module for module in CORE.rglob("*.py") if any(touched(module))}

    assert exception is not None
    assert knowing == {ROOT / "stream_metrics" / exception[1]}


def test_the_page_has_the_order_that_imports_keep() -> None:
    """From bottom to top, as import-linter checks it from top to bottom."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["id"] == "core"]
    order = PAGE.partition("the order inside the core is ")[2].partition(".\n")[0]

    assert [set(re.findall(r"`(\w+)`", group)) for group in order.split(";")] == [
        set(layer.split(" | ")) for layer in reversed(layers)
    ]
