"""``stream_metrics_client``: what it records, and that it never disturbs the agent."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import itertools
import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stream_metrics_client import AsyncRecorder, InvalidEvent, RecordedSearch, Recorder
from stream_metrics_client.documents import digest
from stream_metrics_client.kafka import unreachable
from stream_metrics_client.records import Record, Report, WriteResult
from stream_metrics_client.sender import Sender

from stream_metrics.core.events import BadRecord, Event, Limits, decode
from stream_metrics.core.events.record import Record as ReadRecord
from stream_metrics.lab.replay.offline import Replay
from tests.helpers import examples, ran

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "client/src"
NOON_US = 1_718_020_800_000_000


def ticking(start_us: int = NOON_US) -> Callable[[], int]:
    """A clock that advances a millisecond with each reading."""
    return itertools.count(start_us * 1_000, 1_000_000).__next__


def recorder(events: list[dict[str, Any]], **options: Any) -> Recorder:
    """A strict recorder that counts turns from 1."""
    numbers = itertools.count(1)
    options = {
        "clock": ticking(), "turn_numbers": lambda _: next(numbers), "strict": True, **options,
    }  # fmt: skip
    return Recorder(events.append, **options)


def decoded(event: dict[str, Any]) -> Event:
    """The event as the worker reads it."""
    found = decode(json.dumps(event).encode(), limits=Limits())
    assert isinstance(found, Event), found
    return found


def results_of(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of an event's only search."""
    found: list[dict[str, Any]] = event["searches"][0]["results"]
    return found


# --- recorded calls -------------------------------------------------------------------------------


def test_recorded_calls_become_events_that_the_worker_accepts() -> None:
    """Gates, searches, the end of a turn, labels of all kinds and an erasure, in order."""
    events: list[dict[str, Any]] = []
    with recorder(events, agent="support", release="2026-11") as recording:
        with recording.turn("conversation-17") as turn:
            with turn.iteration() as step:
                step.gate("search", score=0.8)
                first = step.search(
                    "leave",
                    [{"doc_id": "a", "score": 0.5}, {"result_id": "r-9", "url": "https://x/b"}],
                    route="handbook",
                    route_scores={"handbook": 0.7, "mail": 0.1},
                )
                second = step.search("days", [], search_id="call-7")
            with turn.iteration() as step:
                step.gate("skip")
            turn.completed("30 days", question="How long?", relevant={"a": 3})
        recording.label("conversation-17", turn.number, {first.result_ids[0]: 3, "r-9": None})
        turn.label(routing={"call-7": "mail"}, gate={2: False}, labeller="judge", source="model")
        turn.label(source="human", sample="random")
        recording.forget("conversation-17")

    assert first == RecordedSearch("1.1", ("1.1.1", "r-9"))
    assert second == RecordedSearch("call-7", ())
    assert [decoded(event).conversation_id for event in events] == ["conversation-17"] * 9
    envelope = ("event_id", "occurred_at", "conversation_id")
    said = [{k: v for k, v in event.items() if k not in envelope} for event in events]
    iteration = {"type": "search_iteration", "turn": 1, "agent": "support", "release": "2026-11"}
    assert said == [
        {**iteration, "iteration": 1, "gate": {"decision": "search", "score": 0.8}},
        {**iteration, "iteration": 1, "searches": [{
            "search_id": "1.1", "ordinal": 0, "query": "leave",
            "routing": {"selected": "handbook", "scores": {"handbook": 0.7, "mail": 0.1}},
            "results": [
                {"doc_id": "a", "score": 0.5, "result_id": "1.1.1"},
                {"result_id": "r-9", "url": "https://x/b"},
            ],
        }]},
        {**iteration, "iteration": 1, "searches": [
            {"search_id": "call-7", "ordinal": 1, "query": "days", "results": []},
        ]},
        {**iteration, "iteration": 2, "gate": {"decision": "skip"}},
        {"type": "turn_completed", "turn": 1, "answer": "30 days", "question": "How long?",
         "relevant": {"a": 3}},
        {"type": "relevance_labels", "turn": 1, "labels": [
            {"result_id": "1.1.1", "gain": 3}, {"result_id": "r-9", "gain": None}]},
        {"type": "relevance_labels", "turn": 1, "labeller": "judge", "source": "model",
         "routing": [{"search_id": "call-7", "optimal": "mail"}],
         "gate": [{"iteration": 2, "search_needed": False}]},
        {"type": "relevance_labels", "turn": 1, "source": "human", "sample": "random"},
        {"type": "forget"},
    ]  # fmt: skip


def test_a_file_of_events_passes_validation(tmp_path: Path) -> None:
    """``stream-metrics validate`` reports no problem in a file that the client wrote."""
    path = tmp_path / "events of today.jsonl"
    with Recorder(path.as_uri().replace(" ", "%20"), turn_numbers=lambda _: 1) as recording:
        turn = recording.turn("c")
        turn.iteration().search("q", [{"doc_id": "a"}])
        turn.completed("A\nB")

    done = ran("validate", str(path))
    assert (done.returncode, path.read_text().count("\n")) == (0, 2), done.stderr


@dataclass
class Document:
    """The shape of LangChain's documents."""

    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass
class Node:
    """The shape of LlamaIndex' nodes."""

    node_id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)

    def get_content(self) -> str:
        return self.text


@dataclass
class NodeWithScore:
    """The shape of the results of LlamaIndex' retrievers."""

    node: Node
    score: float | None = None


LONG = "Leave is 30 days a year, and 15 days more for parents of small children."


def passage(text: str, of: str = "") -> dict[str, str]:
    """What identifies a text, together with the place or the page's id that it is of."""
    form = " ".join(text.casefold().split())
    return {"passage": digest(f"{of}\n{form}" if of else form)}


