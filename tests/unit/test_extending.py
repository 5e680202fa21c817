"""The diffs in docs/extending.md apply to the code as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_metrics.core.dedup.tables import newest
from stream_metrics.core.engine.registers import EVENT_TYPES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
DIFFS = re.findall(r"^```diff\n(.*?)^```$", PAGE, re.M | re.S)


def removed() -> Iterator[tuple[str, str]]:
    """Each line that an example removes, with its file."""
    for diff in DIFFS:
        file = ""
        for line in diff.splitlines():
            if line.startswith("+++ b/"):
                file = line.removeprefix("+++ b/")
            elif line.startswith("-") and not line.startswith("---") and file:
                yield file, line[1:]


@pytest.mark.parametrize(("file", "line"), list(removed()))
def test_removed_lines_are_in_the_file(file: str, line: str) -> None:
    """Each is a whole line of the file that the diff names."""
    assert line in (ROOT / file).read_text(encoding="utf-8").splitlines()


def test_examples_change_existing_files() -> None:
    """Every diff of code names files of the repository."""
    named = re.findall(r"^\+\+\+ b/(.+)$", PAGE, re.M)

    assert len(named) > 9
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_stored_codes_of_the_examples_are_free() -> None:
    """The added event type and entity type use codes that nothing else has."""
    [letter] = re.findall(r'^\+    code="(.)",$', PAGE, re.M)
    [number] = re.findall(r"^\+    (\d+),$", PAGE, re.M)

    assert letter not in {kind.code for kind in newest().types}
    assert int(number) not in {kind.code for kind in EVENT_TYPES}
