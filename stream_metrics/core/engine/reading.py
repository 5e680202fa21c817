"""A conversation to read: what its events say, beside what the engine has made of them.

The engine keeps digests. Here it processes the recorded events of one conversation once more, and
what it decides is put together with the texts: which searches stand, which results repeat which,
whose labels count, and what was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from msgspec import structs

from stream_metrics.core.dedup.deduplicator import PlainDeduplicator
from stream_metrics.core.dedup.index import PlainIndex
from stream_metrics.core.dedup.tables import TITLE_FIELDS
from stream_metrics.core.engine.cells import add_iteration, empty_totals, rerank_of
from stream_metrics.core.engine.changes import Observations, Refused
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import DigestedEvent, digest_event
from stream_metrics.core.engine.plan import waiting
from stream_metrics.core.engine.registers import BY_CODE, LABEL_TYPES
from stream_metrics.core.engine.row import Row, iteration_row, reranks, turn_row
from stream_metrics.core.engine.state import (
    END,
    GATE,
    GATE_LABEL,
    MODEL_GATE_LABEL,
    MODEL_RESULT_LABEL,
    MODEL_ROUTE_LABEL,
    RESULT_LABEL,
    ROUTE_LABEL,
    SAMPLE,
    SEARCH,
    WHOLE_TURN,
    Conversation,
    Iteration,
    Search,
    Turn,
    WinningEvent,
)
from stream_metrics.core.engine.step import Step
from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.foreign import with_form
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.core.events.wire import (
    Payload,
    RelevanceLabels,
    Result,
    SearchIteration,
    TurnCompleted,
)
from stream_metrics.core.metrics.decisions import Rerank, RerankSums
from stream_metrics.core.metrics.labels import HUMAN, HUMAN_FIRST, MODEL
from stream_metrics.core.unicode import is_blank

TITLE: Final = 200
QUERY: Final = 500
LONG_TEXT: Final = 2_000
NAME: Final = 100
IDS: Final = 2
"""The most ids of a result that are shown, beside its ``doc_id``."""
LISTED: Final = 100
"""The most refused records that are listed."""

EVIDENCE: Final = {"id": "id", "url": "address", "text": "content", "fields": "fields"}
"""By what a result was recognised, in words."""

_SENT: Final = "the search itself"
_UNNAMED: Final = "a label event that names nobody"
_WHAT: Final = {
    SEARCH: "search",
    GATE: "gate decision",
    RESULT_LABEL: "label of a result",
    ROUTE_LABEL: "label of a route",
    GATE_LABEL: "label of a gate decision",
    END: "ground truth",
    MODEL_RESULT_LABEL: "label of a result",
    MODEL_ROUTE_LABEL: "label of a route",
    MODEL_GATE_LABEL: "label of a gate decision",
    SAMPLE: "random sample",
}


class Place(NamedTuple):
    """Where a result is: its number in the turn from 0, and what a reader finds it by."""

    position: int
    iteration: int
    search_id: str
    rank: int
    result_id: str


class Repeat(NamedTuple):
    """That a result repeats an earlier one of its turn.

    ``first`` is the first occurrence of its document. ``partner`` is the result with which it was
    compared and found equal, by ``evidence``: mostly the first one, else another that repeats it.
    """

    first: Place
    partner: Place
    evidence: str


class Judged(NamedTuple):
    """A label, and who gave it; ``value`` None: it was withdrawn."""

    value: int | str | bool | None
    given_by: str


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A result. ``title`` is its title or the first line of its text, None if there is none.

    ``ids`` has the first of its ids by component, each with its first value. ``label`` is its own
    label. ``counted`` is the gain that counts for its document, where the document occurs first; a
    label of a result that repeats it may give that.
    """

    place: Place
    entity_type: str
    doc_id: str | None
    ids: Mapping[str, str]
    title: str | None
    label: Judged | None
    counted: int | None
    repeats: Repeat | None
    baseline_rank: int | None
    score: float | None


@dataclass(frozen=True, slots=True)
class ReadSearch:
    """A search. ``repeats`` is an earlier one of the turn with its query and route."""

    search_id: str
    time_us: int
    query: str | None
    has_query: bool
    repeats: str | None
    route: str | None
    route_scores: Mapping[str, float]
    best_route: Judged | None
    reranked: Rerank | None
    results: Sequence[ReadResult]


@dataclass(frozen=True, slots=True)
class ReadGate:
    """A gate decision; ``explicit``: it was sent, and not concluded from a search."""

    decision: str
    explicit: bool
    score: float | None
    needed: Judged | None


