"""Put other state partitions in the place of those of a stopped group, with the same conversations.

The steps, each of which may be the last before a crash:

hold     nobody else may claim or write any more (``StateStore.hold``)
sweep    what an earlier run has left is deleted
draft    the new partitions are built, where nobody else sees them
compare  each holds the last write that was acknowledged
switch   they take the place of the old ones, in one atomic step
sweep    the old ones are deleted
release  workers may claim again

Cut off before the switch, nothing has changed but that the namespace is held; cut off after it,
all has. Whoever runs it again begins with the hold.

Each write to a draft expects the one before it, by a count (the offset of ``ports.FORMER``). So a
store that loses writes meanwhile is noticed, at the next write or when they are compared.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from stream_metrics.dedup.deduplicator import deduplicator
from stream_metrics.engine.cells import conversation_cells
from stream_metrics.engine.codec import decode_conversation, decode_sums, encode_sums, stored_header
from stream_metrics.engine.state import Cell, DamagedState, Version
from stream_metrics.engine.step import Step
from stream_metrics.engine.windows import (
    LEFT,
    Names,
    Sums,
    Window,
    Windows,
    add,
    left_windows,
    oldest_bucket,
    routes_in,
)
from stream_metrics.ports import (
    FORMER,
    BatchWrite,
    ConversationKey,
    ConversationWrite,
    Identity,
    Moved,
    OnHold,
    Position,
    StateStore,
    StoredConversation,
    StoreUnavailable,
    Written,
)
from stream_metrics.worker.names import SharedNames
from stream_metrics.worker.options import PartitionOptions
from stream_metrics.worker.pieces import Merge, Pieces

PAGE: Final = 64  # conversations read at once
PIECE_BYTES: Final = 256 * 1024  # of one write
PIECE_PARTS: Final = 1_000

Convert = Callable[[StoredConversation], StoredConversation]
Home = Callable[[str, int], int]
Progress = Callable[[int], None]
Place = tuple[str, int, str]  # of a bucket: window, number, agent
Summed = dict[Place, Sums]
Drafted = dict[int, dict[str, Position]]  # the positions of drafts after their last write


class Unmovable(Exception):
    """The state cannot be moved as asked for; the message says why and what to do."""


class WentBack(Unmovable):
    """The store has lost writes to a draft that it had acknowledged."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"the store has lost acknowledged writes to the new state partition {number}, as can "
            "happen after a restart or failover. The old partitions are still in use; run this "
            "command again once the store is stable"
        )


@dataclass(frozen=True, slots=True)
class Move:
    """Which state partitions are replaced, and by what.

    ``starts`` are the positions of the new ones, by number. ``home`` says to which of them a
    conversation of an old one goes, ``convert`` how it is stored there. ``pieces`` are told where
    several old ones may hold something of a conversation.
    """

    identity: Identity
    retired: tuple[int, ...]
    starts: Mapping[int, Mapping[str, Position]]
    home: Home
    convert: Convert | None = None
    pieces: Pieces | None = None


@asynccontextmanager
async def holding(store: StateStore, command: str) -> AsyncIterator[bytes]:
    """Hold a namespace while its partitions are replaced; gives the mark of the hold.

    It is let go at the end, and after an error before the switch, whatever that is: state is as it
    was. Where the store is away, or somebody else holds the namespace, it is left to the next run;
    and after the switch, where rows may be left to send.
    """
    mark = await held(store, command)
    await swept(store, mark)
    try:
        yield mark
    except (StoreUnavailable, OnHold):
        raise
    except Exception:
        if not await store.switched():
            await swept(store, mark)
            await store.release(mark)
        raise
    await swept(store, mark)
    await store.release(mark)


@contextmanager
def naming(key: ConversationKey, parts: StoredConversation) -> Iterator[None]:
    """Let ``DamagedState`` say which conversation it is: by its id, or by its key in the store."""
    try:
        yield
    except DamagedState as damage:
        name = f"with the key {urlsafe_b64encode(key).rstrip(b'=').decode()}"
        with suppress(DamagedState):
            known = stored_header(parts.hot).conversation_id
            name = repr(known) if known else name
        raise DamagedState(f"conversation {name}: {damage}") from damage


