"""Spans in, events out, in an order that depends on neither arrival nor batches.

A trace can be told only when its last span has come. So all spans are kept until then: in a
database on disk, so that memory does not grow with them. Each trace is then told by itself
(``stream_metrics.telemetry``), and the events come by their times.
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

from stream_metrics.adapters.otlp.payloads import spans_of
from stream_metrics.engine.config import DEFAULT_AGENT, OTHER
from stream_metrics.events.decode import LATEST_US, BadRecord, decode
from stream_metrics.events.limits import Limits
from stream_metrics.events.record import Record
from stream_metrics.telemetry import (
    Evaluation,
    Event,
    Mapping,
    Options,
    Reason,
    Refusal,
    Span,
    Told,
    Unused,
    check_scopes,
    events,
    judge,
    label_events,
    tell,
)
from stream_metrics.telemetry.assembly import Closed
from stream_metrics.telemetry.spans import service_of

REFUSED_LISTED: Final = 100
MOST_KINDS: Final = 1_000
MOST_AGENTS: Final = 1_000

_TABLES: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
CREATE TABLE spans (trace TEXT, digest BLOB, span BLOB, PRIMARY KEY (trace, digest)) WITHOUT ROWID;
CREATE TABLE turns (conversation TEXT, turn INTEGER, spans INTEGER,
    PRIMARY KEY (conversation, turn)) WITHOUT ROWID;
CREATE TABLE events (occurred_us INTEGER, trace TEXT, told INTEGER, place INTEGER,
    conversation TEXT, stamp INTEGER, value BLOB,
    PRIMARY KEY (occurred_us, trace, told, place)) WITHOUT ROWID;
CREATE TABLE told (trace TEXT PRIMARY KEY, spans INTEGER) WITHOUT ROWID;
BEGIN;
"""
_SIZES: Final = """
SELECT trace, COUNT(*), SUM(LENGTH(span)) FROM spans GROUP BY trace ORDER BY trace
"""
_IS_TOLD: Final = "INSERT OR IGNORE INTO told VALUES (?, ?)"
_KEEP: Final = "INSERT OR IGNORE INTO spans VALUES (?, ?, ?)"
_SIZE: Final = "SELECT COUNT(*), SUM(LENGTH(span)) FROM spans WHERE trace = ?"
_SPANS: Final = "SELECT span FROM spans WHERE trace = ? ORDER BY digest"
_CONTENTS: Final = "SELECT trace, span FROM spans WHERE trace <> ''"
_TOLD: Final = "SELECT spans FROM told WHERE trace = ?"
_TURN: Final = """
INSERT INTO turns VALUES (?, ?, 1) ON CONFLICT (conversation, turn) DO UPDATE SET spans = spans + 1
"""

_DECODE: Final = msgspec.msgpack.Decoder(Span).decode


class _Id(msgspec.Struct):
    span_id: str


_DECODE_ID: Final = msgspec.msgpack.Decoder(_Id).decode


