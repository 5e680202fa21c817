"""Generated traffic of which a model gives some of the labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from zlib import crc32

from stream_metrics.lab.traffic import TrafficRecord

_HEAD: Final = b'{"type":"relevance_labels",'


def with_models(records: Iterable[TrafficRecord]) -> Iterator[TrafficRecord]:
    """The records, with every second event of labels given by a model, half of these in its random
    sample. Redeliveries stay equal, and what is invalid stays as it is."""
    for record in records:
        yield record._replace(value=_by_model(record.value)) if record.valid else record


def _by_model(value: bytes) -> bytes:
    chosen = crc32(value) % 4
    if chosen > 1 or not value.startswith(_HEAD):
        return value
    sample = b',"sample":"random"' if chosen else b""
    return value.removesuffix(b"}") + b',"source":"model"' + sample + b"}"
