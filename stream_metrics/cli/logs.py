"""Configures logs on standard error: one JSON object per line, or readable text."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from stream_metrics.cli.log_repeats import Repeated, RepeatLimiter, kind_of
from stream_metrics.cli.settings import LogSettings

_REPEATED: Final = "_repeated"  # attribute of a record that stands for several


class FaustLifecycleFilter(logging.Filter):
    """Lowers the level of Faust's messages about started and stopped services to debug.

    These messages begin with ``[^``. Faust's warnings and errors are unchanged.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged at its new level."""
        if record.levelno == logging.INFO and str(record.msg).startswith("[^"):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return record.levelno >= logging.getLogger().level


class RequestFilter(logging.Filter):
    """Leaves out of aiohttp's lines what a malformed request said: it may be a text, or a token."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true; an error of aiohttp's is only named."""
        error = record.exc_info[1] if record.exc_info else None
        if type(error).__module__.startswith("aiohttp."):
            record.msg, record.exc_info = f"{record.msg}: {type(error).__name__}", None
        return True


class LimitedHandler(logging.StreamHandler[Any]):
    """Writes lines to standard error, but not every repeat of one (see ``RepeatLimiter``).

    A line that stands for several has the fields ``repeated``, their number, and ``since`` and
    ``until``, the times of the first and the last of them. At DEBUG, every line is written.
    ``clock`` is in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(sys.stderr)
        self._clock = clock
        self._limiter: RepeatLimiter[logging.LogRecord] = RepeatLimiter()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, or hold it."""
        try:
            now = self._clock()
            self._write_due(now)
            every = logging.getLogger().level <= logging.DEBUG
            if every or self._limiter.admit(kind_of(record), record, now):
                super().emit(record)
            elif self._timer is None:
                self._set_timer(now)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Write what is held. The end of the process calls this."""
        with self.lock or nullcontext():
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for held in self._limiter.rest():
                self._write(held)
        super().close()

    def _on_time(self) -> None:
        with self.lock or nullcontext():
            self._timer = None
            now = self._clock()
            self._write_due(now)
            self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        """Write what is held when its minute ends, even if no other line comes."""
        due = self._limiter.next_due
        if due is not None:
            self._timer = threading.Timer(max(0.0, due - now), self._on_time)
            self._timer.daemon = True
            self._timer.start()

    def _write_due(self, now: float) -> None:
        for held in self._limiter.due(now):
            self._write(held)

    def _write(self, held: Repeated[logging.LogRecord]) -> None:
        since, until = (_rfc3339(one.created) for one in (held.first, held.last))
        times = {"repeated": held.count, "since": since, "until": until}
        setattr(held.last, _REPEATED, times)
        super().emit(held.last)


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _add_repeats(_: Any, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Add the fields of a line that stands for several."""
    return {**event, **getattr(event["_record"], _REPEATED, {})}


def configure_logs(settings: LogSettings) -> None:
    """Set up structlog and the standard library's logging, which Kafka's client and Faust use."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = LimitedHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                _add_repeats,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                renderer,
            ],
        )
    )
    handler.addFilter(FaustLifecycleFilter())
    handler.addFilter(RequestFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    logging.getLogger("aiokafka").setLevel(max(logging.WARNING, root.level))
