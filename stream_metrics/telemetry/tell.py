"""What one trace tells: its turns, their iterations and searches, and what cannot be used.

Pure: the same spans tell the same, in whichever order they came and however often.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from stream_metrics.telemetry.evaluations import Evaluation, in_trace
from stream_metrics.telemetry.handed_on import inside_tools
from stream_metrics.telemetry.identity import cut_at
from stream_metrics.telemetry.labels import Results, Unused
from stream_metrics.telemetry.mapping import SETTINGS, Mapping, Role
from stream_metrics.telemetry.options import DEFAULT, Options
from stream_metrics.telemetry.searches import Doubt, Got, merged, overlooked, searches
from stream_metrics.telemetry.spans import Span, service_of, text
from stream_metrics.telemetry.told import Told, Turn
from stream_metrics.telemetry.tree import Tree, kind, unrepeated
from stream_metrics.telemetry.turns import MISSED, Turns, named_by

MOST_TURNS: Final = 10_000
DEEPEST_SPANS: Final = 1_000


def tell(spans: Iterable[Span], mapping: Mapping, options: Options = DEFAULT) -> Told:
    """What the spans of one trace tell; never raises on what they hold."""
    told, tree, results = _tell(spans, mapping, options)
    if tree is not None:
        evaluations = in_trace(tree, mapping, options.grading)
        labels, unused = results.labels(evaluations, options.grading)
        told.labels = tuple(labels)
        for one in sorted(unused):
            told.refuse(one.reason, one.origin, one.message)
    return told


def judge(
    spans: Iterable[Span], mapping: Mapping, options: Options, evaluations: Iterable[Evaluation]
) -> tuple[Told, list[Unused]]:
    """The same with labels of evaluations from elsewhere, instead of those that the spans hold.

    Second are the evaluations that cannot be used.
    """
    told, _, results = _tell(spans, mapping, options)
    labels, unused = results.labels(evaluations, options.grading)
    told.labels = tuple(labels)
    return told, unused


def _tell(
    spans: Iterable[Span], mapping: Mapping, options: Options
) -> tuple[Told, Tree | None, Results]:
    """The turns of a trace, its tree unless it is too large, and where its results are found."""
    given = list(spans)
    told = Told(next((span.trace_id for span in given), ""))
    told.service = told.agent = next(filter(None, map(service_of, given)), None)
    kept = unrepeated(span for span in given if span.trace_id and span.span_id)
    for span in given:
        if not (span.trace_id and span.span_id):
            told.refuse(
                "bad_id", span.span_id, "the span has no trace id or no span id of the right length"
            )
    told.spans = len(kept)
    told.repeated = len(given) - told.spans - told.refused["bad_id"]
    told.kinds = Counter(kind(span) for span in kept)
    if told.refused["bad_id"]:
        # One of the spans that are missing may be a search.
        return told, None, Results(None, (), {})
    if len(kept) > options.max_spans:
        told.refuse(
            "too_large", "", f"the trace has {len(kept):,} spans, more than {options.max_spans:,}"
        )
        return told, None, Results(None, (), {})
    tree = Tree(kept, mapping, options.scopes)
    if moved := inside_tools(tree):
        kept = [replace(one, parent_id=moved.get(one.span_id, one.parent_id)) for one in kept]
        tree = Tree(kept, mapping, options.scopes)
    turns = tree.of(Role.TURN)
    if turns:
        told.agent = named_by(turns[0], tree, mapping) or told.service
    if tree.depth > DEEPEST_SPANS or len(turns) > MOST_TURNS:
        message = f"its spans are nested {tree.depth:,} deep, and {len(turns):,} are turns"
        told.refuse("too_large", "", message)
        return told, None, Results(None, (), {})
    for span in tree.circular:
        told.refuse("cycle", span.span_id, "the span is inside of itself")
    if options.missing_parents == "refuse":
        for span in tree.missing:
            told.refuse("incomplete", span.span_id, f"its parent {span.parent_id} never came")
        if tree.missing:
            return told, tree, Results(tree, (), {})
    became = {}
    if not tree.circular and kept:
        became = _tell_turns(tree, mapping, options, told)
    return told, tree, Results(tree, told.turns, became)


def _tell_turns(tree: Tree, mapping: Mapping, options: Options, told: Told) -> dict[str, str]:
    """Add the turns; of the spans whose results another span has now, that span's id."""
    cut = cut_at(tree.ordered)
    found, doubts, covered = searches(tree, mapping, told, cut.certain)
    found, more, pairs = merged(tree, found, told, options.scopes)
    doubts += more
    doubts += _runs_unclear(tree)
    turns, of_turn, several = _turns(tree, found, pairs, options)
    if options.turn == "span":
        doubts += _graphs_unclear(tree)
    if options.turn == "span" and None in turns.values():
        doubts += _parts_unclear(tree, mapping, covered)
    got: dict[str, list[Got]] = {id: [] for id in (MISSED, *turns)}
    unsure: dict[str, list[Doubt]] = {id: [] for id in (MISSED, *turns)}
    for id in several:
        message = "one instrumentation has several turns where another has this one"
        unsure[id].append(Doubt(tree.by_id[id], "two_scopes", message))
    for one in found:
        got[of_turn.get(one.span.span_id, MISSED)].append(one)
    wide = {doubt.span.span_id: doubt for doubt in doubts if doubt.around}
    outer = tree.marked(wide)
    inside = {id: outer[id] for id in turns if outer.get(id, id) != id}
    told_inside = set(inside.values())
    for id, around in inside.items():
        unsure[id].append(wide[around])
    for doubt in doubts:
        if doubt.span.span_id not in told_inside:
            unsure[of_turn.get(doubt.span.span_id, MISSED)].append(doubt)
    for one in got[MISSED]:
        told.refuse("outside_turn", one.span.span_id, "the search is outside of the trace's turns")
    for doubt in unsure[MISSED]:
        told.refuse(doubt.reason, doubt.span.span_id, doubt.message)
    done: dict[tuple[str, int], Turn] = {}
    rest = Turns(tree, mapping, options, told, covered, of_turn, cut)
    for id, span in turns.items():
        turn = rest.turn(id, span, got[id], unsure[id])
        if turn is None:
            continue
        key = (turn.conversation, turn.number)
        if key in done:
            told.refuse("turn_conflict", id, f"it begins with {done[key].span_id}")
            continue
        done[key] = turn
    if not done and not told.refused and (seen := overlooked(tree)) is not None:
        told.refuse(seen.reason, seen.span.span_id, seen.message)
    told.turns = tuple(done[key] for key in sorted(done, key=lambda key: (key[1], key[0])))
    scoped = {one.span.span_id: one.span for one in rest.used}
    told.scopes = frozenset(
        (text(span.resource.get("service.name")) or "", span.scope) for span in scoped.values()
    )
    whole = {part: one.span.span_id for one in rest.used for part in one.parts}
    return {id: whole.get(outer, outer) for id, outer in covered.items()} | whole


