"""Copies tombstones into a generation whose log does not reach back to the ``forget`` events.

A tombstone has no conversation id. If the previous generation had other partition counts, its
partition cannot be determined, so every partition gets all tombstones, as it gets every ``forget``.
"""

from __future__ import annotations

from typing import Final

from stream_metrics.core.engine.codec import encode_tombstone, stored_header
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.ports import ConversationWrite
from stream_metrics.live.worker.ownership.announce import PreviousPartitions
from stream_metrics.live.worker.ownership.takeover import NotPrepared
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.retry import Retry

CARRIED: Final = "tombstones"  # the mark of a partition that has the tombstones
PAGE_SIZE: Final = 500


async def carry(
    partition: StatePartition,
    before: PreviousPartitions,
    generation: int,
    key_id: str,
    schema: int,
    retry: Retry,
) -> None:
    """Copy the tombstones of these partitions of a generation, before any record is read.

    The mark is written with the last of them, so an interrupted copy is repeated. Raises
    ``PartitionLost``, and ``NotPrepared`` for a conversation that cannot be read, which may be a
    tombstone.
    """
    page: list[ConversationWrite] = []
    for store, number in before:
        try:
            async for key, parts in store.conversations(number):
                forgotten = stored_header(parts.hot).forgotten
                if forgotten is None:
                    continue
                hot = encode_tombstone(schema, key_id, forgotten)
                page.append(ConversationWrite(key, hot, last_record_ms=parts.last_record_ms))
                if len(page) >= PAGE_SIZE:
                    await partition.put(page, [], retry)
                    page = []
        except DamagedState as damage:
            raise NotPrepared(
                f"forgotten conversations cannot be taken over from state partition {number} of "
                f"generation {generation}, which is damaged: {damage}. Restore a backup of that "
                "generation; or give this build up (`stream-metrics build --give-up`), and build "
                "without --from-retained once the topics reach back far enough"
            ) from damage
    await partition.put(page, [CARRIED], retry)