@pytest.mark.parametrize(
    ("document", "result"),
    [
        (Document("T"), {"content": "T"}),
        (Document(LONG), {"content": LONG, "ids": passage(LONG)}),
        (Document("T", {"source": "/f.pdf", "title": "F"}),
         {"content": "T", "title": "F", "ids": passage("T", "/f.pdf")}),
        (Document("T", {"source": "https://X/a/#top"}),
         {"content": "T", "ids": {**passage("T", "x/a"), "web_id": "x/a"}}),
        (Document(LONG, {"source": "https://x/a"}),
         {"content": LONG, "ids": {**passage(LONG), "web_id": "x/a"}}),
        (Document("T", {"id": 4}, "own"), {"content": "T", "doc_id": "own"}),
        (Document("T", {"source": "https://x/a"}, "own"),
         {"content": "T", "doc_id": "own", "url": "https://x/a"}),
        (Document("T", {"id": 4}), {"content": "T", "doc_id": "4", "ids": passage("T", "4")}),
        (Document("T", {"source": "/f.pdf"}, "chunk_0"),
         {"content": "T", "doc_id": "/f.pdf#chunk_0"}),
        (Document("T", id="chunk_0"), {"content": "T", "doc_id": "chunk_0"}),
        (Document("T", {"chunk_id": "p-4"}), {"content": "T", "doc_id": "p-4"}),
        (Document("T", {"chunk_id": np.int64(4)}), {"content": "T"}),
        (Document("T", {"doc_id": "p", "chunk_id": "c4"}), {"content": "T", "doc_id": "p#c4"}),
        (Document("T", {"source": "/f.pdf", "chunk_id": "c4"}),
         {"content": "T", "doc_id": "/f.pdf#c4"}),
        (Document("T", {"doc_id": "p", "chunk_id": "p/c4"}), {"content": "T", "doc_id": "p/c4"}),
        (Document("T", {"doc_id": "p", "chunk_id": UUID(int=4)}),
         {"content": "T", "doc_id": str(UUID(int=4))}),
        (Document("T", {"doc_id": "p", "chunk_id": 4}), {"content": "T", "doc_id": "p#4"}),
        (Document("T", id="i", metadata={"relevance_score": np.float32(0.5)}),
         {"content": "T", "doc_id": "i", "score": 0.5}),
        ((Document("T", id="i"), 0.25), {"content": "T", "doc_id": "i", "score": 0.25}),
        ((Document("T", id="i"), math.nan), {"content": "T", "doc_id": "i"}),
        (NodeWithScore(Node("n", "T"), 0.5), {"content": "T", "doc_id": "n", "score": 0.5}),
        (NodeWithScore(Node("n", "T")), {"content": "T", "doc_id": "n"}),
        (Node("n", "T"), {"content": "T", "doc_id": "n"}),
        ("T", {"content": "T"}),
        (LONG.upper(), {"content": LONG.upper(), "ids": passage(LONG)}),
        ({"id": np.int64(7)}, {"doc_id": "7"}),
        ({"id": None, "page_content": "T", "type": "Document", "metadata": {"id": "m"}},
         {"content": "T", "doc_id": "m", "ids": passage("T", "m")}),
        ({"id": "", "pageContent": LONG}, {"content": LONG, "ids": passage(LONG)}),
        ({"id": "x" * 300}, {"doc_id": "sha256:" + hashlib.sha256(b"x" * 300).hexdigest()}),
        ({"content": "T", "url": "https://x/a"}, {"content": "T", "url": "https://x/a"}),
        ({"ids": {"file_id": "F"}, "text": "T", "metadata": {"source": "https://x/a"}},
         {"content": "T", "ids": {"file_id": "F"}, "url": "https://x/a"}),
        ({"id": UUID(int=1)}, {"doc_id": "00000000-0000-0000-0000-000000000001"}),
        ({"page_content": "T", "metadata": {"doc_id": "m"}},
         {"content": "T", "doc_id": "m", "ids": passage("T", "m")}),
        ({"url": "https://x/a", "text": "T", "metadata": {"doc_id": "m"}},
         {"content": "T", "doc_id": "m", "ids": passage("T", "m"), "url": "https://x/a"}),
        ({"doc_id": "d", "text": "T", "metadata": {"id": "m"}}, {"content": "T", "doc_id": "d"}),
        ({"doc_id": "d", "chunk_id": 4, "text": "T"},
         {"content": "T", "doc_id": "d", "ids": {"chunk_id": "d#4"}}),
        ({"id": "row", "ids": {"file_id": "F"}, "vector": [1.0]}, {"ids": {"file_id": "F"}}),
        (
            {"doc_id": "d", "gain": np.int64(2), "fields": {"n": np.int64(3), "b": np.bool_(True)}},
            {"doc_id": "d", "gain": 2, "fields": {"n": 3, "b": True}},
        ),
    ],
)  # fmt: skip
def test_documents_of_frameworks_are_results(document: Any, result: dict[str, Any]) -> None:
    """Id, URL, title, text and score are read from where each framework stores them."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        recording.turn("c").iteration().search("q", [document])

    assert results_of(events[0]) == [{**result, "result_id": "1.1.1"}]


def test_ids_longer_than_the_contract_allows_become_digests() -> None:
    """A document with such an id keeps an identity, and so does a result of a search with such an
    id."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        step = recording.turn("c").iteration()
        for name in ("a", "a", "b"):
            step.search("q", [Document("T", id=name * 300)])
        long = step.search("q", ["T"], search_id="s" * 127)

    first, second, other, _ = (results_of(event)[0].get("doc_id") for event in events)
    assert first == second != other
    assert len(long.result_ids[0]) == 71


def test_the_rank_before_reranking_is_found_by_identity() -> None:
    """Documents are matched by id, else by text or an address that no other document has."""
    events: list[dict[str, Any]] = []
    before = [Document("A", id="1"), Document("B", {"url": "https://x"}), Document("C"),
              Document("D", {"url": "https://y"}), Document("E", {"url": "https://y"})]  # fmt: skip
    after = [Document("C"), Document("new"), Document("shorter", {"url": "https://x"}),
             Document("A", {"relevance_score": 0.1}, "1"), Document("E", {"url": "https://y"}),
             Document("cut", {"url": "https://y"}), Document("A", id="2")]  # fmt: skip
    with recorder(events) as recording:
        recording.turn("c").iteration().search("q", after, before=before)

    ranks = [result.get("baseline_rank") for result in results_of(events[0])]
    assert ranks == [3, None, 2, 1, 5, None, None]


def test_without_texts_no_text_is_sent_and_documents_keep_their_identity() -> None:
    """Equal texts get equal digests, and no query, answer or other text is sent."""
    events: list[dict[str, Any]] = []
    secret = f"secret: {LONG}"
    with recorder(events, texts=False) as recording:
        turn = recording.turn("c")
        turn.iteration().search(
            "secret",
            [Document(secret), secret, {"content": f"{secret} 2"}, {"doc_id": "d"}, "secret"],
        )
        turn.completed("secret", question="secret", reference_answers=["secret"])

    assert "secret" not in json.dumps(events)
    first, second, third, named, short = results_of(events[0])
    assert first["ids"] == second["ids"] != third["ids"]
    assert (named["doc_id"], "ids" in short) == ("d", False)


# --- ids and order --------------------------------------------------------------------------------


