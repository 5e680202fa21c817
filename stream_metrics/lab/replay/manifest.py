"""The progress of a replay, stored with its spool so that a killed replay can resume."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec

from stream_metrics import __version__
from stream_metrics.core.engine.row import canonical
from stream_metrics.lab.replay.outcome import ReplayOptions
from stream_metrics.lab.replay.spool import Spool
from stream_metrics.lab.reports.files import write_text
from stream_metrics.lab.sources.files import FileRange

MANIFEST: Final = "manifest.json"
SCHEMA_VERSION: Final = 7


class Manifest(msgspec.Struct):
    """How far the input has been read into the spool.

    ``fingerprint`` covers everything that the spool and its pieces depend on. ``spool`` has the
    first ``records`` of the input; None: nothing has been written. ``whole``: these are all
    records. ``ranges`` are those of an input of plain files, of which each is a source of the
    spool; empty: the records are read one after another.
    """

    fingerprint: str
    records: int
    spool: Spool | None = None
    whole: bool = False
    ranges: list[FileRange] = []


def fingerprint(
    identity: Any,
    config: dict[str, Any],
    options: ReplayOptions,
    *,
    strict: bool,
) -> str:
    """A digest of input and settings; ``identity`` distinguishes inputs.

    A strict replay does not resume one that skipped bad records.

    If the system has a boot id, the digest includes it: everything that a killed process wrote is
    on disk, but after a crash of the machine some of it may be missing.
    """
    content = [
        __version__,
        SCHEMA_VERSION,
        identity,
        config,
        options.turn_scope,
        options.now_us,
        [window.name for window in options.windows],
        options.models,
        options.answers,
        strict,
        _boot(),
    ]
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def load(folder: Path) -> Manifest | None:
    """The manifest in a folder; None if it is missing.

    A damaged one is returned as empty. Like that of another version, it matches no fingerprint.
    """
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except OSError:
        return None
    except msgspec.DecodeError:
        return Manifest("", 0)


def save(folder: Path, manifest: Manifest) -> None:
    """Write the manifest atomically."""
    write_text(folder / MANIFEST, msgspec.json.encode(manifest).decode() + "\n")


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
