"""Helpers for tests of several folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from io import BytesIO, TextIOWrapper
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final

import pytest
from hypothesis import settings

from deploy.local.waiting import wait_until
from stream_metrics.cli import main

__all__ = ["examples", "ran", "refused", "rest_long", "wait_until"]

PIPE_BYTES: Final = 1 << 16  # what a pipe takes that nobody reads


def examples(number: int) -> int:
    """How many examples a property tries in this hypothesis profile: ``number`` in one of 100
    examples, and in proportion in the others."""
    return max(1, number * settings().max_examples // 100)


def ran(
    *arguments: str,
    given: str | bytes = b"",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> CompletedProcess[str]:
    """Run a command in this process, with ``given`` in the pipe that is its standard input.

    It does what a process of its own would do, and costs no start of Python and no imports.
    """
    given = given.encode() if isinstance(given, str) else given
    reading, writing = os.pipe()
    with open(writing, "wb") as pipe:
        assert len(given) <= PIPE_BYTES
        pipe.write(given)
    told = BytesIO(), BytesIO()
    out, err = (TextIOWrapper(stream, "utf-8", write_through=True) for stream in told)
    code: Any = None
    with pytest.MonkeyPatch.context() as patch, open(reading, encoding="utf-8") as stdin:
        patch.setattr(sys, "argv", ["stream-metrics", *arguments])
        for name, stream in (("stdin", stdin), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        if folder is not None:
            patch.chdir(folder)
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    said, errors = (stream.getvalue().decode() for stream in told)
    return CompletedProcess(arguments, code or 0, said, errors)


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
