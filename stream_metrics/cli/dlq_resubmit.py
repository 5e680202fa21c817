"""``stream-metrics dlq resubmit``: sends the records of dead letters again."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.console import Console

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    confirm,
    printable,
)
from stream_metrics.cli.dlq import (
    WIDTH,
    LetterIndex,
    LetterSummary,
    TopicOption,
    input_topics,
    parse_place,
    read_letter_index,
    table_of,
)
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.core.events.decode import REASONS
from stream_metrics.live.letters import (
    Letter,
    RecordId,
    format_record_id,
    resubmission,
    resubmitted_mark,
)

BATCH_SIZE: Final = 100
REFUSED_LISTED: Final = 20


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
    places_: Annotated[
        list[str] | None,
        typer.Option(
            "--place",
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
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Send the records of dead letters to their input topics again, after a fix.

    Each is sent with its original key, value, partition and timestamp. An event that was already
    counted is not counted again. Choose dead letters with --topic, --reason and --place (all that
    are given must match), or take --all. Truncated ones, those of forgotten conversations, and
    those resubmitted before are not sent.
    """
    place = place_of(config, data)
    settings = place.settings
    places = {parse_place(text, settings) for text in places_ or ()}
    if everything == bool(topic or reason or places):
        raise UsageError("choose letters with --topic, --reason or --place, or all with --all")
    if reason is not None and reason not in REASONS:
        raise UsageError(f"--reason {reason!r}: use one of {', '.join(REASONS)}")
    topics = input_topics(settings, topic)
    index = place.run(read_letter_index(place, topics))
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
    sent, refused = place.run(_resubmit(place, topics, choice.letters))
    typer.echo(f"{sent:,} re-submitted")
    if refused:
        for line in refused[:REFUSED_LISTED]:
            typer.echo(f"not sent: {line}", err=True)
        raise UsageError(
            f"{len(refused):,} letters were not sent; fix the errors above, and run this again"
        )


def choose(
    index: LetterIndex, reason: str | None, places: set[RecordId], *, again: bool
) -> _Choice:
    """The letters with this reason and of these places, or any, and why others are skipped."""
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
    place: Place, topics: list[str], chosen: list[LetterSummary]
) -> tuple[int, list[str]]:
    """Send the records of the chosen letters, and mark those that are stored.

    Returns how many are stored, and a line for each that failed.
    """
    counts = await place.partition_counts(topics)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sent, refused = 0, []
    async with (
        place.sending() as send,
        aclosing(_with_values(place, topics, chosen)) as parts,
    ):
        async for part in parts:
            there = []
            for letter in part:
                if letter.record.partition < counts.get(letter.record.topic, 0):
                    there.append(letter)
                else:
                    refused.append(f"{format_record_id(letter.place)}: there is no such partition")
            answers = await send(map(resubmission, there))
            stored = []
            for letter, error in zip(there, answers, strict=True):
                if error is None:
                    stored.append(letter)
                else:
                    refused.append(
                        f"{format_record_id(letter.place)}: {type(error).__name__}: {error}"
                    )
            sent += len(stored)
            marks = await send(resubmitted_mark(one, at) for one in stored)
            for error in filter(None, marks):
                raise UsageError(
                    f"{sent:,} records were re-submitted, but cannot be marked as such: "
                    f"{type(error).__name__}: {error}. Sending them again does no harm"
                )
    return sent, refused


async def _with_values(
    place: Place, topics: list[str], chosen: list[LetterSummary]
) -> AsyncGenerator[list[Letter], None]:
    """Read the chosen letters again, with their values, in batches; each letter once."""
    wanted = {listed.letter.stored_at for listed in chosen}
    concerned = {listed.letter.record.topic for listed in chosen}
    part: list[Letter] = []
    stored = place.letters([topic for topic in topics if topic in concerned])
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
