"""Builds the turns of a trace: their iterations and results, and the problems that refuse them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from stream_metrics.core.events.decode import EARLIEST_US, LATEST_US
from stream_metrics.core.telemetry.contents.calls import calls_given, calls_of, is_recorded
from stream_metrics.core.telemetry.contents.documents import (
    PARTS,
    Document,
    DocumentIndex,
    in_document,
)
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.contents.messages import (
    answer_of,
    attribute_text,
    calls_tools,
    has_hosted_search,
    question_of,
)
from stream_metrics.core.telemetry.interpretation import (
    Interpretation,
    Result,
    Search,
    Turn,
    rows_to_copy,
)
from stream_metrics.core.telemetry.options import Options
from stream_metrics.core.telemetry.retrieval.calls import call_id
from stream_metrics.core.telemetry.retrieval.changed_lists import find_changed_lists
from stream_metrics.core.telemetry.retrieval.document_ids import DocumentIds, TextLimit
from stream_metrics.core.telemetry.retrieval.outputs import (
    find_changed_outputs,
    find_partly_shown,
    find_possible_inputs,
    find_possibly_nested,
)
from stream_metrics.core.telemetry.retrieval.page_ids import find_page_ids
from stream_metrics.core.telemetry.retrieval.reranking import apply_rerankers, find_rerankers
from stream_metrics.core.telemetry.retrieval.searches import Retrieval, SpanProblem, document_lists
from stream_metrics.core.telemetry.retrieval.tools import ARGUMENTS, recorded
from stream_metrics.core.telemetry.roles.mapping import Role, SpanMapping
from stream_metrics.core.telemetry.roles.resolution import MILLISECOND
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.shapes.users import tool_name
from stream_metrics.core.telemetry.spans import Span, service_of, short, text
from stream_metrics.core.telemetry.turns.iterations import (
    ModelCall,
    TimedSearch,
    by_models,
    by_steps,
    by_time,
)
from stream_metrics.core.telemetry.turns.names import AgentNames, conversations, release_names
from stream_metrics.core.telemetry.turns.unseen import (
    UnseenSearches,
    asks_for_tools,
    is_tool,
    looks_like_search,
    passed_over,
    refuse,
    row_for,
)

MAX_RESULTS: Final = 2_000
MAX_ID_LENGTH: Final = 128
CLOCK_TOLERANCE_NS: Final = 1_000_000  # by how much the clocks of one process may differ
NO_TURN: Final = ""
"""The turn of spans that belong to none."""
_DECIDING: Final = (Role.MODEL, Role.STEP)
_TIMED: Final = (Role.SEARCH, Role.TOOL, Role.MODEL, Role.STEP)


class TurnBuilder:
    """Builds the turns of one trace."""

    def __init__(
        self,
        tree: SpanTree,
        mapping: SpanMapping,
        options: Options,
        interpretation: Interpretation,
        covered: dict[str, str],
        of_turn: dict[str, str],
        text_limit: TextLimit,
        retrievals: Iterable[Retrieval],
    ) -> None:
        self._tree, self._mapping, self._options = tree, mapping, options
        self._page_ids = find_page_ids(retrieval.documents for retrieval in retrievals)
        self._interpretation, self._text_limit = interpretation, text_limit
        self.used: dict[str, list[Retrieval]] = {}  # the searches of each turn
        self.agents: dict[str, str | None] = {}  # of each turn, also of those that are refused
        self._calls = tree.nearest_ancestor(Role.TOOL, Role.SEARCH)
        self._steps = tree.nearest_ancestor(Role.STEP)
        self._agents_around = tree.nearest_ancestor(Role.TURN)
        self._asking = tree.ancestors(span.span_id for span in tree.with_role(Role.MODEL))
        self._rerankers = find_rerankers(tree, covered)
        self._searching = covered.keys() | tree.outermost(self._rerankers).keys()
        self._aside = self._searching | tree.ignored | tree.ancestors(covered)
        self._members: dict[str, list[Span]] = {}
        for span in tree.ordered:
            self._members.setdefault(of_turn.get(span.span_id, NO_TURN), []).append(span)
        self._conversations = conversations(tree, mapping)
        self._agents = AgentNames(tree, mapping)
        self._releases = release_names(tree, mapping)
        self._unseen = UnseenSearches(tree, mapping)

    def build(
        self, id: str, span: Span | None, retrievals: list[Retrieval], problems: list[SpanProblem]
    ) -> Turn | None:
        """The turn, or None if there is none or it is refused."""
        members = self._members.get(id, [])
        before = retrievals
        later = [member for member in members if member.span_id in self._rerankers]
        retrievals, more = apply_rerankers(self._tree, retrievals, later, self._interpretation)
        place = self._tree.by_id[id]
        row = self._tree.rows.get(id)
        asked = question_of(span, row.query) if span is not None and row is not None else None
        agent = self.agents[id] = self._agents.of(place, members, asked) or service_of(place)
        identities = self._identities(retrievals, agent)
        problems = [
            *problems,
            *more,
            *self._unusable(retrievals, identities),
            *self._hosted_searches(members),
        ]
        if retrievals:
            problems += self._overlooked(members)
            problems += self._impossible_times(id, members)
            if not problems:  # what was cut off or cannot be read is a better reason
                problems += self._lost_calls(members, retrievals)
                problems += self._lost_tools(members)
        problems += self._truncated_names(members)
        numbers, inferred = self._iterations(members, retrievals)
        inferred = inferred or (len(retrievals) > 1 and self._has_clock_skew(members))
        if retrievals and not problems:
            problems = [
                *find_changed_lists(self._tree, members, self._aside, [*before, *retrievals]),
                *find_possibly_nested(self._tree, before),
                *find_possible_inputs(retrievals, numbers, inferred),
                *find_changed_outputs(self._tree, before, retrievals, numbers),
                *find_partly_shown(self._models(members), retrievals),
            ]
        for problem in problems:
            self._interpretation.refuse(
                problem.reason, problem.span.span_id, problem.message, agent
            )
        if problems:
            return None
        skipped = not retrievals and span is not None and self._answered(span, members)
        if (
            not retrievals
            and span
            and any(document_lists(member) for member in members if self._may_hide_search(member))
        ):
            message = "it has documents, but no span in it is a search"
            self._interpretation.refuse("unrecognised", id, message, agent)
            return None
        if skipped and self._has_unrecorded_tools(members):
            message = "a model in it called tools, and no span records their results"
            self._interpretation.refuse("unrecognised", id, message, agent)
            return None
        if span and not retrievals and self._has_unseen_searches(members, agent, asked):
            return None
        if not retrievals and not skipped:
            return None
        if skipped and not _has_plausible_time(place):
            self._interpretation.refuse("time_out_of_range", id, _time_of(place), agent)
            return None
        conversation = self._conversation(place, retrievals, agent)
        if conversation is None:
            return None
        self.used[id] = retrievals
        if retrievals:
            passed = passed_over(self._tree, members, self._aside)
            self._interpretation.passed_over.update(passed)
        order = sorted(
            retrievals,
            key=lambda retrieval: (
                numbers[retrieval.span.span_id],
                retrieval.start_ns,
                retrieval.span.span_id,
            ),
        )
        ordinals: Counter[int] = Counter()
        searches = []
        for retrieval in order:
            number = numbers[retrieval.span.span_id]
            searches.append(
                Search(
                    retrieval.span.span_id,
                    retrieval.span.start_ns,
                    number,
                    ordinals[number],
                    self._text(retrieval.query),
                    retrieval.route,
                    agent,
                    self._release(retrieval.span),
                    self._results(retrieval, identities),
                )
            )
            ordinals[number] += 1
        return Turn(
            conversation,
            place.start_ns // 1000,
            id,
            tuple(searches),
            inferred,
            skipped,
            agent,
            self._release(place),
            self._text(self._answer(span, members, retrievals)),
            self._text(asked),
            () if agent in self._options.identity else tuple(sorted(identities.page_ids)),
        )

    def _text(self, value: str | None) -> str | None:
        """The text, if texts are to be kept and it was not cut off."""
        return value if self._options.content and not self._text_limit.is_truncated(value) else None

    def _identities(self, retrievals: Sequence[Retrieval], agent: str | None) -> DocumentIds:
        lists = [retrieval.documents for retrieval in retrievals]
        match self._options.identity.get(agent or ""):
            case "id":
                page_ids: frozenset[str] = frozenset()
            case "id_and_text":
                page_ids = frozenset(one.id_name for documents in lists for one in documents)
            case _:
                # A reranker may cut texts for the query.
                whole = [one.documents for one in retrievals if one.reranked_from is None]
                page_ids = self._page_ids | find_page_ids(whole)
        return DocumentIds(lists, self._text_limit, page_ids, self._named_ids)

    def _named_ids(self, document: Document) -> dict[str, str]:
        """The components of ``ids`` that the settings name."""
        found = {}
        for name in self._options.ids:
            if (value := text(document.fields.get(name))) is not None:
                place = document.container or document.address if name in PARTS else None
                found[name] = in_document(value, place) or value
        return found

    def _results(self, got: Retrieval, identities: DocumentIds) -> tuple[Result, ...]:
        before = DocumentIndex(got.reranked_from or ())
        return tuple(self._result(document, before, identities) for document in got.documents)

    def _result(self, document: Document, before: DocumentIndex, identities: DocumentIds) -> Result:
        about, place = document.fields, before.certain_position(document)
        fields = {name: about[name] for name in self._options.fields if name in about}
        identity = identities.of(document)
        return Result(
            document,
            identity.doc_id,
            identity.url,
            None if place is None else place + 1,
            dict(identity.ids),
            {
                name: value
                for name, value in fields.items()
                if isinstance(value, (str, bool, int, float))
            },
            identity.passage,
        )

    def _may_hide_search(self, span: Span) -> bool:
        """Whether the span may contain a search that it does not record."""
        return self._tree.role(span) in (None, Role.OTHER, Role.POSTPROCESSOR)

    def _unusable(
        self, retrievals: Sequence[Retrieval], identities: DocumentIds
    ) -> Iterable[SpanProblem]:
        for retrieval in retrievals:
            if len(retrieval.documents) > MAX_RESULTS:
                number = f"{len(retrieval.documents):,} documents, more than {MAX_RESULTS:,}"
                yield SpanProblem(retrieval.span, "too_large", f"it has {number}")
            elif (problem := identities.problem(retrieval.documents)) is not None:
                yield SpanProblem(retrieval.span, *problem)
            elif self._has_cut_result(retrieval.span):
                yield SpanProblem(retrieval.span, "truncated", "the tool's result was cut off")

    def _has_cut_result(self, span: Span) -> bool:
        """Whether a limit cut off what a tool returned, and results are missing at its end."""
        row = self._tree.rows.get(span.span_id)
        if row is None or row.role is not Role.TOOL:
            return False
        return any(map(self._text_limit.has_cut, recorded(span, row)))

    def _impossible_times(self, id: str, members: Sequence[Span]) -> Iterable[SpanProblem]:
        """Spans with impossible times, if the turn depends on them."""
        for span in members:
            aside = self._tree.role(span) in (None, Role.OTHER, Role.EVALUATOR)
            if not _has_plausible_time(span) and (
                not aside or not span.parent_id or span.span_id == id
            ):
                yield SpanProblem(span, "time_out_of_range", _time_of(span))

    def _truncated_names(self, members: Sequence[Span]) -> Iterable[SpanProblem]:
        """Names of conversations and agents that a text-length limit cut off."""
        mapping, text_limit = self._mapping, self._text_limit
        for span in members:
            if (holder := mapping.kinds.truncated_attribute(span)) is not None:
                yield SpanProblem(span, "truncated", f"the attribute {holder} was cut off")
                return
            for names in (
                (*mapping.chosen_conversation, *mapping.conversation),
                (*mapping.chosen_agent, *mapping.agent),
                (*mapping.chosen_release, *mapping.release),
            ):
                name = (
                    attribute_text(span.attributes, names)
                    if text_limit.certain is not None
                    else None
                )
                if text_limit.is_truncated(name):
                    yield SpanProblem(span, "truncated", f"the name {name!r} was cut off")
                    return

    def _hosted_searches(self, members: Sequence[Span]) -> Iterable[SpanProblem]:
        """Models with searches at their host, whose answers do not record the results."""
        for model in self._models(members):
            if has_hosted_search(model, self._tree.rows[model.span_id].answer):
                message = f"{model.name!r} contains searches that its host ran"
                yield SpanProblem(model, "unrecognised", message)

    def _has_unrecorded_tools(self, members: Sequence[Span]) -> bool:
        """Whether a model called tools that have no spans."""
        if any(is_tool(span, self._tree.rows.get(span.span_id)) for span in members):
            return False
        return any(
            calls_tools(model, self._tree.rows[model.span_id].answer)
            for model in self._models(members)
        )

    def _has_unseen_searches(
        self, members: Sequence[Span], agent: str | None, asked: str | None
    ) -> bool:
        """Whether spans in the turn may be searches, and the turn is refused."""
        found = self._unseen.of(members, asked)
        if not found:
            return False
        refuse(self._interpretation, found, agent)
        return True

    def _overlooked(self, members: Sequence[Span]) -> Iterable[SpanProblem]:
        """Spans without a role that look like further searches of a turn."""
        for span in members:
            if (
                self._tree.role(span) is None
                and not span.failed
                and span.span_id not in self._aside
                and span.span_id not in self._calls
                and span.span_id not in self._unseen.in_models
                and looks_like_search(span)
            ):
                message = (
                    f"{span.name!r} looks like a search, and does not tell what it found; if it "
                    f"is none: {rows_to_copy([row_for(span, None)])}"
                )
                yield SpanProblem(span, "unrecognised", message)

    def _lost_calls(
        self, members: Sequence[Span], retrievals: Sequence[Retrieval]
    ) -> Iterable[SpanProblem]:
        """Model calls that requested a search tool of the turn more often than it has spans.

        Requests are in answers and in what the last call was given that the first was not. What the
        last requested may never have run.
        """
        ran = Counter(tool_name(span) for span in members if self._tree.role(span) is Role.TOOL)
        searching = {tool_name(retrieval.span) for retrieval in retrievals} & ran.keys()
        models = self._models(members)
        last = max((span.start_ns for span in models), default=0)
        asking: dict[
            tuple[str, ...], dict[str, Span]
        ] = {}  # ids differ by form and instrumentation
        for span in models if searching else ():
            if span.end_ns <= last:
                for call in calls_of(span):
                    if call.name in searching and not call.number:
                        key = (call.name, span.scope, "answer")
                        asking.setdefault(key, {}).setdefault(call.id, span)
        for earlier, later in self._first_and_last(models) if searching else ():
            if is_recorded(earlier, answer=False):
                before = {call.id for call in calls_given(earlier)}
                for call in calls_given(later):
                    if call.name in searching and not call.number and call.id not in before:
                        key = (call.name, later.scope, "given")
                        asking.setdefault(key, {}).setdefault(call.id, later)
        for (name, *_), calls in asking.items():
            if len(calls) > ran[name]:
                message = (
                    f"models called {name!r} {len(calls)} times, and it has {ran[name]} spans: "
                    "what the others found is not told"
                )
                yield SpanProblem(next(iter(calls.values())), "unseen_searches", message)

    def _lost_tools(self, members: Sequence[Span]) -> Iterable[SpanProblem]:
        """Model calls that ended with a request for tools, before another call and without any span
        between them, and do not say which."""
        order = sorted(members, key=lambda span: (span.start_ns, span.span_id))
        for earlier, later in pairwise(order):
            if (
                self._tree.role(earlier) is Role.MODEL
                and self._tree.role(later) is Role.MODEL
                and earlier.end_ns <= later.start_ns
                and earlier.parent_id == later.parent_id
                and asks_for_tools(earlier, self._tree.rows[earlier.span_id])
                and not (calls_of(earlier) or earlier.dropped_attributes)
            ):
                message = f"the model call {short(earlier.name)!r} asked for tools without spans"
                yield SpanProblem(earlier, "unseen_searches", message)

    def _first_and_last(self, models: Sequence[Span]) -> Iterable[tuple[Span, Span]]:
        """The first and the last model call of each agent that made several."""
        of_agent: dict[str | None, list[Span]] = {}
        for span in models:
            of_agent.setdefault(self._agents_around.get(span.span_id), []).append(span)
        for own in of_agent.values():
            if len(own) > 1:
                own.sort(key=lambda span: (span.start_ns, span.span_id))
                yield own[0], own[-1]

    def _is_around(self, placed: Sequence[TimedSearch], members: Sequence[Span]) -> bool:
        """Whether the only model call of a turn is around all its searches, as where its span is
        that of a whole loop: it separates none."""
        models = self._models(members)
        return len(models) == 1 and all(
            models[0].start_ns <= one.start_ns and one.end_ns < models[0].end_ns for one in placed
        )

    def _models(self, members: Sequence[Span]) -> list[Span]:
        return [span for span in members if self._tree.role(span) is Role.MODEL]

    def _start_of_call(self, span: Span) -> int:
        """When a model call started.

        In whole milliseconds, one that took longer started after the searches of its millisecond:
        those that follow it start later than it ends.
        """
        is_long = span.end_ns - span.start_ns >= MILLISECOND
        return span.start_ns + (span.span_id in self._tree.coarse and is_long)

    def _has_simultaneous_call(
        self, members: Sequence[Span], placed: Sequence[TimedSearch]
    ) -> bool:
        """Whether a model call may have come before or after a search, in whole milliseconds."""
        coarse = self._tree.coarse
        starts = {one.start_ns for one in placed if one.id in coarse} if len(placed) > 1 else set()
        return any(
            span.start_ns in starts and span.end_ns == span.start_ns
            for span in self._models(members)
            if span.span_id in coarse
        )

    def _lacks_model_spans(
        self, members: Sequence[Span], retrievals: Sequence[Retrieval], numbers: dict[str, int]
    ) -> bool:
        """Whether an agent in the turn searched several times, and its model has no spans."""
        nearest = self._agents_around
        asking = {
            nearest.get(span.span_id) for span in members if self._tree.role(span) in _DECIDING
        }
        once: set[tuple[str, int]] = set()
        for retrieval in retrievals:
            agent = nearest.get(retrieval.span.span_id)
            if agent is None or agent not in nearest or agent in asking:
                continue  # inside no agent, or only inside the outermost
            if (key := (agent, numbers[retrieval.span.span_id])) in once:
                return True
            once.add(key)
        return False

    def _has_concurrent_agents(
        self, members: Sequence[Span], retrievals: Sequence[Retrieval]
    ) -> bool:
        """Whether agents that are not tools ran concurrently, so that one's model separates all
        searches."""
        searching = self._tree.ancestors(retrieval.span.span_id for retrieval in retrievals)
        both = searching & self._asking
        siblings: dict[str, list[Span]] = {}
        for span in members:
            if span.span_id in both and self._tree.role(span) is not Role.TOOL:
                siblings.setdefault(span.parent_id, []).append(span)
        return any(_overlap(spans) for spans in siblings.values())

    def _has_unexplained_span(
        self, members: Sequence[Span], retrievals: Sequence[Retrieval], numbers: dict[str, int]
    ) -> bool:
        """Whether another span began between two searches of one iteration.

        The program itself then decided on the second, or the span of a model call was lost.
        """
        starts = sorted(
            span.start_ns
            for span in members
            if self._tree.role(span) in (None, Role.OTHER) and span.span_id not in self._aside
        )
        order = sorted(
            retrievals, key=lambda retrieval: (numbers[retrieval.span.span_id], retrieval.start_ns)
        )
        for earlier, later in pairwise(order):
            if numbers[earlier.span.span_id] == numbers[later.span.span_id]:
                after = bisect_left(starts, earlier.end_ns)
                if after < len(starts) and starts[after] < later.start_ns:
                    return True
        return False

    def _has_clock_skew(self, members: Sequence[Span]) -> bool:
        """Whether spans that separate iterations begin outside their parents.

        Clocks then disagree, so that the order of calls is uncertain.
        """
        for span in members:
            outer = self._tree.parent(span)
            if outer is None or self._tree.role(span) not in _TIMED:
                continue
            if (
                not outer.start_ns - CLOCK_TOLERANCE_NS
                <= span.start_ns
                <= outer.end_ns + CLOCK_TOLERANCE_NS
            ):
                return True
        return False

    def _answered(self, span: Span, members: Sequence[Span]) -> bool:
        if self._tree.rows[span.span_id].yields_to_inner:
            return False  # a program that writes its own spans may omit searches
        if any(self._tree.role(member) is Role.MODEL and not member.failed for member in members):
            return True
        return answer_of(span, ("gen_ai.output.messages",)) is not None

    def _conversation(
        self, place: Span, retrievals: Sequence[Retrieval], agent: str | None
    ) -> str | None:
        """The turn's conversation; None, and the turn is refused, if it is unknown or ambiguous."""
        nearest, own = self._conversations.nearest, self._conversations.nearest[place.span_id]
        is_turn = self._tree.role(place) is Role.TURN
        names = {
            name
            for retrieval in retrievals
            if (name := nearest[retrieval.span.span_id]) is not None
            # An agent that is called as a tool has conversations of its own.
            and (
                own is None
                or not is_turn
                or self._agents_around.get(retrieval.span.span_id) == place.span_id
            )
        }
        if own is not None and (not names or is_turn):
            names.add(own)
        names = names or self._conversations.named
        problem = None
        if len(names) > 1:
            problem = f"its spans name {len(names)} different conversations"
        elif not names and self._options.require_conversation:
            problem = "no span of the trace names a conversation"
        elif names and len(next(iter(names))) > MAX_ID_LENGTH:
            problem = f"the conversation's name is longer than {MAX_ID_LENGTH} characters"
        if problem is not None:
            self._interpretation.refuse("no_conversation", place.span_id, problem, agent)
            return None
        return next(iter(names), None) or place.trace_id

    def _release(self, span: Span) -> str | None:
        release = self._releases.nearest[span.span_id] or text(span.resource.get("service.version"))
        return short(release)

    def _answer(
        self, span: Span | None, members: Sequence[Span], retrievals: Sequence[Retrieval]
    ) -> str | None:
        """The answer that the turn's span records, else its last model call after all searches."""
        runs = [
            member
            for member in members
            if self._tree.role(member) is Role.TURN and member.span_id not in self._agents_around
        ]
        if len(runs) > 1:  # agents that handed the question on
            span = max(runs, key=lambda run: (run.end_ns, run.span_id))
        row = self._tree.rows.get(span.span_id) if span is not None else None
        if span is not None and row is not None and (answer := answer_of(span, row.answer)):
            return answer
        models = self._models(members)
        last = max(models, key=lambda model: (model.end_ns, model.span_id), default=None)
        if last is None or any(retrieval.end_ns > last.start_ns for retrieval in retrievals):
            return None
        return answer_of(last, self._tree.rows[last.span_id].answer)

    def _iterations(
        self, members: Sequence[Span], retrievals: Sequence[Retrieval]
    ) -> tuple[dict[str, int], bool]:
        """The iteration of each search, and whether it is inferred from times."""
        placed = [
            TimedSearch(
                retrieval.span.span_id,
                retrieval.start_ns,
                retrieval.end_ns,
                self._calls.get(retrieval.span.span_id),
                self._steps.get(retrieval.span.span_id),
            )
            for retrieval in retrievals
        ]
        steps = [search.step for search in placed if search.step is not None]
        if placed and len(steps) == len(placed):
            spans = [self._tree.by_id[step] for step in set(steps)]
            starts = {span.span_id: span.start_ns for span in spans}
            return by_steps(placed, starts), _overlap(spans)
        last = max((search.start_ns for search in placed), default=0)
        models = [
            span
            for span in self._models(members)
            if span.span_id not in self._searching and span.start_ns <= last
        ]
        calls = [
            ModelCall(self._start_of_call(span), self._calls.get(span.span_id))
            for span in self._separating(models, placed)
        ]
        if calls and not self._is_around(placed, members):
            numbers = by_models(placed, calls, self._calls)
            return numbers, (
                self._has_simultaneous_call(members, placed)
                or self._lacks_model_spans(members, retrievals, numbers)
                or self._has_concurrent_agents(members, retrievals)
                or self._has_unexplained_span(members, retrievals, numbers)
            )
        return by_time(placed), len(placed) > 1

    def _separating(self, models: Sequence[Span], placed: Sequence[TimedSearch]) -> list[Span]:
        """The model calls that may separate searches: not one, as of a guard, between tools for
        which one answer asked."""
        named = [(one.start_ns, self._call_of(one.id)) for one in placed]
        times = Counter(name for _, name in named)
        starts = {name: start for start, name in named if name and times[name] == 1}
        if len(starts) < 2:
            return [*models]
        together: list[tuple[int, int]] = []
        for model in models:
            of_answer = (
                starts.get(call.id, starts.get(_as_written(call.name, call.arguments)))
                for call in calls_of(model)
            )
            asked = [start for start in of_answer if start is not None and start >= model.start_ns]
            if len(asked) > 1:
                together.append((min(asked), max(asked)))
        return [
            model
            for model in models
            if not any(first < model.start_ns <= last for first, last in together)
        ]

    def _call_of(self, id: str | None) -> str:
        """The id of the call of the tool that a search is, or in which it ran; without one, its
        name and arguments; empty if there is no tool."""
        while id is not None:
            span = self._tree.by_id[id]
            if self._tree.role(span) is Role.TOOL:
                row = self._tree.rows[id]
                if found := call_id(span, next(recorded(span, row), None)):
                    return found
                given = (span.value(name) for name in (*row.query, *ARGUMENTS))
                return _as_written(
                    tool_name(span), next((one for one in given if one is not None), None)
                )
            id = self._calls.get(id)
        return ""


def _as_written(name: str, arguments: Any) -> str:
    """A call by its name and arguments; empty if these are not recorded."""
    if isinstance(arguments, str):
        arguments = parse_value(arguments) or arguments
    return "" if arguments is None else f"{name}\n{arguments!r}"


def _overlap(spans: Iterable[Span]) -> bool:
    """Whether two of the spans run concurrently."""
    order = sorted(spans, key=lambda span: (span.start_ns, span.span_id))
    return any(earlier.end_ns > later.start_ns for earlier, later in pairwise(order))


def _has_plausible_time(span: Span) -> bool:
    return EARLIEST_US <= span.start_ns // 1000 <= LATEST_US


def _time_of(span: Span) -> str:
    return f"it starts {span.start_ns} ns after 1970"
