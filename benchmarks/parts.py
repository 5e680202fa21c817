"""The parts of the benchmarks by name; each returns its report."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from benchmarks import (
    bootstrap,
    bounds,
    bridge,
    client,
    conversations,
    cost,
    engines,
    freshness,
    live,
    peer,
    profiling,
    ranked,
    recordings,
    recovery,
    replay,
    scaling,
    scrape,
    serve,
    traced,
)
from benchmarks.ran import RAN

Part = Callable[[argparse.Namespace], str]
RUNS: dict[str, Part] = {
    "live": lambda c: live.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "peers": lambda c: peer.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "scaling": lambda c: scaling.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "cost": lambda c: cost.run(quick=c.quick, rounds=c.rounds),
    "engines": lambda c: engines.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "freshness": lambda c: freshness.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "recovery": lambda c: recovery.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "scrape": lambda c: scrape.run(quick=c.quick, rounds=c.rounds),
    "traced": lambda c: traced.run(quick=c.quick, records=c.records),
    "replay": lambda c: replay.run(quick=c.quick, records=c.records),
    "bounds": lambda c: bounds.run(quick=c.quick, conversations=c.records),
    "bootstrap": lambda c: bootstrap.run(quick=c.quick, rounds=c.rounds),
    "conversations": lambda c: conversations.run(
        quick=c.quick, conversations=c.conversations, rounds=c.rounds
    ),
    "client": lambda c: client.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "bridge": lambda c: bridge.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "serve": lambda c: serve.run(
        quick=c.quick, records=c.records, conversations=c.conversations, rounds=c.rounds
    ),
    "ranked": lambda c: ranked.run(quick=c.quick, queries=c.records, rounds=c.rounds),
    "recordings": lambda c: recordings.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "profile": lambda c: profiling.run(quick=c.quick, records=c.records),
}


def run(name: str, chosen: argparse.Namespace) -> str:
    """The report of one part, with the engine that its processes ran."""
    return RUNS[name](chosen) + RAN.told()
