"""Tool calls as the messages of model calls tell them.

A loop over a model's API has no spans of its tools, and some instrumentations leave out of a tool's
span what it was given or returned. Both stand in messages: the arguments in the answer of one model
call, the result in the input of the next one, by the id of the call.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from stream_metrics.core.telemetry.contents.calls import (
    ToolCall,
    answer_is_lost,
    calls_of,
    results_of,
)
from stream_metrics.core.telemetry.contents.hosted import HostedSearch, hosted_searches
from stream_metrics.core.telemetry.contents.messages import HOSTED, LOST
from stream_metrics.core.telemetry.retrieval.tools import ARGUMENTS, recorded
from stream_metrics.core.telemetry.roles.mapping import Role
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import Span

CALL_IDS: Final = (
    "gen_ai.tool.call.id",
    "ai.toolCall.id",
    "tool_call.id",
    "tool.call.id",
    "tool_call_id",
    "gcp.vertex.agent.tool_call_id",
)
TOLERANCE_NS: Final = 1_000_000  # JavaScript starts spans at whole milliseconds
MAX_LATER: Final = 8
"""The most later model calls in which the result of a call is looked for."""


def with_calls(tree: SpanTree) -> list[Span] | None:
    """The spans with tool calls that only messages tell, and with what tools' spans lack; None if
    that changes nothing."""
    turns = tree.nearest_ancestor(Role.TURN)
    calls = _Calls(tree, turns)
    of_turn: dict[str | None, list[Span]] = {}
    for span in tree.with_role(Role.MODEL):
        of_turn.setdefault(turns.get(span.span_id), []).append(span)
    for turn, models in of_turn.items():
        models.sort(key=lambda span: (span.start_ns, span.span_id))
        _add_calls(turn, models, calls)
    for id in sorted(set(turns.values())):
        calls.add_from_agent(tree.by_id[id])
    return calls.spans()


def _add_calls(turn: str | None, models: Sequence[Span], calls: _Calls) -> None:
    """Note the calls of the model calls of a turn, which are in the order of their start."""
    starts = [span.start_ns for span in models]
    results: dict[str, dict[str, Any]] = {}
    for place, model in enumerate(models):
        hosted = hosted_searches(model)
        if hosted and all(search.results is not None for search in hosted):
            calls.add_hosted(model, hosted)
        first = max(bisect_left(starts, model.end_ns - TOLERANCE_NS), place + 1)
        until = starts[first] if first < len(starts) else model.start_ns
        if not calls.lacking(turn) and (
            first == len(starts) or calls.ran_between(turn, model.start_ns, until)
        ):
            continue  # nothing to add: its calls have spans, and these have all
        requested = calls_of(model)
        if not requested or not calls.may_lack(model, requested):
            continue
        later = models[first : first + MAX_LATER]
        told, following = {}, later[0] if later else None
        for other in later:
            if other.span_id not in results:
                results[other.span_id] = results_of(other)
            if any(call.result(results[other.span_id]) is not None for call in requested):
                told, following = results[other.span_id], other
                break
        for call in requested:
            calls.add(model, following, call, call.result(told))


class _Calls:
    """The spans of tools, and what messages add to them."""

    def __init__(self, tree: SpanTree, turns: dict[str, str]) -> None:
        self._tree, self._turns = tree, turns
        self._by_call: dict[tuple[str | None, str], list[Span]] = {}
        self._running: dict[str | None, list[int]] = {}
        self._tools: dict[str | None, list[Span]] = {}
        self._lacking: dict[str | None, bool] = {}
        for span in tree.with_role(Role.TOOL, Role.SEARCH, Role.RERANKER):
            turn = turns.get(span.span_id)
            self._running.setdefault(turn, []).append(span.start_ns)
            if tree.role(span) is Role.TOOL:
                self._tools.setdefault(turn, []).append(span)
            if (id := span.text(*CALL_IDS)) is not None and tree.role(span) is Role.TOOL:
                self._by_call.setdefault((turn, id), []).append(span)
        for started in self._running.values():
            started.sort()
        self._changed: dict[str, Span] = {}
        self._added: dict[tuple[str | None, str, str], Span] = {}

    def lacking(self, turn: str | None) -> bool:
        """Whether the span of a tool of the turn has not what it was given, or returned."""
        found = self._lacking.get(turn)
        if found is None:
            tools = self._tools.get(turn, ())
            found = self._lacking[turn] = any(map(self._lacks, tools))
        return found

    def ran_between(self, turn: str | None, begin_ns: int, end_ns: int) -> bool:
        """Whether a tool or a search of the turn began in this time."""
        started = self._running.get(turn, [])
        at = bisect_left(started, begin_ns - TOLERANCE_NS)
        return at < len(started) and started[at] < end_ns

    def may_lack(self, model: Span, requested: Iterable[ToolCall]) -> bool:
        """Whether one of the calls has no span, or one that lacks something."""
        return any(
            (span := self._span_of(model, call)) is None or self._lacks(span) for call in requested
        )

    def _span_of(self, model: Span, call: ToolCall) -> Span | None:
        spans = self._by_call.get((self._turns.get(model.span_id), call.id), ())
        after = [one for one in spans if one.start_ns >= model.start_ns - TOLERANCE_NS]
        return min(after, key=lambda one: (one.start_ns, one.span_id), default=None)

    def _lacks(self, span: Span) -> bool:
        row = self._tree.rows[span.span_id]
        return next(recorded(span, row), None) is None or not self._has_arguments(span)

    def _has_arguments(self, span: Span) -> bool:
        row = self._tree.rows[span.span_id]
        return any(span.value(name) is not None for name in (*row.query, *ARGUMENTS))

    def add(self, model: Span, following: Span | None, call: ToolCall, result: Any) -> None:
        """Note a call, with its result if a message has it."""
        turn = self._turns.get(model.span_id)
        asked = _json(call.arguments)
        span = self._span_of(model, call)
        if span is not None:
            new: dict[str, Any] = {}
            row = self._tree.rows[span.span_id]
            if result is not None and next(recorded(span, row), None) is None and not span.failed:
                new["gen_ai.tool.call.result"] = result
            if asked is not None and not self._has_arguments(span):
                new["gen_ai.tool.call.arguments"] = asked
            if new:
                self._changed[span.span_id] = msgspec.structs.replace(
                    span, attributes={**span.attributes, **new}
                )
            return
        if result is None or following is None:
            return
        if self.ran_between(turn, model.start_ns, following.start_ns):
            return  # the span of the call may be one that does not name it
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.call.result": result,
        }
        if asked is not None:
            attributes["gen_ai.tool.call.arguments"] = asked
        self._added.setdefault(
            (turn, call.id, following.span_id),
            Span(
                model.trace_id,
                _id(model, call.id),
                model.parent_id,
                model.end_ns,
                max(model.end_ns, following.start_ns),
                False,
                attributes,
                model.resource,
                f"execute_tool {call.name}",
                scope=model.scope,
                scope_version=model.scope_version,
            ),
        )

    def add_from_agent(self, turn: Span) -> None:
        """Note the results that only the messages of the agent's span have."""
        if not self.lacking(turn.span_id):
            return
        told: dict[str, Any] | None = None
        for span in self._tools[turn.span_id]:
            id = span.text(*CALL_IDS)
            row = self._tree.rows[span.span_id]
            new = self._changed.get(span.span_id, span)
            if id is None or span.failed or next(recorded(new, row), None) is not None:
                continue
            told = results_of(turn, whole=True) if told is None else told
            if id in told:
                given = {**new.attributes, "gen_ai.tool.call.result": told[id]}
                self._changed[span.span_id] = msgspec.structs.replace(new, attributes=given)

    def add_hosted(self, model: Span, hosted: Iterable[HostedSearch]) -> None:
        """Note the searches that the provider ran during a model call."""
        for search in hosted:
            attributes: dict[str, Any] = {
                "gen_ai.operation.name": "retrieval",
                "gen_ai.retrieval.documents": search.results,
            }
            if search.query is not None:
                attributes["gen_ai.retrieval.query.text"] = search.query
            self._added[self._turns.get(model.span_id), search.id, model.span_id] = Span(
                model.trace_id,
                _id(model, search.id),
                model.parent_id,
                model.start_ns,
                max(model.start_ns, model.end_ns),
                False,
                attributes,
                model.resource,
                f"retrieval {search.name}",
                scope=model.scope,
                scope_version=model.scope_version,
            )
        self._changed[model.span_id] = msgspec.structs.replace(
            model, attributes={**model.attributes, HOSTED: "told"}
        )

    def spans(self) -> list[Span] | None:
        """All spans of the trace; None if messages add nothing."""
        if self._added:
            self._mark_lost()
        if not self._changed and not self._added:
            return None
        own = [self._changed.get(span.span_id, span) for span in self._tree.by_id.values()]
        return [*own, *self._added.values()]

    def _mark_lost(self) -> None:
        for model in self._tree.with_role(Role.MODEL):
            if answer_is_lost(model):
                span = self._changed.get(model.span_id, model)
                self._changed[model.span_id] = msgspec.structs.replace(
                    span, attributes={**span.attributes, LOST: "cut off"}
                )


def _id(model: Span, call: str) -> str:
    """An id for a call, as long as a span's, that depends on the call alone."""
    return hashlib.sha256(f"{model.span_id}\n{call}".encode(errors="replace")).hexdigest()[:16]


def _json(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError, ValueError, RecursionError):
        return None
