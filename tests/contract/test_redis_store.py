"""What ``RedisStore`` does beyond the contract: keys, scripts, errors and connections."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace as replace_fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from redis.asyncio import Redis, RedisCluster
from redis.crc import key_slot
from redis.exceptions import ResponseError

from deploy.local.process import free_port
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.layout import Identity, Layout, UnreadableLayout
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationWrite,
    Position,
    StateStore,
    StoreRefused,
    StoreUnavailable,
    Superseded,
    Wiped,
    Wiping,
    Written,
)
from stream_metrics.live.redis.check import check
from stream_metrics.live.redis.codec import write_call
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.redis.keys import OFFSET, Keys, PartitionKeys, choose_tags
from stream_metrics.live.redis.rights import WORKER_COMMANDS
from stream_metrics.live.redis.script import Client, Script
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.batches import estimate
from stream_metrics.live.worker.ownership.generations import admit, begin, change
from tests.contract.redis_process import RedisProcess, running

IDENTITY = Identity("group", 1, "fingerprint", {"searches": 4})
CONVERSATION = bytes(range(16))

redis_asyncio = pytest.mark.asyncio


def batch(offset: int = 1, **changes: object) -> BatchWrite:
    """A batch that reads from the offset before ``offset``."""
    conversation = ConversationWrite(CONVERSATION, {b"p": b"%d" % offset}, {b"f": b"1"}, 1)
    fields: dict[str, object] = {
        "partition": 0,
        "token": b"owner",
        "batch_id": b"%d" % offset,
        "expected": {"searches": offset - 1},
        "positions": {"searches": Position(offset)},
        "conversations": [conversation],
        "buckets": {("5m", 1, "agent"): b"1"},
    }
    return BatchWrite(**(fields | changes))  # type: ignore[arg-type]


async def claim(store: StateStore) -> None:
    """Claim partition 0 at offset 0."""
    await store.claim(0, b"owner", {"searches": Position(0)})


async def wipe(store: StateStore) -> None:
    """Run all steps of a wipe on partition 0."""
    while await store.wipe(0) != Wiped():
        pass


async def works(store: StateStore) -> bool:
    """Claim, write and read through this store."""
    await claim(store)
    await store.write(batch())
    return (await store.load(0, [(CONVERSATION, False)]))[0].hot == {b"p": b"1"}


async def until_written(store: StateStore, write: BatchWrite) -> None:
    """Repeat a write until the store is available, as the worker does."""
    async with asyncio.timeout(30):
        while True:
            try:
                assert await store.write(write) == Written()
                return
            except StoreUnavailable:
                await asyncio.sleep(0)


async def dump(raw: Redis, store: RedisStore) -> dict[bytes, bytes | None]:
    """Every key of the namespace with its value, as bytes."""
    return {key: await raw.dump(key) async for key in raw.scan_iter(store.keys.prefix + ":*")}


def options(url: str, **more: object) -> RedisOptions:
    """Options with a new namespace."""
    return RedisOptions(url=url, namespace=f"t{uuid.uuid4().hex}", **more)  # type: ignore[arg-type]


async def opened(options: RedisOptions) -> RedisStore:
    """The first generation of a namespace, with its own client."""
    space = connect(options)
    generation = await begin(space, IDENTITY, 1)
    return RedisStore(space.client, space.namespace, generation=generation)


def keys_of(store: RedisStore, number: int = 0) -> PartitionKeys:
    """The keys of a partition."""
    assert store.bound is not None
    return store.keys.partition(store.bound.places[number])


@pytest_asyncio.fixture
async def store(redis_process: RedisProcess) -> AsyncIterator[RedisStore]:
    """An empty namespace in the session's server."""
    made = await opened(options(redis_process.url))
    yield made
    await made.close()


@pytest_asyncio.fixture
async def raw(redis_process: RedisProcess) -> AsyncIterator[Redis]:
    """A plain client of the session's server."""
    async with Redis.from_url(redis_process.url) as client:
        yield client


