"""The head of a report identifies the measured code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.children import child
from benchmarks.machine import MEASURED, ROOT, commit
from benchmarks.ran import Engines, OtherEngine, engine_of, inherited
from stream_metrics.core.compiled import ENGINE, REFERENCE, VARIABLE
from stream_metrics.live.prometheus.operations import Operations


def git(root: Path, *arguments: str) -> str:
    """Output of git, for an author of its own."""
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *author, *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit and a file in each folder."""
    git(tmp_path, "init", "--quiet")
    for folder in (*MEASURED, "benchmarks/results", "docs"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


def test_the_head_names_the_commit(repository: Path) -> None:
    """It is that of HEAD, with nothing added if the tree is clean."""
    assert commit(repository) == git(repository, "rev-parse", "--short", "HEAD")


@pytest.mark.parametrize("name", ["file", "new"])
def test_the_head_names_changed_folders(repository: Path, name: str) -> None:
    """It covers every folder that figures may depend on, including new files."""
    for folder in MEASURED:
        (repository / folder / name).write_text("2")

    assert commit(repository).endswith(" with changes to " + ", ".join(MEASURED))


def test_reports_and_documents_do_not_count_as_changes(repository: Path) -> None:
    """A run that stored its report leaves the code unchanged for the next run."""
    (repository / "benchmarks" / "results" / "file").write_text("2")
    (repository / "docs" / "file").write_text("2")

    assert commit(repository) == git(repository, "rev-parse", "--short", "HEAD")


def test_sources_without_a_repository_have_no_commit(tmp_path: Path) -> None:
    """The sources of a release are such a case."""
    assert commit(tmp_path) == "unknown"


@pytest.mark.long
def test_the_command_prints_the_report_of_a_part() -> None:
    """The report follows the head, from the process of the part, with the engine that it ran."""
    command = [sys.executable, "-m", "benchmarks", "cost", "--quick", "--rounds", "1"]
    environment = {**os.environ, VARIABLE: "python", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("machine ")
    assert "label on a turn of 2,000 results" in done.stdout
    assert f"\nengine    {REFERENCE}, as each process said\n" in done.stdout


# --- what ran -------------------------------------------------------------------------------------


async def test_a_report_says_which_engine_the_children_ran(tmp_path: Path) -> None:
    """Each of them says it beside its figures; what the parent would run does not matter."""
    saying(tmp_path, "compiled")
    noted = Engines()

    assert await child(["said"], {"PYTHONPATH": str(tmp_path)}, ran=noted) == {"cpu": 1}
    assert await child(["said"], {"PYTHONPATH": str(tmp_path)}, ran=noted) == {"cpu": 1}
    assert noted.told() == "\nengine    compiled, as each process said\n"


async def test_children_that_ran_different_engines_are_an_error(tmp_path: Path) -> None:
    """The figures would be of neither."""
    noted = Engines()
    saying(tmp_path, "compiled")
    await child(["said"], {"PYTHONPATH": str(tmp_path)}, ran=noted)
    saying(tmp_path, REFERENCE)

    with pytest.raises(OtherEngine, match="compiled and Python, the reference"):
        await child(["said"], {"PYTHONPATH": str(tmp_path)}, ran=noted)


def test_children_inherit_the_choice_of_the_kernel_but_no_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Settings of a shell would change what is measured."""
    monkeypatch.setenv(VARIABLE, "python")
    monkeypatch.setenv("STREAM_METRICS_STATE__TTL", "1h")

    assert inherited()[VARIABLE] == "python"
    assert "STREAM_METRICS_STATE__TTL" not in inherited()


def test_a_worker_that_is_scraped_has_said_its_engine() -> None:
    """``streammetrics_build_info`` is read as the worker exports it."""
    registry = CollectorRegistry()
    Operations(registry, ("events",))

    assert engine_of(generate_latest(registry).decode()) == ENGINE


def saying(folder: Path, engine: str) -> None:
    """A module that prints what a measurement in a child process prints."""
    printed = json.dumps({"cpu": 1, "engine": engine})
    (folder / "said.py").write_text(f"print({printed!r})")
