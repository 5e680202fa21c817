"""What people and the model say of a turn, each alone, equals the reference."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.label_sums import label_sums, ndcg_metrics, samples
from stream_metrics.core.metrics.labels import COUNTING, SOURCES
from stream_metrics.core.metrics.ranking.live import live_metrics
from tests import oracle
from tests.oracle.retrieval import scores
from tests.property.test_engine import replayed, rival_labels
from tests.strategies import arrivals, streams

RETRIEVAL = ("map", "ndcg@10")
TEN_THOUSANDTH = 10_000


def of_source(turn: oracle.Turn, source: str, iteration: int) -> tuple[object, ...]:
    """What a source says of an iteration, from the definitions."""
    firsts = [
        first
        for first, one in enumerate(turn.found)
        if turn.is_unique(first) and one.iteration == iteration
    ]
    gains = [gain for first in firsts if (gain := turn.gain_by(source, first)) is not None]
    good = [gain for gain in gains if gain >= turn.options.good_gain]
    searches = [
        scores(turn, won.entry["search_id"], ("ndcg@10",), source)
        for won in turn.searches_of(iteration)
    ]
    judged = [one["ndcg@10"] for one in searches if one]
    ndcg = (sum(round(value * TEN_THOUSANDTH) for value in judged),) if judged else ()
    return len(gains), len(good), sum(good), ndcg, len(judged)


@given(st.data())
def test_the_sums_of_each_source_are_those_of_the_reference(data: st.DataObject) -> None:
    """In any order of arrival and whichever source counts, each source's documents, gains and NDCG
    of each iteration are those of its own labels, and the samples those of all events."""
    stream = data.draw(st.one_of(streams(), rival_labels()))
    counting = data.draw(st.sampled_from(COUNTING))
    records = [oracle.Record(v, k, t) for k, v, t in stream]
    expected = oracle.evaluate(records, turn_scope="all", labels=counting)

    config = EngineConfig(retrieval=live_metrics(RETRIEVAL), labels=counting)
    engine = replayed(data.draw(arrivals(stream)), "all", config)

    held = {
        (conversation.conversation_id, number): turn
        for conversation in engine.conversations()
        for number, turn in conversation.turns.items()
    }
    assert [str(metric) for metric in ndcg_metrics(config)] == ["ndcg@10"]
    for turn in expected.turns:
        own = held[turn.conversation, turn.number]
        assert samples(own) == turn.samples
        found = label_sums(own, config)
        assert [one.iteration.number for one in found] == turn.counted()
        for one in found:
            for source, sums in zip(SOURCES, one[1:], strict=True):
                assert sums == of_source(turn, source, one.iteration.number)


def test_a_search_that_ground_truth_cannot_judge_has_no_score_in_the_sums() -> None:
    """Its results have no ids, which the ground truth is about; the other search counts alone."""
    at = {"conversation_id": "c1", "turn": 1, "occurred_at": "2025-03-18T09:00:00Z"}
    searches = [
        {"search_id": "s1", "results": [{"result_id": "r1", "doc_id": "D-1"}]},
        {"search_id": "s2", "results": [{"result_id": "r2", "url": "https://docs.example"}]},
    ]
    sent = [
        {"type": "search_iteration", "event_id": "e1", "iteration": 1, "searches": searches, **at},
        {"type": "turn_completed", "event_id": "e2", "relevant": ["D-1"], **at},
    ]
    config = EngineConfig(retrieval=live_metrics(RETRIEVAL))
    engine = replayed([[(b"c1", json.dumps(one).encode(), None) for one in sent]], "all", config)
    [conversation] = engine.conversations()
    [found] = label_sums(conversation.turns[1], config)

    assert (found.human.ndcg, found.human.scored) == ((TEN_THOUSANDTH,), 1)
