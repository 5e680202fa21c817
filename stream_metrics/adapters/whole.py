"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ONLY_WRITING: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""What goes wrong with the file that is written, where the system names none."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside ``path`` to write to; the file takes the place of ``path`` at the end.

    After an error nothing is left of it, and ``path`` is as it was. An ``OSError`` of writing names
    ``path``.
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
        return error.errno in ONLY_WRITING
    return str(error.filename) == str(temporary)
