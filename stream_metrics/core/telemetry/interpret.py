"""Interprets one trace: its turns, their iterations and searches, and what is refused.

The result depends on neither the order of the spans nor on repetitions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_options
from typing import Final

from msgspec.structs import replace

from stream_metrics.core.telemetry.interpretation import Interpretation, Turn
from stream_metrics.core.telemetry.labels.evaluations import Evaluation, evaluations_in_trace
from stream_metrics.core.telemetry.labels.labels import ResultIndex, UnusedScore
from stream_metrics.core.telemetry.options import DEFAULT, Options
from stream_metrics.core.telemetry.recordings import recording_of, refuse_two_scopes
from stream_metrics.core.telemetry.retrieval.calls import with_calls
from stream_metrics.core.telemetry.retrieval.document_ids import detect_text_limit
from stream_metrics.core.telemetry.retrieval.outputs import tools_of_searches
from stream_metrics.core.telemetry.retrieval.searches import (
    Retrieval,
    SpanProblem,
    find_overlooked_search,
    find_searches,
    merge_duplicates,
)
from stream_metrics.core.telemetry.roles.mapping import SETTINGS, Role, SpanMapping
from stream_metrics.core.telemetry.roles.resolution import at_resolution
from stream_metrics.core.telemetry.roles.scopes import ALL_SCOPES, scopes_setting
from stream_metrics.core.telemetry.roles.tree import SpanTree, deduplicate, kind_of
from stream_metrics.core.telemetry.spans import Span, service_of
from stream_metrics.core.telemetry.turns.groups import (
    joined_runs,
    messaged,
    sessions,
    several_questions,
)
from stream_metrics.core.telemetry.turns.left_out import may_be_left_out, refuse_left_out
from stream_metrics.core.telemetry.turns.names import agent_named
from stream_metrics.core.telemetry.turns.turns import NO_TURN, TurnBuilder
from stream_metrics.core.telemetry.turns.unseen import refuse_unseen

MAX_TURNS: Final = 10_000
MAX_SPANS: Final = "otlp.max_spans"
MAX_BYTES: Final = "otlp.max_trace_bytes"
MAX_SPAN_DEPTH: Final = 1_000


@dataclass(slots=True)
class Details:
    """How the spans of a trace were seen, for whoever explains the interpretation.

    Attributes:
        tree: The spans with their roles, and with the calls that only messages tell; None if the
            trace was refused before.
        of_turn: The turn of each span, by the ids of spans.
        agents: The agent of each turn that was built or refused.
        replaced_by: The span that has the results of a span instead, as ``ResultIndex`` has it.
    """

    tree: SpanTree | None = None
    of_turn: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, str | None] = field(default_factory=dict)
    replaced_by: Mapping[str, str] = field(default_factory=dict)


def interpret(
    spans: Iterable[Span],
    mapping: SpanMapping,
    options: Options = DEFAULT,
    details: Details | None = None,
) -> Interpretation:
    """The interpretation of the spans of one trace; never raises because of what they hold.

    ``details`` is filled in.
    """
    given = list(spans)
    interpretation, tree, results = _interpret(given, mapping, options, details)
    if tree is not None:
        if tree.left_out and may_be_left_out(interpretation, tree):
            everything = with_options(options, scopes=ALL_SCOPES)
            whole, _, _ = _interpret(given, mapping, everything)
            if refuse_left_out(interpretation, tree, whole):
                return interpretation
        evaluations = evaluations_in_trace(tree, mapping, options.grading)
        labels, unused = results.labels(evaluations, options.grading)
        interpretation.labels = tuple(labels)
        for score in sorted(unused):
            interpretation.refuse(score.reason, score.origin, score.message)
        refuse_two_scopes(interpretation, options.scopes)
    return interpretation


def apply_evaluations(
    spans: Iterable[Span], mapping: SpanMapping, options: Options, evaluations: Iterable[Evaluation]
) -> tuple[Interpretation, list[UnusedScore]]:
    """The interpretation with labels of the given evaluations, instead of those in the spans.

    The second result is the evaluations that cannot be used.
    """
    interpretation, _, results = _interpret(spans, mapping, options)
    labels, unused = results.labels(evaluations, options.grading)
    interpretation.labels = tuple(labels)
    return interpretation, unused


def _interpret(
    spans: Iterable[Span],
    mapping: SpanMapping,
    options: Options,
    details: Details | None = None,
) -> tuple[Interpretation, SpanTree | None, ResultIndex]:
    """The turns of a trace, its tree unless it is too large, and an index of its results."""
    given = list(spans)
    interpretation = Interpretation(next((span.trace_id for span in given), ""))
    interpretation.service = interpretation.agent = next(filter(None, map(service_of, given)), None)
    kept = deduplicate(span for span in given if span.trace_id and span.span_id)
    for span in given:
        if not (span.trace_id and span.span_id):
            interpretation.refuse(
                "bad_id", span.span_id, "the span has no trace id or no span id of the right length"
            )
    interpretation.spans = len(kept)
    interpretation.repeated = len(given) - interpretation.spans - interpretation.refused["bad_id"]
    interpretation.kinds = Counter(kind_of(span) for span in kept)
    if interpretation.refused["bad_id"]:
        # One of the dropped spans may be a search.
        return interpretation, None, ResultIndex(None, (), {})
    if len(kept) > options.max_spans:
        interpretation.refuse(
            "too_large",
            "",
            f"the trace has {len(kept):,} spans, more than {options.max_spans:,}",
            limit=MAX_SPANS,
        )
        return interpretation, None, ResultIndex(None, (), {})
    kept, coarse = at_resolution(kept)
    tree = SpanTree(kept, mapping, options.scopes, coarse)
    more, told = with_calls(tree)
    if more is not None:
        kept = more
        tree = SpanTree(kept, mapping, options.scopes, coarse)
    moved = tools_of_searches(tree)
    if moved is None:
        interpretation.refuse("too_large", "", "too many of its tools ran beside its searches")
        return interpretation, None, ResultIndex(None, (), {})
    if moved:
        kept = [replace(span, parent_id=moved.get(span.span_id, span.parent_id)) for span in kept]
        tree = SpanTree(kept, mapping, options.scopes, coarse)
    tree.told = told
    turns = tree.with_role(Role.TURN)
    if turns:
        interpretation.agent = agent_named(turns[0], mapping, tree) or interpretation.service
    if details is not None:
        details.tree = tree
    if tree.depth > MAX_SPAN_DEPTH or len(turns) > MAX_TURNS:
        message = f"its spans are nested {tree.depth:,} deep, and {len(turns):,} are turns"
        interpretation.refuse("too_large", "", message)
        return interpretation, None, ResultIndex(None, (), {})
    for span in tree.in_cycles:
        interpretation.refuse("cycle", span.span_id, "the span is its own ancestor")
    if options.missing_parents == "refuse":
        for span in tree.orphans:
            interpretation.refuse(
                "incomplete", span.span_id, f"its parent {span.parent_id} is missing"
            )
        if tree.orphans:
            return interpretation, tree, ResultIndex(tree, (), {})
    replaced_by = {}
    if not tree.in_cycles and kept:
        replaced_by = _add_turns(tree, mapping, options, interpretation, details)
    return interpretation, tree, ResultIndex(tree, interpretation.turns, replaced_by)


def _add_turns(
    tree: SpanTree,
    mapping: SpanMapping,
    options: Options,
    interpretation: Interpretation,
    details: Details | None,
) -> dict[str, str]:
    """Add the turns; for each span whose results another span has now, that span's id."""
    text_limit = detect_text_limit(tree.ordered)
    retrievals, problems, covered = find_searches(tree, mapping, interpretation, text_limit.certain)
    retrievals, more, pairs = merge_duplicates(tree, retrievals, interpretation)
    problems += more
    problems += _ambiguous_runs(tree)
    turns, of_turn, ambiguous, unclear = _turns(tree, mapping, retrievals, pairs, options)
    if options.turn == "span":
        problems += _ambiguous_graphs(tree)
    if options.turn == "span" and None in turns.values():
        problems += _ambiguous_parts(tree, mapping, covered)
        problems += several_questions(tree)
    elif options.turn == "span":
        problems += sessions(tree, mapping, turns)
    if options.turn == "span" and (retrievals or None not in turns.values()):
        problems += messaged(tree, turns)
    searches_of: dict[str, list[Retrieval]] = {id: [] for id in (NO_TURN, *turns)}
    problems_of: dict[str, list[SpanProblem]] = {id: [] for id in (NO_TURN, *turns)}
    for id in ambiguous:
        kept = tree.by_id[id]
        message = (
            "another instrumentation recorded several turns instead of this one; "
            + scopes_setting(service_of(kept), kept.scope)
        )
        problems_of[id].append(SpanProblem(kept, "two_scopes", message))
    for retrieval in retrievals:
        searches_of[of_turn.get(retrieval.span.span_id, NO_TURN)].append(retrieval)
    affecting_nested = {
        problem.span.span_id: problem for problem in problems if problem.affects_nested_turns
    }
    outer = tree.outermost(affecting_nested)
    inside = {id: outer[id] for id in turns if outer.get(id, id) != id}
    covering = set(inside.values())
    for id, outermost in inside.items():
        problems_of[id].append(affecting_nested[outermost])
    for problem in problems:
        if problem.span.span_id not in covering:
            problems_of[of_turn.get(problem.span.span_id, NO_TURN)].append(problem)
    for retrieval in searches_of[NO_TURN]:
        interpretation.refuse(
            "outside_turn", retrieval.span.span_id, "the search is outside the turns of its trace"
        )
    for problem in problems_of[NO_TURN]:
        interpretation.refuse(problem.reason, problem.span.span_id, problem.message)
    by_number: dict[tuple[str, int], Turn] = {}
    parts = unclear.keys() | unclear.values()
    builder = TurnBuilder(
        tree, mapping, options, interpretation, covered, of_turn, text_limit, retrievals
    )
    for id, span in turns.items():
        turn = builder.build(id, span, searches_of[id], problems_of[id])
        if turn is None:
            continue
        if turn.skipped and id in parts:
            message = "it has no search, and may be a part of the turn of another agent"
            interpretation.refuse("unrecognised", id, message, turn.agent)
            continue
        key = (turn.conversation, turn.number)
        if key in by_number:
            interpretation.refuse(
                "turn_conflict", id, f"it begins at the same time as {by_number[key].span_id}"
            )
            continue
        by_number[key] = turn
        interpretation.following += id in unclear
    if (
        not by_number
        and not interpretation.refused
        and (seen := find_overlooked_search(tree)) is not None
    ):
        interpretation.refuse(seen.reason, seen.span.span_id, seen.message)
    elif not by_number and not interpretation.refused:
        refuse_unseen(tree, mapping, interpretation)
    interpretation.turns = tuple(
        by_number[key] for key in sorted(by_number, key=lambda key: (key[1], key[0]))
    )
    interpretation.recordings = tuple(
        recording_of(tree.by_id[turn.span_id], builder.used[turn.span_id])
        for turn in interpretation.turns
    )
    used = (retrieval for retrievals in builder.used.values() for retrieval in retrievals)
    whole = {part: retrieval.span.span_id for retrieval in used for part in retrieval.parts}
    replaced_by = {id: whole.get(outer, outer) for id, outer in covered.items()} | whole
    if details is not None:
        details.of_turn, details.agents = of_turn, builder.agents
        details.replaced_by = replaced_by
    return replaced_by


