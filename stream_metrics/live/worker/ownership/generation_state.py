"""The state of a generation as one of its workers keeps it.

While the generation is built, the worker is muted, wipes a partition at an offset gap, and pauses
where the store has no room for two generations. Once the generation has replaced another one, the
worker speaks, and announces the rows of its partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from stream_metrics.live.layout import Generation, Layout
from stream_metrics.live.ports import StateStore
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.kept_state import KeptState
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import PartitionOptions, Policy
from stream_metrics.live.worker.ownership.announce import PAGE_SIZE, AnnouncementScope, Announcer
from stream_metrics.live.worker.ownership.build import gap_policy
from stream_metrics.live.worker.ownership.generations import change
from stream_metrics.live.worker.ownership.switch import Fence, LayoutWatcher, announced
from stream_metrics.live.worker.ownership.tombstones import CARRIED, carry
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.publication import Publication, before, before_of, belongs
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.telemetry import Telemetry


class GenerationState(KeptState):
    """The state of ``generation``, which is in use in ``layout``.

    ``space`` is the store of all generations; ``options`` are those of the partitions, and
    ``internal`` is their partitioner if an internal topic has it. ``on_muted`` is called with
    whether the worker is muted. ``page_size`` is that of announcements. ``build_pauses`` says why
    a build is to pause, and is empty while it is not.
    """

    def __init__(
        self,
        space: StateStore,
        layout: Layout,
        generation: Generation,
        options: PartitionOptions,
        publication: Publication,
        cache: ConversationCache,
        telemetry: Telemetry,
        retry: Retry,
        *,
        now_ms: Callable[[], int],
        internal: Callable[[bytes], int] | None = None,
        on_muted: Callable[[bool], None] = lambda _: None,
        page_size: int = PAGE_SIZE,
    ) -> None:
        super().__init__(space.generation(generation), generation.identity, self._make)
        self.outputs = publication.outputs
        self.build_pauses = ""
        self._space = space
        self._layout = layout
        self._generation = generation
        self._options = options
        self._publication = publication
        self._cache = cache
        self._names = SharedNames(self.store, options)
        self._telemetry = telemetry
        self._retry = retry
        self._now_ms = now_ms
        self._internal = internal
        self._on_muted = on_muted
        self._page_size = page_size
        self._announcer = Announcer(self._to_announce, retry, telemetry)
        self._watcher: LayoutWatcher | None = None

    def watch(self, fence: Fence, rest: Callable[[], Awaitable[None]]) -> LayoutWatcher:
        """What follows changes of the layout, and mutes or unmutes; ``fence`` and ``rest`` are for
        a switch that is to be finished."""
        self.mute(self._publication.muted)
        self._watcher = LayoutWatcher(
            self._space, self._layout, self._generation, fence, rest, self.mute, self._now_ms
        )
        return self._watcher

    def mute(self, is_muted: bool) -> None:
        """Speak, or do not."""
        self._publication.muted = is_muted
        self._on_muted(is_muted)

    @property
    def options(self) -> PartitionOptions:
        """What its partitions share."""
        return self._options

    @property
    def _newest(self) -> Layout:
        """The layout as it was read last."""
        return self._layout if self._watcher is None else self._watcher.newest

    def _make(self, number: int, token: bytes) -> StatePartition:
        return StatePartition(
            number,
            self._options,
            self.store,
            self._publication.letters,
            self._cache,
            self._names,
            self._telemetry,
            token,
            self.outputs.of(number) if self.outputs is not None else None,
        )

    def gap_policy(self, configured: Policy) -> Policy:
        """See ``KeptState.gap_policy``."""
        return gap_policy(self._newest, self._generation, configured)

    def why_not_read(self) -> str | None:
        """See ``KeptState.why_not_read``."""
        return (self.build_pauses or None) if self._publication.muted else None

    async def prepare(self, partition: StatePartition) -> None:
        """Copy tombstones if the log does not reach back to the ``forget`` events."""
        if self._generation.retained and CARRIED not in partition.marks:
            other = before(self._layout, self._generation)
            held = before_of(self._space, self._layout, self._generation, partition.number)
            number, schema = other.number if other else 0, self._options.identity.schema_version
            key_id, retry = self._options.key_id, self._retry
            await retry(lambda: carry(partition, held, number, key_id, schema, retry))

    async def work_on(self, partition: StatePartition) -> None:
        """Announce some of a partition's rows, if it has not announced all."""
        await self._announcer.step(partition)

    async def counts_changed(self, topics: Sequence[str]) -> None:
        """Note when topics got other partitions: builds read around what came before."""
        now_ms = self._now_ms()
        await self._retry(lambda: change(self._space, lambda now: now.has_grown(topics, now_ms)))

    def _to_announce(self, partition: StatePartition) -> AnnouncementScope | None:
        """What there is to announce, once the generation has taken another's place."""
        newest, options = self._newest, self._options
        mine, other = newest.of(self._generation.number), before(newest, self._generation)
        if self._publication.muted or mine is None or mine.number == 1:
            return None
        return AnnouncementScope(
            self.store,
            options.engine,
            options.turn_scope,
            options.ttl_ms,
            announced(mine, partition.marks),
            before_of(self._space, newest, self._generation, partition.number),
            self._page_size,
            belongs(
                other.identity if other else self.identity,
                self.identity,
                partition.number,
                self._internal,
            ),
        )
