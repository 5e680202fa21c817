"""Memory of a replay: constant in the number of records, and the documented bytes per row."""

from __future__ import annotations

import gc
import json
import multiprocessing
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.registry import ITERATIONS, metrics_at
from stream_metrics.lab.evaluation.estimates import Intervals
from stream_metrics.lab.evaluation.generation import Generation
from stream_metrics.lab.evaluation.retrieval import Retrieval
from stream_metrics.lab.replay.outcome import Outcome
from stream_metrics.lab.replay.report import (
    ROW_FIGURES,
    GateBlock,
    Report,
    RoutingBlock,
    RowCounts,
)
from stream_metrics.lab.replay.run import Execution, run
from stream_metrics.lab.replay.spool import SHARDS, spool_key
from stream_metrics.lab.statistics import resampling
from tests.replays import METRICS, RecordedProgress, task

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "replay.md"
SAID = (
    r"some (?P<row>\d+)\s+bytes\s+per\s+row,\s+(?P<answer>\d+)\s+per\s+answer,\s+and\s+"
    r"(?P<search>\d+)\s+per\s+search\s+with\s+(?P<metric>\d+)\s+more\s+for\s+each\s+metric"
)
EACH_BYTES = {"row": 640, "answer": 460, "search": 300, "metric": 30}
"""At most, of each; a metric is one of a search."""

SIZES = (4_000, 8_000)
DRAWS = Intervals(resample_count=50)
KIB = 1 << 10
IN_A_PIECE = 4
BytesEach = Callable[[Callable[[int], object]], float]
Body = dict[str, Any]


def test_the_docs_have_the_tested_figures() -> None:
    """The figures in ``docs/guides/replay.md`` are the limits of these tests."""
    found = re.search(SAID, DOCUMENT.read_text(encoding="utf-8"))
    assert found
    assert {name: int(value) for name, value in found.groupdict().items()} == EACH_BYTES


# -- what the intervals draw from -------------------------------------------------------------


@pytest.fixture
def bytes_each(monkeypatch: pytest.MonkeyPatch) -> BytesEach:
    """Measures by how many bytes one more item raises the peak memory of ``fill(size)``.

    Resamples are drawn one by one, as they are for so many units that one resample fills a block.
    """
    monkeypatch.setattr(resampling, "BLOCK", 1)
    monkeypatch.setattr(resampling, "CELLS", 1)

    def measure(fill: Callable[[int], object]) -> float:
        fill(SIZES[0])  # allocations that do not depend on the size are not counted
        peaks = []
        for size in SIZES:
            tracemalloc.start()
            try:
                fill(size)
                peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
        return (peaks[1] - peaks[0]) / (SIZES[1] - SIZES[0])

    return measure


def assert_near(found_bytes: float, said_bytes: int) -> None:
    """Check that memory is at most the documented figure, and more than half of it."""
    assert said_bytes / 2 < found_bytes <= said_bytes


@pytest.mark.slow
def test_memory_per_row_is_as_documented(bytes_each: BytesEach) -> None:
    """A row includes all metrics, intervals and strata."""

    def fill(size: int) -> object:
        report = Report(("agent", "language"), DRAWS)
        for number in range(size):
            report.add(row(number))
        report.add_recorded({"language": ("de", "en")[number % 2]} for number in range(size))
        return report.document(Outcome(), [], {})

    assert_near(bytes_each(fill), EACH_BYTES["row"])


