"""Explains stored traces: what became of each agent's tools, and which settings would help.

Every row that is proposed is tried on the traces that it is about, as TOML that is added to the
settings, and left out if it changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields
from itertools import chain
from typing import Any, Final

from stream_metrics.core.engine.config import OTHER
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry import (
    HELP,
    Interpretation,
    Options,
    Reason,
    Span,
    SpanMapping,
    agent_of,
    interpret,
)
from stream_metrics.core.telemetry.contents.documents import Document
from stream_metrics.core.telemetry.explanation import (
    NO_SEARCH,
    Seen,
    explain,
    names_of,
    together,
)
from stream_metrics.core.telemetry.interpret import Details
from stream_metrics.core.telemetry.interpreter import checked_events
from stream_metrics.core.telemetry.recordings import Recordings
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.lab.sources.otlp.traces import TraceStore

EXAMPLE_LENGTH: Final = 200
_BLANK_LINES: Final = re.compile(r"\n{2,}")
_OTHER_TRACE: Final = re.compile(r"recorded it, too, in trace ([0-9a-f]+)")
MAX_AGENTS: Final = 1_000
MAX_TOOLS: Final = 1_000
MAX_TRIALS: Final = 20_000
"""The most interpretations of traces with other rows; tools with fewer spans are not tried then."""
MAX_TRIED_TRACES: Final = 1_000
"""The most traces on which the rows of one tool are tried: the first that are refused for it."""
MAX_TRIED_ROWS: Final = 6
"""The most rows that are tried for one tool."""
MAX_ROWS: Final = 100
"""The most rows that are listed for one tool."""
MAX_NAMES: Final = 3
"""The most names of spans that are noted for a remark."""
MAX_REFUSING: Final = 3
"""The most names of what else is refused with a row."""
SCOPES: Final = "otlp.scopes"


Reading = tuple[SpanMapping, Options]


class TraceReader:
    """Interprets traces one after the other as a replay does, and explains them."""

    def __init__(self, mapping: SpanMapping, options: Options, limits: Limits) -> None:
        self._mapping, self._options = mapping, options
        self._limits, self._recordings = limits, Recordings()

    def read(self, spans: Sequence[Span]) -> tuple[Interpretation, list[Seen], Details]:
        """The interpretation of a trace, what became of its spans, and how they were seen."""
        details = Details()
        interpretation = interpret(spans, self._mapping, self._options, details)
        self._recordings.refuse_repeated(interpretation)
        checked_events(interpretation, self._limits, None, self._options.content)
        return interpretation, [*explain(spans, self._mapping, details, interpretation)], details


@dataclass(slots=True)
class Effect:
    """What a row would change.

    Attributes:
        row, condition: The settings, as TOML, and what has to be true for them.
        calls: The spans at fault on which it was tried.
        searches, results: Of these, the searches that then count, and their results.
        no_search: Of these, those that then are no search, or no longer refused.
        left_out: Of these, those that ``otlp.scopes`` then leaves out.
        waiting: Of these, those that are refused only because of something else in their turn.
        still: Of these, those that are still refused.
        told: Of these, those that are turns that then count.
        new: Other spans of their traces that are refused then, and are not now.
        refusing: The names of other spans of their traces that are refused then, three at most.
        turns, turns_before: The turns of their traces that count then, and that do now.
        skipped: Of the turns then, those that are a decision not to search.
        all_searches, all_results: Their searches and results, also those of others.
        traces, of_traces: The number of traces on which it was tried, and of all that it is about.
    """

    row: str
    condition: str
    calls: int = 0
    searches: int = 0
    results: int = 0
    no_search: int = 0
    left_out: int = 0
    waiting: int = 0
    still: int = 0
    told: int = 0
    new: int = 0
    refusing: list[str] = field(default_factory=list)
    turns: int = 0
    turns_before: int = 0
    skipped: int = 0
    all_searches: int = 0
    all_results: int = 0
    traces: int = 0
    of_traces: int = 0

    def helps(self, kind: str, *, refused: bool) -> bool:
        """Whether it ends some of the refusals of spans of this kind, and nothing else is lost;
        of tools that are not refused, whether they then search."""
        if self.still >= self.calls:
            return False
        if self.turns < self.turns_before:
            return SCOPES in self.row  # of turns that only one scope recorded, a choice loses some
        if not refused:
            return self.searches > 0
        if self.turns > self.turns_before or self.left_out:
            return True
        return self.told > 0 if kind == "turn" else not self.new


@dataclass(slots=True)
class ToolSummary:
    """What became of the spans of one tool, retriever or reranker of an agent.

    ``kind`` is ``span`` for others that are refused, and ``turn`` for refused turns and traces.
    ``compared`` has the traces in which another instrumentation recorded those at fault.
    """

    agent: str | None
    kind: str
    name: str
    spans: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    roles: Counter[str] = field(default_factory=Counter)
    why: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    results: int = 0
    empty: int = 0
    fewest: int | None = None
    most: int | None = None
    identified: Counter[str] = field(default_factory=Counter)
    refused: Counter[Reason] = field(default_factory=Counter)
    own: Counter[Reason] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    example: str | None = None
    recorded: str | None = None
    blank_lines: tuple[int, int] | None = None
    to_record: str | None = None
    effects: list[Effect] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)
    at_fault: dict[str, set[str]] = field(default_factory=dict)
    compared: dict[str, str] = field(default_factory=dict)
    traces_at_fault: int = 0
    _latest: str | None = None

    def add(self, one: Seen) -> None:
        """Add a span."""
        self.spans += 1
        self.outcomes[one.outcome] += 1
        self.roles[one.role] += 1
        if one.why:
            self.why[one.why] += 1
        if one.shape is not None:
            self.shapes[one.shape] += 1
        if one.place is not None:
            self.places[one.place] += 1
        self.identified.update(one.identified)
        if one.outcome == "search" and one.results is not None:
            found = len(one.results)
            self.results += found
            self.empty += not found
            self.fewest = found if self.fewest is None else min(self.fewest, found)
            self.most = found if self.most is None else max(self.most, found)
        if one.results and (self.example is None):
            self.example = example_of(one.results[0])
        if one.recorded is not None:
            blank = len(_BLANK_LINES.findall(one.recorded.strip()))
            fewest, most = self.blank_lines or (blank, blank)
            self.blank_lines = min(fewest, blank), max(most, blank)
            self.recorded = self.recorded or _cut(one.recorded)
        self.to_record = self.to_record or one.to_record
        if one.reason is not None:
            self.refused[one.reason] += 1
            if one.fault:
                self.faults[one.fault] += 1
            if one.own:
                self.own[one.reason] += 1
                self.messages.setdefault(one.reason, one.message)
        if one.own or one.rows:
            if one.trace_id != self._latest:
                self._latest = one.trace_id
                self.traces_at_fault += 1
                if len(self.at_fault) < MAX_TRIED_TRACES:
                    self.at_fault[one.trace_id] = set()
            if one.trace_id in self.at_fault:
                self.at_fault[one.trace_id].add(one.span_id)
                if (other := _OTHER_TRACE.search(one.message)) is not None:
                    self.compared[one.trace_id] = other[1]
            for row, condition in one.rows:
                if len(self.rows) < MAX_ROWS:
                    self.rows.setdefault(row, condition)


@dataclass(slots=True)
class AgentSummary:
    """What became of the traces of one agent."""

    name: str | None
    turns: int = 0
    skipped: int = 0
    searches: int = 0
    results: int = 0
    refused_turns: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)
    roles: Counter[str] = field(default_factory=Counter)
    without_role: set[str] = field(default_factory=set)
    following: int = 0
    unnamed: int = 0
    inferred: int = 0
    page_ids: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    together: Effect | None = None
    tools: dict[tuple[str, str], ToolSummary] = field(default_factory=dict)


class Explanation:
    """The explanation of many traces.

    Args:
        with_row: Returns how traces are interpreted with a row, as TOML, added to the settings, and
            with none for the empty text; None if the settings are then not valid.
        limits: The limits of events.
    """

    def __init__(self, with_row: Callable[[str], Reading | None], limits: Limits) -> None:
        self._with_row, self._limits = with_row, limits
        reading = with_row("")
        assert reading is not None
        self._mapping = reading[0]
        self._reader = TraceReader(*reading, limits)
        self._traces: list[str] = []
        self.traces = self.spans = self.repeated = self.conflicting = self.empty = 0
        self.agents: dict[str | None, AgentSummary] = {}
        self.empty_scopes: Counter[str] = Counter()
        self.empty_names: set[str] = set()
        self.left_out_tools = self.tools_not_tried = self._trials = 0

    def add_refused(self, interpretation: Interpretation) -> None:
        """Add a trace that is refused without being read."""
        self._add(interpretation, [*explain((), self._mapping, Details(), interpretation)])

    def read(self, store: TraceStore) -> None:
        """Read all traces that are stored, and try the rows that may help."""
        for found in store.traces():
            if isinstance(found, Interpretation):
                self.add_refused(found)
                continue
            interpretation, seen, details = self._reader.read(found)
            if len(self._traces) < MAX_TRIED_TRACES:
                self._traces.append(interpretation.trace_id)
            self._add(interpretation, seen)
            self._add_roles(interpretation, details)
        counts = store.counts
        read = self.spans + sum(agent.refused["bad_id"] for agent in self.agents.values())
        self.repeated = max(0, counts.spans - counts.late - counts.early - read)
        tools = [tool for agent in self.agents.values() for tool in agent.tools.values()]
        tools = sorted((tool for tool in tools if tool.rows), key=lambda tool: -tool.spans)
        for tool in tools:
            if self._trials > MAX_TRIALS:
                self.tools_not_tried += 1
            else:
                self._try_rows(tool, store)
        for agent in self.agents.values():
            self._try_together(agent, store)

    def _agent(self, name: str | None) -> AgentSummary:
        if name not in self.agents and len(self.agents) >= MAX_AGENTS:
            name = OTHER
        return self.agents.setdefault(name, AgentSummary(name))

    def _add(self, interpretation: Interpretation, seen: Iterable[Seen]) -> None:
        self.traces += 1
        self.spans += interpretation.spans
        self.conflicting += interpretation.repeated
        self.empty += not (interpretation.turns or interpretation.refused)
        for turn in interpretation.turns:
            agent = self._agent(turn.agent)
            agent.turns += 1
            agent.skipped += turn.skipped
            agent.searches += len(turn.searches)
            agent.results += sum(len(search.results) for search in turn.searches)
            agent.unnamed += turn.conversation == interpretation.trace_id
            agent.inferred += turn.iterations_inferred
            agent.page_ids.update(turn.page_ids)
        for (name, reason), number in interpretation.by_agent.items():
            self._agent(name).refused[reason] += number
        if interpretation.following and interpretation.turns:
            self._agent(interpretation.turns[0].agent).following += interpretation.following
        for one in seen:
            agent = self._agent(one.agent)
            if interpretation.service:
                agent.services.add(interpretation.service)
            tool = agent.tools.get((one.kind, one.name))
            if tool is None:
                if sum(len(a.tools) for a in self.agents.values()) >= MAX_TOOLS:
                    self.left_out_tools += 1
                    continue
                tool = ToolSummary(one.agent, one.kind, one.name)
                agent.tools[one.kind, one.name] = tool
            tool.add(one)

    def _add_roles(self, interpretation: Interpretation, details: Details) -> None:
        if details.tree is None:
            return
        refused: dict[str | None, set[str]] = {}
        for refusal in interpretation.refusals:
            turn = details.of_turn.get(refusal.span_id, "")
            refused.setdefault(refusal.agent, set()).add(turn)
        for name, turns in refused.items():
            self._agent(name).refused_turns += len(turns)
        if not (interpretation.turns or refused):
            self.empty_scopes.update(span.scope for span in details.tree.ordered)
            _add_names(self.empty_names, details.tree, details.tree.ordered[:1])
            return
        default = agent_of(interpretation)
        unknown: dict[str | None, dict[str, Span]] = {}
        for span in details.tree.ordered:
            agent = details.agents.get(details.of_turn.get(span.span_id, ""), default)
            role = details.tree.role(span)
            self._agent(agent).roles[role.value if role else "without a role"] += 1
            if role is None:
                unknown.setdefault(agent, {})[span.name] = span
        for agent, spans in unknown.items():
            _add_names(self._agent(agent).without_role, details.tree, spans.values())

    def _try_rows(self, tool: ToolSummary, store: TraceStore) -> None:
        """Note what each row would change that helps."""
        tried, of_traces = [*tool.at_fault], tool.traces_at_fault
        if "two_scopes" in tool.own:  # a choice is about all traces of the service
            pairs = ((tool.compared.get(one, one), one) for one in tried)
            tried = [*dict.fromkeys(chain(*pairs, self._traces))][:MAX_TRIED_TRACES]
            of_traces = self.traces
        refused: dict[str, set[str]] = {}
        before = self._outcome(tool.at_fault, store, tried, Effect("", ""), refused)
        for row, condition in [*tool.rows.items()][:MAX_TRIED_ROWS]:
            effect = self._outcome(tool.at_fault, store, tried, Effect(row, condition), refused)
            effect.turns_before, effect.of_traces = before.turns, of_traces
            if effect.helps(tool.kind, refused=bool(tool.own)):
                tool.effects.append(effect)
        if best := [one for one in tool.effects if one.turns > one.turns_before]:
            tool.effects = best

    def _try_together(self, agent: AgentSummary, store: TraceStore) -> None:
        """Note what the rows of several tools give together, of those with one row only, or that
        are first called no search."""
        tools = [
            tool
            for tool in agent.tools.values()
            if len(tool.effects) == 1 or (tool.effects and tool.effects[0].condition == NO_SEARCH)
        ]
        if len(tools) < 2:
            return
        at_fault: dict[str, set[str]] = {}
        for tool in tools:
            for trace, spans in tool.at_fault.items():
                at_fault.setdefault(trace, set()).update(spans)
        tried = [*at_fault][:MAX_TRIED_TRACES]
        before = self._outcome(at_fault, store, tried, Effect("", ""), {})
        conditions = dict.fromkeys(tool.effects[0].condition for tool in tools)
        condition = f"{', and '.join(conditions)} in each case"
        if [*conditions] == [NO_SEARCH]:
            condition = "if none of them is a search"
        effect = Effect(together(tool.effects[0].row for tool in tools), condition)
        self._outcome(at_fault, store, tried, effect, {})
        effect.turns_before, effect.of_traces = before.turns, len(at_fault)
        if effect.turns > max(tool.effects[0].turns for tool in tools):
            agent.together = effect

    def _outcome(
        self,
        at_fault: Mapping[str, set[str]],
        store: TraceStore,
        traces: Sequence[str],
        effect: Effect,
        refused_before: dict[str, set[str]],
    ) -> Effect:
        """Fill in what becomes of the spans at fault with the row; without one ``refused_before``,
        the spans of each trace that are refused."""
        reading = self._with_row(effect.row)
        if reading is None:
            return effect
        reader = TraceReader(*reading, self._limits)
        self._trials += len(traces)
        for trace in traces:
            mine = at_fault.get(trace, set())
            interpretation, seen, _ = reader.read(store.spans_of(trace))
            effect.traces += 1
            effect.calls += len(mine)
            effect.turns += len(interpretation.turns)
            for turn in interpretation.turns:
                effect.skipped += turn.skipped
                effect.all_searches += len(turn.searches)
                effect.all_results += sum(len(search.results) for search in turn.searches)
            after = {one.span_id: one for one in seen}
            turns = {turn.span_id for turn in interpretation.turns}
            effect.told += len(mine & turns)
            refused = {span for span, one in after.items() if one.own}
            for name in (after[span].name for span in after if span in refused - mine):
                if name and name not in effect.refusing and len(effect.refusing) < MAX_REFUSING:
                    effect.refusing.append(name)
            if not effect.row:
                refused_before[trace] = refused
            effect.new += len(refused - refused_before.get(trace, refused))
            for span in mine:
                one = after.get(span)  # none if it has a role now that finds nothing
                if one is None or one.outcome in ("no search", "inside", "around"):
                    effect.no_search += 1
                elif one.outcome == "search":
                    effect.searches += 1
                    effect.results += len(one.results or ())
                elif one.reason == "left_out" and SCOPES in effect.row:
                    effect.left_out += 1
                elif one.own:
                    effect.still += 1
                else:
                    effect.waiting += 1
        return effect


def example_of(document: Document) -> str:
    """A document on one line of ``EXAMPLE_LENGTH`` characters at most."""
    parts = (
        ("id", document.id),
        ("address", document.address),
        ("title", document.title),
        ("text", document.text),
    )
    return _cut("; ".join(f"{name}: {value}" for name, value in parts if value))


def _cut(text: str) -> str:
    """The beginning of a text on one line, with ``⏎`` where a line ends."""
    lines = text[: EXAMPLE_LENGTH * 4].strip().splitlines()
    line = re.sub("⏎ +(?=⏎)", "⏎", " ⏎ ".join(" ".join(one.split()) for one in lines))
    return line if len(line) <= EXAMPLE_LENGTH else f"{line[: EXAMPLE_LENGTH - 1]}…"


def as_documents(
    explanation: Explanation,
    others: Mapping[str, int],
    *,
    texts: bool,
    others_in: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """The explanation as plain data: one object about all traces, then one for each agent, each
    followed by those of its tools.

    Args:
        explanation: The explanation.
        others: The number of records that are no traces, by kind.
        texts: Whether to include examples of what tools returned, and names of spans that nothing
            is known about.
        others_in: The files and topics of those records.
    """
    agents = explanation.agents.values()
    unknown = ["empty_names"], ["without_role"], ["example", "recorded"]
    of_traces, of_agent, of_tool = unknown if not texts else ([], [], [])
    about = {
        "traces": explanation.traces,
        "empty": explanation.empty,
        "empty_names": sorted(explanation.empty_names),
        "empty_scopes": dict(explanation.empty_scopes.most_common()),
        "spans": explanation.spans,
        "repeated": explanation.repeated,
        "conflicting": explanation.conflicting,
        "turns": sum(agent.turns for agent in agents),
        "others": dict(others),
        "others_in": list(others_in),
        "tools_not_listed": explanation.left_out_tools,
        "tools_not_tried": explanation.tools_not_tried,
    }
    yield {"what": "traces"} | {name: about[name] for name in about if name not in of_traces}
    for agent in sorted(agents, key=lambda one: (-one.searches, -one.turns, one.name or "")):
        plain = _plain(agent, "tools", *of_agent)
        yield {"what": "agent", **plain, "services": sorted(agent.services)}
        tools = sorted(agent.tools.values(), key=lambda one: (_ORDER[one.kind], one.name))
        for tool in tools:
            yield {
                "what": "tool",
                **_plain(tool, *_INTERNAL, *of_tool),
                "not_tried": [
                    {"row": row, "condition": condition}
                    for row, condition in [*tool.rows.items()][MAX_TRIED_ROWS:]
                ],
                "help": {reason: HELP[reason] for reason in tool.own},
            }


def _add_names(names: set[str], tree: SpanTree, spans: Iterable[Span]) -> None:
    if len(names) < MAX_NAMES:
        for name in names_of(tree, spans):
            if len(names) < MAX_NAMES:
                names.add(name)


_INTERNAL: Final = ("rows", "at_fault", "compared", "traces_at_fault", "_latest")
_ORDER: Final = {"tool": 0, "retriever": 1, "reranker": 2, "span": 3, "turn": 4}


def _plain(value: Any, *without: str) -> dict[str, Any]:
    fields = {one.name: getattr(value, one.name) for one in dataclass_fields(value)}
    return {name: _as_plain(one) for name, one in fields.items() if name not in without}


def _as_plain(value: Any) -> Any:
    if isinstance(value, Counter):
        return dict(value.most_common())
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, list):
        return [asdict(one) for one in value]
    if isinstance(value, Effect):
        return asdict(value)
    return value
