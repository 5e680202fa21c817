"""Which engine ran in a measurement, as each process that ran it says itself.

A part of the benchmarks has a process of its own, and so a list of its own: ``RAN``.
"""

from __future__ import annotations

import os
import re
from typing import Final

from stream_metrics.core.compiled import VARIABLE

BUILD: Final = re.compile(r'^streammetrics_(?:bridge_)?build_info\{.*\bengine="([^"]*)"', re.M)


class OtherEngine(RuntimeError):
    """A process ran another engine than the measurement is of."""


class Engines:
    """The engine that processes said they ran; ``chosen`` is the one that they have to run."""

    def __init__(self, chosen: str | None = None) -> None:
        self._chosen = chosen
        self._said: dict[str, None] = {}

    def note(self, engine: str) -> None:
        """Add what a process said.

        Raises:
            OtherEngine: It is not what another process said, or not the one that is chosen.
        """
        self._said[engine] = None
        if len(self._said) > 1:
            raise OtherEngine(f"processes ran different engines: {' and '.join(self._said)}")
        if self._chosen not in (None, engine):
            raise OtherEngine(f"a process was to run: {self._chosen}, and ran: {engine}")

    def told(self) -> str:
        """The line of a report; empty if nothing ran the engine."""
        return "".join(f"\nengine    {engine}, as each process said\n" for engine in self._said)


RAN: Final = Engines()


def engine_of(metrics: str) -> str:
    """The engine that a worker or bridge names in the text of ``/metrics``.

    >>> engine_of('streammetrics_build_info{engine="compiled",version="1"} 1.0')
    'compiled'
    """
    found = BUILD.search(metrics)
    return found[1] if found else "not said"


def inherited() -> dict[str, str]:
    """The environment of a child: all of this one's but settings, with the choice of the kernel."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == VARIABLE or not name.startswith("STREAM_METRICS_")
    }
