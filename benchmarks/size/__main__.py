"""Measure the code of commits, by default of HEAD: ``python -m benchmarks.size 9e075ea HEAD``.

A commit may also be a folder with a checkout. Everything is counted by the rules of the checkout
that this runs in: which floor a file belongs to is in ``benchmarks/size/floors.toml``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from benchmarks.size import call_path
from benchmarks.size.imports import against, imports
from benchmarks.size.report import (
    crossings,
    large_modules,
    lines,
    private_uses,
    times_of_tests,
    ways,
)
from benchmarks.size.tree import Floors, checkout, measured

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Print what there is to say of each commit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.size", description=__doc__)
    parser.add_argument("commits", nargs="*", default=["HEAD"], metavar="COMMIT")
    parser.add_argument(
        "--way", action="store_true", help="run each commit's worker on Kafka and Redis, and count "
        "what an event and a late label call (make services installs them)"
    )  # fmt: skip
    parser.add_argument(
        "--names", action="store_true", help="list what is counted: large modules, private names, "
        "files on the ways, and imports against the floors"
    )  # fmt: skip
    parser.add_argument(
        "--junit", type=Path, action="append", default=[], metavar="FILE",
        help="also sum up test times that pytest --junit-xml wrote",
    )  # fmt: skip
    chosen = parser.parse_args()
    try:
        for commit in chosen.commits:
            print("\n".join(report(commit, with_way=chosen.way, names=chosen.names)), flush=True)
        for file in chosen.junit:
            print(times_of_tests(file), flush=True)
    except (ValueError, OSError) as error:
        parser.error(str(error))


def report(commit: str, *, with_way: bool, names: bool) -> Iterable[str]:
    """The parts of the report on one commit."""
    floors = Floors.read()
    with checkout(commit, ROOT) as root:
        files = measured(root, floors)
        yield lines(commit, files)
        yield large_modules(files)
        yield private_uses(root, names=names)
        yield crossings(against(imports(root), floors), names=names)
        if with_way:
            yield ways(root, call_path.recorded(root), names=names)


if __name__ == "__main__":
    main()
