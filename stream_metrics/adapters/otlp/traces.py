"""Spans in, search events out, in an order that depends on neither arrival nor batches.

Turn and iteration of a search depend on other spans, of which some come late. So all spans are
kept until the last has come: in a database on disk, so that memory does not grow with them.

1. Of spans with the same ids one stays: the one that ended last, or of these one by its content.
2. Conversation, agent and release are those of the span or of its nearest ancestor that names one.
   A trace whose ancestors name no conversation is of the one that its earliest span names, else a
   conversation by itself. Of retrievals inside each other the outermost one that names documents
   is the search, without any the outermost; the others are parts of it.
3. The traces with searches are the turns of a conversation, in the order of their first searches.
4. In a turn searches that run side by side are an iteration: one begins with the first search that
   starts when an earlier one of the last iteration has ended.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

from stream_metrics.adapters.otlp.mapping import Names, told
from stream_metrics.adapters.otlp.payloads import spans_of
from stream_metrics.adapters.otlp.spans import Span
from stream_metrics.events.decode import LATEST_US, BadRecord, decode
from stream_metrics.events.limits import Limits
from stream_metrics.events.times import rfc3339
from stream_metrics.ports import Record

REJECTED_LISTED: Final = 100

_TABLES: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
CREATE TABLE spans (
    trace TEXT, span TEXT, parent TEXT, start_ns INTEGER, end_ns INTEGER,
    conversation TEXT, agent TEXT, release TEXT, query TEXT, results BLOB, problem TEXT,
    digest BLOB, PRIMARY KEY (trace, span)
) WITHOUT ROWID;
CREATE TABLE searches (
    conversation TEXT, turn_ns INTEGER, trace TEXT, start_ns INTEGER, span TEXT,
    end_ns INTEGER, agent TEXT, release TEXT,
    PRIMARY KEY (conversation, turn_ns, trace, start_ns, span)
) WITHOUT ROWID;
CREATE TABLE events (
    start_ns INTEGER, trace TEXT, span TEXT, conversation TEXT, turn INTEGER, iteration INTEGER,
    ordinal INTEGER, agent TEXT, release TEXT, PRIMARY KEY (start_ns, trace, span)
) WITHOUT ROWID;
BEGIN;
"""
_ADD: Final = """
INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (trace, span) DO UPDATE SET
    parent = excluded.parent, start_ns = excluded.start_ns, end_ns = excluded.end_ns,
    conversation = excluded.conversation, agent = excluded.agent, release = excluded.release,
    query = excluded.query, results = excluded.results, problem = excluded.problem,
    digest = excluded.digest
WHERE (excluded.end_ns, excluded.digest) > (end_ns, digest)
"""
_SPANS: Final = """
SELECT trace, span, parent, start_ns, end_ns, conversation, agent, release, results IS NOT NULL,
       results IS NOT NULL AND problem IS NULL AND results <> CAST('[]' AS BLOB)
FROM spans ORDER BY trace, span
"""
_SEARCHES: Final = """
SELECT conversation, trace, span, start_ns, end_ns, agent, release
FROM searches ORDER BY conversation, turn_ns, trace, start_ns, span
"""
_EVENTS: Final = """
SELECT e.*, s.query, s.results, s.problem FROM events e JOIN spans s USING (trace, span)
ORDER BY e.start_ns, e.trace, e.span
"""


class _Kept(NamedTuple):
    """A span as it is kept, but for the content of its search."""

    trace: str
    span: str
    parent: str
    start_ns: int
    end_ns: int
    conversation: str | None
    agent: str | None
    release: str | None
    is_retrieval: bool
    has_documents: bool


class _Found(NamedTuple):
    """A search as it is kept, with what its ancestors say of it."""

    conversation: str
    trace: str
    span: str
    start_ns: int
    end_ns: int
    agent: str | None
    release: str | None


