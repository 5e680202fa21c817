"""What a replay has done so far, on disk beside its spool, so that the next one can go on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from stream_metrics import __version__
from stream_metrics.adapters.reports import write_text
from stream_metrics.engine.row import canonical
from stream_metrics.worker.outcome import Options

MANIFEST: Final = "manifest.json"
SCHEMA_VERSION: Final = 1


class Manifest(msgspec.Struct):
    """How far the input has been read into the spool.

    ``fingerprint`` is of all that the spool and its pieces depend on. ``sizes`` are those of the
    spool files that hold the first ``records`` of the input; ``whole``: these are all.
    """

    fingerprint: str
    records: int
    sizes: list[int]
    whole: bool = False
    schema_version: int = SCHEMA_VERSION


def fingerprint(
    identity: Any,
    config: dict[str, Any],
    options: Options,
    member: tuple[int, int] | None,
    *,
    strict: bool,
) -> str:
    """A digest of input and settings; ``identity`` tells one input from another.

    A strict replay does not go on from one that passed over bad records.

    It changes with the machine's start, where that can be told: what a killed process has written
    is all there, what a machine that went down had not put on its disk is not.
    """
    told = [
        __version__,
        SCHEMA_VERSION,
        identity,
        config,
        options.turn_scope,
        options.now_us,
        [window.name for window in options.windows],
        options.models,
        member,
        strict,
        _boot(),
    ]
    return hashlib.sha256(canonical(told).encode()).hexdigest()


def file_identity(paths: Sequence[str]) -> list[Any] | None:
    """Names, sizes and times of change of files; None where one is no file and cannot be told."""
    found: list[Any] = []
    for path in paths:
        place = Path(path)
        if path == "-" or not place.is_file():
            return None
        stat = place.stat()
        found.append([str(place.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino])
    return found


def load(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if there is none that can be read."""
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.schema_version == SCHEMA_VERSION else None


def save(folder: Path, manifest: Manifest) -> None:
    """Write it whole, in one step."""
    write_text(folder / MANIFEST, msgspec.json.encode(manifest).decode() + "\n")


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
