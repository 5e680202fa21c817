"""Events that the receiver decodes for the loop, too."""

from __future__ import annotations

import asyncio
from typing import Final

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.worker.ahead import DecodedAhead

NOW_MS: Final = 1_796_000_000_000
LONG: Final = 60.0


def decoder(*, require_key: bool = False) -> RecordDecoder:
    """A decoder of the receiver or, which requires keys, of the loop."""
    rules, limits = EngineConfig().rules, EngineConfig().limits
    dedup = deduplicator(rules, b"a key")
    return RecordDecoder(dedup, "key", rules.tables, limits, require_key=require_key)


def values() -> list[bytes]:
    """Events of all kinds, some of them twice, and some not valid."""
    profile = TrafficProfile(conversations=12, redelivered=0.1, invalid=0.1, start=1_795_000_000)
    return [record.value for record in generate(profile)]


def record(value: bytes, key: bytes | None, timestamp_ms: int = NOW_MS) -> Record:
    """The record of an event in the log."""
    return Record(value, key, timestamp_ms, EVENTS, 0, 0)


def test_what_is_taken_is_what_the_loop_would_decode() -> None:
    """Whatever the event; its texts are digested with the same key."""
    ahead, loop = DecodedAhead(decoder()), decoder(require_key=True)
    taken = 0
    for value in values():
        event = ahead.decode(value, NOW_MS)
        if not isinstance(event, DigestedEvent):
            assert len(ahead) == 0
            continue
        key = event.conversation_id.encode()
        found = ahead.take(record(value, key))
        read = loop.decode(value, key=key, timestamp_ms=NOW_MS)
        assert isinstance(found, DigestedEvent)
        assert isinstance(read, DigestedEvent)
        assert (found.version, found.turn, found.unknown) == (read.version, read.turn, read.unknown)
        assert [[*items] for items in found.items] == [[*items] for items in read.items]
        taken += 1
    assert taken > 100


def test_an_event_is_taken_once_and_by_its_record_only() -> None:
    """One of another key or time may be decoded to something else."""
    ahead, value = DecodedAhead(decoder()), values()[0]
    for other in (record(value, b"another"), record(value, None), record(b"{}", b"c")):
        ahead.decode(value, NOW_MS)
        assert ahead.take(other) is None
    event = ahead.decode(value, NOW_MS)
    assert isinstance(event, DigestedEvent)
    key = event.conversation_id.encode()
    assert ahead.take(record(value, key, NOW_MS + 1)) is None
    ahead.decode(value, NOW_MS)
    assert ahead.take(record(value, key)) is not None
    assert ahead.take(record(value, key)) is None


def test_there_is_room_for_so_many_bytes_only() -> None:
    """What does not fit is left to the loop."""
    one, another = (value for value in values()[:2])
    ahead = DecodedAhead(decoder(), len(one) + len(another) - 1)

    assert ahead.decode(one, NOW_MS) is not None
    assert ahead.decode(another, NOW_MS) is None
    assert len(ahead) == 1


async def test_a_sender_waits_until_the_loop_has_taken_half() -> None:
    """So that the loop keeps up, and finds what was decoded for it."""
    value = values()[0]
    ahead = DecodedAhead(decoder(), len(value) + 1)
    event = ahead.decode(value, NOW_MS)
    assert isinstance(event, DigestedEvent)
    waiting = asyncio.create_task(ahead.has_room(LONG))
    await asyncio.sleep(0)
    assert not waiting.done()

    ahead.take(record(value, event.conversation_id.encode()))
    await waiting


async def test_a_sender_does_not_wait_for_a_loop_that_does_not_read() -> None:
    """What nobody takes is forgotten."""
    value = values()[0]
    ahead = DecodedAhead(decoder(), len(value) + 1)
    ahead.decode(value, NOW_MS)

    await ahead.has_room(0.0)

    assert len(ahead) == 0