def test_ids_are_the_same_when_a_turn_is_recorded_again() -> None:
    """Searches and results keep their ids, so that labels match; events get new ones."""

    def turn() -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        with recorder(events) as recording:
            told = recording.turn("c", number=5)
            for _ in range(2):
                step = told.iteration()
                step.search("q", ["A", "B"])
                step.search("q", ["C"])
        return events

    first, second = turn(), turn()

    def without(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**event, "event_id": None} for event in events]

    assert without(first) == without(second)
    assert not {one["event_id"] for one in first} & {one["event_id"] for one in second}
    ids = [result["result_id"] for event in first for result in results_of(event)]
    assert ids == ["1.1.1", "1.1.2", "1.2.1", "2.1.1", "2.1.2", "2.2.1"]


def test_of_simultaneous_events_the_later_one_wins() -> None:
    """The worker's order of versions is the order of the calls, even if the clock stands still."""
    events: list[dict[str, Any]] = []
    with recorder(events, clock=lambda: NOON_US * 1000) as recording:
        for gain in (1, 2, 3) * 5:
            recording.label("c", 1, {"r": gain})

    versions = [decoded(event).version for event in events]
    assert versions == sorted(versions)
    assert {event["occurred_at"] for event in events} == {NOON_US / 1e6}


@settings(max_examples=examples(300))
@given(st.integers(946_684_800 * 10**6, 4_102_444_800 * 10**6))
def test_times_keep_their_microsecond(instant_us: int) -> None:
    """The worker reads exactly the microsecond of the clock."""
    events: list[dict[str, Any]] = []
    with recorder(events, clock=lambda: instant_us * 1000 + 999) as recording:
        recording.forget("c")

    assert decoded(events[0]).occurred_us == instant_us


def test_turn_numbers_are_microseconds_that_never_repeat() -> None:
    """Numbers increase even if the clock stands still or is set back."""
    times = iter([NOON_US, NOON_US, NOON_US - 50, NOON_US + 7])
    recording = Recorder(lambda _: None, clock=lambda: next(times) * 1000)

    numbers = [recording.turn(f"c-{n}").number for n in range(4)]

    assert numbers == [NOON_US, NOON_US + 1, NOON_US + 2, NOON_US + 7]


def test_threads_share_a_recorder() -> None:
    """Searches of concurrent threads all arrive, each with its own ids."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        step = recording.turn("c").iteration()
        threads = [
            threading.Thread(target=lambda: [step.search("q", ["T"]) for _ in range(200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(events) == recording.sent == 800
    assert len({event["event_id"] for event in events}) == 800
    assert len({event["searches"][0]["search_id"] for event in events}) == 800


def test_events_keep_their_order_when_the_clock_is_set_back() -> None:
    """After a correction by seconds, an earlier event does not replace a later one."""
    times = iter([NOON_US, NOON_US - 5_000_000, NOON_US - 1, NOON_US - 3_600_000_000])
    events: list[dict[str, Any]] = []
    with recorder(events, clock=lambda: next(times) * 1000) as recording:
        for _ in range(4):
            recording.forget("c")

    versions = [decoded(event).version for event in events]
    assert versions[:3] == sorted(versions[:3])
    assert events[3]["occurred_at"] == NOON_US / 1e6 - 3_600


def test_an_iteration_begun_twice_continues_its_search_numbers() -> None:
    """No search replaces another because two parts of the agent use the same iteration."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        turn = recording.turn("c")
        for number in (1, np.int64(1), None, 3, None, None):
            turn.iteration(number=number).search("q", ["T"])  # type: ignore[arg-type]

    found = [(event["iteration"], event["searches"][0]["search_id"]) for event in events]
    assert found == [(1, "1.1"), (1, "1.2"), (2, "2.1"), (3, "3.1"), (4, "4.1"), (5, "5.1")]


def test_a_clock_that_records_a_turn_does_not_lock_the_recorder() -> None:
    """Code that interrupts a call, such as a signal handler, may call the recorder too."""
    inner: list[int] = []

    def clock() -> int:
        if len(inner) < 3:
            inner.append(0)
            inner.append(recording.turn("inner").number)
        return NOON_US * 1000

    recording = Recorder(lambda _: None, clock=clock)
    caller = threading.Thread(target=lambda: inner.append(recording.turn("c").number), daemon=True)
    caller.start()
    caller.join(60)
    assert not caller.is_alive()
    assert len(set(inner)) == len(inner) - inner.count(0) + 1


# --- strict ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.turn("", number=1).completed("a"),
         "invalid: Expected `str` of length >= 1 - at `$.conversation_id`"),
        (lambda r: r.turn("c", number=0).completed("a"),
         "invalid: Expected `int` >= 1 - at `$.turn`"),
        (lambda r: r.turn("c").iteration().gate("maybe"),
         "invalid: Invalid enum value - at `$.gate.decision`"),
        (lambda r: r.turn("c").iteration().search("q", [{"doc_id": ""}]),
         "invalid: Expected `str` of length >= 1 - at `$.searches[0].results[0].doc_id`"),
        (lambda r: r.turn("c").iteration().search("q", [{"ids": {"doc_id": "d"}}]),
         "invalid: `ids` holds `doc_id`; send it as the result's own `doc_id`"),
        (lambda r: r.turn("c").iteration().search("q", ["T"] * 2_001),
         "over_limit: results: 2001, at most 2000"),
        (lambda r: r.turn("c").iteration().search(7, []),
         "invalid: Expected `str | null`, got `int` - at `$.searches[0].query`"),
        (lambda r: r.label("c", 1, {"r": 5}),
         "invalid: Expected `int` <= 4 - at `$.labels[0].gain`"),
        (lambda r: r.turn("c").completed(relevant=["d", "d"]),
         "invalid: `relevant` names a document twice"),
        (lambda r: r.forget(None), "invalid: Object missing required field `conversation_id`"),
    ],
)  # fmt: skip
def test_strict_raises_with_the_workers_message(
    call: Callable[[Recorder], object], words: str
) -> None:
    """An event that the worker would refuse raises in the agent, and is not sent."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording, pytest.raises(InvalidEvent) as raised:
        call(recording)

    assert str(raised.value) == words
    assert events == []


@pytest.mark.parametrize("results", [["T"], [{"url": "https://x.example/a"}]])
def test_strict_refuses_a_ground_truth_without_ids_to_compare(results: list[Any]) -> None:
    """The worker would take it, but the turn would have no figures, or only zeros."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        turn = recording.turn("c")
        turn.iteration().search("q", [])
        turn.iteration().search("q", results)
        with pytest.raises(ValueError, match="no result of the turn has an id of its own"):
            turn.completed(relevant=["a"])
        turn.iteration().search("q", [{"doc_id": "b"}])
        turn.completed(relevant=["a"])

    assert [event.get("relevant") for event in events] == [None, None, None, ["a"]]


