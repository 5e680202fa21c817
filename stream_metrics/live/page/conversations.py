"""Serves conversations to read: one by its id, and the latest ones of an agent.

A conversation is processed from its recorded events when it is asked for, one request at a time, in
a thread, and in pieces with pauses, so that the event loop and the thread of others keep half of
the core. What was read is kept for a short time, for the other pages of the same conversation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeVar

import msgspec

from stream_metrics.core.engine.config import DEFAULT_AGENT, EngineConfig
from stream_metrics.core.engine.reading import LISTED, Reading
from stream_metrics.core.events.decode import instant
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.wire import Handle, Name
from stream_metrics.live.page.conversation_html import (
    Found,
    Site,
    conversation_page,
    latest_page,
    problem_page,
)
from stream_metrics.live.page.worst import TooManyRequests
from stream_metrics.live.ports import ConversationRecords

PIECE: Final = 100  # events read at once
PIECE_BYTES: Final = 128 << 10
MOST_EVENTS: Final = 20_000  # of a conversation that is shown
MOST_BYTES: Final = 64 << 20
MOST_RESULTS: Final = 50_000
NEWEST: Final = 5_000  # events among which the latest conversations are found
NEWEST_BYTES: Final = 32 << 20
SHOWN: Final = 50  # conversations in the list
REST: Final = 1.0  # pause after a piece, as a multiple of the time that it took
KEEP_SECONDS: Final = 15.0
KEPT: Final = 4
MAX_WAITING: Final = 8

_T = TypeVar("_T")


class NotThere(Exception):
    """There is nothing to show; the message says why."""


class TooLarge(Exception):
    """A conversation is too large to be shown; the message says what to do."""


class _Kept(NamedTuple):
    at: float
    reading: Reading
    since_ms: int | None


class ConversationPages:
    """Pages of conversations.

    ``records`` returns None until there are any to read; then ``config`` is what they count by.
    """

    def __init__(
        self,
        records: Callable[[], ConversationRecords | None],
        config: Callable[[], EngineConfig],
        site: Site,
        *,
        kept_seconds: float = KEEP_SECONDS,
    ) -> None:
        self.site = site
        self._records = records
        self._config = config
        self._kept_seconds = kept_seconds
        self._kept: dict[str, _Kept] = {}
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="conversation")

    async def conversation(self, conversation_id: str, turn: int | None, page: int) -> str:
        """A page of a conversation.

        Raises ``NotThere``, ``TooLarge``, ``TooManyRequests``, and what the records raise.
        """
        async with self._turn():
            kept = self._known(conversation_id)
            if kept is None:
                reading, since_ms = await self._read(conversation_id)
                kept = _Kept(time.monotonic(), reading, since_ms)
                self._kept[conversation_id] = kept
                for name in [*self._kept][:-KEPT]:
                    del self._kept[name]
            shown = await self._in_thread(
                lambda: conversation_page(kept.reading, self.site, turn, page, kept.since_ms)
            )
        if shown is None:
            raise NotThere("the conversation has no such turn, or the turn no such page")
        return shown

    async def latest(self, agent: str | None) -> str:
        """The latest conversations of an agent, or of all; raises as ``conversation`` does."""
        async with self._turn():
            records, search = self._source(), LatestSearch(agent)
            before: int | None = None
            while not search.enough and (piece := await records.newest(before, PIECE)):
                before = piece[-1].place
                await self._work(search.add, [one.record for one in piece])
            found, looked_at = search.found(), search.looked_at
            return await self._in_thread(
                lambda: latest_page(found, self.site, agent, looked_at=looked_at)
            )

    def problem(self, title: str, text: str) -> str:
        """A page that says why there is none."""
        return problem_page(self.site, title, text)

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False)

    # -- one request after the other

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._waiting >= MAX_WAITING:
            raise TooManyRequests(
                f"{MAX_WAITING} pages are asked for already; try again in a few seconds"
            )
        self._waiting += 1
        try:
            async with self._lock:
                yield
        finally:
            self._waiting -= 1

    def _known(self, conversation_id: str) -> _Kept | None:
        now = time.monotonic()
        self._kept = {
            name: kept for name, kept in self._kept.items() if now - kept.at < self._kept_seconds
        }
        return self._kept.get(conversation_id)

    def _source(self) -> ConversationRecords:
        records = self._records()
        if records is None:
            raise NotThere("there are no events to read yet")
        return records

    async def _read(self, conversation_id: str) -> tuple[Reading, int | None]:
        records = self._source()
        since_ms = await records.kept_since_ms()
        letters = await records.letters(conversation_id, LISTED)
        reading = Reading(conversation_id, self._config(), letters, texts=self.site.texts)
        after, size = -1, 0
        while piece := await records.of_conversation(conversation_id, after, PIECE):
            after = piece[-1].place
            size += sum(len(one.record.value or b"") for one in piece)
            check_size(reading.records + len(piece), size)
            for some in in_pieces([one.record for one in piece]):
                await self._work(reading.feed, some)
            check_size(reading.records, size, reading.results)
        if not reading.records and not reading.refused:
            raise NotThere(
                "there is no event with this conversation_id"
                if since_ms is None
                else "there is no event with this conversation_id, or its events are deleted"
            )
        return reading, since_ms

    async def _work(self, work: Callable[[list[Record]], None], records: list[Record]) -> None:
        """Process records in the thread, and pause for as long as that took."""
        started = time.perf_counter()
        await self._in_thread(lambda: work(records))
        await asyncio.sleep(REST * (time.perf_counter() - started))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def check_size(events: int, size: int, results: int = 0) -> None:
    """Raise ``TooLarge`` for a conversation of more events, bytes or results than are shown."""
    for number, most, what in (
        (events, MOST_EVENTS, "events"),
        (size, MOST_BYTES, "bytes"),
        (results, MOST_RESULTS, "results"),
    ):
        if number > most:
            raise TooLarge(f"it has more than {most:,} {what}, and so much is not shown")


def in_pieces(records: Iterable[Record], most_bytes: int = PIECE_BYTES) -> Iterator[list[Record]]:
    """The records in pieces of at most so many bytes; a larger record is a piece of its own."""
    piece: list[Record] = []
    size = 0
    for record in records:
        size += len(record.value or b"")
        if piece and size > most_bytes:
            yield piece
            piece, size = [], len(record.value or b"")
        piece.append(record)
    if piece:
        yield piece


class _Named(msgspec.Struct, gc=False, frozen=True):
    """What the list needs of an event."""

    type: str
    conversation_id: Handle
    occurred_at: str | float
    agent: Name | None = None


_NAMED: Final = msgspec.json.Decoder(_Named)


class LatestSearch:
    """Finds the latest conversations of an agent, or of all, in events from the newest on."""

    def __init__(self, agent: str | None) -> None:
        self._agent = agent
        self._events = self._bytes = 0
        self._times: dict[str, int] = {}
        self._agents: dict[str, set[str]] = {}
        self._forgotten: set[str] = set()

    @property
    def enough(self) -> bool:
        """Whether so much is found, or was looked at, that the search ends here."""
        return (
            self._events >= NEWEST
            or self._bytes >= NEWEST_BYTES
            or sum(map(self._is_of_agent, self._agents)) >= SHOWN
        )

    @property
    def looked_at(self) -> str:
        """Among what they were found."""
        return f"Among the latest {self._events:,} events."

    def add(self, records: Sequence[Record]) -> None:
        """Look at the next older events."""
        for record in records:
            self._events += 1
            self._bytes += len(record.value or b"")
            try:
                event = _NAMED.decode(record.value or b"")
            except (ValueError, RecursionError):
                continue
            name, time_us = event.conversation_id, instant(event.occurred_at)
            if event.type == "forget":
                self._forgotten.add(name)
            if time_us is None or name in self._forgotten:
                continue
            self._times[name] = max(time_us, self._times.get(name, time_us))
            if event.type == "search_iteration":
                self._agents.setdefault(name, set()).add(event.agent or DEFAULT_AGENT)

    def _is_of_agent(self, name: str) -> bool:
        return self._agent is None or self._agent in self._agents[name]

    def found(self) -> list[Found]:
        """The conversations that searched, the latest first."""
        found = [
            Found(name, sorted(agents), self._times[name])
            for name, agents in self._agents.items()
            if self._is_of_agent(name)
        ]
        return sorted(found, key=lambda one: (-one.time_us, one.conversation_id))[:SHOWN]
