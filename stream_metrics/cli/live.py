"""Commands that look at a live system: ``check``, ``export``."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_metrics.cli.common import (
    BuildOption,
    ConfigOption,
    Finding,
    FormatOption,
    NowOption,
    OutOption,
    TurnScopeOption,
    UsageError,
    make_directory,
    parse_time,
    printable,
)
from stream_metrics.cli.options import find_state, identity, settings_for_state, web_options
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.setting_files import UnreadableFile
from stream_metrics.core.compiled import ENGINE, slow
from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.lab.reports.files import ROWS, write_json, write_lines
from stream_metrics.lab.reports.sorted_rows import SortedRows
from stream_metrics.live.layout import Identity, UnreadableLayout
from stream_metrics.live.ports import StateStore
from stream_metrics.live.readers.export import NowTooEarly, Replaced, export_windows, rows_of
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
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Check settings, Kafka, Redis and the stored state. Exit code 2 if a worker would fail.

    Reads only. Whether the topics still reach back as far as the state needs is checked by the
    workers themselves when they start.
    """
    findings = asyncio.run(_check(place_of(config, data), keys=topics))
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


async def _check(place: Place, *, keys: bool) -> list[Finding]:
    settings = place.settings
    findings = [_check_source(settings), _check_engine(), *_check_digest_key(settings)]
    web = web_options(settings)
    findings += [Finding("web", "warning", warning) for warning in web.warnings()]
    checked = await place.check(keys=keys)
    findings += checked.findings
    try:
        with place.errors():
            async with place.store() as store:
                findings += await _check_state(settings, store, checked.counts)
    except UnreadableFile:
        pass  # the digest key, which is reported already
    except UsageError as error:
        if checked.readable:  # else it is reported already
            findings.append(Finding("state", "error", str(error.__cause__)))
    return [replace(found, message=place.told(found.message)) for found in findings]


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


def export(
    out: OutOption = Path("out"),
    now: NowOption = None,
    turn_scope: TurnScopeOption = None,
    build: BuildOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Write conversations.jsonl and windows.json from the live state."""
    place = place_of(config, data)
    settings = place.settings
    scope = turn_scope or settings.metrics.turn_scope
    now_us = None if now is None else parse_time("--now", now)
    try:
        with place.errors():
            written, beyond = asyncio.run(_export(place, scope, now_us, out, build=build))
    except (NowTooEarly, Replaced, UnknownSchema) as error:
        raise UsageError(str(error)) from error
    console = Console(stderr=True)
    console.print(f"{written:,} rows written to {out}")
    if beyond.turns:
        console.print(beyond.text(), style="yellow", highlight=False)


async def _export(
    place: Place, scope: str, now_us: int | None, out: Path, *, build: bool
) -> tuple[int, BeyondLimit]:
    """Write the files in bounded memory; returns the number of rows, and what is not in them."""
    async with place.store() as store:
        settings, state, _ = await find_state(store, place.settings, build=build)
        engine = settings.engine_config()
        found = await export_windows(state, settings.metrics.window_specs(), engine.dimension)
        windows = found.windows_document(now_us)
        if not found.windows:
            raise place.no_state()
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