def test_a_ground_truth_may_come_without_results() -> None:
    """The agent may not have searched, or another process recorded what it found."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        recording.turn("c").completed(relevant=["a"])

    assert events[0]["relevant"] == ["a"]


@pytest.mark.parametrize("nothing", [[], (), {}, set()])
def test_a_ground_truth_may_say_that_nothing_is_relevant(nothing: Any) -> None:
    """That is not the same as to have none."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        recording.turn("c").completed(relevant=nothing)
        recording.turn("c").completed()

    assert [event.get("relevant") for event in events] == [{}, None]


def test_strict_refuses_a_time_that_the_worker_would_refuse() -> None:
    """A clock that shows 1970 is an error of the agent's machine."""
    with recorder([], clock=lambda: 0) as recording, pytest.raises(InvalidEvent) as raised:
        recording.forget("c")

    assert raised.value.refusal.reason == "time_out_of_range"


class Table:
    """Has a length and entries, but no order, like a table of pandas, whose entries are column
    names."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(["column"])


@pytest.mark.parametrize(
    "results", ["text", {"doc_id": "d"}, iter([]), None, 7, [object()], Table(), {"T"}]
)
def test_invalid_results_raise_only_if_strict(results: Any) -> None:
    """A generator is not consumed, because it would then be empty for the agent."""
    with recorder([]) as strict, pytest.raises(TypeError):
        strict.turn("c").iteration().search("q", results)
    with recorder([], strict=False) as recording:
        assert recording.turn("c").iteration().search("q", results) == RecordedSearch("", ())

    assert (recording.sent, recording.failed) == (0, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda recording, endless: recording.turn("c").completed(relevant=endless),
        lambda recording, endless: recording.turn("c").completed(reference_answers=endless),
        lambda recording, endless: recording.turn("c").iteration().search("q", [], before=endless),
        lambda recording, endless: recording.turn("c").iteration().search("q", [], scores=endless),
        lambda recording, endless: recording.turn("c").iteration().search("q", endless),
    ],
)
def test_iterators_are_not_consumed(call: Callable[[Recorder, Iterator[str]], object]) -> None:
    """An iterator may be endless, and the agent would miss what was read from it."""
    endless = itertools.repeat("T", 3)
    with recorder([], strict=False) as recording:
        call(recording, endless)

    assert (recording.sent, recording.failed) == (0, 1)
    assert len(list(endless)) == 3


# --- failures never reach the agent ---------------------------------------------------------------


class Hostile:
    """Raises on every attribute access."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Unreadable:
    """Raises when it is converted to text, compared, hashed or tested for truth."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("no")

    __str__ = __repr__ = __format__ = __eq__ = __ne__ = __hash__ = __bool__ = _refuse
    __len__ = __iter__ = __getitem__ = __float__ = __int__ = __index__ = _refuse


CYCLE: dict[str, Any] = {"doc_id": "d"}
CYCLE["fields"] = CYCLE["metadata"] = CYCLE
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.binary(max_size=3) | st.just(object()) | st.builds(Hostile)
    | st.builds(Unreadable) | st.just(itertools.repeat("T")) | st.just(np.arange(3))
    | st.just("\ud800") | st.just(10**400) | st.just(CYCLE),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["doc_id", "id", "ids", "content", "metadata"]), inner),
    max_leaves=6,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(200))
@given(st.lists(ANYTHING, min_size=9, max_size=9))
def test_no_call_raises_whatever_it_is_given(junk: list[Any]) -> None:
    """Each call becomes an event or is counted as failed."""
    a, b, c, d, e, f, g, h, i = junk
    events: list[dict[str, Any]] = []
    with Recorder(events.append, agent=a, release=b, turn_numbers=lambda _: h) as recording:
        turn = recording.turn(c)
        with turn, turn.iteration(number=i) as step:
            step.gate(d, score=e)
            step.search(f, g, route=h, route_scores=i, scores=a, before=b, search_id=c)
        turn.completed(d, question=e, relevant=f, dimensions=g, reference_answers=h)
        recording.label(i, a, b, routing=c, gate=d, labeller=e, source=f, sample=g)
        recording.forget(f)

    assert recording.sent + recording.failed == 5
    assert recording.sent == len(events)
    assert (recording.dropped, recording.pending) == (0, 0)


def unread() -> Iterator[str]:
    """An iterator that must not be read."""
    raise AssertionError("somebody read the iterator")
    yield


def test_dimensions_that_are_no_mapping_are_refused_unread() -> None:
    """`dict` would read each entry of a list to its end, and an endless one fills the memory."""
    turn = recorder([]).turn("c")
    with pytest.raises(TypeError, match="dimensions must be a mapping, not list"):
        turn.completed("an answer", dimensions=[unread()])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "number", [Unreadable(), 10**5_000, math.nan, [], "1"], ids=lambda value: type(value).__name__
)
def test_an_invalid_number_raises_only_if_strict(number: Any) -> None:
    """A number that cannot be encoded becomes a failed event, not an exception."""
    events: list[dict[str, Any]] = []
    with Recorder(events.append) as recording:
        recording.turn("c", number=number).iteration(number=number).search("q", ["T"])
        recording.label("c", number, {"r": number})
    with recorder([]) as strict, pytest.raises(Exception):  # noqa: B017
        strict.turn("c").iteration(number=number).search("q", ["T"])

    assert recording.sent + recording.failed == 2


def test_an_error_without_a_message_is_counted() -> None:
    """The error of a hostile object is described by its class, and a long message is cut off."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    class Long(Exception):
        def __str__(self) -> str:
            return "x" * 10**6

    class Named(Exception):
        def __str__(self) -> str:
            return "Named: as Kafka's clients write it"

    said = []
    for error in (Mute(), Long(), Named()):

        def sink(_: dict[str, Any], error: Exception = error) -> None:
            raise error

        with Recorder(sink) as recording:
            recording.forget("c")
        assert recording.failed == 1
        said.append(recording.last_error)

    assert said == ["Mute", "Long: " + "x" * 500, "Named: as Kafka's clients write it"]


@pytest.mark.parametrize("timeout", [None, math.inf, math.nan, -1.0, 0])
def test_any_time_to_wait_is_accepted(timeout: Any) -> None:
    """None and infinity mean no limit; NaN and negative values do not wait."""
    recording = Recorder(lambda _: None)
    assert recording.flush(timeout)
    assert recording.close(timeout)


def test_errors_of_the_agent_pass_through() -> None:
    """The blocks of turns and iterations suppress no exception of the agent."""
    turn = recorder([]).turn("c")

    with pytest.raises(KeyError, match="mine"), turn, turn.iteration():
        raise KeyError("mine")