async def held(store: StateStore, command: str) -> bytes:
    """Begin a hold, in the place of any other; returns its mark."""
    mark = secrets.token_hex(8).encode()
    await store.hold(mark, command)
    return mark


async def swept(store: StateStore, mark: bytes) -> None:
    """Delete drafts and retired partitions; raises ``OnHold`` once another run has taken over."""
    while not await store.sweep(mark):
        pass


async def switch(store: StateStore, mark: bytes, retired: Sequence[int], drafted: Drafted) -> None:
    """The drafts take the places of the retired partitions.

    Raises ``WentBack`` unless each draft holds all that was written to it, and ``OnHold`` once
    another run has taken the namespace over.
    """
    drafts = store.drafts(mark)
    for number, positions in drafted.items():
        state = await drafts.describe(number)
        if state.token != mark:
            raise OnHold(await store.held_by() or "")
        if state.positions != positions:
            raise WentBack(number)
    await store.switch(mark, retired, sorted(drafted))


async def draft(
    store: StateStore, mark: bytes, move: Move, options: PartitionOptions, progress: Progress
) -> Drafted:
    """Build the drafts of a move; ``progress`` hears how many conversations are done.

    Stubs of expired conversations have no id to tell where they belong, and only a counter needs
    them: where there are several places they are left out, not put into each.
    Raises ``OnHold`` once another run has taken the namespace over, ``WentBack`` if the store loses
    writes.
    """
    drafts = _Drafts(store, mark)
    for number, start in move.starts.items():
        await drafts.begin(number, move.identity, start)
    tombstones = _Tombstones()
    apart = move.pieces.apart if move.pieces is not None else None
    for number in move.retired:
        async for key, parts in _conversations(store, number):
            with naming(key, parts):
                header = stored_header(parts.hot)
                name = header.conversation_id
                if name and apart is not None and apart(name, number):
                    continue
                moved = parts if move.convert is None else move.convert(parts)
            if name:
                await drafts.put(move.home(name, number), key, moved)
            elif len(move.starts) == 1 or not header.is_stub:
                tombstones.add(key, header.forgotten, moved)
            progress(1)
    if move.pieces is not None and apart is not None:
        await _put_apart(store, drafts, move, apart, move.pieces.merge, progress)
    for number in move.starts:
        await tombstones.put(drafts, number, move.pieces)
    await drafts.flush()
    names = SharedNames(store, options)
    left = await _left(store, move, options.windows)
    for number, start in move.starts.items():
        record_time_us = 1000 * max((p.record_time_ms for p in start.values()), default=0)
        buckets = _Buckets(options, names, record_time_us)
        await buckets.add_left(left.pop(number, {}))
        async for page in _pages(drafts.store, number):
            await buckets.add(page)
        await drafts.put_buckets(number, buckets.content())
    return drafts.positions


async def _put_apart(
    store: StateStore,
    drafts: _Drafts,
    move: Move,
    apart: Callable[[str, int], bool],
    merge: Merge,
    progress: Progress,
) -> None:
    """Add the conversations that lie apart to what the drafts have of them."""
    for number in move.retired:
        async for page in _pages(store, number):
            for key, listed in page:
                with naming(key, listed):
                    name = stored_header(listed.hot).conversation_id
                if not name or not apart(name, number):
                    continue
                [fingerprints] = await store.load_fingerprints(number, [key])
                parts = StoredConversation(listed.hot, fingerprints, listed.last_record_ms)
                moved = parts if move.convert is None else move.convert(parts)
                await drafts.add(move.home(name, number), key, name, moved, merge)
                progress(1)


