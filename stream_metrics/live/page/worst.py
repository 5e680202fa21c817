"""The worst conversations of all partitions, computed one request at a time and cached."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from stream_metrics.live.links import CONVERSATION, fill_template
from stream_metrics.live.page.board import View
from stream_metrics.live.page.group import OwnedPartitions, StateSource
from stream_metrics.live.ports import StoreUnavailable
from stream_metrics.live.readers.worst import Request, latest
from stream_metrics.live.runaways import MANY_ITERATIONS, RunawayTurn, going_on

CONVERSATIONS: Final = 5_000  # read for one answer at most
KEEP_SECONDS: Final = 15.0
MAX_ANSWERS: Final = 64  # answers at once
MAX_WAITING: Final = 8  # requests that wait or run


class TooManyRequests(Exception):
    """Too many requests wait for an answer."""


class WorstConversations:
    """The worst conversations of all readable partitions, of any owner.

    ``source`` returns None until there is a store. ``readable``: there is a page of each.
    """

    def __init__(
        self,
        source: Callable[[], StateSource | None],
        owned: Callable[[], OwnedPartitions],
        now_us: Callable[[], int],
        *,
        max_conversations: int = CONVERSATIONS,
        kept_seconds: float = KEEP_SECONDS,
        conversation_url: str | None = None,
        readable: bool = False,
        runaway_iterations: int = MANY_ITERATIONS,
    ) -> None:
        self._source = source
        self._owned = owned
        self._now_us = now_us
        self._max_conversations = max_conversations
        self._kept_seconds = kept_seconds
        self._runaway_iterations = runaway_iterations
        self._runaways: tuple[RunawayTurn, ...] = ()
        self._link = partial(fill_template, conversation_url, CONVERSATION)
        self._readable = readable
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worst")
        self._answers: dict[View, tuple[float, bytes]] = {}

    async def document(self, view: View) -> bytes:
        """The answer as JSON in UTF-8, at most ``kept_seconds`` old.

        Raises ``TooManyRequests``, or the store's errors.
        """
        if self._waiting >= MAX_WAITING:
            raise TooManyRequests(
                f"{MAX_WAITING} answers are asked for already; try again in a few seconds"
            )
        self._waiting += 1
        try:
            async with self._lock:
                now = time.monotonic()
                self._answers = {
                    kept: (at, answer)
                    for kept, (at, answer) in self._answers.items()
                    if now - at < self._kept_seconds
                }
                if view not in self._answers:
                    answer = (time.monotonic(), await self._answer(view))
                    self._answers = {
                        **dict(list(self._answers.items())[1 - MAX_ANSWERS :]),
                        view: answer,
                    }
                return self._answers[view][1]
        finally:
            self._waiting -= 1

    async def _answer(self, view: View) -> bytes:
        source, owned = self._source(), self._owned()
        if source is None:
            raise StoreUnavailable(
                "the worker has no state to show yet: it has not connected to its store, or what "
                "it builds is not in force"
            )
        numbers = await source.readable()
        found = await latest(
            source.store,
            source.config,
            source.agents,
            Request(
                view.window,
                self._now_us(),
                view.agent,
                runaway_iterations=self._runaway_iterations,
            ),
            numbers,
            max_conversations=self._max_conversations,
            executor=self._thread,
        )
        self._runaways = tuple(found.worst.runaways)
        document = found.document(link=self._link)
        document["partitions"] |= {"owned": len(owned.numbers), "total": owned.total}
        document["readable"] = self._readable
        document["max_conversations"] = self._max_conversations
        return json.dumps(document, separators=(",", ":")).encode()

    def runaways(self) -> list[RunawayTurn]:
        """The turns of the latest answer that run away, and still go on."""
        return going_on(self._runaways, self._now_us() // 1000)

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False)
