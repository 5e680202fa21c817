"""Code that several commands share: options, settings, times, errors."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # the help of a command needs neither settings nor events
    from stream_metrics.cli.settings import Settings

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIMES: Final = (
    "Write RFC 3339, such as 2024-05-01T12:00:00Z, or the microseconds since 1970, such as "
    "1714564800000000"
)
CHECKED_BY_CLIENTS: Final = {"kafka", "notify", "redis", "web"}
"""Tables of settings that only the clients can check. Their defaults need no check."""


class UsageError(Exception):
    """Invalid input; the message says what to do. The exit code is 2."""


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

BuildOption = Annotated[
    bool,
    typer.Option(
        "--build",
        help="Read the generation that is being built, even if the settings fit the one in force "
        "as well.",
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


def load_settings(config: Path | None, *, connects: bool = True) -> Settings:
    """Load settings from the environment and a file; raises ``UsageError``.

    With ``connects``, for commands that use Kafka, Redis or the web pages, that is also raised for
    settings that only their clients can check, such as certificates.
    """
    from pydantic import ValidationError

    from stream_metrics.cli.settings import Settings

    if config is not None:
        if not config.is_file():
            raise UsageError(f"{config}: no such settings file")
        os.environ["STREAM_METRICS_CONFIG"] = str(config)
    try:
        settings = Settings()
        if connects and settings.model_fields_set & CHECKED_BY_CLIENTS:
            from stream_metrics.cli.client_options import check_settings  # imports all clients

            check_settings(settings)
    except ValidationError:
        raise
    except (ValueError, OSError) as error:
        raise UsageError(f"settings: {error}") from error
    return settings


def parse_time(option: str, text: str) -> int:
    """Parse the time of an option, in microseconds; raises ``UsageError``.

    >>> parse_time("--now", "2024-05-01T12:00:00Z")
    1714564800000000
    """
    from stream_metrics.core.events.decode import EARLIEST_US, LATEST_US
    from stream_metrics.core.events.times import parse_rfc3339

    number = text.isascii() and text.isdigit()
    instant = int(text) if number else parse_rfc3339(text)
    if instant is None:
        raise UsageError(f"{option} {text!r} is not a time. {TIMES}")
    if number and not EARLIEST_US <= instant < LATEST_US:
        raise UsageError(f"{option} {text} is not a time in microseconds. {TIMES}")
    return instant


def make_directory(path: Path) -> None:
    """Create the output directory; raises ``UsageError`` if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from error


def confirm(question: str, purpose: str, *, yes: bool) -> bool:
    """Ask the user to confirm ``question``; with ``yes``, return True without asking.

    Raises ``UsageError`` if there is no terminal; ``purpose`` says what ``--yes`` would do.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"there is no terminal for confirmation; use --yes to {purpose} without being asked"
        )
    with answered(purpose):
        return typer.confirm(question, err=True)


@contextmanager
def answered(purpose: str) -> Iterator[None]:
    """Raise ``UsageError`` if a question is not answered; ``purpose`` says what ``--yes`` would
    do.

    Ctrl-C is no answer at once, also where an event loop waits for the question and would only note
    it.
    """
    try:
        with _interruptible():
            yield
    except typer.Abort:
        typer.echo(err=True)  # ends the line of the question
        raise UsageError(
            f"there was no answer; use --yes to {purpose} without being asked"
        ) from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt``."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def time_text(ms: int) -> str:
    """A time in milliseconds as RFC 3339; the number itself if it is out of range.

    >>> time_text(1_718_020_800_000)
    '2024-06-10T12:00:00.000Z'
    """
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def printable(text: str) -> str:
    r"""``text`` on one line, with control characters escaped.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def day_and_time(micros: int) -> str:
    """A time in microseconds for people, to the second.

    >>> day_and_time(1_718_020_800_999_999)
    '2024-06-10 12:00:00Z'
    """
    return f"{EPOCH + timedelta(microseconds=micros):%Y-%m-%d %H:%M:%SZ}"


def text_table(
    heads: Iterable[str], rows: Iterable[Iterable[str]], right: Collection[str] = ()
) -> Table:
    """A table with a line per row; columns whose heads are in ``right`` are aligned right."""
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, no_wrap=True, justify="right" if head in right else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def stderr_console() -> Console:
    """A console on standard error, for messages."""
    return Console(stderr=True, highlight=False, soft_wrap=True)
