"""The recording that the demo replays: a working day of four agents with two bad hours.

``python -m stream_metrics.lab.traffic.day`` rewrites it; a test compares the file with this code.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from aiokafka.partitioner import DefaultPartitioner

from stream_metrics.lab.traffic.generator import generate
from stream_metrics.lab.traffic.profile import Incident, TrafficProfile, TrafficRecord

TOPICS = {"events": "search-iterations", "labels": "relevance-labels"}
PARTITIONS = 4
RECORDING = Path(__file__).resolve().parent.parent / "data" / "day.jsonl.gz"

_PLACED = DefaultPartitioner()

_HOUR = 3600.0
# The index of it-desk is changed at 13:40; at 14:35 the change is taken back.
INDEX_CHANGE = Incident("it-desk", 5 * _HOUR + 40 * 60, 6 * _HOUR + 35 * 60, "same_pages", 0.85)
# From 15:20 to 16:10 sales-assist asks the same again and again.
LOOP = Incident("sales-assist", 7 * _HOUR + 20 * 60, 8 * _HOUR + 10 * 60, "asks_again", 0.9)

DAY = TrafficProfile(
    seed=318,
    conversations=1_120,
    duration_seconds=9.9 * _HOUR,
    rhythm="working_day",
    turns=(1, 2),
    iterations=(1, 4),
    searches_per_iteration=(1, 2),
    results_per_search=4,
    result_bytes=250,
    documents=240,
    duplicates=0.2,
    label_delay_seconds=180.0,
    incidents=(INDEX_CHANGE, LOOP),
)
"""Tuesday 2025-03-18 from 08:00 to about 18:00 UTC; texts are short to keep the file small."""


def record_lines(records: Iterable[TrafficRecord], partitions: int = PARTITIONS) -> Iterator[bytes]:
    """Records as lines of a recording, each with topic, partition and offset as in Kafka.

    Keys and values that are not UTF-8 are in ``key_base64`` and ``value_base64``.
    """
    offsets: Counter[tuple[str, int]] = Counter()
    for record in records:
        topic = TOPICS[record.stream]
        partition = 0 if record.key is None else _PLACED(record.key, range(partitions), ())
        line: dict[str, object] = {
            "topic": topic,
            "partition": partition,
            "offset": offsets[topic, partition],
            "timestamp": record.timestamp_ms,
            **_text("key", record.key),
            **_text("value", record.value),
        }
        offsets[topic, partition] += 1
        yield json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def write_day(path: Path = RECORDING) -> int:
    """Write the day to ``path``, gzipped without a timestamp; returns its size in bytes."""
    content = gzip.compress(b"".join(record_lines(generate(DAY))), compresslevel=9, mtime=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return len(content)


if __name__ == "__main__":
    print(f"{RECORDING.name}: {write_day():,} bytes")