@dataclass(slots=True)
class Counts:
    """What became of spans.

    ``payloads`` and ``spans`` are what was read. Each span is either ``repeated`` (another of the
    same ids stands for it), a search, ``nested`` in one, or another span, that tells of no search.
    Of the ``searches`` some are no valid events: these are ``rejected``, and ``first_rejected``
    tells the first of them by start.
    """

    payloads: int = 0
    spans: int = 0
    repeated: int = 0
    searches: int = 0
    nested: int = 0
    other: int = 0
    rejected: int = 0
    first_rejected: list[dict[str, str]] = field(default_factory=list)


class Traces:
    """Takes payloads in any order, then gives the events, once; a context manager.

    The spans lie in a file without a name in ``folder``, or where temporary files do.
    """

    def __init__(self, names: Names, limits: Limits, folder: Path | None = None) -> None:
        self.counts = Counts()
        self._names, self._limits, self._folder = names, limits, folder
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
        self._database.executemany(_ADD, map(self._kept, spans))
        self.counts.payloads += 1
        self.counts.spans += len(spans)

    def records(self) -> Iterator[Record]:
        """The events as records under their conversations' ids, by the starts of their spans."""
        if self._database is None:
            return
        kept = self._find_searches(self._database)
        self.counts.repeated = self.counts.spans - kept
        self._number(self._database)
        for row in self._database.execute(_EVENTS):
            yield self._record(*row)

    def _kept(self, span: Span) -> tuple[Any, ...]:
        """A span as its row in the database."""
        found = told(span, self._names)
        search = found.search
        content = (
            span.parent_id,
            span.start_ns,
            span.end_ns,
            found.conversation,
            found.agent,
            found.release,
            *((search.query, search.results, search.problem) if search else (None, None, None)),
        )
        digest = hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=16).digest()
        if not (span.trace_id and span.span_id):
            return "", digest.hex(), *content, digest
        return span.trace_id, span.span_id, *content, digest

    def _find_searches(self, database: sqlite3.Connection) -> int:
        """Work out which spans are searches, and of what; how many spans there are."""
        rows, kept = map(_Kept._make, database.execute(_SPANS)), 0
        for trace, spans in groupby(rows, key=lambda row: row.trace):
            if not trace:  # no ids: nothing connects them
                for span in spans:
                    kept += 1
                    self._note_searches(database, {span.span: span})
                continue
            by_id = {span.span: span for span in spans}
            kept += len(by_id)
            self._note_searches(database, by_id)
        return kept

    def _note_searches(self, database: sqlite3.Connection, spans: dict[str, _Kept]) -> None:
        """The searches of a trace, of which these are the spans."""
        found = []
        of_trace: str | None = None
        nested = _nested(spans)
        for span in spans.values():
            if not span.is_retrieval:
                self.counts.other += 1
                continue
            if span.span in nested:
                self.counts.nested += 1
                continue
            if not span.trace:
                found.append(_Found("", "", span.span, span.start_ns, span.end_ns, None, None))
                continue
            line = list(_ancestry(span, spans))
            conversation = next((one.conversation for one in line if one.conversation), None)
            if conversation is None:
                of_trace = of_trace or _conversation_of(spans)
                conversation = of_trace
            agent = next((one.agent for one in line if one.agent), None)
            release = next((one.release for one in line if one.release), None)
            place = (span.trace, span.span, span.start_ns, span.end_ns)
            found.append(_Found(conversation, *place, agent, release))
        first_ns: dict[str, int] = {}
        for one in found:
            first_ns[one.conversation] = min(
                one.start_ns, first_ns.get(one.conversation, one.start_ns)
            )
        database.executemany(
            "INSERT INTO searches VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    one.conversation,
                    first_ns[one.conversation],
                    one.trace,
                    one.start_ns,
                    one.span,
                    one.end_ns,
                    one.agent,
                    one.release,
                )
                for one in found
            ),
        )

    def _number(self, database: sqlite3.Connection) -> None:
        """Give every search its turn, iteration and ordinal."""
        rows = map(_Found._make, database.execute(_SEARCHES))
        for conversation, of_conversation in groupby(rows, key=lambda row: row.conversation):
            turns = groupby(of_conversation, key=lambda row: row.trace)
            for turn, (_, searches) in enumerate(turns, 1):
                database.executemany(
                    "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        (
                            one.start_ns,
                            one.trace,
                            one.span,
                            conversation,
                            turn,
                            iteration,
                            ordinal,
                            one.agent,
                            one.release,
                        )
                        for iteration, ordinal, one in _iterations(searches)
                    ),
                )

    def _record(
        self,
        start_ns: int,
        trace: str,
        span: str,
        conversation: str,
        turn: int,
        iteration: int,
        ordinal: int,
        agent: str | None,
        release: str | None,
        query: str | None,
        results: bytes,
        problem: str | None,
    ) -> Record:
        start_us = start_ns // 1000
        search = {"search_id": span, "ordinal": ordinal, "results": msgspec.Raw(results)}
        event = {
            "type": "search_iteration",
            "event_id": f"{trace}:{span}" if trace else None,
            "occurred_at": rfc3339(start_us),
            "conversation_id": conversation,
            "turn": turn,
            "agent": agent,
            "release": release,
            "iteration": iteration,
            "searches": [search if query is None else {**search, "query": query}],
        }
        value = msgspec.json.encode({name: part for name, part in event.items() if part})
        stamp = start_us // 1000 if start_us <= LATEST_US else None
        self.counts.searches += 1
        found = decode(value, timestamp_ms=stamp, limits=self._limits)
        if isinstance(found, BadRecord):
            self._reject(trace, span, found, problem)
        return Record(value, conversation.encode(), stamp)

    def _reject(self, trace: str, span: str, bad: BadRecord, problem: str | None) -> None:
        self.counts.rejected += 1
        if len(self.counts.first_rejected) < REJECTED_LISTED:
            message = bad.message
            if not trace:
                span, message = "", "the span has no trace id or no span id"
            self.counts.first_rejected.append(
                {
                    "trace_id": trace,
                    "span_id": span,
                    "reason": bad.reason,
                    "message": problem or message,
                }
            )


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


