"""The row of a conversation or turn: all its metrics, in a fixed key order."""

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
from stream_metrics.core.metrics.labels import labelled_by
from stream_metrics.core.metrics.registry import CUMULATIVE, metrics_at, values
from stream_metrics.core.metrics.turn_totals import TurnTotals

Row = dict[str, Any]


def canonical(value: Any) -> str:
    """Canonical JSON: keys in their order, floats as ``repr``, no spaces, minimal escaping."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


_ENCODE: Final = msgspec.json.Encoder().encode
_EXPONENT: Final = re.compile(rb"e(?<=[0-9]e)-?[0-9]+[],}]")


def canonical_line(row: Any) -> str:
    """The canonical JSON of a row (a list or mapping), with a newline.

    The row must not contain NaN or infinity: they may become null here, where ``canonical`` raises.
    To check for them would cost what the fast encoder saves.

    >>> canonical_line({"a": [0.1, None], "b": 1e-5})
    '{"a":[0.1,null],"b":1e-05}\\n'
    """
    line = _ENCODE(row)
    # The fast encoder differs from ``repr`` only for floats that ``repr`` writes with an exponent.
    if b"0.0000" in line or _EXPONENT.search(line):
        return canonical(row) + "\n"
    return line.decode() + "\n"


def shown_turns(conversation: Conversation, turn_scope: str = "last") -> list[Turn]:
    """The turns with a row: the highest, or with scope ``all`` every turn that exists."""
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
    """The row of a turn; ``reranked`` are the sums of its ``reranks``."""
    agent, release = origin_of(turn)
    totals = empty_totals(turn)
    iterations: list[Row] = []
    for iteration in turn.counted:
        add_iteration(totals, iteration)
        iterations.append(iteration_row(iteration, totals))
    row: Row = {
        "conversation_id": conversation.conversation_id,
        "turn": turn.number,
        "agent": agent,
        "release": release,
        "over_limit": turn.over_limit,
        "beyond_limit": _beyond_limit(turn),
        "iterations": iterations,
        **total_fields(totals),
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


def iteration_row(iteration: Iteration, totals: TurnTotals) -> Row:
    """The row of an iteration with a search; ``totals`` are the totals up to and including it."""
    return {
        "iteration": iteration.number,
        "i": totals.n,
        "results": iteration.results,
        "unique": iteration.unique,
        "good_unique": iteration.good,
        "duplicates": iteration.results - iteration.unique,
        "labelled": iteration.labelled,
        "gain": iteration.gain,
        **values(_OF_ITERATIONS, totals),
        "r_at": totals.results,
        "ur_at": totals.unique,
        "gr_at": totals.good,
        "dup_at": totals.duplicates,
        **values(CUMULATIVE, totals),
    }


_OF_ITERATIONS: Final = metrics_at("iteration")
_COUNTS: Final = metrics_at("count")
_OF_TURNS: Final = (*CUMULATIVE, *metrics_at("turn"))
_UNDEFINED: Final = {metric.key: None for metric in _OF_TURNS}


def total_fields(totals: TurnTotals) -> Row:
    searched = totals.n > 0
    return {
        "n": totals.n,
        "results": totals.results,
        "unique": totals.unique,
        "good_unique": totals.good,
        "duplicates": totals.duplicates,
        "labelled": totals.labelled,
        "unlabelled": totals.unlabelled,
        **labelled_by(totals.labelled, totals.by_model),
        "searches": totals.searches,
        "queried_searches": totals.queried if totals.queries_known else None,
        **values(_COUNTS, totals),
        "gain": totals.gain if searched else None,
        **(values(_OF_TURNS, totals) if searched else _UNDEFINED),
        "all_good_basis": totals.basis if searched else None,
    }


def _beyond_limit(turn: Turn) -> dict[str, int] | None:
    """The searches that limits have refused and their results; None if they were not counted."""
    left_out = turn.left_out if turn.over_limit else (0, 0)
    return None if left_out is None else {"searches": left_out[0], "results": left_out[1]}


def _duplicates_of(turn: Turn) -> dict[str, str]:
    pairs = {}
    for result_id, position in turn.handles.items():
        first = turn.first_results[turn.documents[position]]
        if first != position:
            search = turn.result_searches[first]
            pairs[result_id] = search.result_ids[first - search.start]
    return dict(sorted(pairs.items()))


def gate_counts(turn: Turn) -> GateCounts:
    """The turn's gate decisions, one per iteration, and the confusion matrix of labelled ones."""
    counts = dict.fromkeys(GateCounts._fields, 0)
    for iteration in turn.iterations.values():
        counts[iteration.decision] += 1
        if iteration.needed is not None:
            counts[gate_cell(iteration.decision, iteration.needed)] += 1
    return GateCounts(**counts)


def routing_counts(turn: Turn) -> RoutingCounts:
    """The turn's searches by route, and the number that took the best route."""
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
    """The reranking comparisons of the turn's searches, in canonical order."""
    values = (rerank_of(turn, search) for search in turn.order)
    return [value for value in values if value is not None]
