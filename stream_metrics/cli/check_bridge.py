"""The findings of ``stream-metrics check`` about the bridge: its topics, rights and parser."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from stream_metrics.cli.common import Finding
from stream_metrics.cli.kafka import cause
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.rights import (
    Right,
    bridge_rights,
    missing_rights,
    rights_error,
)
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import partition_counts, topic_configs

WITHIN_SECONDS: Final = 15
RETAINED: Final = 4  # times ``bridge.trace_max``, at least


async def check_bridge(settings: Settings) -> list[Finding]:
    """The findings; none if there is neither a topic of traces nor a bridge setting."""
    traces, is_set = settings.bridge_kafka, "bridge" in settings.model_fields_set
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            if not is_set and not await _exists(traces, settings.bridge.topic):
                return []
            return await _topics(settings, traces)
    except KafkaRefused as refused:
        return [Finding("bridge", "error" if is_set else "warning", str(refused))]
    except (KafkaError, OSError, TimeoutError) as error:
        why = await cause(traces, error)
        return [Finding("bridge", "error", f"{traces.bootstrap_servers}: {why}")]


async def _exists(traces: KafkaSettings, topic: str) -> bool:
    """Whether the topic exists and the user may describe it."""
    try:
        return topic in await partition_counts(traces, [topic])
    except KafkaRefused:
        return False


async def _topics(settings: Settings, traces: KafkaSettings) -> list[Finding]:
    """Findings about the rights and topics; raises aiokafka's errors and ``KafkaRefused``."""
    rights = bridge_rights(traces, settings.kafka.topics)
    missing = await missing_rights(traces, rights)
    findings = [Finding("bridge", "error", rights_error(traces, [right])) for right in missing]
    hidden = {right.name for right in missing if right.kind == "topic"}
    topics = dict.fromkeys(r.name for r in rights if r.kind == "topic" and r.name not in hidden)
    counts = await partition_counts(traces, topics)
    for topic in topics:
        if topic not in counts:
            findings.append(Finding(f"topic {topic}", "error", _absent(settings, topic)))
    [assembled] = traces.state_topics
    if assembled in counts:
        findings.append(Finding(f"topic {assembled}", "ok", f"{counts[assembled]} partitions"))
        findings += await _configured(settings, traces, assembled)
    return findings


def _absent(settings: Settings, topic: str) -> str:
    if topic in settings.bridge_kafka.state_topics:
        return "does not exist; create it with message.timestamp.type=LogAppendTime"
    if topic.endswith(settings.kafka.dead_letter_suffix):
        return "does not exist, so the bridge waits at the first bad record; create it"
    return "does not exist; create it"


async def _configured(settings: Settings, traces: KafkaSettings, topic: str) -> list[Finding]:
    try:
        config = (await topic_configs(traces, [topic]))[topic]
    except TopicAuthorizationFailedError:
        why = rights_error(traces, [Right("DESCRIBE_CONFIGS", "topic", topic)])
        why = f"its configuration could not be checked. {why}"
        return [Finding(f"topic {topic}", "warning", why)]
    return [
        Finding(f"topic {topic}", state, why)
        for state, why in problems_of_traces(config, settings.bridge.trace_max_ms)
    ]


def problems_of_traces(config: Mapping[str, str], trace_max_ms: int) -> list[tuple[str, str]]:
    """Problems of the configuration of a topic of traces: error or warning, and why.

    >>> problems_of_traces({"message.timestamp.type": "LogAppendTime"}, 900_000)
    []
    """
    problems = []
    policy = config.get("cleanup.policy", "delete")
    if policy != "delete":
        why = f"cleanup.policy is {policy}, which deletes parts of traces; set it to delete"
        problems.append(("error", why))
    stamps = config.get("message.timestamp.type", "CreateTime")
    if stamps != "LogAppendTime":
        why = (
            f"message.timestamp.type is {stamps}: late spans with early timestamps may be told "
            "after a crash and not without one. Set it to LogAppendTime"
        )
        problems.append(("warning", why))
    kept_ms = int(config.get("retention.ms", "-1"))
    if 0 <= kept_ms < RETAINED * trace_max_ms:
        why = (
            f"retention.ms is {kept_ms}: a bridge that is away for a while would miss records. "
            f"Set it to at least {RETAINED} times bridge.trace_max, {RETAINED * trace_max_ms}"
        )
        problems.append(("warning", why))
    return problems
