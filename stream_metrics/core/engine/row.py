"""The row of a conversation (or of a turn): every figure of 3.1 and 3.2, in a fixed key order."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from stream_metrics.core.engine.cells import add_iteration, empty_totals, rerank_of, source
from stream_metrics.core.engine.config import DEFAULT_AGENT
from stream_metrics.core.engine.state import Conversation, Iteration, Turn
from stream_metrics.core.metrics.decisions import (
    GateCounts,
    Rerank,
    RerankSums,
    RoutingCounts,
    gate_cell,
)
from stream_metrics.core.metrics.registry import CUMULATIVE, metrics_at, values
from stream_metrics.core.metrics.turn_totals import TurnTotals

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
    through = empty_totals(turn)
    iterations: list[Row] = []
    for iteration in turn.counted:
        add_iteration(through, iteration)
        iterations.append(iteration_row(iteration, through))
    row: Row = {
        "conversation_id": conversation.conversation_id,
        "turn": turn.number,
        "agent": agent,
        "release": release,
        "over_limit": turn.over_limit,
        "iterations": iterations,
        **totals(through),
    }
    row["duplicates_of"] = _duplicates_of(turn)
    row["gate"] = gate_counts(turn).row()
    row["routing"] = routing_counts(turn).row()
    row["reranking"] = reranked.row()
    return row


def origin_of(turn: Turn) -> tuple[str, str | None]:
    """Agent and release of the highest iteration with a search or an explicit gate."""
    if not turn.iterations:
        return DEFAULT_AGENT, None
    _, agent, release = source(turn.iterations[max(turn.iterations)])
    return agent, release


def iteration_row(iteration: Iteration, through: TurnTotals) -> Row:
    """An iteration that searched, which is the last one that ``through`` has taken in."""
    return {
        "iteration": iteration.number,
        "i": through.n,
        "results": iteration.results,
        "unique": iteration.unique,
        "good_unique": iteration.good,
        "duplicates": iteration.results - iteration.unique,
        "labelled": iteration.labelled,
        "gain": iteration.gain,
        **values(_OF_ITERATIONS, through),
        "r_at": through.results,
        "ur_at": through.unique,
        "gr_at": through.good,
        "dup_at": through.duplicates,
        **values(CUMULATIVE, through),
    }


_OF_ITERATIONS: Final = metrics_at("iteration")
_OF_TURNS: Final = (*CUMULATIVE, *metrics_at("turn"))
_UNDEFINED: Final = {metric.key: None for metric in _OF_TURNS}


def totals(through: TurnTotals) -> Row:
    searched = through.n > 0
    return {
        "n": through.n,
        "results": through.results,
        "unique": through.unique,
        "good_unique": through.good,
        "duplicates": through.duplicates,
        "labelled": through.labelled,
        "unlabelled": through.unlabelled,
        "gain": through.gain if searched else None,
        **(values(_OF_TURNS, through) if searched else _UNDEFINED),
        "all_good_basis": through.basis if searched else None,
    }


def _duplicates_of(turn: Turn) -> dict[str, str]:
    pairs = {}
    for result_id, position in turn.handles.items():
        first = turn.first_results[turn.documents[position]]
        if first != position:
            search = turn.result_searches[first]
            pairs[result_id] = search.result_ids[first - search.start]
    return dict(sorted(pairs.items()))


def gate_counts(turn: Turn) -> GateCounts:
    """The turn's gate decisions, one an iteration, and the cells of the labelled ones."""
    counts = dict.fromkeys(GateCounts._fields, 0)
    for iteration in turn.iterations.values():
        counts[iteration.decision] += 1
        if iteration.needed is not None:
            counts[gate_cell(iteration.decision, iteration.needed)] += 1
    return GateCounts(**counts)


def routing_counts(turn: Turn) -> RoutingCounts:
    """The turn's searches by route, and how many took the best one."""
    routes: dict[str, int] = {}
    labelled = correct = 0
    for search in turn.order:
        if search.route is None:
            continue
        routes[search.route] = routes.get(search.route, 0) + 1
        if search.optimal is not None:
            labelled += 1
            correct += search.optimal == search.route
    return RoutingCounts(routes, labelled, correct)


def reranks(turn: Turn) -> list[Rerank]:
    """The comparisons of the searches that take part, in canonical order."""
    values = (rerank_of(turn, search) for search in turn.order)
    return [value for value in values if value is not None]
