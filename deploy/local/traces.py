"""Traced traffic for ``make stack``: an instrumented agent, a Collector, and the bridge."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.local.install import Missing
from stream_metrics.clients.kafka.topics import TRACE_TOPIC_CONFIG

REPOSITORY: Final = Path(__file__).resolve().parents[2]
COLLECTOR_CONFIG: Final = REPOSITORY / "deploy" / "otel" / "collector.yaml"
AGENT: Final = REPOSITORY / "examples" / "langgraph" / "agent.py"
TRACES_TOPIC: Final = "otlp_spans"
TRACES_TOPIC_CONFIG: Final = {**TRACE_TOPIC_CONFIG, "retention.ms": "86400000"}
# Otherwise only the last turn of a conversation counts, which may have no search.
EVERY_TURN: Final = {"STREAM_METRICS_METRICS__TURN_SCOPE": "all"}
# The bridge's settings for the agent's evaluations: grades of scores, and the document attribute.
JUDGED: Final = {
    "STREAM_METRICS_LABELS__CUTOFFS": '{"1": 0.2, "2": 0.4, "3": 0.6, "4": 0.8}',
    "STREAM_METRICS_LABELS__DOCUMENT": '["document.id"]',
}


def agent_command() -> list[str]:
    """The command of the agent, in the environment that ``make agent`` creates."""
    python = Path(sys.prefix) / "agent" / "bin" / "python"
    if not python.exists():
        raise Missing("the agent's environment is missing; run: make agent")
    return [str(python), "-u", str(AGENT)]


def agent_environment(endpoint: str) -> Mapping[str, str]:
    """The environment of an agent with the OpenTelemetry SDK."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_SERVICE_NAME": "support",
        "OTEL_RESOURCE_ATTRIBUTES": "service.version=2026.11",
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "10000",
        "OTEL_BSP_SCHEDULE_DELAY": "1000",
    }
