"""What a release is made of."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from deploy.dist.release import VERSIONS, release_version, versions
from stream_metrics import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that name the version, with a changelog that has a section of it."""
    for name in VERSIONS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"## [Unreleased]\n\n## [{__version__}] - 2026-12-01\n")
    return tmp_path


def test_all_files_name_the_same_version() -> None:
    """A release of one has all of them."""
    assert set(versions(ROOT).values()) == {__version__}


def test_a_release_has_the_version_of_its_files(tree: Path) -> None:
    """It is not given a second time, on the command line."""
    assert release_version(tree) == __version__


@pytest.mark.parametrize("name", VERSIONS)
def test_nothing_is_released_while_a_file_names_another_version(tree: Path, name: str) -> None:
    """The error lists the version of each file."""
    file = tree / name
    file.write_text(file.read_text().replace(__version__, "9.9.9"))

    with pytest.raises(SystemExit, match=rf"9\.9\.9  {re.escape(name)}"):
        release_version(tree)


def test_nothing_is_released_without_a_section_in_the_changelog(tree: Path) -> None:
    """Users read there what changes."""
    (tree / "CHANGELOG.md").write_text("## [Unreleased]\n")

    with pytest.raises(SystemExit, match="no section"):
        release_version(tree)
