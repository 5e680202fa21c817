"""``stream-metrics dlq``: list dead letters, and send their records again after a fix."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
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
    confirm,
    load_settings,
    printable,
    text_table,
    time_text,
)
from stream_metrics.cli.kafka import run_kafka
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.producer import open_producer, send_all
from stream_metrics.clients.kafka.topics import partition_counts
from stream_metrics.core.events.decode import REASONS, Event, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.live.kafka.dead_letter_reader import (
    ForgetVersion,
    Forgotten,
    Letter,
    RecordId,
    Resubmitted,
    format_record_id,
    read_letters,
    resubmission,
    resubmitted_mark,
)

BATCH_SIZE: Final = 100
REFUSED_LISTED: Final = 20
WIDTH: Final = 250  # terminals wrap lines themselves, and files must not be truncated

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


async def read_letter_index(settings: Settings, topics: list[str]) -> LetterIndex:
    """Everything on the dead-letter topics of ``topics``, without the values."""
    index, limits = LetterIndex(), settings.engine_config().limits
    async with aclosing(read_letters(settings.kafka, topics)) as letters:
        async for found in letters:
            if isinstance(found, Resubmitted):
                index.resubmitted[found.place] = found.at
            elif isinstance(found, Forgotten):
                until = index.forgotten.get(found.conversation, found.until)
                index.forgotten[found.conversation] = max(until, found.until)
            else:
                index.letters.setdefault(found.place, LetterSummary.of(found, limits))
    return index


def _topics(settings: Settings, topic: str | None) -> list[str]:
    if topic is not None and topic not in settings.kafka.topics:
        raise UsageError(f"--topic {topic!r} is not an input topic; use one of kafka.topics")
    return [topic] if topic else list(settings.kafka.topics)


def _with_traces(settings: Settings, topic: str | None) -> list[str]:
    """As ``_topics``, with the topic of traces if it is requested or a bridge is configured."""
    if topic == settings.bridge.topic:
        return [topic]
    traces = [settings.bridge.topic] if "bridge" in settings.model_fields_set else []
    return _topics(settings, topic) + (traces if topic is None else [])


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
    config: ConfigOption = None,
) -> None:
    """List dead letters: where each record was read and why it was rejected.

    First come the counts for each topic and reason, with the times at which the first and the last
    dead letter were written. `dlq show` prints one dead letter whole.

    After a failure the same dead letter may be stored twice; it is listed once, by topic, partition
    and offset. The state column says whether it was resubmitted, is truncated (its value was too
    large to be stored whole), or belongs to a forgotten conversation.
    """
    settings = load_settings(config)
    index = run_kafka(settings, read_letter_index(settings, _with_traces(settings, topic)))
    letters = [index.letters[place] for place in sorted(index.letters)][:limit]
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


@dataclass(slots=True)
class _Choice:
    """The letters to send, and the numbers of those that are skipped, by reason."""

    letters: list[LetterSummary] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def dlq_resubmit(
    topic: TopicOption = None,
    reason: Annotated[
        str | None,
        typer.Option(
            help="Only dead letters with this reason, such as over_limit.", show_default=False
        ),
    ] = None,
    place: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this dead letter, given as TOPIC/PARTITION/OFFSET. May be repeated.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also dead letters that were resubmitted before.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent without sending anything.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: ConfigOption = None,
) -> None:
    """Send the records of dead letters to their input topics again, after a fix.

    Each is sent with its original key, value, partition and timestamp. An event that was already
    counted is not counted again. Choose dead letters with --topic, --reason and --place (all that
    are given must match), or take --all. Truncated ones, those of forgotten conversations, and
    those resubmitted before are not sent.
    """
    settings = load_settings(config)
    places = {parse_place(text, settings) for text in place or ()}
    if everything == bool(topic or reason or places):
        raise UsageError("choose letters with --topic, --reason or --place, or all with --all")
    if reason is not None and reason not in REASONS:
        raise UsageError(f"--reason {reason!r}: use one of {', '.join(REASONS)}")
    topics = _topics(settings, topic)
    index = run_kafka(settings, read_letter_index(settings, topics))
    if absent := places - index.letters.keys():
        raise UsageError(f"no dead letter of {', '.join(sorted(map(format_record_id, absent)))}")
    choice = choose(index, reason, places, again=again)
    _print_choice(choice)
    if not choice.letters or dry_run:
        if choice.letters:
            Console(width=WIDTH).print(table_of(choice.letters, _validity))
            typer.echo("nothing was sent (--dry-run)")
        return
    _confirm(len(choice.letters), yes=yes)
    sent, refused = run_kafka(settings, _resubmit(settings, topics, choice.letters))
    typer.echo(f"{sent:,} re-submitted")
    if refused:
        for line in refused[:REFUSED_LISTED]:
            typer.echo(f"not sent: {line}", err=True)
        raise UsageError(
            f"{len(refused):,} letters were not sent; fix the errors above, and run this again"
        )


PLACE: Final = "--place"


def parse_place(text: str, settings: Settings, given_as: str = PLACE) -> RecordId:
    named = f"{given_as} {text!r}"
    parts = _PLACE.fullmatch(text)
    if parts is None:
        raise UsageError(f"{named}: write TOPIC/PARTITION/OFFSET, as `dlq list` shows it")
    topic, number, offset = parts.groups()
    known = (*settings.kafka.topics, settings.bridge.topic)
    if topic not in (settings.kafka.topics if given_as == PLACE else known):
        raise UsageError(f"{named}: {topic!r} is not an input topic; use one of kafka.topics")
    return topic, int(number), int(offset)


def choose(
    index: LetterIndex, reason: str | None, places: set[RecordId], *, again: bool
) -> _Choice:
    choice = _Choice()
    for place, listed in sorted(index.letters.items()):
        if places and place not in places:
            continue
        if reason is not None and listed.letter.headers["error.class"] != reason:
            continue
        if index.is_forgotten(listed):
            choice.skipped["of forgotten conversations"] += 1
        elif listed.letter.cut:
            choice.skipped["cut (key or value is not whole)"] += 1
        elif place in index.resubmitted and not again:
            choice.skipped["re-submitted before (--again sends them too)"] += 1
        else:
            choice.letters.append(listed)
    return choice


def _print_choice(choice: _Choice) -> None:
    kinds = Counter(
        (listed.letter.record.topic, listed.letter.headers["error.class"])
        for listed in choice.letters
    )
    for (topic, reason), count in sorted(kinds.items()):
        typer.echo(f"to re-submit to {topic}, rejected as {printable(reason)}: {count:,}")
    if vain := sum(listed.version is None for listed in choice.letters):
        typer.echo(f"of these, still invalid under these settings, to be rejected again: {vain:,}")
    for why, count in sorted(choice.skipped.items()):
        typer.echo(f"skipped, {why}: {count:,}")
    if not choice.letters:
        typer.echo("nothing to re-submit")


def _validity(listed: LetterSummary) -> str:
    return "still invalid" if listed.version is None else ""


def _confirm(count: int, *, yes: bool) -> None:
    if not confirm(f"Re-submit {count:,} records?", "re-submit", yes=yes):
        raise UsageError("nothing was sent")


async def _resubmit(
    settings: Settings, topics: list[str], chosen: list[LetterSummary]
) -> tuple[int, list[str]]:
    """Send the records of the chosen letters, and mark those that are stored.

    Returns how many are stored, and a line for each that failed.
    """
    counts = await partition_counts(settings.kafka, topics)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sent, refused = 0, []
    async with (
        open_producer(settings.kafka) as producer,
        aclosing(_with_values(settings, topics, chosen)) as parts,
    ):
        async for part in parts:
            there = []
            for letter in part:
                if letter.record.partition < counts.get(letter.record.topic, 0):
                    there.append(letter)
                else:
                    refused.append(f"{format_record_id(letter.place)}: there is no such partition")
            answers = await send_all(producer, map(resubmission, there))
            stored = []
            for letter, error in zip(there, answers, strict=True):
                if error is None:
                    stored.append(letter)
                else:
                    refused.append(
                        f"{format_record_id(letter.place)}: {type(error).__name__}: {error}"
                    )
            sent += len(stored)
            marks = await send_all(producer, (resubmitted_mark(one, at) for one in stored))
            for error in filter(None, marks):
                raise UsageError(
                    f"{sent:,} records were re-submitted, but cannot be marked as such: "
                    f"{type(error).__name__}: {error}. Sending them again does no harm"
                )
    return sent, refused


async def _with_values(
    settings: Settings, topics: list[str], chosen: list[LetterSummary]
) -> AsyncGenerator[list[Letter], None]:
    """Read the chosen letters again, with their values, in batches; each letter once."""
    wanted = {listed.letter.stored_at for listed in chosen}
    concerned = {listed.letter.record.topic for listed in chosen}
    part: list[Letter] = []
    stored = read_letters(settings.kafka, [topic for topic in topics if topic in concerned])
    async with aclosing(stored) as letters:
        async for found in letters:
            if isinstance(found, Letter) and found.stored_at in wanted:
                wanted.discard(found.stored_at)
                part.append(found)
                if len(part) >= BATCH_SIZE:
                    yield part
                    part = []
    if part:
        yield part
