"""Compile the modules that cost a worker most with mypyc, if the environment asks for it.

Everything else that setuptools must know is in ``pyproject.toml``. With ``STREAM_METRICS_MYPYC=1``
the wheel has each of these modules twice: as its source, and compiled, which Python prefers where
both are there. Without it the wheel is pure.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

MODULES = (
    "stream_metrics/core/engine/cells.py",
    "stream_metrics/core/engine/changes.py",
    "stream_metrics/core/engine/codec.py",
    "stream_metrics/core/engine/derive.py",
    "stream_metrics/core/engine/plan.py",
    "stream_metrics/core/engine/ranked.py",
    "stream_metrics/core/engine/registers.py",
    "stream_metrics/core/engine/row.py",
    "stream_metrics/core/engine/state.py",
    "stream_metrics/core/engine/step.py",
    "stream_metrics/core/engine/digested.py",
    "stream_metrics/core/engine/windows.py",
    "stream_metrics/core/metrics/decisions.py",
    "stream_metrics/core/metrics/scaled_sums.py",
    "stream_metrics/core/metrics/turn_totals.py",
    "stream_metrics/core/metrics/registry.py",
)
"""By the profile (``make profile``). None checks types itself: compiled code does that first."""


def extensions() -> list[Extension]:
    """The modules as extensions, if they are to be compiled."""
    if os.environ.get("STREAM_METRICS_MYPYC") != "1":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        raise SystemExit(
            "error: STREAM_METRICS_MYPYC=1 compiles with mypyc, which is not installed. Install "
            "mypy and build with --no-build-isolation, or unset the variable"
        ) from None
    compiled: list[Extension] = mypycify(
        list(MODULES), group_name="stream_metrics", target_dir="build/mypyc"
    )
    return compiled


if __name__ == "__main__":
    setup(ext_modules=extensions())
