"""The worked examples of docs/extending.md apply to the source, and do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
DIFFS = [
    diff for diff in re.findall(r"^```diff\n(.*?)^```$", PAGE, re.M | re.S) if diff[:4] == "--- "
]
ADDED = """
from stream_metrics_client.contract import EVENTS

from stream_metrics.core.dedup.tables import newest
from stream_metrics.core.engine.registers import EVENT_TYPES
from stream_metrics.core.events.models import MODELS
from stream_metrics.core.metrics.registry import METRICS
from tests.corpus import FIELDS
from tests.oracle import dedup, strata

assert "new_share" in {one.name for one in METRICS} & set(strata.AT_LAST)
assert "turn_rated" in {one.name for one in EVENT_TYPES} & set(MODELS) & {f.type for f in FIELDS}
assert MODELS.keys() == EVENTS.keys()
assert newest().types[-1].name == dedup.NAMED_TYPES[-1] == "WikiPage"
"""


def hunks() -> Iterator[tuple[str, str, str]]:
    """The file of each hunk, and its lines before and after."""
    for diff in DIFFS:
        for part in re.split(r"^--- a/.+\n(?=\+\+\+ )", diff, flags=re.M)[1:]:
            head, *found = re.split(r"^@@ .*\n", part, flags=re.M)
            for hunk in found:
                lines = hunk.splitlines(keepends=True)
                before, after = ("".join(x[1:] for x in lines if x[0] != s) for s in "+-")
                yield head.removeprefix("+++ b/").strip(), before, after


@pytest.mark.parametrize(("file", "before", "after"), list(hunks()))
def test_an_example_applies(file: str, before: str, after: str) -> None:
    """The context and the removed lines of each hunk are in one place of the file."""
    assert (ROOT / file).read_text(encoding="utf-8").count("\n" + before) == 1
    assert before != after


def test_the_examples_work_together(tmp_path: Path) -> None:
    """A copy of the source with all diffs has the metric, the event type and the entity type."""
    for folder in ("stream_metrics", "client/src", "tests/oracle", "tests/corpus"):
        copytree(ROOT / folder, tmp_path / folder, ignore=ignore_patterns("__pycache__"))
    for file, before, after in hunks():
        if (path := tmp_path / file).exists():
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(before, after), encoding="utf-8")

    places = os.pathsep.join([str(tmp_path), str(tmp_path / "client/src")])
    done = subprocess.run(
        [sys.executable, "-c", ADDED], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": places, "STREAM_METRICS_KERNEL": "python"},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
