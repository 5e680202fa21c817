"""What was just appended to the log, in memory for its reader."""

from __future__ import annotations

import asyncio
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.events.record import Record
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.local.tail import Tail

LONG: Final = 60.0
BYTES: Final = 100


def records(first: int, *sizes: int) -> list[Record]:
    """Records from an offset on, whose values have so many bytes."""
    return [
        Record(bytes(size), b"k", 0, EVENTS, 0, offset) for offset, size in enumerate(sizes, first)
    ]


def read_tail(max_bytes: int = BYTES) -> Tail:
    """A tail whose reader has asked already."""
    tail = Tail(max_bytes)
    assert tail.take(0, 1) == []
    return tail


@given(st.data())
def test_what_is_taken_is_what_was_appended_at_its_offset(data: st.DataObject) -> None:
    """Or nothing, and then the reader asks the file; whatever others append in between."""
    tail, stored, at = read_tail(), list[Record](), 0
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            sizes = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=5))
            new = records(len(stored), *sizes)
            stored += new
            if data.draw(st.booleans()):  # else another process has appended them
                tail.add(new)
        else:
            most = data.draw(st.integers(1, 5))
            found = tail.take(at, most)
            assert found == stored[at : at + len(found)]
            assert len(found) <= most
            at += len(found or stored[at : at + most])
        at = data.draw(st.sampled_from([at, at, at, 0]))


def test_nothing_is_kept_for_a_reader_that_never_asked() -> None:
    """One that waits for something else may never read."""
    tail = Tail()
    tail.add(records(0, 1))
    assert tail.take(0, 1) == []


def test_records_are_kept_up_to_so_many_bytes() -> None:
    """The latest ones; a reader that is behind these has to ask the file anyway."""
    tail = read_tail()
    tail.add(records(0, 60))
    tail.add(records(1, 60))
    assert tail.take(0, 9) == []
    assert tail.take(1, 9) == records(1, 60)
    tail.add(records(2, 101))
    assert tail.take(2, 9) == []


async def test_who_appends_waits_until_the_reader_has_taken_most() -> None:
    """So that what comes next has room here."""
    tail = read_tail()
    await tail.has_room(LONG)
    tail.add(records(0, 60, 20))
    waiting = asyncio.create_task(tail.has_room(LONG))
    await asyncio.sleep(0)
    assert not waiting.done()

    tail.take(0, 1)
    await waiting


async def test_a_reader_that_takes_nothing_delays_nobody_for_long() -> None:
    """Nothing is kept for it until it reads on."""
    tail = read_tail()
    tail.add(records(0, 60))
    await tail.has_room(0.0)
    tail.add(records(1, 60))
    await tail.has_room(LONG)

    assert tail.take(0, 9) == tail.take(1, 9) == []
    tail.add(records(2, 60))
    assert tail.take(2, 9) == records(2, 60)
