"""Sinks for events: a function, a file, Kafka through an installed client, or HTTP.

Only one thread uses a sink. `write` may block, and returns the records to retry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from stream_metrics_client.kafka import make_kafka_opener
from stream_metrics_client.records import Record, SinkOpener, WriteResult, describe

Target = str | os.PathLike[str] | Callable[[dict[str, Any]], object]


def make_opener(
    target: Target, kafka_options: Mapping[str, Any] | None = None, token: str | None = None
) -> SinkOpener:
    """A function that opens the sink of `target`, to be called in the thread that uses it.

    Raises:
        ValueError: The URL names no sink, or one that takes no token.
        FileNotFoundError: The folder of the file does not exist.
        IsADirectoryError: The path is that of a folder.
        ImportError: The Kafka client is not installed.
    """
    text = "" if callable(target) else os.fspath(target)
    scheme = text.partition("://")[0] if "://" in text else "file"
    if scheme in ("http", "https"):
        from stream_metrics_client.http_sink import make_http_opener  # imports much for HTTP

        return make_http_opener(text, token)
    if token is not None:
        raise ValueError("a token is for sinks at http:// and https:// addresses only")
    if callable(target):
        return lambda _: CallableSink(target)
    if scheme == "kafka":
        return make_kafka_opener(text, kafka_options or {})
    if scheme != "file":
        raise ValueError(
            f"the sink {text!r} must be kafka://host:port, http://host:port, file:///path, a path "
            "or a function"
        )
    path = _file_path(text)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; create it first")
    return lambda _: FileSink(path)


def _file_path(text: str) -> Path:
    if "://" not in text:
        return Path(text)
    host, slash, path = text.partition("://")[2].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ValueError(f"the sink {text!r} must be file:///path, with three slashes, or a path")
    return Path("/" + unquote(path))


class CallableSink:
    """Calls a function with each event as a dict. If it raises, the event has failed."""

    def __init__(self, function: Callable[[dict[str, Any]], object]) -> None:
        self._function = function

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Call the function for each record."""
        written = WriteResult()
        for record in records:
            try:
                self._function(json.loads(record.value))
            except BaseException as error:  # SystemExit would end the sending thread
                written.add_failed(describe(error))
        return written

    def close(self) -> None:
        """There is nothing to release."""


class FileSink:
    """Appends each event as a line of JSON. Several processes may append to one file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._torn = False

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Append the records, after ending a line that an earlier error cut off."""
        lines = b"".join(record.value + b"\n" for record in records)
        left = memoryview(b"\n" + lines if self._torn else lines)
        try:
            while left:
                left = left[os.write(self._file, left) :]
                self._torn = bool(left)
        except OSError as error:
            missing = bytes(left).count(b"\n") - (len(left) > len(lines))
            return WriteResult(failed=missing, failure=describe(error))
        return WriteResult()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
