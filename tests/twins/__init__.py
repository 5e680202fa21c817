"""The kernel's helpers and the Python functions beside them, held equal by one suite.

Each module here has the *twins* of one part of the program and claims about them; ``test_twins.py``
tests all claims in the same way. A claim that needs more than pairs of results has a test of its
own, in ``test_<part>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_metrics.core.compiled import KERNEL

kernel: Any = import_module("stream_metrics_kernel") if KERNEL == "compiled" else None
"""The kernel, without which nothing here can be said; ``test_twins.py`` fails if it is missing."""

Pair = tuple[Any, Any]
"""What the kernel makes of a case, None if it leaves the case to Python; and what Python does."""


@dataclass(frozen=True)
class Twin:
    """A helper of the kernel, and how to run it and its Python function on one case."""

    helper: str
    """Its name in the kernel."""
    run: Callable[..., Iterable[Pair]]
    """Both on the same arguments; more than one pair where a case is a sequence."""
    leaves: bool = True
    """Whether it may leave a case to Python."""


@dataclass(frozen=True)
class Claim:
    """What holds for the twins in some cases; a case is the arguments of ``Twin.run``."""

    twin: Twin
    says: str
    drawn: st.SearchStrategy[tuple[Any, ...]] | None = None
    listed: Sequence[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]] = ()
    taken: bool | None = None
    """Whether the kernel takes each case itself, or leaves each to Python; None if either."""
    at_least: int = 0
    """How many of the pairs the kernel takes at least."""
    max_examples: int | None = None
    slow: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.twin.helper}: {self.says}"


@dataclass(frozen=True)
class Refusal:
    """Arguments that no caller has, and the error that the kernel answers them with."""

    helper: str
    call: Callable[[], object]
    error: type[Exception]
    match: str | None = None

    def __str__(self) -> str:
        return f"{self.helper}: {self.error.__name__}"


def hold(claim: Claim) -> None:
    """Fail unless the claim holds.

    Raises:
        AssertionError: It does not.
    """
    taken = 0

    def check(case: tuple[Any, ...]) -> None:
        nonlocal taken
        for found, expected in claim.twin.run(*case):
            if found is None:
                assert claim.twin.leaves, f"left to Python, which makes {expected!r} of it"
                assert claim.taken is not True, "left to Python"
            else:
                taken += 1
                assert found == expected
                assert claim.taken is not False, "not left to Python"

    for case in claim.listed() if callable(claim.listed) else claim.listed:
        check(case)
    if claim.drawn is not None:
        quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
        chosen = settings(deadline=None, suppress_health_check=quiet)
        if claim.max_examples is not None:
            chosen = settings(chosen, max_examples=claim.max_examples)
        chosen(given(claim.drawn)(check))()
    assert taken >= claim.at_least