def row(number: int) -> RowCounts:
    """The fields of a row that a report reads; each conversation has one row."""
    value = number % 7 / 7
    figures: dict[str, Any] = {metric.key: value for metric in metrics_at("through", "turn")}
    return ROW_FIGURES(
        f"conversation-{number:012}", 1, ("bot", "desk")[number % 2], None, False, 2, 8, 5, 4, 3, 5,
        0, 2, 2, 0, 0, 0, 0, 9, "qrels", GateBlock(0, 0, 0, 0, 0, 0), RoutingBlock({}, 0, 0),
        **figures | {ITERATIONS: 3},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("metrics", [1, 10])
def test_memory_per_search_is_as_documented(metrics: int, bytes_each: BytesEach) -> None:
    """A conversation has two searches, by different routes; there are two languages."""
    names = [f"metric-{at}" for at in range(metrics)]

    def fill(size: int) -> object:
        retrieval = Retrieval(names)
        for number in range(size):
            retrieval.add(search(number, names), [])
        return retrieval.block(intervals=DRAWS)

    each = EACH_BYTES
    assert_near(bytes_each(fill), each["search"] + metrics * each["metric"])


def search(number: int, names: list[str]) -> Body:
    """A row of ``queries.jsonl``."""
    language = ("de", "en")[number // 2 % 2]
    return {
        "conversation_id": f"conversation-{number // 2:012}",
        "turn": 1,
        "agent": "bot",
        "dimensions": {"language": language, "route": ("kb", "web")[number % 2]},
        "strategy": "judged",
        "n_retrieved": 3,
        "n_judged": 2,
        "scores": dict.fromkeys(names, number % 5 / 5),
    }


def test_memory_per_answer_is_as_documented(bytes_each: BytesEach) -> None:
    """An answer has all metrics that need no model."""

    def fill(size: int) -> object:
        generation = Generation()
        for number in range(size):
            generation.add(answer(number))
        return generation.block(intervals=DRAWS)

    assert_near(bytes_each(fill), EACH_BYTES["answer"])


def answer(number: int) -> Body:
    """A row of ``turns.jsonl``."""
    metrics = (
        "exact_match", "token_f1", "rouge_l", "answer_relevance", "support_coverage",
        "support_density", "hallucination_rate",
    )  # fmt: skip
    return {
        "conversation_id": f"conversation-{number:012}",
        "turn": 1,
        "agent": "bot",
        "dimensions": {"language": ("de", "en")[number % 2]},
        "n_tokens": 3,
        "n_references": 1,
        "n_texts": 2,
        "scores": dict.fromkeys(metrics, number % 5 / 5),
    }


# -- records ----------------------------------------------------------------------------------


class Peaks(NamedTuple):
    """The peak memory of each stage, in bytes."""

    spooling: int
    computing: int
    merging: int


class Measuring(RecordedProgress):
    """Records the peak memory of a stage when the next one begins."""

    def __init__(self) -> None:
        super().__init__()
        self.peaks: list[int] = []

    def computed(self, pieces: int, of: int) -> None:
        """Record the peak of spooling at the first call, after garbage is collected."""
        gc.collect()
        if not self.peaks:
            self.stage()

    def merging(self) -> None:
        """Record the peak of computing."""
        self.stage()

    def stage(self) -> None:
        """Record the peak of the stage that has ended."""
        self.peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()


def peaks_of(names: Sequence[str], out: Path, piece_bytes: int) -> Peaks:
    """Replay these conversations with texts in pieces of this size; returns the peaks."""
    scale = Execution(small_records=0, piece_bytes=piece_bytes, note_bytes=64 * KIB)
    records = (record for name in names for record in texts(name))
    replay = task(records, out, scale, evaluation={"confidence_intervals": False})
    told = Measuring()
    gc.freeze()  # so that each collection does not scan all earlier objects
    tracemalloc.start()
    try:
        run(replay, told)
        told.stage()
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return Peaks(*told.peaks)


def texts(name: str) -> Iterator[Record]:
    """A search and an answer in a conversation."""
    common = {"conversation_id": name, "turn": 1}
    result = {"result_id": "r", "gain": 3, "content": f"{name} " * 30}
    events: list[Body] = [
        {"type": "search_iteration", "iteration": 1,
         "searches": [{"search_id": "s", "results": [result]}]},
        {"type": "turn_completed", "answer": name, "reference_answers": ["1", "2"]},
    ]  # fmt: skip
    for at, event in enumerate(events):
        body = {**common, **event, "event_id": str(at), "occurred_at": 1_718_020_800 + at}
        yield Record(json.dumps(body).encode())


def names_in(parts: int) -> list[str]:
    """Conversations, ``IN_A_PIECE`` in each of the ``parts`` of each shard."""
    found: list[str] = []
    cells: Counter[tuple[int, int]] = Counter()
    for number in count():
        if len(found) == SHARDS * parts * IN_A_PIECE:
            return found
        name = f"conversation-{number:06}"
        place = spool_key(next(texts(name)), 0, Limits())
        cell = (place.shard % SHARDS, place.part % parts)
        if cells[cell] < IN_A_PIECE:
            cells[cell] += 1
            found.append(name)
    raise AssertionError


def small_and_large(out: Path, piece_bytes: int) -> tuple[Peaks, Peaks]:
    """The peaks with the conversations of ``names_in(1)`` and of ``names_in(4)``.

    They are measured in a separate process, without the allocations of other tests.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        return alone.submit(_small_and_large, out, piece_bytes).result()


def _small_and_large(out: Path, piece_bytes: int) -> tuple[Peaks, Peaks]:
    small, large = names_in(1), names_in(4)
    peaks_of(small, out / "made once", piece_bytes)
    return peaks_of(small, out / "small", piece_bytes), peaks_of(large, out / "large", piece_bytes)


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_records(tmp_path: Path) -> None:
    """Spooling and computing four times the input, in pieces of equal size, need no more memory."""
    one = sum(len(record.value or b"") for record in texts("conversation-000000"))

    before, after = small_and_large(tmp_path, IN_A_PIECE * one * 5 // 4)

    added = one * (len(names_in(4)) - len(names_in(1)))
    assert after.spooling - before.spooling < added / 4
    assert after.computing - before.computing < added / 4


@pytest.mark.long
def test_memory_of_merging_is_as_documented(tmp_path: Path) -> None:
    """Larger shards need the documented bytes for each row, search and answer."""
    before, after = small_and_large(tmp_path, KIB * KIB)

    each = EACH_BYTES
    own = each["row"] + each["answer"] + each["search"] + (len(METRICS) + 1) * each["metric"]
    more = len(names_in(4)) - len(names_in(1))
    assert (after.merging - before.merging) / more < own
