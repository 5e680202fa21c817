"""Read evaluators' scores of documents from tables, OTLP logs and OTLP traces."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from stream_metrics.core.events.foreign import HEAD_BYTES, foreign_file, foreign_form
from stream_metrics.core.telemetry import Evaluation, Grading, Role, SpanMapping, UnusedScore
from stream_metrics.core.telemetry.labels.evaluations import (
    NO_SPAN,
    RESULT,
    evaluation_of_record,
    evaluation_of_row,
    evaluations_of_span,
)
from stream_metrics.core.telemetry.otlp.logs import are_json_logs, log_records_of
from stream_metrics.core.telemetry.otlp.payloads import is_json, is_protobuf, spans_of
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.collection.lines import read_bytes
from stream_metrics.lab.sources.json_values import InvalidJson, json_values
from stream_metrics.lab.sources.otlp.framing import frames, is_framed
from stream_metrics.lab.sources.packing import PARQUET, detect_packing
from stream_metrics.lab.sources.parquet import ParquetError, read_rows
from stream_metrics.lab.sources.unchanged import InputError

LISTS: Final = ("data", "annotations", "evaluations")
"""The keys under which an object may contain a list of rows."""


@dataclass(slots=True)
class EvaluationReader:
    """Collects the evaluations in files and records.

    ``unused`` lists the rows that are not evaluations. ``others`` counts log records and spans
    without an evaluation.
    """

    mapping: SpanMapping
    grading: Grading
    evaluations: list[Evaluation] = field(default_factory=list)
    unused: list[UnusedScore] = field(default_factory=list)
    others: int = 0

    def file(self, path: str, time_us: int | None) -> None:
        """Read a file, or standard input for ``-``.

        Rows without a time get ``time_us`` or, if it is None, the file's modification time. Raises
        ``InputError`` for a file that cannot be read.
        """
        name = "standard input" if path == "-" else path
        if time_us is None and path != "-":
            time_us = _changed_us(path)
        try:
            if path != "-" and _is_parquet(path):
                self._rows(((number, row) for number, row in read_rows(path)), name, time_us)
                return
            data = sys.stdin.buffer.read() if path == "-" else read_bytes(Path(path))
            if (form := foreign_file(data[:HEAD_BYTES])) is not None:
                raise InputError(f"{name}: it looks like {form}")
            if is_framed(data[:4096]):
                for number, payload in enumerate(frames(io.BytesIO(data)), 1):
                    self.payload(payload, f"{name}, payload {number}", time_us)
            elif is_protobuf(data):
                self.payload(data, name, time_us)
            elif data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
                self._json(data, name, time_us)
            else:
                self._rows(_csv(data, name), name, time_us)
        except (OtlpError, ParquetError) as error:
            raise InputError(f"{name}: {error}") from error

    def record(self, value: bytes | None, origin: str, time_us: int | None) -> None:
        """Read a record of a topic: logs, traces or a row."""
        text = (value or b"").lstrip()
        try:
            if text[:1] in (b"{", b"["):
                self._json(text, origin, time_us)
            elif text:
                self.payload(value or b"", origin, time_us)
        except (OtlpError, InputError) as error:
            self._refuse(origin, str(error))

    def payload(self, value: bytes, origin: str, time_us: int | None) -> None:
        """Read an export of logs or traces; raises ``OtlpError``."""
        if is_json(value):
            self._spans(value, origin)
            return
        try:
            records = log_records_of(value)
        except OtlpError:
            if are_json_logs(value):
                raise
            records = []
        if not are_json_logs(value) and not any(one.trace_id or one.event for one in records):
            self._spans(value, origin)
            return
        for number, one in enumerate(records, 1):
            when = one.time_ns // 1000 or time_us
            if one.event != RESULT:
                self.others += 1
            elif when is None:
                self._refuse(f"{origin}, record {number}", "it has no time; give one with --time")
            else:
                place = f"{origin}, record {number}"
                self.evaluations.append(
                    evaluation_of_record(
                        one.attributes, self.grading, place, one.trace_id, one.span_id, when
                    )
                )

    def _spans(self, value: bytes, origin: str) -> None:
        """Read the evaluations of spans, which concern the linked or enclosing span."""
        for span in spans_of(value):
            row = self.mapping.row(span)
            evaluator = row if row is not None and row.role is Role.EVALUATOR else None
            found = list(evaluations_of_span(span, evaluator, self.grading))
            self.others += not found
            self.evaluations += [
                replace(one, origin=f"{origin}, span {span.span_id}") for one in found
            ]

    def _json(self, data: bytes, name: str, time_us: int | None) -> None:
        try:
            for value in json_values(data):
                place = f"{name}:{value.line}"
                if is_json(value.text) or are_json_logs(value.text):
                    self.payload(value.text, place, time_us)
                    continue
                content = json.loads(value.text)
                held = [content] if isinstance(content, list) else []
                if isinstance(content, dict):
                    held = [content[at] for at in LISTS if isinstance(content.get(at), list)]
                if not held:
                    self._row(content, place, time_us)
                for number, row in enumerate(chain.from_iterable(held), 1):
                    self._row(row, f"{place}, row {number}", time_us)
        except InvalidJson as error:
            raise InputError(f"{name}:{error.line}: {error}") from error

    def _rows(self, rows: Iterable[tuple[int, Any]], name: str, time_us: int | None) -> None:
        for number, row in rows:
            self._row(row, f"{name}:{number}", time_us)

    def _row(self, row: Any, origin: str, time_us: int | None) -> None:
        if not isinstance(row, dict):
            self._refuse(origin, "it is not an object with columns")
            return
        try:
            self.evaluations.append(evaluation_of_row(row, self.grading, origin, time_us))
        except ValueError as error:
            form = foreign_form(row) if str(error).startswith(NO_SPAN) else None
            self._refuse(origin, str(error) if form is None else f"it looks like {form}")

    def _refuse(self, origin: str, message: str) -> None:
        self.unused.append(UnusedScore(origin, "label_malformed", message))


def _csv(data: bytes, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a CSV file, each preceded by its line number; raises ``InputError``."""
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        for row in reader:
            if None in row:
                raise InputError(f"{name}:{reader.line_num}: more values than there are columns")
            yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: neither JSON, Parquet, OTLP nor CSV in UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{name}: not CSV: {error}") from error


def _is_parquet(path: str) -> bool:
    if not Path(path).is_file():
        return False  # a pipe can be opened once only
    try:
        with open(path, "rb") as file:
            return detect_packing(path, file) == PARQUET
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _changed_us(path: str) -> int | None:
    try:
        return Path(path).stat().st_mtime_ns // 1000
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
