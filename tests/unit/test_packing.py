"""Commands to Redis are encoded in C to the bytes that the client would send."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import Connection
from redis.exceptions import DataError

from stream_metrics.live.redis.connect import RedisOptions, make_client
from stream_metrics.live.redis.connections import OwnConnection, connection_class

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


class Number(int):
    """A whole number of another type."""


OTHERS = st.one_of(
    st.none(),
    st.booleans(),
    st.lists(st.integers(), max_size=2),
    st.binary(max_size=40).map(bytearray),
    st.binary(max_size=40).map(lambda data: memoryview(data)),
    st.integers().map(Number),
    st.floats(),
    st.text(max_size=3),
)


def outcome(connection: Connection, name: str | bytes, arguments: list[Any]) -> object:
    """The bytes that are sent, or the type and message of the error."""
    try:
        return b"".join(connection.pack_command(name, *arguments))
    except (TypeError, ValueError, DataError) as error:
        return type(error), str(error)


@given(NAMES, ARGUMENTS)
def test_the_bytes_are_those_of_the_client(name: str | bytes, arguments: list[Any]) -> None:
    """This holds for any arguments that a command may have."""
    usual, ours = Connection(), connection_class(Connection)()

    packed = b"".join(ours.pack_command(name, *arguments))

    assert packed == b"".join(usual.pack_command(name, *arguments))


@pytest.mark.slow
@given(NAMES, ARGUMENTS, OTHERS)
def test_other_types_are_encoded_or_refused_as_by_the_client(
    name: str | bytes, arguments: list[Any], other: object
) -> None:
    """Types unknown to C are left to the client, or the error is the same."""
    given_all = [*arguments, other]

    found = outcome(connection_class(Connection)(), name, given_all)

    assert found == outcome(Connection(), name, given_all)


@pytest.mark.parametrize("other", [None, True, [1]], ids=["None", "bool", "list"])
def test_an_unsupported_type_is_named_in_the_error(other: Any) -> None:
    """The error is redis-py's."""
    with pytest.raises(DataError, match=type(other).__name__):
        connection_class(Connection)().pack_command("SET", "key", other)


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
async def test_every_connection_encodes_in_c(options: RedisOptions) -> None:
    """Each kind of connection is otherwise unchanged."""
    client, closers = make_client(options)
    try:
        assert isinstance(client, Redis)
        made = client.connection_pool.connection_class
        assert issubclass(made, OwnConnection)
        assert made.__name__ == f"Own{made.__bases__[1].__name__}"
    finally:
        await client.aclose()
        for close in closers:
            await close()


async def test_discovered_cluster_nodes_encode_in_c() -> None:
    """These are found by asking the cluster."""
    client, _ = make_client(RedisOptions("redis://localhost:1", cluster=True))
    assert isinstance(client, RedisCluster)

    assert issubclass(client.nodes_manager.connection_kwargs["connection_class"], OwnConnection)
    await client.aclose()
