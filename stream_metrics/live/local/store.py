"""``StateStore`` in the SQLite file: a method is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.layout import NOTHING, Generation, Layout, UnreadableLayout, decode, encode
from stream_metrics.live.local.database import Database, insert_rows
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationKey,
    ConversationWrite,
    Fenced,
    Moved,
    PartitionState,
    Position,
    StoredConversation,
    Superseded,
    Wiped,
    WipeResult,
    Wiping,
    WriteResult,
    Written,
)
from stream_metrics.live.worker.batches import check_batch, check_claim, frozen_token
from stream_metrics.live.worker.clock import wall_ms
from stream_metrics.live.worker.ownership.generations import check_claimed

PAGE: Final = 256  # conversations in one step of a listing or a wipe

KEYS_A_CALL: Final = 64  # a call with fewer repeats one of them, so that one statement is prepared
_IDS: Final = (
    "SELECT key, id FROM conversations WHERE place = ? "  # noqa: S608
    f"AND key IN ({', '.join('?' * KEYS_A_CALL)})"
)

Buckets = dict[tuple[str, int, str], bytes]


class _Held(NamedTuple):
    """The row of a partition."""

    place: int
    token: bytes
    batch: bytes
    wiping: int
    worker: bytes
    beat_ms: int
    behind_ms: int | None
    beat_token: bytes


class LocalStore:
    """The state of the file, and of one of its generations; ``clock`` is in ms of Unix time.

    Without ``generation``, it holds the partitions of a generation that is not in the layout.
    """

    def __init__(
        self,
        database: Database,
        generation: Generation | None = None,
        clock: Callable[[], int] = wall_ms,
    ) -> None:
        self._database = database
        self._generation = generation
        self._mark = "" if generation is None else generation.mark
        self._clock = clock

    # -- the namespace

    async def layout(self) -> Layout:
        """See ``StateStore.layout``."""
        return await self._database.read(self._layout)

    async def change_layout(self, after: Layout) -> Layout | None:
        """See ``StateStore.change_layout``; generations get no places here."""

        def change(connection: sqlite3.Connection) -> Layout | None:
            if after.version != self._layout(connection).version + 1:
                return None
            statement = "INSERT OR REPLACE INTO layout VALUES (0, ?)"
            connection.execute(statement, (encode(after),))
            return after

        return await self._database.write(change)

    async def note(self, name: str) -> bytes:
        """See ``Notes.note``."""
        statement, place = "SELECT text FROM notes WHERE name = ?", (name.encode(),)

        def read(connection: sqlite3.Connection) -> bytes:
            found = connection.execute(statement, place).fetchone()
            return b"" if found is None else bytes(found[0])

        return await self._database.read(read)

    async def keep_note(self, name: str, text: bytes) -> None:
        """See ``Notes.keep_note``."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM notes WHERE name = ?", (name.encode(),))
            if text:
                connection.execute("INSERT INTO notes VALUES (?, ?)", (name.encode(), text))

        await self._database.write(write)

    async def drop_notes(self) -> None:
        """See ``Notes.drop_notes``."""
        await self._database.write(
            lambda connection: connection.execute("DELETE FROM notes").close()
        )

    def generation(self, generation: Generation) -> LocalStore:
        """See ``StateStore.generation``."""
        return LocalStore(self._database, generation, self._clock)

    async def close(self) -> None:
        """Do nothing: who has opened the file closes it."""

    # -- the partitions of a generation

    async def partitions(self) -> list[int]:
        """See ``StateStore.partitions``."""
        statement = "SELECT number FROM partitions WHERE mark = ? AND NOT wiping ORDER BY number"

        def read(connection: sqlite3.Connection) -> list[int]:
            return [number for (number,) in connection.execute(statement, (self._mark,))]

        return await self._database.read(read)

    async def describe(self, partition: int) -> PartitionState:
        """See ``StateStore.describe``."""
        return await self._database.read(lambda at: self._describe(at, partition))

    async def frozen_by(self, partition: int) -> int:
        """See ``StateStore.frozen_by``."""
        return await self._database.read(lambda at: self._frozen_by(at, partition))

    async def claim(
        self, partition: int, token: bytes, start: Mapping[str, Position]
    ) -> PartitionState:
        """See ``StateStore.claim``; ``ValueError`` for arguments that no store takes."""
        check_claim(partition, token, start)

        def claim(connection: sqlite3.Connection) -> tuple[PartitionState, bool] | None:
            self._require_not_frozen(connection, partition)
            held = self._held(connection, partition)
            if held is not None and held.wiping:
                return None
            if held is None:
                statement = "INSERT INTO partitions (mark, number, token) VALUES (?, ?, ?)"
                connection.execute(statement, (self._mark, partition, token))
                held = self._known(connection, partition)
                _set_positions(connection, held.place, start)
                begun = True
            else:
                statement = "UPDATE partitions SET token = ? WHERE place = ?"
                connection.execute(statement, (token, held.place))
                begun = False
            state = self._describe(connection, partition)
            state.buckets = _buckets(connection, held.place)
            return state, begun

        while (claimed := await self._database.write(claim)) is None:
            await self.wipe(partition)
        state, begun = claimed
        if self._generation is not None and not state.last_batch:
            await check_claimed(self, self._generation, partition, token, begun=begun)
        return state

    async def heartbeat(
        self, partition: int, token: bytes, worker: str, behind_ms: int | None = None
    ) -> None:
        """See ``StateStore.heartbeat``."""
        statement = (
            "UPDATE partitions SET worker = ?, beat_ms = ?, behind_ms = ?, beat_token = token "
            "WHERE mark = ? AND number = ? AND token = ? AND NOT wiping"
        )
        values = (_bytes(worker), self._clock(), behind_ms, self._mark, partition, token)
        await self._database.write(lambda at: at.execute(statement, values))

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]], *, hot: bool = True
    ) -> list[StoredConversation]:
        """See ``StateStore.load``."""

        def load(connection: sqlite3.Connection) -> list[StoredConversation]:
            ids = _ids(connection, self._place(connection, partition), [key for key, _ in keys])
            return [
                StoredConversation(
                    _parts(connection, "hot", ids.get(key)) if hot else {},
                    _parts(connection, "fingerprints", ids.get(key)) if with_fingerprints else None,
                )
                for key, with_fingerprints in keys
            ]

        return await self._database.read(load)

    async def write(self, batch: BatchWrite) -> WriteResult:
        """See ``StateStore.write``; ``ValueError`` for a batch that no store takes."""
        check_batch(batch)

        def write(connection: sqlite3.Connection) -> WriteResult:
            held = self._held(connection, batch.partition)
            if held is None or held.wiping or held.token != batch.token:
                return Fenced()
            offsets = {topic: p.offset for topic, p in _positions(connection, held.place).items()}
            new = {topic: position.offset for topic, position in batch.positions.items()}
            if held.batch == batch.batch_id and new.items() <= offsets.items():
                return Written()
            if not batch.expected.items() <= offsets.items():
                return Moved(offsets)
            _apply(connection, held.place, batch)
            return Written()

        return await self._database.write(write)

    async def buckets(self, partition: int, window: str | None = None) -> Buckets:
        """See ``StateStore.buckets``."""

        def read(connection: sqlite3.Connection) -> Buckets:
            return _buckets(connection, self._place(connection, partition), window)

        return await self._database.read(read)

    async def by_age(
        self, partition: int, since_ms: int, before_ms: int, limit: int, *, newest: bool = False
    ) -> list[ConversationKey]:
        """See ``StateStore.by_age``; of equal age by their keys."""
        order = "DESC" if newest else "ASC"
        statement = (
            "SELECT key FROM conversations WHERE place = ? AND last_record_ms >= ? "  # noqa: S608
            f"AND last_record_ms < ? ORDER BY last_record_ms {order}, key {order} LIMIT ?"
        )

        def read(connection: sqlite3.Connection) -> list[ConversationKey]:
            place = self._place(connection, partition)
            values = (place, since_ms, before_ms, max(limit, 0))
            return [key for (key,) in connection.execute(statement, values)]

        return await self._database.read(read)

    async def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """See ``StateStore.conversations``; a page at a time, the longest idle first."""
        statement = (
            "SELECT last_record_ms, key, id FROM conversations WHERE place = ? "
            "AND (last_record_ms, key) > (?, ?) ORDER BY last_record_ms, key LIMIT ?"
        )
        after: tuple[int, bytes] = (-(1 << 62), b"")

        def read(
            connection: sqlite3.Connection,
        ) -> list[tuple[int, ConversationKey, dict[bytes, bytes]]]:
            place = self._place(connection, partition)
            page = connection.execute(statement, (place, *after, PAGE)).fetchall()
            return [(ms, key, _parts(connection, "hot", id_)) for ms, key, id_ in page]

        while page := await self._database.read(read):
            for last_ms, key, hot in page:
                if hot:
                    yield key, StoredConversation(hot, last_record_ms=last_ms)
            after = page[-1][:2]

    async def freeze(self, partition: int, by: int) -> None:
        """See ``StateStore.freeze``."""

        def freeze(connection: sqlite3.Connection) -> None:
            place = (self._mark, partition)
            if not by:
                if self._held(connection, partition) is None:
                    connection.execute("DELETE FROM frozen WHERE mark = ? AND number = ?", place)
                return
            connection.execute("INSERT OR REPLACE INTO frozen VALUES (?, ?, ?)", (*place, by))
            statement = "UPDATE partitions SET token = ? WHERE mark = ? AND number = ?"
            connection.execute(statement, (frozen_token(by), *place))

        await self._database.write(freeze)

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """See ``StateStore.wipe``; ``PAGE`` conversations a step."""

        def wipe(connection: sqlite3.Connection) -> WipeResult:
            if token is not None:
                self._require_not_frozen(connection, partition)
            held = self._held(connection, partition)
            if held is None:
                return Wiped()
            if held.wiping:
                return _wipe_page(connection, held.place)
            if token is not None and token != held.token:
                return Fenced()
            connection.execute("UPDATE partitions SET wiping = 1 WHERE place = ?", (held.place,))
            return Wiping()

        return await self._database.write(wipe)

    # -- rows

    def _layout(self, connection: sqlite3.Connection) -> Layout:
        found = connection.execute("SELECT document FROM layout").fetchone()
        if found is None:
            return NOTHING
        try:
            return decode(found[0])
        except (DamagedState, ValueError) as error:
            raise UnreadableLayout(
                f"the list of the generations of state in {self._database.path} is damaged: "
                f"{error}. Restore a copy of the file, or start with an empty folder"
            ) from error

    def _held(self, connection: sqlite3.Connection, partition: int) -> _Held | None:
        statement = (
            "SELECT place, token, batch, wiping, worker, beat_ms, behind_ms, beat_token "
            "FROM partitions WHERE mark = ? AND number = ?"
        )
        found = connection.execute(statement, (self._mark, partition)).fetchone()
        return None if found is None else _Held(*found)

    def _known(self, connection: sqlite3.Connection, partition: int) -> _Held:
        held = self._held(connection, partition)
        assert held is not None
        return held

    def _place(self, connection: sqlite3.Connection, partition: int) -> int:
        """The place of a partition; -1, where nothing is, if it has no state."""
        held = self._held(connection, partition)
        return -1 if held is None or held.wiping else held.place

    def _frozen_by(self, connection: sqlite3.Connection, partition: int) -> int:
        statement = "SELECT by FROM frozen WHERE mark = ? AND number = ?"
        found = connection.execute(statement, (self._mark, partition)).fetchone()
        return 0 if found is None else int(found[0])

    def _require_not_frozen(self, connection: sqlite3.Connection, partition: int) -> None:
        if by := self._frozen_by(connection, partition):
            raise Superseded(0 if self._generation is None else self._generation.number, by)

    def _describe(self, connection: sqlite3.Connection, partition: int) -> PartitionState:
        state = PartitionState(None, {}, store_ms=self._clock())
        state.frozen_by = self._frozen_by(connection, partition)
        held = self._held(connection, partition)
        if held is None or held.wiping:
            state.wiping = held is not None
            return state
        marks = connection.execute("SELECT mark FROM marks WHERE place = ?", (held.place,))
        counted = connection.execute(
            "SELECT count(*) FROM conversations WHERE place = ?", (held.place,)
        )
        state.token, state.positions = held.token, _positions(connection, held.place)
        state.last_batch, state.marks = held.batch, frozenset(_text(mark) for (mark,) in marks)
        [state.conversations] = counted.fetchone()
        if held.beat_token == held.token:
            state.worker, state.beat_ms = _text(held.worker), held.beat_ms
            state.behind_ms = held.behind_ms
        return state


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _positions(connection: sqlite3.Connection, place: int) -> dict[str, Position]:
    statement = (
        'SELECT topic, "offset", last_timestamp_ms, last_digest, record_time_ms, event_time_us '
        "FROM positions WHERE place = ?"
    )
    found = connection.execute(statement, (place,))
    return {_text(topic): Position(*values) for topic, *values in found}


