"""Derives the options of the clients of Kafka and Redis from the settings, and checks them."""

from __future__ import annotations

from collections.abc import Callable

from stream_metrics.cli.options import web_options
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.options import client_options
from stream_metrics.clients.secrets import read_secret
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.layout import Identity
from stream_metrics.live.redis.connect import RedisOptions, make_client
from stream_metrics.live.web import ssl_context


def redis_options(settings: Settings) -> RedisOptions:
    """The Redis adapter's options."""
    redis = settings.redis
    return RedisOptions(
        url=redis.url,
        namespace=settings.namespace,
        username=redis.username,
        password=read_secret(redis.password, redis.password_file, "redis.password_file"),
        cluster=redis.cluster,
        sentinels=redis.sentinels,
        sentinel_service=redis.sentinel_service,
        sentinel_username=redis.sentinel_username,
        sentinel_password=read_secret(
            redis.sentinel_password, redis.sentinel_password_file, "redis.sentinel_password_file"
        ),
        socket_timeout_seconds=redis.socket_timeout_seconds,
        connect_timeout_seconds=redis.connect_timeout_seconds,
        ssl_ca_file=redis.ssl_ca_file,
        ssl_certificate_file=redis.ssl_certificate_file,
        ssl_key_file=redis.ssl_key_file,
        ssl_key_password=read_secret(
            redis.ssl_key_password, redis.ssl_key_password_file, "redis.ssl_key_password_file"
        ),
    )


def check_settings(settings: Settings) -> None:
    """Raise ``ValueError`` or ``OSError`` for settings that only the clients can check."""
    ssl_context(web_options(settings))
    make_client(redis_options(settings))
    client_options(settings.kafka)
    settings.notify.address()


def check_worker_settings(settings: Settings) -> None:
    """Call ``check_settings``; also raise ``ValueError`` where a worker would refuse to start."""
    check_settings(settings)
    settings.state.key()
    if missing := settings.state.missing_key():
        raise ValueError(missing)


def partitioner(ours: Identity) -> Callable[[bytes], int]:
    """A function that returns the partition to which Kafka's default partitioner assigns a key."""
    count = max(ours.partition_counts.values())
    return lambda key: PARTITIONERS["murmur2"](key, count)
