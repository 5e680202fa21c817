"""The mutations fit the source, and some of them are run and caught."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers import rest_long
from tests.mutations.__main__ import main
from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import Edit, Mutation, Stale, edited
from tests.mutations.page import page
from tests.mutations.run import ROOT, apply, caught_by, copy

FEW = (
    "unsorted first occurrence",
    "commit before write",
    "no fence",
    "offsets written before the state",
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_fits_the_source(mutation: Mutation) -> None:
    """The text to be replaced occurs exactly once."""
    for edit in mutation.edits:
        text = (ROOT / edit.path).read_text(encoding="utf-8")
        assert edited(text, edit) != text


def test_names_are_unique() -> None:
    """No two mutations have the same name."""
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_an_edit_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    """Text that is missing or repeated is reported."""
    (tmp_path / "code.py").write_text("one = 1\nother = 1\n", encoding="utf-8")

    for old, times in (("two", 0), ("= 1", 2)):
        with pytest.raises(Stale, match=f"code.py: .* {times} times"):
            apply(tmp_path, [Edit("code.py", old, "")])


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_check_exists(mutation: Mutation) -> None:
    """The test that is to catch the mutation exists."""
    file, _, test = mutation.check.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"def {test.partition('[')[0]}\(", text) if test else text


def test_the_page_is_current() -> None:
    """``make docs`` would not change ``docs/evidence/mutations.md``."""
    text = (ROOT / "docs" / "evidence" / "mutations.md").read_text(encoding="utf-8")
    assert page() == text, "run: make docs"


def test_make_docs_writes_the_page(tmp_path: Path) -> None:
    """The command in the Makefile writes it to the given folder."""
    done = subprocess.run(
        ["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    asked = re.search(r"-m tests\.mutations (.+)", done.stdout)
    assert asked

    code = main(asked[1].replace("docs/evidence", str(tmp_path)).split())

    assert code == 0
    assert (tmp_path / "mutations.md").read_text(encoding="utf-8") == page()


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_long(FEW))
def test_a_broken_build_is_caught(tmp_path: Path, name: str) -> None:
    """Its check fails with the expected output."""
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    copy(tmp_path)

    assert caught_by(tmp_path, mutation) is not None