class Gate:
    """A sink that blocks until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.stuck = threading.Event()
        self.taken: list[dict[str, Any]] = []

    def __call__(self, event: dict[str, Any]) -> None:
        self.stuck.set()
        assert self.open.wait(60)
        self.taken.append(event)


def test_a_full_queue_drops_and_counts() -> None:
    """With room for ten events and a blocked sink, the eleventh is dropped, and no call blocks."""
    gate = Gate()
    recording = Recorder(gate, max_events=10)
    for _ in range(25):
        recording.forget("c")

    assert (recording.pending, recording.dropped) == (10, 15)
    assert not recording.flush(0.01)
    gate.open.set()
    assert recording.flush(60)
    recording.forget("c")
    assert recording.close(60)
    assert (recording.sent, recording.failed, recording.dropped) == (11, 0, 15)
    assert len(gate.taken) == 11


def test_the_queue_is_bounded_in_bytes() -> None:
    """An event larger than the remaining room is dropped; a small one still fits."""
    gate = Gate()
    recording = Recorder(gate, max_bytes=2_000)
    recording.turn("c").completed("x" * 2_000)
    recording.turn("c").completed("small")

    assert (recording.pending, recording.dropped) == (1, 1)
    gate.open.set()
    assert recording.close(60)


def test_losses_are_logged_once_a_minute_and_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A program that reads no counter still learns that events failed or were dropped."""
    gate = Gate()
    recording = Recorder(gate, max_events=1)
    for _ in range(5):
        recording.turn("c").iteration().search("q", [object()])
    recording.forget("c")
    recording.forget("c")
    assert gate.stuck.wait(60)
    assert not recording.close(0.01)
    gate.open.set()

    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(" Last")[0] for text in said] == [
        "Events to a function: 0 sent, 0 waiting, 1 failed, 0 dropped.",
        "Events to a function: 0 sent, 0 waiting, 5 failed, 2 dropped.",
    ]


def test_a_broker_that_never_answered_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong address is logged while events are still queued, not only when they are dropped."""
    sink = Flaky()
    sender = Sender(sink.opening, max_events=10, max_bytes=1_000, first_pause_seconds=0.01)
    sender.put(Record(b"c", b"1", False))
    assert sender.flush(60)
    assert sender.close(60)

    assert [record.getMessage() for record in caplog.records] == [
        "Events to the sink: 0 sent, 1 waiting, 0 failed, 0 dropped. "
        "Last error: ConnectionError: no broker"
    ]


class Away:
    """A sink that reports why it waits, and delivers when it is opened."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.open = threading.Event()

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Report a reason, and wait."""
        self._report("nothing answers")
        assert self.open.wait(60)
        return WriteResult()

    def close(self) -> None:
        """There is nothing to release."""


def eventually(met: Callable[[], bool]) -> bool:
    """Whether a condition is met within a minute."""
    deadline = monotonic() + 60
    while not met() and monotonic() < deadline:
        threading.Event().wait(0.005)
    return met()


def test_the_reason_is_known_and_logged_while_a_sink_still_tries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a sink reports is the last error at once, is logged once, and ends when it delivers."""
    sinks: list[Away] = []

    def opening(report: Report) -> Away:
        sinks.append(Away(report))
        return sinks[0]

    sender = Sender(opening, max_events=10, max_bytes=1_000)
    sender.put(Record(b"c", b"1", False))
    assert eventually(lambda: sender.last_error == "nothing answers")
    assert sender.pending == 1
    sinks[0].open.set()
    assert sender.flush(60)
    assert sender.last_error is None
    sender.put(Record(b"c", b"2", False))
    assert sender.close(60)

    assert [record.getMessage() for record in caplog.records] == [
        "Events to the sink: 0 sent, 1 waiting, 0 failed, 0 dropped. Last error: nothing answers"
    ]


def test_the_last_error_says_why_an_event_was_dropped() -> None:
    """Each reason to accept no event is named, with the option that sets the limit."""
    gate = Gate()
    few, small = Recorder(gate, max_events=1), Recorder(gate, max_bytes=100)
    for recording in (few, small):
        recording.turn("c").completed("x" * 200)
        recording.turn("c").completed("x" * 200)
    closed = Recorder(gate)
    assert closed.close(60)
    closed.forget("c")
    gate.open.set()
    assert few.close(60)
    assert small.close(60)

    assert few.last_error == "the queue is full: max_events is 1"
    assert re.fullmatch(
        r"the queue has no room for \d+ bytes: max_bytes is 100", str(small.last_error)
    )
    assert closed.last_error == "an event was recorded after the recorder was closed"
    assert (few.dropped, small.dropped, closed.dropped) == (1, 2, 1)


def test_the_reason_of_a_loss_remains_after_an_outage() -> None:
    """While events are retried, the last error says why; later, why an event was lost."""
    sink = Flaky()
    sender = Sender(sink.opening, max_events=1, max_bytes=1_000)
    sender.put(Record(b"c", b"1", False))
    sender.put(Record(b"c", b"2", False))
    assert eventually(lambda: sender.last_error == "ConnectionError: no broker")
    assert sender.flush(60)

    assert sender.last_error == "the queue is full: max_events is 1"
    assert (sender.sent, sender.dropped) == (1, 1)


