"""The routes of the pages of conversations: ``/conversation`` and ``/conversations``.

They need the style sheets of ``server.add_assets``, and are behind the same access control.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.page.conversations import ConversationPages, NotThere, TooLarge
from stream_metrics.live.page.server import CONTENT_SECURITY_POLICY, HEADERS, MAX_NAME_LENGTH
from stream_metrics.live.page.worst import TooManyRequests
from stream_metrics.live.ports import Unavailable

MAX_ID_LENGTH: Final = 128
_WITH_FORM: Final = {
    **HEADERS,
    "Content-Security-Policy": CONTENT_SECURITY_POLICY.replace(
        "form-action 'none'", "form-action 'self'"
    ),
}
_NUMBER: Final = re.compile("[1-9][0-9]{0,15}", re.ASCII)


class ConversationServer:
    """Serves the pages; closes them on shutdown. ``on_bug`` is told of a bug that one has met."""

    def __init__(
        self, pages: ConversationPages, on_bug: Callable[[Bug], None] = lambda _: None
    ) -> None:
        self._pages = pages
        self._on_bug = on_bug

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        app.router.add_get("/conversation", self._conversation)
        app.router.add_get("/conversations", self._latest)
        app.on_shutdown.append(self._shut_down)

    async def _shut_down(self, _: web.Application) -> None:
        self._pages.close()

    async def _conversation(self, request: web.Request) -> web.Response:
        asked = request.query
        name, turn, page = asked.get("id", ""), asked.get("turn") or None, asked.get("page", "1")
        if not 0 < len(name) <= MAX_ID_LENGTH:
            why = f"A conversation's id has 1 to {MAX_ID_LENGTH} characters."
            return self._problem(400, "No such conversation", why)
        if not all(_NUMBER.fullmatch(number) for number in (turn or "1", page)):
            return self._problem(400, "No such page", "Turns and pages are numbers from 1 on.")
        return await self._answer(
            self._pages.conversation(name, None if turn is None else int(turn), int(page))
        )

    async def _latest(self, request: web.Request) -> web.Response:
        agent = request.query.get("agent") or None
        if agent is not None and len(agent) > MAX_NAME_LENGTH:
            why = f"An agent's name has at most {MAX_NAME_LENGTH} characters."
            return self._problem(400, "No such agent", why)
        return await self._answer(self._pages.latest(agent))

    async def _answer(self, page: Awaitable[str]) -> web.Response:
        """A page, or one that says why there is none."""
        try:
            return _response(200, await page)
        except NotThere as error:
            return self._problem(404, "Not there", f"Not shown: {error}.")
        except TooLarge as error:
            return self._problem(413, "Too large", f"Not shown: {error}.")
        except TooManyRequests as error:
            return self._problem(503, "Not now", f"{error}.")
        except Unavailable as error:
            return self._problem(503, "Not now", f"The events cannot be read now: {error}.")
        except Exception as error:
            bug = Bug.of(error)
            self._on_bug(bug)
            return self._problem(500, "Not shown", f"A bug, of which the log has more: {bug.kind}.")

    def _problem(self, status: int, title: str, text: str) -> web.Response:
        return _response(status, self._pages.problem(title, text))


def _response(status: int, text: str) -> web.Response:
    headers = {**_WITH_FORM, hdrs.CACHE_CONTROL: "no-store"}
    if status == 503:
        headers[hdrs.RETRY_AFTER] = "5"
    return web.Response(status=status, text=text, content_type="text/html", headers=headers)
