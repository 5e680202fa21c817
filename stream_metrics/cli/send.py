"""``stream-metrics send``: events from a file or standard input, to topics or over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from stream_metrics.cli.common import (
    ConfigOption,
    Format,
    FormatOption,
    UsageError,
    load_settings,
    stderr_console,
)
from stream_metrics.cli.kafka import run_kafka
from stream_metrics.cli.send_http import HttpSender
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.topics import check_input_topics, partition_counts
from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.foreign import HEAD_BYTES, foreign_bytes, with_form
from stream_metrics.core.events.key import is_labels
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.times import rfc3339
from stream_metrics.lab.sources.json_values import InvalidJson, json_values
from stream_metrics.lab.sources.kafka.feed import open_feed
from stream_metrics.lab.sources.replay_pace import Pace, moment_of
from stream_metrics.lab.sources.unchanged import InputError

SHOWN_PROBLEMS: Final = 20


class CheckedEvent(NamedTuple):
    """A valid event: its topic, key, value, time in microseconds, and line in the input."""

    topic: str
    key: bytes
    value: bytes
    occurred_us: int
    line: int = 0


def send(
    file: Annotated[
        str, typer.Argument(help="A file of events, or - for standard input.", metavar="FILE")
    ] = "-",
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="Move the events to the present: the latest happens now, and the distances "
            "between them stay.",
        ),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option(
            help="Send all events to this topic. Default: relevance labels go to the last of "
            "`kafka.topics`, all other events to the first.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Send the events over HTTP to this address, such as http://localhost:4318, where "
            "a server without Kafka takes them.",
            metavar="URL",
            show_default=False,
        ),
    ] = None,
    format_: FormatOption = "table",
    config: ConfigOption = None,
) -> None:
    """Send events to the input topics, keyed by conversation, or over HTTP.

    The input is JSON: an object a line, or objects spread over lines, one after another. All of
    it is read and checked first. If any event is invalid, nothing is sent: each invalid event is
    named with its line and the reason, and the exit code is 2.

    Keys are placed as Java's client places them (murmur2). To send a recording with its original
    keys and at its original pace, use [bold]stream-metrics replay --into-kafka[/bold].
    """
    settings = load_settings(config)
    if topic is not None and topic not in settings.kafka.topics:
        raise UsageError(
            f"--topic {topic}: workers do not read this topic; `kafka.topics` has "
            f"{', '.join(settings.kafka.topics)}"
        )
    sender = None if to is None else _http_sender(to, topic, settings)
    source = "standard input" if file == "-" else file
    data = _read(file)
    now_us = time.time_ns() // 1000
    events = _check_events(data, source, settings, topic, now_us, move=now)
    _note_old(events, settings, now_us)
    if sender is not None:
        _send_over_http(sender, events, source, format_)
        return
    run_kafka(settings, send_events(settings, events))
    report(Counter(event.topic for event in events), format_)


def _http_sender(to: str, topic: str | None, settings: Settings) -> HttpSender:
    if topic is not None:
        raise UsageError("--to and --topic exclude each other: over HTTP there are no topics")
    note = stderr_console().print
    return HttpSender(to, settings.serve.token(), lambda why: note(f"note: {why}"))


def _send_over_http(
    sender: HttpSender, events: list[CheckedEvent], source: str, format_: Format
) -> None:
    """Send the events; raises ``InputError``, which names every one that was refused."""
    refused = asyncio.run(sender.send([event.value for event in events]))
    accepted = len(events) - len(refused)
    if refused:
        listed = [(events[position].line, why) for position, why in refused]
        head = f"{sender.to} took {accepted:,} events of {source}, and refused others:"
        raise InputError(_problems_message(head, listed))
    if format_ == "json":
        typer.echo(json.dumps({"events": accepted, "to": sender.to}))
    else:
        typer.echo(f"Sent {_number_of_events(accepted)} to {sender.to}.")


def _read(file: str) -> bytes:
    """The content of the file, or of standard input; raises ``InputError``."""
    if file == "-" and sys.stdin.isatty():
        typer.echo("Reading events from the terminal; Ctrl-D ends the input.", err=True)
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    if (form := foreign_bytes(data[:HEAD_BYTES])) is not None:
        raise InputError(f"{file}: it looks like {form}")
    return data


def _check_events(
    data: bytes,
    source: str,
    settings: Settings,
    topic: str | None,
    now_us: int,
    *,
    move: bool,
) -> list[CheckedEvent]:
    """The events to send; raises ``InputError``, which names every invalid one."""
    lines: list[int] = []
    records: list[Record] = []
    problems: list[tuple[int, str]] = []
    try:
        for value in json_values(data):
            lines.append(value.line)
            records.append(Record(value.text))
    except InvalidJson as error:
        problems.append((error.line, str(error)))
    limits, topics = settings.engine_config().limits, settings.kafka.topics

    def events_of(records: list[Record], stamp_us: int | None) -> list[CheckedEvent]:
        events: list[CheckedEvent] = []
        for line, record in zip(lines, records, strict=True):
            found = check_event(record.value or b"", limits, stamp_us)
            if isinstance(found, BadRecord):
                problems.append((line, f"{found.reason}: {found.message}"))
                continue
            to = topic or (topics[-1] if is_labels(record.value) else topics[0])
            events.append(found._replace(topic=to, line=line))
        return events

    events = events_of(records, None if move else now_us)
    if move and not problems:  # a wrong time would shift all others
        events = events_of(shift_to_now(records, now_us), now_us)
    if problems:
        head = f"{source} has invalid events, so nothing was sent:"
        raise InputError(_problems_message(head, sorted(problems)))
    if not events:
        raise InputError(f"{source} has no events")
    return events


def shift_to_now(records: list[Record], now_us: int) -> list[Record]:
    """The records with the times of their events shifted, so that the latest is ``now_us``.

    Records that are not events with a time are unchanged.
    """
    moments = [moment for record in records if (moment := moment_of(record)) is not None]
    if not moments:
        return records
    pace = Pace(Fraction(1), now_us - (max(moments) - moments[0]))
    for record in records:
        pace.due_seconds(record)
    return [pace.retimed(record) for record in records]


def check_event(value: bytes, limits: Limits, stamp_us: int | None) -> CheckedEvent | BadRecord:
    """Check a value as a worker would; returns the event without its topic, or the problem.

    ``stamp_us`` is the record's timestamp, None if it has none yet.
    """
    timestamp_ms = None if stamp_us is None else stamp_us // 1000
    found = decode(value, timestamp_ms=timestamp_ms, limits=limits)
    if isinstance(found, BadRecord):
        return with_form(found, value)
    return CheckedEvent("", found.conversation_id.encode(), value, found.occurred_us)


def _problems_message(head: str, problems: list[tuple[int, str]]) -> str:
    more = len(problems) - SHOWN_PROBLEMS
    lines = [f"  line {line}: {problem}" for line, problem in problems[:SHOWN_PROBLEMS]]
    if more > 0:
        lines.append(f"  … and {more:,} more")
    return "\n".join([head, *lines])


def _note_old(events: list[CheckedEvent], settings: Settings, now_us: int) -> None:
    """Print a note on standard error if no window reaches back to the events."""
    latest_us = max(event.occurred_us for event in events)
    window = max(settings.metrics.window_specs(), key=lambda spec: spec.length_us)
    if now_us - latest_us > window.length_us:
        stderr_console().print(
            f"note: the latest event happened at {rfc3339(latest_us)}. The longest window is "
            f"{window.name}, so no live figure counts it; --now moves the events to the present."
        )


async def send_events(settings: Settings, events: list[CheckedEvent]) -> None:
    """Send the events in order.

    Raises ``TopicsMissing``, ``KafkaRefused`` and aiokafka's errors.
    """
    kafka = settings.kafka
    check_input_topics(kafka.topics, await partition_counts(kafka, kafka.topics))
    async with open_feed(kafka) as feed:
        for event in events:
            await feed.send(event.topic, event.value, event.key, None)


def report(counts: Counter[str], format_: Format) -> None:
    """Print the number of events sent to each topic."""
    if format_ == "json":
        typer.echo(json.dumps({"events": counts.total(), "topics": dict(counts)}))
        return
    listed = " and ".join(f"{topic} ({count:,})" for topic, count in sorted(counts.items()))
    typer.echo(f"Sent {_number_of_events(counts.total())} to {listed}.")


def _number_of_events(number: int) -> str:
    return f"{number:,} {'event' if number == 1 else 'events'}"
