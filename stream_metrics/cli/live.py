"""Commands that look at a live system: ``check``, ``export``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_metrics.cli.check_bridge import check_bridge
from stream_metrics.cli.common import (
    BuildOption,
    ConfigOption,
    Finding,
    FormatOption,
    NowOption,
    OutOption,
    TurnScopeOption,
    UsageError,
    load_settings,
    make_directory,
    parse_time,
    printable,
)
from stream_metrics.cli.kafka import cause
from stream_metrics.cli.keys import check_keys
from stream_metrics.cli.options import find_state, identity, settings_for_state, web_options
from stream_metrics.cli.redis import open_store, redis_errors
from stream_metrics.cli.settings import Settings, mask_url
from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.rights import (
    Right,
    missing_rights,
    rights_error,
    worker_rights,
)
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import partition_counts, topic_configs
from stream_metrics.clients.setting_files import UnreadableFile
from stream_metrics.core.compiled import ENGINE, slow
from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.lab.reports.files import ROWS, write_json, write_lines
from stream_metrics.lab.reports.sorted_rows import SortedRows
from stream_metrics.live.kafka.topic_config import topic_config_problems
from stream_metrics.live.layout import Identity, UnreadableLayout
from stream_metrics.live.ports import StateStore, StoreRefused, StoreUnavailable
from stream_metrics.live.readers.export import NowTooEarly, Replaced, export_windows, rows_of
from stream_metrics.live.redis.check import check as check_redis
from stream_metrics.live.redis.check import max_memory_ratio, memory_bytes
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.generations import (
    generation_to_join,
    matching_generations,
)
from stream_metrics.live.worker.ownership.identity import OtherIdentity, other_counts
from stream_metrics.live.worker.ownership.stored_state import (
    build_message,
    inspect_state,
    unfinished_message,
)

KAFKA_WITHIN_SECONDS = 15


def check(
    topics: Annotated[
        bool,
        typer.Option(
            "--topics",
            help="Also sample the latest records of each input topic and say which partitioner its "
            "producers use. Exit code 2 if the topics differ.",
        ),
    ] = False,
    format_: FormatOption = "table",
    config: ConfigOption = None,
) -> None:
    """Check settings, Kafka, Redis and the stored state. Exit code 2 if a worker would fail.

    Reads only. Whether the topics still reach back as far as the state needs is checked by the
    workers themselves when they start.
    """
    settings = load_settings(config)
    findings = asyncio.run(_check(settings, keys=topics))
    if format_ == "json":
        for finding in findings:
            typer.echo(json.dumps(asdict(finding)))
    else:
        colours = {"ok": "green", "warning": "yellow", "error": "red"}
        table = Table(box=None, show_header=False, pad_edge=False)
        for finding in findings:
            state = Text(finding.state, style=colours[finding.state])
            table.add_row(Text(finding.what), state, Text(printable(finding.message)))
        Console().print(table)
    if any(finding.state == "error" for finding in findings):
        raise typer.Exit(2)


async def _check(settings: Settings, *, keys: bool) -> list[Finding]:
    findings = [_check_source(settings), _check_engine(), *_check_digest_key(settings)]
    web = web_options(settings)
    findings += [Finding("web", "warning", warning) for warning in web.warnings()]
    counts: dict[str, int] = {}
    findings += await _check_kafka(settings, counts)
    if keys and counts:
        findings += await check_keys(settings.kafka, counts)
    if counts:
        findings += await check_bridge(settings)
    where = mask_url(settings.redis.url)
    async with open_store(settings) as store:
        problems = await check_redis(store)
        findings += [
            Finding("redis", "error" if problem.fatal else "warning", f"{where}: {problem.message}")
            for problem in problems
        ]
        if not any(problem.fatal for problem in problems):
            findings.append(await _check_room(store, f"{where}, namespace {settings.namespace}"))
        try:
            findings += await _check_state(settings, store, counts)
        except UnreadableFile:
            pass  # the digest key, which is reported already
        except (StoreUnavailable, StoreRefused) as error:
            if not any(problem.fatal for problem in problems):  # else it is reported already
                findings.append(Finding("state", "error", str(error)))
    return findings


def _check_engine() -> Finding:
    """Which engine this installation runs."""
    why = slow()
    return (
        Finding("engine", "warning", f"{ENGINE}: {why}") if why else Finding("engine", "ok", ENGINE)
    )


def _check_source(settings: Settings) -> Finding:
    """Whether anything is set; the settings themselves are valid."""
    if settings.model_fields_set:
        return Finding("settings", "ok", "valid")
    defaults = "the built-in ones: no file and no variable STREAM_METRICS_… sets anything"
    return Finding("settings", "warning", f"{defaults}. Check with the settings of the workers")


async def _check_room(store: RedisStore, where: str) -> Finding:
    """Whether Redis has room for writes."""
    try:
        used, limit = await memory_bytes(store)
        ratio = await max_memory_ratio(store)
    except StoreUnavailable as error:
        return Finding("redis", "error", str(error))
    if ratio < 1:
        return Finding("redis", "ok", where)
    full = f"uses {used:,} bytes, and maxmemory is {limit:,}: it refuses writes, so workers wait"
    return Finding("redis", "error", f"{where}: {full}. Raise `maxmemory`")


def _check_digest_key(settings: Settings) -> list[Finding]:
    try:
        key, missing = settings.state.key(), settings.state.missing_key()
    except UnreadableFile as error:
        return [Finding("digest key", "error", str(error))]
    if missing:
        return [Finding("digest key", "error", missing)]
    if not key:
        return [Finding("digest key", "warning", "empty, which state.allow_empty_key permits")]
    return []


async def _check_state(
    settings: Settings, store: StateStore, counts: dict[str, int]
) -> list[Finding]:
    """Findings on the stored state, as workers would report them; raises the store's errors."""
    topics = {topic: counts[topic] for topic in settings.kafka.state_topics if topic in counts}
    known = len(topics) == len(set(settings.kafka.state_topics)) and len({*topics.values()}) == 1

    def ours(built: Identity) -> Identity:
        return identity(settings_for_state(settings, built), topics if known else {})

    try:
        layout = await store.layout()
    except UnreadableLayout as unreadable:
        return [Finding("state", "error", str(unreadable))]
    more = []
    if told := await build_message(store, layout, matching_generations(layout, ours)):
        more.append(Finding("build", "ok", told))
    if told := unfinished_message(layout):
        more.append(Finding("build", "warning", told))
    try:
        generation = generation_to_join(layout, ours)
    except OtherIdentity as other:
        return [Finding("state", "error", str(other)), *more]
    if generation is None:
        return [
            Finding("state", "ok", "none yet"),
            Finding("fingerprint", "ok", settings.fingerprint()),
        ]
    settings = settings_for_state(settings, generation.identity)
    found = await inspect_state(store.generation(generation), generation)
    findings = [Finding("state", "error", why) for why in found.damaged]
    if known and (why := other_counts(generation.identity, topics)):
        findings.append(Finding("state", "error", why))
    if found.wiping:
        numbers = ", ".join(map(str, found.wiping))
        why = (
            f"wiping of partitions {numbers} was interrupted. Workers complete it, and "
            "kafka.on_offset_gap decides whether they rebuild these partitions"
        )
        findings.append(Finding("state", "warning", why))
    if not findings:
        schema, number = generation.identity.schema_version, settings.dedup.in_force().number
        force = "in force" if generation.in_force else "being built"
        held = f"{len(found.partitions)} partitions, by schema {schema}, dedup.tables {number}"
        findings += [
            Finding("state", "ok", f"generation {generation.number}, {force}, {held}"),
            Finding("fingerprint", "ok", settings.fingerprint()),
        ]
    return findings + more


