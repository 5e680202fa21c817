"""Read a file as it was when a command began: no further, and not if it has changed since."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from errno import EBADF
from hashlib import blake2b
from io import BufferedReader, FileIO, RawIOBase, UnsupportedOperation
from typing import Any, Final, NamedTuple, Self

READ_BYTES: Final = 1 << 20
"""The size of a read; most lines are shorter, which avoids joining parts."""
END_BYTES: Final = 4 << 10
STDIN: Final = "-"


class InputError(Exception):
    """A source cannot be read. The message says which and what to do."""


class InputChanged(InputError):
    """A file was "replaced", "removed", "cut off" or "changed" while it was read."""

    def __init__(self, path: str, how: str) -> None:
        super().__init__(path, how)

    def __str__(self) -> str:
        path, how = self.args
        return f"{path}: it was {how} while it was read. Run the command again"


class FileState(NamedTuple):
    """What tells a regular file from another at the same path, and whether it has changed.

    ``ends`` is a digest of its first and its last 4 KiB.
    """

    device: int
    inode: int
    size: int
    modified_ns: int
    ends: str

    @classmethod
    def of(cls, descriptor: int) -> Self | None:
        """The state of an open file; None if it is not regular or tells no size, as in /proc."""
        status = os.fstat(descriptor)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode) or (not size and os.pread(descriptor, 1, 0)):
            return None
        ends = _ends(descriptor, size)
        return cls(status.st_dev, status.st_ino, size, status.st_mtime_ns, ends)


def _ends(descriptor: int, size: int) -> str:
    """The digest of the ends of a file's first ``size`` bytes."""
    head = os.pread(descriptor, min(size, END_BYTES), 0)
    tail = os.pread(descriptor, min(size, END_BYTES), max(0, size - END_BYTES))
    return blake2b(head + tail, digest_size=16).hexdigest()


class InputFile(NamedTuple):
    """A path, or ``-`` for standard input, with the state of its file.

    The state is None if it is not a regular file, or cannot be opened.
    """

    path: str
    state: FileState | None

    @classmethod
    def at(cls, path: str) -> Self:
        """The file at a path in its present state."""
        state = None
        with suppress(OSError), ExitStack() as opened:
            # Opening a pipe would take it from its writer.
            if path == STDIN or stat.S_ISREG(os.stat(path).st_mode):
                file = _opened(path)
                if file is not None:
                    opened.enter_context(file)
                    state = FileState.of(file.fileno())
        return cls(path, state)

    @property
    def can_be_read_again(self) -> bool:
        """Whether it is a regular file that is named by a path."""
        return self.path != STDIN and self.state is not None


def check_unchanged(descriptor: int, path: str, known: FileState) -> None:
    """Raise ``InputChanged`` if an open file is another than the known one, has fewer bytes, has
    as many but was written to, or has more but other ends of those that are known.

    Bytes may have been appended. Bytes in the middle that were overwritten as well are not noticed.
    """
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) != (known.device, known.inode):
        raise InputChanged(path, "replaced")
    if status.st_size < known.size:
        raise InputChanged(path, "cut off")
    if status.st_size == known.size:
        is_same = status.st_mtime_ns == known.modified_ns
    else:
        is_same = _ends(descriptor, known.size) == known.ends
    if not is_same:
        raise InputChanged(path, "changed")


def open_known(path: str, known: FileState) -> FileIO:
    """Open a file that is in a known state; raises ``InputChanged``."""
    try:
        file = _opened(path)
    except FileNotFoundError:
        raise InputChanged(path, "removed") from None
    except IsADirectoryError:
        raise InputChanged(path, "replaced") from None
    assert file is not None  # its state is known
    try:
        check_unchanged(file.fileno(), path, known)
    except InputChanged:
        file.close()
        raise
    return file


class _Known(RawIOBase):
    """The first ``size`` bytes of an open file, which it does not close."""

    def __init__(self, file: FileIO, size: int) -> None:
        self._file, self._size = file, size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            return self._file.seek(self._size + offset)
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int | None:
        left = max(0, self._size - self._file.tell())
        return self._file.readinto(memoryview(buffer)[:left])


class OpenInput(NamedTuple):
    """An open source; ``state`` is that of a regular file, and None for any other."""

    file: Any
    state: FileState | None


@contextmanager
def open_unchanged(path: str, known: FileState | None = None) -> Generator[OpenInput, None, None]:
    """Open a source (``-`` for standard input) to read it once, or a file to read it at all.

    A regular file is read as it is in its ``known`` state, by default that of now: bytes that are
    appended do not count. Raises ``OSError``, and ``InputChanged`` at the beginning or the end,
    also in place of an error that the change has caused.
    """
    with ExitStack() as opened:
        file = _opened(path) if known is None else open_known(path, known)
        if file is None:
            yield OpenInput(sys.stdin.buffer, None)
            return
        opened.enter_context(file)
        state = known or FileState.of(file.fileno())
        if state is None:
            yield OpenInput(BufferedReader(file, READ_BYTES), None)
            return
        try:
            yield OpenInput(BufferedReader(_Known(file, state.size), READ_BYTES), state)
        except Exception:
            check_unchanged(file.fileno(), path, state)
            raise
        check_unchanged(file.fileno(), path, state)


def _opened(path: str) -> FileIO | None:
    """Open a source without a buffer; None for standard input that is no file of the system."""
    if path != STDIN:
        return FileIO(path)
    if sys.stdin is None:
        raise OSError(EBADF, "standard input is closed")
    try:
        return FileIO(sys.stdin.buffer.fileno(), closefd=False)
    except UnsupportedOperation:
        return None
