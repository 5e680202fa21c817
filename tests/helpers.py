"""Helpers for tests of several folders."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

from deploy.local.waiting import wait_until
from stream_metrics.cli import main

__all__ = ["examples", "refused", "rest_long", "wait_until"]


def examples(number: int) -> int:
    """How many examples a property tries in this hypothesis profile: ``number`` in one of 100
    examples, and in proportion in the others."""
    return max(1, number * settings().max_examples // 100)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The only line on standard error of a command that ends with exit code 2 and no output."""
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


def rest_long(cases: Iterable[Any], now: int = 1) -> list[Any]:
    """Cases of a claim for ``pytest.mark.parametrize``: the first ``now`` run with ``make test``,
    the others, marked ``long``, with ``make test-all``."""
    listed = list(cases)
    return [*listed[:now], *map(_as_long, listed[now:])]


def _as_long(case: Any) -> Any:
    if not isinstance(case, type(pytest.param())):
        case = pytest.param(*(case if isinstance(case, tuple) else (case,)))
    return pytest.param(*case.values, marks=[*case.marks, pytest.mark.long], id=case.id)
