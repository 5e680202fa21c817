"""Scores of evaluators that were logged, which wait in the SQLite file and become labels.

A score waits until its trace is told or refused: only then is known which result it is about. The
label and the end of waiting are one transaction.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import Interpretation, Options, SpanMapping, label_events
from stream_metrics.core.telemetry.assembly import Assembly, Bounds, ClosedTrace
from stream_metrics.core.telemetry.interpret import apply_evaluations
from stream_metrics.core.telemetry.labels.evaluations import Evaluation, evaluation_of_record
from stream_metrics.core.telemetry.labels.labels import UnusedScore
from stream_metrics.core.telemetry.otlp.logs import LogRecord
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from stream_metrics.live.local.blocks import last_of_key, records_of_key
from stream_metrics.live.local.database import Database, FileDamaged
from stream_metrics.live.local.log import READ_BYTES, Backlog, Entry, Log, add, bounded
from stream_metrics.live.local.tables import EVENTS, SPANS
from stream_metrics.live.worker.retry import Retry, Stopped
from stream_metrics.live.worker.telemetry import BugCounts

LOOKED_AT: Final = 1_000  # scores in a round, whose labels are one transaction
LOOK_MS: Final = 500  # how often, while all have to wait
PIECE: Final = 100  # records of a trace that are read at once; each may be in another block
LARGE_BYTES: Final = 1 << 18  # of spans that are interpreted beside the event loop

T = TypeVar("T")

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(LogRecord).decode


class LabelCounts(BugCounts, Protocol):
    """Receives counts; every method is cheap and never raises."""

    def labelled(self, scores: int) -> None: ...
    def refused(self, interpretation: Interpretation) -> None: ...


class _Trace(NamedTuple):
    """The scores of a trace that wait, and the end of its spans in the log; 0 if it has none."""

    ids: list[int]
    arrived_ms: int  # the latest
    end: int


class Scores:
    """The scores that wait; ``clock`` is in milliseconds of Unix time."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._looked_at = 0  # up to which id, in this pass over those that wait
        self.may_wait = True

    async def append(self, scores: Sequence[LogRecord], max_waiting: int) -> None:
        """Store scores; raises ``Backlog`` if more than ``max_waiting`` would then wait."""
        rows = [(one.trace_id, _encode(one)) for one in scores]

        def append(connection: sqlite3.Connection) -> None:
            [waiting] = connection.execute("SELECT count(*) FROM scores").fetchone()
            if waiting + len(rows) > max(max_waiting, len(rows)):
                raise Backlog(f"{waiting:,} scores wait for their traces")
            connection.executemany(
                "INSERT INTO scores (arrived_ms, trace, record) VALUES (?, ?, ?)",
                [(self._clock(), *row) for row in rows],
            )

        await self._database.write(append)
        self.may_wait = True

    async def waiting(self) -> dict[str, _Trace]:
        """The scores that wait, by trace; of many, the next ones in their order."""

        def find(connection: sqlite3.Connection) -> dict[str, _Trace]:
            statement = "SELECT id, arrived_ms, trace FROM scores WHERE id > ? ORDER BY id LIMIT ?"
            rows = connection.execute(statement, (self._looked_at, LOOKED_AT)).fetchall()
            if not rows and self._looked_at:
                rows = connection.execute(statement, (0, LOOKED_AT)).fetchall()
            self._looked_at = rows[-1][0] if len(rows) == LOOKED_AT else 0
            found: dict[str, _Trace] = {}
            for id_, arrived_ms, trace in rows:
                if trace not in found:
                    offset = last_of_key(connection, SPANS, trace.encode())
                    found[trace] = _Trace([], arrived_ms, 0 if offset is None else offset + 1)
                one = found[trace]
                one.ids.append(id_)
                found[trace] = one._replace(arrived_ms=max(one.arrived_ms, arrived_ms))
            return found

        self.may_wait = False  # what comes meanwhile sets it again
        found = await self._database.read(find)
        self.may_wait |= bool(found)
        return found

    async def read(self, ids: Sequence[int]) -> list[LogRecord]:
        """Scores by their ids."""

        def read(connection: sqlite3.Connection) -> list[LogRecord]:
            each = "SELECT record FROM scores WHERE id = ?"
            records = [connection.execute(each, (id_,)).fetchone() for id_ in ids]
            return [_decode(one[0]) for one in records if one]

        return await self._database.read(read)

    async def payloads(self, trace: str, after: int) -> list[Record]:
        """The next records of a trace behind an offset, at least one if there is any."""
        key = trace.encode()
        return await self._database.read(
            lambda at: bounded(islice(records_of_key(at, SPANS, key, after), PIECE), READ_BYTES)
        )

    async def finish(self, ids: Sequence[int], labels: Sequence[Entry]) -> None:
        """Append labels to the events, and forget the scores."""

        def finish(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM scores WHERE id = ?", [(id_,) for id_ in ids])
            if labels:
                add(connection, EVENTS, labels, self._clock())

        await self._database.write(finish)


class Labeller:
    """Makes labels of the scores whose traces are closed.

    ``is_closed`` tells whether all spans of a trace up to an offset were read, and the trace is
    closed. A score of a trace without spans waits for ``bounds.trace_max_ms``.
    """

    def __init__(
        self,
        scores: Scores,
        log: Log,
        mapping: SpanMapping,
        options: Options,
        limits: Limits,
        is_closed: Callable[[str, int], bool],
        bounds: Bounds,
        retry: Retry,
        counts: LabelCounts,
        clock: Callable[[], int],
    ) -> None:
        self._scores = scores
        self._log = log
        self._mapping = mapping
        self._options = options
        self._limits = limits
        self._is_closed = is_closed
        self._bounds = bounds
        self._retry = retry
        self._counts = counts
        self._clock = clock
        self._looked_ms = 0

    async def turn(self) -> None:
        """Join the scores that need not wait any more with their traces."""
        now_ms = self._clock()
        if not self._scores.may_wait or abs(now_ms - self._looked_ms) < LOOK_MS:
            return
        waiting = await self._retry(self._scores.waiting)
        due = [(trace, found.ids) for trace, found in waiting.items() if self._is_due(trace, found)]
        self._looked_ms = 0 if due else now_ms
        entries, told = list[Entry](), list[Interpretation]()
        for trace, ids in due:
            for labels, interpretation in await self._join(trace, ids):
                entries += labels
                told.append(interpretation)
        if not due:
            return
        finished = [id_ for _, ids in due for id_ in ids]
        await self._retry(lambda: self._scores.finish(finished, entries))
        if entries:
            self._log.appended(EVENTS)
        unused = sum(sum(one.by_agent.values()) for one in told)
        self._counts.labelled(len(finished) - unused)
        for one in told:
            self._counts.refused(one)

    def _is_due(self, trace: str, found: _Trace) -> bool:
        if found.end:
            return self._is_closed(trace, found.end)
        return abs(self._clock() - found.arrived_ms) >= self._bounds.trace_max_ms

    async def _join(
        self, trace: str, ids: Sequence[int]
    ) -> list[tuple[list[Entry], Interpretation]]:
        """The labels, and interpretations whose refusals are the unused scores.

        A trace that came again after it was forgotten was told as another: each score is joined
        with the one that has its span.
        """
        left = await self._retry(lambda: self._scores.read(ids))
        made, first = [], None
        try:
            async for closed in self._closed(trace):
                first = first or closed
                spans = await _beside_if_large(partial(_span_ids, closed), _size(closed))
                if mine := [one for one in left if one.span_id in spans]:
                    made.append(await self._labels(trace, mine, closed))
                    left = [one for one in left if one.span_id not in spans]
                if not left:
                    break
            if left:
                made.append(await self._labels(trace, left, first))
        except (Stopped, FileDamaged):
            raise
        except Exception as error:
            self._counts.bug(Bug.of(error))
            made.append(([], _all_refused(trace, left)))
        return made

    async def _closed(self, trace: str) -> AsyncIterator[ClosedTrace]:
        """The trace as it was told: without spans that came later."""
        assembly, after = Assembly(self._bounds), -1
        while payloads := await self._retry(partial(self._scores.payloads, trace, after)):
            after = payloads[-1].offset
            size = sum(len(one.value or b"") for one in payloads)
            for closed in await _beside_if_large(partial(_read, assembly, payloads), size):
                yield closed
        for closed in assembly.finish():
            yield closed

    async def _labels(
        self, trace: str, records: Sequence[LogRecord], closed: ClosedTrace | None
    ) -> tuple[list[Entry], Interpretation]:
        size = 0 if closed is None else _size(closed)
        return await _beside_if_large(lambda: self._labelled(trace, records, closed), size)

    def _labelled(
        self, trace: str, records: Sequence[LogRecord], closed: ClosedTrace | None
    ) -> tuple[list[Entry], Interpretation]:
        evaluations = [
            evaluation_of_record(
                one.attributes,
                self._options.grading,
                one.span_id,
                trace,
                one.span_id,
                one.time_ns // 1000,
            )
            for one in records
        ]
        interpretation, unused = self._interpreted(closed, evaluations)
        told = Interpretation(trace, service=interpretation.service, agent=interpretation.agent)
        entries = []
        for event in label_events(trace, interpretation.labels):
            read = decode(event.value, timestamp_ms=self._clock(), limits=self._limits)
            if isinstance(read, BadRecord):
                unused.append(UnusedScore("", "label_malformed", read.message))
            else:
                entries.append(Entry(event.conversation.encode(), event.value))
        for one in unused:
            told.refuse(one.reason, one.origin, one.message)
        return entries, told

    def _interpreted(
        self, closed: ClosedTrace | None, evaluations: Sequence[Evaluation]
    ) -> tuple[Interpretation, list[UnusedScore]]:
        if closed is not None and closed.reason is not None:
            why = f"the span's trace was refused: {closed.message}"
            unused = [UnusedScore(one.origin, "label_not_told", why) for one in evaluations]
            return closed.interpret(self._mapping, self._options), unused
        spans = () if closed is None else closed.decoded()
        return apply_evaluations(spans, self._mapping, self._options, evaluations)


def _size(closed: ClosedTrace) -> int:
    return sum(map(len, closed.encoded_spans))


def _span_ids(closed: ClosedTrace) -> set[str]:
    return {span.span_id for span in closed.decoded()}


async def _beside_if_large(work: Callable[[], T], size: int) -> T:
    """The result of work on so many bytes, done in a thread if they are many."""
    return await asyncio.to_thread(work) if size >= LARGE_BYTES else work()


def _read(assembly: Assembly, payloads: Iterable[Record]) -> list[ClosedTrace]:
    """Add records of a trace; what they close."""
    closed = []
    for one in payloads:
        closed += assembly.read(one.offset, one.timestamp_ms or 0, spans_of(one.value or b""))
    return closed


def _all_refused(trace: str, records: Sequence[LogRecord]) -> Interpretation:
    found = Interpretation(trace)
    for one in records:
        found.refuse("label_not_told", one.span_id, "a bug was met, which the log names")
    return found
