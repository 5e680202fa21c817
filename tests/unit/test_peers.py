"""The programs that benchmarks compare with count the same as the project."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random

import pytest

from benchmarks.counted import differences, totals_of
from benchmarks.inprocess import InProcess
from benchmarks.peer import OtherFigures, check_figures
from benchmarks.peers.reading import read
from benchmarks.peers.turns import Figures, Turn, add_up, new_turn, take
from benchmarks.workload import as_records, traffic
from stream_metrics.cli.settings import Settings
from stream_metrics.lab.traffic import TrafficRecord

RECORDS = 1_500


@pytest.fixture(scope="module")
def sent() -> list[TrafficRecord]:
    """Traffic with late and early labels, repeats, disorder and broken records."""
    return traffic(RECORDS).records


def counted(records: Iterable[TrafficRecord]) -> dict[str, Figures]:
    """The counts of a peer whose state is serialised to JSON between events."""
    turns: defaultdict[tuple[str, int], str] = defaultdict(lambda: json.dumps(new_turn()))
    totals: dict[str, Figures] = {}
    for record in records:
        event = read(json.loads, record.key, record.value)
        if event is not None:
            name = event["conversation_id"], event["turn"]
            turn: Turn = json.loads(turns[name])
            change = take(turn, event)
            turns[name] = json.dumps(turn)
            add_up(totals, turn["agent"], change)
    return totals


async def ours(records: Sequence[TrafficRecord]) -> dict[str, Figures]:
    """The counts of the worker's code."""
    path = await InProcess().open()
    await path.process(as_records(records))
    return await totals_of(path.store, Settings.model_validate({}).engine_config())


@pytest.mark.slow
async def test_peers_give_the_figures_of_the_worker(sent: list[TrafficRecord]) -> None:
    """Their rules are simpler, but equal on this workload."""
    expected = await ours(sent)
    assert all(figures[1] and figures[3] for figures in expected.values())
    assert differences(expected, counted(sent)) == []


@pytest.mark.slow
async def test_the_order_does_not_matter(sent: list[TrafficRecord]) -> None:
    """Peers read two topics in any order, and each record at least once."""
    shuffled = [*sent, *sent[::7]]
    Random(5).shuffle(shuffled)
    assert counted(shuffled) == counted(sent)


def test_a_difference_is_named() -> None:
    """The message says which count differs."""
    found = differences({"a": [9, 2, 5, 3, 8]}, {"a": [9, 2, 5, 4, 8], "b": [1, 0, 0, 0, 0]})
    assert found == ["a: good 4 instead of 3", "b: results 1 instead of 0"]


def test_a_run_with_other_counts_ends_the_benchmark() -> None:
    """This applies to runs of the worker and of peers, also if nothing was counted."""
    expected = {"a": [9, 2, 5, 3, 8]}

    check_figures("the worker", expected, {"a": [9, 2, 5, 3, 8]})
    with pytest.raises(OtherFigures, match=r"the worker counted\na: gain 7 instead of 8"):
        check_figures("the worker", expected, {"a": [9, 2, 5, 3, 7]})
    with pytest.raises(OtherFigures, match="results 0 instead of 9"):
        check_figures("the worker", expected, {})


@pytest.mark.parametrize("missing", ["type", "event_id", "occurred_at", "conversation_id", "turn"])
def test_peers_ignore_invalid_envelopes(missing: str) -> None:
    """They count no event that workers refuse."""
    event = {
        "type": "relevance_labels",
        "event_id": "l-1",
        "occurred_at": "2025-03-18T09:01:00Z",
        "conversation_id": "c-1",
        "turn": 1,
        "labels": [{"result_id": "r-1", "gain": 3}],
    }
    assert read(json.loads, b"c-1", json.dumps(event).encode()) is not None
    assert read(json.loads, b"c-2", json.dumps(event).encode()) is None
    del event[missing]
    assert read(json.loads, b"c-1", json.dumps(event).encode()) is None
