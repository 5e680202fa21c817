"""Traces of the conformance programs: each tells what its program did, or says that it cannot."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.conformance.verdicts import interpret_lines, verdict

CAPTURES = Path(__file__).parents[1] / "data" / "conformance"
ACCOUNTS = json.loads((CAPTURES / "accounts.json").read_text())


@pytest.mark.parametrize("name", sorted(ACCOUNTS))
def test_a_program_is_told_as_it_was_or_refused(name: str) -> None:
    """The verdict on each capture is the known one, and none is wrong."""
    lines = gzip.decompress((CAPTURES / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()
    known = ACCOUNTS[name]

    found = verdict(interpret_lines(lines), [tuple(row) for row in known["account"]])

    assert [found.kind, found.why] == known["verdict"]