def test_records_that_wait_for_a_topic_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody learns of a missing topic of labels, although searches arrive."""
    sink = Choosy()
    sender = Sender(lambda _: sink, max_events=10, max_bytes=1_000)
    for n in range(2):
        sender.put(Record(b"c", b"%d" % n, is_label=n == 0))
    assert eventually(lambda: len(caplog.records) > 0)

    said = caplog.records[0].getMessage()
    assert said.endswith("1 waiting, 0 failed, 0 dropped. Last error: no topic")
    assert not sender.close(0.01)


async def test_after_dropped_events_nothing_says_that_all_were_sent() -> None:
    """`flush` and `close` return False when events were dropped at an earlier `close`, too."""
    gate = Gate()
    recording, coroutines = Recorder(gate), AsyncRecorder(gate)
    for one in (recording, coroutines):
        one.forget("c")
    assert not recording.close(0.01)
    assert not await coroutines.close(0.01)
    gate.open.set()

    assert not recording.flush(60)
    assert not recording.close(60)
    assert not await coroutines.flush(60)
    assert not await coroutines.close(60)
    assert (recording.dropped, coroutines.dropped) == (1, 1)


def test_closing_ends_a_flush_of_another_thread() -> None:
    """Who waits without a limit for events that `close` drops does not wait forever."""
    gate = Gate()
    recording = Recorder(gate)
    recording.forget("c")
    flushed: list[bool] = []
    waiting = threading.Thread(target=lambda: flushed.append(recording.flush(None)), daemon=True)
    waiting.start()
    assert gate.stuck.wait(60)
    assert not recording.close(0.01)
    waiting.join(60)
    gate.open.set()

    assert flushed == [False]


def test_nothing_that_listens_is_named_within_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """The last error has the address and the reason of the system, and the log has it once."""
    recording = Recorder("kafka://127.0.0.1:1?client=aiokafka")
    recording.forget("c")
    begun = monotonic()
    assert eventually(lambda: recording.last_error is not None)

    assert monotonic() - begun < 5
    assert recording.last_error == "nothing answers at 127.0.0.1:1 (Connection refused)"
    assert not recording.flush(0.01)
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().endswith(recording.last_error)
    assert not recording.close(0.01)


@pytest.mark.parametrize(
    "broker", ["127.0.0.1:1", "127.0.0.1:1000000", "no-such-host.invalid:9092", "[::1]:1", "x" * 90]
)
def test_every_address_without_a_broker_has_a_reason(broker: str) -> None:
    """Refused connections, unknown names, impossible ports and names are all named."""
    [reason] = unreachable([broker])
    assert re.fullmatch(rf"{re.escape(broker)} \(.+\)", reason)


def test_the_log_names_the_sink_of_dropped_events() -> None:
    """A program with a wrong address learns it at its end, even if the Kafka client reports
    nothing."""
    done = run(
        "import threading\n"
        "from stream_metrics_client import Recorder\n"
        "recorder = Recorder(lambda _: threading.Event().wait())\n"
        "recorder.forget('c')\n"
        "recorder.close(0.1)\n"
    )
    assert done.stderr == (
        "Events to a function: 0 sent, 0 waiting, 0 failed, 1 dropped. "
        "Last error: no answer from a function\n"
    )


def test_closing_does_not_wait_longer_than_asked() -> None:
    """Events that a blocked sink has not accepted in time are dropped, and counted once."""
    gate = Gate()
    recording = Recorder(gate)
    for _ in range(3):
        recording.forget("c")
    assert gate.stuck.wait(60)
    begun = monotonic()

    assert not recording.close(0.05)

    assert monotonic() - begun < 5
    assert (recording.sent, recording.dropped, recording.pending) == (0, 3, 0)
    recording.forget("c")
    gate.open.set()
    assert recording.dropped == 4


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit("no")])
def test_an_exception_of_the_sink_counts_as_failed(error: BaseException) -> None:
    """The other events arrive, and the last error is kept."""
    events: list[dict[str, Any]] = []

    def sink(event: dict[str, Any]) -> None:
        if event["conversation_id"] == "bad":
            raise error
        events.append(event)

    with Recorder(sink) as recording:
        for name in ("a", "bad", "b"):
            recording.forget(name)

    assert [event["conversation_id"] for event in events] == ["a", "b"]
    assert (recording.sent, recording.failed) == (2, 1)
    assert recording.last_error == f"{type(error).__name__}: no"


class Flaky:
    """A sink that cannot be opened at first, and then accepts one record of each batch."""

    def __init__(self) -> None:
        self.opened = 0
        self.taken: list[Record] = []

    def opening(self, _: Report) -> Flaky:
        """Opens the sink from the second call on."""
        self.opened += 1
        if self.opened == 1:
            raise ConnectionError("no broker")
        return self

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Accept the first record, and return the others for a retry."""
        self.taken.append(records[0])
        return WriteResult(retry=list(records[1:]), error="later" if records[1:] else None)

    def close(self) -> None:
        """There is nothing to release."""


def test_undelivered_records_are_retried_in_order() -> None:
    """Nothing is lost while a broker is unavailable, and nothing is delivered twice."""
    sink = Flaky()
    sender = Sender(sink.opening, max_events=10, max_bytes=1_000, first_pause_seconds=0.01)
    records = [Record(b"c", bytes([n]), False) for n in range(3)]
    for record in records:
        sender.put(record)

    assert sender.flush(60)
    assert sender.close(60)
    assert sink.taken == records
    assert (sender.sent, sender.pending, sink.opened) == (3, 0, 2)


