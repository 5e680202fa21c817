"""Derives the options of the clients, of the web pages and of the state from the settings."""

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
from stream_metrics.live.worker.options import PartitionOptions
from stream_metrics.live.worker.ownership.generations import (
    generation_to_join,
    matching_generations,
)
from stream_metrics.live.worker.ownership.identity import (
    OtherIdentity,
    check_identity,
    kept_settings,
)


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


def web_options(settings: Settings, port: int | None = None) -> WebOptions:
    """The options of the web pages; ``port``, if given, overrides ``web.port``."""
    web = settings.web
    users = {user: stored.get_secret_value() for user, stored in web.users.items()}
    if web.users_file is not None:
        users = {**read_users(web.users_file), **users}
    return WebOptions(
        web.host,
        web.port if port is None else port,
        web.tls_certificate,
        web.tls_key,
        read_secret(web.tls_key_password, web.tls_key_password_file, "web.tls_key_password_file"),
        users,
        web.allowed_hosts,
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


def settings_for_state(settings: Settings, built: Identity) -> Settings:
    """The settings, with values that are not set taken from those that the state was built with."""
    return settings.with_kept_values(kept_settings(built))


async def find_state(
    store: StateStore, settings: Settings, *, build: bool = False
) -> tuple[Settings, StateStore, int]:
    """Find the state that a command reads: its settings, its store and its number of partitions.

    It is the generation that workers with these settings join, or with ``build`` the one that is
    being built. Commands that only read state do not need to know the topics, which only decide
    between generations that match otherwise. During a build, a note on standard error names the
    generation. Without state, the number of partitions is 0. Raises ``OtherIdentity``.
    """

    def identities(topics: dict[str, int]) -> Callable[[Identity], Identity]:
        return lambda built: identity(settings_for_state(settings, built), topics)

    layout = await store.layout()
    building = layout.building
    if build:
        if building is None:
            raise OtherIdentity("no generation is being built. Leave out --build")
        check_identity(building.identity, identities({})(building.identity))
        generation: Generation | None = building
    elif matching := matching_generations(
        layout, identities(dict.fromkeys(settings.kafka.state_topics, 0))
    ):
        generation = matching[0]
    else:
        generation = generation_to_join(layout, identities({}))
    if generation is None:
        return settings, store, 0
    if building is not None:
        typer.echo(f"note: {_generation_note(generation, building)}", err=True)
    return (
        settings_for_state(settings, generation.identity),
        store.generation(generation),
        generation.identity.count,
    )


def _generation_note(generation: Generation, building: Generation) -> str:
    """A note that says which generation is read while one is being built."""
    if generation is building:
        return (
            f"this is generation {generation.number}, which is being built: its figures are "
            "incomplete until it has caught up"
        )
    return (
        f"this is generation {generation.number}, which is in force. To read generation "
        f"{building.number}, which is being built, use its settings, and --build if they are the "
        "same"
    )


def identity(settings: Settings, counts: dict[str, int]) -> Identity:
    """The identity of state built with these settings; ``counts`` are partitions by topic."""
    return Identity(
        settings.kafka.group_id,
        settings.state.write_schema,
        settings.fingerprint(),
        counts,
        json.dumps(settings.state_settings(), sort_keys=True),
    )


def partition_options(settings: Settings) -> PartitionOptions:
    """The options of state partitions; their identity has no partition counts yet."""
    key_id, engine = settings.key_id(), settings.engine_config()
    return PartitionOptions(
        identity=identity(settings, {}),
        engine=engine,
        key_id=key_id,
        keys={key_id: settings.state.key()},
        windows=settings.metrics.window_specs(loops=engine.rules.tables.loops),
        agents=settings.metrics.agents,
        routes=settings.metrics.routes,
        ttl_ms=settings.state.ttl_ms,
        batch_records=settings.state.batch_records,
        turn_scope=settings.metrics.turn_scope,
        runaway_iterations=settings.alerts.runaway_iterations,
        now_ms=lambda: time.time_ns() // 1_000_000,
    )


def partitioner(ours: Identity) -> Callable[[bytes], int]:
    """A function that returns the partition to which Kafka's default partitioner assigns a key."""
    count = max(ours.partition_counts.values())
    return lambda key: PARTITIONERS["murmur2"](key, count)


def kafka_settings_for(kafka: KafkaSettings, generation: Generation) -> KafkaSettings:
    """The Kafka settings of a generation: its own group, and for every generation but the first one
    the start of the topics as the initial position."""
    update: dict[str, str] = {"group_id": generation.group}
    if generation.number > 1:
        update["start"] = "earliest"
    return kafka.model_copy(update=update)