def _ambiguous_runs(tree: SpanTree) -> Iterable[SpanProblem]:
    """Turns that may be several, because an agent that runs once per turn occurs repeatedly in
    them."""
    names: set[tuple[str, str]] = set()
    for span in tree.with_role(Role.TURN):
        outer = tree.parent(span)
        key = (span.parent_id, span.text("gen_ai.agent.name") or span.name)
        if (
            not tree.rows[span.span_id].once_per_run
            or outer is None
            or tree.role(outer) is not Role.TURN
        ):
            continue
        if key in names:
            message = f"{key[1]!r} runs several times in it, which may be one turn or several"
            yield SpanProblem(outer, "unrecognised", message)
        names.add(key)


def _ambiguous_graphs(tree: SpanTree) -> Iterable[SpanProblem]:
    """Chains that may contain several turns, or be one turn of which the graphs are parts.

    If a model is called outside the graphs, they are parts.
    """
    candidates = tree.outermost(id for id, row in tree.rows.items() if row.maybe_turn)
    graphs = [span for span in tree.with_role(Role.TURN) if tree.rows[span.span_id].maybe_turn]
    inside = tree.outermost(span.span_id for span in graphs)
    in_turns = tree.nearest_ancestor(Role.TURN)
    answering: dict[str, set[str]] = {}
    for span in tree.with_role(Role.MODEL):
        if (around := candidates.get(span.span_id)) is not None:
            answering.setdefault(around, set()).add(inside.get(span.span_id, ""))
    for id, graph_ids in answering.items():
        outer = tree.by_id[id]
        if tree.role(outer) is Role.TURN or id in in_turns:
            continue
        if len(graph_ids) > 1 and "" not in graph_ids:
            message = (
                f"{len(graph_ids)} graphs are in {outer.name!r}; each may be a turn, or part of one"
            )
            yield SpanProblem(outer, "unrecognised", message)


