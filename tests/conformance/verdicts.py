"""Compares the interpretation of traces with what the program recorded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, permutations
from typing import Any, Literal

from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import (
    HELP,
    Interpretation,
    Options,
    Span,
    Turn,
    events,
    interpret,
    mapping,
)
from stream_metrics.core.telemetry.interpretation import Result
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from stream_metrics.core.telemetry.recordings import Recordings
from stream_metrics.core.telemetry.spans import has_text
from stream_metrics.lab.replay.offline import Replay
from tests.conformance.programs.corpus import CHUNKS, PAGES, SHELVES

Kind = Literal["right", "inferred", "refused", "partly refused", "WRONG"]
Account = Sequence[tuple[str, int, int, list[str]]]

_PAGES = {page.id: page for page in (*CHUNKS, *PAGES, *SHELVES)}
_BY_URL = {page.url: page.id for page in (*SHELVES, *PAGES)}
_BY_TEXT = {page.text: page.id for page in _PAGES.values()}
Figures = tuple[str, int, int, float]
MOST_ORDERS = 24
_NOON_MS = 1_767_268_800_000  # of the day on which accounts are


@dataclass(frozen=True)
class Verdict:
    """The outcome of a program's traces, and why."""

    kind: Kind
    why: str = ""


def interpret_lines(lines: Iterable[str], **options: Any) -> list[Interpretation]:
    """The interpretations of traces in lines of OTLP JSON under the presets."""
    traces: dict[str, list[Span]] = {}
    for line in lines:
        for span in spans_of(line.encode()):
            traces.setdefault(span.trace_id, []).append(span)
    rows = mapping()
    return [interpret(traces[id], rows, Options(**options)) for id in sorted(traces)]


def verdict(
    interpretations: Sequence[Interpretation], account: Account, sessions: bool = True
) -> Verdict:
    """Compare turns, iterations and results with the program's own account.

    Args:
        interpretations: The interpretation of each trace.
        account: Session, turn, iteration, and the ids in the order in which the agent received
            them.
        sessions: Whether the program passed the session to its instrumentation.
    """
    recordings, refused = Recordings(), Counter[str]()
    for one in sorted(interpretations, key=lambda one: [turn.number for turn in one.turns]):
        recordings.refuse_repeated(one)
        refused.update(one.refused)
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(refused.items()))
    expected = _expected(account)
    turns = [turn for one in interpretations for turn in one.turns if turn.searches]
    unnamed = {one.trace_id for one in interpretations}
    inferred, unmatched = False, []
    for turn in sorted(turns, key=lambda turn: turn.number):
        for key, iterations in expected.items():
            if sessions and turn.conversation not in (key[0], *unnamed):
                continue
            exact = _same(turn, iterations)
            if exact or (turn.iterations_inferred and _same_results(turn, iterations)):
                inferred = inferred or turn.iterations_inferred
                del expected[key]
                break
        else:
            unmatched.append(turn)
    if label := next(filter(None, map(_label_with_text, turns)), None):
        return Verdict("WRONG", f"what a user or a document says is in a label: {label!r}")
    skipped = sum(turn.skipped for one in interpretations for turn in one.turns)
    if skipped > (silent := _turns_without_search(account)):
        return Verdict("WRONG", f"{skipped} turns are told as without a search, not {silent}")
    if unmatched:
        return Verdict("WRONG", f"{_shown(unmatched[0])} is not in {dict(expected)}; {reasons}")
    if not any(one.turns for one in interpretations):
        return Verdict("refused", reasons or "nothing can be used")
    if expected and not refused:
        return Verdict("WRONG", f"nothing tells {dict(expected)}")
    if expected:
        return Verdict("partly refused" if turns else "refused", reasons)
    if refused:
        return Verdict("right", f"beside it refused: {reasons}")
    if unnamed & {turn.conversation for turn in turns}:
        return Verdict("inferred" if inferred else "right", "no conversation in the spans")
    problem = "" if inferred else _rows_differ(interpretations, account)
    if problem:
        return Verdict("WRONG", problem)
    return Verdict("inferred" if inferred else "right")


def _label_with_text(turn: Turn) -> str | None:
    """A name that becomes a label and contains a question, a query or a document's text."""
    texts = {turn.question, *(search.query for search in turn.searches), *_BY_TEXT}
    names = {turn.agent, turn.release, *(search.route for search in turn.searches)}
    return next(
        (name for name in names for text in texts if name is not None and has_text(name, text)),
        None,
    )


def _expected(account: Account) -> dict[tuple[str, int], list[list[str]]]:
    found: dict[tuple[str, int], dict[int, list[str]]] = {}
    for session, turn, iteration, ids in account:
        found.setdefault((session, turn), {}).setdefault(iteration, []).extend(
            _canonical(id) for id in ids
        )
    return {key: [each[number] for number in sorted(each)] for key, each in sorted(found.items())}


