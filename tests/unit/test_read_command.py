"""``stream-metrics read``: the report of a replay with its conversations, from the input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stream_metrics.cli.read import pages_of
from stream_metrics.cli.settings import Settings
from stream_metrics.live.page.conversations import NotThere
from tests.helpers import ran, refused
from tests.unit.test_reading import found
from tests.unit.test_worst import labelled

TITLE = "A travel policy"
EVENTS = [
    found(1, {"doc_id": "a", "title": TITLE}, *({"doc_id": f"d{n}"} for n in range(12))),
    found(2, {"doc_id": "a"}, *({"doc_id": f"d{n}"} for n in range(12))),
    labelled("c", {"r1.1": 3}),
]
LINES = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no settings but the defaults."""
    monkeypatch.setenv("STREAM_METRICS_CONFIG", "")


def replayed(folder: Path, name: str = "events.jsonl", lines: bytes = LINES) -> Path:
    """The output of a replay of a file of this name in the folder."""
    (folder / name).write_bytes(lines)
    done = ran("replay", str(folder / name), "--out", str(folder / "out"))
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.mark.parametrize("packed", [False, True])
async def test_a_conversation_is_read_from_the_input(tmp_path: Path, packed: bool) -> None:
    """Of a plain file, where only places are kept, and of a packed one; the report links to it."""
    name, lines = ("e.jsonl.gz", gzip.compress(LINES)) if packed else ("e.jsonl", LINES)
    report, pages, missing = pages_of(replayed(tmp_path, name, lines), Settings())

    assert missing is None
    assert 'href="conversation?id=c"' in report
    assert TITLE in await pages.conversation("c", None, 1)
    assert "conversation?id=c" in await pages.latest(None)


async def test_texts_are_left_out_if_asked(tmp_path: Path) -> None:
    """Neither is the title there, nor anything else of it."""
    _, pages, _ = pages_of(replayed(tmp_path), Settings(), texts=False)

    assert TITLE not in await pages.conversation("c", None, 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.unlink(), "is not there any more"),
        (lambda path: path.write_bytes(LINES + LINES), "has changed since the replay"),
        (lambda path: (path.parent / "out" / "run.json").unlink(), "does not say"),
    ],
)
async def test_without_the_input_the_pages_say_so(tmp_path: Path, change: object, why: str) -> None:
    """The report is there all the same."""
    out = replayed(tmp_path)
    assert callable(change)
    change(tmp_path / "events.jsonl")
    report, pages, missing = pages_of(out, Settings())

    assert why in (missing or "")
    assert "Worst conversations" in report
    with pytest.raises(NotThere, match=why):
        await pages.conversation("c", None, 1)


async def test_an_input_that_changes_later_is_not_shown(tmp_path: Path) -> None:
    """It has been read to find the places of its records, and another file is there now."""
    _, pages, _ = pages_of(replayed(tmp_path), Settings())
    (tmp_path / "events.jsonl").write_bytes(LINES[:-200])

    with pytest.raises(NotThere, match="has changed since it was read"):
        await pages.conversation("c", None, 1)


async def test_standard_input_cannot_be_read_again(tmp_path: Path) -> None:
    """The page says why there is no conversation."""
    ran("replay", "-", "--out", str(tmp_path), given=LINES)
    _, _, missing = pages_of(tmp_path, Settings())

    assert missing == "the input was no file, so that it cannot be read again"


def test_other_settings_than_those_of_the_report_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures beside the texts would be others than those of the report."""
    out = replayed(tmp_path)
    capsys.readouterr()
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")

    assert "with other settings than these: metrics.good_gain" in refused(
        capsys, "read", str(out), "--port", "0"
    )


def test_a_folder_without_a_report_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what to run first."""
    assert "run `stream-metrics replay` first" in refused(capsys, "read", str(tmp_path))