def _ambiguous_parts(
    tree: SpanTree, mapping: SpanMapping, covered: dict[str, str]
) -> Iterable[SpanProblem]:
    """Sibling spans of one name that all contain searches, so that each may be a turn."""
    around = tree.ancestors(covered) - tree.ignored
    names: set[tuple[str, str]] = set()
    for span in tree.ordered:
        if span.span_id not in around:
            continue
        row = tree.rows.get(span.span_id)
        other = row is not None and row.role is Role.OTHER and row.source != SETTINGS
        new = other and mapping.kinds.is_unknown(span)
        if row is not None and (span.parent_id in tree.rows or not (row.maybe_turn or new)):
            continue
        key = (span.parent_id, span.name)
        if key in names:
            message = (
                f"several {span.name!r} spans have searches; each may be a turn, or part of one"
            )
            yield SpanProblem(span, "unrecognised", message)
            return
        names.add(key)


def _turns(
    tree: SpanTree,
    mapping: SpanMapping,
    retrievals: Sequence[Retrieval],
    pairs: Sequence[tuple[str, str]],
    options: Options,
) -> tuple[dict[str, Span | None], dict[str, str], set[str], dict[str, str]]:
    """The turns by the ids of their spans in order of start, and the turn of each span.

    The third result is the turns that are several for another instrumentation, and the fourth
    those that follow one of another agent, with that one, without a message that says whether they
    are its parts.

    Without turn spans the trace is the turn, under the id of its first span. Overlapping turn spans
    of two instrumentations that have the same searches, or none, are one turn.
    """
    first = min(tree.ordered, key=_by_start)
    of_turn = tree.outermost(_turn_spans(tree)) if options.turn == "span" else {}
    if not of_turn:
        whole = {span.span_id: first.span_id for span in tree.ordered}
        return {first.span_id: None}, whole, set(), {}
    spans = sorted((tree.by_id[id] for id in set(of_turn.values())), key=_by_start)
    joined, unclear = joined_runs(tree, mapping, spans)
    of_turn = {id: joined.get(turn, turn) for id, turn in of_turn.items()}
    spans = [span for span in spans if span.span_id not in joined]
    with_searches = {
        of_turn[retrieval.span.span_id]
        for retrieval in retrievals
        if retrieval.span.span_id in of_turn
    }
    partners: dict[str | None, set[str | None]] = defaultdict(set)
    for pair in pairs:
        one, other = (of_turn.get(id) for id in pair)
        partners[one].add(other)
        partners[other].add(one)
    searched = with_searches | partners.keys()
    stands_for: dict[str, str] = {}
    kept: dict[str, Span] = {}
    running, without_searches = _Running(), _Running()
    merged_into: Counter[tuple[str, str]] = Counter()
    for span in spans:
        if span.span_id in with_searches:
            kept_partners = [kept[id] for id in partners[span.span_id] if id in kept]
            same = [earlier for earlier in kept_partners if _overlap_across_scopes(earlier, span)]
            same += without_searches.first_of_another_scope(span)
        else:
            same = running.first_of_another_scope(span)
        if same:
            earliest = min(same, key=_by_start).span_id
            stands_for[span.span_id] = earliest
            merged_into[earliest, span.scope] += span.span_id in searched
        else:
            kept[span.span_id] = span
            running.spans.append(span)
            if span.span_id not in with_searches:
                without_searches.spans.append(span)
    members = {id: stands_for.get(turn, turn) for id, turn in of_turn.items()}
    several = {id for (id, _), number in merged_into.items() if number > 1}
    return dict(kept), members, several, unclear


