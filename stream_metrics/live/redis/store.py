"""``StateStore`` in Redis: one script per batch, one pipeline per load, no retries.

A call raises ``StoreUnavailable`` if Redis cannot answer now, immediately or after the socket
timeout; the caller decides when to retry. ``write`` is idempotent. A wrong password or a missing
permission raises ``StoreRefused``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from secrets import token_bytes
from typing import Any, Final

from msgspec.structs import replace
from redis.asyncio import Redis, RedisCluster

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.layout import NOTHING, Generation, Layout, UnreadableLayout, decode, encode
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationKey,
    Fenced,
    PartitionState,
    Position,
    StoredConversation,
    Superseded,
    Wiped,
    WipeResult,
    Wiping,
    WriteResult,
)
from stream_metrics.live.redis import codec
from stream_metrics.live.redis.errors import is_demoted, translate_error
from stream_metrics.live.redis.keys import (
    BATCH_ID,
    DOCUMENT,
    FROZEN,
    TOKEN,
    UNLISTED,
    VERSION,
    WIPING,
    Keys,
    PartitionKeys,
    choose_tags,
)
from stream_metrics.live.redis.script import Client, Script
from stream_metrics.live.worker.batches import check_batch, check_claim, frozen_token
from stream_metrics.live.worker.ownership.generations import check_claimed

PAGE: Final = 256  # conversations per call when reading or deleting all of a partition
SCAN_COUNT: Final = 1_000  # COUNT of SCAN
MARK_BYTES: Final = 8

Buckets = dict[tuple[str, int, str], bytes]
Closer = Callable[[], Awaitable[None]]


class RedisStore:
    """The state of a namespace and of one of its generations.

    ``client`` must not decode responses. Without a ``generation`` the store has no partitions.
    ``close`` awaits ``closers`` after the client's own ``aclose``. ``connect`` creates stores.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        closers: Iterable[Closer] = (),
        generation: Generation | None = None,
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.keys = Keys(namespace)
        self._generation = generation
        self._closers = tuple(closers)
        self._shares_client = False
        self._stale = False
        places = () if generation is None else generation.places
        self._partitions = dict(enumerate(map(self.keys.partition, places)))
        self._layout = Script("layout")
        self._describe = Script("describe")
        self._claim = Script("claim")
        self._write = Script("write")
        self._wipe = Script("wipe")
        self._page = Script("page")
        self._freeze = Script("freeze")
        self._heartbeat = Script("heartbeat")

    # -- the namespace

    async def layout(self) -> Layout:
        """See ``StateStore.layout``."""
        key = self.keys.layout
        try:
            async with self._translating(key):
                stored = await self._hash(key)
            if not stored:
                return NOTHING
            layout = decode(stored.get(DOCUMENT, b""))
            if stored.get(VERSION) != b"%d" % layout.version:
                raise ValueError("its version is another one than its document says")
        except (DamagedState, ValueError) as error:
            raise UnreadableLayout(
                f"the list of the generations of state, {key.decode()} in Redis, is damaged: "
                f"{error}. Restore a backup of Redis, or start anew: with another kafka.group_id, "
                "and another redis.namespace if that is set"
            ) from error
        return layout

    async def change_layout(self, after: Layout) -> Layout | None:
        """See ``StateStore.change_layout``; places are hash tags, chosen here."""
        chosen = tuple(
            replace(g, places=g.places or choose_tags(g.identity.count, g.mark))
            for g in after.generations
        )
        stored = replace(after, generations=chosen)
        arguments: list[bytes | int] = [after.version - 1, after.version, encode(stored)]
        async with self._translating(self.keys.layout):
            done = await self._layout.run(self.client, [self.keys.layout], arguments)
        return stored if done else None

    async def note(self, name: str) -> bytes:
        """See ``Notes.note``."""
        async with self._translating(self.keys.notes):
            return await self._execute("HGET", self.keys.notes, name) or b""

    async def keep_note(self, name: str, text: bytes) -> None:
        """See ``Notes.keep_note``."""
        async with self._translating(self.keys.notes):
            if text:
                await self._execute("HSET", self.keys.notes, name, text)
            else:
                await self._execute("HDEL", self.keys.notes, name)

    async def drop_notes(self) -> None:
        """See ``Notes.drop_notes``."""
        async with self._translating(self.keys.notes):
            await self._execute("UNLINK", self.keys.notes)

    @property
    def bound(self) -> Generation | None:
        """The generation of the store; None without one."""
        return self._generation

    def generation(self, generation: Generation) -> RedisStore:
        """See ``StateStore.generation``."""
        made = RedisStore(self.client, self.namespace, generation=generation)
        made._shares_client = True
        return made

    async def close(self) -> None:
        """See ``StateStore.close``."""
        if self._shares_client:
            return
        await self.client.aclose()
        for closer in self._closers:
            await closer()

    # -- the partitions of a generation

    async def partitions(self) -> list[int]:
        """See ``StateStore.partitions``."""
        if not self._partitions:
            return []
        async with self._translating(self.keys.partition("*").meta):
            pipeline = self._pipeline()
            for keys in self._partitions.values():
                pipeline.execute_command("HEXISTS", keys.meta, TOKEN)
            begun = await pipeline.execute()
        return [number for number, has in zip(self._partitions, begun, strict=True) if has]

    async def describe(self, partition: int) -> PartitionState:
        """See ``StateStore.describe``."""
        keys = self._partitions.get(partition)
        if keys is None:
            return PartitionState(None, {})
        async with self._translating(keys.meta):
            held, now_ms, *flat = await self._describe.run(self.client, [keys.meta, keys.idle], [])
        state = codec.read_state(dict(zip(flat[::2], flat[1::2], strict=True)))
        state.conversations = 0 if state.token is None else int(held)
        state.store_ms = int(now_ms)
        return state

    async def frozen_by(self, partition: int) -> int:
        """See ``StateStore.frozen_by``."""
        keys = self._partitions.get(partition)
        if keys is None:
            return 0
        try:
            async with self._translating(keys.meta):
                return int(await self._execute("HGET", keys.meta, FROZEN) or 0)
        except DamagedState:
            return 0

    async def claim(
        self, partition: int, token: bytes, start: Mapping[str, Position]
    ) -> PartitionState:
        """See ``StateStore.claim``; ``ValueError`` for arguments that no store takes.

        The layout is not read if the partition was written to (``check_claimed``).
        The owner is set atomically, and the buckets are read after that. A worker that claims the
        partition in between may change them, but its claim also fences the writes of this one.
        """
        check_claim(partition, token, start)
        keys = self._partitions.get(partition)
        if keys is None or self._generation is None:
            raise ValueError(f"the generation has no partition {partition}")
        arguments: list[bytes | int] = [token, *codec.position_fields(start)]
        while True:
            async with self._translating(keys.meta):
                done, *flat = await self._claim.run(self.client, [keys.meta], arguments)
                if done == b"frozen":
                    raise Superseded(self._generation.number, int(flat[0]))
                if done == b"wiping":
                    await self._wipe_step(keys, token)
                    continue
            meta = dict(zip(flat[::2], flat[1::2], strict=True))
            if BATCH_ID not in meta:
                await check_claimed(
                    self, self._generation, partition, token, begun=done == b"begun"
                )
            async with self._translating(keys.all):
                state = codec.read_state(meta)
                state.buckets = await self._buckets(keys, meta)
                return state

    async def heartbeat(
        self, partition: int, token: bytes, worker: str, behind_ms: int | None = None
    ) -> None:
        """See ``StateStore.heartbeat``."""
        keys = self._partitions.get(partition)
        if keys is not None:
            behind = b"" if behind_ms is None else b"%d" % behind_ms
            arguments = [token, codec.text_bytes(worker), behind]
            async with self._translating(keys.meta):
                await self._heartbeat.run(self.client, [keys.meta], arguments)

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]], *, hot: bool = True
    ) -> list[StoredConversation]:
        """See ``StateStore.load``."""
        names = self._partitions.get(partition)
        wanted: list[bytes] = []
        if names is not None:
            for key, with_fingerprints in keys:
                if hot:
                    wanted.append(names.hot(key))
                if with_fingerprints:
                    wanted.append(names.fingerprints(key))
        async with self._translating(names.all if names else b""):
            hashes = iter(await self._owned_hashes(names, wanted))
        return [
            StoredConversation(
                next(hashes, {}) if hot else {}, next(hashes, {}) if with_fingerprints else None
            )
            for _, with_fingerprints in keys
        ]

    async def write(self, batch: BatchWrite) -> WriteResult:
        """See ``StateStore.write``; ``ValueError`` for a batch that no store takes."""
        check_batch(batch)
        keys = self._partitions.get(batch.partition)
        if keys is None:
            return Fenced()
        async with self._translating(keys.all):
            call_keys, arguments = codec.write_call(batch, keys)
            return codec.read_result(await self._write.run(self.client, call_keys, arguments))

    async def buckets(self, partition: int, window: str | None = None) -> Buckets:
        """See ``StateStore.buckets``; each window is read atomically."""
        keys = self._partitions.get(partition)
        if keys is None:
            return {}
        async with self._translating(keys.all):
            return await self._buckets(keys, await self._hash(keys.meta), window)

    async def by_age(
        self, partition: int, since_ms: int, before_ms: int, limit: int, *, newest: bool = False
    ) -> list[ConversationKey]:
        """See ``StateStore.by_age``; ties are in the order of keys."""
        keys = self._partitions.get(partition)
        if keys is None or limit <= 0:
            return []
        bounds: list[str | int] = [since_ms, f"({before_ms}", "BYSCORE"]
        if newest:
            bounds = [bounds[1], bounds[0], "BYSCORE", "REV"]
        async with self._translating(keys.all):
            pipeline = self._pipeline()
            pipeline.execute_command("HEXISTS", keys.meta, TOKEN)
            pipeline.execute_command("ZRANGE", keys.idle, *bounds, "LIMIT", 0, limit)
            owned, members = await pipeline.execute()
        return list(members) if owned else []

    async def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """See ``StateStore.conversations``; a page at a time, the longest idle first."""
        names = self._partitions.get(partition)
        if names is None:
            return
        place: list[bytes | int] = []
        while True:
            async with self._translating(names.all):
                flat = await self._page.run(self.client, [names.idle], [PAGE, *place])
                last = {key: int(float(ms)) for key, ms in zip(flat[::2], flat[1::2], strict=True)}
                hashes = await self._owned_hashes(names, [names.hot(key) for key in last])
            for key, hot in zip(last, hashes or [{}] * len(last), strict=True):
                if hot:
                    yield key, StoredConversation(hot, last_record_ms=last[key])
            if len(last) < PAGE:
                return
            place = [flat[-1], flat[-2]]

    async def freeze(self, partition: int, by: int) -> None:
        """See ``StateStore.freeze``."""
        keys = self._partitions.get(partition)
        if keys is not None:
            arguments: list[bytes | int] = [by, frozen_token(by) if by else b""]
            async with self._translating(keys.meta):
                await self._freeze.run(self.client, [keys.meta], arguments)

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """See ``StateStore.wipe``; ``PAGE`` conversations a step."""
        keys = self._partitions.get(partition)
        if keys is None:
            return Wiped()
        async with self._translating(keys.all):
            return await self._wipe_step(keys, token or b"")

    async def _wipe_step(self, keys: PartitionKeys, token: bytes) -> WipeResult:
        """Start a wipe, or delete its next page, or finally the windows and ``meta``."""
        meta = await self._hash(keys.meta)
        mark = meta.get(WIPING)
        call_keys, arguments = [keys.meta, keys.idle], [token, mark or token_bytes(MARK_BYTES)]
        page: list[ConversationKey] = []
        if mark is not None:
            listed, unlisted = await self._execute("TYPE", keys.idle) in (b"zset", b"none"), []
            if listed:
                page = await self._execute("ZRANGE", keys.idle, 0, PAGE - 1)
            if not page and (UNLISTED in meta or not listed):
                unlisted = await self._unlisted_keys(keys)
            arguments += page + unlisted
            call_keys += unlisted
            for key in page:
                call_keys += [keys.hot(key), keys.fingerprints(key)]
            if not page and not unlisted:
                call_keys += [keys.window(window) for window in codec.read_windows(meta)]
        [result, *by] = await self._wipe.run(self.client, call_keys, arguments)
        if result == b"frozen":
            number = 0 if self._generation is None else self._generation.number
            raise Superseded(number, int(by[0]))
        if result == b"fenced":
            return Fenced()
        return Wiped() if result == b"wiped" else Wiping(len(page))

    async def _unlisted_keys(self, keys: PartitionKeys) -> list[bytes]:
        """A page of keys found by ``SCAN``, for when ``idle`` and ``meta`` do not list them.

        Nothing else needs the right to run ``SCAN``.
        """
        client: Any = self.client
        where = {}
        if isinstance(client, RedisCluster):
            await client.initialize()
            where["target_nodes"] = client.get_node_from_key(keys.meta.decode())
        unlisted: list[bytes] = []
        async for key in client.scan_iter(match=keys.contents, count=SCAN_COUNT, **where):
            unlisted.append(key)
            if len(unlisted) >= PAGE:
                break
        return unlisted

    async def _owned_hashes(
        self, names: PartitionKeys | None, keys: Sequence[bytes]
    ) -> list[dict[bytes, bytes]]:
        """The content of hashes; empty if the partition has no owner, as during a wipe."""
        if names is None or not keys:
            return []
        pipeline = self._pipeline()
        pipeline.execute_command("HEXISTS", names.meta, TOKEN)
        for key in keys:
            pipeline.execute_command("HGETALL", key)
        owned, *hashes = await pipeline.execute()
        return list(hashes) if owned else []

    async def _buckets(
        self, keys: PartitionKeys, meta: codec.Meta, only: str | None = None
    ) -> Buckets:
        if WIPING in meta:
            return {}
        windows = [window for window in codec.read_windows(meta) if only in (None, window)]
        stored = await self._hashes([keys.window(window) for window in windows])
        return {
            (window, *codec.read_bucket(field)): value
            for window, fields in zip(windows, stored, strict=True)
            for field, value in fields.items()
        }

    async def _hashes(self, keys: Sequence[bytes]) -> list[dict[bytes, bytes]]:
        """The content of hashes, each read atomically."""
        if not keys:
            return []
        pipeline = self._pipeline()
        for key in keys:
            pipeline.execute_command("HGETALL", key)
        hashes: list[dict[bytes, bytes]] = await pipeline.execute()
        return hashes

    async def _hash(self, key: bytes) -> dict[bytes, bytes]:
        content: dict[bytes, bytes] = await self._execute("HGETALL", key)
        return content

    async def _execute(self, *command: bytes | str | int) -> Any:
        return await self.client.execute_command(*command)

    def _pipeline(self) -> Any:
        """A pipeline without a transaction."""
        return self.client.pipeline(transaction=False)

    @asynccontextmanager
    async def _translating(self, place: bytes) -> AsyncIterator[None]:
        """Translate errors into the port's; after one, look up the masters before the next call.

        ``place`` is the key that is used, or a pattern of several.
        """
        try:
            await self._refresh()
            yield
        except Exception as error:
            raised = translate_error(error, _named(place))
            if raised is error:
                raise
            self._stale = True
            if is_demoted(error) and isinstance(self.client, Redis):
                pool: Any = self.client.connection_pool
                await pool.update_active_connections_for_reconnect()
                await pool.disconnect(inuse_connections=False)
            raise raised from error

    async def _refresh(self) -> None:
        """After an error, ask a Cluster for its nodes, also the configured ones.

        The client does this itself after some errors, but not after errors in a pipeline. Other
        clients reconnect by themselves.
        """
        if self._stale and isinstance(self.client, RedisCluster):
            first = [(node.host, int(node.port)) for node in self.client.startup_nodes]
            await self.client.nodes_manager.initialize(additional_startup_nodes_info=first)
        self._stale = False


def _named(place: bytes) -> str:
    """A key or a pattern of keys, for a message."""
    name = place.decode()
    return f"one of the keys {name}" if "*" in name else f"the key {name}"
