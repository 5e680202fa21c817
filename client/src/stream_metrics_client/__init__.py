"""Record what a RAG agent searches and finds, for stream-metrics.

`Recorder` and `AsyncRecorder` take what the agent says of its turns, iterations and searches, and
send it as events to Kafka, to a file or to a function. They never block the agent and never raise
into it, unless `strict` is set.
"""

from stream_metrics_client.contract import Limits
from stream_metrics_client.events import Searched
from stream_metrics_client.recorder import AsyncRecorder, Iteration, Recorder, Turn
from stream_metrics_client.validation import InvalidEvent, Refusal, refusal

__version__ = "0.1.0"

__all__ = [
    "AsyncRecorder",
    "InvalidEvent",
    "Iteration",
    "Limits",
    "Recorder",
    "Refusal",
    "Searched",
    "Turn",
    "refusal",
]
