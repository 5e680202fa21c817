"""The head of a report identifies the measured code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.machine import MEASURED, ROOT, commit, describe
from stream_metrics.core.compiled import ENGINE


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


def test_the_head_says_what_is_compiled() -> None:
    """Figures of Python and of compiled code must not be confused."""
    [line] = [line for line in describe().splitlines() if line.startswith("code ")]

    assert line in (
        f"code      kernel compiled, engine {ENGINE}",
        f"code      kernel python, engine {ENGINE}",
    )


@pytest.mark.slow
def test_the_command_prints_the_report_of_a_part() -> None:
    """The report follows the head, from the process of the part."""
    command = [sys.executable, "-m", "benchmarks", "cost", "--quick", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("machine ")
    assert "label on a turn of 2,000 results" in done.stdout
