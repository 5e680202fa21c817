"""Where a bug is, without anything of the data that met it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Final

PACKAGE: Final = f"{__name__.partition('.')[0]}/"
MAX_FRAMES: Final = 30  # the innermost ones; a recursion has a thousand

_INSTALLED_IN: Final = f"{Path(__file__).parents[3]}/"


@dataclass(frozen=True, slots=True)
class Bug:
    """An exception that nobody expected.

    ``kind`` is its type, and the innermost line of this package that it passed. ``frames`` have
    file, line and function of each call, the innermost last. Neither has the exception's message or
    any value, which may quote a record.
    """

    kind: str
    frames: tuple[str, ...]

    @classmethod
    def of(cls, error: BaseException) -> Bug:
        """The bug that raised ``error``."""
        places = [
            (f"{_short(code.co_filename)}:{line}", code.co_name)
            for code, line in ((f.f_code, line) for f, line in walk_tb(error.__traceback__))
        ]
        own = [place for place, _ in places if place.startswith(PACKAGE)]
        kind = " at ".join([type(error).__name__, *own[-1:]])
        return cls(kind, tuple(f"{place} {name}" for place, name in places[-MAX_FRAMES:]))


def _short(file: str) -> str:
    """The path of a source file, without the folder in which its package is installed."""
    return file.rpartition("/site-packages/")[2].removeprefix(_INSTALLED_IN)
