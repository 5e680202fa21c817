"""What tests of more than one folder use."""

from __future__ import annotations

import sys

import pytest
from hypothesis import settings

from deploy.local.waiting import wait_until
from stream_metrics.cli import main

__all__ = ["examples", "refused", "wait_until"]


def examples(number: int) -> int:
    """How many examples a property tries in this hypothesis profile: ``number`` in the default one
    (100 examples), and in proportion in the others."""
    return max(1, number * settings().max_examples // 100)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on standard error with which the command ends, exit code 2, and no output."""
    before = sys.argv
    sys.argv = ["stream-metrics", *arguments]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = before
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    return said.err