class Choosy:
    """A sink without a topic for labels."""

    def __init__(self) -> None:
        self.taken: list[Record] = []

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Accept all records but labels."""
        self.taken += [record for record in records if not record.is_label]
        return WriteResult(
            retry=[record for record in records if record.is_label], error="no topic"
        )

    def close(self) -> None:
        """There is nothing to release."""


def test_records_that_cannot_be_delivered_do_not_stop_the_others() -> None:
    """Searches arrive although the topic of labels is missing."""
    sink = Choosy()
    sender = Sender(lambda _: sink, max_events=5_000, max_bytes=10**6, first_pause_seconds=0.01)
    for n in range(2_000):
        sender.put(Record(b"c", b"%d" % n, is_label=n % 2 == 0))
    deadline = monotonic() + 60
    while sender.sent < 1_000 and monotonic() < deadline:
        sender.flush(0.05)

    assert [int(record.value) for record in sink.taken] == list(range(1, 2_000, 2))
    assert (sender.sent, sender.pending, sender.dropped) == (1_000, 1_000, 0)
    assert not sender.close(0.01)
    assert sender.dropped == 1_000


def test_an_unavailable_broker_does_not_block() -> None:
    """Calls return, drops are counted, and closing does not wait."""
    recording = Recorder("kafka://127.0.0.1:1?client=aiokafka", max_events=100)
    begun = monotonic()
    for _ in range(5_000):
        recording.turn("c").iteration().search("q", ["T"])

    assert monotonic() - begun < 10
    assert recording.dropped == 4_900
    assert not recording.close(0.01)
    assert (recording.dropped, recording.sent) == (5_000, 0)


# --- processes ------------------------------------------------------------------------------------


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that uses only the client."""
    return subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c",
         f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{script}", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_end_of_the_process_delivers_queued_events(tmp_path: Path) -> None:
    """A program that never closes its recorder loses nothing."""
    done = run(
        "from stream_metrics_client import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "for n in range(2000): recorder.forget(f'c-{n}')",
        str(tmp_path / "events.jsonl"),
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2_000


def test_a_forked_child_records_on_its_own(tmp_path: Path) -> None:
    """The parent's queue is sent once, and ids of parent and children are distinct."""
    done = run(
        "import os, warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)  # 3.12 warns of forks with threads\n"
        "from stream_metrics_client import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "for n in range(500): recorder.forget('before')\n"
        "for _ in range(3):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        for n in range(100): recorder.forget('child')\n"
        "        ok = recorder.close(30) and recorder.sent == 100\n"
        "        os._exit(0 if ok else 1)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "for n in range(100): recorder.forget('after')\n"
        "assert recorder.close(30) and recorder.sent == 600, recorder.sent",
        str(tmp_path / "events.jsonl"),
    )
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert len(events) == len({event["event_id"] for event in events}) == 900


def test_the_client_needs_nothing_but_a_kafka_client() -> None:
    """No module imports the worker, or a library that no extra installs."""
    imported = set(_imported())

    third_party = imported - set(sys.stdlib_module_names) - {"stream_metrics_client"}
    assert third_party == {"aiokafka", "confluent_kafka", "kafka"}


def _imported() -> Iterator[str]:
    for path in (SOURCE / "stream_metrics_client").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (name.name.partition(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield (node.module or "").partition(".")[0]


# --- construction ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("amqp://localhost", "must be kafka://host:port, http://host:port, file:///path, a path"),
        ("kafka://", "must be kafka://host:port"),
        ("kafka://h:9092/a,b,c", "must be kafka://host:port"),
        ("kafka://h:9092/a?x=1", "must be kafka://host:port"),
        ("kafka://u:secret@h:9092", "takes no user and password; set them in kafka_options"),
        ("file://events.jsonl", "must be file:///path, with three slashes, or a path"),
        ("file://host/events.jsonl", "must be file:///path"),
        ("kafka://h:9092?client=pykafka", "must be one of confluent, aiokafka, kafka-python"),
    ],
)
def test_an_invalid_sink_is_refused_immediately(sink: str, words: str) -> None:
    """An error in the configuration shows when the program starts."""
    with pytest.raises(ValueError, match=words.replace("?", r"\?")) as raised:
        Recorder(sink)
    assert "secret" not in str(raised.value)


def test_a_missing_folder_or_client_is_refused_immediately(tmp_path: Path) -> None:
    """The error says what to do."""
    with pytest.raises(FileNotFoundError, match="create it first"):
        Recorder(tmp_path / "none" / "events.jsonl")
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        Recorder(tmp_path)
    done = run("sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
               "import stream_metrics_client as c\n"
               "try: c.Recorder('kafka://h:9092')\n"
               "except ImportError as error: print(error)")  # fmt: skip
    assert done.stdout == (
        "no Kafka client is installed. In a clone of stream-metrics, run: "
        "pip install './client[confluent]'\n"
    )


# --- asynchronous ---------------------------------------------------------------------------------


async def test_coroutines_record_with_the_same_methods() -> None:
    """``async with`` works at each level, and concurrent searches keep their order."""
    events: list[dict[str, Any]] = []
    async with AsyncRecorder(events.append, turn_numbers=lambda _: 1, strict=True) as recording:
        async with recording.turn("c") as turn, turn.iteration() as step:

            async def search(query: str) -> RecordedSearch:
                await asyncio.sleep(0)
                return step.search(query, [query])

            found = await asyncio.gather(search("a"), search("b"))
        turn.completed("done")
        assert await recording.flush()

    assert [one.search_id for one in found] == ["1.1", "1.2"]
    assert [event["type"] for event in events] == ["search_iteration"] * 2 + ["turn_completed"]


async def test_waiting_for_a_stuck_sink_leaves_the_event_loop_free() -> None:
    """Other coroutines run while one waits for ``flush``."""
    gate = Gate()
    recording = AsyncRecorder(gate)
    recording.forget("c")

    async def open_later() -> None:
        while not gate.stuck.is_set():
            await asyncio.sleep(0)
        gate.open.set()

    flushed, _ = await asyncio.gather(recording.flush(60), open_later())
    assert flushed
    assert await recording.close(60)


async def test_a_flush_that_is_cancelled_leaves_nothing_behind() -> None:
    """Neither a thread nor the end of the program waits, and the events still arrive."""
    gate = Gate()
    recording = AsyncRecorder(gate)
    recording.forget("c")
    threads = threading.active_count()
    for call in (recording.flush, recording.close):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call(3_600), 0.05)
    assert threading.active_count() == threads
    assert not await recording.flush(0.01)

    gate.open.set()
    assert await recording.flush(60)
    assert (recording.sent, recording.dropped) == (1, 0)


def test_no_event_of_a_lenient_recorder_is_bad_if_its_arguments_are_good() -> None:
    """Without ``strict`` nothing is checked, and the worker accepts the events of valid calls."""
    events: list[dict[str, Any]] = []
    with recorder(events, strict=False) as recording:
        turn = recording.turn(17)  # type: ignore[arg-type]
        turn.iteration().search("q", [("T", math.inf)], scores=[np.float64(0.5)])
        turn.completed(relevant=[1, 2])  # type: ignore[list-item]

    found = [decode(json.dumps(event).encode(), limits=Limits()) for event in events]
    assert not any(isinstance(one, BadRecord) for one in found)
    assert results_of(events[0])[0]["score"] == 0.5


# --- documents ------------------------------------------------------------------------------------

PAGES = ("docs/guides/client.md", "client/README.md")
BLOCKS = [
    (page, number, block)
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.M | re.S)
    )
]


@pytest.mark.parametrize(
    ("page", "number", "block"), BLOCKS, ids=lambda part: str(part)[:30].partition("\n")[0]
)
def test_the_code_of_the_guide_runs(page: str, number: int, block: str, tmp_path: Path) -> None:
    """Each Python block runs, with a file instead of Kafka, and all its events are sent."""
    path = tmp_path / "events.jsonl"
    source = re.sub(r"kafka://localhost:9092(\?client=aiokafka)?", path.as_uri(), block)
    source = source.replace('"events.jsonl"', repr(str(path)))
    names: dict[str, Any] = {"Recorder": Recorder, "query": "q", "results": ["T"], "answer": "A"}
    exec(compile(source, f"{page}, block {number}", "exec"), names)  # noqa: S102

    if "recorder" in names:
        assert names["recorder"].close()
        assert names["recorder"].failed == names["recorder"].dropped == 0
    else:
        asyncio.run(names["answer"]("q"))
        assert path.read_text().count("\n") == 2


