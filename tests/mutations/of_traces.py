"""Broken builds of the bridge, whose events depend on more than the log of traces."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

ASSEMBLY: Final = "stream_metrics/core/telemetry/assembly.py"
BRIDGE: Final = "stream_metrics/live/bridge/bridge.py"
TRACES: Final = "stream_metrics/live/bridge/traces.py"
RECORDINGS: Final = "stream_metrics/core/telemetry/recordings.py"
LEFT_OUT: Final = "stream_metrics/core/telemetry/turns/left_out.py"

EXPLAINED: Final = "stream_metrics/core/telemetry/explanation.py"
TRIED: Final = "stream_metrics/lab/sources/otlp/explanation.py"

CRASHES: Final = "tests/property/test_bridge.py::test_crashes_anywhere_give_the_same_events"
SAME_EVENTS: Final = "assert set(world.produced) == world.expected()"

BRIDGES: Final = (
    Mutation(
        "what two instrumentations recorded counts twice",
        "two traces of one search are both told",
        (Edit(RECORDINGS, "            if other is None:\n", "            if True:\n"),),
        "tests/unit/test_scopes.py::test_the_second_recording_of_a_search_is_refused",
        "assert told(first, second) == [True, False]",
    ),
    Mutation(
        "left out traces are empty",
        "traces that otlp.scopes leaves out vanish without a word",
        (
            Edit(
                LEFT_OUT,
                "    if not turns:\n        interpretation",
                "    if False:\n        interpretation",
            ),
        ),
        "tests/unit/test_otlp.py::test_traces_of_scopes_that_are_left_out_are_refused",
        "assert (counts.refused, counts.empty) ==",
    ),
    Mutation(
        "no room for others",
        "a service whose traces never end takes the room of others",
        (Edit(ASSEMBLY, "        for service in services:\n", "        for service in ():\n"),),
        "tests/property/test_assembly.py::test_assembly_equals_the_naive_implementation",
        "assert (assembly.open_traces, assembly.open_bytes) ==",
    ),
    Mutation(
        "commit past open traces",
        "after a crash the first spans of open traces are lost",
        (Edit(ASSEMBLY, "            return trace.place\n", "            break\n"),),
        CRASHES,
        SAME_EVENTS,
    ),
    Mutation(
        "closed traces are forgotten by a restart",
        "spans that arrive late after a crash become a separate trace",
        (
            Edit(
                TRACES,
                "{p: min(found.get(p, begin.offset), begin.offset) for p, begin in begins.items()}",
                "{p: begin.offset for p, begin in begins.items()}",
            ),
        ),
        CRASHES,
        SAME_EVENTS,
    ),
    Mutation(
        "the newest trace is dropped",
        "which trace is dropped for lack of room depends on a crash",
        (
            Edit(
                ASSEMBLY,
                'self._close(next(iter(among.values())), "no_room", message, limit)',
                'self._close(list(among.values())[-1], "no_room", message, limit)',
            ),
        ),
        "tests/property/test_assembly.py::test_assembly_equals_the_naive_implementation",
        "assert",
    ),
    Mutation(
        "the clock is ahead of the log",
        "a trace is closed by a clock that is ahead of the next records",
        (
            Edit(
                BRIDGE,
                "assembly.advance_to(ended_ms - CLOCK_MARGIN_MS)",
                "assembly.advance_to(ended_ms + 30_000)",
            ),
        ),
        CRASHES,
        SAME_EVENTS,
    ),
    Mutation(
        "rows that do not help are told",
        "`stream-metrics explain` sends users to settings that change nothing",
        (
            Edit(
                TRIED,
                "            if effect.helps(tool.kind, refused=bool(tool.own)):\n",
                "            if effect.calls:\n",
            ),
        ),
        "tests/unit/test_explain.py::test_settings_that_change_nothing_are_not_told",
        "assert effects(explained(*several)) == []",
    ),
    Mutation(
        "questions in names are told",
        "`stream-metrics explain --no-text` prints what a user wrote",
        (Edit(EXPLAINED, "    return iter(found)\n", "    return iter(())\n"),),
        "tests/unit/test_explain.py::test_texts_are_in_the_example_only",
        "assert not [one for one in canaries",
    ),
)
