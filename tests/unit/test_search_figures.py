"""What a report says of searches depends neither on parts nor on how it is taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.lab.evaluation.estimates import Intervals
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.replay.reread import InMemoryRecords
from stream_metrics.lab.replay.score_texts import scored_lines
from stream_metrics.lab.replay.search_figures import SearchFigures
from tests.replays import located, options, traffic

METRICS = ("ndcg@10", "recall@2", "mrr", "judged@2", "judged@10")
FEW_DRAWS = Intervals(resample_count=20)


def taken() -> tuple[SearchFigures, list[tuple[dict[str, Any], list[int]]]]:
    """The figures of searches that have just been scored, and their rows as they are written."""
    engine, held = Replay.of(options()), InMemoryRecords(list(located(traffic())))
    for position, (source, number, record) in held.each():
        engine.feed(record, source, number, position)
    figures = SearchFigures(METRICS)
    lines: dict[str, list[Any]] = {"queries": [], "relevant": [], "turns": []}
    for kind, line in scored_lines(engine, held, options(), figures):
        lines[kind].append(json.loads(line))
    return figures, list(zip(lines["queries"], lines["relevant"], strict=True))


def shown(figures: SearchFigures) -> Iterator[object]:
    """What reports and pages show."""
    yield figures.retrieval.block(intervals=FEW_DRAWS)
    yield list(figures.shown.worst())
    for bins in figures.shown.bins.values():
        yield bins.labelled(), bins.undefined


def test_figures_are_the_same_taken_from_arrays_and_from_rows() -> None:
    """A directory is merged by its rows, a piece by what was scored."""
    figures, rows = taken()
    by_rows = SearchFigures(METRICS)
    for row, without in rows:
        by_rows.add(row, without)

    assert list(shown(figures)) == list(shown(by_rows))


@pytest.mark.parametrize("count", [1, 3, 7])
def test_figures_of_parts_are_those_of_the_whole(count: int, tmp_path: Path) -> None:
    """Conversations may be divided among parts in any way, ties among them included."""
    figures, rows = taken()
    parts = [SearchFigures(METRICS) for _ in range(count)]
    for row, without in rows:
        parts[sum(row["conversation_id"].encode()) % count].add(row, without)
    paths = [tmp_path / str(at) for at in range(count)]
    for part, path in zip(parts, paths, strict=True):
        part.save(path)

    assert list(shown(SearchFigures.load(METRICS, paths))) == list(shown(figures))