def test_the_figures_of_the_guide_are_those_of_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guide shows what a replay of the recorded file prints."""
    page = (ROOT / PAGES[0]).read_text("utf-8")
    (program,) = (block for *_, block in BLOCKS if '"events.jsonl"' in block)
    (shown,) = re.findall(r"^```console\n\$ stream-metrics (.*?)\n(.*?)^```$", page, re.M | re.S)
    monkeypatch.chdir(tmp_path)

    exec(program, {})  # noqa: S102
    done = ran(*shown[0].split())
    assert done.returncode == 0
    assert [line.rstrip() for line in done.stderr.splitlines()] == shown[1].splitlines()


# --- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [1, 2])
def test_metrics_equal_the_agents_own_account(attempts: int) -> None:
    """Of 5 results the second iteration repeats 1, reranking moves the best one from rank 2 to 1,
    and one result is good. A turn that is recorded again counts once."""
    events: list[dict[str, Any]] = []
    with recorder(events, agent="support") as recording:
        for _ in range(attempts):
            turn = recording.turn("c", number=1)
            with turn.iteration() as step:
                step.gate("search")
                a, b, c = (Document(f"Text {name}", id=name) for name in "abc")
                first = step.search("q", [b, a, c], before=[a, b, c], route="handbook")
            with turn.iteration() as step:
                step.search("more", [Document("Text a", id="a"), Document("New", id="d")])
            with turn.iteration() as step:
                step.gate("skip")
            turn.completed("done")
            turn.label({first.result_ids[0]: 4, first.result_ids[1]: 0})

    engine = Replay()
    for event in events:
        engine.feed(ReadRecord(json.dumps(event).encode()))
    (row,) = list(engine.rows())
    assert [one["duplicates"] for one in row["iterations"]] == [0, 1]
    assert (row["agent"], row["results"], row["good_unique"]) == ("support", 5, 1)
    assert (row["srr"], row["sre"], row["duplicates_of"]) == (0.2, 0.2, {"2.1.1": "1.1.2"})
    assert (row["gate"]["search"], row["gate"]["skip"]) == (2, 1)
    assert row["routing"]["routes"] == {"handbook": 1}
    assert row["reranking"]["ndcg_shown"] == 1.0
    assert row["reranking"]["ndcg_baseline"] == pytest.approx(1 / math.log2(3), abs=1e-15)


def duplicates(events: list[dict[str, Any]]) -> list[int]:
    """The duplicates in each iteration of the only turn."""
    engine = Replay()
    for event in events:
        engine.feed(ReadRecord(json.dumps(event).encode()))
    (row,) = list(engine.rows())
    return [one["duplicates"] for one in row["iterations"]]


def chunk(number: int, id: str | None = None, **metadata: Any) -> Document:
    """A document with a long text."""
    return Document(f"Chunk {number} of the policy. {LONG}", metadata, id)


SAME = [
    pytest.param(lambda n: chunk(n, source="https://example.com/page"), id="address"),
    pytest.param(lambda n: chunk(n, doc_id="leave"), id="metadata.doc_id"),
    pytest.param(lambda n: chunk(n, **{"id": "leave"}), id="metadata.id"),
    pytest.param(lambda n: chunk(n, "leave"), id="id"),
    pytest.param(lambda n: {"id": "leave", "text": chunk(n).page_content}, id="dict"),
    pytest.param(lambda n: Node("leave", chunk(n).page_content), id="node"),
]


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize("made", SAME)
def test_chunks_of_one_page_are_separate_documents(made: Callable[[int], Any], texts: bool) -> None:
    """They share an address or an id; each is a duplicate when it is found again."""
    events: list[dict[str, Any]] = []
    chunks = [made(number) for number in range(2)]
    with recorder(events, texts=texts) as recording:
        turn = recording.turn("c")
        turn.iteration().search("q", chunks)
        turn.iteration().search("q", chunks[::-1])

    assert duplicates(events) == [0, 2]


def test_an_id_in_the_metadata_does_not_identify_a_chunk_in_any_order_of_the_searches() -> None:
    """One search shows that it is a page's; the others return one chunk of the page each."""
    searches = [[chunk(0, doc_id="leave")], [chunk(n, doc_id="leave") for n in (1, 2)],
                [chunk(3, doc_id="leave")]]  # fmt: skip
    for order in itertools.permutations(searches):
        events: list[dict[str, Any]] = []
        with recorder(events) as recording:
            turn = recording.turn("c")
            for found in order:
                turn.iteration().search("q", found)
        assert duplicates(events) == [0, 0, 0]
        assert {one["doc_id"] for event in events for one in results_of(event)} == {"leave"}


def test_a_doc_id_of_a_dict_is_what_the_caller_says_that_it_is() -> None:
    """Texts with one `doc_id` are passages of one document."""
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        found = [{"doc_id": "leave", "content": chunk(n).page_content} for n in range(2)]
        recording.turn("c").iteration().search("q", found)

    assert duplicates(events) == [1]


def test_ids_that_name_pages_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with recorder([], agent="support") as recording:
        for _ in range(2):
            recording.turn("c").iteration().search("q", [chunk(0, "leave"), chunk(1, "leave")])
        recording.turn("c").iteration().search("q", [chunk(0, "a"), chunk(1, "b")])

    assert ["support" in record.getMessage() for record in caplog.records] == [True]


def test_a_short_text_is_a_document_of_its_page_or_file_only() -> None:
    """Pages that could not be loaded have such texts."""
    found = [Document("Access denied.", {"source": source})
             for source in ("https://x/a", "https://x/b", "/a.pdf", "/b.pdf")]  # fmt: skip
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        turn = recording.turn("c")
        turn.iteration().search("q", [*found, "Access denied.", "Access denied."])
        turn.iteration().search("q", found[1:3])

    assert duplicates(events) == [0, 2]


def test_a_long_text_at_two_addresses_is_two_documents() -> None:
    """Without an address the text decides."""
    text = LONG * 4
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        turn = recording.turn("c")
        places = ("https://x/a", "https://x/b")
        turn.iteration().search("q", [Document(text, {"source": place}) for place in places])
        turn.iteration().search("q", [Document(text), {"text": text.upper()}])

    assert duplicates(events) == [0, 2]


def test_texts_that_the_worker_takes_for_equal_have_equal_digests() -> None:
    """White space, case and equivalent characters do not count."""
    one, other = f"Über uns:\n{LONG}", f"U\u0308BER  uns:\r\n{LONG}"
    events: list[dict[str, Any]] = []
    with recorder(events, texts=False) as recording:
        recording.turn("c").iteration().search("q", [one, other])

    assert duplicates(events) == [1]


def test_a_reranked_chunk_has_the_rank_of_its_own_text() -> None:
    """All chunks of the page have its id. A text that is in none of them has no rank."""
    chunks = [chunk(number, "leave") for number in range(3)]
    events: list[dict[str, Any]] = []
    with recorder(events) as recording:
        after = [chunks[2], chunk(7, "leave"), chunks[0]]
        recording.turn("c").iteration().search("q", after, before=chunks)

    assert [one.get("baseline_rank") for one in results_of(events[0])] == [3, None, 1]
