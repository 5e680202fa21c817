"""Compile the modules that cost a worker most with mypyc, if the environment asks for it.

Everything else that setuptools must know is in ``pyproject.toml``. With ``STREAM_METRICS_MYPYC=1``
the wheel has each of these modules twice: as its source, and compiled, which Python prefers where
both are there. Without it the wheel is pure, and needs no compiler.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import setup

MODULES = (
    "stream_metrics/core/engine/cells.py",
    "stream_metrics/core/engine/changes.py",
    "stream_metrics/core/engine/codec.py",
    "stream_metrics/core/engine/conversation_cells.py",
    "stream_metrics/core/engine/derive.py",
    "stream_metrics/core/engine/joined.py",
    "stream_metrics/core/engine/label_units.py",
    "stream_metrics/core/engine/labelling.py",
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

COMPILED_WITH = {
    "mypyc": "mypy>=1.15,<3",
    "idna": "idna>=3.11",
    "msgspec": "msgspec>=0.19,<1",
    "numpy": "numpy>=2.0,<3",
}
"""What compiling needs, by the module to import: mypyc, and packages whose types are used."""


def arguments() -> dict[str, Any]:
    """The arguments of ``setup``: the modules as extensions, if they are to be compiled.

    A build that is isolated is asked first what it needs (``egg_info``), and then has it.
    """
    if os.environ.get("STREAM_METRICS_MYPYC") != "1":
        return {}
    missing = [need for module, need in COMPILED_WITH.items() if find_spec(module) is None]
    if missing and "egg_info" in sys.argv:
        return {"setup_requires": missing}
    if missing:
        end(f"needs {', '.join(missing)}. Install them, or build without --no-build-isolation")
    check_compiler()
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", "kernel")  # the types of the kernel, installed or not
    no_settings = "--config-file="  # those of pyproject.toml need what checks all of the code
    return {
        "ext_modules": mypycify(
            [no_settings, *MODULES], group_name="stream_metrics", target_dir="build/mypyc"
        )
    }


def check_compiler() -> None:
    """End the build where there is no C compiler, or no header of Python to compile against."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(command) is None:
        end(
            f"needs a C compiler, and there is no {command!r}. Install one (on Debian: gcc and "
            "python3-dev)"
        )
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        end(
            f"needs the headers of Python, and there is no Python.h in {headers}. Install them "
            "(on Debian: python3-dev)"
        )


def end(why: str) -> None:
    """End with an error that also says how to do without compiled code."""
    raise SystemExit(
        f"error: STREAM_METRICS_MYPYC=1 {why}. Or unset STREAM_METRICS_MYPYC and leave out "
        "./kernel: the engine is then Python, the reference, with the same results"
    )


if __name__ == "__main__":
    setup(**arguments())
