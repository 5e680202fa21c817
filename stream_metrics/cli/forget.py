"""``stream-metrics forget``: erase conversations from state, rows and windows."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    confirm,
    parse_time,
    printable,
)
from stream_metrics.cli.dlq import WIDTH, LetterSummary, read_letter_index, table_of
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.clients.kafka.records import OutgoingRecord
from stream_metrics.core.engine.codec import UnknownSchema, stored_header
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.events.decode import EARLIEST_US, Event, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.times import DAY_US, rfc3339
from stream_metrics.live.letters import ForgetVersion, forgotten_mark
from stream_metrics.live.ports import StateStore
from stream_metrics.live.worker.options import conversation_key
from stream_metrics.live.worker.ownership.generations import state_in_force

BATCH_SIZE: Final = 1_000
MAX_ID_LENGTH: Final = 128


def forget(
    conversations: Annotated[
        list[str] | None,
        typer.Argument(help="Conversation ids.", metavar="CONVERSATION...", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="A file with one id per line; - reads standard input.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="Erase events that occurred up to this time: RFC 3339 or microseconds. "
            "Default: now.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Erase conversations by sending a [bold]forget[/bold] event for each to every input partition.

    When workers read the event, they remove the conversation from rows, windows and Redis, and
    from then on ignore its events up to that time. The output topic, if there is one, gets a null
    value. Dead letters of the conversation are listed and never resubmitted. Records in Kafka
    itself stay until the topics' retention removes them.

    The command first prints which of the conversations are in the state, and asks for confirmation.
    The others are forgotten as well, because their events may still arrive or be read again. The
    exit code is 1 if you decline.
    """
    place = place_of(config, data)
    settings = place.settings
    ids = read_ids(conversations or [], file)
    version = (parse_until(until), f"forget-{uuid.uuid4().hex}")
    for line in _presence(place, ids):
        typer.echo(line)
    them = (
        "1 conversation, with its" if len(ids) == 1 else f"{len(ids):,} conversations, with their"
    )
    question = f"Erase {them} events up to {rfc3339(version[0])}?"
    if not confirm(question, "erase them", yes=yes):
        typer.echo("nothing was forgotten", err=True)
        raise typer.Exit(1)
    events = {conversation: _event(conversation, version) for conversation in ids}
    if settings.kafka.output_topic is not None:
        place.run(_erase_rows(place, ids))
        typer.echo(f"conversations: {len(ids):,}; null is written to {settings.kafka.output_topic}")
    partitions = place.run(_write(place, events))
    topics = list(settings.kafka.topics)
    typer.echo(
        f"conversations: {len(ids):,}; a forget of each is written to {partitions:,} partitions of "
        f"{' and '.join(topics)}, and erases events up to {rfc3339(version[0])}"
    )
    for topic in topics:
        _mark(place, topic, ids, version)
    if place.staying:
        typer.echo(place.staying)


def _presence(place: Place, ids: list[str]) -> list[str]:
    """A line per conversation that says whether it is in the state.

    If the state cannot be read, one line says that, because erasing does not need it.
    """
    try:
        with place.errors():
            located = asyncio.run(_located(place, ids))
    except (UsageError, DamagedState, UnknownSchema) as error:
        return [f"whether they are in the state cannot be told: {error}"]
    lines = []
    for conversation, numbers in located.items():
        where = "not in the state"
        if numbers:
            plural = "s" if len(numbers) > 1 else ""
            where = f"in the state, on {len(numbers)} partition{plural} ({_listed(numbers)})"
        lines.append(f"{printable(conversation)}: {where}")
    return lines


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


async def _located(place: Place, ids: list[str]) -> dict[str, list[int]]:
    async with place.store() as store:
        return await located(await state_in_force(store), ids)


async def located(store: StateStore, conversations: Sequence[str]) -> dict[str, list[int]]:
    """The state partitions of each conversation; none if it is not in the state.

    Remains of a conversation that has expired or was forgotten do not count. Raises the errors of
    the store and of damaged state.
    """
    partitions: dict[str, list[int]] = {conversation: [] for conversation in conversations}
    for number in await store.partitions():
        todo = iter(partitions)
        while part := list(islice(todo, BATCH_SIZE)):
            keys = [(conversation_key(conversation), False) for conversation in part]
            for conversation, stored in zip(part, await store.load(number, keys), strict=True):
                if stored.hot and stored_header(stored.hot).conversation_id:
                    partitions[conversation].append(number)
    return partitions


