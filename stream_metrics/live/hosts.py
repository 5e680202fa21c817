"""Restricts the host names under which the page is served without authentication.

This protects against DNS rebinding: a web site that a user visits can make its own name
resolve to this machine, and the browser then lets the site read what is served under that name.
Such a name contains a dot and is not one of the allowed names.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from stream_metrics.live.auth import PROBE_PATHS, Handler

ANY_HOST_PATHS: Final = PROBE_PATHS | {"/metrics"}  # for probes and scrapes, under any name


class HostNames:
    """An aiohttp middleware that serves pages under allowed names only.

    ``ANY_HOST_PATHS`` are served under any name.

    IP addresses, names without a dot, names below ``localhost``, the machine's own name and those
    in ``allowed`` are allowed; an entry that begins with a dot allows all names that end with it.
    """

    __middleware_version__ = 1  # marks a new-style middleware for aiohttp

    def __init__(self, allowed: Iterable[str]) -> None:
        names = {_normalized(name) for name in (*allowed, socket.gethostname())}
        self._names = frozenset(name for name in names if not name.startswith("."))
        self._suffixes = (".localhost", *(name for name in names if name.startswith(".")))

    def is_allowed(self, name: str) -> bool:
        """Whether the page is served under a host name or address.

        >>> hosts = HostNames(["a.example.org"])
        >>> [hosts.is_allowed(name) for name in ("a.example.org", "evil.test")]
        [True, False]
        """
        normalized = _normalized(name)
        return (
            "." not in normalized
            or normalized in self._names
            or normalized.endswith(self._suffixes)
            or _is_address(normalized)
        )

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve the page, or answer 403 with the settings that would allow it."""
        if request.path not in ANY_HOST_PATHS and not self.is_allowed(_host(request)):
            return web.Response(
                status=403,
                text="This page is not served under the requested host name. Its operator can add "
                "the name to `web.allowed_hosts`, or set `web.users`.\n",
            )
        return await handler(request)


def _normalized(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host(request: web.Request) -> str:
    """The requested host name without the port; empty without a ``Host`` header."""
    given = request.headers.get(hdrs.HOST, "")
    try:
        return urlsplit(f"//{given}").hostname or ""
    except ValueError:
        return "not.valid"
