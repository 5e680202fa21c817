"""The turns of a trace: the iterations of each, what it found, and what is uncertain of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from stream_metrics.events.decode import EARLIEST_US, LATEST_US
from stream_metrics.telemetry.documents import Document, Known
from stream_metrics.telemetry.handed_on import (
    left_beside,
    not_all_shown,
    not_handed_on,
    side_by_side_or_nested,
)
from stream_metrics.telemetry.identity import Cut, Identities
from stream_metrics.telemetry.iterations import Call, Placed, by_models, by_steps, by_time
from stream_metrics.telemetry.mapping import Mapping, Role
from stream_metrics.telemetry.options import Options
from stream_metrics.telemetry.reranking import reranked, rerankers
from stream_metrics.telemetry.searches import Doubt, Got, held
from stream_metrics.telemetry.spans import LONGEST_NAME, Span, service_of, short, text
from stream_metrics.telemetry.steps import changed
from stream_metrics.telemetry.texts import (
    answer_of,
    calls_tools,
    question_of,
    said,
    searches_itself,
)
from stream_metrics.telemetry.told import Result, Search, Told, Turn
from stream_metrics.telemetry.tree import Tree

MOST_RESULTS: Final = 2_000
LONGEST_ID: Final = 128
CLOCKS_NS: Final = 1_000_000  # by which clocks of one process may disagree
MISSED: Final = ""
"""In the place of a turn, for what is of none."""
_DECIDING: Final = (Role.MODEL, Role.STEP)
_TIMED: Final = (Role.SEARCH, Role.TOOL, Role.MODEL, Role.STEP)


class Turns:
    """What is needed to tell the turns of a trace."""

    def __init__(
        self,
        tree: Tree,
        mapping: Mapping,
        options: Options,
        told: Told,
        covered: dict[str, str],
        of_turn: dict[str, str],
        cut: Cut,
    ) -> None:
        self._tree, self._mapping, self._options = tree, mapping, options
        self._told, self._cut = told, cut
        self.used: list[Got] = []
        self._calls = tree.nearest(Role.TOOL, Role.SEARCH)
        self._steps = tree.nearest(Role.STEP)
        self._agents_around = tree.nearest(Role.TURN)
        self._asking = tree.around(span.span_id for span in tree.of(Role.MODEL))
        self._rerankers = rerankers(tree, covered)
        self._searching = covered.keys() | tree.marked(self._rerankers).keys()
        self._aside = self._searching | tree.ignored | tree.around(covered)
        self._members: dict[str, list[Span]] = {}
        for span in tree.ordered:
            self._members.setdefault(of_turn.get(span.span_id, MISSED), []).append(span)
        self._conversations: dict[str, str | None] = {}
        self._agents: dict[str, str | None] = {}
        self._releases: dict[str, str | None] = {}
        for span in tree.ordered:
            for names, inherited in (
                (mapping.conversation, self._conversations),
                (mapping.agent, self._agents),
                (mapping.release, self._releases),
            ):
                longest = LONGEST_NAME if names is not mapping.conversation else 0
                own = said(span.attributes, names, longest)
                inherited[span.span_id] = own or inherited.get(span.parent_id)
        self._named = {
            name for span in tree.ordered if (name := said(span.attributes, mapping.conversation))
        }

    def turn(
        self, id: str, span: Span | None, found: list[Got], doubts: list[Doubt]
    ) -> Turn | None:
        """One turn, or None if there is none to tell."""
        members = self._members.get(id, [])
        before = found
        later = [one for one in members if one.span_id in self._rerankers]
        found, more = reranked(self._tree, found, later, self._told)
        doubts = [*doubts, *more, *self._unusable(found), *self._hosted(members)]
        if found:
            doubts += self._untimely(id, members)
        doubts += self._shortened(members)
        numbers, inferred = self._iterations(members, found)
        inferred = inferred or (len(found) > 1 and self._untidy(members))
        if found and not doubts:
            doubts = [
                *changed(self._tree, members, self._aside, [*before, *found]),
                *side_by_side_or_nested(self._tree, before),
                *left_beside(found, numbers, inferred),
                *not_handed_on(self._tree, before, found, numbers),
                *not_all_shown(self._models(members), found),
            ]
        for doubt in doubts:
            of_span = self._agent(doubt.span, span)
            self._told.refuse(doubt.reason, doubt.span.span_id, doubt.message, of_span)
        if doubts:
            return None
        place = self._tree.by_id[id]
        agent = self._agent(place, span)
        skipped = not found and span is not None and self._answered(span, members)
        if not found and span and any(held(one) for one in members if self._hides(one)):
            message = "no span in it is a search, and it has documents"
            self._told.refuse("unrecognised", id, message, agent)
            return None
        if not found and not skipped:
            return None
        if skipped and self._calls_unseen(members):
            message = "a model in it called tools, and no span tells what these returned"
            self._told.refuse("unrecognised", id, message, agent)
            return None
        if skipped and not _timely(place):
            self._told.refuse("time_out_of_range", id, _time_of(place), agent)
            return None
        conversation = self._conversation(place, found, agent)
        if conversation is None:
            return None
        self.used += found
        order = sorted(
            found, key=lambda one: (numbers[one.span.span_id], one.start_ns, one.span.span_id)
        )
        ordinals: Counter[int] = Counter()
        told = []
        identities = self._identities(found)
        for one in order:
            number = numbers[one.span.span_id]
            told.append(
                Search(
                    one.span.span_id,
                    one.span.start_ns,
                    number,
                    ordinals[number],
                    self._text(one.query),
                    one.route,
                    self._agent(one.span, span),
                    self._release(one.span),
                    self._results(one, identities),
                )
            )
            ordinals[number] += 1
        row = self._tree.rows.get(id)
        asked = question_of(span, row.query) if span is not None and row is not None else None
        return Turn(
            conversation,
            place.start_ns // 1000,
            id,
            tuple(told),
            inferred,
            skipped,
            agent,
            self._release(place),
            self._text(self._answer(span, members, found)),
            self._text(asked),
        )

    def _text(self, found: str | None) -> str | None:
        """A text, if texts are wanted and it is whole."""
        return found if self._options.content and not self._cut.shortened(found) else None

    def _identities(self, found: Sequence[Got]) -> Identities:
        return Identities([one.documents for one in found], self._cut)

    def _results(self, got: Got, identities: Identities) -> tuple[Result, ...]:
        before = Known(got.before or ())
        return tuple(self._result(one, before, identities) for one in got.documents)

    def _result(self, document: Document, before: Known, identities: Identities) -> Result:
        about, place = document.about, before.place(document)
        fields = {name: about[name] for name in self._options.fields if name in about}
        return Result(
            document,
            identities.of(document),
            None if place is None else place + 1,
            {name: found for name in self._options.ids if (found := text(about.get(name)))},
            {name: one for name, one in fields.items() if isinstance(one, (str, bool, int, float))},
        )

    def _hides(self, span: Span) -> bool:
        """Whether the span may have searched without saying so."""
        return self._tree.role(span) in (None, Role.OTHER, Role.POSTPROCESSOR)

    def _unusable(self, found: Sequence[Got]) -> Iterable[Doubt]:
        identities = self._identities(found)
        for one in found:
            if len(one.documents) > MOST_RESULTS:
                yield Doubt(one.span, "too_large", f"it has more than {MOST_RESULTS:,} documents")
            elif (problem := identities.problem(one.documents)) is not None:
                yield Doubt(one.span, *problem)

    def _untimely(self, id: str, members: Sequence[Span]) -> Iterable[Doubt]:
        """Spans with times that cannot be, if what the turn tells depends on these."""
        for span in members:
            aside = self._tree.role(span) in (None, Role.OTHER, Role.EVALUATOR)
            if not _timely(span) and (not aside or not span.parent_id or span.span_id == id):
                yield Doubt(span, "time_out_of_range", _time_of(span))

    def _shortened(self, members: Sequence[Span]) -> Iterable[Doubt]:
        """What a limit of the length of texts cut off of the names of conversations and agents."""
        mapping, cut = self._mapping, self._cut
        for span in members:
            if (holder := mapping.kinds.cut_holder(span)) is not None:
                yield Doubt(span, "truncated", f"the attribute {holder} was cut off")
                return
            for names in (mapping.conversation, mapping.agent, mapping.release):
                name = said(span.attributes, names) if cut.certain is not None else None
                if cut.shortened(name):
                    yield Doubt(span, "truncated", f"the name {name!r} was cut off")
                    return

    def _hosted(self, members: Sequence[Span]) -> Iterable[Doubt]:
        """Models that searched where they run: their answers do not say what they got for it."""
        for one in self._models(members):
            if searches_itself(one, self._tree.rows[one.span_id].answer):
                message = f"{one.name!r} has searches of the model's host"
                yield Doubt(one, "unrecognised", message)

    def _calls_unseen(self, members: Sequence[Span]) -> bool:
        """Whether a model called tools that have no spans."""
        if any(self._tree.role(one) is Role.TOOL for one in members):
            return False
        return any(
            calls_tools(one, self._tree.rows[one.span_id].answer) for one in self._models(members)
        )

    def _models(self, members: Sequence[Span]) -> list[Span]:
        return [one for one in members if self._tree.role(one) is Role.MODEL]

    def _unasked(
        self, members: Sequence[Span], found: Sequence[Got], numbers: dict[str, int]
    ) -> bool:
        """Whether an agent in the turn searched several times, and its model has no spans."""
        nearest = self._agents_around
        asking = {nearest.get(one.span_id) for one in members if self._tree.role(one) in _DECIDING}
        once: set[tuple[str, int]] = set()
        for one in found:
            agent = nearest.get(one.span.span_id)
            if agent is None or agent not in nearest or agent in asking:
                continue  # of no agent, or of the outermost
            if (key := (agent, numbers[one.span.span_id])) in once:
                return True
            once.add(key)
        return False

    def _side_by_side(self, members: Sequence[Span], found: Sequence[Got]) -> bool:
        """Whether agents that are no tools ran at once, so that a model separates all searches."""
        searching = self._tree.around(one.span.span_id for one in found)
        both = searching & self._asking
        beside: dict[str, list[Span]] = {}
        for span in members:
            if span.span_id in both and self._tree.role(span) is not Role.TOOL:
                beside.setdefault(span.parent_id, []).append(span)
        return any(_overlap(spans) for spans in beside.values())

    def _interrupted(
        self, members: Sequence[Span], found: Sequence[Got], numbers: dict[str, int]
    ) -> bool:
        """Whether something else began between two searches of one iteration.

        A program's own step decided on the second then, or the span of a model call was lost.
        """
        starts = sorted(
            span.start_ns
            for span in members
            if self._tree.role(span) in (None, Role.OTHER) and span.span_id not in self._aside
        )
        order = sorted(found, key=lambda one: (numbers[one.span.span_id], one.start_ns))
        for one, other in pairwise(order):
            if numbers[one.span.span_id] == numbers[other.span.span_id]:
                after = bisect_left(starts, one.end_ns)
                if after < len(starts) and starts[after] < other.start_ns:
                    return True
        return False

    def _untidy(self, members: Sequence[Span]) -> bool:
        """Whether spans that decide iterations begin outside of those around them.

        Then clocks disagree, and one call that is told before another may have come after it.
        """
        for span in members:
            outer = self._tree.parent(span)
            if outer is None or self._tree.role(span) not in _TIMED:
                continue
            if not outer.start_ns - CLOCKS_NS <= span.start_ns <= outer.end_ns + CLOCKS_NS:
                return True
        return False

    def _answered(self, span: Span, members: Sequence[Span]) -> bool:
        if self._tree.rows[span.span_id].unless_around:
            return False  # whoever wrote it may have left searches without spans
        if any(self._tree.role(one) is Role.MODEL and not one.failed for one in members):
            return True
        return answer_of(span, ("gen_ai.output.messages",)) is not None

    def _conversation(self, place: Span, found: Sequence[Got], agent: str | None) -> str | None:
        """The turn's conversation; None if that cannot be said, and then it is refused."""
        nearest = (self._conversations[one.span.span_id] for one in found)
        said = {name for name in nearest if name is not None}
        own = self._conversations[place.span_id]
        if own is not None and (not said or self._tree.role(place) is Role.TURN):
            said.add(own)
        said = said or self._named
        problem = None
        if len(said) > 1:
            problem = f"its spans name {len(said)} conversations"
        elif not said and self._options.require_conversation:
            problem = "no span of the trace names a conversation"
        elif said and len(next(iter(said))) > LONGEST_ID:
            problem = f"the conversation's name is longer than {LONGEST_ID} characters"
        if problem is not None:
            self._told.refuse("no_conversation", place.span_id, problem, agent)
            return None
        return next(iter(said), None) or place.trace_id

    def _agent(self, span: Span, turn: Span | None) -> str | None:
        found = self._agents[span.span_id]
        if found is None and turn is not None:
            found = named_by(turn, self._tree, self._mapping)
        return found or service_of(span)

    def _release(self, span: Span) -> str | None:
        found = self._releases[span.span_id] or text(span.resource.get("service.version"))
        return short(found)

    def _answer(
        self, span: Span | None, members: Sequence[Span], found: Sequence[Got]
    ) -> str | None:
        """What the turn's span says, else its last model call after all searches."""
        row = self._tree.rows.get(span.span_id) if span is not None else None
        if span is not None and row is not None and (said := answer_of(span, row.answer)):
            return said
        models = self._models(members)
        last = max(models, key=lambda one: (one.end_ns, one.span_id), default=None)
        if last is None or any(one.end_ns > last.start_ns for one in found):
            return None
        return answer_of(last, self._tree.rows[last.span_id].answer)

    def _iterations(
        self, members: Sequence[Span], found: Sequence[Got]
    ) -> tuple[dict[str, int], bool]:
        """The iteration of each search, and whether that is inferred from times."""
        placed = [
            Placed(
                one.span.span_id,
                one.start_ns,
                one.end_ns,
                self._calls.get(one.span.span_id),
                self._steps.get(one.span.span_id),
            )
            for one in found
        ]
        steps = [one.step for one in placed if one.step is not None]
        if placed and len(steps) == len(placed):
            spans = [self._tree.by_id[step] for step in set(steps)]
            starts = {span.span_id: span.start_ns for span in spans}
            return by_steps(placed, starts), _overlap(spans)
        last = max((one.start_ns for one in placed), default=0)
        calls = [
            Call(span.start_ns, self._calls.get(span.span_id))
            for span in members
            if self._tree.role(span) is Role.MODEL
            and span.span_id not in self._searching
            and span.start_ns <= last
        ]
        if calls:
            numbers = by_models(placed, calls, self._calls)
            return numbers, (
                self._unasked(members, found, numbers)
                or self._side_by_side(members, found)
                or self._interrupted(members, found, numbers)
            )
        return by_time(placed), len(placed) > 1


def named_by(turn: Span, tree: Tree, mapping: Mapping) -> str | None:
    """The agent's name by its turn; None if that has none, or is named by whoever wrote it."""
    found = said(turn.attributes, mapping.agent, LONGEST_NAME)
    if found is None and not tree.rows[turn.span_id].unless_around:
        operation = text(turn.attributes.get("gen_ai.operation.name")) or ""
        found = text(turn.name.removeprefix(f"{operation} "))
    return short(found)


def _overlap(spans: Iterable[Span]) -> bool:
    """Whether two of the spans run at once."""
    order = sorted(spans, key=lambda span: (span.start_ns, span.span_id))
    return any(one.end_ns > other.start_ns for one, other in pairwise(order))


def _timely(span: Span) -> bool:
    return EARLIEST_US <= span.start_ns // 1000 <= LATEST_US


def _time_of(span: Span) -> str:
    return f"it starts {span.start_ns} ns after 1970"
