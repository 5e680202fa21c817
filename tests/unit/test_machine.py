"""The head of a report says which code was measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.machine import MEASURED, ROOT, commit, describe
from stream_metrics.core.compiled import ENGINE


def git(root: Path, *arguments: str) -> str:
    """What git prints, for an author of its own."""
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *author, *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit with a file in each folder."""
    git(tmp_path, "init", "--quiet")
    for folder in (*MEASURED, "benchmarks/results", "docs"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


def test_a_commit_is_told_by_its_name(repository: Path) -> None:
    """That of HEAD, and nothing besides where all is as in it."""
    assert commit(repository) == git(repository, "rev-parse", "--short", "HEAD")


@pytest.mark.parametrize("name", ["file", "new"])
def test_changes_are_told_by_folder(repository: Path, name: str) -> None:
    """Of all that a figure may depend on; new files are changes, too."""
    for folder in MEASURED:
        (repository / folder / name).write_text("2")

    assert commit(repository).endswith(" with changes to " + ", ".join(MEASURED))


def test_reports_and_documents_are_no_changes(repository: Path) -> None:
    """A run that kept its report leaves the next one the same code."""
    (repository / "benchmarks" / "results" / "file").write_text("2")
    (repository / "docs" / "file").write_text("2")

    assert commit(repository) == git(repository, "rev-parse", "--short", "HEAD")


def test_where_there_is_no_commit(tmp_path: Path) -> None:
    """The sources of a release have none."""
    assert commit(tmp_path) == "unknown"


def test_the_head_says_what_is_compiled() -> None:
    """Figures of Python and of compiled code are not to be mistaken."""
    [line] = [line for line in describe().splitlines() if line.startswith("code ")]

    assert line in (
        f"code      kernel compiled, engine {ENGINE}",
        f"code      kernel python, engine {ENGINE}",
    )


@pytest.mark.slow
def test_the_command_prints_the_report_of_a_part() -> None:
    """Behind the head, from the process that the part runs in."""
    command = [sys.executable, "-m", "benchmarks", "cost", "--quick", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("machine ")
    assert "label on a turn of 2,000 results" in done.stdout
