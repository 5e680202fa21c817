"""``stream-metrics read``: the report of a replay, and each conversation of its input, as pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from aiohttp import hdrs, web
from msgspec import structs

from stream_metrics.cli.common import ConfigOption, UsageError, load_settings
from stream_metrics.cli.replay_options import conversation_link, replay_options
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.core.events.record import Record
from stream_metrics.lab.reports.html.markup import POLICY
from stream_metrics.lab.reports.html.report import report_page
from stream_metrics.lab.reports.run_directory import read_report
from stream_metrics.lab.sources.files import StoredRecord, read_again
from stream_metrics.lab.sources.unchanged import (
    FileState,
    InputChanged,
    InputError,
    InputFile,
    open_known,
)
from stream_metrics.live.memory import MemoryConversationRecords
from stream_metrics.live.page.conversation_html import Links, Site
from stream_metrics.live.page.conversation_server import ConversationServer
from stream_metrics.live.page.conversations import ConversationPages, NotThere
from stream_metrics.live.page.server import HEADERS, add_assets
from stream_metrics.live.ports import Arrived, ConversationRecords
from stream_metrics.live.web import WebOptions, serve

MOST_RECORDS: Final = 2_000_000
RUN: Final = "run.json"
_ENGINE: Final = ("dedup", "metrics", "limits", "otlp", "labels")
"""The tables of settings that a conversation's figures depend on."""


def read(
    directory: Annotated[Path, typer.Argument(help="Output directory of a replay.")] = Path("out"),
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port on localhost; 0 picks a free one.")
    ] = 9464,
    texts: Annotated[
        bool,
        typer.Option(
            "--texts/--no-texts", help="Show queries, titles, questions and answers, or leave out."
        ),
    ] = True,
    config: ConfigOption = None,
) -> None:
    """Serve the report of a replay, and each conversation of its input, on a local page.

    A conversation is shown with its searches and results, what repeats what, labels, and what was
    refused. Its events are read from the input of the replay, which must still be there. Give the
    settings of the replay. Ctrl-C ends it.
    """
    settings = load_settings(config, connects=False)
    report, pages, missing = pages_of(directory, settings, texts=texts)
    if missing is not None:
        typer.echo(f"warning: no conversation can be shown: {missing}", err=True)
    asyncio.run(_serve(port, report, pages))


def pages_of(
    directory: Path, settings: Settings, *, texts: bool = True
) -> tuple[str, ConversationPages, str | None]:
    """The report in a directory as HTML, the pages of its conversations, and why there are none.

    Raises ``UsageError`` for other settings than those of the report, and ``InputError``.
    """
    report = read_report(directory)
    if report.get("aggregate") is None:
        raise UsageError(f"{directory}: no report of a replay; run `stream-metrics replay` first")
    options, shown = replay_options(settings)
    _check_settings(report.get("config") or {}, json.loads(json.dumps(shown)))
    records, missing = InputRecords(options.config.limits), None
    try:
        records.add(_input(directory, settings))
    except InputError as error:
        missing = str(error)

    def source() -> ConversationRecords:
        if missing is not None:
            raise NotThere(missing)
        return records

    site = Site("Report", texts, conversation_link(settings))
    pages = ConversationPages(source, lambda: options.config, site)
    return report_page(directory, report, link=Links.conversation), pages, missing


class InputRecords(MemoryConversationRecords):
    """The records of an input; those of plain files are read again when they are needed."""

    def _kept(self, record: Record) -> Record:
        if len(self._records) >= MOST_RECORDS:
            raise InputError(f"the input has more than {MOST_RECORDS:,} records")
        return structs.replace(record, value=None) if isinstance(record, StoredRecord) else record

    def _arrived(self, place: int) -> Arrived:
        record = self._records[place]
        if not isinstance(record, StoredRecord):
            return Arrived(place, record)
        assert record.file is not None
        try:
            with open_known(record.path, record.file) as file:
                again = read_again(file.fileno(), record.start, record.length)
        except (OSError, InputChanged):
            again = None
        if again is None:
            raise NotThere(f"the input {record.path} has changed since it was read")
        return Arrived(place, again)


def _check_settings(reported: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` if figures would differ from those of the report."""
    different = [
        f"{table}.{name}"
        for table in _ENGINE
        for name in sorted({*reported.get(table, {}), *given[table]})
        if reported.get(table, {}).get(name) != given[table].get(name)
    ]
    if different:
        raise UsageError(
            f"the report was made with other settings than these: {', '.join(different)}. Give "
            "those of the replay with --config, or replay the input again"
        )


def _input(directory: Path, settings: Settings) -> Iterator[Record]:
    """The records of the input of the replay in a directory.

    Raises ``InputError`` if it is not there any more, or has changed.
    """
    try:
        run = json.loads((directory / RUN).read_bytes())
        known = [(path, FileState(*state)) for path, state in run["input"] or ()]
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"{directory / RUN} does not say what was replayed") from None
    if not known:
        raise InputError("the input was no file, so that it cannot be read again")
    for path, state in known:
        found = InputFile.at(path).state
        if found is None:
            raise InputError(f"the input {path} is not there any more")
        if (found.size, found.ends) != (state.size, state.ends):
            raise InputError(f"the input {path} has changed since the replay")
    yield from Sources([path for path, _ in known], settings, "earliest", "end").records()


async def _serve(port: int, report: str, pages: ConversationPages) -> None:
    app = web.Application()
    add_assets(app)
    ConversationServer(pages).add_to(app)

    async def home(_: web.Request) -> web.Response:
        headers = {**HEADERS, "Content-Security-Policy": POLICY, hdrs.CACHE_CONTROL: "no-store"}
        return web.Response(text=report, content_type="text/html", headers=headers)

    app.router.add_get("/", home)
    try:
        runner = await serve(WebOptions(port=port), app)
    except OSError as error:
        raise UsageError(
            f"port {port} on localhost is in use ({error.strerror}). Choose another with --port"
        ) from error
    try:
        typer.echo(f"Page: http://localhost:{runner.addresses[0][1]}/   Ctrl-C ends it.")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
