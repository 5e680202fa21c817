"""Chooses between Python and compiled code for the whole program.

Python is the reference: it is complete and runs where nothing is compiled. The *kernel*
(``kernel/``, in Rust, built as ``stream_metrics._engine``) has faster helpers for parts of it. All
are used in one way: a helper returns the result of the corresponding Python function, or None where
that function has to compute it::

    found = compiled.words_among(texts, sought, articles, version)
    return plain_tokens_among(texts, sought, articles, version) if found is None else found

Without the kernel every helper returns None. The environment variable ``STREAM_METRICS_KERNEL``
says whether to use it: ``auto`` (the default) if it is built, ``python`` never. ``tests/twins``
verifies that each helper equals its Python function.

Modules compiled by mypyc (listed in ``setup.py``) are next to their sources in the wheel, and
Python's import prefers them. ``ENGINE`` says which of all this runs.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

INTERFACE: Final = 10
"""The version of the kernel's interface.

A kernel of another version is refused: a working tree can have one that was built earlier.
"""

VARIABLE: Final = "STREAM_METRICS_KERNEL"
NAME: Final = "stream_metrics._engine"


def _kernel() -> ModuleType | None:
    chosen = os.environ.get(VARIABLE) or "auto"
    if chosen == "python":
        return None
    if chosen != "auto":
        raise ImportError(
            f"{VARIABLE} is {chosen!r}; set it to auto or python, or leave it unset", name=NAME
        )
    try:
        import stream_metrics._engine as built
    except ModuleNotFoundError:  # a kernel that is there and cannot be loaded is an error
        return None
    found: ModuleType = built
    if getattr(found, "INTERFACE", None) != INTERFACE:
        raise ImportError(
            f"{NAME} was built from other sources than the Python code beside it. Build it again "
            f"(pip install ., or make kernel), or set {VARIABLE}=python to use Python code",
            name=NAME,
        )
    return found


def _leave_to_python(*arguments: object) -> None:
    """Stands in for every helper where there is no kernel."""


_KERNEL_MODULE: Final = _kernel()

_STEP: Final = Path(__file__).parent / "engine" / "step"

KERNEL: Final = _KERNEL_MODULE is not None
"""Whether the kernel's helpers are used."""

MODULES: Final = any(_STEP.with_name(_STEP.name + s).exists() for s in EXTENSION_SUFFIXES)
"""Whether the modules that mypyc can compile run compiled."""

COMPILED: Final = "compiled"
KERNEL_ONLY: Final = "partly compiled, without mypyc's modules"
REFERENCE: Final = "Python, the reference"
ENGINE: Final = {
    (True, True): COMPILED,
    (True, False): KERNEL_ONLY,
    (False, True): "partly compiled, without the kernel",
    (False, False): REFERENCE,
}[KERNEL, MODULES]
"""Which engine runs, in the words of ``--version``, ``check``, logs, metrics and pages."""


def slow() -> str | None:
    """What the reference costs, and the command that brings the compiled engine; else None."""
    if ENGINE != REFERENCE:
        return None
    if os.environ.get(VARIABLE) == "python" and find_spec(NAME):
        helps = f"unset {VARIABLE}"
    else:
        helps = (
            "run this in a clone of stream-metrics, with Rust and a C compiler: "
            "STREAM_METRICS_BUILD=compiled pip install --force-reinstall --no-deps ."
        )
    return f"equal figures at about three times the CPU. For the compiled engine, {helps}"


__all__ = [
    "Bounds",
    "Deduplicator",
    "changed_buckets",
    "digested_labels",
    "envelope",
    "judged_rankings",
    "keyed_lines",
    "reranked",
    "resampled_sums",
    "words_among",
    "words_in_results",
]
"""The helpers; ``stream_metrics/_engine.pyi`` has their types."""

if TYPE_CHECKING:
    from stream_metrics._engine import (
        Bounds,
        Deduplicator,
        changed_buckets,
        digested_labels,
        envelope,
        judged_rankings,
        keyed_lines,
        reranked,
        resampled_sums,
        words_among,
        words_in_results,
    )
else:
    for _name in __all__:
        globals()[_name] = (
            _leave_to_python if _KERNEL_MODULE is None else getattr(_KERNEL_MODULE, _name)
        )
