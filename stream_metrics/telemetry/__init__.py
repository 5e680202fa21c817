"""What traces of instrumented agents tell: turns, iterations and searches, or why they cannot.

``mapping`` says as data which spans are what, ``documents`` finds documents in what spans record,
``tell`` puts one trace together, and ``events`` writes what it tells in the usual schema. Nothing
here has a clock, does I/O, or depends on the order in which spans came.
"""

from stream_metrics.telemetry.evaluations import Evaluation, Grading
from stream_metrics.telemetry.events import Event, events, label_events
from stream_metrics.telemetry.labels import Unused
from stream_metrics.telemetry.mapping import Mapping, Role, Row
from stream_metrics.telemetry.options import Options
from stream_metrics.telemetry.presets import PRESETS, mapping
from stream_metrics.telemetry.spans import Link, Span, SpanEvent
from stream_metrics.telemetry.tell import judge, tell
from stream_metrics.telemetry.told import (
    HELP,
    Reason,
    Refusal,
    Told,
    Turn,
    TwoScopes,
    check_scopes,
    rivals,
)

__all__ = [
    "HELP",
    "PRESETS",
    "Evaluation",
    "Event",
    "Grading",
    "Link",
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
    "TwoScopes",
    "Unused",
    "check_scopes",
    "events",
    "judge",
    "label_events",
    "mapping",
    "rivals",
    "tell",
]