@pytest.fixture
def own_process(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server with an append-only file, for one test that may break it."""
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as process:
        yield process


@pytest_asyncio.fixture
async def own(own_process: RedisProcess) -> AsyncIterator[RedisStore]:
    """A claimed store on ``own_process``, with a socket timeout of half a second."""
    made = await opened(options(own_process.url, socket_timeout_seconds=0.5))
    await claim(made)
    yield made
    await made.close()


# -- keys


@pytest.mark.parametrize("partitions", [1, 3, 4, 12, 64, 256])
@pytest.mark.parametrize("masters", [1, 3, 5])
def test_partitions_spread_over_the_slots(partitions: int, masters: int) -> None:
    """Masters with equal ranges of slots get equal numbers of partitions, within 1.5."""
    slots = sorted(key_slot(tag.encode()) for tag in choose_tags(partitions, "0a1b2c3d"))
    share = 16_384 / partitions
    gaps = [after - before for before, after in pairwise(slots)]
    shares = Counter(slot * masters // 16_384 for slot in slots)

    assert all(0.45 * share <= gap <= 1.55 * share for gap in gaps)
    assert all(abs(shares[n] - partitions / masters) < 1.5 for n in range(masters))


def test_every_partition_has_its_own_tag() -> None:
    """This holds within a generation, and for two generations with the same number."""
    tags = {mark: choose_tags(64, mark) for mark in ("0a1b2c3d", "4e5f6071")}

    assert len({*tags["0a1b2c3d"], *tags["4e5f6071"]}) == 128
    assert choose_tags(64, "0a1b2c3d") == tags["0a1b2c3d"]


@pytest.mark.parametrize("namespace", ["", "a b", "{a}", "a:b", "a*", "ä", "a" * 65, "a\n", "-a"])
def test_a_namespace_has_plain_characters_only(namespace: str) -> None:
    """Text that could change a key's slot, or match other keys, is refused."""
    with pytest.raises(ValueError, match="namespace"):
        Keys(namespace)


def test_keys_contain_only_hashed_names() -> None:
    """For any bytes in conversation keys and windows, key names stay plain and in their slot."""
    keys = Keys("ns").partition("1.a")
    names = [
        keys.hot(b"}{\r\n* \xff"),
        keys.fingerprints(b"}{\r\n* \xff"),
        keys.window("}{:\n"),
        keys.idle,
    ]

    assert {key_slot(name) for name in names} == {key_slot(keys.meta)}
    assert all(name.startswith(b"sm:ns:2:{1.a}:") for name in names)
    assert all(name.decode().isascii() and name.decode().isprintable() for name in names)


@redis_asyncio
async def test_all_keys_of_a_partition_are_in_one_slot(store: RedisStore, raw: Redis) -> None:
    """After a write every key except the layout has the partition's tag, and none has a TTL."""
    await claim(store)
    await store.write(batch())
    keys = set(await dump(raw, store)) - {store.keys.layout}

    assert len(keys) == 5
    assert {key_slot(key) for key in keys} == {key_slot(keys_of(store).meta)}
    assert {await raw.ttl(key) for key in keys} == {-1}


@redis_asyncio
async def test_stored_tags_have_priority(store: RedisStore) -> None:
    """Partitions keep the tags that were stored first, even if other tags would be chosen now."""
    assert store.bound is not None
    before = replace(store.bound, places=("first", "second", "third", "fourth"))
    await change(store, lambda now: replace(now, version=now.version + 1, generations=(before,)))
    found = (await change(store, lambda now: now.has_grown(["searches"], 1))).in_force

    assert found == before


@redis_asyncio
async def test_the_estimate_covers_the_call(store: RedisStore) -> None:
    """A call is at most as large as estimated, and not much smaller."""
    conversations = [
        ConversationWrite(n.to_bytes(16, "big"), {b"part": bytes(100)}, {b"f": b"x", b"g": None})
        for n in range(100)
    ]
    large = batch(conversations=[*conversations, ConversationWrite(b"gone", delete=True)])
    keys, arguments = write_call(large, keys_of(store))
    values = [value if isinstance(value, bytes) else b"%d" % value for value in arguments]
    size, count = sum(map(len, keys + values)), len(keys) + len(values)
    estimated_size, estimated_count = estimate(large)

    assert size <= estimated_size <= 2 * size
    assert count <= estimated_count <= 2 * count


# -- the scripts

GOOD: list[bytes | int] = [b"S", 3, 1, b"f", b"v"]
WRONG_TAILS: list[list[bytes | int]] = [
    [b"?"],
    [b"S", 3, 2, b"f", b"v"],
    [b"S", 3, 0],
    [b"S", 3, b"x", b"f", b"v"],
    [b"S", 3, -1, b"f", b"v"],
    [b"S", 3, b"0.5", b"f", b"v"],
    [b"S", 1, 1, b"token", b"stolen"],
    [b"S", 9, 1, b"f", b"v"],
    [b"R", 3],
    [b"X"],
    [b"A", 1, b"nan", b"member"],
    [b"A", 1, b"1e3", b"member"],
    [b"Z", 2, b"member"],
]


@redis_asyncio
@pytest.mark.parametrize("tail", WRONG_TAILS)
async def test_a_malformed_call_writes_nothing(
    store: RedisStore, raw: Redis, tail: list[bytes | int]
) -> None:
    """The script refuses a call whose last change is wrong before it applies the first one."""
    await claim(store)
    before = await dump(raw, store)
    keys = keys_of(store)
    head: list[bytes | int] = [b"owner", b"id", 1, b"searches", 0, 1, b"-1 0 0 ", 0]
    call_keys = [keys.meta, keys.idle, keys.hot(CONVERSATION)]

    with pytest.raises(ResponseError, match="write:"):
        await Script("write").run(raw, call_keys, [*head, *GOOD, *tail])

    assert await dump(raw, store) == before


@redis_asyncio
async def test_a_key_of_another_type_writes_nothing(store: RedisStore, raw: Redis) -> None:
    """A value of another type in place of a hash fails the whole batch."""
    await claim(store)
    await raw.set(keys_of(store).fingerprints(CONVERSATION), "foreign")
    before = await dump(raw, store)

    with pytest.raises(DamagedState, match="a type of value that no release writes"):
        await store.write(batch())

    assert await dump(raw, store) == before


@redis_asyncio
@pytest.mark.parametrize("damage", ["a text", "no document", "another version", "not a document"])
async def test_a_layout_that_no_release_has_written_is_named(
    store: RedisStore, raw: Redis, damage: str
) -> None:
    """With the way out; nobody takes it for an empty namespace."""
    key = store.keys.layout
    if damage == "a text":
        await raw.set(key, "foreign")
    elif damage == "no document":
        await raw.hdel(key, "document")
    elif damage == "another version":
        await raw.hset(key, "version", "77")
    else:
        await raw.hset(key, "document", '{"generations": 3}')

    with pytest.raises(UnreadableLayout, match=rf"{key.decode()}.*Restore a backup"):
        await store.layout()


@redis_asyncio
async def test_a_partition_whose_offsets_are_no_hash_is_frozen_and_wiped(
    store: RedisStore, raw: Redis
) -> None:
    """Nobody can take it over or read it, and its key is named; a switch replaces it."""
    await claim(store)
    await store.write(batch())
    meta = keys_of(store).meta
    await raw.set(meta, "foreign")
    for call in (claim(store), store.describe(0), store.heartbeat(0, b"owner", "w")):
        with pytest.raises(DamagedState, match=f"the key {meta.decode()} has a type"):
            await call
    assert await store.frozen_by(0) == 0

    await store.freeze(0, 2)
    await wipe(store)

    assert set(await dump(raw, store)) == {store.keys.layout, meta}
    assert await store.frozen_by(0) == 2
    with pytest.raises(Superseded):
        await claim(store)


@redis_asyncio
async def test_a_damaged_partition_still_shows_that_it_is_frozen(
    store: RedisStore, raw: Redis
) -> None:
    """A switch that replaces damaged state depends on it."""
    await claim(store)
    await raw.hset(keys_of(store).meta, OFFSET + b"searches", "many")
    await store.freeze(0, 2)

    with pytest.raises(DamagedState, match="the offsets of a state partition"):
        await store.describe(0)
    assert await store.frozen_by(0) == 2


@redis_asyncio
async def test_scripts_are_loaded_again_when_a_server_has_lost_them(
    store: RedisStore, raw: Redis
) -> None:
    """After SCRIPT FLUSH, as after a failover, the next call works."""
    await claim(store)
    await raw.script_flush()

    assert await store.write(batch()) == Written()


@redis_asyncio
async def test_a_wipe_leaves_no_key(store: RedisStore, raw: Redis) -> None:
    """Only the layout is left of a namespace with one partition."""
    await claim(store)
    await store.write(batch())

    await wipe(store)
    assert set(await dump(raw, store)) == {store.keys.layout}


@redis_asyncio
@pytest.mark.service
@pytest.mark.parametrize("process", ["redis_process", "cluster_process"])
async def test_a_wipe_of_damaged_state_leaves_no_key(
    request: pytest.FixtureRequest, process: str
) -> None:
    """Where a string replaces the list of conversations, the wipe scans for their keys."""
    url = request.getfixturevalue(process).url
    store = await opened(options(url, cluster=process == "cluster_process"))
    client: Any = store.client
    for number in (0, 1):
        await store.claim(number, b"owner", {"searches": Position(0)})
        many = [ConversationWrite(n.to_bytes(16, "big"), {b"p": b"1"}) for n in range(600)]
        await store.write(batch(partition=number, conversations=many))
    await client.set(keys_of(store).idle, "foreign")

    await wipe(store)

    left = [key async for key in client.scan_iter(store.keys.prefix + ":*")]
    assert not [key for key in left if key_slot(key) == key_slot(keys_of(store).meta)]
    assert (await store.partitions(), (await store.describe(1)).conversations) == ([1], 600)
    await store.close()


# -- errors


@redis_asyncio
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
async def test_a_wipe_resumes_after_an_outage(
    own: RedisStore, own_process: RedisProcess, steps: int
) -> None:
    """If the server dies before any step, the wipe fails, and resumes when the server is back."""
    many = [ConversationWrite(n.to_bytes(16, "big"), {b"p": b"1"}) for n in range(600)]
    await own.write(batch(conversations=many))
    for _ in range(steps):
        assert await own.wipe(0) == Wiping()
    own_process.kill()
    with pytest.raises(StoreUnavailable):
        await own.wipe(0)
    own_process.start()

    assert await own.partitions() == ([] if steps else [0])
    await wipe(own)
    async with Redis.from_url(own_process.url) as raw:
        assert set(await dump(raw, own)) == {own.keys.layout}


@redis_asyncio
async def test_a_killed_server_is_unavailable_until_its_restart(
    own: RedisStore, own_process: RedisProcess
) -> None:
    """Calls raise ``StoreUnavailable`` while it is down; after its restart the same store works."""
    await own.write(batch(1))
    own_process.kill()
    for call in (own.write(batch(2)), own.load(0, [(CONVERSATION, True)]), own.partitions()):
        with pytest.raises(StoreUnavailable, match="Redis"):
            await call
    own_process.start()

    assert await own.write(batch(2)) == Written()


@redis_asyncio
async def test_a_frozen_server_is_unavailable_after_the_timeout(
    own: RedisStore, own_process: RedisProcess
) -> None:
    """A server that does not answer costs one socket timeout; the write may be repeated."""
    os.kill(own_process.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable, match="Timeout"):
                await own.write(batch())
    finally:
        os.kill(own_process.pid, signal.SIGCONT)
    await until_written(own, batch())

    assert (await own.describe(0)).positions["searches"].offset == 1


@redis_asyncio
async def test_a_full_server_is_unavailable_and_stores_nothing(
    own: RedisStore, own_process: RedisProcess
) -> None:
    """A batch fails as a whole when Redis is out of memory; with more memory it is written."""
    async with Redis.from_url(own_process.url) as raw:
        before = await dump(raw, own)
        await raw.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailable, match="OOM"):
            await own.write(batch())
        await raw.config_set("maxmemory", 0)
        assert await dump(raw, own) == before

    assert await own.write(batch()) == Written()


