"""Configures logs on standard error: one JSON object per line, or readable text."""

from __future__ import annotations

import logging
import sys

import structlog

from stream_metrics.cli.settings import LogSettings


class FaustLifecycleFilter(logging.Filter):
    """Lowers the level of Faust's messages about started and stopped services to debug.

    These messages begin with ``[^``. Faust's warnings and errors are unchanged.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged at its new level."""
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
    handler.addFilter(FaustLifecycleFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    logging.getLogger("aiokafka").setLevel(max(logging.WARNING, root.level))
