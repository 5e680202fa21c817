"""What sources of traces are: the files of a folder, and the records that are no traces."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import typer

from stream_metrics.cli.common import UsageError, printable
from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.otlp.payloads import is_payload, other_signal, spans_of
from stream_metrics.core.telemetry.otlp.protobuf import are_protobuf_logs
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.files import numbered_records
from stream_metrics.lab.sources.unchanged import InputError
from stream_metrics.live.local.folder import is_log

MAX_NAMED: Final = 3
MAX_SOURCES: Final = 100


@dataclass(slots=True)
class OtherRecords:
    """What the records are that are no traces: events, other OTLP signals, or neither.

    ``sources`` are the names of the first files and topics that have some.
    """

    events: int = 0
    signals: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    sources: dict[str, None] = field(default_factory=dict)

    def add(self, source: str, value: bytes, limits: Limits) -> None:
        """Add a record of a file or topic."""
        if len(self.sources) < MAX_SOURCES:
            self.sources[source] = None
        signal = other_signal(value) or ("logs" if are_protobuf_logs(value) else None)
        read = None if signal else decode(value, limits=limits)
        if signal is not None:
            self.signals[signal] += 1
        elif isinstance(read, BadRecord) and read.reason in ("not_json", "unknown_type"):
            self.unknown += 1
        else:
            self.events += 1

    @property
    def counts(self) -> dict[str, int]:
        """The number of records of each kind."""
        found = {"events": self.events, **self.signals, "unknown": self.unknown}
        return {kind: number for kind, number in found.items() if number}


def with_folders(sources: Sequence[str]) -> list[str]:
    """The sources, with the files with traces instead of each folder, and what else is in it told
    on standard error.

    Raises ``UsageError`` for a folder without traces.
    """
    found: list[str] = []
    for source in sources:
        # No folder, or one that cannot be looked at, or one that has a log.
        if not os.path.isdir(source) or is_log(Path(source)):
            found.append(source)
            continue
        files, others = _trace_files(Path(source))
        if not files:
            raise UsageError(
                f"{source}: no file in this folder begins with OTLP traces; give files of other "
                "kinds by name, or as a glob in quotes"
            )
        if others:
            named = named_first([str(path.relative_to(source)) for path in others])
            typer.echo(
                printable(f"{source}: left aside what does not begin with traces: {named}"),
                err=True,
            )
        found += map(str, files)
    return found


def named_first(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are.

    >>> named_first(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _trace_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files in a folder, at any depth, that begin with OTLP traces, and those that do not."""
    found: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            (found if _begins_with_traces(path) else others).append(path)
    return found, others


def _begins_with_traces(path: Path) -> bool:
    with closing(numbered_records(str(path))) as records, suppress(InputError, OtlpError):
        first = next(records, None)
        if first is not None and is_payload(first[1].value):
            spans_of(first[1].value or b"")
            return True
    return False
