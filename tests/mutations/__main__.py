"""``python -m tests.mutations``: make and check all broken builds; exits with 1 if one survives."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import Mutation
from tests.mutations.page import page
from tests.mutations.run import Unsound, caught_by, copy, need_sound


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description="Break the source in every known way, and check that a test notices.",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these broken builds")
    parser.add_argument(
        "--without-services", action="store_true", help="skip those whose check needs servers"
    )
    parser.add_argument(
        "--page", metavar="FOLDER", type=Path, help="only write mutations.md into this folder"
    )
    options = parser.parse_args(arguments)
    if options.page:
        (options.page / "mutations.md").write_text(page(), encoding="utf-8")
        return 0
    names = set(options.names)
    if unknown := names - {mutation.name for mutation in MUTATIONS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [
        mutation
        for mutation in MUTATIONS
        if mutation.name in (names or {mutation.name})
        and not (options.without_services and mutation.service)
    ]
    bad = sum([*map(unsound, dict.fromkeys(m.check for m in chosen)), *map(survives, chosen)])
    say(f"{len(chosen)} broken builds, {bad} not caught as expected")
    return int(bad > 0)


def unsound(check: str) -> bool:
    """Whether a check fails on the unchanged source; prints so."""
    began = time.monotonic()
    with TemporaryDirectory() as place:
        copy(Path(place))
        try:
            need_sound(Path(place), check)
        except Unsound as why:
            say(f"UNSOUND {why}")
            return True
    say(f"sound: {check} ({time.monotonic() - began:.0f} s)")
    return False


def survives(mutation: Mutation) -> bool:
    """Whether a broken build survives its check; prints the result."""
    began = time.monotonic()
    with TemporaryDirectory() as place:
        copy(Path(place))
        try:
            caught = caught_by(Path(place), mutation)
        except Unsound as why:
            say(f"UNSOUND {why}")
            return True
    seconds = f"({time.monotonic() - began:.0f} s)"
    if caught is None:
        say(f"SURVIVES {mutation.name}: {mutation.check} passes {seconds}")
        return True
    say(f"caught: {mutation.name}, by {caught} {seconds}")
    return False


def say(line: str) -> None:
    """Print and flush."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