def _runs_unclear(tree: Tree) -> Iterable[Doubt]:
    """Turns that may be several, as an agent that a run has once is in them more often."""
    names: set[tuple[str, str]] = set()
    for span in tree.of(Role.TURN):
        outer = tree.parent(span)
        key = (span.parent_id, span.text("gen_ai.agent.name") or span.name)
        if not tree.rows[span.span_id].once or outer is None or tree.role(outer) is not Role.TURN:
            continue
        if key in names:
            message = f"{key[1]!r} runs several times in it, and nothing tells whether for one turn"
            yield Doubt(outer, "unrecognised", message)
        names.add(key)


def _graphs_unclear(tree: Tree) -> Iterable[Doubt]:
    """Chains that may be a session of graphs, or a graph of which these are parts.

    A model beside the graphs asks for them, so that they are parts.
    """
    perhaps = tree.marked(id for id, row in tree.rows.items() if row.maybe_turn)
    graphs = [span for span in tree.of(Role.TURN) if tree.rows[span.span_id].maybe_turn]
    inside = tree.marked(span.span_id for span in graphs)
    in_turns = tree.nearest(Role.TURN)
    answering: dict[str, set[str]] = {}
    for span in tree.of(Role.MODEL):
        if (around := perhaps.get(span.span_id)) is not None:
            answering.setdefault(around, set()).add(inside.get(span.span_id, ""))
    for id, found in answering.items():
        outer = tree.by_id[id]
        if tree.role(outer) is Role.TURN or id in in_turns:
            continue
        if len(found) > 1 and "" not in found:
            message = f"{len(found)} graphs are in {outer.name!r}: turns each, or its parts"
            yield Doubt(outer, "unrecognised", message)


