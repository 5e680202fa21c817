"""Logs: one JSON object a line on standard error, or lines for a person."""

from __future__ import annotations

import logging
import sys

import structlog

from stream_metrics.settings.whole import LogSettings


class LifecycleAtDebug(logging.Filter):
    """Move the starts and stops of each of Faust's services from info to the debug level.

    Faust marks them with ``[^`` and a path of dashes. Its warnings and errors stay as they are.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown at the level that it then has."""
        if record.levelno == logging.INFO and str(record.msg).startswith("[^"):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return record.levelno >= logging.getLogger().level


def configure_logs(settings: LogSettings) -> None:
    """Set up structlog and the standard library's logging, which Kafka's client and Faust use."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    handler.addFilter(LifecycleAtDebug())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    logging.getLogger("aiokafka").setLevel(max(logging.WARNING, root.level))