@redis_asyncio
async def test_a_full_server_accepts_heartbeats(own: RedisStore, own_process: RedisProcess) -> None:
    """Where Redis is out of memory, workers do not look as if they had stopped."""
    await claim(own)
    async with Redis.from_url(own_process.url) as raw:
        await raw.config_set("maxmemory", 1)
        await own.heartbeat(0, b"owner", "worker:9464")
        await raw.config_set("maxmemory", 0)

    assert (await own.describe(0)).worker == "worker:9464"


@redis_asyncio
@pytest.mark.parametrize(
    ("field", "value"),
    [("beat", b"\xff owner"), ("beat", b"1 -5 owner"), ("beat", b"12"), ("worker", b"\xff owner")],
)
async def test_a_damaged_heartbeat_damages_no_state(
    store: RedisStore, raw: Redis, field: str, value: bytes
) -> None:
    """Heartbeats are informational: a damaged one does not keep a partition from being read."""
    await claim(store)
    await store.heartbeat(0, b"owner", "worker:9464")
    await raw.hset(keys_of(store).meta, field, value)

    assert (await store.describe(0)).positions == {"searches": Position(0)}


@pytest_asyncio.fixture(
    params=[pytest.param(kind, marks=pytest.mark.service) for kind in ("redis", "cluster")]
)
async def full(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    """A partition with conversations in a Redis that is out of memory."""
    cluster = request.param == "cluster"
    process = request.getfixturevalue("cluster_process" if cluster else "own_process")
    made = await opened(options(process.url, cluster=cluster))
    await claim(made)
    many = [ConversationWrite(n.to_bytes(16, "big"), {b"p": b"1"}) for n in range(600)]
    await made.write(batch(conversations=many))
    everywhere = {"target_nodes": RedisCluster.PRIMARIES} if cluster else {}
    client: Any = made.client
    await client.config_set("maxmemory", 1, **everywhere)
    yield made
    await client.config_set("maxmemory", 0, **everywhere)
    await made.close()


@redis_asyncio
async def test_a_full_server_can_be_wiped(full: RedisStore) -> None:
    """Deleting needs no memory."""
    await wipe(full)

    assert (await full.partitions(), (await full.describe(0)).wiping) == ([], False)


@redis_asyncio
async def test_a_full_server_can_be_switched_and_purged(full: RedisStore) -> None:
    """Replacing the layout with one of the same size, and freezing partitions, need no memory."""
    other = replace_fields(IDENTITY, fingerprint="other")
    await change(full, lambda now: now.registered(other, "b2", 2))
    await change(full, lambda now: now.switched(2, 3))
    await full.freeze(0, 2)
    with pytest.raises(Superseded):
        await claim(full)
    await wipe(full)
    await change(full, lambda now: now.purged(1))

    assert [g.purged for g in (await full.layout()).generations] == [True, False]


@redis_asyncio
async def test_a_demoted_server_is_unavailable(own: RedisStore, own_process: RedisProcess) -> None:
    """A master that became a replica refuses batches; promoted again, it accepts them."""
    async with Redis.from_url(own_process.url) as raw:
        await raw.replicaof("127.0.0.1", free_port())
        with pytest.raises(StoreUnavailable, match="READONLY"):
            await own.write(batch())
        await raw.replicaof("NO", "ONE")

    assert await own.write(batch()) == Written()


@redis_asyncio
async def test_too_few_replicas_is_unavailable(own: RedisStore, own_process: RedisProcess) -> None:
    """A master that lost its replicas refuses batches."""
    async with Redis.from_url(own_process.url) as raw:
        await raw.config_set("min-replicas-to-write", 1)
        with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
            await own.write(batch())


@redis_asyncio
async def test_a_busy_server_is_unavailable(own: RedisStore, own_process: RedisProcess) -> None:
    """While another client's script blocks the server, batches are put off."""
    async with Redis.from_url(own_process.url) as raw, Redis.from_url(own_process.url) as killer:
        await raw.config_set("busy-reply-threshold", 1)
        blocking_script = asyncio.ensure_future(raw.eval("while true do end", 0))
        async with asyncio.timeout(10):
            while True:
                try:
                    await own.describe(0)
                except StoreUnavailable as error:
                    assert "BUSY" in str(error)  # noqa: PT017
                    break
        await killer.script_kill()
        with pytest.raises(ResponseError):
            await blocking_script

    assert await own.write(batch()) == Written()


@pytest.mark.service
@redis_asyncio
async def test_a_wrong_password_is_not_an_outage(tmp_path: Path) -> None:
    """A refused user gets an error of its own, which does not contain the password."""
    with running(tmp_path, "--requirepass", "right") as process:
        for password in ("wr0ng", None):
            store = connect(options(process.url, password=password))
            with pytest.raises(StoreRefused) as caught:
                await store.layout()
            assert "wr0ng" not in str(caught.value) + repr(options("", password="wr0ng"))
            assert [problem.fatal for problem in await check(store)] == [True]
            await store.close()
        store = await opened(options(process.url, password="right"))
        assert await works(store)
        await store.close()


@redis_asyncio
async def test_the_rights_of_a_worker_suffice_for_its_page(
    raw: Redis, redis_process: RedisProcess
) -> None:
    """The page reads all windows, and recent conversations for its list of the worst ones."""
    commands = [f"+{command.lower()}" for command in (*WORKER_COMMANDS, "EVALSHA", "EVAL", "INFO")]
    await raw.acl_setuser("page", True, commands=commands, keys=["sm:*"], passwords=["+pw"])
    store = await opened(options(redis_process.url, username="page", password="pw"))
    assert await works(store)

    assert await store.by_age(0, 0, 10, 1, newest=True)
    assert (await store.describe(0)).store_ms
    assert await store.buckets(0, "1h") is not None
    assert await store.partitions() == [0]
    await store.close()


@redis_asyncio
async def test_an_acl_user_with_the_documented_rights_suffices(
    raw: Redis, redis_process: RedisProcess
) -> None:
    """The documented rights suffice; with one command less the claim is refused, not a batch."""
    commands = (
        "hset hget hmget hgetall hdel hexists zadd zrem zrange zcount zcard unlink type "
        "evalsha eval info time"
    )
    allowed = [f"+{command}" for command in commands.split()]
    await raw.acl_setuser("narrow", True, commands=allowed, keys=["sm:*"], passwords=["+pw"])
    store = await opened(options(redis_process.url, username="narrow", password="pw"))
    assert await works(store)
    assert [found async for found in store.conversations(0)]
    assert await store.by_age(0, 0, 100, 1)
    assert await store.by_age(0, 0, 100, 1, newest=True)
    assert await store.partitions() == [0]
    assert await admit(store, "agents", ["a"], [], 1) == {"a"}
    assert (await store.describe(0)).conversations == 1
    await store.heartbeat(0, b"owner", "worker:9464")
    assert not any(problem.fatal for problem in await check(store))
    await store.freeze(0, 2)
    await wipe(store)
    await store.freeze(0, 0)
    await change(store, Layout.emptied)
    assert set(await dump(raw, store)) == {store.keys.layout}

    await begin(store, IDENTITY, 1)
    await raw.acl_setuser("narrow", True, commands=["-unlink"])

    with pytest.raises(StoreRefused, match="UNLINK"):
        await claim(store)
    await store.close()


# -- check and connect


@redis_asyncio
async def test_check_reports_what_endangers_the_state(
    own: RedisStore, own_process: RedisProcess
) -> None:
    """Eviction and a missing server are fatal, a missing append-only file is a warning."""
    assert await check(own) == []
    async with Redis.from_url(own_process.url) as raw:
        await raw.config_set("maxmemory-policy", "allkeys-lru")
        await raw.config_set("appendonly", "no")
    policy, file = await check(own)
    assert policy.fatal
    assert "allkeys-lru" in policy.message
    assert not file.fatal
    assert "append-only" in file.message

    own_process.kill()

    assert [problem.fatal for problem in await check(own)] == [True]


@redis_asyncio
async def test_a_unix_socket_works(redis_process: RedisProcess) -> None:
    """A unix:// URL with a database reaches the same store."""
    store = await opened(options(f"unix://{redis_process.socket}?db=1"))

    assert await works(store)
    await store.close()


@pytest.mark.service
@redis_asyncio
async def test_tls_is_verified(tmp_path: Path) -> None:
    """A rediss:// URL works with the CA of the server, and not with those of the system."""
    ca, certificate, key = make_certificates(tmp_path)
    port = free_port()
    tls = ["--tls-port", str(port), "--tls-ca-cert-file", str(ca), "--tls-auth-clients", "yes"]
    tls += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    with running(tmp_path, *tls):
        url = f"rediss://localhost:{port}"
        files = {"ssl_certificate_file": certificate, "ssl_key_file": key}
        store = await opened(options(url, ssl_ca_file=ca, **files))
        assert await works(store)
        await store.close()
        distrusting = connect(options(url, **files))
        with pytest.raises(StoreUnavailable, match="certificate"):
            await distrusting.layout()
        await distrusting.close()


@pytest.mark.service
@redis_asyncio
async def test_sentinel_names_the_new_master(tmp_path: Path) -> None:
    """After a failover the same store continues to write, to the promoted replica."""
    for name in ("master", "replica", "sentinel"):
        (tmp_path / name).mkdir()
    with (
        running(tmp_path / "master", "--repl-diskless-sync-delay", "0") as master,
        running(tmp_path / "replica") as replica,
    ):
        async with Redis.from_url(replica.url) as raw:
            await raw.replicaof("127.0.0.1", master.port)
            await until_linked(raw)
            sentinel = RedisProcess(tmp_path / "sentinel")
            config = tmp_path / "sentinel" / "sentinel.conf"
            config.write_text(SENTINEL.format(port=sentinel.port, master=master.port))
            try:
                sentinel.start(str(config), "--sentinel")
                place = (f"127.0.0.1:{sentinel.port}",)
                space = connect(options("redis://", sentinels=place, sentinel_service="state"))
                store = space.generation(await begin(space, IDENTITY, 1))
                assert await works(store)
                async with Redis.from_url(master.url) as writer:
                    await until_copied(writer)
                await until_known(sentinel.port)
                master.kill()
                await until_written(store, batch(2))
                async with Redis.from_url(replica.url) as promoted:
                    assert (await promoted.info("replication"))["role"] == "master"
                assert (await store.describe(0)).positions["searches"].offset == 2
                await space.close()
            finally:
                sentinel.kill()


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "redis://h", "ssl_ca_file": Path("ca")},
        {"url": "unix:///s", "cluster": True},
        {"url": "unix:///s", "sentinels": ("h:1",)},
        {"url": "redis://h/1", "cluster": True},
        {"url": "redis://h", "cluster": True, "sentinels": ("h:1",)},
        {"url": "redis://h", "sentinels": ("",)},
        {"url": "http://h"},
        {"namespace": "a b"},
    ],
)
def test_contradictory_options_are_refused(wrong: dict[str, object]) -> None:
    """They raise ValueError before any connection is made."""
    with pytest.raises(ValueError, match=r"\w"):
        connect(RedisOptions(**wrong))  # type: ignore[arg-type]


