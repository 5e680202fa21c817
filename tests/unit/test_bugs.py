"""A bug leaves a trace, in the log, in the metrics and in the dead letter, that quotes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from stream_metrics.core.events.bugs import MAX_FRAMES, Bug
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import Options
from stream_metrics.core.telemetry.assembly import Bounds, ClosedTrace
from stream_metrics.core.telemetry.interpreter import InterpretedTrace, TraceInterpreter
from stream_metrics.core.telemetry.otlp.payloads import route_by_trace
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.prometheus.catalogue import MAX_BUGS
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker.repartition import Repartitioner, route
from tests import faulty
from tests.property.test_partition import TOPIC, once, opened
from tests.simulation.bridges import MAPPING, BridgeMember, World
from tests.unit.test_bridge import in_session, produced_sessions, sent
from tests.unit.test_state_partition import NOON_S, search

SECRET = "where did Ada live?"
UNTYPED: Any = SECRET  # in a place of bytes


def met(key: Any) -> Bug:
    """The bug of a value that is not what it should be."""
    with pytest.raises(TypeError) as raised:
        key_of(key, None, Limits())
    return Bug.of(raised.value)


def deep(levels: int) -> None:
    """Raise from that many calls."""
    if levels == 0:
        raise KeyError(SECRET)
    deep(levels - 1)


def test_a_bug_says_where_it_is() -> None:
    """It has each call, and is named by the last line of this package that was run."""
    bug = met(UNTYPED)

    kind, _, place = bug.kind.partition(" at ")
    assert kind == "TypeError"
    assert place.startswith("stream_metrics/core/events/decode.py:")
    assert [frame.rpartition(" ")[2] for frame in bug.frames][:2] == ["met", "key_of"]
    assert bug.frames[-1].startswith(f"{place} ")


def test_a_bug_quotes_nothing() -> None:
    """Neither the exception's message nor any value is in it."""
    with pytest.raises(KeyError) as raised:
        deep(2 * MAX_FRAMES)

    bug = Bug.of(raised.value)

    assert "Ada" not in repr(bug)
    assert len(bug.frames) == MAX_FRAMES


def values(registry: CollectorRegistry) -> dict[str, float]:
    """How often each kind of bug was met."""
    return {
        sample.labels["kind"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "streammetrics_bugs_total"
    }


async def test_a_bug_in_an_event_is_logged_once_and_counted() -> None:
    """The log has its frames, the letter its place, and the event is quoted by neither."""
    bug = faulty.Bug(KeyError, at_search=lambda results: results == 3)
    registry, letters = CollectorRegistry(), MemoryDeadLetters()
    dedups = faulty.BuggyDeduplicators(b"secret", bug)
    operations = Operations(registry)
    state = await opened(MemoryStore(), letters, 10, telemetry=operations, dedups=dedups)
    records = [
        Record(value, key, stamp, TOPIC, 0, offset)
        for offset, (key, value, stamp) in enumerate(
            search(f"Ada-{n}", 1, NOON_S, "a", "b", "c") for n in range(2)
        )
    ]

    with capture_logs() as logs:
        await state.process(records, once)

    [kind] = {letter.message.removeprefix("a bug: ") for letter in letters.letters}
    assert kind.startswith("KeyError at stream_metrics/core/engine/derive.py:")
    assert values(registry) == {"other": 0, kind: 2}
    assert [(line["event"], line["kind"], line["log_level"]) for line in logs] == [
        ("a bug", kind, "error")
    ]
    assert any(frame.endswith(" append") for frame in logs[0]["frames"])
    assert "Ada" not in repr(logs)


def test_kinds_of_bugs_have_few_series() -> None:
    """Those after the first ones are counted together, and are logged as well."""
    registry = CollectorRegistry()
    operations = Operations(registry)
    with capture_logs() as logs:
        for number in range(MAX_BUGS + 3):
            operations.bug(Bug(f"KeyError at here:{number}", ()))

    assert len(values(registry)) == MAX_BUGS + 1
    assert values(registry)["other"] == 3
    assert len(logs) == MAX_BUGS + 3


class Round:
    """One record to route, and what becomes of it."""

    def __init__(self) -> None:
        self.bugs: list[str] = []

    async def fetch(self) -> list[Record]:
        """A record that no function expects."""
        return [Record(UNTYPED)]

    async def commit(self) -> None:
        """Do nothing."""

    async def send(self, records: Any) -> None:
        """Do nothing."""

    def bug(self, bug: Bug) -> None:
        """Keep its kind."""
        self.bugs.append(bug.kind)

    def bad_records(self, counts: Any) -> None:
        """Do nothing."""

    def repartitioned(self, counts: Any) -> None:
        """Do nothing."""


async def test_a_bug_in_finding_a_key_is_reported() -> None:
    """This holds for copies of events by conversation, and of traces by trace."""
    for routing, folder in (
        (lambda records: route(records, Limits()), "core/events/"),
        (route_by_trace, "core/telemetry/otlp/"),
    ):
        one, letters = Round(), MemoryDeadLetters()
        await Repartitioner(one, one, letters, routing, once, one).turn()

        assert [folder in kind for kind in one.bugs] == [True]
        assert [one.bugs[0] in letter.message for letter in letters.letters] == [True]


class BuggyInterpreter(TraceInterpreter):
    """An interpreter with a bug."""

    def interpret(self, closed: ClosedTrace) -> InterpretedTrace:
        """Raise."""
        raise KeyError(SECRET)


async def test_a_bug_in_a_trace_is_reported() -> None:
    """The bridge counts it, and its dead letter says where it is."""
    world = World(Bounds())
    world.send(sent(in_session(1, "one")), 0)
    world.send(sent(in_session(2, "two")), 0, 10 * world.bounds.trace_max_ms)
    member = BridgeMember(world, interpreter=BuggyInterpreter(MAPPING, Options(), Limits()))

    await produced_sessions(member, world)

    [kind] = set(member.bugs)
    assert kind.startswith("KeyError at stream_metrics/live/bridge/bridge.py:")
    trace = f"{1:032x}"
    assert world.letters.letters[0].message == f"a bug, met in trace {trace}: {kind}"
