"""The outputs of a worker: windows, rows and dead letters, which are muted during a build.

A generation that is being built exports no windows and sends no rows. Nor does it send dead letters
for records that the generation in force has read, which are sent already: that one sends letters
before it advances its offset. Loop and exporters know nothing of muting, and of rows a partition
decides which are dropped, because only it knows its marks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.events.record import DeadLetter
from stream_metrics.live.layout import Generation, Identity, Layout
from stream_metrics.live.ports import DeadLetters, Output, OutputMessage, Outputs, StateStore
from stream_metrics.live.worker.ownership.generations import check_in_use


def before(layout: Layout, generation: Generation) -> Generation | None:
    """The generation that was in force while this one was built; None for the first."""
    found = [
        g
        for g in layout.generations
        if g.number < generation.number and (g.in_force or g.state == "retired") and not g.purged
    ]
    return found[-1] if found else None


def before_of(
    space: StateStore, layout: Layout, generation: Generation, number: int
) -> list[tuple[StateStore, int]]:
    """The partitions of the previous generation that may share conversations with a partition."""
    other = before(layout, generation)
    if other is None:
        return []
    alike = numbered_alike(other.identity, generation.identity)
    numbers: Iterable[int] = [number] if alike else range(other.identity.count)
    return [(space.generation(other), n) for n in numbers]


def numbered_alike(other: Identity, ours: Identity) -> bool:
    """Whether a conversation is in the partition of the same number in both: they read a topic in
    common, with as many partitions."""
    return bool(other.partition_counts.items() & ours.partition_counts.items())


def belongs(
    other: Identity, ours: Identity, number: int, partitioner: Callable[[bytes], int] | None
) -> Callable[[str], bool]:
    """Which conversations of another generation belong to this partition of ours.

    ``partitioner`` is that of the internal topic. Without one producers choose, and where the other
    generation read other topics, nobody can tell.
    """
    if numbered_alike(other, ours):
        return lambda _: True
    return lambda name: partitioner is not None and partitioner(name.encode()) == number


class Publication:
    """The outputs of a worker of one generation: windows, ``letters`` and ``outputs``."""

    def __init__(
        self,
        store: StateStore,
        generation: Generation,
        letters: DeadLetters,
        outputs: Outputs | None,
    ) -> None:
        self.muted = generation.state != "live"
        self.letters: DeadLetters = _Letters(self, store, generation, letters)
        self.outputs: Outputs | None = None
        if outputs is not None:
            self.outputs = _Outputs(self, store, generation, outputs)

    def windows(self, found: Iterable[Windows]) -> list[Windows]:
        """The windows to export; none while muted."""
        return [] if self.muted else list(found)


class _Letters:
    """``DeadLetters`` that drops letters that were sent by the generation in force."""

    def __init__(
        self, publication: Publication, store: StateStore, generation: Generation, to: DeadLetters
    ) -> None:
        self._publication = publication
        self._store = store
        self._generation = generation
        self._to = to
        self._read: dict[
            tuple[str, int], int
        ] = {}  # offsets up to which others have read, as last heard

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """See ``DeadLetters.send``."""
        if self._publication.muted:
            letters = [letter for letter in letters if not await self._is_written(letter)]
        if letters:
            await self._to.send(letters)

    async def _is_written(self, letter: DeadLetter) -> bool:
        """Whether the generation in force has read the record, and so has sent its letter."""
        record = letter.record.produced
        place = (record.topic, record.partition)
        if record.offset >= self._read.get(place, 0):
            self._read[place] = await self._read_up_to(place)
        return record.offset < self._read[place]

    async def _read_up_to(self, place: tuple[str, int]) -> int:
        """The offset up to which it has read this log; 0 if it does not read it, or if nobody can
        tell because its state is damaged: a letter that is there twice is better than none."""
        topic, number = place
        other = before(await self._store.layout(), self._generation)
        if other is None:
            return 0
        try:
            state = await self._store.generation(other).describe(number)
        except DamagedState:
            return 0
        position = state.positions.get(topic)
        return 0 if position is None else position.offset


class _Outputs:
    """``Outputs`` of a generation, which may be muted."""

    def __init__(
        self, publication: Publication, store: StateStore, generation: Generation, to: Outputs
    ) -> None:
        self._publication = publication
        self._store = store
        self._generation = generation
        self._to = to
        self._outputs: dict[int, _Output] = {}

    def of(self, partition: int) -> Output:
        """See ``Outputs.of``."""
        if partition not in self._outputs:
            to = self._to.of(partition)
            self._outputs[partition] = _Output(self._publication, self._store, self._generation, to)
        return self._outputs[partition]

    async def keep(self, partitions: Collection[int]) -> None:
        """See ``Outputs.keep``."""
        for partition in self._outputs.keys() - set(partitions):
            del self._outputs[partition]
        await self._to.keep(partitions)


class _Output:
    """``Output`` that begins only if its generation is in use, and tells whether it is muted."""

    def __init__(
        self, publication: Publication, store: StateStore, generation: Generation, to: Output
    ) -> None:
        self._publication = publication
        self._store = store
        self._generation = generation
        self._to = to
        self._checked = False  # whether the generation was in use once the output had begun

    @property
    def begun(self) -> bool:
        """See ``Output.begun``."""
        return self._to.begun and self._checked

    @property
    def muted(self) -> bool:
        """See ``Output.muted``."""
        return self._publication.muted

    async def begin(self) -> None:
        """See ``Output.begin``; raises ``Superseded`` once the generation has ended.

        Whoever begins late would shut those out that have shut out the generation. It finds that
        out from the layout, and from its partition as well (``StatePartition``): a store may have
        lost one of the two.
        """
        self._checked = False
        await self._to.begin()
        await check_in_use(self._store, self._generation)
        self._checked = True

    async def send(self, messages: Sequence[OutputMessage]) -> None:
        """See ``Output.send``."""
        await self._to.send(messages)