def read_ids(given: list[str], file: Path | None) -> list[str]:
    """The ids to forget, without repetitions; raises ``UsageError`` for invalid ones."""
    unique = dict.fromkeys(given)  # in the order given
    if file is not None:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--file {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"--file {file}: not UTF-8 at byte {error.start}") from error
        lines = (line.removesuffix("\r") for line in text.split("\n"))
        unique |= dict.fromkeys(line for line in lines if line)
    ids = list(unique)
    if not ids:
        raise UsageError("name the conversations to forget, or give --file")
    for conversation in ids:
        if not 1 <= len(conversation) <= MAX_ID_LENGTH or not _encodable(conversation):
            raise UsageError(
                f"{conversation[:40]!r} is not a conversation id (1 to {MAX_ID_LENGTH} characters)"
            )
    return ids


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_until(text: str | None) -> int:
    now_us = time.time_ns() // 1000
    if text is None:
        return now_us
    instant = parse_time("--until", text)
    if not EARLIEST_US <= instant <= now_us + DAY_US - 60_000_000:
        raise UsageError(
            f"--until {text!r}: give a time from the year 2000 on, at most a day ahead"
        )
    return instant


def _event(conversation: str, version: ForgetVersion) -> bytes:
    """The ``forget`` event of a conversation."""
    value = json.dumps(
        {
            "type": "forget",
            "version": 1,
            "event_id": version[1],
            "occurred_at": rfc3339(version[0]),
            "conversation_id": conversation,
        },
        ensure_ascii=False,
    ).encode()
    event = decode(value, key=conversation.encode(), limits=Limits(), require_key=True)
    assert isinstance(event, Event)
    assert event.version[:2] == version
    return value


async def _erase_rows(place: Place, conversations: list[str]) -> None:
    """Write nulls to the output topic, for conversations that have expired.

    For conversations that are in the state, workers send nulls themselves. This is done before the
    events are written, because what workers send after reading them must come later.
    """
    from stream_metrics.live.kafka.output import erasures  # imports a Kafka client

    kafka = place.settings.kafka
    topic = kafka.output_topic
    assert topic is not None
    counts = await place.partition_counts([topic])
    if topic not in counts:
        raise UsageError(f"topic {topic} does not exist; see kafka.output_topic")
    erased = await erasures(kafka, counts[topic], conversations)
    await _send(place, erased, "nothing is forgotten yet")


async def _write(place: Place, events: dict[str, bytes]) -> int:
    """Write each event to every partition of every input topic; returns the partition count.

    One topic would reach every state partition. But topics have different retention, and a worker
    that reads one of them again must find the ``forget`` after the events.
    """
    topics = place.settings.kafka.topics
    counts = await place.partition_counts(topics)
    missing = [topic for topic in topics if topic not in counts]
    if missing:
        raise UsageError(f"input topics do not exist: {', '.join(missing)}; see kafka.topics")
    await _send(
        place,
        (
            OutgoingRecord(topic, number, conversation.encode(), value)
            for conversation, value in events.items()
            for topic in topics
            for number in range(counts[topic])
        ),
        "the conversations are not forgotten",
    )
    return max(counts.values())


async def _send(place: Place, records: Iterable[OutgoingRecord], otherwise: str) -> None:
    todo = iter(records)
    async with place.sending() as send:
        while part := list(islice(todo, BATCH_SIZE)):
            for record, error in zip(part, await send(part), strict=True):
                if error is not None:
                    raise UsageError(
                        f"cannot write to {record.topic}, partition {record.partition}: "
                        f"{type(error).__name__}: {error}; {otherwise}, run this again"
                    )


def _mark(place: Place, topic: str, ids: list[str], version: ForgetVersion) -> None:
    """Write marks to a dead-letter topic, and list the letters of the forgotten conversations."""
    wanted = frozenset(ids)
    try:
        letters = place.run(_letters(place, topic, wanted, version))
    except UsageError as error:
        raise UsageError(
            f"{error}. The events are written, but the dead letters of {topic} are not marked: "
            "run this again before any of them is re-submitted"
        ) from error
    if letters is None:
        suffix = place.settings.kafka.dead_letter_suffix
        typer.echo(f"dead letters from {topic}: none, there is no topic {topic}{suffix}")
        return
    if not letters:
        typer.echo(f"dead letters of them from {topic}: none")
        return
    typer.echo(f"dead letters of them from {topic}, never to be re-submitted: {len(letters):,}")
    Console(width=WIDTH).print(table_of(letters, lambda _: "forgotten"))


async def _letters(
    place: Place, topic: str, wanted: frozenset[str], version: ForgetVersion
) -> list[LetterSummary] | None:
    """The letters of forgotten conversations, marked; None if there is no dead-letter topic."""
    letters = topic + place.settings.kafka.dead_letter_suffix
    counts = await place.partition_counts([letters])
    if letters not in counts:
        return None
    index = await read_letter_index(place, [topic])
    marks = (
        forgotten_mark(letters, number, conversation, version)
        for conversation in sorted(wanted)
        for number in range(counts[letters])
    )
    await _send(place, marks, "its dead letters are not marked")
    for conversation in wanted:
        until = index.forgotten.get(conversation, version)
        index.forgotten[conversation] = max(until, version)
    return [
        listed
        for _, listed in sorted(index.letters.items())
        if listed.conversations & wanted and index.is_forgotten(listed)
    ]
