"""Shows the progress of a replay: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from stream_metrics.lab.replay import run

PLAIN_EVERY = 100_000
PLAIN_STEPS = 10


@contextmanager
def show_progress(expected: Callable[[], int]) -> Iterator[run.Progress]:
    """Show progress on standard error; ``expected`` returns the record count, or 0 if unknown."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, expected)


class _Lines:
    """Progress as lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._read = self._shown = 0

    def note(self, text: str) -> None:
        self._console.print(text, markup=False)

    def read(self, records: int) -> None:
        if records - self._read >= PLAIN_EVERY:
            self._read = records
            self.note(f"{records:,} records read")

    def computed(self, pieces: int, of: int) -> None:
        if pieces == of or pieces * PLAIN_STEPS // of > self._shown:
            self._shown = pieces * PLAIN_STEPS // of
            self.note(f"{pieces} of {of} pieces computed")

    def merging(self) -> None:
        self.note("merging")


class _Bar:
    """Progress as a bar per stage."""

    def __init__(self, progress: Progress, expected: Callable[[], int]) -> None:
        self._progress, self._expected = progress, expected
        self._task = progress.add_task("reading", total=None)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False)

    def read(self, records: int) -> None:
        self._progress.update(self._task, completed=records, total=self._expected() or None)

    def computed(self, pieces: int, of: int) -> None:
        self._progress.update(self._task, description="computing", completed=pieces, total=of)

    def merging(self) -> None:
        self._progress.update(self._task, description="merging")
