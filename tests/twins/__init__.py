"""Verifies that the kernel's helpers equal the corresponding Python functions.

Each module here has the *twins* (a helper and its Python function) of one part of the program, and
claims about them, which ``test_twins.py`` tests in the same way. Claims that need more than pairs
of results have tests in ``test_<part>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_metrics.core.compiled import KERNEL

kernel: Any = import_module("stream_metrics._engine") if KERNEL else None
"""The kernel; ``test_twins.py`` fails if it is not built."""

Pair = tuple[Any, Any]
"""The kernel's result for a case, None if it leaves the case to Python, and Python's result."""


@dataclass(frozen=True)
class Twin:
    """A helper of the kernel with the function that runs it and its Python function on a case."""

    helper: str
    """Its name in the kernel."""
    run: Callable[..., Iterable[Pair]]
    """Runs both on the same arguments; returns several pairs if a case is a sequence."""
    may_decline: bool = True
    """Whether it may leave a case to Python."""


@dataclass(frozen=True)
class Claim:
    """A claim about twins in some cases; a case is the arguments of ``Twin.run``."""

    twin: Twin
    says: str
    drawn: st.SearchStrategy[tuple[Any, ...]] | None = None
    listed: Sequence[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]] = ()
    handled: bool | None = None
    """Whether the kernel handles every case, or leaves every case to Python; None if either."""
    at_least: int = 0
    """The least number of pairs that the kernel handles."""
    max_examples: int | None = None
    slow: bool = field(default=False, kw_only=True)
    long: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.twin.helper}: {self.says}"


@dataclass(frozen=True)
class Refusal:
    """Arguments that no caller passes, and the error that the kernel raises for them."""

    helper: str
    call: Callable[[], object]
    error: type[Exception]
    match: str | None = None

    def __str__(self) -> str:
        return f"{self.helper}: {self.error.__name__}"


def check_claim(claim: Claim) -> None:
    """Test a claim.

    Raises:
        AssertionError: It does not hold.
    """
    handled = 0

    def check(case: tuple[Any, ...]) -> None:
        nonlocal handled
        for found, expected in claim.twin.run(*case):
            if found is None:
                assert claim.twin.may_decline, f"left to Python, which makes {expected!r} of it"
                assert claim.handled is not True, "left to Python"
            else:
                handled += 1
                assert found == expected
                assert claim.handled is not False, "not left to Python"

    for case in claim.listed() if callable(claim.listed) else claim.listed:
        check(case)
    if claim.drawn is not None:
        quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
        chosen = settings(deadline=None, suppress_health_check=quiet)
        if claim.max_examples is not None:
            chosen = settings(chosen, max_examples=claim.max_examples)
        chosen(given(claim.drawn)(check))()
    assert handled >= claim.at_least
