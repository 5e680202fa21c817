"""``stream-metrics topics create``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Console

from stream_metrics.cli.common import ConfigOption, UsageError, load_settings
from stream_metrics.cli.kafka import run_kafka
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import TRACE_TOPIC_CONFIG, create_topics, partition_counts

ANSWER_WITHIN_SECONDS: Final = 30
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """How to create missing topics; ``others`` are further topics to create."""

    partitions: int
    copies: int | None
    config: Mapping[str, str]
    others: tuple[str, ...] = ()


def create(
    partitions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Partitions of each new topic.")
    ] = 8,
    copies: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Replication factor. Default: 3, or the number of brokers if there are fewer.",
        ),
    ] = None,
    keep_days: Annotated[
        float,
        typer.Option(min=0.01, help="Retention in days. Must be longer than `state.ttl`."),
    ] = 7.0,
    traces: Annotated[
        bool,
        typer.Option(
            "--traces",
            help="Also create the topics that the bridge reads and writes its dead letters to, "
            "with `LogAppendTime`.",
        ),
    ] = False,
    keep_traces_days: Annotated[
        float,
        typer.Option(
            min=0.01, help="Retention of traces in days. Must be longer than `bridge.trace_max`."
        ),
    ] = 1.0,
    config: ConfigOption = None,
) -> None:
    """Create the input topics and their dead-letter topics if they are missing.

    Existing topics are left unchanged. All input topics need the same number of partitions, so
    new ones get as many as an existing one has. The exit code is 2 if that is not possible.
    """
    settings = load_settings(config)
    bridge = settings.bridge
    keep_ms, keep_traces_ms = int(keep_days * DAY_MS), int(keep_traces_days * DAY_MS)
    if keep_ms <= settings.state.ttl_ms:
        raise UsageError(
            f"--keep-days {keep_days:g} is not longer than state.ttl ({settings.state.ttl}): if "
            "Redis loses its data, the worker could not read all records that it needs again"
        )
    if traces and keep_traces_ms <= bridge.trace_max_ms:
        raise UsageError(
            f"--keep-traces-days {keep_traces_days:g} is not longer than bridge.trace_max "
            f"({bridge.trace_max}): the bridge could not read a trace again that is not closed"
        )
    specs = [(settings.kafka, TopicSpec(partitions, copies, {"retention.ms": str(keep_ms)}))]
    if traces:
        of_traces = {**TRACE_TOPIC_CONFIG, "retention.ms": str(keep_traces_ms)}
        rekeyed = (bridge.internal_topic,) if bridge.rekey else ()
        specs.append((settings.bridge_kafka, TopicSpec(partitions, copies, of_traces, rekeyed)))
    lines = run_kafka(settings, _create(specs))
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line)


async def _create(specs: Sequence[tuple[KafkaSettings, TopicSpec]]) -> list[str]:
    """Create missing topics; returns a line per topic."""
    async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
        return [line for kafka, spec in specs for line in await _create_for(kafka, spec)]


async def _create_for(kafka: KafkaSettings, spec: TopicSpec) -> list[str]:
    """Create the missing topics of these settings: input, dead-letter and other topics."""
    letters = [topic + kafka.dead_letter_suffix for topic in kafka.topics]
    names = [*kafka.topics, *letters, *spec.others]
    counts = await partition_counts(kafka, names)
    existing = {topic: counts[topic] for topic in kafka.topics if topic in counts}
    if len(set(existing.values())) > 1:
        found = ", ".join(f"{topic} has {count}" for topic, count in existing.items())
        raise UsageError(f"input topics must have equal partition counts: {found}")
    partitions = next(iter(existing.values()), spec.partitions)
    missing = [name for name in names if name not in counts]
    await create_topics(kafka, missing, partitions, spec.copies, spec.config)
    return [
        f"{name}: {counts.get(name, partitions)} partitions, "
        + ("created" if name in missing else "was there already, left as it is")
        for name in names
    ]
