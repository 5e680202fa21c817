"""Write files atomically."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

WRITE_ERRORS: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""Errors that concern the file being written, if the system names no file."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same directory, which replaces ``path`` when the block ends.

    After an error the temporary file is removed and ``path`` is unchanged. An ``OSError`` of
    writing names ``path``.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and _of_writing(error, temporary):
            error.filename, error.filename2 = str(path), None
        temporary.unlink(missing_ok=True)
        raise


def _of_writing(error: OSError, temporary: Path) -> bool:
    if error.filename is None:
        return error.errno in WRITE_ERRORS
    return str(error.filename) == str(temporary)
