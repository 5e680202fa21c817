"""The Collector's configuration, and the topic of traces that it writes to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
COLLECTOR_CONFIG: Final = REPOSITORY / "deploy" / "otel" / "collector.yaml"
TRACES_TOPIC: Final = "otlp_spans"
# The times are those of the broker; the Collector writes records of up to 10 MB.
TRACES_TOPIC_CONFIG: Final = {
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": "86400000",
    "max.message.bytes": "10485760",
}