def _turns_without_search(account: Account) -> int:
    """How many turns between others of their session have no search."""
    known: dict[str, set[int]] = {}
    for session, turn, *_ in account:
        known.setdefault(session, set()).add(turn)
    return sum(max(turns) - len(turns) for turns in known.values())


def _iterations(turn: Turn) -> list[list[list[str]]]:
    found: dict[int, list[list[str]]] = {}
    for search in turn.searches:
        found.setdefault(search.iteration, []).append([_id(one) for one in search.results])
    return [found[number] for number in sorted(found)]


def _id(result: Result) -> str:
    document = result.document
    for id in (result.doc_id, document.id):
        if id in _PAGES:
            return _canonical(str(id))
    if document.id is not None and document.id.isdecimal():
        return PAGES[int(document.id)].id  # its place in the corpus, as DSPy has it
    text = document.text or ""
    if not text:
        return _BY_URL.get(document.url or document.page or "", "?")
    found = _BY_TEXT.get(text) or next((id for of, id in _BY_TEXT.items() if of in text), None)
    return _canonical(found or result.doc_id or "?")


def _canonical(id: str) -> str:
    """The page of a chunk: the first chunk has the page's text, and may have its id."""
    return id.removesuffix(".0")


def _same(turn: Turn, expected: list[list[str]]) -> bool:
    found = _iterations(turn)
    return len(found) == len(expected) and all(
        any(ids == [*chain(*order)] for order in _orders(searches))
        for searches, ids in zip(found, expected, strict=True)
    )


def _orders(searches: list[list[str]]) -> Iterable[tuple[list[str], ...]]:
    """All orders of concurrent searches."""
    return [one for one, _ in zip(permutations(searches), range(MOST_ORDERS), strict=False)]


def _same_results(turn: Turn, expected: list[list[str]]) -> bool:
    searches = [each for iteration in _iterations(turn) for each in iteration]
    return Counter(id for each in searches for id in each) == Counter(
        id for each in expected for id in each
    )


def _shown(turn: Turn) -> str:
    return f"{turn.conversation}: {_iterations(turn)}"


def rows(records: Iterable[Record]) -> list[Figures]:
    """Conversation, iterations, results and SRR of each turn with a search, as replays write
    them."""
    replay = Replay(turn_scope="all")
    for record in records:
        replay.feed(record)
    return sorted(
        (row["conversation_id"], len(row["iterations"]), row["results"], row["srr"])
        for row in replay.rows()
        if row["iterations"] and row["iterations"] != [None]
    )


def of_account(account: Account) -> list[Figures]:
    """The same rows from the program's account."""
    return rows(
        Record(
            json.dumps(
                {
                    "type": "search_iteration",
                    "event_id": (id := f"{session}/{turn}/{number}"),
                    "occurred_at": f"2026-01-01T00:{turn:02}:{number:02}Z",
                    "conversation_id": session,
                    "turn": turn,
                    "iteration": number,
                    "searches": [
                        {
                            "search_id": id,
                            "ordinal": 0,
                            "results": [
                                {"result_id": f"{id}/{place}", "doc_id": doc_id}
                                for place, doc_id in enumerate(ids)
                            ],
                        }
                    ],
                }
            ).encode(),
            session.encode(),
            _NOON_MS,
        )
        for (session, turn), each in _expected(account).items()
        for number, ids in enumerate(each, 1)
    )


def _rows_differ(interpretations: Sequence[Interpretation], account: Account) -> str:
    """How the rows of a replay differ from those of the account; empty if they do not."""
    ours = rows(
        Record(event.value, event.conversation.encode(), event.occurred_us // 1000)
        for one in interpretations
        for event in events(one)
        if b'"gate"' not in event.value
    )
    theirs = of_account(account)
    return "" if ours == theirs else f"rows are {ours}, and should be {theirs}"


def helps(interpretations: Sequence[Interpretation]) -> list[str]:
    """The first refusal of each reason, with its remedy."""
    found: dict[str, str] = {}
    for one in interpretations:
        for refusal in one.refusals:
            found.setdefault(refusal.reason, f"{refusal.message}; {HELP[refusal.reason]}")
    return [f"{reason}: {message}" for reason, message in sorted(found.items())]


def of_folder(folder: Any, sessions: bool = True, **options: Any) -> tuple[Verdict, list[str]]:
    """The verdict on a program's folder."""
    lines = (folder / "traces.jsonl").read_text().splitlines()
    account = [tuple(row) for row in json.loads((folder / "truth.json").read_text())]
    interpretations = interpret_lines(lines, **options)
    return verdict(interpretations, account, sessions), helps(interpretations)
