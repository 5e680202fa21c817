"""What several commands share: settings, times, errors."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from pydantic import ValidationError
from rich.console import Console

from stream_metrics.adapters.kafka.errors import KafkaRefused
from stream_metrics.adapters.kafka.rights import explain
from stream_metrics.evaluation.estimates import Intervals
from stream_metrics.events.decode import EARLIEST_US, LATEST_US
from stream_metrics.events.times import parse_rfc3339
from stream_metrics.options import check_settings
from stream_metrics.settings.lab import EvaluationSettings
from stream_metrics.settings.whole import Settings

TIMES: Final = (
    "Write RFC 3339, such as 2024-05-01T12:00:00Z, or the microseconds since 1970, such as "
    "1714564800000000"
)


class UsageError(Exception):
    """Something the user gave cannot be used; the message says what to do. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of ``check``: ``state`` is ok, warning or error."""

    what: str
    state: str
    message: str


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with settings.", show_default=False),
]

Format = Literal["table", "json"]

FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="A table for people, or JSON for programs: one object per line on standard output.",
    ),
]

TurnScopeOption = Annotated[
    Literal["last", "all"] | None,
    typer.Option(
        help="Rows of each conversation's last turn, or of all turns. Default: "
        "`metrics.turn_scope`.",
        show_default=False,
    ),
]

OutOption = Annotated[Path, typer.Option("--out", help="Directory for the files.")]

NowOption = Annotated[
    str | None,
    typer.Option(
        "--now",
        help="End of the windows, in RFC 3339 or Unix microseconds. Default: the latest event.",
        show_default=False,
    ),
]


def load_settings(config: Path | None) -> Settings:
    """Settings from environment and file; raises ``UsageError`` for a file that is not there."""
    if config is not None:
        if not config.is_file():
            raise UsageError(f"{config}: no such settings file")
        os.environ["STREAM_METRICS_CONFIG"] = str(config)
    try:
        settings = Settings()
        check_settings(settings)
    except ValidationError:
        raise
    except (ValueError, OSError) as error:
        raise UsageError(f"settings: {error}") from error
    return settings


def intervals_of(chosen: EvaluationSettings) -> Intervals | None:
    """How the settings make intervals; None if there are to be none."""
    if not chosen.confidence_intervals:
        return None
    return Intervals(chosen.interval, chosen.confidence, chosen.resamples, chosen.seed)


def kafka_reason(settings: Settings, error: Exception) -> str:
    """What is behind an error of Kafka's client."""
    try:
        return asyncio.run(explain(settings.kafka, error))
    except KafkaRefused as refused:
        return str(refused)


def parse_time(option: str, text: str) -> int:
    """The time that an option names, in microseconds; raises ``UsageError``, which says how.

    >>> parse_time("--now", "2024-05-01T12:00:00Z")
    1714564800000000
    """
    number = text.isascii() and text.isdigit()
    instant = int(text) if number else parse_rfc3339(text)
    if instant is None:
        raise UsageError(f"{option} {text!r} is not a time. {TIMES}")
    if number and not EARLIEST_US <= instant < LATEST_US:
        raise UsageError(f"{option} {text} is not a time in microseconds. {TIMES}")
    return instant


def make_directory(path: Path) -> None:
    """Create the output directory; raises ``UsageError`` where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from error


def confirmed(question: str, purpose: str, *, yes: bool) -> bool:
    """Whether whoever typed the command says yes to ``question``; ``yes``: without being asked.

    Raises ``UsageError`` where nobody can answer: ``purpose`` says what ``--yes`` would do.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"there is no terminal for confirmation; use --yes to {purpose} without being asked"
        )
    return typer.confirm(question, err=True)


def time_text(ms: int) -> str:
    """A time in milliseconds as RFC 3339, or as it is where there is no such date.

    >>> time_text(1_718_020_800_000)
    '2024-06-10T12:00:00.000Z'
    """
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def printable(text: str) -> str:
    r"""``text`` on one line and without anything that a terminal would act on.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def said() -> Console:
    """Where commands tell what they do."""
    return Console(stderr=True, highlight=False, soft_wrap=True)