async def _check_kafka(settings: Settings, counts: dict[str, int]) -> list[Finding]:
    """Findings on Kafka and its topics; adds the topics' partition counts to ``counts``."""
    kafka = settings.kafka
    rights = worker_rights(kafka)
    try:
        async with asyncio.timeout(KAFKA_WITHIN_SECONDS):
            missing = await missing_rights(kafka, rights)
            hidden = {right.name for right in missing if right.kind == "topic"}
            topics = dict.fromkeys(right.name for right in rights if right.kind == "topic")
            seen = [topic for topic in topics if topic not in hidden]
            counts |= await partition_counts(kafka, seen)
            suitable = await _check_internal(kafka, counts)
    except (KafkaRefused, KafkaError, OSError, TimeoutError) as error:
        why = await cause(kafka, error)
        return [Finding("kafka", "error", f"{kafka.bootstrap_servers}: {why}")]
    findings = [Finding("kafka", "ok", kafka.bootstrap_servers)]
    findings += [Finding("kafka", "error", rights_error(kafka, [right])) for right in missing]
    for topic in seen:
        if topic in counts:
            findings.append(Finding(f"topic {topic}", "ok", f"{counts[topic]} partitions"))
        else:
            findings.append(Finding(f"topic {topic}", "error", _absent(kafka, topic)))
    findings += suitable
    if len({counts[topic] for topic in kafka.state_topics if topic in counts}) > 1:
        findings.append(
            Finding("partitions", "error", "input topics must have equal partition counts")
        )
    return findings


