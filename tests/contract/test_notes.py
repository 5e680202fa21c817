"""``Notes``: small texts by name, which every store of a namespace keeps."""

from __future__ import annotations

from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.redis.store import RedisStore
from tests.contract.conftest import Pair


async def test_a_note_is_that_of_all_workers_until_it_is_deleted(pair: Pair) -> None:
    """By its name; others stay as they are."""
    one, two = pair.spaces
    assert isinstance(one, RedisStore | LocalStore | MemoryStore)
    assert isinstance(two, RedisStore | LocalStore | MemoryStore)
    assert await one.note("a") == b""

    await one.keep_note("a", b"\x00first")
    await one.keep_note("b", b"other")
    await two.keep_note("a", b"second")
    assert [await one.note("a"), await two.note("b")] == [b"second", b"other"]

    await two.keep_note("a", b"")
    assert [await one.note("a"), await one.note("b")] == [b"", b"other"]

    await one.drop_notes()
    assert await two.note("b") == b""
