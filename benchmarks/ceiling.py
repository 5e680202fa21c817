"""The ceiling: one process that fetches and decodes the same topics, and does nothing else.

``python -m benchmarks.ceiling BOOTSTRAP RECORDS [OFFSETS]`` prints one JSON object. OFFSETS is one,
too: where to begin, for each topic a list by partition; by default at the start.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec
import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition
from msgspec import NODEFAULT, Struct, defstruct, structs

from benchmarks.workload import EVENTS, LABELS
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events import wire

PARTITIONS = 4

Offsets = Mapping[str, Sequence[int]]
"""By topic and partition."""


def tagged(name: str, payload: type[Struct]) -> Any:
    """The worker's struct of a type, chosen by ``type`` while decoding and not by the worker."""
    fields: list[Any] = [
        (one.name, one.type) if one.default is NODEFAULT else (one.name, one.type, one.default)
        for one in structs.fields(payload)
        if one.name not in ("type", "occurred_at")
    ]
    fields.append(("occurred_at", str | float))
    return defstruct(payload.__name__, fields, tag=name, kw_only=True, gc=False, frozen=True)


Event: Final = reduce(or_, (tagged(name, payload) for name, payload in wire.PAYLOADS.items()))


async def measure(bootstrap: str, total: int, begin: Offsets | None = None) -> dict[str, float]:
    """Read and decode ``total`` records; CPU and wall seconds without the start.

    These are to be all from ``begin`` on: where more lie behind them, small ones are read first.
    """
    decoder = msgspec.json.Decoder(Event)
    settings = Settings.model_validate({}).kafka
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
        fetch_max_wait_ms=settings.fetch_max_wait_ms,
    )
    await consumer.start()
    try:
        places = [TopicPartition(t, n) for t in (EVENTS, LABELS) for n in range(PARTITIONS)]
        consumer.assign(places)
        wall, cpu = time.perf_counter(), time.process_time()
        if begin is None:
            await consumer.seek_to_beginning()
        else:
            for place in places:
                consumer.seek(place, begin[place.topic][place.partition])
        seen = invalid = 0
        while seen < total:
            fetched = await consumer.getmany(timeout_ms=100, max_records=settings.max_poll_records)
            for records in fetched.values():
                seen += len(records)
                for record in records:
                    try:
                        decoder.decode(record.value)
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        invalid += 1
        taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    finally:
        await consumer.stop()
    return {**taken, "invalid": invalid}


def main() -> None:
    """Measure once."""
    bootstrap, total, *offsets = sys.argv[1:]
    begin = json.loads(offsets[0]) if offsets else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(measure(bootstrap, int(total), begin))))


if __name__ == "__main__":
    main()
