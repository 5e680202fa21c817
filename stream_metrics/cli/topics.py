"""Topics: ``stream-metrics topics create``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from aiokafka.errors import KafkaError
from rich.console import Console

from stream_metrics.adapters.kafka.rights import KafkaRefused
from stream_metrics.adapters.kafka.topics import create_topics, partition_counts
from stream_metrics.cli.common import ConfigOption, UsageError, kafka_reason, load_settings
from stream_metrics.settings import KafkaSettings

ANSWER_WITHIN_SECONDS: Final = 30
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Layout:
    """How a topic that is missing is to be made."""

    partitions: int
    copies: int | None
    keep_ms: int


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
    config: ConfigOption = None,
) -> None:
    """Create the input topics and their dead-letter topics if they are missing.

    Existing topics are left unchanged. All input topics need the same number of partitions, so
    new ones get as many as an existing one has. The exit code is 2 if that is not possible.
    """
    settings = load_settings(config)
    layout = Layout(partitions, copies, int(keep_days * DAY_MS))
    if layout.keep_ms <= settings.state.ttl_ms:
        raise UsageError(
            f"--keep-days {keep_days:g} is not longer than state.ttl ({settings.state.ttl}): if "
            "Redis loses its data, the worker could not read all records that it needs again"
        )
    try:
        lines = asyncio.run(_create(settings.kafka, layout))
    except KafkaRefused as error:
        raise UsageError(str(error)) from error
    except (KafkaError, OSError, TimeoutError) as error:
        where = settings.kafka.bootstrap_servers
        raise UsageError(f"kafka {where}: {kafka_reason(settings, error)}") from error
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line)


async def _create(kafka: KafkaSettings, layout: Layout) -> list[str]:
    """Make what is missing; a line for each topic."""
    letters = [topic + kafka.dead_letter_suffix for topic in kafka.topics]
    names = [*kafka.topics, *letters]
    async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
        counts = await partition_counts(kafka, names)
        there = {topic: counts[topic] for topic in kafka.topics if topic in counts}
        if len(set(there.values())) > 1:
            found = ", ".join(f"{topic} has {count}" for topic, count in there.items())
            raise UsageError(f"input topics must have equal partition counts: {found}")
        partitions = next(iter(there.values()), layout.partitions)
        missing = [name for name in names if name not in counts]
        await create_topics(kafka, missing, partitions, layout.copies, layout.keep_ms)
        now = await partition_counts(kafka, names)
    return [
        f"{name}: {now.get(name, 0)} partitions, "
        + ("created" if name in missing else "was there already, left as it is")
        for name in names
    ]
