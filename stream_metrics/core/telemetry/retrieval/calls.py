"""Tool calls as the messages of model calls tell them.

A loop over a model's API has no spans of its tools, and some instrumentations leave out of a tool's
span what it was given or returned. Both stand in messages: the arguments in the answer of one model
call, the result in the input of the next one, by the id of the call.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from stream_metrics.core.telemetry.contents.calls import (
    ToolCall,
    answer_is_lost,
    calls_given,
    calls_of,
    is_given_lost,
    is_recorded,
    latest_results,
    mentions,
    results_of,
)
from stream_metrics.core.telemetry.contents.hosted import HostedSearch, hosted_searches
from stream_metrics.core.telemetry.contents.messages import HOSTED, LOST
from stream_metrics.core.telemetry.retrieval.tools import ARGUMENTS, is_missing, recorded
from stream_metrics.core.telemetry.retrieval.uploads import address_of
from stream_metrics.core.telemetry.roles.kinds import is_of_agents
from stream_metrics.core.telemetry.roles.mapping import Role, Row
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.shapes.reading import plain_text
from stream_metrics.core.telemetry.shapes.users import tool_name
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
_NAMES_CALL: Final = re.compile(r'"tool_?[Cc]all_?[Ii]d"\s*:\s*"([^"\\]{1,200})"')
"""Matches the id of the call in a message that a tool returned."""
MAX_LATER: Final = 8
"""The most later model calls in which the result of a call is looked for."""


def with_calls(tree: SpanTree) -> tuple[list[Span] | None, dict[str, Any]]:
    """The spans with tool calls that only messages tell, and with what tools' spans lack; None if
    that changes nothing.

    The second result is what messages tell of the results of other tools' spans where it is not the
    same text, by span id.
    """
    turns = tree.nearest_ancestor(Role.TURN)
    calls = _Calls(tree, turns)
    of_turn: dict[str | None, list[Span]] = {}
    for span in tree.with_role(Role.MODEL):
        of_turn.setdefault(turns.get(span.span_id), []).append(span)
    for turn, models in of_turn.items():
        models.sort(key=lambda span: (span.start_ns, span.span_id))
        _add_calls(turn, models, calls)
    calls.compare(of_turn)
    for id in sorted(set(turns.values())):
        calls.add_from_agent(tree.by_id[id])
    return calls.spans(), calls.told


def _add_calls(turn: str | None, models: Sequence[Span], calls: _Calls) -> None:
    """Note the calls of the model calls of a turn, which are in the order of their start."""
    starts = [span.start_ns for span in models]
    without_answers = not any(is_recorded(model, answer=True) for model in models)
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
        later = models[first : first + MAX_LATER]
        requested = calls_of(model)
        if not requested and later and without_answers:
            earlier = {call.id for call in calls_given(model)}
            requested = [call for call in calls_given(later[0]) if call.id not in earlier]
        if not requested or not calls.may_lack(model, requested):
            continue
        told: dict[str, Any] = {}
        following = later[0] if later else None
        for other in later:
            results = calls.results_of(other)
            if any(call.result(results) is not None for call in requested):
                told = results
                following = next(
                    (one for one in later if one is other or not is_recorded(one, answer=False)),
                    other,
                )  # the first that may have been given it
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
        self._unanswered: set[str] = set()  # models that called tools without a result
        self._results: dict[str, dict[str, Any]] = {}
        self._outer_models = tree.nearest_ancestor(Role.MODEL)
        self._hosted: dict[str, Sequence[HostedSearch]] = {}  # of models and those around them
        self.told: dict[str, Any] = {}

    def results_of(self, model: Span) -> dict[str, Any]:
        """The results in what a model was given."""
        found = self._results.get(model.span_id)
        if found is None:
            found = self._results[model.span_id] = results_of(model)
        return found

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
        return next(self._results_in(span, row), None) is None or not self._has_arguments(span)

    @staticmethod
    def _results_in(span: Span, row: Row) -> Iterator[Any]:
        for value in recorded(span, row):
            if not is_missing(value) and address_of(value) is None:
                yield value

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
            if (
                result is not None
                and next(self._results_in(span, row), None) is None
                and not span.failed
            ):
                new["gen_ai.tool.call.result"] = result
            if asked is not None and not self._has_arguments(span):
                new["gen_ai.tool.call.arguments"] = asked
            if new:
                self._changed[span.span_id] = msgspec.structs.replace(
                    span, attributes={**span.attributes, **new}
                )
            return
        if following is None:
            return
        if self.ran_between(turn, model.start_ns, following.start_ns):
            return  # the span of the call may be one that does not name it
        if result is None:
            if not is_of_agents(call.name):
                self._unanswered.add(model.span_id)
            return
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

    def compare(self, models: Mapping[str | None, Sequence[Span]]) -> None:
        """Note what the next model calls and agents were given as the results that spans have, in
        other words; ``models`` are those of each turn, in the order of their start."""
        for turn, tools in self._tools.items():
            self._compare_turn(turn, tools, models.get(turn, ()))

    def _compare_turn(self, turn: str | None, tools: list[Span], models: Sequence[Span]) -> None:
        waiting = [
            (span, call_id(span, result), result)
            for span in tools
            if not span.failed
            and (result := next(self._results_in(span, self._tree.rows[span.span_id]), None))
            is not None
        ]
        waiting.sort(key=lambda one: one[0].end_ns)
        if turn is not None and mentions(
            self._tree.by_id[turn], [id for _, id, _ in waiting if id]
        ):
            self._compare(waiting, results_of(self._tree.by_id[turn], whole=True))
        ended: list[tuple[Span, str, Any]] = []
        place = 0
        before: list[Span] = []  # the model calls since the last tool
        for model in models:
            new = place
            while (
                place < len(waiting) and waiting[place][0].end_ns - TOLERANCE_NS <= model.start_ns
            ):
                ended.append(waiting[place])
                place += 1
            if ended:
                ids = {id for _, id, _ in ended if id}
                given = latest_results(model, ids)
                if not given.keys() >= {id for _, id, _ in waiting[new:place]}:
                    given = self.results_of(model)
                self._compare(ended, given)
                self._note(_by_name(waiting[new:place], before, given))
                ended = [one for one in ended if one[1] not in given][-MAX_LATER:]
            before = [model] if new < place else [*before, model]

    def _compare(self, spans: Sequence[tuple[Span, str, Any]], given: dict[str, Any]) -> None:
        same = Counter(id for _, id, _ in spans)
        self._note(
            (span, result, given[id]) for span, id, result in spans if same[id] == 1 and id in given
        )

    def _note(self, pairs: Iterable[tuple[Span, Any, Any]]) -> None:
        for span, result, told in pairs:
            if not _is_same_text(result, told):
                self.told[span.span_id] = told

    def add_from_agent(self, turn: Span) -> None:
        """Note the results that only the messages of the agent's span have."""
        if not self.lacking(turn.span_id):
            return
        told: dict[str, Any] | None = None
        for span in self._tools[turn.span_id]:
            id = span.text(*CALL_IDS)
            row = self._tree.rows[span.span_id]
            new = self._changed.get(span.span_id, span)
            if id is None or span.failed or next(self._results_in(new, row), None) is not None:
                continue
            told = results_of(turn, whole=True) if told is None else told
            if id in told:
                given = {**new.attributes, "gen_ai.tool.call.result": told[id]}
                self._changed[span.span_id] = msgspec.structs.replace(new, attributes=given)

    def add_hosted(self, model: Span, hosted: Sequence[HostedSearch]) -> None:
        """Note the searches that the provider ran during a model call, unless an outer span of the
        call has told them."""
        outer = self._hosted.get(self._outer_models.get(model.span_id, ""), ())
        self._hosted[model.span_id] = [*outer, *hosted]
        for search in hosted:
            if any(search.id == one.id or search[1:] == one[1:] for one in outer):
                continue
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
            lost = model.span_id in self._unanswered or answer_is_lost(model)
            if lost or is_given_lost(model):
                span = self._changed.get(model.span_id, model)
                self._changed[model.span_id] = msgspec.structs.replace(
                    span, attributes={**span.attributes, LOST: "cut off"}
                )


def _by_name(
    tools: Sequence[tuple[Span, str, Any]], models: Iterable[Span], given: dict[str, Any]
) -> list[tuple[Span, Any, Any]]:
    """The tools that ran after some model calls, whose ids the next one does not have, each with
    its result and that of the only call of its name."""
    unnamed = [one for one in tools if one[1] not in given]
    if not unnamed or not given:
        return []
    requested = [call for model in models for call in calls_of(model)]
    calls = Counter(call.name for call in requested)
    names = Counter(tool_name(span) for span, _, _ in tools)
    told = {call.name: call.result(given) for call in requested if calls[call.name] == 1}
    return [
        (span, result, told[name])
        for span, _, result in unnamed
        if names[name := tool_name(span)] == 1 and told.get(name) is not None
    ]


def _is_same_text(one: Any, other: Any) -> bool:
    if one == other:
        return True
    written = plain_text(one)
    return written is not None and written == plain_text(other)


def call_id(span: Span, result: Any) -> str:
    """The id of the call that a tool's span or its result names; empty if they name none."""
    if (id := span.text(*CALL_IDS)) is not None:
        return id
    named = _NAMES_CALL.search(result) if isinstance(result, str) else None
    return named[1] if named else ""


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
