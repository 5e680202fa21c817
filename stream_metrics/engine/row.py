"""The row of a conversation (or of a turn): every figure of 3.1 and 3.2, in a fixed key order."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from stream_metrics.engine.cells import counts_of, rerank_of, source
from stream_metrics.engine.config import DEFAULT_AGENT
from stream_metrics.engine.state import Conversation, Turn
from stream_metrics.metrics.decisions import (
    GateCounts,
    Rerank,
    RerankSums,
    gate_cell,
    routing_row,
)
from stream_metrics.metrics.gain import last_good_iteration, sre_upper, through

Row = dict[str, Any]


def canonical(value: Any) -> str:
    """Canonical JSON: keys as they are, floats as ``repr``, no spaces, not escaped beyond need."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


_ENCODE: Final = msgspec.json.Encoder().encode
_EXPONENT: Final = re.compile(rb"e(?<=[0-9]e)-?[0-9]+[],}]")


def canonical_line(row: Any) -> str:
    """What ``canonical`` gives for a row, a list or mapping; and its end.

    The caller sees to it that NaN and infinity are not in it: here they may become null, where
    ``canonical`` refuses them. To look for them would cost what the fast encoder saves.

    >>> canonical_line({"a": [0.1, None], "b": 1e-5})
    '{"a":[0.1,null],"b":1e-05}\\n'
    """
    line = _ENCODE(row)
    # The fast encoder writes other floats than ``repr`` only where that takes an exponent.
    if b"0.0000" in line or _EXPONENT.search(line):
        return canonical(row) + "\n"
    return line.decode() + "\n"


def shown_turns(conversation: Conversation, turn_scope: str = "last") -> list[Turn]:
    """The turns that have a row: the highest, or with scope ``all`` every one that exists."""
    last = conversation.last_turn
    if not last:
        return []
    if turn_scope == "last":
        return [conversation.turns[last]]
    return [turn for _, turn in sorted(conversation.turns.items()) if turn.exists]


def conversation_rows(conversation: Conversation, turn_scope: str = "last") -> list[Row]:
    """The rows of a conversation, in the order of its turns."""
    return [
        turn_row(conversation, turn, RerankSums.of(reranks(turn)))
        for turn in shown_turns(conversation, turn_scope)
    ]


def turn_row(conversation: Conversation, turn: Turn, reranked: RerankSums) -> Row:
    """One turn's row; ``reranked`` are the sums of its ``reranks``."""
    agent, release = origin_of(turn)
    iterations = turn.counted
    counts = [counts_of(iteration) for iteration in iterations]
    row: Row = {
        "conversation_id": conversation.conversation_id,
        "turn": turn.number,
        "agent": agent,
        "release": release,
        "over_limit": turn.over_limit,
        "iterations": [],
    }
    for i, (iteration, count) in enumerate(zip(iterations, counts, strict=True), 1):
        row["iterations"].append(
            {
                "iteration": iteration.number,
                "i": i,
                "results": count.results,
                "unique": count.unique,
                "good_unique": count.good,
                "duplicates": count.duplicates,
                "labelled": count.labelled,
                "gain": count.gain,
                "avg_gain": count.avg_gain,
                **through(counts[:i])._asdict(),
            }
        )
    row |= _totals(turn)
    row["duplicates_of"] = _duplicates_of(turn)
    row["gate"] = gate_counts(turn).row()
    row["routing"] = routing_row(*routing_counts(turn))
    row["reranking"] = reranked.row()
    return row


def origin_of(turn: Turn) -> tuple[str, str | None]:
    """Agent and release of the highest iteration with a search or an explicit gate."""
    if not turn.iterations:
        return DEFAULT_AGENT, None
    _, agent, release = source(turn.iterations[max(turn.iterations)])
    return agent, release


_FIGURES = ("cg", "rg", "dcg", "drg", "rag", "drag", "sre", "srr")


def _totals(turn: Turn) -> Row:
    counts = [counts_of(iteration) for iteration in turn.counted]
    results, unique, good, labelled, gain = (
        sum(column) for column in (zip(*counts, strict=True) if counts else ((),) * 5)
    )
    totals: Row = {
        "n": len(counts),
        "results": results,
        "unique": unique,
        "good_unique": good,
        "duplicates": results - unique,
        "labelled": labelled,
        "unlabelled": unique - labelled,
        "gain": gain if counts else None,
    }
    if not counts:
        nothing = dict.fromkeys(_FIGURES)
        return (
            totals
            | nothing
            | {
                "sre_upper": None,
                "iterations_for_all_good_results": None,
                "all_good_basis": None,
            }
        )
    value = through(counts)._asdict()
    totals |= {name: value[name] for name in _FIGURES}
    totals["sre_upper"] = sre_upper(results, good, unique - labelled)
    if turn.relevant is not None:
        needed, basis = turn.qrels, "qrels"
    else:
        needed, basis = last_good_iteration([one.good for one in counts]), "retrieved"
    totals["iterations_for_all_good_results"] = needed
    totals["all_good_basis"] = basis
    return totals


def _duplicates_of(turn: Turn) -> dict[str, str]:
    pairs = {}
    for result_id, position in turn.handles.items():
        first = turn.firsts[turn.documents[position]]
        if first != position:
            search = turn.holders[first]
            pairs[result_id] = search.result_ids[first - search.first]
    return dict(sorted(pairs.items()))


def gate_counts(turn: Turn) -> GateCounts:
    """The turn's gate decisions, one an iteration, and the cells of the labelled ones."""
    counts = dict.fromkeys(GateCounts._fields, 0)
    for iteration in turn.iterations.values():
        counts[iteration.decision] += 1
        if iteration.needed is not None:
            counts[gate_cell(iteration.decision, iteration.needed)] += 1
    return GateCounts(**counts)


def routing_counts(turn: Turn) -> tuple[dict[str, int], int, int]:
    """(searches by route, those with a label, those that took the best route)."""
    routes: dict[str, int] = {}
    labelled = correct = 0
    for search in turn.order:
        if search.route is None:
            continue
        routes[search.route] = routes.get(search.route, 0) + 1
        if search.optimal is not None:
            labelled += 1
            correct += search.optimal == search.route
    return routes, labelled, correct


def reranks(turn: Turn) -> list[Rerank]:
    """The comparisons of the searches that take part, in canonical order."""
    values = (rerank_of(turn, search) for search in turn.order)
    return [value for value in values if value is not None]