class _Drafts:
    """The partitions that are being built, with what is yet to be written to each."""

    def __init__(self, store: StateStore, mark: bytes) -> None:
        self.store = store.drafts(mark)
        self._mark = mark
        self._numbers = count(1)
        self.positions: Drafted = {}
        self._waiting: dict[int, list[ConversationWrite]] = {}
        self._weights: dict[int, int] = {}

    async def begin(self, number: int, identity: Identity, start: Mapping[str, Position]) -> None:
        """Claim a partition that is not there yet; raises ``OnHold``.

        Nothing is wiped for it: what was under its number would be another run's.
        """
        positions = {FORMER: Position(0), **start}
        await self.store.claim(number, self._mark, identity, positions)
        self.positions[number] = positions

    async def put(self, number: int, key: ConversationKey, parts: StoredConversation) -> None:
        """Write a conversation, some time before ``flush`` has returned."""
        for piece in _pieces(key, parts):
            weight = (
                len(piece.hot)
                + len(piece.fingerprints)
                + _size(piece) * PIECE_PARTS // (PIECE_BYTES)
            )
            if self._weights.get(number, 0) + weight > PIECE_PARTS:
                await self._flush(number)
            self._waiting.setdefault(number, []).append(piece)
            self._weights[number] = self._weights.get(number, 0) + weight

    async def add(
        self,
        number: int,
        key: ConversationKey,
        name: str,
        piece: StoredConversation,
        merge: Merge,
    ) -> None:
        """Merge a piece of a conversation with what is there of it."""
        await self.flush()
        [there] = await self.store.load(number, [(key, True)])
        if there.hot:
            with naming(key, piece):
                whole = merge(name, there, piece)
            # what the merge has dropped goes in writes of its own
            gone = StoredConversation(there.hot, there.fingerprints, whole.last_record_ms)
            for part in _pieces(key, gone):
                part.hot = {name: None for name in part.hot if name not in whole.hot}
                kept = whole.fingerprints or {}
                part.fingerprints = {name: None for name in part.fingerprints if name not in kept}
                if part.hot or part.fingerprints:
                    await self._write(number, [part])
            piece = whole
        await self.put(number, key, piece)

    async def put_buckets(self, number: int, buckets: Mapping[Place, bytes | None]) -> None:
        """Write window buckets, in parts that are small enough for one call."""
        part: dict[Place, bytes | None] = {}
        size = 0
        for place, data in buckets.items():
            part[place] = data
            size += len(data or b"")
            if size > PIECE_BYTES or len(part) >= PIECE_PARTS:
                await self._write(number, buckets=part)
                part, size = {}, 0
        if part:
            await self._write(number, buckets=part)

    async def flush(self) -> None:
        """Write what waits."""
        for number in list(self._waiting):
            await self._flush(number)

    async def _flush(self, number: int) -> None:
        self._weights.pop(number, None)
        await self._write(number, self._waiting.pop(number, []))

    async def _write(
        self,
        number: int,
        conversations: Sequence[ConversationWrite] = (),
        buckets: Mapping[Place, bytes | None] | None = None,
    ) -> None:
        positions = self.positions[number]
        former = positions[FORMER]
        batch = BatchWrite(
            number,
            self._mark,
            b"%b-%d" % (self._mark, next(self._numbers)),
            {topic: position.offset for topic, position in positions.items()},
            {FORMER: replace(former, offset=former.offset + 1)},
            conversations,
            buckets or {},
        )
        result = await self.store.write(batch)
        if isinstance(result, Moved):
            raise WentBack(number)
        if result != Written():
            raise OnHold(await self.store.held_by() or "")
        positions.update(batch.positions)


def _size(piece: ConversationWrite) -> int:
    return sum(
        len(name) + len(part or b"")
        for parts in (piece.hot, piece.fingerprints)
        for name, part in parts.items()
    )


def _pieces(key: ConversationKey, parts: StoredConversation) -> Iterator[ConversationWrite]:
    """A conversation as writes that each are small enough for one call."""
    piece, size = ConversationWrite(key, last_record_ms=parts.last_record_ms), 0
    for into, found in (("hot", parts.hot), ("fingerprints", parts.fingerprints or {})):
        for name, part in found.items():
            if size > PIECE_BYTES or len(piece.hot) + len(piece.fingerprints) >= PIECE_PARTS:
                yield piece
                piece, size = ConversationWrite(key, last_record_ms=parts.last_record_ms), 0
            getattr(piece, into)[name] = part
            size += len(part)
    yield piece


