"""What a report says of searches does not depend on the parts in which their rows were made."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from stream_metrics.lab.evaluation.estimates import Intervals
from stream_metrics.lab.replay.search_figures import SearchFigures
from stream_metrics.lab.reports.files import QUERIES, RELEVANT
from tests.replays import AT_ONCE, replayed, traffic

METRICS = ("ndcg@10", "recall@2", "mrr", "judged@2", "judged@10")
FEW_DRAWS = Intervals(resample_count=20)


@pytest.mark.parametrize("seed", range(3))
def test_figures_of_parts_are_those_of_the_whole(seed: int, tmp_path: Path) -> None:
    """The block of the report and the worst searches are the same, ties among them included."""
    found = replayed(traffic(), tmp_path / "replay", AT_ONCE, evaluation={"resamples": 20})
    lines = (map(json.loads, found[name].splitlines()) for name in (QUERIES, RELEVANT))
    draw = random.Random(seed)
    part_of = [draw.randrange(3) for _ in range(80)]
    whole, parts = SearchFigures(METRICS), [SearchFigures(METRICS) for _ in range(3)]

    for row, without in zip(*lines, strict=True):
        whole.add(row, without)
        parts[part_of[hash(row["conversation_id"]) % 80]].add(row, without)
    paths = [tmp_path / str(at) for at in range(3)]
    for part, path in zip(parts, paths, strict=True):
        part.save(path)
    loaded = SearchFigures.load(METRICS, paths)

    expected = whole.retrieval.block(intervals=FEW_DRAWS)
    assert loaded.retrieval.block(intervals=FEW_DRAWS) == expected
    assert list(loaded.shown.worst()) == list(whole.shown.worst())
    assert [bins.labelled() for bins in loaded.shown.bins.values()] == [
        bins.labelled() for bins in whole.shown.bins.values()
    ]