def _set_positions(
    connection: sqlite3.Connection, place: int, positions: Mapping[str, Position]
) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                place,
                _bytes(topic),
                position.offset,
                position.last_timestamp_ms,
                position.last_digest,
                position.record_time_ms,
                position.event_time_us,
            )
            for topic, position in positions.items()
        ],
    )


def _buckets(connection: sqlite3.Connection, place: int, window: str | None = None) -> Buckets:
    statement = 'SELECT "window", bucket, agent, sums FROM buckets WHERE place = ?'
    values: tuple[int | bytes, ...] = (place,)
    if window is not None:
        statement += ' AND "window" = ?'
        values = (place, _bytes(window))
    return {
        (_text(name), bucket, _text(agent)): sums
        for name, bucket, agent, sums in connection.execute(statement, values)
    }


def _ids(
    connection: sqlite3.Connection, place: int, keys: Sequence[ConversationKey]
) -> dict[ConversationKey, int]:
    """The ids of those conversations that there are."""
    found: dict[ConversationKey, int] = {}
    for at in range(0, len(keys), KEYS_A_CALL):
        some = keys[at : at + KEYS_A_CALL]
        sought = [*some, *[some[-1]] * (KEYS_A_CALL - len(some))]
        found.update(connection.execute(_IDS, (place, *sought)))
    return found


