"""Files that settings name; errors say which setting, which file, and what to do."""

from __future__ import annotations

from pathlib import Path


class UnreadableFile(ValueError):
    """A file that a setting names cannot be read; the message says what to do.

    It is no ``OSError``, which is what a server that cannot be reached raises.
    """


def unreadable(name: str, path: Path, error: OSError) -> UnreadableFile:
    """The error about the file of the setting ``name``, with the path as set and where that is."""
    todo = "Put the file there, or correct the setting"
    if not path.is_absolute():
        todo = (
            f"The path is relative to the working directory, so that is {path.absolute()}. Give "
            "the setting the full path"
        )
    return UnreadableFile(f"{name} {path}: {error.strerror}. {todo}")


def check_readable(name: str, path: Path) -> None:
    """Raise ``UnreadableFile`` unless the file of the setting ``name`` can be read."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise unreadable(name, path, error) from None


def read_text(name: str, path: Path) -> str:
    """The text in the file of the setting ``name``; raises ``UnreadableFile``."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise unreadable(name, path, error) from None
    except UnicodeDecodeError:
        raise UnreadableFile(f"{name} {path}: not text in UTF-8") from None