class _Tombstones:
    """What is left of forgotten and of expired conversations; nobody knows which keys they would
    have."""

    def __init__(self) -> None:
        self._found: dict[ConversationKey, tuple[Version | None, StoredConversation]] = {}

    def add(self, key: ConversationKey, version: Version | None, parts: StoredConversation) -> None:
        """Note one; of several of a conversation the highest version stays, and the last time.

        Those that have expired (without a version) are below all that were forgotten.
        """
        known = self._found.get(key)
        last = parts.last_record_ms
        if known is not None:
            last = max(last, known[1].last_record_ms)
            if version is None or (known[0] is not None and known[0] > version):
                version, parts = known
        self._found[key] = version, StoredConversation(parts.hot, {}, last)

    async def put(self, drafts: _Drafts, number: int, pieces: Pieces | None) -> None:
        """Write all to a partition, but for those whose conversation it has.

        Where conversations lay in pieces, one of which was forgotten, so is what is left of it.
        """
        await drafts.flush()
        keys = list(self._found)
        for first in range(0, len(keys), PAGE):
            page = keys[first : first + PAGE]
            there = await drafts.store.load(number, [(key, False) for key in page])
            for key, parts in zip(page, there, strict=True):
                version, tombstone = self._found[key]
                if not parts.hot:
                    await drafts.put(number, key, tombstone)
                elif pieces is not None and version is not None:
                    name = stored_header(parts.hot).conversation_id
                    await drafts.add(number, key, name, tombstone, pieces.merge)


async def _conversations(
    store: StateStore, number: int
) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
    """All conversations of a partition, with fingerprints."""
    async for page in _pages(store, number):
        found = await store.load_fingerprints(number, [key for key, _ in page])
        for (key, parts), fingerprints in zip(page, found, strict=True):
            yield key, StoredConversation(parts.hot, fingerprints, parts.last_record_ms)


async def _pages(
    store: StateStore, number: int
) -> AsyncIterator[list[tuple[ConversationKey, StoredConversation]]]:
    page = []
    async for listed in store.conversations(number):
        page.append(listed)
        if len(page) >= PAGE:
            yield page
            page = []
    if page:
        yield page


# -- windows


async def _left(store: StateStore, move: Move, windows: Iterable[Window]) -> dict[int, Summed]:
    """What expired conversations left in the windows, by the new partition that is to have it.

    A sum over all partitions does not tell in which of them it lies.
    """
    names = {window.name for window in left_windows(windows)}
    numbers = list(move.starts)
    found: dict[int, Summed] = {}
    for at, number in enumerate(move.retired):
        into = found.setdefault(numbers[at % len(numbers)], {})
        for place, data in (await store.buckets(number)).items():
            if place[0] in names:
                add(into.setdefault(place, {}), decode_sums(data), 1)
    return found


class _Buckets:
    """The windows of a partition, from its conversations and what expired ones have left."""

    def __init__(self, options: PartitionOptions, names: SharedNames, record_time_us: int) -> None:
        self._engine = options.engine
        self._names = names
        self._record_time_us = record_time_us
        self._windows = Windows(options.windows)
        self._specs = {LEFT + window.name: window for window in options.windows}
        self._left: Summed = {}
        dedup = deduplicator(options.engine.rules, b"")
        self._step = Step(options.engine, lambda _: dedup)

    async def add_left(self, left: Summed) -> None:
        """Begin with what expired conversations left, under the names in force now."""
        for (name, bucket, agent), sums in left.items():
            window = self._specs[name]
            if bucket < oldest_bucket(window, self._record_time_us):
                continue
            cell = Cell(bucket * window.bucket_us, agent, sums, routes_in(sums))
            names = await self._names.names([(1, cell)])
            place = (name, bucket, names.agent(agent))
            add(self._left.setdefault(place, {}), names.sums(cell), 1)
        for (name, bucket, agent), sums in self._left.items():
            self._windows.load(self._specs[name].name, bucket, agent, encode_sums(sums))

    async def add(self, page: Iterable[tuple[ConversationKey, StoredConversation]]) -> None:
        """Add what conversations add."""
        cells = []
        for key, parts in page:
            with naming(key, parts):
                conversation = decode_conversation("", parts.hot, "")
                self._step.restore(conversation)
            cells += [(1, cell) for cell in conversation_cells(conversation, self._engine)]
        names: Names = await self._names.names(cells)
        self._windows.install(self._windows.changes(cells, names, self._record_time_us))

    def content(self) -> dict[Place, bytes | None]:
        """All buckets, as they are stored."""
        whole: dict[Place, bytes | None] = {
            (window, bucket, agent): sums
            for window, buckets in self._windows.buckets.items()
            for (bucket, agent), sums in buckets.items()
        }
        return whole | {place: encode_sums(sums) for place, sums in self._left.items() if sums}