def _parts(
    connection: sqlite3.Connection, table: str, conversation: int | None
) -> dict[bytes, bytes]:
    """The parts of a conversation, by its id; there are none without one."""
    statement = f"SELECT name, part FROM {table} WHERE conversation = ?"  # noqa: S608
    return dict(connection.execute(statement, (conversation,)).fetchall())


def _apply(connection: sqlite3.Connection, place: int, batch: BatchWrite) -> None:
    for changes in _rounds(batch.conversations):
        _change_conversations(connection, place, changes)
    names = [
        (place, _bytes(window), number, _bytes(agent), sums)
        for (window, number, agent), sums in batch.buckets.items()
    ]
    insert_rows(
        connection,
        "INSERT OR REPLACE INTO buckets VALUES",
        [name for name in names if name[4] is not None],
    )
    connection.executemany(
        'DELETE FROM buckets WHERE place = ? AND "window" = ? AND bucket = ? AND agent = ?',
        [name[:4] for name in names if name[4] is None],
    )
    _set_positions(connection, place, batch.positions)
    connection.executemany(
        "INSERT OR IGNORE INTO marks VALUES (?, ?)", [(place, _bytes(m)) for m in batch.marks]
    )
    connection.execute("UPDATE partitions SET batch = ? WHERE place = ?", (batch.batch_id, place))