# -- helpers

SENTINEL = """port {port}
sentinel monitor state 127.0.0.1 {master} 1
sentinel down-after-milliseconds state 300
sentinel failover-timeout state 2000
"""


async def until_linked(replica: Redis) -> None:
    """Wait until a replica is in sync with its master."""
    async with asyncio.timeout(30):
        while (await replica.info("replication")).get("master_link_status") != "up":
            await asyncio.sleep(0)


async def until_copied(master: Redis) -> None:
    """Wait until the only replica has acknowledged the master's last write."""
    async with asyncio.timeout(30):
        while True:
            found = await master.info("replication")
            if found["slave0"]["offset"] >= found["master_repl_offset"]:
                return


async def until_known(sentinel_port: int) -> None:
    """Wait until a Sentinel has found the replica."""
    async with Redis(port=sentinel_port) as sentinel, asyncio.timeout(30):
        while not await sentinel.sentinel_slaves("state"):
            await asyncio.sleep(0)


def make_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A CA certificate, and a certificate for localhost signed by it with its key."""
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    certificate, key = folder / "server.pem", folder / "server.key"
    request, names = folder / "server.csr", folder / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    authority = ["-addext", "basicConstraints=critical,CA:TRUE"]
    authority += ["-addext", "keyUsage=critical,keyCertSign"]
    commands: list[list[str | Path]] = [
        [*new, "-x509", "-keyout", ca_key, "-out", ca, "-subj", "/CN=test ca", "-days", "2"],
        [*new, "-keyout", key, "-out", request, "-subj", "/CN=localhost"],
        ["openssl", "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-days", "2",
         "-CAcreateserial", "-extfile", names, "-out", certificate],
    ]  # fmt: skip
    for command in commands:
        extra = authority if "-x509" in command else []
        subprocess.run([*command, *extra], check=True, capture_output=True)
    return ca, certificate, key


# -- claims that are suspended while others go on


class SuspendedScript(Script):
    """A script that is suspended before its nth call; the claim script by default."""

    def __init__(self, call: int = 0, name: str = "claim") -> None:
        super().__init__(name)
        self.calls = call
        self.reached, self.resume = asyncio.Event(), asyncio.Event()

    async def run(
        self, client: Client, keys: Sequence[bytes], arguments: Sequence[bytes | int]
    ) -> Any:
        """See ``Script.run``."""
        if self.calls == 0:
            self.reached.set()
            await self.resume.wait()
        self.calls -= 1
        return await super().run(client, keys, arguments)


@pytest.fixture
def late(store: RedisStore) -> RedisStore:
    """Another worker's handle on the same generation."""
    assert store.bound is not None
    made = store.generation(store.bound)
    return made


