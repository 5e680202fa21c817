"""Finds OTLP payloads in files that are not JSON Lines.

The Collector's file exporter prefixes each protobuf message, and each message that it compresses,
with its length: four bytes, big-endian. Other tools write one message, or one JSON document over
several lines, per file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Final

import msgspec

from stream_metrics.core.events.foreign import foreign_bytes, foreign_form
from stream_metrics.core.telemetry.otlp.payloads import (
    is_json,
    is_payload,
    is_protobuf,
    other_signal,
)
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.json_values import InvalidJson, json_values
from stream_metrics.lab.sources.packing import decode_errors, decompress_zstd, is_zstd

LENGTH_BYTES: Final = 4
HEAD_BYTES: Final = 512
_OPEN: Final = (b"{", b"[", b",", b":")
"""Ends of lines after which JSON goes on."""
MAX_PAYLOAD_BYTES: Final = 64 << 20
MAX_UNPACKED_BYTES: Final = 256 << 20


def is_framed(head: bytes) -> bool:
    """Whether a file that begins with these bytes holds length-prefixed payloads.

    >>> is_framed(bytes([0, 0, 0, 6, 10, 4, 18, 2, 18, 0])), is_framed(b'{"resourceSpans": []}')
    (True, False)
    """
    length, first = int.from_bytes(head[:LENGTH_BYTES], "big"), head[LENGTH_BYTES:]
    if not 0 < length <= MAX_PAYLOAD_BYTES:
        return False
    return is_zstd(first) or is_payload(first[:length])


def is_whole(head: bytes) -> bool:
    """Whether a file that begins with these bytes is one message, or JSON over several lines.

    >>> is_whole(bytes([10, 4, 18, 2, 18, 0])), is_whole(b'{\\n  "resourceSpans": [')
    (True, True)
    >>> is_whole(b'{"resourceSpans": []}\\n')
    False
    """
    if is_protobuf(head):
        return True
    line, newline, following = head.lstrip().partition(b"\n")
    if not newline or not line.startswith((b"{", b"[")):
        return False
    if not is_json(head) and not _goes_on(line.rstrip(), following):
        return False  # a line that was cut off, among others
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return True
    return False


def _goes_on(line: bytes, following: bytes) -> bool:
    """Whether JSON that is not OTLP goes on behind its first line."""
    inner = following.lstrip()
    if inner.startswith(b'"'):
        return line.endswith(_OPEN)
    if not following[:1].isspace():
        return False
    # Objects as JavaScript prints them have names without quotes.
    return line.endswith((b"[", b":")) or (line == b"{" and inner[:1].isalpha())


def check_signal(head: bytes) -> None:
    """Raises ``OtlpError`` for a file that begins with another OTLP signal."""
    found = other_signal(head)
    if found is not None:
        raise OtlpError(f"OTLP {found}; searches are in traces, give a file of traces")


def frames(file: IO[bytes]) -> Iterator[bytes]:
    """The decompressed payloads of a file; raises ``OtlpError``."""
    number = 0
    while prefix := file.read(LENGTH_BYTES):
        number += 1
        length = int.from_bytes(prefix, "big")
        if len(prefix) == LENGTH_BYTES and length > MAX_PAYLOAD_BYTES:
            raise OtlpError(
                f"message {number} declares {length:,} bytes, and at most "
                f"{MAX_PAYLOAD_BYTES:,} are read: the file is damaged; copy it again"
            )
        data = file.read(length)
        if len(prefix) < LENGTH_BYTES or len(data) < length:
            raise OtlpError(
                f"message {number} ends in the middle, so the file was cut off; copy it again"
            )
        yield _decompressed(data, number) if is_zstd(data) else data


def whole(file: IO[bytes]) -> Iterator[bytes]:
    """The payloads of a file that is one message, or JSON over several lines; raises ``OtlpError``.

    It also raises ``OtlpError`` for JSON that is no OTLP, with what it is.
    """
    data = file.read(MAX_PAYLOAD_BYTES + 1)
    if len(data) > MAX_PAYLOAD_BYTES:
        raise OtlpError(
            f"one payload of more than {MAX_PAYLOAD_BYTES >> 20} MiB; write several, a line or "
            "message each, as the Collector's file exporter does"
        )
    if is_protobuf(data) or (is_json(data) and _is_one(data)):
        yield data
        return
    is_begun = False
    try:
        for value in json_values(data):
            check_signal(value.text)
            if not is_json(value.text):
                named = foreign_form(json.loads(value.text))
                is_what = "is no OTLP: write one event a line"
                if named is not None:
                    is_what = f"looks like {named}"
                raise OtlpError(f"line {value.line}: JSON over several lines, which {is_what}")
            yield value.text
            is_begun = True
    except InvalidJson as error:
        if is_json(data) and not is_begun:
            yield data  # which says that it is incomplete
            return
        named = foreign_bytes(data[:HEAD_BYTES])
        said = f"incomplete, or {error}; copy it again" if named is None else f"it is {named}"
        raise OtlpError(f"line {error.line}: {said}") from error


def _is_one(data: bytes) -> bool:
    """Whether the data is a single JSON value."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _decompressed(data: bytes, number: int) -> bytes:
    unreadable: tuple[type[Exception], ...] = (EOFError, *decode_errors("zstd"))
    try:
        found = decompress_zstd(data, MAX_UNPACKED_BYTES)
    except unreadable as error:
        raise OtlpError(f"message {number} is damaged ({error}); copy the file again") from error
    if found is None:
        raise OtlpError(
            f"message {number} unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB; let the "
            "Collector export smaller batches"
        )
    return found
