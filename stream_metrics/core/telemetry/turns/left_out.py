"""Refuses what has searches only in spans of scopes that ``otlp.scopes`` leaves out.

That is a trace without a turn, a turn without a search, and a turn in which another service
searched. A turn with searches of its own service is used: others of that service are the same by
another instrumentation, for which scopes are chosen.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from stream_metrics.core.telemetry.interpretation import Interpretation, agent_of
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import service_of


def may_be_left_out(interpretation: Interpretation, tree: SpanTree) -> bool:
    """Whether the trace has to be interpreted with all scopes, to know what is left out."""
    turns = interpretation.turns
    if not turns:
        return not interpretation.refused
    services = {service_of(tree.by_id[turn.span_id]) for turn in turns}
    return any(turn.skipped for turn in turns) or not services.issuperset(
        map(service_of, tree.left_out)
    )


def refuse_left_out(interpretation: Interpretation, tree: SpanTree, whole: Interpretation) -> bool:
    """Refuse what is left out; whether that is the whole trace.

    ``whole`` is the interpretation of the trace with all scopes.
    """
    turns = interpretation.turns
    if not (whole.turns or whole.refused):
        return False
    first = tree.left_out[0]
    message = f"otlp.scopes leaves out {first.scope or 'tracers without a name'}, which recorded it"
    if not turns:
        interpretation.refuse("left_out", first.span_id, message, agent_of(whole))
        return True
    services = {span.span_id: service_of(span) for span in tree.left_out}
    searches: dict[str, list[int]] = defaultdict(list)  # when they start, by service
    for start, service in sorted(
        (one.start_ns // 1000, services[one.span_id] or "")
        for turn in whole.turns
        for one in turn.searches
        if one.span_id in services
    ):
        searches[service].append(start)
    every = sorted(start for starts in searches.values() for start in starts)
    refused = set()
    numbers = [*(turn.number for turn in turns), math.inf]
    for turn, following in zip(turns, numbers[1:], strict=True):
        place = tree.by_id[turn.span_id]
        between = (turn.number, max(following, place.end_ns // 1000))
        searched = _number_between(every, *between)
        own = _number_between(searches.get(service_of(place) or "", []), *between)
        if searched > own or (turn.skipped and (searched or whole.refused)):
            interpretation.refuse("left_out", turn.span_id, message, turn.agent)
            refused.add(turn.span_id)
    interpretation.drop_turns(refused)
    return not interpretation.turns


def _number_between(order: Sequence[int], begin: float, end: float) -> int:
    return bisect_left(order, end) - bisect_left(order, begin)
