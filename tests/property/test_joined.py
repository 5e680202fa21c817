"""Ground truth names a document by any of its ids, whatever order events arrive in."""

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
from tests.oracle.retrieval import METRICS
from tests.property.test_engine import START_S, replayed
from tests.property.test_partition import live
from tests.strategies import Draw, KeyedRecord, arrivals, streams
from tests.unit.test_joined import Named, asked, recalls, ruled

CONFIG = EngineConfig(retrieval=live_metrics(METRICS))

DOCUMENTS = ("A", "B", "C", "D", None)
_CONTENTS = [" ".join(f"{word}{n}" for n in range(60)) for word in ("one", "two")]

_RESULT: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"doc_id": st.sampled_from(DOCUMENTS)},
    optional={
        "ids": st.sampled_from([{"chunk_id": "1"}, {"chunk_id": "2"}]),
        "content": st.sampled_from(_CONTENTS),
        "url": st.sampled_from(["https://x.example/a", "https://x.example/b"]),
    },
)
_SENT = _RESULT.map(lambda one: {name: value for name, value in one.items() if value is not None})
_RELEVANT = st.none() | st.dictionaries(
    st.sampled_from(["A", "B", "C", "never found"]), st.integers(0, 4)
)


@st.composite
def joining(draw: Draw) -> list[KeyedRecord]:
    """A turn whose results join documents and ids, with ground truths, some of them replaced."""
    events: list[dict[str, Any]] = []
    for n in range(draw(st.integers(1, 4))):
        found = [
            {"result_id": f"s{n}-{rank}", **one}
            for rank, one in enumerate(draw(st.lists(_SENT, max_size=4)))
        ]
        events.append(
            {
                "type": "search_iteration",
                "iteration": draw(st.integers(1, 3)),
                "searches": [
                    {"search_id": draw(st.sampled_from(["s", f"s{n}"])), "results": found}
                ],
            }
        )
    for relevant in draw(st.lists(_RELEVANT, min_size=1, max_size=2)):
        events.append({"type": "turn_completed", "relevant": relevant})
    common = {"conversation_id": "c1", "turn": 1}
    times = draw(st.permutations(range(len(events))))
    return [
        (
            b"c1",
            json.dumps(
                {**one, **common, "event_id": f"e{n}", "occurred_at": START_S + time}
            ).encode(),
            None,
        )
        for n, (one, time) in enumerate(zip(events, times, strict=True))
    ]


@given(st.data())
def test_any_arrival_gives_the_figures_of_the_reference(data: st.DataObject) -> None:
    """Rows and windows follow results that join documents, before or after the ground truth."""
    stream = data.draw(st.one_of(joining(), streams()))
    records = [oracle.Record(v, k, t) for k, v, t in stream]
    expected = oracle.evaluate(records, turn_scope="all", retrieval=tuple(METRICS))

    engine = replayed(data.draw(arrivals(stream)), "all", CONFIG)

    assert [canonical(row) for row in engine.rows()] == expected.rows
    assert canonical(engine.windows()) + "\n" == expected.windows()


@given(st.data())
def test_stored_state_is_corrected_exactly(data: st.DataObject) -> None:
    """What a worker writes batch by batch, with state that it reads anew, are the same figures."""
    stream = data.draw(joining())
    batches = data.draw(arrivals(stream))
    records = [oracle.Record(v, k, None) for batch in batches for k, v, _ in batch]
    expected = oracle.evaluate(records, turn_scope="all", keyed=True, retrieval=tuple(METRICS))

    cached = data.draw(st.sampled_from([0, 100_000]))
    rows, windows, _ = asyncio.run(live(MemoryStore(), batches, cached, {1}, CONFIG))

    assert rows == expected.rows
    assert windows == expected.windows()


@given(
    st.lists(st.lists(_SENT, max_size=4), min_size=1, max_size=3),
    st.sets(st.sampled_from(["A", "B", "C", "never found"])),
)
def test_a_rule_by_id_gives_the_figures_of_a_ground_truth(
    searches: list[list[dict[str, Any]]], ids: set[str]
) -> None:
    """A rule that names ids finds what a ground truth with these ids does."""
    fed = asked(dict.fromkeys(ids, 1), *searches)
    truth = [fed.figures(f"s{n}").get("recall@5") for n in range(1, len(searches) + 1)]

    rule = recalls(ruled(Named(*sorted(ids)), *searches))

    pairs = zip(truth, rule, strict=True)
    assert [(one, other) for one, other in pairs if one is not None and one != other] == []
