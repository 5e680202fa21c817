"""Commands to Redis are packed in C to the very bytes that the client would send."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import Connection

from stream_metrics.adapters.redis.connect import RedisOptions, make_client
from stream_metrics.adapters.redis.packing import Packing, packing

NAMES = st.sampled_from(["GET", "CONFIG GET", b"EVALSHA", b"SCRIPT LOAD"])
ARGUMENTS = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.binary(min_size=5_000, max_size=8_000),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=8,
)


@given(NAMES, ARGUMENTS)
def test_the_bytes_are_those_of_the_client(name: str | bytes, arguments: list[Any]) -> None:
    """Whatever the arguments are that a command may have."""
    usual, ours = Connection(), packing(Connection)()

    packed = b"".join(ours.pack_command(name, *arguments))

    assert packed == b"".join(usual.pack_command(name, *arguments))


@pytest.mark.parametrize(
    "options",
    [
        RedisOptions("redis://localhost:1"),
        RedisOptions("rediss://localhost:1"),
        RedisOptions("unix:///nowhere"),
        RedisOptions("redis://localhost:1", sentinels=("localhost:2",)),
        RedisOptions("rediss://localhost:1", sentinels=("localhost:2",)),
    ],
    ids=["server", "tls", "socket", "sentinel", "sentinel-tls"],
)
async def test_every_client_packs_so(options: RedisOptions) -> None:
    """Each kind of connection stays what it is besides."""
    client, closers = make_client(options)
    try:
        assert isinstance(client, Redis)
        made = client.connection_pool.connection_class
        assert issubclass(made, Packing)
        assert made.__name__ == f"Packing{made.__bases__[1].__name__}"
    finally:
        await client.aclose()
        for close in closers:
            await close()


async def test_the_nodes_of_a_cluster_pack_so() -> None:
    """Those that are found by asking for them."""
    client, _ = make_client(RedisOptions("redis://localhost:1", cluster=True))
    assert isinstance(client, RedisCluster)

    assert issubclass(client.nodes_manager.connection_kwargs["connection_class"], Packing)
    await client.aclose()
