"""Looks at rules again and again, and tells somebody what fires and what ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.notify import episodes
from stream_metrics.live.notify.delivery import NotDelivered
from stream_metrics.live.notify.episodes import Episodes, Found, Notice, Timing
from stream_metrics.live.ports import Notes, StoreRefused, StoreUnavailable

LOOK_SECONDS: Final = 15.0

log = structlog.get_logger(__name__)


class Look(NamedTuple):
    """What was found, by the rules that could be looked at."""

    found: Sequence[Found]
    rules: Collection[str]


class Notifier:
    """Tells of the faults of some rules.

    ``look`` returns None while another worker is to look. What was told is kept as the note
    ``name``. With ``alone``, no other worker tells the same, so that faults are told also while
    that cannot be read. ``counted`` is told whether each notice was delivered, ``on_bug`` what
    nobody expected.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], Awaitable[Look | None]],
        deliver: Callable[[Notice, float], Awaitable[None]],
        notes: Notes,
        timing: Callable[[str, str], Timing],
        clock: Callable[[], float],
        *,
        alone: bool,
        counted: Callable[[bool], None] = lambda _: None,
        on_bug: Callable[[Bug], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._look, self._deliver, self._notes = look, deliver, notes
        self._timing, self._clock = timing, clock
        self._alone = alone
        self._counted, self._on_bug = counted, on_bug
        self._state = Episodes()
        self._loaded = False
        self._kept = b""
        self._troubled = False

    async def run(self) -> None:
        """Look until it is cancelled."""
        while True:
            try:
                await self.step()
            except Exception as error:
                self._on_bug(Bug.of(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def step(self) -> None:
        """Look once, and tell what is due."""
        look = await self._look()
        if look is None:
            self._state, self._loaded = Episodes(), False
            return
        await self._load()
        if not self._loaded and not self._alone:
            return
        now = self._clock()
        self._state = episodes.looked(self._state, look.found, look.rules, now, self._timing)
        await self._keep()
        while (notice := episodes.due(self._state, self._clock(), self._timing)) is not None:
            await self._tell(notice)
            await self._keep()

    async def _tell(self, notice: Notice) -> None:
        try:
            await self._deliver(notice, self._clock())
        except NotDelivered as error:
            self._state = episodes.failed(self._state, notice, self._clock(), error.pause)
            self._counted(False)
            if not self._troubled:
                log.warning("notifications are not delivered, and are tried again", why=str(error))
            self._troubled = True
            return
        self._state = episodes.told(self._state, notice, self._clock())
        self._counted(True)
        if self._troubled:
            log.info("notifications are delivered again")
        self._troubled = False

    async def _load(self) -> None:
        """Go on with what was told before, as soon as that can be read."""
        if self._loaded:
            return
        try:
            text = await self._notes.note(self._name)
        except (StoreUnavailable, StoreRefused):
            return
        self._loaded, self._kept = True, text
        try:
            self._state = _joined(episodes.decoded(text), self._state)
        except ValueError:
            log.warning("what was notified before cannot be read, and may be repeated")

    async def _keep(self) -> None:
        """Keep what was told, if it has changed; a store that is away gets it with the next."""
        text = self._state.encoded()
        if text == self._kept or not self._loaded:
            return
        try:
            await self._notes.keep_note(self._name, text)
        except (StoreUnavailable, StoreRefused):
            return
        self._kept = text


def _joined(before: Episodes, since: Episodes) -> Episodes:
    """What was kept, with what was found before it could be read."""
    found = {one.key: one for one in since.episodes}
    told = {one.key: one for one in before.episodes}
    for key, one in found.items():
        known = told.get(key)
        if known is None or one.told:
            told[key] = one
        else:
            told[key] = replace(one, since=known.since, told=known.told, told_at=known.told_at)
    return replace(since, episodes=tuple(told.values()), tried={**before.tried, **since.tried})
