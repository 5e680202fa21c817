"""What traces of instrumented agents tell: turns, iterations and searches, or why they cannot.

``mapping`` says as data which spans are what, ``documents`` finds documents in what spans record,
``tell`` puts one trace together, and ``events`` writes what it tells in the usual schema. Nothing
here has a clock, does I/O, or depends on the order in which spans came.
"""

from stream_metrics.telemetry.events import Event, events
from stream_metrics.telemetry.mapping import PRESETS, Mapping, Role, Row, mapping
from stream_metrics.telemetry.spans import Span, SpanEvent
from stream_metrics.telemetry.tell import Options, tell
from stream_metrics.telemetry.told import HELP, Reason, Refusal, Told, Turn, rivals

__all__ = [
    "HELP",
    "PRESETS",
    "Event",
    "Mapping",
    "Options",
    "Reason",
    "Refusal",
    "Role",
    "Row",
    "Span",
    "SpanEvent",
    "Told",
    "Turn",
    "events",
    "mapping",
    "rivals",
    "tell",
]