def _rounds(changes: Iterable[ConversationWrite]) -> Iterable[list[ConversationWrite]]:
    """The changes in parts, in each of which deletions come before changes of the same key."""
    part: list[ConversationWrite] = []
    changed: set[bytes] = set()
    for change in changes:
        if change.delete and change.key in changed:
            yield part
            part, changed = [], set()
        if not change.delete:
            changed.add(change.key)
        part.append(change)
    yield part


def _change_conversations(
    connection: sqlite3.Connection, place: int, changes: Sequence[ConversationWrite]
) -> None:
    gone = [change.key for change in changes if change.delete]
    _delete_conversations(connection, _ids(connection, place, gone).values())
    kept = [change for change in changes if not change.delete]
    insert_rows(
        connection,
        "INSERT INTO conversations (place, key, last_record_ms) VALUES",
        [(place, change.key, change.last_record_ms) for change in kept],
        "ON CONFLICT DO UPDATE SET last_record_ms = excluded.last_record_ms "
        "WHERE excluded.last_record_ms > last_record_ms",
    )
    ids = _ids(connection, place, [change.key for change in kept])
    _change_parts(connection, "hot", [(ids[change.key], change.hot) for change in kept])
    fingerprints = [(ids[change.key], change.fingerprints) for change in kept]
    _change_parts(connection, "fingerprints", fingerprints)


def _delete_conversations(connection: sqlite3.Connection, ids: Iterable[int]) -> None:
    rows = [(id_,) for id_ in ids]
    connection.executemany("DELETE FROM hot WHERE conversation = ?", rows)
    connection.executemany("DELETE FROM fingerprints WHERE conversation = ?", rows)
    connection.executemany("DELETE FROM conversations WHERE id = ?", rows)


def _change_parts(
    connection: sqlite3.Connection,
    table: str,
    changes: Iterable[tuple[int, Mapping[bytes, bytes | None]]],
) -> None:
    """Set and delete parts; of several changes of a part, the last one counts."""
    rows = [(id_, name, part) for id_, parts in changes for name, part in parts.items()]
    if any(row[2] is None for row in rows):
        rows = [*{row[:2]: row for row in rows}.values()]
        connection.executemany(
            f"DELETE FROM {table} WHERE conversation = ? AND name = ?",  # noqa: S608
            [row[:2] for row in rows if row[2] is None],
        )
        rows = [row for row in rows if row[2] is not None]
    insert_rows(connection, f"INSERT OR REPLACE INTO {table} VALUES", rows)


def _wipe_page(connection: sqlite3.Connection, place: int) -> WipeResult:
    """Delete a page of conversations, and with the last one the partition."""
    statement = "SELECT id FROM conversations WHERE place = ? LIMIT ?"
    page = [id_ for (id_,) in connection.execute(statement, (place, PAGE))]
    _delete_conversations(connection, page)
    if len(page) == PAGE:
        return Wiping(len(page))
    for table in ("positions", "marks", "buckets", "partitions"):
        connection.execute(f"DELETE FROM {table} WHERE place = ?", (place,))  # noqa: S608
    return Wiped()