def _absent(kafka: KafkaSettings, topic: str) -> str:
    if topic == kafka.output_topic:
        return "does not exist; create it, preferably with cleanup.policy=compact"
    if topic in kafka.topics or topic == kafka.repartition_topic:
        return "does not exist; create it"
    return "does not exist, so workers wait at the first bad record; create it"


async def _check_internal(kafka: KafkaSettings, counts: Mapping[str, int]) -> list[Finding]:
    """Findings on the internal topic's configuration, if any; raises aiokafka's errors."""
    internal = kafka.repartition_topic
    if internal is None or internal not in counts:
        return []
    inputs = [topic for topic in kafka.topics if topic in counts]
    try:
        configs = await topic_configs(kafka, [*inputs, internal])
    except TopicAuthorizationFailedError:
        right = Right("DESCRIBE_CONFIGS", "topic", ", ".join([*inputs, internal]))
        why = f"its configuration could not be checked. {rights_error(kafka, [right])}"
        return [Finding(f"topic {internal}", "warning", why)]
    problems = topic_config_problems(configs[internal], [configs[topic] for topic in inputs])
    return [Finding(f"topic {internal}", "error", problem) for problem in problems]


def export(
    out: OutOption = Path("out"),
    now: NowOption = None,
    turn_scope: TurnScopeOption = None,
    build: BuildOption = False,
    config: ConfigOption = None,
) -> None:
    """Write conversations.jsonl and windows.json from the live state in Redis."""
    settings = load_settings(config)
    scope = turn_scope or settings.metrics.turn_scope
    now_us = None if now is None else parse_time("--now", now)
    try:
        with redis_errors(settings):
            written, beyond = asyncio.run(_export(settings, scope, now_us, out, build=build))
    except (NowTooEarly, Replaced, UnknownSchema) as error:
        raise UsageError(str(error)) from error
    console = Console(stderr=True)
    console.print(f"{written:,} rows written to {out}")
    if beyond.turns:
        console.print(beyond.text(), style="yellow", highlight=False)


async def _export(
    settings: Settings, scope: str, now_us: int | None, out: Path, *, build: bool
) -> tuple[int, BeyondLimit]:
    """Write the files in bounded memory; returns the number of rows, and what is not in them."""
    async with open_store(settings) as store:
        settings, state, _ = await find_state(store, settings, build=build)
        engine = settings.engine_config()
        found = await export_windows(state, settings.metrics.window_specs(), engine.dimension)
        windows = found.windows_document(now_us)
        if not found.windows:
            raise UsageError(
                f"namespace {settings.namespace!r} has no state. Use the worker's redis.namespace"
            )
        make_directory(out)
        cut: dict[tuple[str, int], dict[str, Any]] = {}
        with SortedRows(out) as rows:
            async for partition, read in rows_of(state, engine, scope, found.states):
                rows.add(partition, read)
                for row in read:
                    turn = (row["conversation_id"], row["turn"])
                    cut.pop(turn, None)
                    if row["over_limit"]:
                        cut[turn] = {name: row[name] for name in ("over_limit", "beyond_limit")}
            written = write_lines(out / ROWS, rows.lines())
        write_json(out, "windows.json", windows)
        return written, BeyondLimit.of_rows(cut.values())
