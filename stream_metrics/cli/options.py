"""Derives the options of the web pages and of the state from the settings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import typer

from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.secrets import read_secret
from stream_metrics.live.auth import read_users
from stream_metrics.live.layout import Generation, Identity
from stream_metrics.live.ports import StateStore
from stream_metrics.live.web import WebOptions
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


def kafka_settings_for(kafka: KafkaSettings, generation: Generation) -> KafkaSettings:
    """The Kafka settings of a generation: its own group, and for every generation but the first one
    the start of the topics as the initial position."""
    update: dict[str, str] = {"group_id": generation.group}
    if generation.number > 1:
        update["start"] = "earliest"
    return kafka.model_copy(update=update)