class _Running:
    """Turn spans in order of start, for lookups of the first one that has not ended yet.

    Lookups come in order of start, too, so that a span that has ended is skipped for good.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._first = self._other = 0

    def first_of_another_scope(self, span: Span) -> list[Span]:
        """The first span of another scope that has not ended when this one starts, or nothing."""
        spans = self.spans
        while self._first < len(spans) and spans[self._first].end_ns < span.start_ns:
            self._first += 1
        if self._first == len(spans):
            return []
        first = spans[self._first]
        if first.scope != span.scope:
            return [first]
        # All between the first one and the other have ended or are of the first one's scope.
        self._other = max(self._other, self._first + 1)
        while self._other < len(spans) and not _overlap_across_scopes(spans[self._other], span):
            self._other += 1
        return spans[self._other : self._other + 1]


def _overlap_across_scopes(earlier: Span, span: Span) -> bool:
    """Whether the spans are of two scopes, and the later starts before the earlier one ends."""
    return earlier.scope != span.scope and earlier.end_ns >= span.start_ns


def _by_start(span: Span) -> tuple[int, str]:
    return span.start_ns, span.span_id


def _turn_spans(tree: SpanTree) -> set[str]:
    """The outermost turn spans, without those that contain separate runs.

    A span that a program itself named a turn yields to a single turn inside it; with several inside
    it remains the turn.
    """
    spans = {span.span_id for span in tree.with_role(Role.TURN)}
    candidates = {id for id, row in tree.rows.items() if row.maybe_turn}
    if candidates & spans:
        outer = tree.outermost(candidates)
        spans -= {id for id in candidates if outer[id] != id}
    named = {id for id in spans if tree.rows[id].yields_to_inner}
    spans -= named
    runs = {id for id in spans if tree.rows[id].replaces_outer}
    spans = runs | (spans - tree.ancestors(runs))
    inside = tree.outermost(named)
    number = Counter(inside[id] for id in set(tree.outermost(spans).values()) if id in inside)
    return spans | {id for id in named if number[id] != 1}
