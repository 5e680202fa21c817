"""Packing of recordings: gzip, zstd or Parquet, detected by a file's name or first bytes."""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path
from typing import IO, Any, Final

PARQUET: Final = "Parquet"
GZIP_LEVEL: Final = 6
_NAMES: Final = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".parquet": PARQUET}
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BEGINNINGS: Final = {b"\x1f\x8b": "gzip", _ZSTD: "zstd", b"PAR1": PARQUET}


def _zstd() -> Any:
    """Import zstd, which only zstd files need."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def decode_errors(kind: str | None) -> tuple[type[Exception], ...]:
    """The errors for bytes of another format; truncated bytes raise ``EOFError``."""
    return (_zstd().ZstdError,) if kind == "zstd" else (gzip.BadGzipFile, zlib.error)


def packing_of_name(path: str) -> str | None:
    """The packing that a file name indicates; None if there is none.

    >>> packing_of_name("day.jsonl.zst"), packing_of_name("-")
    ('zstd', None)
    """
    return _NAMES.get(Path(path).suffix)


def detect_packing(path: str, file: Any) -> str | None:
    """The packing of an open file, by its first bytes or else by its extension."""
    first = file.peek(4)
    begins = (kind for head, kind in _BEGINNINGS.items() if first.startswith(head))
    return next(begins, None) or packing_of_name(path)


def is_zstd(data: bytes) -> bool:
    """Whether the data begins like a zstd frame."""
    return data.startswith(_ZSTD)


def decompress_zstd(data: bytes, most_bytes: int) -> bytes | None:
    """Decompress one zstd frame; None if the content exceeds ``most_bytes``.

    Raises ``EOFError`` if the frame is truncated, or one of ``decode_errors("zstd")``.
    """
    decompressor = _zstd().ZstdDecompressor()
    found: bytes = decompressor.decompress(data, most_bytes + 1)
    if len(found) > most_bytes:
        return None
    if not decompressor.eof:
        raise EOFError("the zstd data ends in the middle")
    return found


def open_unpacked(file: Any, kind: str) -> Any:
    """Open a gzip or zstd file for streaming; both may contain several members or frames.

    Raises ``EOFError`` for an empty file. Reading raises it too, or one of ``decode_errors(kind)``.
    """
    if not file.peek(1):
        raise EOFError  # the gzip module accepts an empty file
    return gzip.GzipFile(fileobj=file) if kind == "gzip" else _zstd().ZstdFile(file, "r")


def open_packed(file: IO[bytes], kind: str | None) -> Any:
    """Wrap a file to compress what is written; equal content produces equal bytes."""
    match kind:
        case "gzip":
            return gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0)
        case "zstd":
            return _zstd().ZstdFile(file, "w")
        case _:
            return file
