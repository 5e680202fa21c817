"""Converts spans to events in an order that depends on neither arrival nor batches.

A trace can be interpreted only when its last span has arrived. All spans are therefore stored in a
database on disk until then, so that memory does not grow with them. Each trace is then interpreted
by itself (``stream_metrics.core.telemetry``), and the events are sorted by time.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from stream_metrics.core.engine.config import DEFAULT_AGENT, OTHER
from stream_metrics.core.events.decode import LATEST_US, BadRecord, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import (
    Evaluation,
    Event,
    Interpretation,
    Options,
    Reason,
    Refusal,
    Span,
    SpanMapping,
    UnusedScore,
    apply_evaluations,
    interpret,
    label_events,
)
from stream_metrics.core.telemetry.assembly import ClosedTrace
from stream_metrics.core.telemetry.interpret import MAX_BYTES, MAX_SPANS
from stream_metrics.core.telemetry.interpretation import FIXED, Unseen
from stream_metrics.core.telemetry.interpreter import checked_events
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from stream_metrics.core.telemetry.recordings import Recordings
from stream_metrics.core.telemetry.spans import service_of

MAX_LISTED_REFUSALS: Final = 100
MAX_KINDS: Final = 1_000
MAX_LISTED_AGENTS: Final = 1_000

_TABLES: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
CREATE TABLE spans (trace TEXT, digest BLOB, start_ns INTEGER, span BLOB,
    PRIMARY KEY (trace, digest)) WITHOUT ROWID;
CREATE TABLE turns (conversation TEXT, turn INTEGER, spans INTEGER,
    PRIMARY KEY (conversation, turn)) WITHOUT ROWID;
CREATE TABLE events (occurred_us INTEGER, trace TEXT, sequence INTEGER, place INTEGER,
    conversation TEXT, stamp INTEGER, value BLOB,
    PRIMARY KEY (occurred_us, trace, sequence, place)) WITHOUT ROWID;
CREATE TABLE assembled (trace TEXT PRIMARY KEY, spans INTEGER) WITHOUT ROWID;
BEGIN;
"""
_SIZES: Final = """
SELECT trace, COUNT(*), SUM(LENGTH(span)) FROM spans GROUP BY trace ORDER BY MIN(start_ns), trace
"""
_MARK_ASSEMBLED: Final = "INSERT OR IGNORE INTO assembled VALUES (?, ?)"
_STORE: Final = "INSERT OR IGNORE INTO spans VALUES (?, ?, ?, ?)"
_SIZE: Final = "SELECT COUNT(*), SUM(LENGTH(span)) FROM spans WHERE trace = ?"
_SPANS: Final = "SELECT span FROM spans WHERE trace = ? ORDER BY digest"
_CONTENTS: Final = "SELECT trace, span FROM spans WHERE trace <> ''"
_ASSEMBLED: Final = "SELECT spans FROM assembled WHERE trace = ?"
_TURN: Final = """
INSERT INTO turns VALUES (?, ?, 1) ON CONFLICT (conversation, turn) DO UPDATE SET spans = spans + 1
"""

_DECODE: Final = msgspec.msgpack.Decoder(Span).decode


class _Id(msgspec.Struct):
    span_id: str


_DECODE_ID: Final = msgspec.msgpack.Decoder(_Id).decode


@dataclass(order=True, slots=True)
class UnseenSearches:
    """What may have searched in how many turns, and the row that says that it did not."""

    what: str
    row: str
    turns: int = 0


