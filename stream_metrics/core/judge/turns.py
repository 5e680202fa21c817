"""The turns of a random sample, from their first event until nothing more of them is expected.

A turn is due once nothing of it has come for some time. Then each of its documents is to be graded
that has no grade of this judge yet. What a document is, and which result holds its label, the
engine decides, which processes the events here once more. Grades that the judge has written come
back on the topics that it reads, so that a judge that starts again knows what is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, Literal, NamedTuple

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.dedup.tables import TITLE_FIELDS
from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import digest_event
from stream_metrics.core.engine.state import END, WHOLE_TURN, Conversation, Search, Turn
from stream_metrics.core.engine.step import Step
from stream_metrics.core.events.decode import BadRecord, Event, decode
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.wire import (
    Forget,
    Result,
    SearchIteration,
    TurnCompleted,
)
from stream_metrics.core.events.wire import Search as SentSearch
from stream_metrics.core.judge.options import Times
from stream_metrics.core.judge.prompt import Texts
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.core.unicode import is_blank

Problem = Literal["no_query", "no_text"]
HELP: Final[Mapping[Problem, str]] = {
    "no_query": "its searches have no query and the turn has no question: send `query` with "
    "searches or `question` with turn_completed",
    "no_text": "a result has no title, snippet or content: send one of them, and where events come "
    'from traces, leave `otlp.content` at "on"',
}
_ANY_TIME: Final = 1 << 62


class Ask(NamedTuple):
    """A document to grade: the result that holds its label, and what the grade depends on."""

    search_id: str
    search_us: int
    result_id: str
    texts: Texts


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be graded of a turn.

    ``time_us`` is the time of its first search, or of its gate decision. ``problem`` says why it
    cannot be graded, None if it can.
    """

    conversation_id: str
    turn: int
    agent: str
    release: str | None
    time_us: int
    asks: tuple[Ask, ...]
    problem: Problem | None


class OpenTurn:
    """One turn: what its events say, and the grades that it has.

    ``running``: somebody asks for its grades. ``offsets`` has the first record of the turn in each
    log, by topic and partition.
    """

    def __init__(self, conversation_id: str, number: int, step: Step) -> None:
        self.conversation_id = conversation_id
        self.number = number
        self.running = False
        self.last_ms = 0
        self.bytes = 0
        self.offsets: dict[tuple[str, int], int] = {}
        self._conversation = Conversation(conversation_id)
        self._step = step
        self._dedup = step.dedup_of("")
        self._sent: dict[bytes, SearchIteration | TurnCompleted] = {}
        self._graded: set[str] = set()
        self._marked = False

    @property
    def exists(self) -> bool:
        """Whether a search or a gate decision of it has come, and was not erased."""
        turn = self._turn
        return turn is not None and turn.exists

    @property
    def _turn(self) -> Turn | None:
        return self._conversation.turns.get(self.number)

    def add(self, event: Event) -> None:
        """Process a search iteration, the end of the turn, or a ``forget``."""
        sent = event.payload
        if isinstance(sent, SearchIteration | TurnCompleted):
            self._sent[event.digest] = sent
        digested = digest_event(event, self._dedup, "", self._step.config.rules.tables)
        self._step.apply(self._conversation, [digested], Observations())

    @property
    def is_drawn(self) -> bool:
        """Whether an event of this judge says that the turn is in the sample."""
        return self._marked

    def grade(self, result_ids: Iterable[str]) -> None:
        """Note that these results have a grade of this judge, and the turn is in the sample."""
        self._graded.update(result_ids)
        self._marked = True

    def work(self) -> Work | None:
        """What is to be graded now; None if nothing is and the sample is known to have the turn."""
        turn = self._turn
        if turn is None or turn.newest is None:
            return None
        documents = self._ungraded(turn)
        if self._marked and not documents:
            return None
        question = self._question(turn)
        asks: list[Ask] = []
        problem: Problem | None = None
        for search, result_id, sent in documents:
            told = self._searches(search)
            texts = Texts(
                question, _text(told.query), _title(sent), _text(sent.content, sent.snippet)
            )
            if not (texts.question or texts.query):
                problem = problem or "no_query"
            elif not (texts.title or texts.text):
                problem = problem or "no_text"
            asks.append(Ask(search.search_id, search.occurred_us, result_id, texts))
        times = [search.occurred_us for search in turn.order] or [turn.newest.occurred_us]
        return Work(
            self.conversation_id,
            self.number,
            turn.newest.agent,
            turn.newest.release,
            min(times),
            tuple(asks),
            problem,
        )

    def _ungraded(self, turn: Turn) -> list[tuple[Search, str, Result]]:
        """Of each document without a grade, the first result that a label reaches, and a result
        with its text: the first one that has any."""
        results: dict[int, list[int]] = {}
        for position, document in enumerate(turn.documents):
            results.setdefault(document, []).append(position)
        found = []
        for positions in results.values():
            ids = {at: _result_id(turn, at) for at in positions}
            named = [at for at in positions if turn.handles[ids[at]] == at]
            if not named or not self._graded.isdisjoint(ids[at] for at in named):
                continue
            sent = [self._result(turn, at) for at in positions]
            written = next((one for one in sent if _has_text(one)), sent[0])
            found.append((turn.result_searches[named[0]], ids[named[0]], written))
        return found

    def _searches(self, search: Search) -> SentSearch:
        sent = self._sent[search.digest]
        assert isinstance(sent, SearchIteration)
        assert sent.searches is not None
        return sent.searches[search.index]

    def _result(self, turn: Turn, position: int) -> Result:
        search = turn.result_searches[position]
        results = self._searches(search).results
        assert results is not None
        return results[position - search.start]

    def _question(self, turn: Turn) -> str:
        event = turn.winners[END].get(WHOLE_TURN)
        sent = None if event is None else self._sent[event.digest]
        return _text(sent.question) if isinstance(sent, TurnCompleted) else ""


