"""Bridges over scripted brokers: they crash at any step, lose partitions, and read a scripted
clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition

from stream_metrics.core.events import Limits
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import DeadLetter
from stream_metrics.core.telemetry import Options, mapping
from stream_metrics.core.telemetry.assembly import Assembly, Bounds
from stream_metrics.core.telemetry.interpreter import InterpretedTrace, TraceInterpreter
from stream_metrics.core.telemetry.otlp.payloads import OtlpDecoder
from stream_metrics.live.bridge.bridge import Assemblies, Bridge, Told
from stream_metrics.live.bridge.traces import TraceInputs
from stream_metrics.live.health import Health
from stream_metrics.live.memory import MemoryDeadLetters
from stream_metrics.live.ports import InputTopicsUnavailable
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import NOTE_SECONDS, InputOptions
from tests.fuse import Fuse
from tests.sessions import Sent
from tests.simulation.brokers import Brokers
from tests.simulation.sources import ScriptedSource
from tests.simulation.system import ImmediateRetry

TOPIC = "traces"
START_MS = 1_718_020_800_000
MAPPING = mapping()


class World:
    """The topic of traces, the group's commits, and the events that were produced."""

    def __init__(self, bounds: Bounds, partitions: int = 2, options: Options = Options()) -> None:  # noqa: B008
        self.bounds, self.options = bounds, options
        self.brokers = Brokers([TOPIC], partitions)
        self.now_ms = START_MS
        self.produced: list[tuple[str, bytes]] = []
        self.letters = MemoryDeadLetters()
        self.refuses = 0  # number of calls that the input topics refuse

    def send(
        self, record: Sent, partition: int, after_ms: int = 0, *, committed: bool = True
    ) -> None:
        """Append a record at the current time, or in a transaction that stays open for now."""
        self.now_ms += after_ms
        place = TopicPartition(TOPIC, partition)
        self.brokers.append(place, record.key, record.value, self.now_ms)
        if committed:
            self.brokers.produce(1)

    def expected(self) -> set[tuple[str, bytes]]:
        """The events of one pass over the topic."""
        found = set()
        for log in self.brokers.logs.values():
            assembly = Assembly(self.bounds)
            interpreter = TraceInterpreter(MAPPING, self.options, Limits())
            closed = []
            for record in log:
                assert record is not None
                spans = OtlpDecoder().spans(record.value)
                assert isinstance(spans, list)
                closed += assembly.read(record.offset, record.timestamp_ms or 0, spans)
            for one in [*closed, *assembly.finish()]:
                found |= {(e.conversation, e.value) for e in interpreter.interpret(one).events}
        return found


class BridgeMember:
    """One bridge, whose external calls go through the fuse."""

    def __init__(
        self,
        world: World,
        fuse: Fuse | None = None,
        interpreter: TraceInterpreter | None = None,
        **settings: Any,
    ) -> None:
        self.world, self.fuse = world, fuse or Fuse()
        self.source = ScriptedSource(world.brokers)
        self._seconds = 0.0
        self.health = Health(reasons={})
        self.late = self.gaps = 0
        self.complete_until_s: float | None = None
        self.refused: Counter[str] = Counter()
        self.bugs: list[str] = []
        retry = ImmediateRetry(self.health, lambda: None)
        assemblies = Assemblies(world.bounds)
        self.interpreter = interpreter or TraceInterpreter(MAPPING, world.options, Limits())
        self.inputs = TraceInputs(
            self.source,
            InputOptions("bridge", in_order=False, **settings),
            retry,
            self.health,
            self,
            Clock(lambda: world.now_ms),
            assemblies,
            monotonic=lambda: self._seconds,
        )
        self._bridge = Bridge(
            self,
            assemblies,
            OtlpDecoder(),
            self.interpreter,
            self,
            _Letters(self),
            retry,
            self,
            TOPIC,
        )

    async def join(self) -> None:
        """Subscribe; the group has not answered yet."""
        await self.inputs.fetch()

    async def turn(self) -> int:
        """Run one round, in which the brokers return the end offsets."""
        self._seconds += NOTE_SECONDS
        return await self._bridge.turn()

    # -- worker.bridge.Inputs

    async def fetch(self) -> Any:
        """See ``Inputs``."""
        self.fuse.passing("before fetch")
        return await self.inputs.fetch()

    def ended(self) -> Any:
        """See ``Inputs``."""
        return self.inputs.ended()

    async def commit(self) -> None:
        """See ``Inputs``."""
        self.fuse.passing("before commit")
        await self.inputs.commit()
        self.fuse.passing("after commit")

    # -- worker.bridge.Events

    async def send(self, told: Sequence[Told]) -> Sequence[Told]:
        """See ``EventWriter``: it may crash in the middle, or the topic may be unavailable."""
        for event, _ in told:
            self.fuse.passing("before an event")
            if self.world.refuses:
                self.world.refuses -= 1
                raise InputTopicsUnavailable("told to be away")
            self.world.produced.append((event.conversation, event.value))
        return ()

    # -- worker.bridge.Counts, and gauges

    def bad_records(self, counts: Counter[str]) -> None:
        """Ignore."""

    def bug(self, bug: Bug) -> None:
        """Keep its kind."""
        self.bugs.append(bug.kind)

    def trace_closed(self, interpreted: InterpretedTrace) -> None:
        """Count refusals."""
        self.refused.update(interpreted.interpretation.refused)

    def produced(self, events: int) -> None:
        """Ignore."""

    def read(self, spans: int, late: int) -> None:
        """Count late spans."""
        self.late += late

    def open_traces(self, traces: int, open_bytes: int) -> None:
        """Ignore."""

    def lag(self, topic: str, partition: int, records: int, seconds: float) -> None:
        """Ignore."""

    def forget_partition(self, topic: str, partition: int) -> None:
        """Ignore."""

    def complete_until(self, seconds: float | None) -> None:
        """Keep the last value."""
        self.complete_until_s = seconds

    def ends_told(self, unix_seconds: float) -> None:
        """Ignore."""

    def offset_gap(self, topic: str) -> None:
        """Count gaps."""
        self.gaps += 1


class _Letters:
    """The dead-letter topic of a bridge that may crash."""

    def __init__(self, member: BridgeMember) -> None:
        self._member = member

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """See ``DeadLetters``."""
        self._member.fuse.passing("before letters")
        await self._member.world.letters.send(letters)
