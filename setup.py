"""Compile what can be compiled: the kernel, in Rust, and the modules that cost a worker most.

Everything else that setuptools must know is in ``pyproject.toml``. ``STREAM_METRICS_BUILD`` says
what a build does: ``auto`` (the default) compiles what the compilers at hand can, and leaves the
rest to the Python code, which is complete; ``compiled`` compiles everything or ends with an error;
``python`` compiles nothing. A wheel has each module that mypyc compiles twice: as its source, and
compiled, which Python prefers where both are there. An editable installation has only the kernel.
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
from setuptools.command.build_ext import build_ext

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

MODULES_WITH = {
    "mypyc": "mypy>=1.15,<3",
    "idna": "idna>=3.11",
    "msgspec": "msgspec>=0.19,<1",
    "numpy": "numpy>=2.0,<3",
}
"""What the modules need, by the module to import: mypyc, and packages whose types are used."""

KERNEL_WITH = {"setuptools_rust": "setuptools-rust>=1.10,<2"}
"""What the kernel needs, in the same form."""

CHOICES = ("auto", "compiled", "python")
CHOSEN = os.environ.get("STREAM_METRICS_BUILD") or "auto"


class Build(build_ext):  # type: ignore[misc]  # setuptools has no types
    """Compiles extensions, and with ``auto`` all of mypyc's modules or none."""

    extensions: list[Any]

    def run(self) -> None:
        """Compile, without what an earlier build has left and this one does not make."""
        made = {Path(self.get_ext_fullpath(one.name)) for one in self.extensions}
        for old in () if self.inplace else Path(self.build_lib).rglob("*.so"):
            if old not in made:
                old.unlink()
        super().run()

    def build_extensions(self) -> None:
        """Compile mypyc's modules."""
        try:
            super().build_extensions()
        except Exception as error:
            leave_to_python("the modules", f"do not compile: {error}")
            for one in self.extensions:
                Path(self.get_ext_fullpath(one.name)).unlink(missing_ok=True)
            self.extensions = []


def arguments() -> dict[str, Any]:
    """The arguments of ``setup`` for its command.

    A build that is isolated is asked first what it needs (``egg_info``), and then has it.
    """
    if CHOSEN not in CHOICES:
        raise SystemExit(
            f"error: STREAM_METRICS_BUILD is {CHOSEN!r}; set it to {', '.join(CHOICES[:-1])} or "
            f"{CHOICES[-1]}, or leave it unset"
        )
    commands = {"egg_info", "bdist_wheel", "build_rust", "editable_wheel"} & {*sys.argv}
    if CHOSEN == "python" or not commands:
        return {}
    in_place = commands & {"build_rust", "editable_wheel"}
    parts = {"the kernel": (lack_of_rust(), KERNEL_WITH)}
    if not in_place:  # where compiled modules would hide what is edited
        parts = {"the modules": (lack_of_c(), MODULES_WITH), **parts}
    wanted: dict[str, list[str]] = {}
    for part, (lack, needs) in parts.items():
        missing = [need for module, need in needs.items() if find_spec(module) is None]
        if missing and not lack and "egg_info" not in commands:
            lack = (
                f"need {' and '.join(missing)}: install them, or build without --no-build-isolation"
            )
        if lack:
            leave_to_python(part, lack)
        else:
            wanted[part] = missing
    if "egg_info" in commands:
        needed = [need for needs in wanted.values() for need in needs]
        return {"setup_requires": needed} if needed else {}
    modules = compiled_modules() if "the modules" in wanted else []
    found: dict[str, Any] = {"cmdclass": {"build_ext": Build}} if wanted else {}
    if modules:
        found["ext_modules"] = modules
    else:
        found["options"] = {"bdist_wheel": {"py_limited_api": "cp311"}}
    if "the kernel" in wanted:
        found["rust_extensions"] = [kernel()]
    return found if modules or "the kernel" in wanted else {}


def lack_of_c() -> str | None:
    """What is missing for mypyc's modules: a C compiler, or Python's headers; None if nothing."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(command) is None:
        return (
            f"need a C compiler, and there is no {command!r}: install one (on Debian: apt-get "
            "install gcc python3-dev)"
        )
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        return (
            f"need the headers of Python, and there is no Python.h in {headers}: install them (on "
            "Debian: apt-get install python3-dev)"
        )
    return None


def lack_of_rust() -> str | None:
    """What is missing for the kernel: cargo; None if it is there."""
    cargo = os.environ.get("CARGO", "cargo")
    if shutil.which(cargo) is None:
        return (
            f"needs Rust 1.63 or later, and there is no {cargo!r}: install it (from "
            "https://rustup.rs, or on Debian: apt-get install cargo)"
        )
    return None


def compiled_modules() -> list[Any]:
    """The modules as extensions for a C compiler; none if mypyc refuses them."""
    try:
        from mypyc.build import mypycify

        no_settings = "--config-file="  # those of pyproject.toml need what checks all of the code
        return mypycify(
            [no_settings, *MODULES], group_name="stream_metrics", target_dir="build/mypyc"
        )
    except (Exception, SystemExit) as error:  # mypycify exits where types are wrong
        leave_to_python("the modules", f"are refused by mypyc: {error}")
        return []


def kernel() -> Any:
    """The kernel as an extension for setuptools-rust."""
    from setuptools_rust import RustExtension

    return RustExtension(
        "stream_metrics._engine", "kernel/Cargo.toml", rust_version=">=1.63", debug=False,
        cargo_manifest_args=["--locked"], optional=CHOSEN != "compiled",
    )  # fmt: skip


def leave_to_python(part: str, why: str) -> None:
    """Say why Python code stays in the place of a part; end, if everything is to be compiled."""
    if CHOSEN == "compiled":
        raise SystemExit(
            f"error: STREAM_METRICS_BUILD=compiled: {part} {why}. Or unset STREAM_METRICS_BUILD: "
            "Python code then stays in their place, with the same results"
        )
    sys.stderr.write(f"{part} {why}. Python code stays in their place\n")


if __name__ == "__main__":
    setup(**arguments())
