"""Live sums of ranked metrics: the allowed ones, their sums, and their cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from stream_metrics.cli.settings import Settings
from stream_metrics.core.engine.codec import decode_conversation, encode_changes
from stream_metrics.core.engine.config import MAX_RETRIEVAL, EngineConfig
from stream_metrics.core.engine.state import DamagedState, Turn
from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.core.metrics.ranking.names import MetricNameError
from stream_metrics.lab.metrics.id_functions import ndcg_at_k, recall_at_k
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import ConversationKey, StoredConversation
from stream_metrics.live.worker.options import conversation_key
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_fast_paths import Fed

NAMES = ("judged@10", "ndcg@10", "recall@10")
RETRIEVAL = live_metrics(NAMES)
NANO = 10**9


def settings(*names: str) -> Settings:
    """Settings with these metrics."""
    return Settings.model_validate({"metrics": {"retrieval": names}})


def sums(fed: Fed) -> dict[str, int]:
    """The sums of everything that was applied."""
    found: dict[str, int] = {}
    for sign, cell in fed.cells:
        for code, value in cell.sums.items():
            found[code] = found.get(code, 0) + sign * value
    return {code: value for code, value in found.items() if value}


def ranked(fed: Fed) -> dict[str, tuple[int, int]]:
    """Count and sum of each metric that has any."""
    found = sums(fed)
    return {
        name: (found[f"rc|{name}"], found.get(f"rs|{name}", 0))
        for name in NAMES
        if f"rc|{name}" in found
    }


def billionths(value: float) -> int:
    """A score as stored in sums."""
    return round(value * NANO)


# -- settings ---------------------------------------------------------------------------------


def test_no_ranked_metric_is_computed_unless_one_is_named() -> None:
    """The list is empty by default, and the engine has none."""
    assert Settings.model_validate({}).engine_config().retrieval == ()


def test_names_are_stored_in_canonical_form() -> None:
    """Spelling and order of the metrics do not change the state."""
    one, other = (
        settings("NDCG_at_10", "p(rel=2, denominator=k)@5"),
        settings("precision(rel=2)@5", "ndcg@10", "ndcg@10"),
    )

    assert one.metrics.retrieval == ("ndcg@10", "precision(rel=2)@5")
    assert one.fingerprint() == other.fingerprint()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ndgc@10", "did you mean ndcg"),
        ("recall", "needs a cut-off, as in recall@10"),
        ("max_ont_sim@3", "events do not contain the expected terms"),
        ("ontology", "events do not contain the expected terms"),
        ("err(max_grade=2)@3", "take max_grade=4 or more"),
        ("rbp(max_grade=5000,gains=linear)", "take max_grade=1000 or less"),
        ("aqwv(beta=1e9)@5", "take beta=1000 or less"),
        ("p_fa(fa=collection(100))@5", "take fa=retrieved"),
    ],
)
def test_metrics_that_cannot_be_live_are_refused(name: str, words: str) -> None:
    """The error says what is wrong before any event is read."""
    with pytest.raises(MetricNameError, match=words):
        live_metrics([name])
    with pytest.raises(ValidationError, match=words):
        settings(name)


def test_a_list_that_is_too_long_is_refused() -> None:
    """Each agent has series of each metric."""
    names = [f"ndcg@{k}" for k in range(1, MAX_RETRIEVAL + 2)]

    assert settings(*names[1:]).metrics.retrieval
    with pytest.raises(ValidationError, match=f"name at most {MAX_RETRIEVAL}"):
        settings(*names)


# -- sums -------------------------------------------------------------------------------------


def test_labels_judge_all_searches_of_the_turn() -> None:
    """The ground truth is every labelled document, whichever search returned it."""
    fed = Fed(retrieval=RETRIEVAL)
    fed.take(fed.search("a", "D1", "D2"), fed.search("b", "D3", iteration=2))
    fed.take(fed.labels(a_1=1, a_2=3, b_1=4))

    grades = {"D1": 1, "D2": 3, "D3": 4}
    scores = [ndcg_at_k(list(grades), shown, 10, grades) for shown in (["D1", "D2"], ["D3"])]
    recalls = [recall_at_k(["D2", "D3"], shown, 10) for shown in (["D1", "D2"], ["D3"])]
    assert ranked(fed) == {
        "judged@10": (2, 2 * NANO),
        "ndcg@10": (2, sum(map(billionths, scores))),
        "recall@10": (2, sum(map(billionths, recalls))),
    }


@pytest.mark.parametrize("inline", [False, True])
def test_labels_found_by_a_search_judge_earlier_searches(inline: bool) -> None:
    """They waited for its results or are inline, and its documents are new."""
    fed = Fed(retrieval=RETRIEVAL)
    fed.take(fed.search("a", "D1"), fed.labels(a_1=1) if inline else fed.labels(a_1=1, b_1=4))
    results = [{"result_id": "b-1", "doc_id": "D2"} | ({"gain": 4} if inline else {})]
    searches = [{"search_id": "b", "results": results}]
    fed.take(fed.event("search_iteration", iteration=2, searches=searches))

    grades = {"D1": 1, "D2": 4}
    scores = [ndcg_at_k(list(grades), shown, 10, grades) for shown in (["D1"], ["D2"])]
    assert ranked(fed) == {
        "judged@10": (2, 2 * NANO),
        "ndcg@10": (2, sum(map(billionths, scores))),
        "recall@10": (2, NANO),
    }


def test_a_ground_truth_replaces_labels() -> None:
    """It applies when it comes, late or not, until a later event withdraws it."""
    fed = Fed(retrieval=RETRIEVAL)
    fed.take(fed.search("a", "D1", "D2"), fed.labels(a_1=4))
    by_labels = ranked(fed)
    fed.take(fed.event("turn_completed", relevant={"D2": 1, "D9": 1}))

    expected = billionths(ndcg_at_k(["D2", "D9"], ["D1", "D2"], 10))
    assert ranked(fed) == {
        "judged@10": (1, NANO // 2),
        "ndcg@10": (1, expected),
        "recall@10": (1, NANO // 2),
    }
    assert by_labels["ndcg@10"] == (1, NANO)
    fed.take(fed.labels(a_2=3, a_1=0))
    assert ranked(fed)["ndcg@10"] == (1, expected)
    fed.take(fed.event("turn_completed", relevant=None), fed.labels(a_2=None, a_1=4))
    assert ranked(fed) == by_labels


def test_an_empty_ground_truth_scores_zero() -> None:
    """It says that nothing is relevant, which differs from having no judgement."""
    fed = Fed(retrieval=RETRIEVAL)
    fed.take(fed.search("a", "D1"), fed.event("turn_completed", relevant=[]))

    assert ranked(fed) == {"judged@10": (1, 0), "ndcg@10": (1, 0), "recall@10": (1, 0)}


def test_unjudged_searches_are_not_counted() -> None:
    """This includes searches whose only label was withdrawn."""
    fed = Fed(retrieval=RETRIEVAL)
    fed.take(fed.search("a", "D1"), fed.search("b", "D2", iteration=2))
    assert ranked(fed) == {}
    fed.take(fed.labels(b_1=0))
    assert ranked(fed)["judged@10"] == (2, NANO)
    fed.take(fed.labels(b_1=None))
    assert ranked(fed) == {}


def test_a_repeat_keeps_its_rank_and_scores_nothing() -> None:
    """A passage of a document above it has the same ``doc_id`` but is a separate document."""
    fed = Fed(retrieval=live_metrics(["ndcg@10", "redundancy@10"]))
    passages = [
        {"result_id": f"a-{n}", "doc_id": doc, "ids": {"chunk_id": f"{n}"}, "gain": gain}
        for n, (doc, gain) in enumerate([("D1", 2), ("D1", 4), ("D2", 3)])
    ]
    fed.take(
        fed.event(
            "search_iteration", iteration=1, searches=[{"search_id": "a", "results": passages}]
        )
    )

    labels = {"0": 2, "1": 4, "2": 3}
    expected = ndcg_at_k(list(labels), ["0", "again", "2"], 10, labels)
    found = sums(fed)
    assert found["rs|ndcg@10"] == billionths(expected)
    assert found["rs|redundancy@10"] == billionths(1 / 3)


def test_an_undefined_score_is_in_neither_sum_nor_count() -> None:
    """A search without a result has no judged share; its NDCG is 0."""
    fed = Fed(retrieval=RETRIEVAL)
    fed.take(fed.search("a"), fed.search("b", "D1", iteration=2), fed.labels(b_1=3))

    assert {name: count for name, (count, _) in ranked(fed).items()} == {
        "judged@10": 1,
        "ndcg@10": 2,
        "recall@10": 2,
    }


# -- state ------------------------------------------------------------------------------------


class Asked(MemoryStore):
    """A store that records whether fingerprints were read."""

    def __init__(self) -> None:
        super().__init__()
        self.fingerprints: list[bool] = []

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]], *, hot: bool = True
    ) -> list[StoredConversation]:
        """Record the call, and load."""
        self.fingerprints += [wanted for _, wanted in keys]
        return await super().load(partition, keys, hot=hot)


async def stored(retrieval: tuple[str, ...]) -> tuple[Asked, StoredConversation]:
    """The stored parts of a search, its labels and its ground truth, without a cache."""
    store = Asked()
    engine = EngineConfig(retrieval=live_metrics(retrieval))
    partition = await opened(store, MemoryDeadLetters(), 0, engine=engine)
    bodies: list[dict[str, Any]] = [
        {"type": "search_iteration", "iteration": 1, "searches": [
            {"search_id": "a", "results": [{"result_id": "a-1", "doc_id": "D1"}]}]},
        {"type": "relevance_labels", "labels": [{"result_id": "a-1", "gain": 3}]},
        {"type": "turn_completed", "relevant": ["D1"]},
        {"type": "relevance_labels", "labels": [{"result_id": "a-1", "gain": 1}]},
    ]  # fmt: skip
    for at, body in enumerate(bodies):
        event = {**body, "event_id": f"e{at}", "conversation_id": "c", "turn": 1,
                 "occurred_at": 1_718_020_800 + at}  # fmt: skip
        value = json.dumps(event).encode()
        await partition.process([Record(value, b"c", None, TOPIC, 0, at)], once)
    [parts] = await store.load(0, [(conversation_key("c"), True)])
    return store, parts


async def test_a_label_needs_no_fingerprints() -> None:
    """Ranked metrics do not change this: the data they need of a search is stored with
    its labels."""
    store, _ = await stored(NAMES)

    assert store.fingerprints[:4] == [True, False, True, False]


async def test_document_ids_are_stored_only_for_ranked_metrics() -> None:
    """Otherwise the state is unchanged."""
    _, plain = await stored(())
    _, ranked_parts = await stored(NAMES)

    more = ranked_parts.hot.keys() - plain.hot.keys()
    assert {name[:1] for name in more} == {b"d"}
    assert {name: ranked_parts.hot[name] for name in plain.hot} == plain.hot


def without(parts: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Remove the document ids."""
    return {name: part for name, part in parts.items() if name[:1] != b"d"}


