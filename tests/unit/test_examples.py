"""The example streams give their rows in every order, and in the reference too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stream_metrics.core.engine.row import canonical
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from tests import oracle

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.name.removesuffix(".expected.jsonl") for path in EXAMPLES.glob("*.expected.*"))


def events(name: str) -> list[bytes]:
    """The stream in its order of arrival."""
    return (EXAMPLES / f"{name}.jsonl").read_bytes().splitlines()


def expected(name: str) -> tuple[str, str]:
    """The rows and the windows that the stream must give."""
    rows = (EXAMPLES / f"{name}.expected.jsonl").read_text(encoding="utf-8")
    return rows, (EXAMPLES / f"{name}.windows.json").read_text(encoding="utf-8")


def test_there_are_examples() -> None:
    """Every stream has files of its rows and its windows."""
    streams = {path.name.partition(".")[0] for path in EXAMPLES.glob("*.jsonl")}

    assert set(NAMES) == streams
    assert len(NAMES) >= 8


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(12))
def test_the_rows_do_not_depend_on_the_order(name: str, seed: int) -> None:
    """Shuffled, repeated and divided anywhere, the stream gives the same rows and windows."""
    lines, order = events(name), random.Random(seed)
    if seed:
        lines = order.sample(lines, len(lines)) + order.choices(lines, k=2)
    engine = Replay()
    for line in lines:
        engine.feed(Record(line))
        if order.random() < 0.3:
            engine.flush()

    rows = "".join(canonical(row) + "\n" for row in engine.rows())
    assert (rows, canonical(engine.windows()) + "\n") == expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_gives_the_same_rows(name: str) -> None:
    """The brute-force reference also gives the same windows."""
    outcome = oracle.evaluate([oracle.Record(line) for line in events(name)])

    rows = "".join(row + "\n" for row in outcome.rows)
    assert (rows, outcome.windows()) == expected(name)
