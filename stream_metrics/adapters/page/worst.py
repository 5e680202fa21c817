"""The worst conversations of all partitions: one look at a time, kept for a while."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from stream_metrics.adapters.links import CONVERSATION, fill_template
from stream_metrics.adapters.page.board import View
from stream_metrics.adapters.page.group import Owned, Source
from stream_metrics.ports import StoreUnavailable
from stream_metrics.worker.worst import Request, latest

CONVERSATIONS: Final = 5_000  # read for one answer at most
KEPT_SECONDS: Final = 15.0
KEPT: Final = 64  # answers at once
WAITING: Final = 8  # answers that are asked for and not begun


class Busy(Exception):
    """Too many answers are asked for at once."""


class WorstConversations:
    """Answers about all partitions that can be read, whoever owns them.

    ``source`` gives None while there is no store yet.
    """

    def __init__(
        self,
        source: Callable[[], Source | None],
        owned: Callable[[], Owned],
        now_us: Callable[[], int],
        *,
        max_conversations: int = CONVERSATIONS,
        kept_seconds: float = KEPT_SECONDS,
        conversation_url: str | None = None,
    ) -> None:
        self._source = source
        self._owned = owned
        self._now_us = now_us
        self._max_conversations = max_conversations
        self._kept_seconds = kept_seconds
        self._link = partial(fill_template, conversation_url, CONVERSATION)
        self._one = asyncio.Lock()
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worst")
        self._kept: dict[View, tuple[float, bytes]] = {}

    async def document(self, view: View) -> bytes:
        """The answer as JSON in UTF-8, at most ``kept_seconds`` old.

        Raises ``Busy``, or what the store raises when it does not answer.
        """
        if self._waiting >= WAITING:
            raise Busy(f"{WAITING} answers are asked for already; try again in a few seconds")
        self._waiting += 1
        try:
            async with self._one:
                now = time.monotonic()
                self._kept = {
                    kept: (at, answer)
                    for kept, (at, answer) in self._kept.items()
                    if now - at < self._kept_seconds
                }
                if view not in self._kept:
                    answer = (time.monotonic(), await self._answer(view))
                    self._kept = {**dict(list(self._kept.items())[1 - KEPT :]), view: answer}
                return self._kept[view][1]
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
            Request(view.window, self._now_us(), view.agent),
            numbers,
            max_conversations=self._max_conversations,
            executor=self._thread,
        )
        document = found.document(link=self._link)
        document["partitions"] |= {"owned": len(owned.numbers), "total": owned.total}
        document["max_conversations"] = self._max_conversations
        return json.dumps(document, separators=(",", ":")).encode()

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False)
