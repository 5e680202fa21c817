"""The OpenTelemetry Collector, built from its Go modules once per user. Standard library only."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from deploy.local.cache import cached, made
from deploy.local.golang import run_go

FOLDER = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "main.go")


def collector_version() -> str:
    """The version that go.mod names."""
    found = re.search(r"go\.opentelemetry\.io/collector/otelcol v(\S+)", _text("go.mod"))
    if found is None:
        raise RuntimeError(f"{FOLDER / 'go.mod'} names no version of the Collector")
    return found[1]


def collector_path() -> Path:
    """The path of the program, which depends on its sources; it may not exist yet."""
    digest = hashlib.sha256("\0".join(map(_text, SOURCES)).encode()).hexdigest()[:12]
    return cached(f"otelcol-{collector_version()}-{digest}")


def build_collector(go: str) -> Path:
    """Build the program with this ``go``, unless it exists; returns its path.

    The first build downloads the modules, and takes some minutes.
    """

    def build(path: Path) -> None:
        flags = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(path)]
        run_go(go, FOLDER, ["build", *flags, "."], "the Collector")

    return made(collector_path(), build)


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
