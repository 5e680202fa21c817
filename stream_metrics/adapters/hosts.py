"""By which names the page is served where nobody has to log in.

A web site that an engineer visits can make its own name point to this machine (DNS rebinding); the
engineer's browser then lets that site read whatever is served under its name. Such a name has a
dot, and is none of ours.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from stream_metrics.adapters.auth import PROBES, Handler

OPEN: Final = PROBES | {"/metrics"}  # asked by machines, under whatever name they have for us


class HostNames:
    """An aiohttp middleware that serves all but ``OPEN`` under names of ours only.

    Ours are addresses, names without a dot, those below ``localhost``, the machine's own name, and
    ``allowed``; one of these that begins with a dot stands for all names that end with it.
    """

    __middleware_version__ = 1  # aiohttp's mark of a new-style middleware

    def __init__(self, allowed: Iterable[str]) -> None:
        names = {_plain(name) for name in (*allowed, socket.gethostname())}
        self._names = frozenset(name for name in names if not name.startswith("."))
        self._ends = (".localhost", *(name for name in names if name.startswith(".")))

    def ours(self, name: str) -> bool:
        """Whether a host's name or address is one of ours.

        >>> [HostNames(["a.example.org"]).ours(name) for name in ("a.example.org", "evil.test")]
        [True, False]
        """
        plain = _plain(name)
        return (
            "." not in plain
            or plain in self._names
            or plain.endswith(self._ends)
            or _is_address(plain)
        )

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve the page, or say how it would be served under that name."""
        if request.path not in OPEN and not self.ours(_host(request)):
            return web.Response(
                status=403,
                text="This page is not served under the requested host name. Its operator can add "
                "the name to `web.allowed_hosts`, or set `web.users`.\n",
            )
        return await handler(request)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host(request: web.Request) -> str:
    """The name without the port; one that cannot be is nobody's. Browsers always send one."""
    given = request.headers.get(hdrs.HOST, "")
    try:
        return urlsplit(f"//{given}").hostname or ""
    except ValueError:
        return "not.valid"
