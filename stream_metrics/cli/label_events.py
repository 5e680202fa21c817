"""What commands that make relevance labels share: their options, a check, and where labels go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import typer

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.kafka import run_kafka
from stream_metrics.cli.send import CheckedEvent, check_event, report, send_events
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.decode import BadRecord

IntoKafkaOption = Annotated[
    bool,
    typer.Option(
        "--into-kafka",
        help="Send the labels to the last of `kafka.topics` instead of printing them.",
    ),
]
GivenOption = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="When the labels were given, unless each says it itself, in RFC 3339 or Unix "
        "microseconds. Default: when their file was changed.",
        show_default=False,
    ),
]


def checked_labels(events: Iterable[tuple[str, bytes]], settings: Settings) -> list[CheckedEvent]:
    """Labels for the topic of labels, of conversations and their events.

    Raises ``UsageError`` for what a worker would reject.
    """
    limits, now_us, found = settings.engine_config().limits, time.time_ns() // 1000, []
    for conversation, value in events:
        one = check_event(value, limits, now_us)
        if isinstance(one, BadRecord):
            raise UsageError(
                f"a worker would reject a label of conversation {conversation!r}: {one.reason}: "
                f"{one.message}"
            )
        found.append(one._replace(topic=settings.kafka.topics[-1]))
    return found


def hand_over(labels: list[CheckedEvent], settings: Settings, *, into_kafka: bool) -> None:
    """Send labels to their topic, or print them."""
    if into_kafka:
        run_kafka(settings, send_events(settings, labels))
        report(Counter(label.topic for label in labels), "table")
    else:
        for label in labels:
            typer.echo(label.value.decode())
