"""The worker's pages: ``/metrics``, ``/healthz``, ``/readyz``.

``Pages`` knows no web framework: each page is a status, a content type and a body, so that Faust's
web server and the demo's serve the same. ``make_app`` and ``serve`` put them on plain aiohttp.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from stream_metrics.adapters.health import Health
from stream_metrics.adapters.prometheus.windows import WindowCollector

PROBES: Final = frozenset(("/healthz", "/readyz"))
ITERATIONS: Final = 600_000
_JSON: Final = "application/json; charset=utf-8"
_EOF: Final = b"# EOF\n"
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_PBKDF2: Final = re.compile(r"pbkdf2_sha256\$([1-9][0-9]{0,7})\$([^$]+)\$([0-9a-fA-F]{64})")

Page = tuple[int, str, bytes]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pages:
    """What the pages show.

    ``windows`` is rendered beside ``registry`` and must not be registered there. ``close`` ends
    the thread that renders; its being one keeps scrapes from competing with the event loop.
    """

    def __init__(
        self, registry: CollectorRegistry, health: Health, windows: WindowCollector | None = None
    ) -> None:
        self.health = health
        self._registry = registry
        self._windows = windows
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metrics")

    async def metrics_response(self, accept: str = "") -> Page:
        """All metrics, as OpenMetrics where the ``Accept`` header asks for it."""
        if self._windows is not None:
            self._windows.prepare()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._render, accept)

    def _render(self, accept: str) -> Page:
        encoder, content_type = choose_encoder(accept)
        body = encoder(self._registry)
        if self._windows is not None:
            windows = self._windows.render().encode()
            end = _EOF if body.endswith(_EOF) else b""
            body = b"".join((body.removesuffix(_EOF), windows, end))
        return 200, content_type, body

    def healthz(self) -> Page:
        """Whether the worker is alive."""
        return _verdict("alive", self.health.failures())

    def readyz(self) -> Page:
        """Whether the worker reads and writes."""
        return _verdict("ready", self.health.obstacles())

    def close(self) -> None:
        """Let go of the rendering thread."""
        self._thread.shutdown(wait=False)


def _verdict(name: str, reasons: Mapping[str, str]) -> Page:
    if not reasons:
        return 200, _JSON, json.dumps({name: True}).encode()
    return 503, _JSON, json.dumps({name: False, "reasons": dict(reasons)}).encode()


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Where the pages are served and who may see them.

    ``users``: names and the hashes of their passwords, each from ``hash_password`` or, for long
    random passwords only, a bare SHA-256 in hexadecimal. Without users the pages are open.
    """

    host: str = "127.0.0.1"
    port: int = 9464
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.tls_key is not None and self.tls_certificate is None:
            raise ValueError("`tls_key` without `tls_certificate`; set both or neither")
        for user, stored in self.users.items():
            if not user or ":" in user:
                raise ValueError("a user's name must not be empty or hold a colon")
            if not (_SHA256.fullmatch(stored) or _PBKDF2.fullmatch(stored)):
                raise ValueError(f"the password of {user!r} is neither PBKDF2 nor SHA-256")


def hash_password(password: str, iterations: int = ITERATIONS) -> str:
    """A salted, slow hash of a password, for ``WebOptions.users``."""
    salt = os.urandom(16).hex()
    return f"pbkdf2_sha256${iterations}${salt}${_derive(password.encode(), salt, iterations)}"


def _derive(password: bytes, salt: str, iterations: int) -> str:
    return hashlib.pbkdf2_hmac("sha256", password, salt.encode(), iterations).hex()


def password_matches(password: bytes, stored: str) -> bool:
    """Whether a password is the one that was hashed.

    >>> password_matches(b"open sesame", hash_password("open sesame", iterations=10))
    True
    """
    slow = _PBKDF2.fullmatch(stored)
    if slow is not None:
        digest, expected = _derive(password, slow[2], int(slow[1])), slow[3]
    else:
        digest, expected = hashlib.sha256(password).hexdigest(), stored
    return hmac.compare_digest(digest, expected.lower())


class BasicAuth:
    """An aiohttp middleware that asks for a user on every page but the probes.

    A password that was right is remembered (as a keyed digest), so that a scrape need not pay for
    the slow hash again. An unknown user costs as much time as a known one.
    """

    __middleware_version__ = 1  # aiohttp's mark of a new-style middleware

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)
        self._nobody = max(self._users.values(), key=len)
        self._key = os.urandom(32)
        self._right: dict[str, bytes] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve the page, or ask who is there."""
        if request.path not in PROBES and not await self._admits(request):
            return web.Response(
                status=401,
                text="A user and a password are needed.\n",
                headers={hdrs.WWW_AUTHENTICATE: 'Basic realm="stream-metrics", charset="UTF-8"'},
            )
        return await handler(request)

    async def _admits(self, request: web.Request) -> bool:
        given = _credentials(request.headers.get(hdrs.AUTHORIZATION, ""))
        if given is None:
            return False
        user, password = given
        stored = self._users.get(user)
        digest = hashlib.blake2b(password, key=self._key).digest()
        if hmac.compare_digest(self._right.get(user, b""), digest):
            return True
        loop = asyncio.get_running_loop()
        right = await loop.run_in_executor(
            self._thread, password_matches, password, stored or self._nobody
        )
        if stored is None or not right:
            return False
        self._right[user] = digest
        return True

    async def close(self, _: web.Application) -> None:
        """Let go of the thread that derives passwords."""
        self._thread.shutdown(wait=False)


def _credentials(header: str) -> tuple[str, bytes] | None:
    """User and password of a basic ``Authorization`` header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def _response(page: Page) -> web.Response:
    status, content_type, body = page
    headers = {
        hdrs.CONTENT_TYPE: content_type,
        hdrs.CACHE_CONTROL: "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(status=status, body=body, headers=headers)


def make_app(pages: Pages) -> web.Application:
    """An aiohttp application with the three pages; it closes them when it ends."""
    app = web.Application()
    add_pages(app, pages)
    return app


def add_pages(app: web.Application, pages: Pages) -> None:
    """Put the three pages on an application, which closes them when it ends."""

    async def metrics(request: web.Request) -> web.Response:
        accept = ",".join(request.headers.getall(hdrs.ACCEPT, ()))
        return _response(await pages.metrics_response(accept))

    async def healthz(_: web.Request) -> web.Response:
        return _response(pages.healthz())

    async def readyz(_: web.Request) -> web.Response:
        return _response(pages.readyz())

    async def close(_: web.Application) -> None:
        pages.close()

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.on_cleanup.append(close)


def ssl_context(options: WebOptions) -> ssl.SSLContext | None:
    """TLS as the options want it, None for none; raises ``ValueError`` for unusable files."""
    if options.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    except OSError as error:
        raise ValueError(f"web.tls_certificate {options.tls_certificate}: {error}") from error
    return context


async def serve(options: WebOptions, app: web.Application) -> web.AppRunner:
    """Serve ``app``; ``await runner.cleanup()`` ends it. ``runner.addresses`` has the port."""
    if options.users:
        auth = BasicAuth(options.users)
        app.middlewares.insert(0, auth)
        app.on_cleanup.append(auth.close)
    context = ssl_context(options)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, options.host, options.port, ssl_context=context).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
