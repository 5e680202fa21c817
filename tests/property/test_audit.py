"""The audit finds no difference in intact state after any events, expiry and forgets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.readers.audit import Audit, AuditOptions, audit
from tests.oracle.retrieval import METRICS
from tests.property.test_label_units import START_S, sampled
from tests.property.test_partition import TOPIC, once, opened
from tests.strategies import Draw, KeyedRecord, arrivals, streams
from tests.unit.test_audit import OPTIONS, never

TTL_MS = 86_400_000
SAMPLED_MS = (START_S + 30 * 3_600) * 1_000


async def audits(
    batches: list[list[KeyedRecord]],
    cache_results: int,
    horizons: dict[int, int],
    options: AuditOptions,
) -> list[Audit]:
    """An audit after each batch; ``horizons`` has the batches before which conversations expire."""
    store, letters = MemoryStore(), MemoryDeadLetters()
    partition = await opened(store, letters, cache_results, engine=options.engine)
    found, offset = [], 0
    for number, batch in enumerate(batches):
        if number in horizons:
            newest = partition.record_time_ms
            await partition.expire(newest + TTL_MS - horizons[number], once)
            partition = await opened(store, letters, cache_results, engine=options.engine)
        records = [
            Record(value, key, timestamp_ms, TOPIC, 0, offset + at)
            for at, (key, value, timestamp_ms) in enumerate(batch)
        ]
        offset += len(records)
        await partition.process(records, once)
        found.append(await audit(store, options, never))
    return found


@st.composite
def sampled_now(draw: Draw) -> list[KeyedRecord]:
    """A stream of random samples that came when its last events occurred."""
    return [(key, value, SAMPLED_MS) for key, value, _ in draw(sampled())]


@given(st.data())
def test_intact_state_has_no_difference(data: st.DataObject) -> None:
    """The windows equal the sums of the conversations after any batches and expiry."""
    stream = data.draw(st.one_of(streams(), sampled_now()))
    batches = data.draw(arrivals(stream))
    cache_results = data.draw(st.sampled_from([0, 100_000]))
    horizons = data.draw(
        st.dictionaries(st.integers(1, 6), st.sampled_from([-1, 0, 1, 1_000, 3_600_000]))
    )

    retrieval = data.draw(st.sampled_from([(), tuple(METRICS)]))
    engine = replace(OPTIONS.engine, retrieval=live_metrics(retrieval))
    options = replace(OPTIONS, engine=engine)

    found = asyncio.run(audits(batches, cache_results, horizons, options))

    assert [(one.differences, one.unreadable, one.busy) for one in found] == [([], [], [])] * len(
        batches
    )
