"""``stream-metrics check --topics``: detects the partitioners of the input topics' producers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from aiokafka.errors import KafkaError

from stream_metrics.cli.common import Finding
from stream_metrics.cli.kafka import cause
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.live.kafka.key_samples import latest_keys
from stream_metrics.live.worker.keying import MATCHING_SHARE, Keying, KeySample, keyed_differently

WITHIN_SECONDS: Final = 60
PARTITIONER_NAMES: Final = {
    "murmur2": "murmur2 (the Java client, and clients that place keys as it does)",
    "crc32": "CRC-32 (librdkafka's default)",
    "fnv1a": "FNV-1a (the default of Sarama)",
}


async def check_keys(kafka: KafkaSettings, counts: Mapping[str, int]) -> list[Finding]:
    """Findings on the partitioner of each input topic, and whether partitioners differ."""
    if kafka.repartition_topic is not None:
        return [Finding("keys", "ok", "workers repartition, so any partitioner will do")]
    there = {topic: counts[topic] for topic in kafka.topics if topic in counts}
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            samples = await latest_keys(kafka, there)
    except (KafkaError, OSError, TimeoutError) as error:
        why = await cause(kafka, error)
        return [Finding("keys", "error", f"records could not be read: {why}")]
    return key_findings(samples)


def key_findings(samples: Mapping[str, KeySample]) -> list[Finding]:
    """A finding for each topic, and an error if two are known to differ."""
    findings = []
    for topic, sample in samples.items():
        findings.append(_of_topic(topic, sample.keying))
        if sample.without_key:
            why = f"{sample.without_key:,} of the latest records have no key: dead letters"
            findings.append(Finding(f"keys of {topic}", "warning", why))
    keyings = {topic: sample.keying for topic, sample in samples.items()}
    if keyed_differently(keyings):
        named = [
            f"{topic} by {_names(k)}" for topic, k in keyings.items() if k.matching_partitioners
        ]
        findings.append(
            Finding(
                "keys",
                "error",
                f"the topics are keyed by different partitioners: {', '.join(named)}. Most "
                "conversations have their searches and their labels on different partitions, so "
                "the labels never count. Give all producers the same partitioner, such as "
                "`partitioner=murmur2_random` for clients built on librdkafka, or set "
                "`kafka.repartition_topic`",
            )
        )
    return findings


def _names(keying: Keying) -> str:
    return " or ".join(sorted(keying.matching_partitioners))


def _of_topic(topic: str, keying: Keying) -> Finding:
    what, keys, needed = f"keys of {topic}", keying.keys, keying.keys_needed
    if needed is None:
        return Finding(what, "ok", "one partition, where every partitioner places every key")
    if matching := keying.matching_partitioners:
        who = " or ".join(PARTITIONER_NAMES[name] for name in sorted(matching))
        agreeing = max(keying.agreeing[name] for name in matching)
        return Finding(what, "ok", f"placed by {who}: {agreeing:,} of {keys:,} keys")
    if keys < needed:
        why = f"{keys:,} in the latest records; {needed} are needed to tell the partitioner"
        return Finding(what, "warning", why)
    if keying.scattered > (1 - MATCHING_SHARE) * keys:
        why = (
            f"{keying.scattered:,} of {keys:,} keys are on several partitions: a producer does not "
            "place records by their keys (round-robin), producers use different partitioners, or "
            "the topic got more partitions lately. This splits conversations. Give all producers "
            "the same partitioner, or set `kafka.repartition_topic`"
        )
        return Finding(what, "error", why)
    counted = ", ".join(f"{name} {n:,}" for name, n in keying.agreeing.items())
    why = (
        f"no known partitioner explains all keys: of {keys:,} keys, {counted} are where that "
        "partitioner puts them. Possible reasons: producers with different partitioners, a custom "
        "partitioner, or records from before partitions were added to the topic"
    )
    return Finding(what, "warning", why)
