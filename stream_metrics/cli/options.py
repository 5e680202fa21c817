"""What the settings make of a worker: options of its clients, of its pages and of its state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import typer

from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.options import client_options
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.secrets import read_secret
from stream_metrics.live.auth import read_users
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.layout import Generation, Identity
from stream_metrics.live.ports import StateStore
from stream_metrics.live.redis.connect import RedisOptions, make_client
from stream_metrics.live.web import WebOptions, ssl_context
from stream_metrics.live.worker.generations import fitting, joined
from stream_metrics.live.worker.identity import OtherIdentity, check_identity, kept_settings
from stream_metrics.live.worker.options import PartitionOptions


def redis_options(settings: Settings) -> RedisOptions:
    """The Redis adapter's options."""
    redis = settings.redis
    return RedisOptions(
        url=redis.url,
        namespace=settings.namespace,
        username=redis.username,
        password=read_secret(redis.password, redis.password_file),
        cluster=redis.cluster,
        sentinels=redis.sentinels,
        sentinel_service=redis.sentinel_service,
        sentinel_username=redis.sentinel_username,
        sentinel_password=read_secret(redis.sentinel_password, redis.sentinel_password_file),
        socket_timeout_seconds=redis.socket_timeout_seconds,
        connect_timeout_seconds=redis.connect_timeout_seconds,
        ssl_ca_file=redis.ssl_ca_file,
        ssl_certificate_file=redis.ssl_certificate_file,
        ssl_key_file=redis.ssl_key_file,
        ssl_key_password=read_secret(redis.ssl_key_password, redis.ssl_key_password_file),
    )


def web_options(settings: Settings, port: int | None = None) -> WebOptions:
    """The pages' options; ``port`` instead of ``web.port``."""
    web = settings.web
    users = {user: stored.get_secret_value() for user, stored in web.users.items()}
    if web.users_file is not None:
        users = {**read_users(web.users_file), **users}
    return WebOptions(
        web.host,
        web.port if port is None else port,
        web.tls_certificate,
        web.tls_key,
        read_secret(web.tls_key_password, web.tls_key_password_file),
        users,
        web.allowed_hosts,
    )


def check_settings(settings: Settings) -> None:
    """Raise ``ValueError`` or ``OSError`` for settings that only the clients can judge."""
    settings.state.key()
    ssl_context(web_options(settings))
    make_client(redis_options(settings))
    client_options(settings.kafka)


def check_worker_settings(settings: Settings) -> None:
    """``check_settings``, and ``ValueError`` for settings that no worker starts with."""
    check_settings(settings)
    if missing := settings.state.missing_key():
        raise ValueError(missing)


def for_state(settings: Settings, built: Identity) -> Settings:
    """The settings for state that was built so: what nobody has set is as it was then."""
    return settings.for_built(kept_settings(built))


async def state_in(
    store: StateStore, settings: Settings, *, build: bool = False
) -> tuple[Settings, StateStore, int]:
    """The settings for the state that a command reads, its store, and how many partitions it has.

    That is the generation that workers with these settings join; ``build`` asks for the one that is
    being built. Commands that only read need not know the topics: these decide only between
    generations that fit otherwise. During a build, standard error names the generation. Where there
    is no state, the store has no partitions. Raises ``OtherIdentity``.
    """

    def over(topics: dict[str, int]) -> Callable[[Identity], Identity]:
        return lambda built: identity(for_state(settings, built), topics)

    layout = await store.layout()
    building = layout.building
    if build:
        if building is None:
            raise OtherIdentity("no generation is being built. Leave out --build")
        check_identity(building.identity, over({})(building.identity))
        found: Generation | None = building
    elif fit := fitting(layout, over(dict.fromkeys(settings.kafka.state_topics, 0))):
        found = fit[0]
    else:
        found = joined(layout, over({}))
    if found is None:
        return settings, store, 0
    if building is not None:
        typer.echo(f"note: {_reading(found, building)}", err=True)
    return for_state(settings, found.identity), store.generation(found), found.identity.count


def _reading(found: Generation, building: Generation) -> str:
    """Which generation is read while one is being built."""
    if found is building:
        return (
            f"this is generation {found.number}, which is being built: its figures are incomplete "
            "until it has caught up"
        )
    return (
        f"this is generation {found.number}, which is in force. To read generation "
        f"{building.number}, which is being built, use its settings, and --build if they are the "
        "same"
    )


def identity(settings: Settings, counts: dict[str, int]) -> Identity:
    """What state built by these settings over these topics is."""
    return Identity(
        settings.kafka.group_id,
        settings.state.write_schema,
        settings.fingerprint(),
        counts,
        json.dumps(settings.of_state(), sort_keys=True),
    )


def partition_options(settings: Settings) -> PartitionOptions:
    """What state partitions are built and worked on with; the identity is yet to get its counts."""
    key_id = settings.key_id()
    return PartitionOptions(
        identity=identity(settings, {}),
        engine=settings.engine_config(),
        key_id=key_id,
        keys={key_id: settings.state.key()},
        windows=settings.metrics.window_specs(),
        agents=settings.metrics.agents,
        routes=settings.metrics.routes,
        ttl_ms=settings.state.ttl_ms,
        batch_records=settings.state.batch_records,
        turn_scope=settings.metrics.turn_scope,
        now_ms=lambda: time.time_ns() // 1_000_000,
    )


def partitioner(ours: Identity) -> Callable[[bytes], int]:
    """Where Kafka's default partitioner puts a key."""
    count = max(ours.partition_counts.values())
    return lambda key: PARTITIONERS["murmur2"](key, count)


def kafka_for(kafka: KafkaSettings, generation: Generation) -> KafkaSettings:
    """How a generation reads: in a group of its own, and from the start of the log if it was built
    beside another one."""
    update: dict[str, str] = {"group_id": generation.group}
    if generation.number > 1:
        update["start"] = "earliest"
    return kafka.model_copy(update=update)