def too_few(parts: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Replace the document ids by those of a search without results."""
    return {name: b"\x91\x90" if name[:1] == b"d" else part for name, part in parts.items()}


def of_nobody(parts: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Add document ids of an event that does not exist."""
    return {**parts, b"d" + bytes(16): b"\x91\x91\xc0"}


@pytest.mark.parametrize("damage", [without, too_few, of_nobody])
async def test_document_ids_that_do_not_fit_are_damage(
    damage: Callable[[dict[bytes, bytes]], dict[bytes, bytes]],
) -> None:
    """Nothing is scored from incomplete data."""
    _, parts = await stored(NAMES)
    fed = Fed(retrieval=RETRIEVAL)

    with pytest.raises(DamagedState, match="document ids"):
        fed.step.restore(decode_conversation("c", damage(dict(parts.hot)), ""))


# -- work -------------------------------------------------------------------------------------


def turn_of(fed: Fed) -> Turn:
    """The only turn."""
    return fed.conversation.turns[1]


def test_without_ranked_metrics_nothing_is_scored_or_stored() -> None:
    """The live path has no additional cost."""
    fed = Fed()
    fed.take(fed.search("a", "D1"), fed.labels(a_1=3), fed.event("turn_completed", relevant=["D1"]))
    changes = fed.step.apply(fed.conversation, [fed.search("b", "D2", iteration=2)], fed.seen)

    assert turn_of(fed).scores == {}
    assert all(search.doc_ids is None for search in turn_of(fed).order)
    assert changes.identified == set()
    assert not any(code[:3] in ("rs|", "rc|") for code in sums(fed))


def test_a_search_is_scored_by_itself() -> None:
    """Scores of earlier searches stay, unless it brings labels."""
    fed = Fed(retrieval=RETRIEVAL)
    fed.take(fed.search("a", "D1"), fed.labels(a_1=3))
    before = turn_of(fed).scores["a"]
    fed.take(fed.search("b", "D2", iteration=2))

    assert turn_of(fed).scores["a"] is before
    assert turn_of(fed).scores.keys() == {"a", "b"}


def test_a_label_changes_no_score_under_a_ground_truth() -> None:
    """Nothing is scored again."""
    fed = Fed(retrieval=RETRIEVAL)
    fed.take(fed.search("a", "D1"), fed.event("turn_completed", relevant=["D1"]))
    before = turn_of(fed).scores["a"]
    fed.take(fed.labels(a_1=3))

    assert turn_of(fed).scores["a"] is before


def test_only_differences_go_to_the_windows() -> None:
    """A label that changes no score of a search changes nothing in its iteration."""
    fed = Fed(retrieval=live_metrics(["hit@1"]))
    fed.take(fed.search("a", "D1"), fed.search("b", "D2", "D3", iteration=2))
    fed.take(fed.labels(a_1=3, b_1=3))
    fed.cells.clear()
    fed.take(fed.labels(b_2=2))

    assert len(fed.cells) == 2  # the second iteration's, and the turn's
    assert not any(code.startswith("rs|") for _, cell in fed.cells for code in cell.sums)


def test_a_reloaded_conversation_gives_the_same_sums() -> None:
    """It is loaded without fingerprints and scored as before its eviction."""
    fed = Fed(retrieval=RETRIEVAL)
    changes = fed.take(
        fed.search("a", "D1", "D2"), fed.search("b", "D2", iteration=2), fed.labels(a_2=3)
    )
    hot, _ = encode_changes(fed.conversation, changes, fed.dedup, 1)
    loaded = decode_conversation("c", {n: part for n, part in hot.items() if part}, "")
    fed.step.restore(loaded)
    fed.conversation = loaded
    fed.take(fed.labels(b_1=1))

    again = Fed(retrieval=RETRIEVAL)
    again.take(
        again.search("a", "D1", "D2"),
        again.search("b", "D2", iteration=2),
        again.labels(a_2=3),
        again.labels(b_1=1),
    )
    assert sums(fed) == sums(again)
    assert not loaded.has_fingerprints