@redis_asyncio
async def test_a_late_claim_leaves_nothing_in_a_purged_generation(
    store: RedisStore, late: RedisStore, raw: Redis
) -> None:
    """It creates a partition after the marks of a switch are gone, notices, and deletes it."""
    await claim(store)
    script = late._claim = SuspendedScript()
    claiming = asyncio.create_task(late.claim(0, b"late", {}))
    await script.reached.wait()
    await store.freeze(0, 2)
    await wipe(store)
    await store.freeze(0, 0)
    other = replace_fields(IDENTITY, fingerprint="other")
    await change(store, lambda now: now.registered(other, "b2", 2))
    await change(store, lambda now: now.switched(2, 3))
    script.resume.set()

    with pytest.raises(Superseded):
        await claiming
    assert set(await dump(raw, store)) == {store.keys.layout}


@redis_asyncio
async def test_a_late_claim_does_not_wipe_newer_state(store: RedisStore, late: RedisStore) -> None:
    """It finishes a wipe, and is suspended until another worker has begun there."""
    await claim(store)
    assert await store.wipe(0) == Wiping()
    script = late._wipe = SuspendedScript(name="wipe")
    claiming = asyncio.create_task(late.claim(0, b"late", {}))
    await script.reached.wait()
    await wipe(store)
    await claim(store)
    assert await store.write(batch()) == Written()
    script.resume.set()

    state = await claiming

    assert (state.token, state.positions["searches"].offset) == (b"late", 1)
    assert (await store.describe(0)).conversations == 1
