"""``stream-metrics dlq list``: lists dead letters; and what all commands about them share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

import msgspec
import typer
from msgspec import structs
from rich.console import Console
from rich.table import Table

from stream_metrics.cli.common import (
    ConfigOption,
    FormatOption,
    UsageError,
    text_table,
    time_text,
)
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.decode import Event, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.live.letters import (
    ForgetVersion,
    Forgotten,
    Letter,
    RecordId,
    Resubmitted,
)

WIDTH: Final = 250  # terminals wrap lines themselves, and files must not be truncated

PLACE: Final = "--place"
_PLACE: Final = re.compile(r"(.+)/([0-9]{1,10})/([0-9]{1,19})")

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", help="Only dead letters of this input topic.", show_default=False),
]


class _Names(msgspec.Struct):
    conversation_id: str


_NAMES: Final = msgspec.json.Decoder(_Names)


@dataclass(frozen=True, slots=True)
class LetterSummary:
    """A letter without its value: its conversations, and the version of its event if valid now."""

    letter: Letter
    conversations: frozenset[str]
    version: ForgetVersion | None

    @classmethod
    def of(cls, letter: Letter, limits: Limits) -> LetterSummary:
        """Summarize a letter."""
        record = letter.record
        event = decode(
            record.value,
            key=record.key,
            timestamp_ms=record.timestamp_ms,
            limits=limits,
            require_key=True,
        )
        version = event.version[:2] if isinstance(event, Event) else None
        short = replace(letter, record=structs.replace(record, value=None))
        return cls(short, frozenset(_conversations(letter)), version)


@dataclass(slots=True)
class LetterIndex:
    """The content of dead-letter topics: each letter once, and the marks about them."""

    letters: dict[RecordId, LetterSummary] = field(default_factory=dict)
    resubmitted: dict[RecordId, str] = field(default_factory=dict)
    forgotten: dict[str, ForgetVersion] = field(default_factory=dict)

    def is_forgotten(self, listed: LetterSummary) -> bool:
        """Whether the letter's conversation was forgotten, and its event is not newer than that."""
        return any(
            name in self.forgotten
            and (listed.version is None or listed.version <= self.forgotten[name])
            for name in listed.conversations
        )

    def state(self, listed: LetterSummary) -> str:
        """The state of a letter for the table; empty if there is nothing to report."""
        if self.is_forgotten(listed):
            return "forgotten"
        at = self.resubmitted.get(listed.letter.place)
        if at is not None:
            return f"re-submitted {at}"
        return "cut" if listed.letter.cut else ""


def _conversations(letter: Letter) -> set[str]:
    """The conversations that a letter names: by its key, and by its value."""
    names: set[str] = set()
    record = letter.record
    try:
        if record.key is not None:
            names.add(record.key.decode())
    except UnicodeDecodeError:
        pass
    try:
        if record.value is not None:
            names.add(_NAMES.decode(record.value).conversation_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return names


async def read_letter_index(place: Place, topics: list[str]) -> LetterIndex:
    """Everything about dead letters of ``topics``, without the values."""
    index, limits = LetterIndex(), place.settings.engine_config().limits
    async with aclosing(place.letters(topics)) as letters:
        async for found in letters:
            if isinstance(found, Resubmitted):
                index.resubmitted[found.place] = found.at
            elif isinstance(found, Forgotten):
                until = index.forgotten.get(found.conversation, found.until)
                index.forgotten[found.conversation] = max(until, found.until)
            else:
                index.letters.setdefault(found.place, LetterSummary.of(found, limits))
    return index


def input_topics(settings: Settings, topic: str | None) -> list[str]:
    """The input topic, or all without one; raises ``UsageError``."""
    if topic is not None and topic not in settings.kafka.topics:
        raise UsageError(f"--topic {topic!r} is not an input topic; use one of kafka.topics")
    return [topic] if topic else list(settings.kafka.topics)


def _with_traces(settings: Settings, topic: str | None) -> list[str]:
    """As ``input_topics``, and the topic of traces if requested or if a bridge is configured."""
    if topic == settings.bridge.topic:
        return [topic]
    traces = [settings.bridge.topic] if "bridge" in settings.model_fields_set else []
    return input_topics(settings, topic) + (traces if topic is None else [])


def table_of(letters: list[LetterSummary], state: Callable[[LetterSummary], str]) -> Table:
    """Letters as a table."""
    names = ("topic", "partition", "offset", "error.class")
    rows = []
    for listed in letters:
        headers = listed.letter.headers
        rows.append([*(str(headers[n]) for n in names), state(listed), headers["error.message"]])
    return text_table(("topic", "partition", "offset", "reason", "state", "message"), rows)


def dlq_list(
    topic: TopicOption = None,
    format_: FormatOption = "table",
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 1_000_000,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """List dead letters: where each record was read and why it was rejected.

    First come the counts for each topic and reason, with the times at which the first and the last
    dead letter were written. `dlq show` prints one dead letter whole.

    After a failure the same dead letter may be stored twice; it is listed once, by topic, partition
    and offset. The state column says whether it was resubmitted, is truncated (its value was too
    large to be stored whole), or belongs to a forgotten conversation.
    """
    place = place_of(config, data)
    index = place.run(read_letter_index(place, _with_traces(place.settings, topic)))
    letters = [index.letters[one] for one in sorted(index.letters)][:limit]
    if format_ == "json":
        for listed in letters:
            more = {
                "resubmitted": index.resubmitted.get(listed.letter.place),
                "forgotten": index.is_forgotten(listed),
                "seen": _seen(listed.letter.written_ms),
            }
            typer.echo(json.dumps(listed.letter.headers | more))
        return
    if not letters:
        typer.echo("no dead letters")
        return
    console = Console(width=WIDTH)
    console.print(summary_of(index.letters.values()))
    console.print()
    console.print(table_of(letters, index.state))


def summary_of(letters: Iterable[LetterSummary]) -> Table:
    """The number of letters by topic and reason, and the times of the first and the last."""
    found: dict[tuple[str, str], list[Letter]] = {}
    for listed in letters:
        letter = listed.letter
        found.setdefault((letter.record.topic, letter.headers["error.class"]), []).append(letter)
    rows = []
    for (topic, reason), its in sorted(found.items()):
        times = [letter.written_ms for letter in its if letter.written_ms is not None]
        seen = (_seen(min(times, default=None)) or "", _seen(max(times, default=None)) or "")
        rows.append((topic, reason, f"{len(its):,}", *seen))
    heads = ("topic", "reason", "letters", "first seen", "last seen")
    return text_table(heads, rows, right=("letters",))


def _seen(ms: int | None) -> str | None:
    return None if ms is None else time_text(ms)


def parse_place(text: str, settings: Settings, given_as: str = PLACE) -> RecordId:
    """The record that ``TOPIC/PARTITION/OFFSET`` names; raises ``UsageError``."""
    named = f"{given_as} {text!r}"
    parts = _PLACE.fullmatch(text)
    if parts is None:
        raise UsageError(f"{named}: write TOPIC/PARTITION/OFFSET, as `dlq list` shows it")
    topic, number, offset = parts.groups()
    known = (*settings.kafka.topics, settings.bridge.topic)
    if topic not in (settings.kafka.topics if given_as == PLACE else known):
        raise UsageError(f"{named}: {topic!r} is not an input topic; use one of kafka.topics")
    return topic, int(number), int(offset)
