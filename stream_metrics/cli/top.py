"""``stream-metrics top``: lists the conversations behind a figure."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterable
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stream_metrics.cli.common import (
    BuildOption,
    ConfigOption,
    FormatOption,
    UsageError,
    day_and_time,
    parse_time,
    printable,
)
from stream_metrics.cli.options import find_state
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.core.engine.config import OTHER
from stream_metrics.live.links import CONVERSATION, fill_template
from stream_metrics.live.ports import PartitionState
from stream_metrics.live.readers.worst import Request, whole
from stream_metrics.live.worst import RANKINGS

WIDE: Final = 90  # columns of a terminal that shows every figure


class By(StrEnum):
    """A ranking."""

    SRR = "srr"
    SRE = "sre"
    WASTED = "wasted"
    REPEATED = "repeated"
    ALL = "all"


_CHOSEN: Final = {
    By.SRR: RANKINGS[:1],
    By.SRE: RANKINGS[1:2],
    By.WASTED: RANKINGS[2:3],
    By.REPEATED: RANKINGS[3:],
    By.ALL: RANKINGS,
}
_TITLES: Final = {
    "highest_srr": "Highest SRR: they find again what they have",
    "lowest_sre": "Lowest SRE: little of what they find is new and good",
    "most_wasted_iterations": "Most wasted iterations: judged, and nothing new was good",
    "most_repeated_searches": "Most repeated searches: they ask again what they have asked",
}


def top(
    window: Annotated[str, typer.Option(help="One of the configured windows.")] = "1h",
    agent: Annotated[
        str | None,
        typer.Option(
            help="Only this agent (or release). [bold]other[/bold] is every agent without "
            "series of its own."
        ),
    ] = None,
    by: Annotated[By, typer.Option(help="What to rank by.")] = By.ALL,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Conversations per ranking.")] = 10,
    pairs: Annotated[
        int, typer.Option(min=0, max=10_000, help="Duplicates shown per conversation.")
    ] = 5,
    min_results: Annotated[
        int,
        typer.Option(
            min=1, help="Leave conversations with fewer results out of the rankings by SRR and SRE."
        ),
    ] = 10,
    now: Annotated[
        str | None,
        typer.Option(
            help="End of the window, in RFC 3339 or Unix microseconds. Default: the latest event "
            "time, but not after the latest record.",
            show_default=False,
        ),
    ] = None,
    format_: FormatOption = "table",
    build: BuildOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """List the conversations with the highest SRR, lowest SRE and most wasted iterations.

    Wasted iterations have their labels, but found no good document that is new. Turns that run
    away, with [bold]alerts.runaway_iterations[/bold] iterations or more, come first.

    Also lists their duplicates: which result repeats which, in which iteration, and by what
    evidence. Reads the live state, one conversation at a time; workers can keep running.
    """
    place = place_of(config, data)
    settings = place.settings
    specs = {spec.name: spec for spec in settings.metrics.window_specs()}
    if window not in specs:
        raise UsageError(f"--window {window!r}: use one of {', '.join(specs)}")
    now_us = None if now is None else parse_time("--now", now)
    with place.errors():
        document = asyncio.run(
            _top(
                place,
                lambda last_us: Request(
                    specs[window],
                    last_us if now_us is None else now_us,
                    agent,
                    limit=limit,
                    min_results=min_results,
                    max_pairs=pairs,
                    runaway_iterations=settings.alerts.runaway_iterations,
                ),
                _CHOSEN[by],
                build=build,
            )
        )
    if format_ == "json":
        typer.echo(json.dumps(document))
        return
    _show(document, settings.metrics.dimension, _CHOSEN[by])


async def _top(
    place: Place, request_at: Any, rankings: tuple[str, ...], *, build: bool
) -> dict[str, Any]:
    async with place.store() as store:
        settings, state, total = await find_state(store, place.settings, build=build)
        states = [await state.describe(number) for number in await state.partitions()]
        last_us = _end_us(states)
        if last_us is None:
            raise place.no_state()
        agents = settings.metrics.agents
        engine, request = settings.engine_config(), request_at(last_us)
        found = await whole(state, engine, agents, request)
        if request.agent is not None and not found.worst.results:
            layout = await store.layout()
            known = layout.chosen(f"{engine.dimension}s", agents, engine.max_names)
            _note_unknown(request.agent, known, place)
        link = partial(fill_template, settings.web.conversation_url, CONVERSATION)
        document = found.document(rankings, link)
        document["partitions"] |= {"total": total, "read_up_to_us": _read_up_to_us(states, total)}
        return document


def _note_unknown(agent: str, known: Collection[str], place: Place) -> None:
    """Print a note on standard error if workers do not know the requested agent."""
    if agent in known or agent == OTHER:
        return
    dimension = place.settings.metrics.dimension
    listed = ", ".join(sorted(map(printable, known))) or "none"
    typer.echo(
        f"note: {place.name} has no {dimension} '{printable(agent)}' with "
        f"series of its own. It has: {listed}.",
        err=True,
    )


def _end_us(states: Collection[PartitionState]) -> int | None:
    """The latest event time, but not after the latest record; now before the first event, and None
    if there is no state.

    Record times never exceed the worker's clock. Without that limit, one producer with a fast clock
    would leave every window empty.
    """
    places = [place for state in states for place in state.positions.values()]
    event_us = max((place.event_time_us for place in places), default=0)
    record_us = max((place.record_time_ms for place in places), default=0) * 1000
    if states and not event_us:
        return time.time_ns() // 1_000
    return (min(event_us, record_us) if record_us else event_us) if states else None


def _read_up_to_us(states: Collection[PartitionState], total: int) -> int | None:
    """The time up to which all partitions had been read, as their workers last said.

    None if a worker did not know it, or has not said anything about one of ``total`` partitions.
    """
    told = [
        state.beat_ms - state.behind_ms
        for state in states
        if state.beat_ms and state.behind_ms is not None
    ]
    return 1_000 * min(told) if told and len(told) == total else None


def _show(document: dict[str, Any], dimension: str, rankings: tuple[str, ...]) -> None:
    console = Console(highlight=False)
    console.print(_heading(document, dimension))
    if cut := document["beyond_limit"]["text"]:
        console.print(Text(printable(cut), style="yellow"))
    if document["runaway_turns"]:
        console.print(Text("\nTurns that run away: very many iterations", style="bold"))
        console.print(Padding(_runaways(document["runaway_turns"], dimension), (0, 0, 0, 2)))
    listed: dict[str, dict[str, Any]] = {}
    for ranking in rankings:
        rows = document[ranking]
        console.print(Text(f"\n{_TITLES[ranking]}", style="bold"))
        if rows:
            table = _ranking(ranking, rows, dimension, wide=console.width >= WIDE)
            console.print(Padding(table, (0, 0, 0, 2)))
        else:
            console.print(Text(f"  {_nothing(document, ranking)}", style="dim"))
        listed |= {row["conversation_id"]: row for row in rows}
    linked = [row for row in listed.values() if row["url"]]
    if linked:
        console.print(Text("\nTheir traces", style="bold"))
    for row in linked:
        console.print(Text(f"  {row['url']}"), soft_wrap=True)
    repeating = [row for row in listed.values() if row["pairs"]]
    if repeating:
        console.print(Text("\nTheir duplicates: which result repeats which", style="bold"))
    for row in repeating:
        console.print(Text(f"  {printable(row['conversation_id'])}", style="cyan"))
        console.print(Padding(_pairs(row), (0, 0, 0, 4)))


def _nothing(document: dict[str, Any], ranking: str) -> str:
    """Why a ranking is empty: no conversation qualifies, or there is too little data."""
    judged, least = document["judged"][ranking], document["min_results"]
    if not document["results"]:
        return "no results in this window"
    if not judged:
        few = {
            "highest_srr": f"{least} results or more",
            "lowest_sre": f"{least} labelled results or more",
            "most_wasted_iterations": "an iteration whose documents are labelled",
            "most_repeated_searches": "a search whose query is known",
        }
        return f"cannot tell: no conversation has {few[ranking]}"
    of = {
        "highest_srr": f"repeats a result, of {judged:,} with {least} results or more",
        "most_wasted_iterations": f"wasted an iteration, of {judged:,} with labelled iterations",
        "most_repeated_searches": f"repeats a search, of {judged:,} with queries",
    }
    return f"no conversation {of[ranking]}"


def _heading(document: dict[str, Any], dimension: str) -> Text:
    name = document[dimension]
    whose = f"all {dimension}s" if name is None else f"{dimension} {printable(name)}"
    conversations = document["conversations"]
    counted = f"{conversations:,} {'conversation' if conversations == 1 else 'conversations'}"
    return Text(
        f"{whose}, window {document['window']}, {day_and_time(document['from_us'])} to "
        f"{day_and_time(document['to_us'])}\n{counted}, "
        f"{document['results']:,} results in {len(document['partitions']['read'])} of "
        f"{document['partitions']['total']} partitions\n{_completeness(document)}"
    )


def _completeness(document: dict[str, Any]) -> str:
    """Up to when the figures are complete, which may be before the end of the window."""
    until_us = document["partitions"]["read_up_to_us"]
    if until_us is None:
        return "it is not known up to when all partitions have been read"
    return f"complete up to {day_and_time(until_us)}; what was written later may be missing"


def _table(names: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _ranking(ranking: str, rows: list[dict[str, Any]], dimension: str, *, wide: bool) -> Table:
    figures = {"results": "results", "duplicates": "duplicates", "iterations": "iterations"}
    figures = figures if wide else {"results": "results"}
    if ranking == "most_repeated_searches":
        figures |= {"searches": "queried_searches", "asked again": "repeated_searches"}
    else:
        figures |= {"wasted": "wasted_iterations"}
    table = _table(("conversation", dimension), ("SRR", "SRE", *figures))
    for row in rows:
        names = (row["conversation_id"], ", ".join(row["agents"]))
        cells = (*map(printable, names), _share(row["srr"]), _share(row["sre"]))
        numbers = {title: f"{row[name]:,}" for title, name in figures.items()}
        numbers["results"] += "+" * row["beyond_limit"]
        table.add_row(*map(Text, (*cells, *numbers.values())))
    return table


def _runaways(turns: list[dict[str, Any]], dimension: str) -> Table:
    table = _table(("conversation", dimension, "turn", "latest"), ("iterations",))
    for one in turns:
        names = (one["conversation_id"], one["agent"])
        latest = day_and_time(1_000 * one["last_ms"])
        cells = (*map(printable, names), one["turn_text"], latest, f"{one['iterations']:,}")
        table.add_row(*map(Text, cells))
    return table


def _pairs(row: dict[str, Any]) -> Table:
    table = _table(("result", "in", "repeats", "of", "evidence", "type"), ())
    turns = len(row["turns"]) > 1
    for pair in row["pairs"]:
        turn = f"turn {pair['turn_text']}, " if turns else ""
        cells = (
            printable(pair["result_id"]),
            f"{turn}iteration {pair['iteration']}",
            printable(pair["first_result_id"]),
            f"iteration {pair['first_iteration']}",
            pair["evidence"],
            pair["entity_type"],
        )
        table.add_row(*map(Text, cells))
    more = row["duplicates"] - len(row["pairs"])
    if more > 0:
        table.add_row(Text(f"{more:,} more", style="dim"))
    return table


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
