"""The findings of ``stream-metrics check`` about Kafka and Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from stream_metrics.cli.check_bridge import check_bridge
from stream_metrics.cli.common import Finding
from stream_metrics.cli.kafka import cause
from stream_metrics.cli.keys import check_keys
from stream_metrics.cli.places import Checked
from stream_metrics.cli.redis import open_store
from stream_metrics.cli.settings import Settings, mask_url
from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.rights import (
    Right,
    missing_rights,
    rights_error,
    worker_rights,
)
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import partition_counts, topic_configs
from stream_metrics.live.kafka.topic_config import topic_config_problems
from stream_metrics.live.ports import StoreUnavailable
from stream_metrics.live.redis.check import check, max_memory_ratio, memory_bytes
from stream_metrics.live.redis.store import RedisStore

KAFKA_WITHIN_SECONDS: Final = 15


async def check_servers(settings: Settings, *, keys: bool) -> Checked:
    """See ``places.Place.check``."""
    counts: dict[str, int] = {}
    findings = await _check_kafka(settings, counts)
    if keys and counts:
        findings += await check_keys(settings.kafka, counts)
    if counts:
        findings += await check_bridge(settings)
    where = mask_url(settings.redis.url)
    async with open_store(settings) as store:
        problems = await check(store)
        findings += [
            Finding("redis", "error" if problem.fatal else "warning", f"{where}: {problem.message}")
            for problem in problems
        ]
        readable = not any(problem.fatal for problem in problems)
        if readable:
            findings.append(await _check_room(store, f"{where}, namespace {settings.namespace}"))
    return Checked(findings, counts, readable)


async def _check_room(store: RedisStore, where: str) -> Finding:
    """Whether Redis has room for writes."""
    try:
        used, limit = await memory_bytes(store)
        ratio = await max_memory_ratio(store)
    except StoreUnavailable as error:
        return Finding("redis", "error", str(error))
    if ratio < 1:
        return Finding("redis", "ok", where)
    full = f"uses {used:,} bytes, and maxmemory is {limit:,}: it refuses writes, so workers wait"
    return Finding("redis", "error", f"{where}: {full}. Raise `maxmemory`")


async def _check_kafka(settings: Settings, counts: dict[str, int]) -> list[Finding]:
    """Findings on Kafka and its topics; adds the topics' partition counts to ``counts``."""
    kafka = settings.kafka
    rights = worker_rights(kafka)
    try:
        async with asyncio.timeout(KAFKA_WITHIN_SECONDS):
            missing = await missing_rights(kafka, rights)
            hidden = {right.name for right in missing if right.kind == "topic"}
            topics = dict.fromkeys(right.name for right in rights if right.kind == "topic")
            seen = [topic for topic in topics if topic not in hidden]
            counts |= await partition_counts(kafka, seen)
            suitable = await _check_internal(kafka, counts)
    except (KafkaRefused, KafkaError, OSError, TimeoutError) as error:
        why = await cause(kafka, error)
        return [Finding("kafka", "error", f"{kafka.bootstrap_servers}: {why}")]
    findings = [Finding("kafka", "ok", kafka.bootstrap_servers)]
    findings += [Finding("kafka", "error", rights_error(kafka, [right])) for right in missing]
    for topic in seen:
        if topic in counts:
            findings.append(Finding(f"topic {topic}", "ok", f"{counts[topic]} partitions"))
        else:
            findings.append(Finding(f"topic {topic}", "error", _absent(kafka, topic)))
    findings += suitable
    if len({counts[topic] for topic in kafka.state_topics if topic in counts}) > 1:
        findings.append(
            Finding("partitions", "error", "input topics must have equal partition counts")
        )
    return findings


def _absent(kafka: KafkaSettings, topic: str) -> str:
    if topic == kafka.output_topic:
        return "does not exist; create it, preferably with cleanup.policy=compact"
    if topic in kafka.topics or topic == kafka.repartition_topic:
        return "does not exist; create it"
    return "does not exist, so workers wait at the first bad record; create it"


async def _check_internal(kafka: KafkaSettings, counts: Mapping[str, int]) -> list[Finding]:
    """Findings on the internal topic's configuration, if any; raises aiokafka's errors."""
    internal = kafka.repartition_topic
    if internal is None or internal not in counts:
        return []
    inputs = [topic for topic in kafka.topics if topic in counts]
    try:
        configs = await topic_configs(kafka, [*inputs, internal])
    except TopicAuthorizationFailedError:
        right = Right("DESCRIBE_CONFIGS", "topic", ", ".join([*inputs, internal]))
        why = f"its configuration could not be checked. {rights_error(kafka, [right])}"
        return [Finding(f"topic {internal}", "warning", why)]
    problems = topic_config_problems(configs[internal], [configs[topic] for topic in inputs])
    return [Finding(f"topic {internal}", "error", problem) for problem in problems]
