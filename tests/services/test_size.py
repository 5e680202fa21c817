"""The code that one event runs is recorded in a worker on real servers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.size.call_path import files_of, recorded

ROOT = Path(__file__).resolve().parents[2]


def test_an_event_is_compared_and_a_late_label_is_not() -> None:
    """Both are decoded, stored and exported; only results of a search are compared with others."""
    ways = recorded(ROOT)

    event, label, idle = (
        {Path(file).name for file in files_of(way)} for way in (ways.event, ways.label, ways.idle)
    )
    assert {"decode.py", "store.py", "windows.py", "verify.py"} <= event
    assert {"decode.py", "store.py", "windows.py"} <= label
    assert "verify.py" not in label
    assert not {"decode.py", "verify.py"} & idle
