"""The queue between the agent and the sink, and the thread that empties it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from stream_metrics_client.sinks import Opener, Record, Sink, Written, described

EXIT_SECONDS: Final = 5.0
"""How long the end of the process waits for events that are still in the queue."""

_BATCH: Final = 500
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 10.0
_LOG_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.005

_logger = logging.getLogger("stream_metrics_client")
_senders: weakref.WeakSet[Sender] = weakref.WeakSet()
_abandoned: list[object] = []


class Sender:
    """Takes records without blocking, and delivers them in the background.

    Records are accepted up to `max_events` and `max_bytes`, counting those that are being
    delivered; further ones are dropped. What cannot be delivered for now is tried again, together
    with what comes after it, until it can or until the sender is closed.

    A forked child starts with an empty queue, counters at 0 and a sink of its own: what was in the
    queue is the parent's to send.
    """

    def __init__(
        self, open_sink: Opener, *, max_events: int, max_bytes: int, name: str = "the sink"
    ) -> None:
        self._open_sink, self._name = open_sink, name
        self._max_events, self._max_bytes = max_events, max_bytes
        self._sink: Sink | None = None
        self._begin()
        _senders.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._settled_some = threading.Condition(self._lock)
        self._queue: SimpleQueue[Record | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._closed = self._given_up = False
        self._accepted = self._bytes = 0
        self.sent = self.failed = self.dropped = 0
        self._settled = 0
        self.last_error: str | None = None
        self._logged, self._log_after = (0, 0), 0.0

    def after_fork(self) -> None:
        """Begin anew in a forked child; the parent's sink is left alone, not closed."""
        if self._sink is not None:
            _abandoned.append(self._sink)
        self._sink = None
        self._begin()

    @property
    def pending(self) -> int:
        """Events that are accepted, and neither sent nor failed nor dropped yet."""
        return self._accepted - self._settled

    def put(self, record: Record) -> None:
        """Accept a record, or drop it and count it."""
        size = len(record.value)
        with self._lock:
            if (
                self._closed
                or self.pending >= self._max_events
                or self._bytes + size > self._max_bytes
                or not self._running()
            ):
                self.dropped += 1
                return
            self._accepted += 1
            self._bytes += size
            self._queue.put(record)

    def fail(self, error: BaseException) -> None:
        """Count an event that could not even be made."""
        with self._lock:
            self.failed += 1
            self.last_error = described(error)
        self._log()

    def flush(self, timeout: float | None) -> bool:
        """Wait until all that was accepted before has been settled; False if time runs out."""
        if threading.current_thread() is self._thread:
            return False
        with self._lock:
            goal = self._accepted
            return self._settled_some.wait_for(lambda: self._settled >= goal, _seconds(timeout))

    def close(self, timeout: float | None) -> bool:
        """Accept no more, and deliver what is accepted; what is late is dropped."""
        until = time.monotonic() + _seconds(timeout)
        self._stop()
        done = self.flush(until - time.monotonic())
        self._give_up()
        thread = self._thread
        if done and thread is not None and thread is not threading.current_thread():
            thread.join(_seconds(until - time.monotonic()))
        return done

    async def flush_async(self, timeout: float | None) -> bool:
        """`flush` for a coroutine. It can be cancelled at any time, and needs no thread."""
        goal = self._accepted
        return await _becomes(lambda: self._settled >= goal, _seconds(timeout))

    async def close_async(self, timeout: float | None) -> bool:
        """`close` for a coroutine. If it is cancelled, the thread still delivers what it can."""
        until = time.monotonic() + _seconds(timeout)
        self._stop()
        done = await self.flush_async(until - time.monotonic())
        self._give_up()
        thread = self._thread
        if done and thread is not None:
            await _becomes(lambda: not thread.is_alive(), until - time.monotonic())
        return done

    def _stop(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._closing.set()
                self._queue.put(None)

    def _give_up(self) -> None:
        with self._lock:
            if not self._given_up and self.pending:
                self._given_up = True
                self.dropped += self.pending
                self.last_error = self.last_error or f"no answer from {self._name}"
                self._settled, self._bytes = self._accepted, 0
        self._log(at_once=True)

    def _running(self) -> bool:
        """Whether there is a thread; a process that is ending starts none."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="stream-metrics-client", daemon=True)
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread
        return self._thread is not None

    # --- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        batch: list[Record] = []
        more = True
        while (more or batch) and not self._given_up:
            if more:
                fresh, more = self._next(wait=not batch)
                batch += fresh
            if not batch:
                break
            written = self._write(batch)
            self._settle(batch, written)
            stuck = len(written.again) == len(batch)
            self._log(stuck=stuck)
            pause = min(pause * 2, _LONGEST_PAUSE) if stuck else _FIRST_PAUSE
            batch = written.again
            if batch and self._closing.wait(pause):
                time.sleep(_FIRST_PAUSE)  # whoever closes the sender waits: try again soon
        if self._sink is not None:
            with contextlib.suppress(Exception):
                self._sink.close()

    def _next(self, *, wait: bool) -> tuple[list[Record], bool]:
        """What is in the queue, at least one record if it waits; False if nothing can follow."""
        batch: list[Record] = []
        with contextlib.suppress(Empty):
            while len(batch) < _BATCH:
                record = self._queue.get(block=wait and not batch)
                if record is None:
                    return batch, False
                batch.append(record)
        return batch, True

    def _write(self, batch: list[Record]) -> Written:
        try:
            if self._sink is None:
                self._sink = self._open_sink()
            return self._sink.write(batch)
        except BaseException as error:  # such as: no broker answers; nothing ends this thread
            return Written(again=batch, error=described(error))

    def _settle(self, batch: list[Record], written: Written) -> None:
        with self._lock:
            if self._given_up:  # already counted as dropped
                return
            self.sent += len(batch) - len(written.again) - written.failed
            self.failed += written.failed
            self._settled += len(batch) - len(written.again)
            self._bytes -= sum(len(one.value) for one in batch)
            self._bytes += sum(len(one.value) for one in written.again)
            self.last_error = written.error or self.last_error
            self._settled_some.notify_all()

    def _log(self, *, stuck: bool = False, at_once: bool = False) -> None:
        """Say that events were lost or cannot be delivered, at most once a minute."""
        with self._lock:
            lost, now = (self.failed, self.dropped), time.monotonic()
            if not (stuck or lost != self._logged) or (now < self._log_after and not at_once):
                return
            self._logged, self._log_after = lost, now + _LOG_SECONDS
            said = self._name, self.sent, self.pending, *lost, self.last_error
        with contextlib.suppress(Exception):
            _logger.warning(
                "Events to %s: %d sent, %d waiting, %d failed, %d dropped. Last error: %s", *said
            )


def _seconds(timeout: float | None) -> float:
    """A time to wait that a lock accepts; None is for as long as it takes."""
    return min(
        max(0.0, threading.TIMEOUT_MAX if timeout is None else timeout), threading.TIMEOUT_MAX
    )


async def _becomes(met: Callable[[], bool], timeout: float) -> bool:
    """Look again and again whether a condition is met; False if time runs out."""
    until = time.monotonic() + timeout
    while not met():
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
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
