"""The commands ``stream-metrics replay`` and ``report``: their errors."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import ran

EVENTS = [
    {
        "type": "search_iteration",
        "event_id": f"e{n}",
        "occurred_at": 1_718_020_800 + n,
        "conversation_id": f"c{n % 5}",
        "turn": 1,
        "iteration": n // 5 + 1,
        "searches": [
            {
                "search_id": "s",
                "results": [
                    {"result_id": f"r{rank}", "content": f"text {rank % 2}", "label": {"gain": 2}}
                    for rank in range(3)
                ],
            }
        ],
    }
    for n in range(20)
]
LINES = "".join(json.dumps(event) + "\n" for event in EVENTS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with events in ``events.jsonl``."""
    (tmp_path / "events.jsonl").write_text(LINES)
    return tmp_path


def command(
    folder: Path, *arguments: str, limit_bytes: int | None = None, sent: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with ``sent`` as standard input.

    If no file can grow beyond ``limit_bytes``, as on a full disk, it has a process of its own.
    """
    if limit_bytes is None:
        return ran(*arguments, given=sent or "", folder=folder)
    limits = (limit_bytes, limit_bytes)

    return subprocess.run(
        [sys.executable, "-m", "stream_metrics", *arguments],
        cwd=folder,
        input=sent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )


def done(folder: Path, *arguments: str) -> str:
    """Run a command that succeeds; returns its standard error."""
    found = command(folder, *arguments)
    assert found.returncode == 0, found.stderr
    return found.stderr


def refused(folder: Path, *arguments: str, limit_bytes: int | None = None) -> str:
    """Run a command that ends with exit code 2; returns its only error line."""
    found = command(folder, *arguments, limit_bytes=limit_bytes)
    errors = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert found.returncode == 2, found.stderr
    assert len(errors) == 1, found.stderr
    assert "Traceback" not in found.stderr
    return errors[0]


def test_an_input_without_a_valid_record_is_refused(folder: Path) -> None:
    """The report lists the bad records; standard error names the first, and the exit code is 2."""
    (folder / "wide.jsonl").write_text(LINES, encoding="utf-16")

    said = refused(folder, "replay", "wide.jsonl", "--out", "wide")

    assert "no record could be used, as each of 21 was rejected; wide.jsonl:1: not_json: " in said
    report = json.loads((folder / "wide" / "report.json").read_bytes())
    assert len(report["bad_records"]["first"]) == 21


@pytest.mark.parametrize("name", ["report.html", "run.json", "queries.jsonl"])
def test_a_file_that_replay_and_report_cannot_write_is_named(folder: Path, name: str) -> None:
    """The exit code is 2, because 1 means that a condition is not met."""
    done(folder, "replay", "events.jsonl", "--out", "out")
    (folder / "out" / name).unlink()
    (folder / "out" / name).mkdir()
    (folder / "other" / name).mkdir(parents=True)

    assert refused(folder, "replay", "events.jsonl", "--out", "out").startswith(
        f"error: out/{name}: Is a directory"
    )
    if name == "report.html":
        assert f"error: other/{name}: Is a directory" in refused(
            folder, "report", "out", "--out", "other"
        )


COLLECTION = ("--run", "run", "--qrels", "qrels", "--metric", "mrr")


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    """A directory with ``a`` and ``b``, both written by ``evaluate``."""
    (tmp_path / "qrels").write_text("".join(f"q{n} 0 a 1\n" for n in range(60)))
    (tmp_path / "run").write_text("".join(f"q{n} Q0 a 1 0.5 m\n" for n in range(60)))
    done(tmp_path, "evaluate", *COLLECTION, "--out", "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("evaluate", *COLLECTION, "--out", "out"), "queries.jsonl"),
        (("compare", "a", "b", "--out", "out"), "compare.html"),
    ],
)
def test_a_full_disk_is_an_error_that_names_the_file(
    evaluated: Path, arguments: tuple[str, ...], name: str
) -> None:
    """No part of the file is left, and the exit code is 2."""
    found = refused(evaluated, *arguments, limit_bytes=4_000)

    assert found == f"error: out/{name}: File too large"
    assert not (evaluated / "out" / name).exists()
    assert not list((evaluated / "out").glob(".*"))


def damage(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """A function that replaces the first occurrence of ``old``."""
    return lambda data: data.replace(old, new, 1)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("buckets.jsonl", damage(b'"default"', b'"\xff"'), "line 2: not UTF-8"),
        (
            "buckets.jsonl",
            damage(b'"bucket":', b'"bucket":"1","b":'),
            "line 2: not a line of a rep",
        ),
        ("conversations.jsonl", damage(b'"default"', b'"\xff"'), "line 1: not UTF-8"),
        ("queries.jsonl", damage(b'"default"', b'"\xff"'), "line 1: not UTF-8"),
    ],
)
def test_corrupted_files_are_refused(
    folder: Path, name: str, change: Callable[[bytes], bytes], message: str
) -> None:
    """The error names file and line, and the exit code is 2."""
    done(folder, "replay", "events.jsonl", "--out", "out")
    before = (folder / "out" / name).read_bytes()
    assert change(before) != before
    (folder / "out" / name).write_bytes(change(before))

    assert f"out/{name}, {message}" in refused(folder, "report", "out", "--out", "again")


def test_files_of_an_earlier_run_are_removed(folder: Path) -> None:
    """A replay deletes older Parquet, an evaluation the rows that a comparison would read."""
    (folder / "qrels").write_text("q 0 a 1\n")
    (folder / "run").write_text("q Q0 a 1 0.5 m\n")
    replay = ("replay", "events.jsonl", "--out", "out")

    assert command(folder, *replay, "--format", "parquet").returncode == 0
    assert (folder / "out" / "conversations.parquet").exists()
    assert command(folder, *replay).returncode == 0
    assert not (folder / "out" / "conversations.parquet").exists()
    evaluated = command(folder, "evaluate", "--qrels", "qrels", "--run", "run", "--out", "out")
    assert evaluated.returncode == 0
    assert {path.name for path in (folder / "out").iterdir()} == {
        "queries.jsonl", "report.json", "report.html", "run.json",
    }  # fmt: skip
