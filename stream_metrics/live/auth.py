"""HTTP basic authentication: users with scrypt password hashes, and an aiohttp middleware."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web

from stream_metrics.clients.setting_files import read_text

PROBE_PATHS: Final = frozenset(("/healthz", "/readyz"))
AUTHENTICATED: Final = ContextVar("authenticated", default=True)
"""Whether the request has valid credentials."""
COST: Final = 15  # scrypt's n as a power of 2: 32 MiB and some tenths of a second per password
MAX_PENDING: Final = 16
_BLOCK_SIZE: Final = 8
_PARALLELISM: Final = 3
_MAX_MEMORY: Final = 256 * 1024 * 1024
_HASH: Final = re.compile(
    r"scrypt\$(?P<cost>[1-9]|1[0-9]|20)\$8\$3\$(?P<salt>[\w-]{22})\$(?P<digest>[\w-]{43})", re.ASCII
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def hash_password(password: str, cost: int = COST) -> str:
    """A salted scrypt hash of a password; raises ``ValueError`` if the password is empty."""
    if not password:
        raise ValueError("the password is empty")
    salt = os.urandom(16)
    digest = _derive(password.encode(), salt, cost)
    return "$".join(
        [
            "scrypt",
            str(cost),
            str(_BLOCK_SIZE),
            str(_PARALLELISM),
            _encode_base64(salt),
            _encode_base64(digest),
        ]
    )


def password_matches(password: bytes, stored: str) -> bool:
    """Whether a password has this hash, in constant time.

    >>> password_matches(b"open sesame", hash_password("open sesame", cost=4))
    True
    """
    found = _HASH.fullmatch(stored)
    assert found is not None, "checked by `check_users`"
    digest = _derive(password, _decode_base64(found["salt"]), int(found["cost"]))
    return hmac.compare_digest(digest, _decode_base64(found["digest"]))


def _derive(password: bytes, salt: bytes, cost: int) -> bytes:
    return hashlib.scrypt(
        password,
        salt=salt,
        n=1 << cost,
        r=_BLOCK_SIZE,
        p=_PARALLELISM,
        maxmem=_MAX_MEMORY,
        dklen=32,
    )


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def check_users(users: Mapping[str, str]) -> None:
    """Raise ``ValueError`` unless every user has a valid name and hash; it quotes no hash."""
    for user, stored in users.items():
        if not user or ":" in user:
            raise ValueError("web.users: a name must not be empty or contain a colon")
        if not _HASH.fullmatch(stored):
            raise ValueError(
                f"web.users: the value for {user!r} is not a hash; `stream-metrics hash-password` "
                "makes one from a password"
            )


def read_users(path: Path) -> dict[str, str]:
    """Users from a file of lines ``name:hash``; raises ``ValueError``, which quotes no line."""
    users: dict[str, str] = {}
    for number, line in enumerate(read_text("web.users_file", path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, stored = line.strip().partition(":")
        if not colon or not user or user in users:
            raise ValueError(f"web.users_file {path}, line {number}: write name:hash, each once")
        users[user] = stored
    if not users:
        raise ValueError(f"web.users_file {path} has no users: write name:hash, or leave it unset")
    return users


class BasicAuth:
    """An aiohttp middleware that requires credentials for every path except the probes.

    Without credentials, probes are answered but omit their reasons (``AUTHENTICATED``). A verified
    password is cached as a keyed digest, so that only the first scrape is slow. Requests of unknown
    users take as long as those of known ones. At most ``MAX_PENDING`` passwords are verified or
    wait for it.
    """

    __middleware_version__ = 1  # marks a new-style middleware for aiohttp

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)
        self._dummy_hash = next(iter(self._users.values()))
        self._key = os.urandom(32)
        self._verified: dict[str, bytes] = {}
        self._pending = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve the page; answer 401 without valid credentials, 503 if too many passwords wait."""
        given = _credentials(request.headers.get(hdrs.AUTHORIZATION, ""))
        cached = given is not None and self._is_verified(*given)
        if given is not None and not cached and self._pending >= MAX_PENDING:
            return web.Response(status=503, text="Busy.\n", headers={hdrs.RETRY_AFTER: "1"})
        known = cached or (given is not None and await self._verify(*given))
        AUTHENTICATED.set(known)
        if not known and request.path not in PROBE_PATHS:
            return web.Response(
                status=401,
                text="A user and a password are needed.\n",
                headers={hdrs.WWW_AUTHENTICATE: 'Basic realm="stream-metrics", charset="UTF-8"'},
            )
        return await handler(request)

    def _digest(self, password: bytes) -> bytes:
        return hashlib.blake2b(password, key=self._key).digest()

    def _is_verified(self, user: str, password: bytes) -> bool:
        return hmac.compare_digest(self._verified.get(user, b""), self._digest(password))

    async def _verify(self, user: str, password: bytes) -> bool:
        stored = self._users.get(user)
        loop = asyncio.get_running_loop()
        self._pending += 1
        try:
            matches = await loop.run_in_executor(
                self._thread, password_matches, password, stored or self._dummy_hash
            )
        finally:
            self._pending -= 1
        if stored is None or not matches:
            return False
        self._verified[user] = self._digest(password)
        return True

    async def close(self, _: web.Application) -> None:
        """Stop the thread that verifies passwords."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _credentials(header: str) -> tuple[str, bytes] | None:
    """User and password of a basic ``Authorization`` header; None if it is not one."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
