"""Chooses, for the whole program, between Python and compiled code.

Python is the reference: it is complete, and it runs wherever nothing is compiled. The *kernel*
(``kernel/``, in Rust, a distribution of its own) has helpers that do a part of it faster. All are
used in one way: a helper returns what the Python function beside it returns, or None, which leaves
the arguments to Python::

    found = compiled.words_among(together, sought, articles)
    return plain_tokens_among(texts, sought, articles) if found is None else found

Without the kernel every helper returns None. ``STREAM_METRICS_KERNEL`` in the environment says
whether there is one: ``auto`` (the default) if it is installed, ``python`` never. ``tests/twins``
holds each helper equal to its Python function.

Modules that mypyc compiles (``setup.py`` lists them) lie beside their sources in the wheel, where
Python's import prefers them; nothing has to choose. ``ENGINE`` says which form runs.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

INTERFACE: Final = 5
"""The version of the kernel's interface; a kernel of another version is refused."""

VARIABLE: Final = "STREAM_METRICS_KERNEL"


def _kernel() -> ModuleType | None:
    chosen = os.environ.get(VARIABLE) or "auto"
    if chosen == "python":
        return None
    if chosen != "auto":
        raise ImportError(f"{VARIABLE} is {chosen!r}; set it to auto or python, or leave it unset")
    try:
        import stream_metrics_kernel
    except ModuleNotFoundError:  # a kernel that is installed and cannot be loaded is an error
        return None
    found: ModuleType = stream_metrics_kernel
    if getattr(found, "INTERFACE", None) != INTERFACE:
        raise ImportError(
            "stream-metrics-kernel is from another release than stream-metrics. Install both from "
            f"the same release (make kernel), or set {VARIABLE}=python to use Python code"
        )
    return found


def _leave_to_python(*arguments: object) -> None:
    """What every helper is where there is no kernel."""


_KERNEL_MODULE: Final = _kernel()

KERNEL: Final = "python" if _KERNEL_MODULE is None else "compiled"
"""Whether helpers are compiled, or leave everything to Python."""

_STEP: Final = Path(__file__).parent / "engine" / "step"
ENGINE: Final = (
    "compiled"
    if any(_STEP.with_name(_STEP.name + suffix).exists() for suffix in EXTENSION_SUFFIXES)
    else "python"
)
"""Whether the modules that mypyc compiles are compiled here."""

__all__ = [
    "Bounds",
    "Deduplicator",
    "changed_buckets",
    "envelope",
    "judged_rankings",
    "reranked",
    "resampled_sums",
    "taken_labels",
    "words_among",
]
"""The helpers; ``kernel/stream_metrics_kernel.pyi`` has their types."""

if TYPE_CHECKING:
    from stream_metrics_kernel import (
        Bounds,
        Deduplicator,
        changed_buckets,
        envelope,
        judged_rankings,
        reranked,
        resampled_sums,
        taken_labels,
        words_among,
    )
else:
    for _name in __all__:
        globals()[_name] = (
            _leave_to_python if _KERNEL_MODULE is None else getattr(_KERNEL_MODULE, _name)
        )
