"""Ranks the worst conversations in a store: all of them, or a worker's latest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.codec import decode_conversation
from stream_metrics.core.engine.config import OTHER, EngineConfig
from stream_metrics.core.engine.state import Conversation
from stream_metrics.core.engine.step import Step
from stream_metrics.core.engine.window import Window
from stream_metrics.core.events.turns import turn_text
from stream_metrics.live.ports import StateStore
from stream_metrics.live.runaways import MANY_ITERATIONS
from stream_metrics.live.worst import RANKINGS, Scope, Worst

PAGE: Final = 64  # conversations read and worked through at once
REST: Final = 1.0  # pause after a page, as a multiple of the time that the page took
LATEST_MS: Final = 1 << 53  # after any time that a record may have
MOST_NAMED: Final = 3  # agents that have turns beyond a limit
EARLY_MS: Final = 60_000  # how far a record's timestamp may lie before what it tells of


@dataclass(frozen=True, slots=True)
class Request:
    """A request: a window that ends at ``now_us``, and an agent (or release), None for all.

    ``limit`` entries a ranking, ``max_pairs`` duplicates an entry; shares from ``min_results`` on,
    and turns that run away from ``runaway_iterations`` on.
    """

    window: Window
    now_us: int
    agent: str | None = None
    limit: int = 10
    min_results: int = 10
    max_pairs: int = 20
    runaway_iterations: int = MANY_ITERATIONS


@dataclass(slots=True)
class WorstReport:
    """The rankings, and how many conversations were read; ``complete`` is False if not all were.

    ``partitions`` are those whose conversations were read.
    """

    request: Request
    dimension: str
    scope: Scope
    worst: Worst
    read: int = 0
    complete: bool = True
    partitions: Sequence[int] = ()

    def document(
        self,
        rankings: Sequence[str] = RANKINGS,
        link: Callable[[str], str | None] = lambda _: None,
    ) -> dict[str, Any]:
        """The report as plain data, the worst first in each ranking.

        ``link`` returns a link to the trace of a conversation id, or None. ``judged`` is the number
        of conversations with enough data for each ranking. ``beyond_limit`` is about turns beyond a
        limit: its ``searches`` and ``results`` are 0 if they are not known of all of these, and its
        ``text`` is None without any.
        """
        request, ranked, worst = self.request, self.worst.rankings(), self.worst
        return {
            "schema_version": 1,
            "now": request.now_us,
            "window": request.window.name,
            "from_us": self.scope.from_us,
            "to_us": self.scope.to_us,
            self.dimension: request.agent,
            "min_results": request.min_results,
            "conversations": worst.conversations,
            "results": worst.results,
            "beyond_limit": {
                "turns": worst.beyond_limit.turns,
                "searches": worst.beyond_limit.searches,
                "results": worst.beyond_limit.results,
                f"{self.dimension}s": dict(worst.most_cut()),
                "text": self._cut_text(),
            },
            "runaway_turns": [
                one._asdict() | {"turn_text": turn_text(one.turn), "url": link(one.conversation_id)}
                for one in worst.runaways
            ],
            "complete": self.complete,
            "partitions": {"read": list(self.partitions)},
            "judged": {name: worst.judged[name] for name in rankings},
            **{
                name: [part.row() | {"url": link(part.conversation_id)} for part in ranked[name]]
                for name in rankings
            },
        }

    def _cut_text(self) -> str | None:
        """The sentence on turns beyond a limit, which names those that have most of them."""
        beyond, by = self.worst.beyond_limit, self.worst.most_cut()
        if not beyond.turns:
            return None
        named = [f"{name} {number:,}" for name, number in by[:MOST_NAMED]]
        named += [f"{len(by) - MOST_NAMED:,} more"] if len(by) > MOST_NAMED else []
        named = named if len(by) > 1 else [by[0][0]]
        whose = f" ({', '.join(named)})" if self.request.agent is None else ""
        return f"{'' if self.complete else 'at least '}{beyond.text(whose)}"


class ConversationReader:
    """Decodes stored conversations, without their fingerprints."""

    def __init__(self, config: EngineConfig) -> None:
        dedup = deduplicator(config.rules, b"")
        self._step = Step(config, lambda _: dedup)

    def conversation(self, hot: Mapping[bytes, bytes]) -> Conversation:
        """A conversation with all derived values."""
        conversation = decode_conversation("", hot, "")
        self._step.restore(conversation)
        return conversation


async def whole(
    store: StateStore, config: EngineConfig, agents: Sequence[str], request: Request
) -> WorstReport:
    """Rank every conversation of the namespace; memory holds a page at a time."""
    found = await _nothing_yet(store, config, agents, request)
    reader = ConversationReader(config)
    found.partitions = await store.partitions()
    for partition in found.partitions:
        async for _, stored in store.conversations(partition):
            found.read += 1
            found.worst.offer(reader.conversation(stored.hot))
    return found


async def latest(
    store: StateStore,
    config: EngineConfig,
    agents: Sequence[str],
    request: Request,
    partitions: Sequence[int],
    *,
    max_conversations: int,
    executor: Executor,
) -> WorstReport:
    """Rank the conversations of some partitions whose latest record is in the window.

    At most ``max_conversations`` are read, the latest of each partition. They are read a page at a
    time and decoded in ``executor``, with pauses for other tasks on the event loop.
    """
    found = await _nothing_yet(store, config, agents, request)
    reader = ConversationReader(config)
    since_ms = found.scope.from_us // 1000 - EARLY_MS
    share = max(1, max_conversations // max(1, len(partitions)))
    loop = asyncio.get_running_loop()

    def work(hots: Sequence[Mapping[bytes, bytes]]) -> None:
        for hot in hots:
            found.worst.offer(reader.conversation(hot))

    found.partitions = partitions
    for partition in partitions:
        keys = await store.by_age(partition, since_ms, LATEST_MS, share + 1, newest=True)
        if len(keys) > share:
            found.complete = False
        for first in range(0, min(len(keys), share), PAGE):
            started = time.perf_counter()
            page = [(key, False) for key in keys[first : min(first + PAGE, share)]]
            hots = [parts.hot for parts in await store.load(partition, page) if parts.hot]
            await loop.run_in_executor(executor, work, hots)
            found.read += len(hots)
            await asyncio.sleep(REST * (time.perf_counter() - started))
    return found


async def _nothing_yet(
    store: StateStore, config: EngineConfig, agents: Sequence[str], request: Request
) -> WorstReport:
    known: frozenset[str] = frozenset()
    if request.agent == OTHER:
        kind = f"{config.dimension}s"
        known = (await store.layout()).chosen(kind, agents, config.max_names)
    scope = Scope(*request.window.span_us(request.now_us), _admits(request.agent, known))
    worst = Worst(
        scope,
        config,
        limit=request.limit,
        min_results=request.min_results,
        max_pairs=request.max_pairs,
        runaway_iterations=request.runaway_iterations,
    )
    return WorstReport(request, config.dimension, scope, worst)


def _admits(agent: str | None, known: frozenset[str]) -> Callable[[str], bool]:
    """A filter of agents for a request; ``other`` means all without their own series."""
    if agent is None:
        return lambda _: True
    if agent == OTHER:
        return lambda name: name == OTHER or name not in known
    return lambda name: name == agent
