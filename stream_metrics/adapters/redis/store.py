"""``StateStore`` in Redis: one script a batch, one pipeline a load, no retries of its own.

A call that cannot be answered now raises ``StoreUnavailable``, at once or after the client's
socket timeout; whoever called it decides when to try again. ``write`` is safe to repeat. A wrong
password or a missing permission is ``StoreRefused`` instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from secrets import token_bytes
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from stream_metrics.adapters.redis import codec
from stream_metrics.adapters.redis.errors import demoted, translated
from stream_metrics.adapters.redis.keys import (
    FROZEN,
    REGISTRIES,
    TOKEN,
    WIPING,
    Keys,
    PartitionKeys,
)
from stream_metrics.adapters.redis.layout import Layout
from stream_metrics.adapters.redis.script import Client, Script
from stream_metrics.ports import (
    LOST_HOLD,
    BatchWrite,
    ConversationKey,
    Fenced,
    Identity,
    OnHold,
    PartitionState,
    Position,
    StateStore,
    StoredConversation,
    Wiped,
    WipeResult,
    Wiping,
    WriteResult,
)
from stream_metrics.worker.batches import check_batch, check_claim, check_hold

PAGE: Final = 256  # conversations read or deleted at once when walking a partition
SCANNED: Final = 1_000  # keys looked at in one call where all are looked through
MARK_BYTES: Final = 8

Buckets = dict[tuple[str, int, str], bytes]
Closer = Callable[[], Awaitable[None]]


class RedisStore:
    """A namespace of state partitions behind ``client``, which must not decode responses.

    ``closers`` are awaited by ``close`` after the client itself. ``connect`` makes stores. With a
    ``mark`` it is the drafts of whoever holds the namespace by it, on a client of somebody else's.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        closers: Iterable[Closer] = (),
        mark: bytes = b"",
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.keys = Keys(namespace)
        self._closers = tuple(closers)
        self._layout = Layout(client, self.keys, mark)
        self._borrowed = bool(mark)
        self._stale = False
        self._partitions: dict[int, PartitionKeys] = {}
        self._claim = Script("claim")
        self._write = Script("write")
        self._admit = Script("admit")
        self._wipe = Script("wipe")
        self._page = Script("page")
        self._freeze = Script("freeze")
        self._heartbeat = Script("heartbeat")

    async def describe(self, partition: int) -> PartitionState:
        """See ``StateStore.describe``; whatever took the partition's place meanwhile."""
        async with self._translating():
            self._partitions.pop(partition, None)
            keys = await self._keys(partition)
            return codec.read_state(await self._all(keys.meta)) if keys else _nothing()

    async def claim(
        self, partition: int, token: bytes, identity: Identity, start: Mapping[str, Position]
    ) -> PartitionState:
        """See ``StateStore.claim``; ``ValueError`` for arguments that no store takes.

        What begins anew is looked for in the layout afterwards: if a command has replaced it by
        then, or holds the namespace, it is taken back.
        The owner is set in one step, the buckets are read after it. Whoever claims the partition
        in between may change them, but then refuses the writes that rest on this answer.
        """
        check_claim(partition, token, start)
        begin = [*codec.identity_fields(identity), *codec.position_fields(start)]
        async with self._translating():
            keys, flat = await self._taken(partition, token, identity, begin)
            meta = dict(zip(flat[::2], flat[1::2], strict=True))
            state = codec.read_state(meta)
            state.buckets = await self._buckets(keys, meta)
            return state

    async def heartbeat(
        self, partition: int, token: bytes, worker: str, behind_ms: int | None = None
    ) -> None:
        """See ``StateStore.heartbeat``."""
        async with self._translating():
            keys = await self._keys(partition)
            if keys is not None:
                behind = b"" if behind_ms is None else b"%d" % behind_ms
                arguments = [token, codec.text_bytes(worker), behind]
                await self._heartbeat.run(self.client, [keys.meta], arguments)

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]]
    ) -> list[StoredConversation]:
        """See ``StateStore.load``."""
        async with self._translating():
            names = await self._keys(partition)
            wanted: list[bytes] = []
            if names:
                for key, with_fingerprints in keys:
                    wanted.append(names.hot(key))
                    if with_fingerprints:
                        wanted.append(names.fingerprints(key))
            found = iter(await self._owned(names, wanted))
        return [
            StoredConversation(next(found, {}), next(found, {}) if with_fingerprints else None)
            for _, with_fingerprints in keys
        ]

    async def load_fingerprints(
        self, partition: int, keys: Sequence[ConversationKey]
    ) -> list[dict[bytes, bytes]]:
        """See ``StateStore.load_fingerprints``."""
        async with self._translating():
            names = await self._keys(partition)
            wanted = [names.fingerprints(key) for key in keys] if names else []
            return await self._owned(names, wanted) or [{} for _ in keys]

    async def write(self, batch: BatchWrite) -> WriteResult:
        """See ``StateStore.write``; ``ValueError`` for a batch that no store takes."""
        check_batch(batch)
        async with self._translating():
            keys = await self._keys(batch.partition)
            if keys is None:
                return Fenced()
            call_keys, arguments = codec.write_call(batch, keys)
            return codec.read_result(await self._write.run(self.client, call_keys, arguments))

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """See ``StateStore.wipe``; ``PAGE`` conversations a step.

        A hold that comes after the first look is found where it has frozen the partition.
        """
        async with self._translating():
            if token is not None:
                await self._layout.check_free()
            keys = await self._keys(partition)
            return await self._wipe_step(keys, token or b"") if keys else Wiped()

    async def unfinished(self) -> list[int]:
        """See ``StateStore.unfinished``; in rising order."""
        async with self._translating():
            return await self._with(WIPING)

    async def dissolve(self) -> None:
        """See ``StateStore.dissolve``; the layout goes last."""
        async with self._translating():
            if (
                await self._with(TOKEN)
                or await self._with(WIPING)
                or await self._layout.leftovers(None)
            ):
                raise ValueError("the namespace holds state partitions")
            for tag in (await self._layout.tags()).values():
                await self._do("HDEL", self.keys.partition(tag).meta, FROZEN)
            for kind in REGISTRIES:
                await self._do("UNLINK", self.keys.registry(kind))
            await self._do("UNLINK", self.keys.layout)
            self._partitions.clear()

    async def count(self, partition: int) -> int:
        """See ``StateStore.count``."""
        async with self._translating():
            keys = await self._keys(partition)
            if keys is None:
                return 0
            pipeline = self._pipeline()
            pipeline.execute_command("HEXISTS", keys.meta, TOKEN)
            pipeline.execute_command("ZCARD", keys.idle)
            owned, held = await pipeline.execute()
            return int(held) if owned else 0

    async def buckets(self, partition: int, window: str | None = None) -> Buckets:
        """See ``StateStore.buckets``; each window as of one moment."""
        async with self._translating():
            keys = await self._keys(partition)
            return await self._buckets(keys, await self._all(keys.meta), window) if keys else {}

    async def idle(self, partition: int, before_ms: int, limit: int) -> list[ConversationKey]:
        """See ``StateStore.idle``; of equal age in the order of the keys."""
        return await self._by_age(
            partition, limit, "ZRANGEBYSCORE", "-inf", f"({before_ms}", "LIMIT", 0, limit
        )

    async def recent(self, partition: int, since_ms: int, limit: int) -> list[ConversationKey]:
        """See ``StateStore.recent``; of equal age against the order of the keys."""
        flat = await self._by_age(partition, limit, "ZRANGE", -limit, -1, "WITHSCORES")
        aged = list(zip(flat[::2], flat[1::2], strict=True))
        return [key for key, ms in reversed(aged) if float(ms) >= since_ms]

    async def _by_age(self, partition: int, limit: int, *command: str | int) -> list[bytes]:
        async with self._translating():
            keys = await self._keys(partition)
            if keys is None or limit <= 0:
                return []
            pipeline = self._pipeline()
            pipeline.execute_command("HEXISTS", keys.meta, TOKEN)
            name, *arguments = command
            pipeline.execute_command(name, keys.idle, *arguments)
            owned, found = await pipeline.execute()
            return list(found) if owned else []

    async def admit(
        self, kind: str, names: Sequence[str], configured: Sequence[str], limit: int
    ) -> frozenset[str]:
        """See ``StateStore.admit``."""
        arguments: list[bytes | int] = [limit, len(configured)]
        arguments += [codec.text_bytes(name) for name in (*configured, *names)]
        async with self._translating():
            chosen = await self._admit.run(self.client, [self.keys.registry(kind)], arguments)
        return frozenset(map(codec.bytes_text, chosen))

    async def partitions(self) -> list[int]:
        """See ``StateStore.partitions``; in rising order."""
        async with self._translating():
            return await self._with(TOKEN)

    async def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """See ``StateStore.conversations``; a page at a time, the longest idle first."""
        async with self._translating():
            names = await self._keys(partition)
        if names is None:
            return
        place: list[bytes | int] = []
        while True:
            async with self._translating():
                flat = await self._page.run(self.client, [names.idle], [PAGE, *place])
                last = {key: int(float(ms)) for key, ms in zip(flat[::2], flat[1::2], strict=True)}
                found = await self._owned(names, [names.hot(key) for key in last])
            for key, hot in zip(last, found or [{}] * len(last), strict=True):
                if hot:
                    yield key, StoredConversation(hot, last_record_ms=last[key])
            if len(last) < PAGE:
                return
            place = [flat[-1], flat[-2]]

    async def time_ms(self, partition: int) -> int:
        """See ``StateStore.time_ms``; in a Cluster the clock of the partition's master."""
        async with self._translating():
            client = self.client
            if isinstance(client, RedisCluster):
                keys = await self._keys(partition)
                await client.initialize()
                node = client.get_node_from_key(keys.meta.decode() if keys else "")
                seconds, micros = await client.execute_command("TIME", target_nodes=node)
            else:
                seconds, micros = await self._do("TIME")
        return 1000 * int(seconds) + int(micros) // 1000

    async def held_by(self) -> str | None:
        """See ``StateStore.held_by``."""
        async with self._translating():
            command = await self._layout.held_by()
            if command is None and await self._with(FROZEN):
                return await self._layout.held_by() or LOST_HOLD  # a hold may just have begun
            return command

    async def switched(self) -> bool:
        """See ``StateStore.switched``."""
        async with self._translating():
            return await self._layout.switched()

    async def hold(self, mark: bytes, command: str) -> None:
        """See ``StateStore.hold``; first nothing new can be claimed, then nothing that is there."""
        check_hold(mark, command)
        async with self._translating():
            await self._layout.hold(mark, command)
            await self._freeze_all(mark, b"on")

    def drafts(self, mark: bytes) -> StateStore:
        """See ``StateStore.drafts``."""
        return RedisStore(self.client, self.namespace, mark=mark)

    async def switch(self, mark: bytes, retired: Sequence[int], drafted: Sequence[int]) -> None:
        """See ``StateStore.switch``; one script on one key."""
        async with self._translating():
            stateless = await self._without_state()
            await self._layout.switch(mark, [*retired, *stateless], drafted)
            self._partitions.clear()

    async def sweep(self, mark: bytes) -> bool:
        """See ``StateStore.sweep``; ``PAGE`` conversations a step."""
        async with self._translating():
            for field, tag in (await self._layout.leftovers(mark)).items():
                if await self._wipe_step(self.keys.partition(tag), b"") != Wiped():
                    return False
                await self._layout.drop(mark, field, tag)
            return True

    async def release(self, mark: bytes) -> None:
        """See ``StateStore.release``; new partitions can be claimed last."""
        async with self._translating():
            await self._freeze_all(mark, b"off")
            await self._layout.release(mark)

    async def close(self) -> None:
        """See ``StateStore.close``."""
        if self._borrowed:
            return
        await self.client.aclose()
        for closer in self._closers:
            await closer()

    async def _keys(self, partition: int) -> PartitionKeys | None:
        """The keys of a partition that was claimed before."""
        keys = self._partitions.get(partition)
        if keys is None:
            tag = await self._layout.tag(partition)
            if tag is None:
                return None
            keys = self._partitions[partition] = self.keys.partition(tag)
        return keys

    async def _choose(self, partition: int, identity: Identity) -> PartitionKeys:
        """The keys of a partition; whoever comes first chooses the tag. Raises ``OnHold``."""
        count = max(identity.partition_counts.values(), default=1)
        tag = await self._layout.choose(partition, count)
        keys = self._partitions[partition] = self.keys.partition(tag)
        return keys

    async def _taken(
        self, partition: int, token: bytes, identity: Identity, begin: Sequence[bytes]
    ) -> tuple[PartitionKeys, list[bytes]]:
        """Become the owner under the tag that the layout has for it; what its ``meta`` holds."""
        may_begin = b""
        keys = await self._choose(partition, identity)
        while True:
            arguments = [token, may_begin, *begin]
            done, *flat = await self._claim.run(self.client, [keys.meta], arguments)
            if done == b"frozen":
                raise await self._on_hold()
            if done == b"wiping":
                await self._wipe_step(keys, token)
                continue
            if done == b"taken" and not may_begin:
                return keys, flat
            try:
                chosen = await self._choose(partition, identity)
            except OnHold:
                if done == b"begun":  # what another began is not ours to delete
                    await self._take_back(keys, token)
                raise
            if chosen.meta == keys.meta and done != b"none":
                return keys, flat
            if chosen.meta != keys.meta:
                await self._take_back(keys, token)
            keys, may_begin = chosen, b"begin" if chosen.meta == keys.meta else b""

    async def _take_back(self, keys: PartitionKeys, token: bytes) -> None:
        """Delete what has begun too late or under a tag that is out of force, unless somebody else
        owns it.
        """
        with suppress(OnHold):  # then it is the command's
            while await self._wipe_step(keys, token) == Wiping():
                pass

    async def _on_hold(self) -> OnHold:
        """Who has frozen a partition."""
        return OnHold(await self._layout.held_by() or LOST_HOLD)

    async def _freeze_all(self, mark: bytes, how: bytes) -> None:
        for tag in (await self._layout.tags()).values():
            await self._freeze.run(self.client, [self.keys.partition(tag).meta], [mark, how])

    async def _wipe_step(self, keys: PartitionKeys, token: bytes) -> WipeResult:
        """Begin, or delete the next page; with no page left, the windows and ``meta``.

        Raises ``OnHold`` with a token, while the partition is frozen.
        """
        meta = await self._all(keys.meta)
        mark = meta.get(WIPING)
        call_keys, arguments = [keys.meta, keys.idle], [token, mark or token_bytes(MARK_BYTES)]
        page: list[ConversationKey] = []
        if mark is not None:
            strays = []
            if await self._do("TYPE", keys.idle) in (b"zset", b"none"):
                page = await self._do("ZRANGE", keys.idle, 0, PAGE - 1)
            else:
                strays = await self._strays(keys)
            arguments += page + strays
            call_keys += strays
            for key in page:
                call_keys += [keys.hot(key), keys.fingerprints(key)]
            if not page and not strays:
                call_keys += [keys.window(window) for window in codec.read_windows(meta)]
        result = await self._wipe.run(self.client, call_keys, arguments)
        if result == b"frozen":
            raise await self._on_hold()
        if result == b"fenced":
            return Fenced()
        return Wiped() if result == b"wiped" else Wiping(len(page))

    async def _strays(self, keys: PartitionKeys) -> list[bytes]:
        """A page of conversations' keys, looked for among all keys: ``idle`` lists none any more.

        It needs a right (``SCAN``) that nothing else does.
        """
        client: Any = self.client
        where = {}
        if isinstance(client, RedisCluster):
            await client.initialize()
            where["target_nodes"] = client.get_node_from_key(keys.meta.decode())
        found: list[bytes] = []
        async for key in client.scan_iter(match=keys.conversations, count=SCANNED, **where):
            found.append(key)
            if len(found) >= PAGE:
                break
        return found

    async def _without_state(self) -> list[int]:
        """The places that were chosen, and where nothing has begun."""
        begun = {*await self._with(TOKEN), *await self._with(WIPING)}
        return [number for number in await self._layout.tags() if number not in begun]

    async def _with(self, field: bytes) -> list[int]:
        """The partitions whose ``meta`` has the field, in rising order."""
        chosen = await self._layout.tags()
        if not chosen:
            return []
        pipeline = self._pipeline()
        for tag in chosen.values():
            pipeline.execute_command("HEXISTS", self.keys.partition(tag).meta, field)
        there = await pipeline.execute()
        return [number for number, has in zip(chosen, there, strict=True) if has]

    async def _owned(
        self, names: PartitionKeys | None, keys: Sequence[bytes]
    ) -> list[dict[bytes, bytes]]:
        """The content of each; nothing of a partition that nobody owns: what a wipe has left."""
        if names is None or not keys:
            return []
        pipeline = self._pipeline()
        pipeline.execute_command("HEXISTS", names.meta, TOKEN)
        for key in keys:
            pipeline.execute_command("HGETALL", key)
        owned, *found = await pipeline.execute()
        return list(found) if owned else []

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
        """The content of each, each as of one moment."""
        if not keys:
            return []
        pipeline = self._pipeline()
        for key in keys:
            pipeline.execute_command("HGETALL", key)
        found: list[dict[bytes, bytes]] = await pipeline.execute()
        return found

    async def _all(self, key: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = await self._do("HGETALL", key)
        return found

    async def _do(self, *command: bytes | str | int) -> Any:
        return await self.client.execute_command(*command)

    def _pipeline(self) -> Any:
        """A pipeline, not a transaction, on any client."""
        return self.client.pipeline(transaction=False)

    @asynccontextmanager
    async def _translating(self) -> AsyncIterator[None]:
        """Raise the port's errors; after one, look for the masters anew before the next call."""
        try:
            await self._refresh()
            yield
        except Exception as error:
            raised = translated(error)
            if raised is error:
                raise
            self._stale = True
            if demoted(error) and isinstance(self.client, Redis):
                pool: Any = self.client.connection_pool
                await pool.update_active_connections_for_reconnect()
                await pool.disconnect(inuse_connections=False)
            raise raised from error

    async def _refresh(self) -> None:
        """Ask a Cluster for its nodes, also where it was first found; others reconnect anyway.

        The client does so by itself after some errors, but not after one in a pipeline.
        """
        if self._stale and isinstance(self.client, RedisCluster):
            first = [(node.host, int(node.port)) for node in self.client.startup_nodes]
            await self.client.nodes_manager.initialize(additional_startup_nodes_info=first)
        self._stale = False


def _nothing() -> PartitionState:
    return PartitionState(None, None, {})
