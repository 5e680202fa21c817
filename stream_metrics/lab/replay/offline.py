"""Offline replay: the live engine over recorded records, with state in memory only."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.beyond_limit import BeyondLimit, beyond_limit
from stream_metrics.core.engine.changes import Observations, Refused
from stream_metrics.core.engine.config import MAX_ROUTES, EngineConfig
from stream_metrics.core.engine.conversation_cells import conversation_cells
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.engine.label_units import sampled
from stream_metrics.core.engine.registers import FORGET, SEARCH_ITERATION, TURN_COMPLETED
from stream_metrics.core.engine.row import Row, reranks, shown_turns, turn_row
from stream_metrics.core.engine.state import MODEL_RESULT_LABEL, RESULT_LABEL, Conversation
from stream_metrics.core.engine.step import Step
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window
from stream_metrics.core.engine.window_sums import SumsAt
from stream_metrics.core.engine.windows import routes_of
from stream_metrics.core.engine.without_ids import WithoutIds, without_ids
from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.wire import TurnCompleted
from stream_metrics.core.metrics.decisions import RerankSums
from stream_metrics.lab.history import History
from stream_metrics.lab.replay.label_estimates import LabelSums, add_cells
from stream_metrics.lab.replay.outcome import (
    REJECTED_LISTED,
    Outcome,
    RejectedRecord,
    ReplayOptions,
)
from stream_metrics.lab.sources.place import place_of

CHUNK = 2_000

_LOCATED = (SEARCH_ITERATION, TURN_COMPLETED)


@dataclass(slots=True)
class _EventCounts:
    """The events of one conversation, for the counts of a report."""

    events: set[tuple[str, int, int]] = field(default_factory=set)
    forget: tuple[int, str] | None = None
    any_event: bool = False


class Replay:
    """Takes records, then returns rows, and windows and counts or both as an ``Outcome``.

    ``rejected`` lists the first records, by place, that could not be used. ``answered`` are the
    conversations with a recorded answer, ``described`` those with a recorded reference answer or
    dimension. ``positions`` has the positions of all searches and ends of turns by conversation and
    digest, for rereading the texts that the engine does not keep.
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        turn_scope: str = "last",
        agents: Iterable[str] = (),
        routes: Iterable[str] = (),
        windows: Iterable[Window] = DEFAULT_WINDOWS,
    ) -> None:
        self.config = config or EngineConfig()
        self.options = ReplayOptions(
            self.config, turn_scope, tuple(agents), tuple(routes), tuple(windows)
        )
        self.observations = Observations()
        self.rejected: list[RejectedRecord] = []
        self.records = self.invalid = 0
        self.last_event_us = 0
        dedup = deduplicator(self.config.rules, b"")
        self._decoder = RecordDecoder(
            dedup,
            "",
            self.config.rules.tables,
            self.config.limits,
            model_labellers=self.config.model_labellers,
        )
        self._step = Step(self.config, lambda _: dedup)
        self.answered: set[str] = set()
        self.described: set[str] = set()
        self.positions: dict[str, dict[bytes, int]] = {}
        self._conversations: dict[str, Conversation] = {}
        self._refused: dict[str, dict[tuple[int, int, Any], Refused]] = {}
        self._seen: dict[str, _EventCounts] = {}
        self._chunk: dict[str, list[DigestedEvent]] = {}
        self._chunk_size = 0
        self._reranked: RerankSums | None = None  # over all rows, once these have been made

    @classmethod
    def of(cls, options: ReplayOptions) -> Replay:
        """A replay with these options."""
        return cls(
            options.config,
            turn_scope=options.turn_scope,
            agents=options.agents,
            routes=options.routes,
            windows=options.windows,
        )

    def feed(
        self,
        record: Record,
        source: str = "",
        number: int | None = None,
        position: int | None = None,
    ) -> None:
        """Process the next record.

        Args:
            record: The record.
            source: The name of its source.
            number: Its number in the source. None: the records so far are of this source alone.
            position: Where it can be reread. None: nothing is reread.
        """
        self.records += 1
        event = self._decoder.decode(record.value, key=record.key, timestamp_ms=record.timestamp_ms)
        if isinstance(event, BadRecord):
            self.invalid += 1
            place = place_of(source, self.records if number is None else number, record)
            insort(self.rejected, RejectedRecord(place, event.reason, event.message))
            del self.rejected[REJECTED_LISTED:]
            return
        self._note(event, position or 0)
        self._chunk.setdefault(event.conversation_id, []).append(event)
        self._chunk_size += 1
        if self._chunk_size >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Apply the records fed so far."""
        if self._chunk:
            self._reranked = None
        for conversation_id, events in self._chunk.items():
            conversation = self._conversations.get(conversation_id)
            if conversation is None:
                conversation = self._conversations[conversation_id] = Conversation(conversation_id)
            self._step.apply(conversation, events, self.observations)
            if self.observations.refused:
                self._note_refused(conversation_id)
        self._chunk = {}
        self._chunk_size = 0

    def _note_refused(self, conversation_id: str) -> None:
        """Keep the newest version of each item that was refused."""
        newest = self._refused.setdefault(conversation_id, {})
        for item in self.observations.refused:
            place = (item.turn, item.register, item.key)
            if place not in newest or newest[place].version < item.version:
                newest[place] = item
        self.observations.refused.clear()

    def _note(self, event: DigestedEvent, position: int) -> None:
        self.last_event_us = max(self.last_event_us, event.occurred_us)
        seen = self._seen.get(event.conversation_id)
        if seen is None:
            seen = self._seen[event.conversation_id] = _EventCounts()
        if event.kind in _LOCATED:
            self.positions.setdefault(event.conversation_id, {})[event.digest] = position
        if event.kind is FORGET:
            version = event.version[:2]
            seen.forget = version if seen.forget is None else max(seen.forget, version)
        else:
            seen.any_event = True
            if event.end is not None:
                self._note_texts(event.conversation_id, event.end)
            seen.events.add((event.event_id, event.occurred_us, event.turn))

    def _note_texts(self, conversation_id: str, end: TurnCompleted) -> None:
        if end.answer is not None:
            self.answered.add(conversation_id)
        if end.reference_answers or end.dimensions:
            self.described.add(conversation_id)

    def rows(self) -> list[Row]:
        """One row per conversation (or turn), sorted by conversation and turn."""
        return list(self.each_row())

    def each_row(self) -> Iterator[Row]:
        """Yield the rows one by one."""
        total = RerankSums()
        for conversation in self.conversations():
            for turn in shown_turns(conversation, self.options.turn_scope):
                reranked = RerankSums.of(reranks(turn))
                total = total.plus(reranked)
                yield turn_row(conversation, turn, reranked)
        self._reranked = total

    def conversations(self) -> Iterator[Conversation]:
        """Every conversation that an event names, sorted by id."""
        self.flush()
        for conversation_id in sorted(self._conversations):
            yield self._conversations[conversation_id]

    def windows(self, now_us: int | None = None) -> dict[str, Any]:
        """The content of ``windows.json`` at ``now_us``; by default, the largest event time."""
        self.flush()
        now = self.last_event_us if now_us is None else now_us
        cells = [
            cell
            for conversation in self._conversations.values()
            for cell in conversation_cells(conversation, self.config)
        ]
        agents, routes = {cell.agent for cell in cells}, routes_of(cells)
        sums = SumsAt(self.options.windows, self.options.names(agents, routes), now)
        for cell in cells:
            sums.take(cell.time_us, cell.agent, cell.sums)
        return sums.document(self.config.dimension)

    def history(self) -> History:
        """The window sums over all recorded time."""
        return self.outcome_and_history()[1]

    def outcome(self) -> Outcome:
        """Everything that a report needs apart from rows and history."""
        return self.outcome_and_history()[0]

    def outcome_and_history(self) -> tuple[Outcome, History]:
        """Outcome and history in one pass over the conversations."""
        self.flush()
        history = self.options.history(self.last_event_us)
        agents: set[str] = set()
        routes: set[str] = set()
        reranked = RerankSums() if self._reranked is None else self._reranked
        orphans = 0
        beyond = of_all = BeyondLimit()
        unnamed = WithoutIds()
        label_sums: LabelSums = {}
        for name, conversation in self._conversations.items():
            refused = self._refused.get(name, {}).values()
            beyond = beyond.plus(beyond_limit(conversation, self.options.turn_scope, refused))
            of_all = of_all.plus(beyond_limit(conversation, "all", refused))
            if self.config.rules.tables.joined_grades:
                unnamed = unnamed.plus(without_ids(conversation, self.options.turn_scope))
            for turn in shown_turns(conversation, self.options.turn_scope):
                for register in (RESULT_LABEL, MODEL_RESULT_LABEL):
                    orphans += len(turn.winners[register].keys() - turn.handles.keys())
                if self._reranked is None:
                    reranked = reranked.plus(RerankSums.of(reranks(turn)))
            cells = conversation_cells(conversation, self.config)
            history.add(cells)
            if sampled(conversation):
                add_cells(label_sums, cells)
            agents.update(cell.agent for cell in cells)
            routes |= routes_of(cells)
        stale, forgotten = self._ignored()
        outcome = Outcome(
            events=self.records,
            invalid=self.invalid,
            stale=stale,
            forgotten=forgotten,
            conversations=sum(seen.any_event for seen in self._seen.values()),
            orphan_labels=orphans,
            last_event_us=self.last_event_us,
            agents=tuple(nsmallest(self.config.max_names, agents)),
            routes=tuple(nsmallest(MAX_ROUTES, routes)),
            reranks=reranked,
            rejected=tuple(self.rejected),
            beyond_limit=beyond,
            beyond_limit_of_all=of_all,
            without_ids=unnamed,
            label_sums=label_sums,
        )
        return outcome, history

    def _ignored(self) -> tuple[int, int]:
        """The numbers of distinct events that belong to an earlier turn, and that are forgotten."""
        stale = forgotten = 0
        for conversation_id, seen in self._seen.items():
            last = self._conversations[conversation_id].last_turn
            stale_ids: set[str] = set()
            forgotten_ids: set[str] = set()
            for event_id, occurred_us, turn in seen.events:
                if seen.forget is not None and (occurred_us, event_id) <= seen.forget:
                    forgotten_ids.add(event_id)
                elif turn < last:
                    stale_ids.add(event_id)
            stale += len(stale_ids)
            forgotten += len(forgotten_ids)
        return stale, forgotten
