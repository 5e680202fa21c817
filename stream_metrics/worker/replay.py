"""Offline replay: the live step over recorded records, all state in memory, no side effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stream_metrics.dedup.deduplicator import deduplicator
from stream_metrics.engine.cells import conversation_cells
from stream_metrics.engine.config import MAX_ROUTES, EngineConfig
from stream_metrics.engine.history import History
from stream_metrics.engine.row import Row, conversation_rows, reranks
from stream_metrics.engine.state import Conversation
from stream_metrics.engine.step import Observations, Step
from stream_metrics.engine.taken import Intake, Taken
from stream_metrics.engine.windows import (
    DEFAULT_WINDOWS,
    Names,
    Window,
    first_names,
    routes_of,
    windows_at,
    windows_document,
)
from stream_metrics.events.decode import BadRecord
from stream_metrics.events.wire import Forget
from stream_metrics.metrics.decisions import Rerank
from stream_metrics.ports import Record

CHUNK = 2_000


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that a replay could not use, by its number in the input (from 0)."""

    number: int
    reason: str
    message: str


@dataclass(slots=True)
class _Seen:
    """What the counts of a report need of one conversation's events."""

    events: set[tuple[str, int, int]] = field(default_factory=set)
    forget: tuple[int, str] | None = None
    any_event: bool = False


class Replay:
    """Feed records, then ask for rows, windows and counts."""

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
        self.observations = Observations()
        self.rejected: list[Rejected] = []
        self.records = 0
        self.last_event_us = 0
        self._turn_scope = turn_scope
        self._agents, self._routes = tuple(agents), tuple(routes)
        self._windows = tuple(windows)
        dedup = deduplicator(self.config.rules, b"")
        self._intake = Intake(dedup, "", self.config.limits)
        self._step = Step(self.config, lambda _: dedup)
        self._conversations: dict[str, Conversation] = {}
        self._seen: dict[str, _Seen] = {}
        self._chunk: dict[str, list[Taken]] = {}
        self._chunk_size = 0

    def feed(self, record: Record) -> None:
        """Take the next record."""
        number = self.records
        self.records += 1
        event = self._intake.take(record.value, key=record.key, timestamp_ms=record.timestamp_ms)
        if isinstance(event, BadRecord):
            self.rejected.append(Rejected(number, event.reason, event.message))
            return
        self._note(event)
        self._chunk.setdefault(event.conversation_id, []).append(event)
        self._chunk_size += 1
        if self._chunk_size >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Apply what has been fed."""
        for conversation_id, events in self._chunk.items():
            conversation = self._conversations.get(conversation_id)
            if conversation is None:
                conversation = self._conversations[conversation_id] = Conversation(conversation_id)
            self._step.apply(conversation, events, self.observations)
        self._chunk = {}
        self._chunk_size = 0

    def _note(self, event: Taken) -> None:
        self.last_event_us = max(self.last_event_us, event.occurred_us)
        seen = self._seen.get(event.conversation_id)
        if seen is None:
            seen = self._seen[event.conversation_id] = _Seen()
        if type(event.payload) is Forget:
            version = event.version[:2]
            seen.forget = version if seen.forget is None else max(seen.forget, version)
        else:
            seen.any_event = True
            seen.events.add((event.event_id, event.occurred_us, event.turn))

    def rows(self) -> list[Row]:
        """One row a conversation (or a turn), sorted by conversation, then turn."""
        self.flush()
        return [
            row
            for conversation_id in sorted(self._conversations)
            for row in conversation_rows(self._conversations[conversation_id], self._turn_scope)
        ]

    def windows(self, now_us: int | None = None) -> dict[str, Any]:
        """The content of ``windows.json`` at ``now_us``, by default the largest event time."""
        self.flush()
        now = self.last_event_us if now_us is None else now_us
        cells = [
            cell
            for conversation in self._conversations.values()
            for cell in conversation_cells(conversation, self.config)
        ]
        names = Names(
            first_names({cell.agent for cell in cells}, self._agents, self.config.max_names),
            first_names(routes_of(cells), self._routes, MAX_ROUTES),
        )
        sums = windows_at(cells, names, now, self._windows)
        return windows_document(sums, now, self.config.dimension)

    def history(self) -> History:
        """The window sums through all of recorded time."""
        self.flush()
        found = History(
            self._windows,
            dimension=self.config.dimension,
            agents=self._agents,
            routes=self._routes,
        )
        found.last_event_us = self.last_event_us
        for conversation in self._conversations.values():
            found.add(conversation_cells(conversation, self.config))
        return found

    def counts(self, rows: list[Row]) -> dict[str, int]:
        """The block ``counts`` of a report over ``rows``."""
        self.flush()
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
        shown = {(row["conversation_id"], row["turn"]) for row in rows}
        return {
            "events": self.records,
            "invalid": len(self.rejected),
            "stale": stale,
            "forgotten": forgotten,
            "conversations": sum(seen.any_event for seen in self._seen.values()),
            "turns": len(rows),
            "iterations": sum(row["n"] for row in rows),
            **{
                name: sum(row[name] for row in rows)
                for name in (
                    "results", "unique", "duplicates", "good_unique", "labelled", "unlabelled",
                )
            },
            "orphan_labels": sum(self._orphans(*place) for place in shown),
        }  # fmt: skip

    def reranks(self, rows: list[Row]) -> list[Rerank]:
        """The reranking comparisons of all searches behind ``rows``."""
        return [
            value
            for row in rows
            for value in reranks(self._conversations[row["conversation_id"]].turns[row["turn"]])
        ]

    def _orphans(self, conversation_id: str, number: int) -> int:
        turn = self._conversations[conversation_id].turns[number]
        return sum(1 for result_id in turn.labels if result_id not in turn.handles)