def _parts_unclear(tree: Tree, mapping: Mapping, covered: dict[str, str]) -> Iterable[Doubt]:
    """Spans that may be turns each, as those of a program: of one name, and all with searches."""
    around = tree.around(covered) - tree.ignored
    names: set[tuple[str, str]] = set()
    for span in tree.ordered:
        if span.span_id not in around:
            continue
        row = tree.rows.get(span.span_id)
        other = row is not None and row.role is Role.OTHER and row.source != SETTINGS
        new = other and mapping.kinds.is_new(span)
        if row is not None and (span.parent_id in tree.rows or not (row.maybe_turn or new)):
            continue
        key = (span.parent_id, span.name)
        if key in names:
            message = f"several {span.name!r} have searches; each may be a turn, or a part of one"
            yield Doubt(span, "unrecognised", message)
            return
        names.add(key)


def _turns(
    tree: Tree, found: Sequence[Got], pairs: Sequence[tuple[str, str]], options: Options
) -> tuple[dict[str, Span | None], dict[str, str], set[str]]:
    """The turns by their spans' ids, in order of start, and of each span the turn it is of.

    Third are turns that are several for another instrumentation.

    Without turn spans the trace is the turn, under the id of its first span. Turn spans of two
    instrumentations that overlap, and have the same searches or none, are one turn.
    """
    first = min(tree.ordered, key=_by_start)
    of_turn = tree.marked(_turn_spans(tree)) if options.turn == "span" else {}
    if not of_turn:
        return {first.span_id: None}, {span.span_id: first.span_id for span in tree.ordered}, set()
    spans = sorted((tree.by_id[id] for id in set(of_turn.values())), key=_by_start)
    busy = {of_turn[one.span.span_id] for one in found if one.span.span_id in of_turn}
    partners: dict[str | None, set[str | None]] = defaultdict(set)
    for pair in pairs:
        one, other = (of_turn.get(id) for id in pair)
        partners[one].add(other)
        partners[other].add(one)
    searched = busy | partners.keys()
    stands_for: dict[str, str] = {}
    kept: dict[str, Span] = {}
    open_, idle = _Open(), _Open()
    joined: Counter[tuple[str, str]] = Counter()
    for span in spans:
        if span.span_id in busy:
            kept_partners = [kept[id] for id in partners[span.span_id] if id in kept]
            alike = [earlier for earlier in kept_partners if _overlap_across_scopes(earlier, span)]
            alike += idle.first_of_another_scope(span)
        else:
            alike = open_.first_of_another_scope(span)
        if alike:
            earliest = min(alike, key=_by_start).span_id
            stands_for[span.span_id] = earliest
            joined[earliest, span.scope] += span.span_id in searched
        else:
            kept[span.span_id] = span
            open_.spans.append(span)
            if span.span_id not in busy:
                idle.spans.append(span)
    members = {id: stands_for.get(turn, turn) for id, turn in of_turn.items()}
    several = {id for (id, _), number in joined.items() if number > 1}
    return dict(kept), members, several


class _Open:
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


def _turn_spans(tree: Tree) -> set[str]:
    """The spans that are turns, of which the outermost count: none that has runs inside of it.

    What a program names a turn has several agents side by side, or one, which then is the turn.
    """
    spans = {span.span_id for span in tree.of(Role.TURN)}
    perhaps = {id for id, row in tree.rows.items() if row.maybe_turn}
    if perhaps & spans:
        outer = tree.marked(perhaps)
        spans -= {id for id in perhaps if outer[id] != id}
    named = {id for id in spans if tree.rows[id].unless_around}
    spans -= named
    runs = {id for id in spans if tree.rows[id].also_inside}
    spans = runs | (spans - tree.around(runs))
    inside = tree.marked(named)
    number = Counter(inside[id] for id in set(tree.marked(spans).values()) if id in inside)
    return spans | {id for id in named if number[id] != 1}