@dataclass(frozen=True, slots=True)
class ReadIteration:
    """An iteration; ``row`` has its figures, None if it has no search."""

    number: int
    gate: ReadGate
    searches: Sequence[ReadSearch]
    row: Row | None


class LeftOut(NamedTuple):
    """Something of a turn that counts nowhere: it is beyond ``limit``, which is ``most``, or if
    that is empty, the turn has nothing of this name that it could label."""

    what: str
    name: str
    limit: str = ""
    most: int = 0


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """A turn from top to bottom.

    ``row`` has its figures; None if the turn has no search and no gate decision. ``left_out`` lists
    the first things that count nowhere; ``left_out_number`` is the number of all.
    """

    number: int
    question: str | None
    answer: str | None
    iterations: Sequence[ReadIteration]
    row: Row | None
    left_out: Sequence[LeftOut]
    left_out_number: int


class TurnSummary(NamedTuple):
    """A turn in the list of a conversation's turns."""

    number: int
    agent: str
    time_us: int
    iterations: int
    results: int
    repeated: int


class RefusedRecord(NamedTuple):
    """A record of the conversation that could not be used; the message quotes nothing of it."""

    reason: str
    message: str
    timestamp_ms: int | None


class Reading:
    """Reads the events of one conversation, in order of arrival.

    ``letters`` are the dead letters of the conversation: a record that has one was refused then,
    and is not processed. Without ``texts``, nothing that was written is kept: queries, titles,
    contents, question and answer.

    ``refused`` lists the first records that could not be used; ``refused_records`` is their number.
    ``outcomes`` counts events by what became of them, ``unknown_fields`` events with a field that
    the contract does not have.
    """

    def __init__(
        self,
        conversation_id: str,
        config: EngineConfig,
        letters: Iterable[DeadLetter] = (),
        *,
        texts: bool = True,
    ) -> None:
        self.conversation = Conversation(conversation_id)
        self.refused: list[RefusedRecord] = []
        self.refused_records = self.records = self.results = 0
        self._config = config
        self._texts = texts
        # The Python index, since it keeps what was compared; both make the same decisions.
        self._dedup = PlainDeduplicator(config.rules, b"")
        self._step = Step(config, lambda _: self._dedup)
        self._observed = Observations()
        self._beyond: dict[tuple[int, int, object], Refused] = {}
        self._sent: dict[bytes, Payload] = {}
        self._letters = set[tuple[str, int, int]]()
        for letter in letters:
            self._letters.add(_place(letter.record))
            self._refuse(letter.reason, letter.message, letter.record)

    def feed(self, records: Iterable[Record]) -> None:
        """Process the next records."""
        events = [event for record in records if (event := self._decoded(record)) is not None]
        self._step.apply(self.conversation, events, self._observed)
        for item in self._observed.refused:
            at = (item.turn, item.register, item.key)
            if at not in self._beyond or self._beyond[at].version < item.version:
                self._beyond[at] = item
        self._observed.refused.clear()

    def _decoded(self, record: Record) -> DigestedEvent | None:
        self.records += 1
        if record.topic and _place(record) in self._letters:
            return None
        event = decode(
            record.value,
            key=record.key,
            timestamp_ms=record.timestamp_ms,
            limits=self._config.limits,
        )
        if isinstance(event, BadRecord):
            bad = with_form(event, record.value)
            self._refuse(bad.reason, bad.message, record)
            return None
        if event.conversation_id != self.conversation.conversation_id:
            return None
        self._sent[event.digest] = self._kept(event.payload)
        config = self._config
        return digest_event(event, self._dedup, "", config.rules.tables, config.model_labellers)

    def _refuse(self, reason: str, message: str, record: Record) -> None:
        self.refused_records += 1
        if len(self.refused) < LISTED:
            self.refused.append(RefusedRecord(reason, message, record.timestamp_ms))

    def _kept(self, sent: Payload) -> Payload:
        """A payload with no more than is shown."""
        if isinstance(sent, SearchIteration):
            searches = [
                structs.replace(
                    search,
                    query=self._text(search.query, QUERY),
                    results=[self._kept_result(result) for result in search.results or ()],
                )
                for search in sent.searches or ()
            ]
            self.results += sum(len(search.results or ()) for search in searches)
            return structs.replace(sent, searches=searches)
        if isinstance(sent, RelevanceLabels):
            return structs.replace(sent, labels=None, routing=None, gate=None)
        if isinstance(sent, TurnCompleted):
            return structs.replace(
                sent,
                question=self._text(sent.question, LONG_TEXT),
                answer=self._text(sent.answer, LONG_TEXT),
                reference_answers=None,
                relevant=None,
                dimensions=None,
            )
        return sent

    def _kept_result(self, sent: Result) -> Result:
        return Result(
            sent.result_id,
            sent.entity_type,
            _some_ids(sent) or None,
            doc_id=sent.doc_id,
            title=self._title(sent),
            score=sent.score,
            baseline_rank=sent.baseline_rank,
        )

    def _title(self, sent: Result) -> str | None:
        """The title of a result, else the first line of its text, else a name or its address."""
        for text in (sent.title, sent.snippet, sent.content):
            if (shown := self._text(text, TITLE)) is not None:
                return shown
        for name in TITLE_FIELDS:
            value = (sent.fields or {}).get(name)
            if isinstance(value, str) and (shown := self._text(value, TITLE)) is not None:
                return shown
        return self._text(sent.url, TITLE)

    def _text(self, text: str | None, most: int) -> str | None:
        """A text as it is shown, of a title its first line; None if there is none, or if none may
        be shown."""
        if not self._texts or text is None or is_blank(text) or not (text := text.strip()):
            return None
        if most == TITLE:
            text = text.splitlines()[0].rstrip()
        return text if len(text) <= most else f"{text[:most]}…"

    # -- what can be asked

    @property
    def forgotten_us(self) -> int | None:
        """The time up to which a ``forget`` has erased the conversation; None without one."""
        forgotten = self.conversation.forgotten
        return None if forgotten is None else forgotten[0]

    @property
    def outcomes(self) -> Counter[str]:
        """Events by what became of them."""
        found: Counter[str] = Counter()
        for (_, outcome), number in self._observed.events.items():
            found[outcome] += number
        return found

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Events by the path of a field that the contract does not have."""
        return self._observed.unknown_fields

    def turns(self) -> list[TurnSummary]:
        """The turns of which there is anything, be it refused, in order."""
        numbers = {number for number, turn in self.conversation.turns.items() if not turn.empty}
        numbers.update(item.turn for item in self._missing())
        return [self._summary(number) for number in sorted(numbers)]

    def _summary(self, number: int) -> TurnSummary:
        turn = self.conversation.turns.get(number) or Turn(number)
        newest = turn.newest
        return TurnSummary(
            number,
            "" if newest is None else newest.agent,
            0 if newest is None else newest.occurred_us,
            len(turn.iterations),
            len(turn.result_searches),
            len(turn.result_searches) - len(turn.first_results),
        )

    def turn(self, number: int) -> ReadTurn:
        """A turn of ``turns``."""
        turn = self.conversation.turns.get(number) or Turn(number)
        totals = empty_totals(turn)
        asked: dict[tuple[bytes, str | None], str] = {}
        iterations = []
        for _, iteration in sorted(turn.iterations.items()):
            row = None
            if iteration.searches:
                add_iteration(totals, iteration)
                row = iteration_row(iteration, totals)
            searches = [self._search(turn, one, asked) for one in iteration.searches]
            gate = self._gate(turn, iteration)
            iterations.append(ReadIteration(iteration.number, gate, searches, row))
        end = self._end(turn)
        left_out = self._left_out(turn)
        listed = [*islice(left_out, LISTED)]
        return ReadTurn(
            number,
            None if end is None else end.question,
            None if end is None else end.answer,
            iterations,
            turn_row(self.conversation, turn, RerankSums.of(reranks(turn)))
            if turn.exists
            else None,
            listed,
            len(listed) + sum(1 for _ in left_out),
        )

    # -- what was refused

    def _missing(self) -> list[Refused]:
        """The items that limits have refused and no later event has brought."""
        conversation = self.conversation
        forgotten, found = conversation.forgotten, []
        for item in self._beyond.values():
            if forgotten is not None and item.version[:2] <= forgotten[:2]:
                continue
            turn = conversation.turns.get(item.turn)
            winner = None if turn is None else turn.winners[item.register].get(item.key)
            if winner is None or winner.version < item.version:
                found.append(item)
        return found

    def _left_out(self, turn: Turn) -> Iterator[LeftOut]:
        for item in self._missing():
            if item.turn == turn.number:
                most = getattr(self._config.limits, item.limit)
                yield LeftOut(_WHAT[item.register], _name(item.key), item.limit, most)
        for kind in LABEL_TYPES:
            for _, register, key in waiting(turn, kind):
                yield LeftOut(_WHAT[register.turn_index], _name(key))

    # -- the parts of a turn

    def _search(
        self, turn: Turn, search: Search, asked: dict[tuple[bytes, str | None], str]
    ) -> ReadSearch:
        sent = self._sent[search.digest]
        assert isinstance(sent, SearchIteration)
        assert sent.searches is not None
        told = sent.searches[search.index]
        repeats = None
        if search.query:
            first = asked.setdefault((search.query, search.route), search.search_id)
            repeats = None if first == search.search_id else first
        scores = (told.routing.scores if told.routing is not None else None) or {}
        best = self._judged(turn, 1, search.search_id)
        return ReadSearch(
            search.search_id,
            search.occurred_us,
            told.query,
            bool(search.query),
            repeats,
            search.route,
            {route: score for route, score in scores.items() if score is not None},
            best,
            rerank_of(turn, search),
            [
                self._result(turn, search, at, result)
                for at, result in enumerate(told.results or ())
            ],
        )

    def _result(self, turn: Turn, search: Search, at: int, sent: Result) -> ReadResult:
        position = search.start + at
        document = turn.documents[position]
        first = turn.first_results[document]
        repeats = None
        if first != position:
            index = turn.index
            assert isinstance(index, PlainIndex)
            partner = index.partners[position]
            evidence = EVIDENCE[search.evidence[at]]
            repeats = Repeat(_place_of(turn, first), _place_of(turn, partner), evidence)
        return ReadResult(
            _place_of(turn, position),
            sent.entity_type or "",
            sent.doc_id,
            {name: value for name, value in (sent.ids or {}).items() if isinstance(value, str)},
            sent.title,
            self._label(turn, position, sent),
            turn.document_gains[document] if first == position else None,
            repeats,
            sent.baseline_rank,
            sent.score,
        )

    def _label(self, turn: Turn, position: int, sent: Result) -> Judged | None:
        """The label of a result: that of a label event, if it is the first of its name."""
        value = turn.human.results[position]
        own = None if value is None else Judged(value, _SENT)
        if turn.handles[sent.result_id] == position:
            return self._judged(turn, 0, sent.result_id, own)
        return None if self._config.labels == MODEL else own

    def _judged(
        self, turn: Turn, kind: int, key: object, sent: Judged | None = None
    ) -> Judged | None:
        """The label that counts: of results, routes or gates (``kind`` 0 to 2), under their key.

        ``sent`` is the one that came with the search, which a person's event replaces.
        """
        by_source = []
        for first in (RESULT_LABEL, MODEL_RESULT_LABEL):
            event = turn.winners[first + kind].get(key)
            found = Judged(event.items[kind][key], self._giver(event)) if event else None
            by_source.append(found)
        human, model = by_source[0] or sent, by_source[1]
        if self._config.labels != HUMAN_FIRST:
            return human if self._config.labels == HUMAN else model
        return next(
            (one for one in (human, model) if one and one.value is not None), human or model
        )

    def _gate(self, turn: Turn, iteration: Iteration) -> ReadGate:
        score = None
        if iteration.gate is not None:
            sent = self._sent[iteration.gate.digest]
            assert isinstance(sent, SearchIteration)
            score = None if sent.gate is None else sent.gate.score
        needed = self._judged(turn, 2, iteration.number)
        return ReadGate(iteration.decision, iteration.explicit is not None, score, needed)

    def _giver(self, event: WinningEvent) -> str:
        """Who gave the labels of an event."""
        sent = self._sent[event.digest]
        assert isinstance(sent, RelevanceLabels)
        name = sent.labeller[:NAME] if sent.labeller else _UNNAMED
        return f"{name}, a model" if BY_CODE[event.kind].by_model else name

    def _end(self, turn: Turn) -> TurnCompleted | None:
        event = turn.winners[END].get(WHOLE_TURN)
        if event is None:
            return None
        sent = self._sent[event.digest]
        assert isinstance(sent, TurnCompleted)
        return sent


def _place_of(turn: Turn, position: int) -> Place:
    search = turn.result_searches[position]
    at = position - search.start
    return Place(position, search.iteration, search.search_id, at + 1, search.result_ids[at])


def _some_ids(sent: Result) -> dict[str, str | list[str | None] | None]:
    """The first ids of a result, of a list the first value, as they are shown."""
    found: dict[str, str | list[str | None] | None] = {}
    for name, given in (sent.ids or {}).items():
        values = given if isinstance(given, list) else [given]
        value = next((value for value in values if value), None)
        if value is not None and len(found) < IDS:
            found[name[:NAME]] = value[:NAME]
    return found


def _name(key: object) -> str:
    return f"iteration {key}" if isinstance(key, int) else str(key)


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
