"""Answers and document texts of turns, taken from recorded events that the engine has accepted."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import digest_event
from stream_metrics.core.engine.registers import BY_CODE
from stream_metrics.core.engine.state import Conversation, Search, WinningEvent
from stream_metrics.core.engine.step import Step
from stream_metrics.core.events.decode import Event, decode
from stream_metrics.core.events.wire import Payload
from stream_metrics.core.metrics.text import tokens, tokens_among
from stream_metrics.lab.metrics.generation import AnsweredTurn
from stream_metrics.lab.replay.answers import answered_turns
from stream_metrics.lab.replay.recorded import Recorded, RecordedTexts
from stream_metrics.lab.replay.reread import reread_payload
from tests import oracle
from tests.helpers import examples
from tests.oracle.searches import text_of
from tests.strategies import KeyedRecord, streams

NOON_S = 1_718_020_800


class Read:
    """Events read as a replay reads them: by the engine, and again for their texts."""

    def __init__(self) -> None:
        self.config = EngineConfig()
        self.dedup = deduplicator(self.config.rules, b"")
        self.step = Step(self.config, lambda _: self.dedup)
        self.conversations: dict[str, Conversation] = {}
        self.values: dict[str, list[tuple[bytes, bytes]]] = {}

    def feed(self, value: bytes, key: bytes | None = None, stamp: int | None = None) -> None:
        """Read a record; skip it if it is invalid."""
        event = decode(value, key=key, timestamp_ms=stamp, limits=self.config.limits)
        if isinstance(event, Event):
            name = event.conversation_id
            conversation = self.conversations.setdefault(name, Conversation(name))
            self.step.apply(
                conversation,
                [digest_event(event, self.dedup, "", self.config.rules.tables)],
                Observations(),
            )
            self.values.setdefault(name, []).append((value, event.digest))

    def send(self, kind: str, second: int, **fields: Any) -> None:
        """Read an event of conversation ``c``, of turn 1 unless given."""
        body = {"type": kind, "event_id": f"{kind}-{second}", "conversation_id": "c", "turn": 1,
                "occurred_at": NOON_S + second, **fields}  # fmt: skip
        self.feed(json.dumps(body).encode())

    def search(self, second: int, *results: dict[str, Any], **fields: Any) -> None:
        """Read a search whose results have the given fields."""
        found = [{"result_id": f"{second}-{n}", **one} for n, one in enumerate(results)]
        sent = {"search_id": f"s{second}", "results": found}
        self.send("search_iteration", second, **{"iteration": 1, "searches": [sent], **fields})

    def turns(self, turn_scope: str = "last") -> list[AnsweredTurn]:
        """Answers and texts of the turns of ``c``."""
        return list(answered_turns(self.conversations["c"], self.recorded("c"), turn_scope))

    def recorded(self, name: str) -> Recorded:
        """What was recorded of a conversation."""
        values = {digest: value for value, digest in reversed(self.values[name])}
        kinds = self.conversations[name].events

        def decoded(won: Search | WinningEvent, value: bytes) -> Payload:
            return reread_payload(value, BY_CODE[kinds[won.digest].kind].name)

        return Recorded(lambda won: values[won.digest], decoded)


def texts_of(turn: AnsweredTurn) -> list[str]:
    """The texts of a turn; every word is found in them as they were recorded."""
    assert isinstance(turn.texts, RecordedTexts)
    texts = turn.texts.texts()
    words = {word for text in texts for word in tokens(text, "none")}
    assert turn.texts.tokens_among([*words, "nowhere"], "none", 2) == tokens_among(
        texts, words, "none", 2
    )
    return texts


def test_a_turn_has_its_answer_and_the_texts_of_its_unique_results() -> None:
    """A text is the title with the content, or else the snippet; a duplicate adds none."""
    read = Read()
    read.search(1, {"doc_id": "a", "title": "Nile", "content": "A river", "snippet": "short"})
    read.search(2, {"doc_id": "a", "title": "other"}, {"doc_id": "b", "snippet": "Po"}, iteration=2)
    read.send("turn_completed", 3, answer="6650 km", reference_answers=["6650", None],
              question="How long?", dimensions={"language": "en", "topic": None})  # fmt: skip

    (turn,) = read.turns()

    assert turn == AnsweredTurn(
        "c", 1, "default", {"language": "en"}, "6650 km", ["6650"], "How long?", turn.texts,
    )  # fmt: skip
    assert texts_of(turn) == ["Nile\nA river", "Po"]


def test_the_first_occurrence_in_canonical_order_gives_the_text() -> None:
    """This holds even if it arrived last."""
    read = Read()
    read.search(2, {"doc_id": "a", "title": "later"}, iteration=2)
    read.search(1, {"doc_id": "a", "title": "earlier"}, iteration=1)

    assert texts_of(read.turns()[0]) == ["earlier"]


def test_only_events_that_are_in_force_give_texts() -> None:
    """A search or an end that a later version has replaced gives none, in any order of arrival."""
    read = Read()
    read.send("turn_completed", 9, answer="new")
    read.send("turn_completed", 8, answer="old", question="gone")
    sent = {"search_id": "s", "results": [{"result_id": "r", "title": "old"}]}
    read.send("search_iteration", 1, iteration=1, searches=[sent])
    sent = {"search_id": "s", "results": [{"result_id": "r", "title": "new"}]}
    read.send("search_iteration", 2, iteration=1, searches=[sent])

    (turn,) = read.turns()

    assert (turn.answer, turn.question, texts_of(turn)) == ("new", None, ["new"])


def test_of_searches_with_equal_ids_in_an_event_the_first_gives_the_text() -> None:
    """Another search may come before it in the event."""
    read = Read()
    searches = [
        {"search_id": name, "results": [{"result_id": f"{name}-{at}", "title": f"{name} {at}"}]}
        for at, name in enumerate(("x", "x", "y"))
    ]
    read.send("search_iteration", 1, iteration=1, searches=searches)

    assert texts_of(read.turns()[0]) == ["x 0", "y 2"]


def test_a_blank_content_counts_as_missing() -> None:
    """The snippet replaces it; a result without any text has none."""
    read = Read()
    read.search(1, {"content": " \n", "snippet": "Po"}, {"doc_id": "b"}, {"title": " "})
    read.search(2, {"content": "\u200b\n", "snippet": "Nile"}, {"title": "\ufeff\u00ad"})

    assert texts_of(read.turns()[0]) == ["Po", "Nile"]


def test_an_end_without_a_search_is_no_turn() -> None:
    """Only a search iteration creates a turn, and each turn has its own end."""
    read = Read()
    read.search(1, {"title": "one"})
    read.send("turn_completed", 2, answer="first")
    read.search(3, {"title": "two"}, turn=2)
    read.send("turn_completed", 4, turn=3, answer="third")

    assert [(turn.turn, turn.answer) for turn in read.turns("all")] == [(1, "first"), (2, None)]
    assert [turn.turn for turn in read.turns()] == [2]


@settings(max_examples=examples(60))
@given(streams(), st.randoms(use_true_random=False))
def test_texts_are_those_of_the_oracle(stream: list[KeyedRecord], shuffled: Any) -> None:
    """Random events give a text for each result that is unique to the oracle, in its order."""
    expected = oracle.evaluate([oracle.Record(v, k, t) for k, v, t in stream], turn_scope="all")
    order = list(stream)
    shuffled.shuffle(order)
    read = Read()
    for key, value, stamp in order:
        read.feed(value, key, stamp)

    found = {
        (turn.conversation_id, turn.turn): texts_of(turn)
        for name in read.conversations
        for turn in answered_turns(read.conversations[name], read.recorded(name), "all")
    }

    assert found == {(turn.conversation, turn.number): _texts(turn) for turn in expected.turns}


def _texts(turn: oracle.Turn) -> list[str]:
    unique = [one.raw for at, one in enumerate(turn.found) if turn.is_unique(at)]
    return [text for raw in unique if (text := text_of(raw))]
