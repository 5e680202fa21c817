"""Events that the receiver decodes for the loop, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stream_metrics.core.engine.codec import SCHEMAS
from stream_metrics.core.engine.digested import RecordDecoder
from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.local.log import Entry
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.worker.ahead import AheadDecoder, event_of
from stream_metrics.live.worker.options import PartitionOptions
from tests.golden import options as golden_options

NOW_MS: Final = 1_796_000_000_000


def options() -> PartitionOptions:
    """Those of a worker."""
    return golden_options(SCHEMAS[-1])


def values() -> list[bytes]:
    """Events of all kinds, some of them twice, and some not valid."""
    profile = TrafficProfile(conversations=12, redelivered=0.1, invalid=0.1, start=1_795_000_000)
    return [record.value for record in generate(profile)]


def loop_decoder(options: PartitionOptions) -> RecordDecoder:
    """The decoder of a partition."""
    engine, key_id = options.engine, options.key_id
    dedup = options.dedups.of(engine.rules, options.keys[key_id])
    tables, limits = engine.rules.tables, engine.limits
    return RecordDecoder(dedup, key_id, tables, limits, require_key=True)


def record_of(value: bytes, decoder: AheadDecoder) -> Record | BadRecord:
    """The record that an event becomes in the log, as the receiver appends it."""
    found = decoder.decode(value, NOW_MS)
    if isinstance(found, BadRecord):
        return found
    entry = Entry(found.event.conversation_id.encode(), value, None, found)
    return entry.at(EVENTS, 7, NOW_MS)


def test_what_the_loop_takes_is_what_it_would_decode() -> None:
    """Whatever the event; its texts are digested with the same key."""
    ours = options()
    ahead, loop = AheadDecoder(ours), loop_decoder(ours)
    taken = 0
    for value in values():
        record = record_of(value, ahead)
        if isinstance(record, BadRecord):
            assert loop.decode(value, key=b"c", timestamp_ms=NOW_MS) == record
            continue
        found = event_of(record, ours)
        read = loop.decode(value, key=record.key, timestamp_ms=record.timestamp_ms)
        assert found is not None
        assert not isinstance(read, BadRecord)
        assert (found.version, found.turn, found.unknown) == (read.version, read.turn, read.unknown)
        assert [[*items] for items in found.items] == [[*items] for items in read.items]
        taken += 1
    assert taken > 100


def test_a_record_keeps_what_it_would_have_without_its_event() -> None:
    """Its value, key, time and place."""
    value = values()[0]
    record = record_of(value, AheadDecoder(options()))
    assert isinstance(record, Record)
    assert (record.value, record.timestamp_ms) == (value, NOW_MS)
    assert (record.topic, record.partition, record.offset) == (EVENTS, 0, 7)


def test_partitions_with_other_options_decode_for_themselves() -> None:
    """State that is built beside may have another key, or other rules."""
    ours = options()
    record = record_of(values()[0], AheadDecoder(ours))
    assert isinstance(record, Record)
    assert event_of(record, ours) is not None
    assert event_of(record, replace(ours, batch_records=1)) is None
