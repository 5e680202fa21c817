"""Interprets traces of instrumented agents: their turns, iterations and searches.

``mapping`` says as data which role each span has, ``documents`` reads the documents that spans
record, ``interpret`` interprets one trace, and ``events`` writes the result as search-iteration
events. A trace that cannot be interpreted reliably is refused with a reason. Nothing here reads a
clock, does I/O, or depends on the order in which spans arrived.
"""

from stream_metrics.core.telemetry.events import Event, events, label_events
from stream_metrics.core.telemetry.interpret import apply_evaluations, interpret
from stream_metrics.core.telemetry.interpretation import (
    HELP,
    Interpretation,
    Reason,
    Refusal,
    Turn,
    agent_of,
    page_ids_message,
)
from stream_metrics.core.telemetry.labels.evaluations import Evaluation, Grading
from stream_metrics.core.telemetry.labels.labels import UnusedScore
from stream_metrics.core.telemetry.options import Options
from stream_metrics.core.telemetry.roles.mapping import Role, Row, SpanMapping
from stream_metrics.core.telemetry.roles.presets import PRESETS, mapping
from stream_metrics.core.telemetry.spans import Link, Span, SpanEvent

__all__ = [
    "HELP",
    "PRESETS",
    "Evaluation",
    "Event",
    "Grading",
    "Interpretation",
    "Link",
    "Options",
    "Reason",
    "Refusal",
    "Role",
    "Row",
    "Span",
    "SpanEvent",
    "SpanMapping",
    "Turn",
    "UnusedScore",
    "agent_of",
    "apply_evaluations",
    "events",
    "interpret",
    "label_events",
    "mapping",
    "page_ids_message",
]