@dataclass(slots=True)
class TraceCounts:
    """Counts of spans, traces and turns by outcome.

    Attributes:
        payloads, spans, traces: What was read.
        repeated: Spans that were dropped for others with the same ids.
        turns: Turns with events; ``skipped`` ones have no search, and of ``iterations_inferred``
            ones only times separate the iterations.
        limits: Refusals because of limits, by the setting of the limit.
        page_ids: The names of ids that turned out to be those of pages, by agent.
        passed_over: Calls of tools, in turns with searches, that count as no search, by name.
        following: Turns that follow one of another agent in their trace, and may be parts of it.
        unnamed: Turns of traces that name no conversation and count as one each.
        searches: Searches with events.
        labels: Labels from evaluations in the traces.
        nested, duplicate, reranked: Searches that are part of others, that another instrumentation
            recorded too, and that a reranker or joiner replaced.
        late: Spans of topics that arrived after their trace was closed.
        early: Spans of topics whose traces may have begun before the range that was read.
        turn_conflicts: Turns that share their number.
        forgotten: Searches that were forgotten before a second recording of them could come.
        rejected: Events that are invalid.
        empty: Traces without turns of which nothing was refused.
        refused, refused_of: Refusals by reason, and by agent and reason.
        first_refused: The first refusals and rejected events: an entry for each trace and reason,
            with their ``count``.
        unseen: Turns by the spans in them that may be searches, each with the row of the settings
            that says that it is none.
        kinds: Spans by kind; kinds after the first thousand count as ``others``.
    """

    payloads: int = 0
    spans: int = 0
    traces: int = 0
    repeated: int = 0
    turns: int = 0
    skipped: int = 0
    iterations_inferred: int = 0
    page_ids: dict[str, list[str]] = field(default_factory=dict)
    passed_over: dict[str, int] = field(default_factory=dict)
    following: int = 0
    unnamed: int = 0
    searches: int = 0
    labels: int = 0
    nested: int = 0
    duplicate: int = 0
    reranked: int = 0
    late: int = 0
    early: int = 0
    turn_conflicts: int = 0
    forgotten: int = 0
    rejected: int = 0
    empty: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    refused_of: dict[str, dict[str, int]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    first_refused: list[dict[str, Any]] = field(default_factory=list)
    unseen: list[UnseenSearches] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event that no worker would accept."""

    reason: str
    trace_id: str
    message: str


class TraceStore:
    """Stores payloads in any order, then returns the events, once; a context manager.

    The spans are in an unlinked file in ``folder``, or where temporary files are.
    """

    def __init__(
        self,
        mapping: SpanMapping,
        options: Options,
        limits: Limits,
        folder: Path | None = None,
    ) -> None:
        self.counts = TraceCounts()
        self._mapping, self._options = mapping, options
        self._limits, self._folder = limits, folder
        self._stored = 0
        self._listed: dict[tuple[str, str], dict[str, Any]] = {}
        self._unseen: dict[Unseen, UnseenSearches] = {}
        self._recordings = Recordings()
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._database is not None:
            self._database.close()

    def add_payload(self, payload: bytes) -> None:
        """Store the spans of a payload; raises what ``spans_of`` does, and then stores none of
        them."""
        spans = spans_of(payload)
        if self._database is None:
            self._database = _opened(self._folder)
        self._database.executemany(_STORE, ((span.trace_id, *_stored(span)) for span in spans))
        self.counts.payloads += 1
        self.counts.spans += len(spans)

    def add_closed(self, closed: Iterable[ClosedTrace]) -> None:
        """Interpret traces that were assembled elsewhere, and store their events."""
        for one in closed:
            if self._database is None:
                self._database = _opened(self._folder)
            interpretation = one.interpret(self._mapping, self._options)
            self._add(self._database, interpretation, one.timestamp_ms)
            self._database.execute(_MARK_ASSEMBLED, (one.trace_id, 0))

    def store_closed(self, closed: Iterable[ClosedTrace]) -> None:
        """Store traces that were assembled elsewhere, for ``label_events``."""
        for one in closed:
            if self._database is None:
                self._database = _opened(self._folder)
            self._database.execute(_MARK_ASSEMBLED, (one.trace_id, len(one.encoded_spans)))
            self._database.executemany(
                _STORE,
                ((one.trace_id, _digest(content), 0, content) for content in one.encoded_spans),
            )

    def records(self) -> Iterator[Record]:
        """The events by time, as records keyed by conversation."""
        if self._database is None:
            return
        self._interpret_all(self._database)
        for trace, conversation, stamp, value in self._database.execute(
            "SELECT trace, conversation, stamp, value FROM events "
            "ORDER BY occurred_us, trace, sequence, place"
        ):
            found = decode(value, timestamp_ms=stamp, limits=self._limits)
            if isinstance(found, BadRecord):
                self.counts.rejected += 1
                self._list(RejectedEvent(found.reason, trace, found.message))
            yield Record(value, conversation.encode(), stamp)

    def label_events(
        self,
        evaluations: Sequence[Evaluation],
        source: str | None = None,
        sample: str | None = None,
    ) -> tuple[list[Event], list[UnusedScore]]:
        """The labels that evaluations give to results in the traces, and the unused evaluations.

        The events are by time, the unused ones in the order of the evaluations. All say ``source``
        and ``sample``, if these are given.
        """
        by_trace, unused = self._by_trace(evaluations)
        found: list[Event] = []
        for trace, mine in sorted(by_trace.items()):
            assert self._database is not None
            if (why := self._unusable(self._database, trace)) is not None:
                unused += [UnusedScore(one.origin, "label_not_told", why) for one in mine]
                continue
            spans = map(_span, self._database.execute(_SPANS, (trace,)))
            interpretation, more = apply_evaluations(spans, self._mapping, self._options, mine)
            unused += more
            self.counts.labels += len(interpretation.labels)
            found += label_events(trace, interpretation.labels, source=source, sample=sample)
        order = {one.origin: at for at, one in enumerate(evaluations)}
        unused.sort(key=lambda one: order[one.origin])
        return sorted(found, key=lambda event: (event.occurred_us, event.value)), unused

    def _by_trace(
        self, evaluations: Sequence[Evaluation]
    ) -> tuple[dict[str, list[Evaluation]], list[UnusedScore]]:
        """Evaluations by the trace of their span, and those whose span is in no trace or in
        several."""
        of_span: dict[str, set[str]] = {one.span_id: set() for one in evaluations}
        if self._database is not None:
            for trace, content in self._database.execute(_CONTENTS):
                id = _DECODE_ID(content).span_id
                if id in of_span:
                    of_span[id].add(trace)
        found: dict[str, list[Evaluation]] = {}
        unused = []
        for one in evaluations:
            held = of_span[one.span_id]
            traces = held if not one.trace_id else held & {one.trace_id}
            reason: Reason = "label_no_span"
            if len(traces) == 1:
                found.setdefault(next(iter(traces)), []).append(one)
                continue
            if not one.span_id:
                message = "it names no span, or several"
            elif traces:
                reason = "label_ambiguous"
                message = f"{len(traces)} traces have a span {one.span_id}; add a column trace_id"
            elif one.trace_id and self._is_refused(one.trace_id):
                reason, message = "label_not_told", "the span's trace was refused"
            else:
                where = f"trace {one.trace_id}" if held else "the traces"
                message = f"no span {one.span_id} in {where}"
            unused.append(UnusedScore(one.origin, reason, message))
        return found, unused

    def _unusable(self, database: sqlite3.Connection, trace: str) -> str | None:
        """Why the spans of a trace cannot be used; None if they can."""
        number, size = database.execute(_SIZE, (trace,)).fetchone()
        if number > self._options.max_spans or size > self._options.max_bytes:
            return f"the span's trace has {number:,} spans of {size:,} bytes"
        closed = database.execute(_ASSEMBLED, (trace,)).fetchone()
        if closed is not None and closed[0] != number:
            return "some records of the span's trace have a key, and some have none"
        return None

    def _is_refused(self, trace: str) -> bool:
        """Whether the trace was assembled elsewhere and refused."""
        found = self._database.execute(_ASSEMBLED, (trace,)).fetchone() if self._database else None
        return found is not None and found[0] == 0

    def spans_of(self, trace: str) -> list[Span]:
        """The stored spans of a trace."""
        return (
            []
            if self._database is None
            else [*map(_span, self._database.execute(_SPANS, (trace,)))]
        )

    def traces(self) -> Iterator[list[Span] | Interpretation]:
        """The spans of each stored trace, by its first one; of those that are refused without
        being read the interpretation."""
        if self._database is None:
            return
        database, options = self._database, self._options
        for trace, number, size in database.execute(_SIZES):
            closed = database.execute(_ASSEMBLED, (trace,)).fetchone() if trace else None
            if closed is not None and closed[0] != number:
                database.execute("DELETE FROM events WHERE trace = ?", (trace,))
                message = "some records of the trace have a key, and some have none"
                yield self._refused(database, trace, number, "no_key", message)
            elif trace and (number > options.max_spans or size > options.max_bytes):
                message = f"the trace has {number:,} spans of {size:,} bytes"
                limit = MAX_SPANS if number > options.max_spans else MAX_BYTES
                yield self._refused(database, trace, number, "too_large", message, limit)
            elif trace:
                yield self.spans_of(trace)
            else:  # nothing connects spans without a trace id
                yield from ([_span(row)] for row in database.execute(_SPANS, (trace,)))

    def _interpret_all(self, database: sqlite3.Connection) -> None:
        for found in self.traces():
            if not isinstance(found, Interpretation):
                found = interpret(found, self._mapping, self._options)
            self._add(database, found)
        self.counts.repeated = (
            self.counts.spans - self.counts.late - self.counts.early - self._stored
        )
        (self.counts.turn_conflicts,) = database.execute(
            "SELECT COALESCE(SUM(spans), 0) FROM turns WHERE spans > 1"
        ).fetchone()

    def _refused(
        self,
        database: sqlite3.Connection,
        trace: str,
        spans: int,
        reason: Reason,
        message: str,
        limit: str = FIXED,
    ) -> Interpretation:
        """The interpretation of a trace that is refused without being read."""
        service = service_of(_span(database.execute(_SPANS, (trace,)).fetchone()))
        interpretation = Interpretation(trace, service=service, agent=service, spans=spans)
        interpretation.refuse(reason, "", message, limit=limit)
        return interpretation

    def _add(
        self,
        database: sqlite3.Connection,
        interpretation: Interpretation,
        timestamp_ms: int | None = None,
    ) -> None:
        """Count a trace and store its events; ``timestamp_ms`` is that of its last record."""
        self._recordings.refuse_repeated(interpretation)
        checked, _ = checked_events(
            interpretation, self._limits, timestamp_ms, self._options.content
        )
        self.counts.forgotten = self._recordings.forgotten_soon
        counts = self.counts
        self._stored += interpretation.spans + interpretation.refused["bad_id"]
        counts.traces += 1
        counts.turns += len(interpretation.turns)
        counts.labels += len(interpretation.labels)
        counts.nested += interpretation.nested
        counts.duplicate += interpretation.duplicate
        counts.reranked += interpretation.reranked
        refused = interpretation.refused
        counts.empty += not (interpretation.turns or refused)
        for one, number in interpretation.unseen.items():
            if one not in self._unseen and len(self._unseen) < MAX_KINDS:
                counts.unseen.append(self._unseen.setdefault(one, UnseenSearches(*one)))
            if one in self._unseen:
                self._unseen[one].turns += number
        for limit, number in interpretation.limits.items():
            counts.limits[limit] = counts.limits.get(limit, 0) + number
        for number_by, more in (
            (counts.kinds, interpretation.kinds),
            (counts.refused, refused),
            (counts.passed_over, interpretation.passed_over),
        ):
            for name, number in more.items():
                name = name if name in number_by or len(number_by) < MAX_KINDS else "others"
                number_by[name] = number_by.get(name, 0) + number
        for (agent, reason), number in interpretation.by_agent.items():
            name = agent or DEFAULT_AGENT
            if name not in counts.refused_of and len(counts.refused_of) >= MAX_LISTED_AGENTS:
                name = OTHER
            of_agent = counts.refused_of.setdefault(name, {})
            of_agent[reason] = of_agent.get(reason, 0) + number
        counts.following += interpretation.following
        for turn in interpretation.turns:
            counts.skipped += turn.skipped
            counts.searches += len(turn.searches)
            counts.iterations_inferred += turn.iterations_inferred
            counts.unnamed += turn.conversation == interpretation.trace_id
            named = counts.page_ids.get(turn.agent or "", [])
            if turn.page_ids and (named or len(counts.page_ids) < MAX_LISTED_AGENTS):
                counts.page_ids[turn.agent or ""] = sorted({*named, *turn.page_ids})
        first = {one.reason: one for one in reversed(interpretation.refusals)}
        for reason, number in refused.items():
            if reason in first:
                self._list(first[reason], number)
        database.executemany(
            _TURN, ((turn.conversation, turn.number) for turn in interpretation.turns)
        )
        database.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    event.occurred_us,
                    interpretation.trace_id,
                    counts.traces,
                    place,
                    event.conversation,
                    _stamp_ms(event) if timestamp_ms is None else timestamp_ms,
                    event.value,
                )
                for place, (event, _) in enumerate(checked)
            ),
        )

    def _list(self, one: Refusal | RejectedEvent, count: int = 1) -> None:
        """List a refusal, once for each trace and reason."""
        entry = self._listed.get((one.trace_id, one.reason))
        if entry is not None:
            entry["count"] += count
        elif len(self._listed) < MAX_LISTED_REFUSALS:
            entry = self._listed[one.trace_id, one.reason] = {**asdict(one), "count": count}
            self.counts.first_refused.append(entry)


def _stored(span: Span) -> tuple[bytes, int, bytes]:
    content = msgspec.msgpack.encode(span)
    return _digest(content), span.start_ns, content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _stamp_ms(event: Event) -> int | None:
    return event.occurred_us // 1000 if event.occurred_us <= LATEST_US else None


def _span(row: tuple[Any, ...]) -> Span:
    return _DECODE(row[0])


def _opened(folder: Path | None) -> sqlite3.Connection:
    """A database in an unlinked file, which is gone when the process ends, however it ends."""
    handle, path = tempfile.mkstemp(dir=folder, prefix=".spans-")
    try:
        os.close(handle)
        database = sqlite3.connect(path, isolation_level=None)
        database.executescript(_TABLES)
    finally:
        os.unlink(path)
    return database
