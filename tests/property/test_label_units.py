"""What conversations of random samples add to the windows equals the reference, in any order."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.live.memory import MemoryStore
from tests import oracle
from tests.property.test_engine import replayed
from tests.property.test_partition import live
from tests.strategies import Draw, KeyedRecord, arrivals

START_S = 1_718_020_800
RETRIEVAL = ("map", "ndcg(gains=exponential)@2", "ndcg@10")
HOURS = st.sampled_from([0, 1, 5, 23, 30])
AGENTS = st.sampled_from(["desk", "bot"])
GAINS = st.sampled_from([0, 1, 2, 3, 4, None])


@st.composite
def turns(draw: Draw, conversation: str, number: int) -> list[dict[str, Any]]:
    """The events of a turn: searches, and what people and the model label of it."""
    at = START_S + 3_600 * draw(HOURS)
    agent = draw(AGENTS)
    events: list[dict[str, Any]] = []
    handles: list[str] = []
    for iteration in range(1, draw(st.integers(1, 3)) + 1):
        found = [
            {"result_id": f"r{iteration}-{rank}", "doc_id": draw(st.sampled_from("abcdef"))}
            for rank in range(draw(st.integers(0, 3)))
        ]
        handles += [one["result_id"] for one in found]
        search = {"search_id": f"s{iteration}", "results": found}
        kind = {"type": "search_iteration", "iteration": iteration, "agent": agent}
        events.append({**kind, "searches": [search], "occurred_at": at + iteration})
    for source in draw(st.lists(st.sampled_from(["human", "model"]), max_size=5)):
        labelled = (
            handles if draw(st.booleans()) else draw(st.sets(st.sampled_from(handles or [""])))
        )
        labels = [{"result_id": one, "gain": draw(GAINS)} for one in sorted(labelled) if one]
        event: dict[str, Any] = {"type": "relevance_labels", "source": source, "labels": labels}
        event["sample"] = draw(st.sampled_from(["random", "random", "chosen"]))
        events.append({**event, "occurred_at": at + draw(st.integers(60, 70))})
    return [{**event, "conversation_id": conversation, "turn": number} for event in events]


@st.composite
def sampled(draw: Draw) -> list[KeyedRecord]:
    """A stream of some conversations, most of which are in random samples, some of them erased."""
    events: list[dict[str, Any]] = []
    for conversation in ("c1", "c2", "c3")[: draw(st.integers(1, 3))]:
        for number in range(1, draw(st.integers(1, 3)) + 1):
            events += draw(turns(conversation, number))
    for conversation in draw(st.sets(st.sampled_from(["c1", "c2"]), max_size=1)):
        at = START_S + 3_600 * draw(HOURS) + 65
        events.append({"type": "forget", "conversation_id": conversation, "occurred_at": at})
    texts = [json.dumps({**event, "event_id": f"e{n}"}) for n, event in enumerate(events)]
    return [
        (event["conversation_id"].encode(), text.encode(), None)
        for event, text in zip(events, texts, strict=True)
    ]


def expected(stream: list[KeyedRecord]) -> str:
    """The windows by the reference."""
    records = [oracle.Record(value, key, None) for key, value, _ in stream]
    return oracle.evaluate(records, turn_scope="all", retrieval=RETRIEVAL).windows()


@given(st.data())
def test_the_sums_of_conversations_are_those_of_the_reference(data: st.DataObject) -> None:
    """Turns and labels that come, change and are erased in any order leave the sums of what is."""
    stream = data.draw(sampled())
    config = EngineConfig(retrieval=live_metrics(RETRIEVAL))
    engine = replayed(data.draw(arrivals(stream)), "all", config)

    assert canonical(engine.windows()) + "\n" == expected(stream)


@given(st.data())
def test_the_live_path_keeps_the_sums_of_conversations(data: st.DataObject) -> None:
    """The same holds for state that is stored, loaded and taken over by another worker."""
    stream = data.draw(sampled())
    config = EngineConfig(retrieval=live_metrics(RETRIEVAL))
    batches = data.draw(arrivals(stream))
    cache_results = data.draw(st.sampled_from([0, 100_000]))
    reopen = data.draw(st.sets(st.integers(0, 6)))
    _, windows, _ = asyncio.run(live(MemoryStore(), batches, cache_results, reopen, config))

    assert windows == expected(stream)


def test_the_stream_has_sums_of_every_sample() -> None:
    """The reference has all samples and figures, so that the comparison says something."""
    texts = []
    for n, sources in enumerate((("human", "model"), ("human",), ("model",), ("drawn",))):
        common = {"conversation_id": f"c{n}", "turn": 1}
        found = [{"result_id": "r", "doc_id": "d"}]
        search = {"type": "search_iteration", "iteration": 1, "occurred_at": START_S, "agent": "a"}
        events = [{**search, "searches": [{"search_id": "s", "results": found}]}] + [
            {
                "type": "relevance_labels", "sample": "random", "occurred_at": START_S + 60,
                "source": "model" if source == "drawn" else source,
                "labels": [] if source == "drawn" else [{"result_id": "r", "gain": 3}],
            }
            for source in sources
        ]  # fmt: skip
        texts += [
            (common["conversation_id"], json.dumps({**event, **common, "event_id": f"e{n}-{at}"}))
            for at, event in enumerate(events)
        ]
    stream: list[KeyedRecord] = [(str(n).encode(), text.encode(), None) for n, text in texts]
    sums = [one for one in json.loads(expected(stream))["sums"] if one["name"] == "label_sums"]

    assert {(one["sample"], one["figure"]) for one in sums} == {
        (sample, figure)
        for sample in ("both", "people", "model", "unlabelled")
        for figure in ("sre", "gain", *RETRIEVAL[1:])
    }
    config = EngineConfig(retrieval=live_metrics(RETRIEVAL))
    assert canonical(replayed([stream], "all", config).windows()) + "\n" == expected(stream)
