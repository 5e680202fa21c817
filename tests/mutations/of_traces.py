"""Broken builds of the bridge: what they tell depends on more than the log of traces."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

ASSEMBLY: Final = "stream_metrics/core/telemetry/assembly.py"
BRIDGE: Final = "stream_metrics/live/worker/bridge.py"
TRACES: Final = "stream_metrics/live/worker/traces.py"

DIES: Final = "tests/property/test_bridge.py::test_crashes_anywhere_give_the_same_events"
TELLS: Final = "assert set(world.produced) == world.expected()"

BRIDGES: Final = (
    Mutation(
        "the commit passes open traces",
        "whoever goes on after a crash has lost the first spans of what was open",
        (Edit(ASSEMBLY, "            return one.place\n", "            break\n"),),
        DIES,
        TELLS,
    ),
    Mutation(
        "closed traces are forgotten by a restart",
        "spans that come late after a crash are told as a trace of their own",
        (
            Edit(
                TRACES,
                "{p: min(found.get(p, begin.offset), begin.offset) for p, begin in begins.items()}",
                "{p: begin.offset for p, begin in begins.items()}",
            ),
        ),
        DIES,
        TELLS,
    ),
    Mutation(
        "the newest trace has to go",
        "which trace there is no room for depends on what was open before a crash",
        (
            Edit(
                ASSEMBLY,
                'self._close(next(iter(self._open.values())), "no_room", message)',
                'self._close(list(self._open.values())[-1], "no_room", message)',
            ),
        ),
        "tests/property/test_assembly.py::test_assembly_equals_the_naive_implementation",
        "assert",
    ),
    Mutation(
        "the clock runs ahead of the log",
        "a trace is closed by a clock that is ahead of the records that are still to come",
        (
            Edit(
                BRIDGE,
                "assembly.advance_to(ended_ms - CLOCK_MARGIN_MS)",
                "assembly.advance_to(ended_ms + 30_000)",
            ),
        ),
        DIES,
        TELLS,
    ),
)
