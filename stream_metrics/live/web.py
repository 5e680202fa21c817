"""The worker's pages: ``/metrics``, ``/healthz``, ``/readyz``.

``Pages`` knows no web framework: each page is a status, a content type and a body, so that Faust's
web server and the demo's serve the same ones. ``make_app`` and ``serve`` put them on plain aiohttp.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from stream_metrics.clients.tls import CertificateFiles
from stream_metrics.live.auth import AUTHENTICATED, BasicAuth, check_users
from stream_metrics.live.health import Health
from stream_metrics.live.hosts import HostNames
from stream_metrics.live.prometheus.windows import WindowCollector

_JSON: Final = "application/json; charset=utf-8"
_EOF: Final = b"# EOF\n"

Page = tuple[int, str, bytes]


class Pages:
    """The content of the pages.

    ``windows`` is rendered in addition to ``registry`` and must not be registered there. Rendering
    runs in a thread, so that scrapes do not block the event loop; ``close`` stops the thread.
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

    def healthz(self, *, reasons: bool = True) -> Page:
        """Whether the worker is alive; why not, if ``reasons``."""
        failures = self.health.failures()
        return _health_response("alive", not failures, failures if reasons else {})

    def readyz(self, *, reasons: bool = True) -> Page:
        """Whether the worker reads and writes, and for which generation of state; if ``reasons``,
        also why not, and what is held."""
        if not reasons:
            return _health_response("ready", self.health.ready, {})
        number, about = self.health.generation, dict[str, object]()
        if number:
            state = "building" if self.health.building else "live"
            about["generation"] = {"number": number, "state": state}
        return _health_response("ready", self.health.ready, self.health.unready_reasons(), about)

    def close(self) -> None:
        """Stop the rendering thread."""
        self._thread.shutdown(wait=False)


def _health_response(
    name: str, good: bool, reasons: Mapping[str, str], about: Mapping[str, object] | None = None
) -> Page:
    """Status 200 if ``good``, 503 otherwise, with the reasons and details."""
    details = dict(about or {})
    if reasons:
        details["reasons"] = dict(reasons)
    return 200 if good else 503, _JSON, json.dumps({name: good, **details}).encode()


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Where the pages are served and who may see them; raises ``ValueError`` for invalid users.

    ``users``: names and the hashes of their passwords, each from ``auth.hash_password``. Without
    users everyone may see them, but only under the host names that ``hosts.HostNames`` allows.
    """

    host: str = "127.0.0.1"
    port: int = 9464
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed_hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_users(self.users)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the pages."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def url(self) -> str:
        """The URL of the page, with this machine's name if it listens on all interfaces.

        >>> WebOptions(host="::1", port=9465).url
        'http://[::1]:9465/'
        """
        host = socket.gethostname() if self.host in ("", "0.0.0.0", "::") else self.host  # noqa: S104
        scheme = "http" if self.tls_certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def warnings(self) -> list[str]:
        """Warnings about what the options expose to others."""
        if self.loopback:
            return []
        if not self.users:
            return [
                f"anyone who can reach {self.host}, port {self.port}, can see the pages; "
                "set `web.users` or `web.users_file`, or restrict access in the network"
            ]
        if self.tls_certificate is None:
            return ["passwords of `web.users` are sent over the network unencrypted; set up TLS"]
        return []


def _response(page: Page) -> web.Response:
    status, content_type, body = page
    headers = {
        hdrs.CONTENT_TYPE: content_type,
        hdrs.CACHE_CONTROL: "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(status=status, body=body, headers=headers)


def make_app(pages: Pages) -> web.Application:
    """An aiohttp application with the three pages, which it closes on cleanup."""
    app = web.Application()
    add_pages(app, pages)
    return app


def add_pages(app: web.Application, pages: Pages) -> None:
    """Add the three pages to an application, which closes them on cleanup."""

    async def metrics(request: web.Request) -> web.Response:
        accept = ",".join(request.headers.getall(hdrs.ACCEPT, ()))
        return _response(await pages.metrics_response(accept))

    async def healthz(_: web.Request) -> web.Response:
        return _response(pages.healthz(reasons=AUTHENTICATED.get()))

    async def readyz(_: web.Request) -> web.Response:
        return _response(pages.readyz(reasons=AUTHENTICATED.get()))

    async def close(_: web.Application) -> None:
        pages.close()

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.on_cleanup.append(close)


def ssl_context(options: WebOptions) -> ssl.SSLContext | None:
    """The TLS context, None without TLS; raises ``ValueError`` for unusable files."""
    own = CertificateFiles(
        ("web.tls_certificate", "web.tls_key", "web.tls_key_password"),
        options.tls_certificate,
        options.tls_key,
        options.tls_key_password,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load(context)
    return None if options.tls_certificate is None else context


def access_control(options: WebOptions) -> BasicAuth | HostNames:
    """The middleware that restricts access: by user, or without users by host name."""
    if options.users:
        return BasicAuth(options.users)
    return HostNames([options.host, *options.allowed_hosts])


def guard(options: WebOptions, app: web.Application) -> ssl.SSLContext | None:
    """Restrict access to ``app``; the TLS context, None without TLS.

    Raises ``ValueError`` for unusable files.
    """
    middleware = access_control(options)
    app.middlewares.insert(0, middleware)
    if isinstance(middleware, BasicAuth):
        app.on_cleanup.append(middleware.close)
    return ssl_context(options)


async def serve(options: WebOptions, app: web.Application) -> web.AppRunner:
    """Serve ``app`` until ``await runner.cleanup()``; ``runner.addresses`` has the port."""
    context = guard(options, app)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, options.host, options.port, ssl_context=context).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
