"""Record batches are decompressed up to a limit, with every codec."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from stream_metrics.clients.kafka.aiokafka_private import ROUND_LIMIT_FACTOR, bound_batches
from stream_metrics.clients.kafka.errors import UnreadableBatch

LIMIT = 1 << 20
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
EVERY_CODEC = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Set a small limit for the test; restore that of the settings afterwards."""
    bound_batches(LIMIT)
    yield
    bound_batches(16 << 20)


def batch(codec: int, values: list[bytes], offset: int = 0) -> bytes:
    """A record batch as a broker sends it."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 30,
    )  # fmt: skip
    for at, value in enumerate(values):
        builder.append(at, 1_718_020_800_000, b"k", value, [])
    made = bytearray(builder.build())
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


def fetched(*batches: bytes) -> fetcher.PartitionRecords:
    """The records that aiokafka makes of a fetched partition."""
    return fetcher.PartitionRecords(
        TopicPartition("t", 3), MemoryRecords(b"".join(batches)), [], 0, None, None, True, 1
    )


@EVERY_CODEC
def test_a_batch_within_the_limit_is_read(codec: int) -> None:
    """Its records are returned, whether or not they compress well."""
    values = [b"\0" * (LIMIT // 2), random.Random(1).randbytes(LIMIT // 3), b""]

    assert [record.value for record in fetched(batch(codec, values))] == values


@EVERY_CODEC
def test_a_batch_beyond_the_limit_is_refused(codec: int) -> None:
    """The error has the partition and offset, and the setting of the limit."""
    records = fetched(batch(codec, [b"first"]), batch(codec, [b"\0" * 50 * LIMIT], offset=1))

    assert next(records).value == b"first"
    with pytest.raises(UnreadableBatch, match=r"offset 1 of t \[3\] is larger .*max_batch_bytes"):
        next(records)


@EVERY_CODEC
def test_invalid_compressed_data_is_refused(codec: int) -> None:
    """Bytes that the codec cannot read raise the same error, and not one of the codec."""
    made = bytearray(batch(codec, [b"value" * 99]))
    made[70:] = b"\xff" * len(made[70:])
    records = fetcher.PartitionRecords(
        TopicPartition("t", 3), MemoryRecords(bytes(made)), [], 0, None, None, False, 1
    )

    with pytest.raises(UnreadableBatch, match="cannot be read"):
        next(records)


async def test_a_fetch_is_bounded() -> None:
    """Many batches within the limit are returned in several rounds, each of them once."""
    values = [bytes([n]) * (LIMIT - 100) for n in range(3 * ROUND_LIMIT_FACTOR)]
    batches = [batch(4, [value], offset=n) for n, value in enumerate(values)]
    rounds: list[list[bytes]] = []
    taken = 0
    while taken < len(values):
        found = fetched(*batches[taken:])  # what did not come is fetched again
        rounds.append([record.value for record in found])
        taken += len(rounds[-1])
        assert found.next_fetch_offset == taken
        await asyncio.sleep(0)

    assert [value for found in rounds for value in found] == values
    assert max(map(len, rounds)) == ROUND_LIMIT_FACTOR + 1
