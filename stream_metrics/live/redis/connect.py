"""Creates stores from options: for a single server, a master behind Sentinel, or a Cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from stream_metrics.clients.tls import CertificateFiles, client_context
from stream_metrics.live.redis.connections import use_own_connections
from stream_metrics.live.redis.script import Client
from stream_metrics.live.redis.store import Closer, RedisStore

SENTINEL_PORT: Final = 26_379

# Ignored in a URL when Sentinel says where the master is.
_ADDRESS: Final = ("host", "port", "path")


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Address and credentials of Redis; the names are those of the settings.

    ``url`` is ``redis://``, ``rediss://`` (TLS, verified) or ``unix://``; with Sentinel only its
    scheme and database count, in a Cluster it is the first node. ``sentinels`` are ``host:port``.
    ``repr`` omits secrets.
    """

    url: str = field(default="redis://localhost:6379/0", repr=False)
    namespace: str = "stream-metrics"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    cluster: bool = False
    sentinels: tuple[str, ...] = ()
    sentinel_service: str = "mymaster"
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    socket_timeout_seconds: float = 5.0
    connect_timeout_seconds: float = 5.0
    ssl_ca_file: Path | None = None
    ssl_certificate_file: Path | None = None
    ssl_key_file: Path | None = None
    ssl_key_password: str | None = field(default=None, repr=False)


def connect(options: RedisOptions) -> RedisStore:
    """A store, which connects on its first call; raises ``ValueError`` for conflicting options."""
    client, closers = make_client(options)
    return RedisStore(client, options.namespace, closers)


def make_client(options: RedisOptions) -> tuple[Client, list[Closer]]:
    """A client that does not retry, and functions to close after it."""
    client, closers = _make_client(options)
    use_own_connections(client)
    return client, closers


def _make_client(options: RedisOptions) -> tuple[Client, list[Closer]]:
    address = _address(options)
    common = _common(options)
    if options.cluster:
        return RedisCluster(**address, **common), []
    if options.sentinels:
        place = {name: address.pop(name) for name in _ADDRESS if name in address}
        if "path" in place:
            raise ValueError("Sentinel leads to hosts and ports, not to a Unix socket")
        sentinel = _sentinel(options, address, common)
        return sentinel.master_for(options.sentinel_service, **address), [sentinel.aclose]
    if "path" in address:
        address["unix_socket_path"] = address.pop("path")
    return Redis(**address, **common), []


def _address(options: RedisOptions) -> dict[str, Any]:
    """Keyword arguments of the client from the URL, the credentials and the certificates."""
    address = _parsed(options.url)
    tls = address.pop("connection_class", None) is SSLConnection
    files = {
        "ssl_ca_certs": options.ssl_ca_file,
        "ssl_certfile": options.ssl_certificate_file,
        "ssl_keyfile": options.ssl_key_file,
    }
    given = {name: str(path) for name, path in files.items() if path is not None}
    if given and not tls:
        raise ValueError("certificates need a `redis.url` that begins with rediss://")
    if options.cluster and options.sentinels:
        raise ValueError("a Redis Cluster has no Sentinels; configure only one of the two")
    if options.cluster and "path" in address:
        raise ValueError("a Redis Cluster needs hosts and ports, not a Unix socket")
    if options.cluster and address.get("db"):
        raise ValueError("a Redis Cluster has only database 0")
    if tls:
        _check_files(options)
        address |= {"ssl": True, **given}
        if options.ssl_key_password is not None:
            address["ssl_password"] = options.ssl_key_password
    if options.username is not None:
        address["username"] = options.username
    if options.password is not None:
        address["password"] = options.password
    return address


def _parsed(url: str) -> dict[str, Any]:
    try:
        return dict(parse_url(url))
    except (ValueError, RedisError):  # the error may quote a password with a '/' or '#' in it
        raise ValueError(
            "`redis.url` is not valid; write redis://host:port/0, rediss://host:port/0 or "
            "unix:///path, and the password percent-encoded or in `redis.password`"
        ) from None


def _check_files(options: RedisOptions) -> None:
    """Raise ``ValueError`` for files that would make every connection fail."""
    context = client_context("redis.ssl_ca_file", options.ssl_ca_file)
    CertificateFiles(
        ("redis.ssl_certificate_file", "redis.ssl_key_file", "redis.ssl_key_password"),
        options.ssl_certificate_file,
        options.ssl_key_file,
        options.ssl_key_password,
    ).load(context)


def _common(options: RedisOptions) -> dict[str, Any]:
    """Options of all connections: no retries, which would hide problems from ``/readyz``, and
    RESP2, which needs no handshake."""
    return {
        "socket_timeout": options.socket_timeout_seconds,
        "socket_connect_timeout": options.connect_timeout_seconds,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def _sentinel(options: RedisOptions, address: dict[str, Any], common: dict[str, Any]) -> Sentinel:
    own: dict[str, Any] = {"username": options.sentinel_username}
    own["password"] = options.sentinel_password
    tls = {name: value for name, value in address.items() if name.startswith("ssl")}
    kwargs = {name: value for name, value in (own | tls).items() if value is not None}
    hosts = list(_hosts(options.sentinels))
    sentinel: Sentinel = Sentinel(  # type: ignore[no-untyped-call]
        hosts, sentinel_kwargs={**common, **kwargs}, **common
    )
    return sentinel


def _hosts(sentinels: Iterable[str]) -> Iterable[tuple[str, int]]:
    for sentinel in sentinels:
        place = urlsplit(f"//{sentinel}")
        if not place.hostname:
            raise ValueError(f"{sentinel!r} is not the host:port of a Sentinel")
        yield place.hostname, place.port or SENTINEL_PORT