@dataclass(slots=True)
class Counts:
    """What became of spans.

    ``payloads``, ``spans`` and ``traces`` are what was read; ``repeated`` spans stand aside for
    others with the same ids. ``searches`` were told, in ``turns``, of which ``skipped`` have none
    and of ``iterations_inferred`` only time told the iterations apart; ``unnamed`` turns are a
    conversation by themselves, as no span names one; ``labels`` are from evaluations in the traces.
    ``nested`` searches are parts of others, ``duplicate`` ones were told by another instrumentation
    too, ``reranked`` ones gave their place to a reranker or joiner. ``turn_conflicts`` are turns
    that share their number. ``refused`` counts what was set aside by reason, ``refused_of`` by
    agent and reason, and ``rejected`` events that are none. ``first_refused`` tells the first of
    all these: an entry for each trace and reason, with their ``count``. ``empty`` traces told
    nothing, and nothing of them was refused. ``kinds`` counts spans by their kinds; those after the
    first thousand are ``others``. Of topics, ``late`` spans came after their trace was closed, and
    ``early`` ones are of traces that may have begun before what was read.
    """

    payloads: int = 0
    spans: int = 0
    traces: int = 0
    repeated: int = 0
    turns: int = 0
    skipped: int = 0
    iterations_inferred: int = 0
    unnamed: int = 0
    searches: int = 0
    labels: int = 0
    nested: int = 0
    duplicate: int = 0
    reranked: int = 0
    late: int = 0
    early: int = 0
    turn_conflicts: int = 0
    rejected: int = 0
    empty: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    refused_of: dict[str, dict[str, int]] = field(default_factory=dict)
    first_refused: list[dict[str, Any]] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that no worker would take."""

    reason: str
    trace_id: str
    message: str


class Traces:
    """Takes payloads in any order, then gives the events, once; a context manager.

    The spans lie in a file without a name in ``folder``, or where temporary files do.
    """

    def __init__(
        self,
        mapping: Mapping,
        options: Options,
        limits: Limits,
        folder: Path | None = None,
    ) -> None:
        self.counts = Counts()
        self._mapping, self._options = mapping, options
        self._limits, self._folder = limits, folder
        self._kept = 0
        self._listed: dict[tuple[str, str], dict[str, Any]] = {}
        self._scopes: set[tuple[str, str]] = set()
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

    def take(self, payload: bytes) -> None:
        """Keep the spans of a payload; raises what ``spans_of`` does, and then keeps none of it."""
        spans = spans_of(payload)
        if self._database is None:
            self._database = _opened(self._folder)
        self._database.executemany(_KEEP, ((span.trace_id, *_kept(span)) for span in spans))
        self.counts.payloads += 1
        self.counts.spans += len(spans)

    def tell(self, closed: Iterable[Closed]) -> None:
        """Take traces that somebody else has put together."""
        for one in closed:
            if self._database is None:
                self._database = _opened(self._folder)
            told = one.tell(self._mapping, self._options)
            self._scopes |= told.scopes
            self._note(self._database, told, one.stamp_ms)
            self._database.execute(_IS_TOLD, (one.trace_id, 0))

    def hold(self, closed: Iterable[Closed]) -> None:
        """Take traces that somebody else has put together, for ``judged``."""
        for one in closed:
            if self._database is None:
                self._database = _opened(self._folder)
            self._database.execute(_IS_TOLD, (one.trace_id, len(one.held)))
            self._database.executemany(
                _KEEP, ((one.trace_id, _digest(content), content) for content in one.held)
            )

    def records(self) -> Iterator[Record]:
        """The events as records under their conversations' ids, by time; raises ``TwoScopes``."""
        if self._database is None:
            return
        self._tell(self._database)
        for trace, conversation, stamp, value in self._database.execute(
            "SELECT trace, conversation, stamp, value FROM events "
            "ORDER BY occurred_us, trace, told, place"
        ):
            found = decode(value, timestamp_ms=stamp, limits=self._limits)
            if isinstance(found, BadRecord):
                self.counts.rejected += 1
                self._list(Rejected(found.reason, trace, found.message))
            yield Record(value, conversation.encode(), stamp)

    def judged(self, evaluations: Sequence[Evaluation]) -> tuple[list[Event], list[Unused]]:
        """The labels that evaluations give to the results of the traces, and those that give none.

        The events are by time, the others in the order of the evaluations. Raises ``TwoScopes``.
        """
        by_trace, unused = self._by_trace(evaluations)
        found: list[Event] = []
        scopes: set[tuple[str, str]] = set()
        for trace, mine in sorted(by_trace.items()):
            assert self._database is not None
            if (why := self._unusable(self._database, trace)) is not None:
                unused += [Unused(one.origin, "label_not_told", why) for one in mine]
                continue
            spans = map(_span, self._database.execute(_SPANS, (trace,)))
            told, more = judge(spans, self._mapping, self._options, mine)
            scopes |= told.scopes
            unused += more
            self.counts.labels += len(told.labels)
            found += label_events(trace, told.labels)
        self._check_scopes(scopes)
        order = {one.origin: at for at, one in enumerate(evaluations)}
        unused.sort(key=lambda one: order[one.origin])
        return sorted(found, key=lambda event: (event.occurred_us, event.value)), unused

    def _by_trace(
        self, evaluations: Sequence[Evaluation]
    ) -> tuple[dict[str, list[Evaluation]], list[Unused]]:
        """Evaluations by the trace that has their span, and those of no trace, or of several."""
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
                reason, message = "label_not_told", "the span's trace was set aside"
            else:
                where = f"trace {one.trace_id}" if held else "the traces"
                message = f"no span {one.span_id} in {where}"
            unused.append(Unused(one.origin, reason, message))
        return found, unused

    def _unusable(self, database: sqlite3.Connection, trace: str) -> str | None:
        """Why the spans of a trace are not told; None if they are."""
        number, size = database.execute(_SIZE, (trace,)).fetchone()
        if number > self._options.max_spans or size > self._options.max_bytes:
            return f"the span's trace has {number:,} spans of {size:,} bytes"
        closed = database.execute(_TOLD, (trace,)).fetchone()
        if closed is not None and closed[0] != number:
            return "some records of the span's trace have a key, and some have none"
        return None

    def _is_refused(self, trace: str) -> bool:
        """Whether it was put together elsewhere, and has no spans."""
        found = self._database.execute(_TOLD, (trace,)).fetchone() if self._database else None
        return found is not None and found[0] == 0

    def _tell(self, database: sqlite3.Connection) -> None:
        options = self._options
        for trace, number, size in database.execute(_SIZES):
            if trace and database.execute(_TOLD, (trace,)).fetchone():
                database.execute("DELETE FROM events WHERE trace = ?", (trace,))
                message = "some records of the trace have a key, and some have none"
                self._note(database, self._refused(database, trace, number, "no_key", message))
                continue
            if trace and (number > options.max_spans or size > options.max_bytes):
                message = f"the trace has {number:,} spans of {size:,} bytes"
                self._note(database, self._refused(database, trace, number, "too_large", message))
                continue
            rows = database.execute(_SPANS, (trace,))
            groups = [map(_span, rows)] if trace else ([_span(row)] for row in rows)
            for spans in groups:  # nothing connects spans without a trace id
                told = tell(spans, self._mapping, self._options)
                self._note(database, told)
                self._scopes |= told.scopes
        self.counts.repeated = self.counts.spans - self.counts.late - self.counts.early - self._kept
        (self.counts.turn_conflicts,) = database.execute(
            "SELECT COALESCE(SUM(spans), 0) FROM turns WHERE spans > 1"
        ).fetchone()
        self._check_scopes(self._scopes)

    def _refused(
        self, database: sqlite3.Connection, trace: str, spans: int, reason: Reason, message: str
    ) -> Told:
        """A trace that is not read."""
        service = service_of(_span(database.execute(_SPANS, (trace,)).fetchone()))
        told = Told(trace, service=service, agent=service, spans=spans)
        told.refuse(reason, "", message)
        return told

    def _check_scopes(self, scopes: Iterable[tuple[str, str]]) -> None:
        """Raises ``TwoScopes``."""
        if not self._options.scopes:
            check_scopes(frozenset(scopes))

    def _note(self, database: sqlite3.Connection, told: Told, stamp_ms: int | None = None) -> None:
        """Keep the events of a trace, whose last record has this time, and count."""
        counts = self.counts
        self._kept += told.spans + told.refused["bad_id"]
        counts.traces += 1
        counts.turns += len(told.turns)
        counts.labels += len(told.labels)
        counts.nested += told.nested
        counts.duplicate += told.duplicate
        counts.reranked += told.reranked
        refused = told.refused
        counts.empty += not (told.turns or refused)
        for number_by, more in ((counts.kinds, told.kinds), (counts.refused, refused)):
            for name, number in more.items():
                name = name if name in number_by or len(number_by) < MOST_KINDS else "others"
                number_by[name] = number_by.get(name, 0) + number
        for (agent, reason), number in told.by_agent.items():
            name = agent or DEFAULT_AGENT
            if name not in counts.refused_of and len(counts.refused_of) >= MOST_AGENTS:
                name = OTHER
            of_agent = counts.refused_of.setdefault(name, {})
            of_agent[reason] = of_agent.get(reason, 0) + number
        for turn in told.turns:
            counts.skipped += turn.skipped
            counts.searches += len(turn.searches)
            counts.iterations_inferred += turn.iterations_inferred
            counts.unnamed += turn.conversation == told.trace_id
        first = {one.reason: one for one in reversed(told.refusals)}
        for reason, number in refused.items():
            if reason in first:
                self._list(first[reason], number)
        database.executemany(_TURN, ((turn.conversation, turn.number) for turn in told.turns))
        database.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    event.occurred_us,
                    told.trace_id,
                    counts.traces,
                    place,
                    event.conversation,
                    _stamp_ms(event) if stamp_ms is None else stamp_ms,
                    event.value,
                )
                for place, event in enumerate(events(told, self._options.content))
            ),
        )

    def _list(self, one: Refusal | Rejected, count: int = 1) -> None:
        """List what was refused, once for each trace and reason."""
        entry = self._listed.get((one.trace_id, one.reason))
        if entry is not None:
            entry["count"] += count
        elif len(self._listed) < REFUSED_LISTED:
            entry = self._listed[one.trace_id, one.reason] = {**asdict(one), "count": count}
            self.counts.first_refused.append(entry)


def _kept(span: Span) -> tuple[bytes, bytes]:
    content = msgspec.msgpack.encode(span)
    return _digest(content), content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _stamp_ms(event: Event) -> int | None:
    return event.occurred_us // 1000 if event.occurred_us <= LATEST_US else None


def _span(row: tuple[Any, ...]) -> Span:
    return _DECODE(row[0])


def _opened(folder: Path | None) -> sqlite3.Connection:
    """A database in a file that is gone when it is closed, however the process ends."""
    handle, path = tempfile.mkstemp(dir=folder, prefix=".spans-")
    try:
        os.close(handle)
        database = sqlite3.connect(path, isolation_level=None)
        database.executescript(_TABLES)
    finally:
        os.unlink(path)
    return database
