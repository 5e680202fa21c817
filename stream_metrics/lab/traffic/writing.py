"""Write events as JSON text, concatenating prepared parts because this is the hot path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from stream_metrics.lab.traffic.retrieval import Hit


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def write_time(micros: int, as_number: bool) -> str:
    """A time as JSON: Unix seconds or RFC 3339 text; exact to 1 µs.

    >>> write_time(1_742_284_800_250_000, as_number=False)
    '"2025-03-18T08:00:00.250000Z"'
    """
    seconds, rest = divmod(micros, 1_000_000)
    return f"{seconds}.{rest:06d}" if as_number else f'"{_second(seconds)}.{rest:06d}Z"'


class TurnContext(NamedTuple):
    """The parts of an envelope that are constant within a turn."""

    conversation_id: str
    turn: int
    agent: str
    release: str
    unix_times: bool

    def envelope(self, kind: str, event_id: str, at_us: int) -> str:
        """The common members of an event, without the closing brace."""
        return (
            f'{{"type":"{kind}","event_id":"{event_id}",'
            f'"occurred_at":{write_time(at_us, self.unix_times)},'
            f'"conversation_id":"{self.conversation_id}","turn":{self.turn}'
        )


def write_result(result_id: str, hit: Hit, score: float, extra: str) -> str:
    """One result; ``extra`` is further members, each with a comma before it."""
    return f'{{"result_id":"{result_id}",{hit.rendering},"score":{score:.4f}{extra}}}'


class SearchText(NamedTuple):
    """One search: its identity and its JSON."""

    search_id: str
    ordinal: int
    query: str
    routing: str
    results: Sequence[str]

    def json(self) -> str:
        """The search as JSON."""
        return (
            f'{{"search_id":"{self.search_id}","ordinal":{self.ordinal},"query":{self.query},'
            f'"routing":{self.routing},"results":[{",".join(self.results)}]}}'
        )


def write_iteration(
    context: TurnContext,
    event_id: str,
    at_us: int,
    iteration: int,
    gate: str | None,
    searches: Iterable[SearchText],
) -> bytes:
    """A ``search_iteration`` event; ``gate`` is the JSON of the decision, if it is explicit."""
    decided = f',"gate":{gate}' if gate else ""
    listed = ",".join(search.json() for search in searches)
    head = context.envelope("search_iteration", event_id, at_us)
    text = (
        f'{head},"agent":{json.dumps(context.agent)},"release":"{context.release}",'
        f'"iteration":{iteration}{decided},"searches":[{listed}]}}'
    )
    return text.encode()


class LabelSet(NamedTuple):
    """The labels of one event."""

    gains: Sequence[tuple[str, int | None]] = ()
    routing: Sequence[tuple[str, str]] = ()
    gate: Sequence[tuple[int, bool]] = ()
    labeller: str = "grader-7"


def write_labels(context: TurnContext, event_id: str, at_us: int, labels: LabelSet) -> bytes:
    """A ``relevance_labels`` event."""
    head = context.envelope("relevance_labels", event_id, at_us)
    parts = [f'{head},"labeller":"{labels.labeller}"']
    if labels.gains:
        gains = ",".join(
            f'{{"result_id":"{handle}","gain":{"null" if gain is None else gain}}}'
            for handle, gain in labels.gains
        )
        parts.append(f'"labels":[{gains}]')
    if labels.routing:
        best = ({"search_id": name, "optimal": route} for name, route in labels.routing)
        parts.append(f'"routing":{json.dumps(list(best), separators=(",", ":"))}')
    if labels.gate:
        needed = ({"iteration": step, "search_needed": need} for step, need in labels.gate)
        parts.append(f'"gate":{json.dumps(list(needed), separators=(",", ":"))}')
    return (",".join(parts) + "}").encode()


def write_completed(
    context: TurnContext, event_id: str, at_us: int, members: dict[str, object]
) -> bytes:
    """A ``turn_completed`` event with ``members``."""
    head = context.envelope("turn_completed", event_id, at_us)
    body = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    return f"{head},{body[1:]}".encode()
