"""The state that a loop reads records for, and what a worker does for it beside reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stream_metrics.live.layout import Identity
from stream_metrics.live.ports import Outputs, StateStore
from stream_metrics.live.worker.options import Policy
from stream_metrics.live.worker.partition import StatePartition


class KeptState:
    """State in ``store``, built with ``identity``; nothing is to be done but to read.

    ``make_partition`` makes a state partition of a number and a token. ``outputs`` are told which
    partitions this worker keeps.
    """

    outputs: Outputs | None = None

    def __init__(
        self,
        store: StateStore,
        identity: Identity,
        make_partition: Callable[[int, bytes], StatePartition],
    ) -> None:
        self.store = store
        self.identity = identity
        self.make_partition = make_partition

    def gap_policy(self, configured: Policy) -> Policy:
        """How to handle offset gaps now."""
        return configured

    def why_not_read(self) -> str | None:
        """Why reading is to pause; None if it is not. Partitions stay active meanwhile."""
        return None

    async def prepare(self, partition: StatePartition) -> None:
        """Prepare a claimed partition before any record of it is read.

        May raise ``PartitionLost`` or ``NotPrepared``.
        """

    async def work_on(self, partition: StatePartition) -> None:
        """Do a step of what is to be done with a partition between batches."""

    async def counts_changed(self, topics: Sequence[str]) -> None:
        """Note that topics have other partition counts than the state; no more is read of them."""
