"""How recordings are packed: gzip, zstd or Parquet, told by a file's name or by its first bytes."""

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
    """The library, which nobody needs who has no such file."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def damaged(kind: str | None) -> tuple[type[Exception], ...]:
    """What reading raises for bytes that are not packed so; ``EOFError``: that they break off."""
    return (_zstd().ZstdError,) if kind == "zstd" else (gzip.BadGzipFile, zlib.error)


def named(path: str) -> str | None:
    """How a file of that name is packed; None if it is not.

    >>> named("day.jsonl.zst"), named("-")
    ('zstd', None)
    """
    return _NAMES.get(Path(path).suffix)


def kind_of(path: str, file: Any) -> str | None:
    """How a file that is open is packed: by the end of its name, or else by its first bytes."""
    first = file.peek(4)
    begins = (kind for head, kind in _BEGINNINGS.items() if first.startswith(head))
    return named(path) or next(begins, None)


def is_zstd(data: bytes) -> bool:
    """Whether it begins as a zstd frame does."""
    return data.startswith(_ZSTD)


def unzstd(data: bytes, most_bytes: int) -> bytes | None:
    """What one zstd frame holds; None if that is more than ``most_bytes``.

    Raises ``EOFError`` if it ends in the middle, or one of ``damaged("zstd")``.
    """
    decompressor = _zstd().ZstdDecompressor()
    found: bytes = decompressor.decompress(data, most_bytes + 1)
    if len(found) > most_bytes:
        return None
    if not decompressor.eof:
        raise EOFError("the zstd data ends in the middle")
    return found


def unpacked(file: Any, kind: str) -> Any:
    """What is in gzip or zstd, to be read as it comes; both may hold several parts in a row.

    Raises ``EOFError`` for an empty file. Reading raises that too, or one of ``damaged(kind)``.
    """
    if not file.peek(1):
        raise EOFError  # of an empty file the gzip module would say nothing
    return gzip.GzipFile(fileobj=file) if kind == "gzip" else _zstd().ZstdFile(file, "r")


def packed(file: IO[bytes], kind: str | None) -> Any:
    """A file to write to that packs what it gets; equal content gives equal bytes."""
    match kind:
        case "gzip":
            return gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0)
        case "zstd":
            return _zstd().ZstdFile(file, "w")
        case _:
            return file
