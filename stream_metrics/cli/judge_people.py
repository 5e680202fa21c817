"""``stream-metrics judge export-for-people``, ``import``: what people grade, and their labels."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    load_settings,
    parse_time,
    printable,
    stderr_console,
)
from stream_metrics.cli.judge_sources import check_key, sampled_turns, settings_and_sources
from stream_metrics.cli.label_events import (
    GivenOption,
    IntoKafkaOption,
    checked_labels,
    hand_over,
)
from stream_metrics.cli.places import DataOption
from stream_metrics.cli.sources import SinceOption, UntilOption
from stream_metrics.core.engine.beyond_limit import counted
from stream_metrics.core.judge.people import (
    LISTED_ROWS,
    Filled,
    FilledError,
    LeftOut,
    Row,
    decode_lines,
    people_events,
    rows,
)
from stream_metrics.core.judge.sheet import decode_sheet, encode_sheet
from stream_metrics.core.judge.turns import HELP
from stream_metrics.lab.sources.unchanged import InputError
from stream_metrics.live.judge.settings import JudgeSettings

LISTED = 20


def export_for_people(
    file: Annotated[
        Path,
        typer.Argument(
            help="The file to write: a table for spreadsheets if its name ends with .csv, else a "
            "JSON object a line.",
            metavar="FILE",
        ),
    ],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recordings, OTLP traces, kafka:TOPIC or the folder of `serve`. Default: the "
            "input topics.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="The share of conversations; at most `judge.rate`. Default: `judge.people_rate`.",
            show_default=False,
        ),
    ] = None,
    data: DataOption = None,
    since: SinceOption = "earliest",
    until: UntilOption = "end",
    config: ConfigOption = None,
) -> None:
    """Write what people need in order to grade a part of the model's sample.

    FILE gets a row for each document of each turn: question, query, title and text, and a
    [bold]grade[/bold] to fill in, from 0 to 4. Only its owner can read it, and an existing file is
    not overwritten. [bold]judge import[/bold] reads it when it is filled in.

    The conversations are drawn as judges draw them, so each is in the model's sample, too.
    """
    settings, read = settings_and_sources(config, sources, data)
    check_key(settings)
    chosen = settings.judge.share_of_people if rate is None else rate
    if chosen > settings.judge.rate:
        raise UsageError(
            f"--rate {chosen:g} is above judge.rate, {settings.judge.rate:g}: people label a part "
            "of the model's sample"
        )
    unusable = Counter[str]()
    turns = documents = 0
    drawn = set[str]()
    to_grade: list[Row] = []
    conversations, works = sampled_turns(read, settings, since, until, chosen)
    for work in works:
        if work.problem is not None:
            unusable[work.problem] += 1
            continue
        turns += 1
        drawn.add(work.conversation_id)
        documents += len(work.asks)
        to_grade += rows(work)
    console, cut = stderr_console(), 0
    if _is_sheet(file):
        written, cut = encode_sheet(to_grade)
    else:
        written = b"".join(msgspec.json.encode(row) + b"\n" for row in to_grade)
    _write_private(file, written)
    console.print(
        f"{len(drawn):,} of {counted(conversations, 'conversation')} "
        f"({_share(settings.judge, rate)}), {counted(turns, 'turn')}, "
        f"{counted(documents, 'document')} to grade, in {file}",
        markup=False,
    )
    if cut:
        texts = counted(cut, "text is", "texts are")
        console.print(f"{texts} cut, because a cell of a spreadsheet does not hold more")
    for reason, helps in HELP.items():
        if unusable[reason]:
            missing = counted(unusable[reason], "turn")
            console.print(f"left out: {missing}, {reason}: {helps}", markup=False)


def _share(judge: JudgeSettings, rate: float | None) -> str:
    """The share of conversations, and which setting says so.

    >>> _share(JudgeSettings(), None), _share(JudgeSettings(rate=1.0, people_rate=0.3), None)
    ('judge.people_rate is not set: 1%', 'judge.people_rate 30%')
    """
    if rate is not None:
        return f"--rate {100 * rate:.4g}%"
    share = f"{100 * judge.share_of_people:.4g}%"
    if "people_rate" in judge.model_fields_set:
        return f"judge.people_rate {share}"
    return f"judge.people_rate is not set: {share}"


def _is_sheet(file: Path) -> bool:
    return file.suffix.lower() == ".csv"


def _write_private(file: Path, data: bytes) -> None:
    """Write a new file that only its owner can read, as a whole or not at all."""
    try:
        place = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(
            f"{file} is there already, maybe with grades: choose another name"
        ) from None
    try:
        with open(place, "wb") as target:
            target.write(data)
    except OSError:
        with suppress(OSError):
            file.unlink()
        raise


def import_people(
    file: Annotated[
        Path,
        typer.Argument(help="A file of `judge export-for-people`, with grades.", metavar="FILE"),
    ],
    labeller: Annotated[
        str | None,
        typer.Option(help="Who gave the grades, for the events.", show_default=False),
    ] = None,
    into_kafka: IntoKafkaOption = False,
    given: GivenOption = None,
    config: ConfigOption = None,
) -> None:
    """Turn the grades that people gave into relevance labels, and print them.

    Labels are `relevance_labels` events, an object a line, as [bold]send[/bold] takes them. They
    say that their turns were drawn at random, so a turn is left out and listed if not all its
    documents have a grade, or if they are not those that were exported. Exit code 2 if none can be
    used, or if a grade is not from 0 to 4.
    The same file gives the same events, so sending them twice has no effect.
    """
    settings = load_settings(config, connects=into_kafka)
    time_us = os.stat(file).st_mtime_ns // 1000 if given is None else parse_time("--time", given)
    events, left_out = people_events(_filled(file), time_us, labeller)
    console = stderr_console()
    for one in left_out[:LISTED]:
        where = f"conversation {one.conversation_id!r}, turn {one.turn}"
        why = one.why + _places(one, "row" if _is_sheet(file) else "line")
        console.print(printable(f"left out: {where}: {why}"), markup=False)
    if len(left_out) > LISTED:
        console.print(f"not listed: {counted(len(left_out) - LISTED, 'more turn')}")
    if not events:
        raise UsageError(f"{file}: no turn gives labels")
    hand_over(checked_labels(events, settings), settings, into_kafka=into_kafka)


def _places(left_out: LeftOut, place: str) -> str:
    """Where the documents are that have no grade: the first of them.

    >>> _places(LeftOut("c", 1, "", [2, 3, 9]), "row")
    ', in rows 2, 3, 9'
    """
    numbers = left_out.numbers
    if not numbers:
        return ""
    first = ", ".join(map(str, numbers[:LISTED_ROWS]))
    more = len(numbers) - LISTED_ROWS
    others = f", and {more:,} more" if more > 0 else ""
    return f", in {place}{'s' if len(numbers) > 1 else ''} {first}{others}"


def _filled(file: Path) -> list[Filled]:
    """The rows of a file; raises ``InputError``, which names those that are none."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    try:
        return decode_sheet(data) if _is_sheet(file) else decode_lines(data)
    except FilledError as error:
        raise InputError(f"{file}: {error}") from error
