"""``docs/evidence/panels.md``: what each panel had to show, and what the linter's rules say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.shown.linter import EXCLUSIONS, RULES, looked_at
from tests.shown.panels import Asked, Seen, boards

PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence" / "panels.md"

_HEAD: Final = """\
# What the dashboards show

Each query of each panel, as it was asked while a system was at work: Kafka, Redis with our
`deploy/redis/redis.conf`, one worker, {records:,} records of the last hour, the generator's live
traffic, and a Prometheus that scraped each second. Variables stood where they stand when a
dashboard is opened: all jobs, instances and agents, and the first length of window. Rates are over
a minute, as with the scrape interval of `deploy/prometheus/prometheus.yml`.

A sample is a series that has a number; a query without one fails `tests/services/test_shown.py`.
Where all are 0, what the panel tells of did not happen in that minute: most of these should not.

"""
_TABLE: Final = "| panel | query | samples | not 0 |\n|---|---|---|---|\n"
_RULES: Final = """\
## The rules of dashboard-linter

`tests/unit/test_dashboards.py` holds the dashboards to the rules of Grafana's `dashboard-linter`,
by the names that the tool gives them. It looks at some kinds of panels only; here it is all.

| rule | asks for | looked at | complaints |
|---|---|---|---|
"""
_EXCLUDED: Final = """
Not applied:

| rule | why |
|---|---|
"""
_TAIL: Final = "\nWritten by `make panels`.\n"


def page(seen: Sequence[Seen], records: int) -> str:
    """The page of a run that had ``records`` behind it."""
    return _HEAD.format(records=records) + "".join(_tables(seen)) + rules() + _TAIL


def rules() -> str:
    """What the rules say of the dashboards; needs no run."""
    rendered = boards()
    lines = [_RULES]
    for rule in RULES:
        complaints = sum(1 for board in rendered for _ in rule.complaints(board))
        number = f"{looked_at(rendered, rule.of)} {rule.of}"
        lines.append(f"| {rule.name} | {rule.asks} | {number} | {complaints or 'none'} |\n")
    lines.append(_EXCLUDED)
    lines += [f"| {one.rule} | {one.reason} |\n" for one in EXCLUSIONS]
    return "".join(lines)


def cells(asked: Asked) -> str:
    """The first cells of a query's row."""
    return f"| {asked.panel} | `{asked.expr.replace('|', chr(92) + '|')}` |"


def _tables(seen: Sequence[Seen]) -> Iterator[str]:
    for board, rows in groupby(seen, lambda one: one.asked.board):
        yield f"## {board.removeprefix('stream-metrics / ')}\n\n{_TABLE}"
        for one in rows:
            yield f"{cells(one.asked)} {len(one.values)} | {one.not_zero} |\n"
        yield "\n"
