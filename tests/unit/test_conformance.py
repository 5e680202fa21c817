"""Traces of the conformance programs: each is interpreted as its program ran, or refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.conformance.__main__ import outcomes
from tests.conformance.matrix import Case
from tests.conformance.page import written
from tests.conformance.verdicts import interpret_lines, verdict

CAPTURES = Path(__file__).parents[1] / "data" / "conformance"
ACCOUNTS = json.loads((CAPTURES / "accounts.json").read_text())


@pytest.mark.parametrize("name", sorted(ACCOUNTS))
def test_each_capture_has_the_known_verdict(name: str) -> None:
    """No capture is interpreted wrongly."""
    lines = gzip.decompress((CAPTURES / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()
    known = ACCOUNTS[name]

    found = verdict(interpret_lines(lines), [tuple(row) for row in known["account"]])

    assert [found.kind, found.why] == known["verdict"]


def test_an_environment_that_cannot_be_installed_does_not_end_the_run(tmp_path: Path) -> None:
    """The page says what failed, and has no row of it."""
    case = Case("unknown", "langchain", "openinference", "tool")

    [found] = outcomes([case], tmp_path, again=True)

    assert (found.kind, found.bad) == ("failed", True)
    page = written([found])
    assert "## What failed, or is wrong\n\n- langchain-openinference-tool: failed: " in page
    assert "| LangChain" not in page
