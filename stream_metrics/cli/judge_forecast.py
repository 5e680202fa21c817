"""``stream-metrics judge --dry-run``: what each day would ask and cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import typer
from rich.console import Console

from stream_metrics.cli.common import Format, stderr_console, text_table
from stream_metrics.cli.judge_sources import sampled_turns
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.times import DAY_US, rfc3339
from stream_metrics.core.judge.budget import PICOS
from stream_metrics.core.judge.cache import GradeCache
from stream_metrics.core.judge.forecast import DayForecast, Forecast
from stream_metrics.core.judge.turns import HELP
from stream_metrics.live.judge.settings import JudgeSettings

WIDTH: Final = 200


def print_forecast(settings: Settings, sources: Sequence[str], since: str, format_: Format) -> None:
    """Print a row a day, and which limits would end a day's sample."""
    judge = settings.judge
    forecast = Forecast(judge.asking, GradeCache(settings.state.key(), judge.cache_grades))
    _, works = sampled_turns(sources, settings, since, "end", judge.rate)
    for work in works:
        forecast.add(work)
    days = [(_date(number), day) for number, day in forecast.days()]
    if format_ == "json":
        typer.echo(json.dumps([_as_json(date, day) for date, day in days]))
        return
    priced = judge.input_price is not None or judge.output_price is not None
    heads = ["day", "conversations", "turns", "documents", "calls", "tokens, about", "at most"]
    heads += ["money, about", "at most "] if priced else []
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    rows = [_row(date, day, priced) for date, day in days]
    console.print(text_table(heads, rows, right=heads[1:]))
    notes = stderr_console()
    notes.print(f"sample: {judge.rate:.2%} of the conversations, as judge.rate says")
    for date, day in days:
        for line in _exceeded(date, day, judge):
            notes.print(line)
    unjudged = {reason: sum(day.unjudged[reason] for _, day in days) for reason in HELP}
    for reason, number in unjudged.items():
        if number:
            notes.print(f"not judged: {number:,} turns, {reason}: {HELP[reason]}", markup=False)


def _date(number: int) -> str:
    return rfc3339(number * DAY_US)[:10]


def _row(date: str, day: DayForecast, priced: bool) -> list[str]:
    counts = (len(day.conversations), day.turns, day.documents, day.calls)
    row = [date, *(f"{n:,}" for n in (*counts, day.likely.tokens, day.most.tokens))]
    return row + [f"{cost.picos / PICOS:,.4f}" for cost in (day.likely, day.most) if priced]


def _exceeded(date: str, day: DayForecast, judge: JudgeSettings) -> list[str]:
    """What would end the day's sample."""
    limits, found = judge.limits, []
    for name, used, limit in (
        ("tokens_per_day", day.likely.tokens, limits.tokens_per_day),
        ("money_per_day", day.likely.picos, limits.picos_per_day),
    ):
        if limit is not None and used > limit:
            fits = judge.rate * limit / used
            found.append(
                f"{date}: judge.{name} would be spent after about {limit / used:.0%} of the "
                f"sample; judge.rate = {fits:.2g} would fit"
            )
    minutes = 24 * 60
    if day.calls > judge.calls_per_minute * minutes:
        found.append(f"{date}: more calls than judge.calls_per_minute allows in a day")
    return found


def _as_json(date: str, day: DayForecast) -> dict[str, Any]:
    return {
        "day": date,
        "conversations": len(day.conversations),
        "turns": day.turns,
        "documents": day.documents,
        "calls": day.calls,
        "tokens_about": day.likely.tokens,
        "tokens_at_most": day.most.tokens,
        "money_about": day.likely.picos / PICOS,
        "money_at_most": day.most.picos / PICOS,
        "not_judged": dict(day.unjudged),
    }
