"""Installation and compilation by the Makefile's targets in a fresh clone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USED = (
    "Makefile", "constraints.txt", "deploy", "kernel", "pyproject.toml", "setup.py",
    "stream_metrics",
)  # fmt: skip
PINNED = re.compile(r"^([a-z0-9.-]+)==(\S+)", re.M)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with this repository's files and no .venv."""
    for name in USED:
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def commands(clone: Path, target: str) -> str:
    """The commands that a target would run."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target],
        cwd=clone,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_demo_installs_run_time_packages_only(clone: Path) -> None:
    """``make demo`` runs without development tools."""
    said = commands(clone, "demo")

    assert "-r deploy/docker/requirements.txt" in said
    assert "-r constraints.txt" not in said
    assert said.rstrip().endswith("stream-metrics demo")


@pytest.mark.parametrize("target", ["demo", "setup"])
def test_nothing_is_compiled_for_the_demo_or_by_setup(clone: Path, target: str) -> None:
    """``make demo`` and ``make setup`` compile nothing."""
    said = commands(clone, target)

    assert "pip wheel" not in said
    assert "build_rust" not in said


@pytest.mark.slow
@pytest.mark.parametrize("target", ["kernel", "build"])
def test_targets_that_need_the_kernel_install_everything(clone: Path, target: str) -> None:
    """``make kernel``, and targets that run or measure a live system, also compile it."""
    said = commands(clone, target)

    assert "-r constraints.txt" in said
    assert "pip wheel" in said
    assert "build_rust" in said


def test_setting_up_after_the_demo_replaces_no_package() -> None:
    """The demo's packages have the same versions as in the development pins."""
    for_running, for_all = (
        set(PINNED.findall((ROOT / name).read_text(encoding="utf-8")))
        for name in ("deploy/docker/requirements.txt", "constraints.txt")
    )

    assert for_running
    assert for_running <= for_all
