"""The engine equals a brute-force reference that shares no code with it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.dedup.tables import DedupRules, published
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.labels import COUNTING
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.lab.replay.offline import Replay
from tests import oracle
from tests.oracle.retrieval import METRICS
from tests.strategies import ROUTES, Draw, KeyedRecord, arrivals, streams

START_S = 1_718_020_800


_RIVAL: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"at": st.sampled_from([60, 61, 62, 120]), "needed": st.booleans()},
    optional={
        "labels": st.lists(
            st.fixed_dictionaries(
                {
                    "result_id": st.sampled_from(["s1-1", "s1-2", "s2-1"]),
                    "gain": st.sampled_from([4, 3, 2, 1, 0, None]),
                }
            ),
            min_size=1,
            max_size=3,
        ),
        "optimal": st.sampled_from([*ROUTES, None]),
        "source": st.sampled_from(["model", "human"]),
        "labeller": st.sampled_from(["llm-2", "people"]),
        "sample": st.sampled_from(["random", "chosen"]),
    },
)


@st.composite
def rival_labels(draw: Draw) -> list[KeyedRecord]:
    """One turn of two iterations, and label events about the same results."""
    events: list[dict[str, Any]] = []
    for n in (1, 2):
        found = [{"result_id": f"s{n}-{rank}", "doc_id": f"D-{rank}"} for rank in (1, 2)]
        search: dict[str, Any] = {"search_id": f"s{n}", "results": found}
        search["routing"] = {"selected": "files"}
        kind = {"type": "search_iteration", "iteration": n, "occurred_at": START_S + n}
        events.append({**kind, "searches": [search], "gate": {"decision": "search"}})
    for rival in draw(st.lists(_RIVAL, min_size=2, max_size=8)):
        event: dict[str, Any] = {"type": "relevance_labels", "occurred_at": START_S + rival["at"]}
        event["gate"] = [{"iteration": 1, "search_needed": rival["needed"]}]
        event["routing"] = [{"search_id": "s1", "optimal": rival.get("optimal")}]
        event |= {name: rival[name] for name in ("source", "labeller", "sample") if name in rival}
        events.append(event | {"labels": rival.get("labels", [])})
    common = {"conversation_id": "c1", "turn": 1}
    texts = [json.dumps({**e, **common, "event_id": f"e{n}"}) for n, e in enumerate(events)]
    return [(b"c1", text.encode(), None) for text in texts]


RANKED = EngineConfig(retrieval=live_metrics(METRICS))
LABELLERS = st.sampled_from([(), ("LLM*",)])


def replayed(
    batches: list[list[tuple[bytes, bytes, int | None]]],
    scope: str = "last",
    config: EngineConfig | None = None,
) -> Replay:
    """The engine's state after ``batches``, each applied at once."""
    engine = Replay(config, turn_scope=scope)
    for batch in batches:
        for key, value, timestamp_ms in batch:
            engine.feed(Record(value, key, timestamp_ms))
        engine.flush()
    return engine


def agrees(data: st.DataObject, stream: list[KeyedRecord]) -> None:
    """Draw an order of arrival of ``stream``, and compare the engine with the reference."""
    number = data.draw(st.sampled_from([3, 2, 1]), label="dedup.tables")
    labels = data.draw(st.sampled_from(COUNTING), label="metrics.labels")
    labellers = data.draw(LABELLERS, label="labels.model_labellers")
    records = [oracle.Record(v, k, t) for k, v, t in stream]
    expected = oracle.evaluate(
        records, turn_scope="all", tables=number, labels=labels, model_labellers=labellers
    )

    rules = DedupRules(tables=published()[number])
    config = EngineConfig(rules=rules, labels=labels, model_labellers=labellers)
    engine = replayed(data.draw(arrivals(stream)), "all", config)

    rows = engine.rows()
    assert [canonical(row) for row in rows] == expected.rows
    assert canonical(engine.windows()) + "\n" == expected.windows()


@given(st.data())
def test_any_arrival_gives_the_rows_and_windows_of_the_reference(data: st.DataObject) -> None:
    """Permuted, repeated and split streams give rows and windows equal to the reference's."""
    agrees(data, data.draw(streams()))


@given(st.data())
def test_any_arrival_gives_the_ranked_sums_of_the_reference(data: st.DataObject) -> None:
    """Scores follow labels and ground truth that arrive late, are revised or are withdrawn."""
    stream = data.draw(st.one_of(streams(), rival_labels()))
    records = [oracle.Record(v, k, t) for k, v, t in stream]
    expected = oracle.evaluate(records, retrieval=tuple(METRICS))

    engine = replayed(data.draw(arrivals(stream)), config=RANKED)

    assert canonical(engine.windows()) + "\n" == expected.windows()


@given(st.data())
def test_the_latest_of_rival_labels_counts_in_any_order(data: st.DataObject) -> None:
    """There are many label events about the same few results, in any order of arrival."""
    agrees(data, data.draw(rival_labels()))
