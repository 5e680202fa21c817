"""Brute-force reference for the engine, which computes everything from the texts in one pass.

It shares no code with the package under test, and prefers simplicity to speed: it collects the
valid events of a conversation, finds the winner of every item over the whole set, and computes each
metric from its definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .decode import Event, Record, Rejected, decode
from .dedup import Settings
from .report import canonical, row
from .turns import Options, Turn, Won, alive, turns_of
from .windows import windows_text

__all__ = ["Event", "Outcome", "Record", "Turn", "Won", "evaluate"]


LOOPS = (
    "searches", "queried_searches", "repeated_searches", "empty_searches",
    "iterations_without_new", "trailing_without_new",
)  # fmt: skip


@dataclass
class Outcome:
    """The expected results of a stream."""

    rows: list[str]
    invalid: list[tuple[int, str]]
    counts: dict[str, int]
    turns: list[Turn] = field(repr=False)  # every existing turn, not only those with a row
    rowed: list[Turn] = field(repr=False)  # those with a row, in its order
    events: list[Event] = field(repr=False)  # every valid event, redeliveries included

    def windows(self, now_us: int | None = None) -> str:
        """The text of `windows.json`, by default at the largest event time."""
        if now_us is None:
            now_us = max((event.time for event in self.events), default=0)
        return windows_text(self.turns, now_us)


def evaluate(
    records: Iterable[Record],
    *,
    turn_scope: str = "last",
    good_gain: int = 2,
    gain_of_document: str = "first",
    identical_content: str = "duplicate",
    snippet_rejects: bool = True,
    keyed: bool = False,
    retrieval: tuple[str, ...] = (),
    tables: int = 3,
    labels: str = "human_first",
    model_labellers: tuple[str, ...] = (),
) -> Outcome:
    """Evaluate a stream; the order of its records does not matter."""
    options = Options(
        turn_scope,
        good_gain,
        gain_of_document,
        Settings(identical_content, snippet_rejects, tables),
        retrieval,
        tables >= 2,
        tables >= 3,
        labels,
        model_labellers,
    )
    events: list[Event] = []
    invalid: list[tuple[int, str]] = []
    read = 0
    for index, record in enumerate(records):
        read += 1
        try:
            events.append(decode(record, keyed))
        except Rejected as refusal:
            invalid.append((index, str(refusal)))

    turns: list[Turn] = []
    rowed: list[Turn] = []
    stale: set[tuple[str, str]] = set()
    forgotten: set[tuple[str, str]] = set()
    for conversation in sorted({event.conversation for event in events}):
        own = [event for event in events if event.conversation == conversation]
        kept = alive(own)
        evaluated = turns_of(conversation, kept, options)
        turns += evaluated
        rowed += evaluated if turn_scope == "all" else evaluated[-1:]
        forgotten |= {
            (conversation, event.event_id)
            for event in own
            if event.type != "forget" and event not in kept
        }
        if evaluated:
            stale |= {
                (conversation, event.event_id)
                for event in kept
                if event.turn < evaluated[-1].number
            }
    rows = [row(turn) for turn in rowed]
    summed = ("results", "unique", "duplicates", "good_unique", "labelled", "unlabelled")
    counts = {
        "events": read,
        "invalid": len(invalid),
        "stale": len(stale),
        "forgotten": len(forgotten),
        "conversations": len({e.conversation for e in events if e.type != "forget"}),
        "turns": len(rows),
        "iterations": sum(one["n"] for one in rows),
        **{name: sum(one[name] for one in rows) for name in summed},
        **_by_source(rows),
        **{name: _total(name, rows) for name in LOOPS},
        "orphan_labels": sum(turn.orphan_labels() for turn in rowed),
    }
    return Outcome([canonical(one) for one in rows], invalid, counts, turns, rowed, events)


def _by_source(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """The labelled documents of all rows by source; nothing if all are labelled by people."""
    by_model = sum(one.get("labelled_by", {}).get("model", 0) for one in rows)
    by_human = sum(one["labelled"] for one in rows) - by_model
    found = {"human": by_human, "model": by_model}
    return {"labelled_by": {name: n for name, n in found.items() if n}} if by_model else {}


def _total(name: str, rows: list[dict[str, Any]]) -> int | None:
    """The sum over rows; None if one of them does not know it."""
    values = [one[name] for one in rows]
    return None if None in values else sum(values)
