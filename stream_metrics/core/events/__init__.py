"""The contract: the events that producers send, decoding, and reasons for rejection."""

from stream_metrics.core.events.decode import REASONS, BadRecord, Event, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.wire import (
    Forget,
    Gate,
    GateLabel,
    Label,
    RelevanceLabels,
    Result,
    Routing,
    RoutingLabel,
    Search,
    SearchIteration,
    TurnCompleted,
)

__all__ = [
    "REASONS",
    "BadRecord",
    "Event",
    "Forget",
    "Gate",
    "GateLabel",
    "Label",
    "Limits",
    "RelevanceLabels",
    "Result",
    "Routing",
    "RoutingLabel",
    "Search",
    "SearchIteration",
    "TurnCompleted",
    "decode",
]
