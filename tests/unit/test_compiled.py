"""Compiled modules do what their sources say, and stand aside where they are not theirs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.workload import as_records, traffic

ROOT = Path(__file__).parents[2]
WHICH = "import stream_metrics.engine.step as step; print(step.__file__)"


def run(*arguments: str, root: Path = ROOT, **environment: str) -> str:
    """What a Python of its own prints."""
    given = {name: value for name, value in os.environ.items() if name != "STREAM_METRICS_KERNEL"}
    path = {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=given | path | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package's sources, to be changed."""
    shutil.copytree(
        ROOT / "stream_metrics", tmp_path / "stream_metrics",
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    return tmp_path


def test_compiled_modules_run_in_place_of_their_sources() -> None:
    """Where they are installed (``make kernel``), imports find them."""
    assert Path(run("-c", WHICH).strip()).suffix == ".so"


def test_an_environment_variable_leaves_them_aside() -> None:
    """The sources run, as where nothing is compiled."""
    assert Path(run("-c", WHICH, STREAM_METRICS_KERNEL="python").strip()).suffix == ".py"


def test_a_copy_of_the_sources_runs_compiled(copy: Path) -> None:
    """What counts is what the sources say, not where they are."""
    assert Path(run("-c", WHICH, root=copy).strip()).suffix == ".so"


def test_one_changed_source_leaves_all_aside(copy: Path) -> None:
    """Who changes a module runs it, and never the module as it was."""
    with (copy / "stream_metrics" / "engine" / "cells.py").open("a") as source:
        source.write("\n# changed\n")

    assert Path(run("-c", WHICH, root=copy).strip()) == copy / "stream_metrics/engine/step.py"


def test_the_state_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    """A day's records leave the same windows and conversations, compiled or not."""
    file = tmp_path / "records.pickle"
    file.write_bytes(pickle.dumps(as_records(traffic(3_000).records)))

    compiled = json.loads(run("-m", "tests.compiled", str(file)))
    plain = json.loads(run("-m", "tests.compiled", str(file), STREAM_METRICS_KERNEL="python"))

    assert (compiled["engine"], plain["engine"]) == (".so", ".py")
    assert compiled["state"] == plain["state"]