def _result_id(turn: Turn, position: int) -> str:
    search = turn.result_searches[position]
    return search.result_ids[position - search.start]


def _text(*texts: str | None) -> str:
    """The first text that has more than spaces; empty if none has."""
    return next((one.strip() for one in texts if one is not None and not is_blank(one)), "")


def _title(sent: Result) -> str:
    fields = sent.fields or {}
    named = [value for name in TITLE_FIELDS if isinstance(value := fields.get(name), str)]
    return _text(sent.title, *named)


def _has_text(sent: Result) -> bool:
    return bool(_title(sent) or _text(sent.content, sent.snippet))


class _Erased(NamedTuple):
    """The latest ``forget`` of a conversation, and the record that had it, of ``time_ms``."""

    event: Event
    record: Record
    time_ms: int


class OpenTurns:
    """The turns of the sample in one partition.

    ``labeller`` is the name with which this judge signs labels.
    """

    def __init__(self, config: EngineConfig, sampler: Sampler, labeller: str, times: Times) -> None:
        self._config = config
        self._sampler = sampler
        self._labeller = labeller
        self._times = times
        dedup = deduplicator(config.rules, b"")
        self._step = Step(config, lambda _: dedup)
        self._turns: dict[str, dict[int, OpenTurn]] = {}
        self._erased: dict[str, _Erased] = {}  # for events that are older and come later
        self._changed: dict[OpenTurn, None] = {}  # those that are to be looked at, oldest first
        self._looked_at: dict[OpenTurn, None] = {}
        self._undrawn: dict[OpenTurn, None] = {}  # those of which no event may say so, oldest first
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._changed) + len(self._looked_at)

    def add(self, record: Record, rate: float, now_ms: int = _ANY_TIME) -> None:
        """Process the next record of a log; ``rate`` is the highest rate of any day.

        A record that is no valid event is ignored: a worker tells of it. One whose time is after
        ``now_ms`` was written by a clock that is ahead, and is taken for one of now.
        """
        key = record.key
        if key is None or not self._sampler.includes(key.decode("utf-8", "replace"), rate):
            return
        event = decode(
            record.value,
            key=key,
            timestamp_ms=record.timestamp_ms,
            limits=self._config.limits,
            require_key=True,
        )
        if isinstance(event, BadRecord):
            return
        sent = event.payload
        if isinstance(sent, Forget):
            before = self._erased.get(event.conversation_id)
            if before is None or before.event.version < event.version:
                at_ms = min(record.timestamp_ms or 0, now_ms)
                self._erased[event.conversation_id] = _Erased(event, record, at_ms)
            for turn in list(self._turns.get(event.conversation_id, {}).values()):
                turn.add(event)
                if not turn.exists:
                    self._drop(turn)
        elif isinstance(sent, SearchIteration | TurnCompleted):
            turn = self._turn(event, record, now_ms)
            turn.add(event)
            turn.last_ms = max(turn.last_ms, min(record.timestamp_ms or 0, now_ms))
            turn.bytes += len(record.value or b"")
            self.bytes += len(record.value or b"")
            self._looked_at.pop(turn, None)
            for several in (self._changed, self._undrawn):
                several.pop(turn, None)
                several[turn] = None
        elif sent.source == "model" and sent.labeller == self._labeller:
            turn = self._turn(event, record, now_ms)
            turn.grade(label.result_id for label in sent.labels or ())

    def _turn(self, event: Event, record: Record, now_ms: int) -> OpenTurn:
        turns = self._turns.setdefault(event.conversation_id, {})
        turn = turns.get(event.turn)
        if turn is None:
            turn = turns[event.turn] = OpenTurn(event.conversation_id, event.turn, self._step)
            turn.last_ms = min(record.timestamp_ms or 0, now_ms)
            self._looked_at[turn] = None
            if (erased := self._erased.get(event.conversation_id)) is not None:
                turn.add(erased.event)
        turn.offsets.setdefault((record.topic, record.partition), record.offset)
        return turn

    def due(self, now_ms: int, most: int | None = None) -> list[OpenTurn]:
        """The turns of which nothing has come for long enough, at a time up to which all was read.

        At most so many; they are not returned again until something of them comes.
        """
        found: list[OpenTurn] = []
        for turn in self._changed:
            if not self._is_due(turn, now_ms) or len(found) == most:
                break
            if not turn.running:
                found.append(turn)
        for turn in found:
            del self._changed[turn]
            self._looked_at[turn] = None
        return found

    def count_due(self, now_ms: int) -> int:
        """How many turns ``due`` would return."""
        waiting = takewhile(lambda turn: self._is_due(turn, now_ms), self._changed)
        return sum(not turn.running for turn in waiting)

    def undrawn(self, now_ms: int, most: int) -> list[OpenTurn]:
        """The turns that have been due for as long as it took until they were, or are about to be
        forgotten, and of which no event says that they are in the sample.

        At most so many; they are not returned again until something of them comes.
        """
        times = self._times
        before_ms = now_ms - min(times.settle_ms, times.kept_ms - times.settle_ms)
        waiting = takewhile(lambda turn: self._is_due(turn, before_ms), self._undrawn)
        found = list(islice(waiting, most))
        for turn in found:
            del self._undrawn[turn]
        return [turn for turn in found if not turn.is_drawn]

    def _is_due(self, turn: OpenTurn, now_ms: int) -> bool:
        return turn.last_ms + self._times.settle_ms <= now_ms

    def forget_old(self, now_ms: int) -> None:
        """Drop the turns of which nothing is expected any more."""
        old = [
            turn
            for turn in self._looked_at
            if not turn.running and turn.last_ms + self._times.kept_ms <= now_ms
        ]
        for turn in old:
            self._drop(turn)
        before_ms = now_ms - self._times.kept_ms
        if self._erased:
            self._erased = {
                conversation: one
                for conversation, one in self._erased.items()
                if one.time_ms > before_ms
            }

    def make_room(self, most_bytes: int) -> None:
        """Drop turns that were looked at, the oldest first, until the others have so few bytes."""
        for turn in list(self._looked_at):
            if self.bytes <= most_bytes:
                return
            if not turn.running:
                self._drop(turn)

    def offsets(self) -> dict[tuple[str, int], int]:
        """The first record of any turn in each log, by topic and partition."""
        found: dict[tuple[str, int], int] = {}
        for turn in (*self._changed, *self._looked_at):
            for log, offset in turn.offsets.items():
                found[log] = min(offset, found.get(log, offset))
        for _, record, _ in self._erased.values():
            log = (record.topic, record.partition)
            found[log] = min(record.offset, found.get(log, record.offset))
        return found

    def _drop(self, turn: OpenTurn) -> None:
        self._changed.pop(turn, None)
        self._looked_at.pop(turn, None)
        self._undrawn.pop(turn, None)
        self.bytes -= turn.bytes
        turns = self._turns[turn.conversation_id]
        del turns[turn.number]
        if not turns:
            del self._turns[turn.conversation_id]
