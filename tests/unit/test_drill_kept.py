"""What the drill has computed is kept, and seeds of judges follow from the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drill.kept import ROOT, digest, kept
from tests.drill.seeds import CALIBRATION, HELD_OUT, SEEN, TUNING, drawn


def test_what_is_kept_is_not_made_again(tmp_path: Path) -> None:
    """The file has what was made the first time."""
    path = tmp_path / "a" / "b.kept"
    assert kept(path, lambda: [1, 2]) == [1, 2]
    assert kept(path, lambda: pytest.fail("made again")) == [1, 2]


def test_what_was_interrupted_is_not_kept(tmp_path: Path) -> None:
    """A file is complete or not there."""
    with pytest.raises(ZeroDivisionError):
        kept(tmp_path / "a.kept", lambda: 1 // 0)
    assert kept(tmp_path / "a.kept", lambda: 2) == 2


def test_a_digest_depends_on_content_and_on_what_is_added() -> None:
    """A change of a source makes what was kept a thing of the past."""
    here, other = Path(__file__), ROOT / "tests" / "drill"
    found = [digest([here]), digest([other]), digest([here, other]), digest([here], 1)]

    assert len(set(found)) == len(found)
    assert digest([here]) == found[0]


def test_seeds_follow_from_the_commit_and_are_unseen() -> None:
    """Another commit has other seeds, and none was used to choose something."""
    found = drawn("0" * 40)

    assert found == drawn("0" * 40)
    assert len(set(found)) == HELD_OUT
    assert not set(found) & (SEEN | set(CALIBRATION) | set(TUNING))
    assert found != drawn("1" * 40)
