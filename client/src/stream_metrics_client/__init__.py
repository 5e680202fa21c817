"""Record the searches and results of a RAG agent for stream-metrics.

`Recorder` and `AsyncRecorder` record turns, iterations and searches, and send them as events to
Kafka, over HTTP, to a file or to a function. They never block the agent, and never raise unless
`strict` is set.
"""

from stream_metrics_client.contract import Limits
from stream_metrics_client.events import RecordedSearch
from stream_metrics_client.recorder import AsyncRecorder, Iteration, Recorder, Turn
from stream_metrics_client.validation import InvalidEvent, Refusal, refusal

__version__ = "0.1.0"

__all__ = [
    "AsyncRecorder",
    "InvalidEvent",
    "Iteration",
    "Limits",
    "RecordedSearch",
    "Recorder",
    "Refusal",
    "Turn",
    "refusal",
]