def _ancestry(span: _Kept, spans: dict[str, _Kept]) -> Iterator[_Kept]:
    """The span, its parent, and so on, as far as they are there."""
    seen = set()
    one: _Kept | None = span
    while one is not None and one.span not in seen:
        seen.add(one.span)
        yield one
        one = spans.get(one.parent)


def _nested(spans: dict[str, _Kept]) -> set[str]:
    """The retrievals that are parts of another one."""
    found: set[str] = set()
    around: set[str] = set()
    for span in spans.values():
        if span.is_retrieval:
            _, *outer = _ancestry(span, spans)
            if any(one.is_retrieval and one.has_documents >= span.has_documents for one in outer):
                found.add(span.span)
            if span.has_documents:
                around.update(one.span for one in outer if not one.has_documents)
    return found | {name for name in around if spans[name].is_retrieval}


def _conversation_of(spans: dict[str, _Kept]) -> str:
    """What the earliest span that names a conversation says, or else the trace's id."""
    naming = [span for span in spans.values() if span.conversation]
    earliest = min(naming, key=lambda span: (span.start_ns, span.span), default=None)
    if earliest is not None and earliest.conversation is not None:
        return earliest.conversation
    return next(iter(spans.values())).trace


def _iterations(searches: Iterator[_Found]) -> Iterator[tuple[int, int, _Found]]:
    """The searches of a turn, by start, each with its iteration (from 1) and its place in that."""
    iteration, ordinal, first_end_ns = 0, 0, -1
    for one in searches:
        end_ns = max(one.start_ns, one.end_ns)
        if not iteration or one.start_ns >= first_end_ns:
            iteration, ordinal, first_end_ns = iteration + 1, 0, end_ns
        else:
            ordinal, first_end_ns = ordinal + 1, min(first_end_ns, end_ns)
        yield iteration, ordinal, one
