"""The queue between the agent and the sink, and the thread that delivers it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from stream_metrics_client.records import Record, Sink, SinkOpener, WriteResult, describe

EXIT_SECONDS: Final = 5.0
"""How long the process waits at its end for queued events."""

_BATCH_EVENTS: Final = 500
_FIRST_PAUSE: Final = 0.25
_MAX_PAUSE: Final = 10.0
_LOG_INTERVAL_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.005

_logger = logging.getLogger("stream_metrics_client")
_senders: weakref.WeakSet[Sender] = weakref.WeakSet()
_sinks_of_parent: list[object] = []


class Sender:
    """Accepts records without blocking, and delivers them in the background.

    At most `max_events` records and `max_bytes` may be queued or in delivery; further ones are
    dropped. Records that cannot be delivered are retried, together with later ones, until they
    succeed or the sender is closed.

    A forked child starts with an empty queue, counters at 0 and its own sink. The parent delivers
    its queue.
    """

    def __init__(
        self,
        open_sink: SinkOpener,
        *,
        max_events: int,
        max_bytes: int,
        name: str = "the sink",
        first_pause_seconds: float = _FIRST_PAUSE,
    ) -> None:
        self._open_sink, self._name = open_sink, name
        self._first_pause = first_pause_seconds
        self._max_events, self._max_bytes = max_events, max_bytes
        self._sink: Sink | None = None
        self._reset()
        _senders.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._some_settled = threading.Condition(self._lock)
        self._queue: SimpleQueue[Record | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._closed = self._dropped_pending = False
        self._accepted = self._bytes = 0
        self.sent = self.failed = self.dropped = 0
        self.refused: Counter[str] = Counter()
        self._settled = 0
        self._loss: str | None = None
        self._trouble: str | None = None
        self._logged, self._log_after = (0, 0), 0.0

    def after_fork(self) -> None:
        """Reset in a forked child; the parent's sink is abandoned, not closed."""
        if self._sink is not None:
            _sinks_of_parent.append(self._sink)
        self._sink = None
        self._reset()

    @property
    def pending(self) -> int:
        """The number of records that are accepted, and neither sent nor failed nor dropped."""
        return self._accepted - self._settled

    @property
    def last_error(self) -> str | None:
        """Why records are being retried; if none are, why one was lost last; else None."""
        return self._trouble or self._loss

    def put(self, record: Record) -> None:
        """Accept a record, or drop and count it."""
        size = len(record.value)
        with self._lock:
            obstacle = self._obstacle(size)
            if obstacle is None:
                self._accepted += 1
                self._bytes += size
                self._queue.put(record)
                return
            self.dropped += 1
            self._loss = obstacle
        self._log()

    def _obstacle(self, size: int) -> str | None:
        """Why a record of this size cannot be accepted; None if it can."""
        if self._closed:
            return "an event was recorded after the recorder was closed"
        if self.pending >= self._max_events:
            return f"the queue is full: max_events is {self._max_events}"
        if self._bytes + size > self._max_bytes:
            return f"the queue has no room for {size} bytes: max_bytes is {self._max_bytes}"
        return None if self._ensure_thread() else "the process is ending"

    def fail(self, error: BaseException) -> None:
        """Count an event that could not be built."""
        with self._lock:
            self.failed += 1
            self._loss = describe(error)
        self._log()

    def flush(self, timeout: float | None) -> bool:
        """Wait until all records accepted so far are sent or have failed; False on a timeout, or if
        some were dropped."""
        if threading.current_thread() is self._thread:
            return False
        with self._lock:
            goal = self._accepted
            self._some_settled.wait_for(lambda: self._settled >= goal, _seconds(timeout))
            return self._settled >= goal and not self._dropped_pending

    def close(self, timeout: float | None) -> bool:
        """Accept no more records and deliver the queued ones; those that are late are dropped."""
        until = time.monotonic() + _seconds(timeout)
        self._stop()
        done = self.flush(until - time.monotonic())
        self._drop_pending()
        thread = self._thread
        if done and thread is not None and thread is not threading.current_thread():
            thread.join(_seconds(until - time.monotonic()))
        return done

    async def flush_async(self, timeout: float | None) -> bool:
        """`flush` for coroutines, without a thread. It can be cancelled at any time."""
        goal = self._accepted
        settled = await _wait_until(lambda: self._settled >= goal, _seconds(timeout))
        return settled and not self._dropped_pending

    async def close_async(self, timeout: float | None) -> bool:
        """`close` for coroutines. If it is cancelled, the thread still delivers what it can."""
        until = time.monotonic() + _seconds(timeout)
        self._stop()
        done = await self.flush_async(until - time.monotonic())
        self._drop_pending()
        thread = self._thread
        if done and thread is not None:
            await _wait_until(lambda: not thread.is_alive(), until - time.monotonic())
        return done

    def _stop(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._closing.set()
                self._queue.put(None)

    def _drop_pending(self) -> None:
        with self._lock:
            if not self._dropped_pending and self.pending:
                self._dropped_pending = True
                self.dropped += self.pending
                self._loss = self._trouble or f"no answer from {self._name}"
                self._settled, self._bytes = self._accepted, 0
                self._some_settled.notify_all()
        self._log(immediately=True)

    def _ensure_thread(self) -> bool:
        """Start the thread if necessary; False if the process is ending and cannot start one."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="stream-metrics-client", daemon=True)
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread
        return self._thread is not None

    # --- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        pause = self._first_pause
        batch: list[Record] = []
        more = True
        while (more or batch) and not self._dropped_pending:
            if more:
                new, more = self._take_batch(wait=not batch)
                batch += new
            if not batch:
                break
            written = self._write(batch)
            self._settle(batch, written)
            stuck = len(written.retry) == len(batch)
            self._log(waiting=bool(written.retry))
            pause = min(pause * 2, _MAX_PAUSE) if stuck else self._first_pause
            batch = written.retry
            if batch and self._closing.wait(max(pause, written.pause)):
                time.sleep(self._first_pause)  # close() is waiting, so retry soon
        if self._sink is not None:
            with contextlib.suppress(Exception):
                self._sink.close()

    def _take_batch(self, *, wait: bool) -> tuple[list[Record], bool]:
        """The queued records, at least one if `wait` is set; False if no more can follow."""
        batch: list[Record] = []
        with contextlib.suppress(Empty):
            while len(batch) < _BATCH_EVENTS:
                record = self._queue.get(block=wait and not batch)
                if record is None:
                    return batch, False
                batch.append(record)
        return batch, True

    def _write(self, batch: list[Record]) -> WriteResult:
        try:
            if self._sink is None:
                self._sink = self._open_sink(self._report)
            return self._sink.write(batch)
        except BaseException as error:  # for example, no broker answers; the thread must not end
            return WriteResult(retry=batch, error=describe(error))

    def _settle(self, batch: list[Record], written: WriteResult) -> None:
        with self._lock:
            if self._dropped_pending:  # already counted as dropped
                return
            self.sent += len(batch) - len(written.retry) - written.failed
            self.failed += written.failed
            self.refused += written.refused
            self._settled += len(batch) - len(written.retry)
            self._bytes -= sum(len(one.value) for one in batch)
            self._bytes += sum(len(one.value) for one in written.retry)
            self._loss = written.failure or self._loss
            self._trouble = written.error
            self._some_settled.notify_all()

    def _report(self, trouble: str) -> None:
        """Say why the sink is still waiting."""
        with self._lock:
            if self._dropped_pending:
                return
            self._trouble = trouble
        self._log(waiting=True)

    def _log(self, *, waiting: bool = False, immediately: bool = False) -> None:
        """Warn of lost or undeliverable events, at most once a minute."""
        with self._lock:
            lost, now = (self.failed, self.dropped), time.monotonic()
            if not (waiting or lost != self._logged) or (now < self._log_after and not immediately):
                return
            self._logged, self._log_after = lost, now + _LOG_INTERVAL_SECONDS
            values = self._name, self.sent, self.pending, *lost, self.last_error
        with contextlib.suppress(Exception):
            _logger.warning(
                "Events to %s: %d sent, %d waiting, %d failed, %d dropped. Last error: %s", *values
            )


def _seconds(timeout: float | None) -> float:
    """A timeout that a lock accepts; None means no limit."""
    return min(
        max(0.0, threading.TIMEOUT_MAX if timeout is None else timeout), threading.TIMEOUT_MAX
    )


async def _wait_until(met: Callable[[], bool], timeout: float) -> bool:
    """Poll a condition; False on a timeout."""
    until = time.monotonic() + timeout
    while not met():
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def _close_all() -> None:
    until = time.monotonic() + EXIT_SECONDS
    for sender in list(_senders):
        sender.close(max(0.0, until - time.monotonic()))


def _after_fork() -> None:
    for sender in list(_senders):
        sender.after_fork()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
