"""Writes series over time as OpenMetrics, from which ``promtool`` creates Prometheus blocks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.series import HELP, PREFIX, series_line
from stream_metrics.core.events.times import MICROS
from stream_metrics.lab.history import Course

_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(slots=True)
class WrittenCounts:
    """The number of series and samples written."""

    series: int = 0
    samples: int = 0


def valid_label(name: str) -> bool:
    """Whether a name is a valid Prometheus label name that is not reserved.

    >>> valid_label("job"), valid_label("__name__"), valid_label("a-b")
    (True, False, False)
    """
    return _LABEL.fullmatch(name) is not None


def write_openmetrics(
    path: Path,
    courses: Iterable[Course],
    steps_us: range,
    dimension: str,
    labels: Mapping[str, str],
) -> WrittenCounts:
    """Write series as OpenMetrics text, by family, each series in the order of time.

    ``labels`` are added to every series. Each family is first written to a temporary file next to
    ``path``, so that memory does not grow with the time range.
    """
    times = [f"{step_us / MICROS:.3f}".rstrip("0").rstrip(".") for step_us in steps_us]
    done = WrittenCounts()
    with ExitStack() as opened:
        parts: dict[str, IO[str]] = {}
        for course in courses:
            head, text = series_line(
                dimension, course.agent, course.window, course.code, tuple(labels.items())
            )
            part = parts.get(head)
            if part is None:
                part = parts[head] = opened.enter_context(
                    TemporaryFile("w+", encoding="utf-8", newline="\n", dir=path.parent)
                )
            part.writelines(
                f"{text}{value} {at}\n" for value, at in zip(course.values, times, strict=True)
            )
            done.series += 1
            done.samples += len(times)
        out = opened.enter_context(path.open("w", encoding="utf-8", newline="\n"))
        for head, series in CODES.items():
            if head in parts:
                name = PREFIX + series.name
                out.write(f"# HELP {name} {HELP[head]}\n# TYPE {name} gauge\n")
                parts[head].seek(0)
                shutil.copyfileobj(parts[head], out)
        out.write("# EOF\n")
    return done
