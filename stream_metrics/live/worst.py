"""Ranks conversations by their contribution to a window, with their duplicate results.

A conversation contributes its iterations in the window, of the requested agent, as to the window's
sums: over all conversations, ``results`` adds up to the window's.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.engine.cells import dimension_of, source
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.state import Conversation, Iteration, Turn
from stream_metrics.core.events.turns import turn_text
from stream_metrics.core.metrics.decisions import ratio
from stream_metrics.core.metrics.labels import nothing_labelled
from stream_metrics.core.metrics.turn_totals import settled
from stream_metrics.live.runaways import (
    MANY_ITERATIONS,
    RunawayTurn,
    iterations_of,
    longest_first,
)

RANKINGS: Final = (
    "highest_srr",
    "lowest_sre",
    "most_wasted_iterations",
    "most_repeated_searches",
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The iterations to rank by.

    Iterations from ``from_us`` to before ``to_us`` whose agent (or release) ``admits``.
    """

    from_us: int
    to_us: int
    admits: Callable[[str], bool] = lambda _: True


class DuplicatePair(NamedTuple):
    """A result and the one that it repeats: the first occurrence of its document in the turn.

    ``evidence`` is what proves them the same: ``id``, ``url``, ``text`` or ``fields``.
    """

    turn: int
    iteration: int
    result_id: str
    first_iteration: int
    first_result_id: str
    evidence: str
    entity_type: str


@dataclass(slots=True)
class Contribution:
    """The contribution of one conversation to a window.

    ``wasted_iterations``: of ``settled_iterations`` those without gain; they searched, are judged,
    and brought nothing good that was new. ``settled_results``, ``settled_good`` and
    ``settled_gain`` are over settled iterations, as in the windows. ``unique`` and ``labelled``
    count documents. Of its searches, ``queried`` have a query that is known, and ``repeated``
    repeat an earlier one of their turn. ``last_us`` is the time of the latest iteration.
    ``beyond_limit``: one of its turns grew beyond a limit, and has more than is counted here.
    """

    conversation_id: str
    agents: set[str] = field(default_factory=set)
    turns: set[int] = field(default_factory=set)
    iterations: int = 0
    wasted_iterations: int = 0
    results: int = 0
    duplicates: int = 0
    unique: int = 0
    labelled: int = 0
    queried: int = 0
    repeated: int = 0
    settled_iterations: int = 0
    settled_results: int = 0
    settled_good: int = 0
    settled_gain: int = 0
    last_us: int = 0
    beyond_limit: bool = False
    pairs: list[DuplicatePair] = field(default_factory=list)

    @property
    def srr(self) -> float | None:
        """Share of the results that are duplicates; None without results."""
        return ratio(self.duplicates, self.results)

    @property
    def sre(self) -> float | None:
        """Share of settled results that are new and good; None without any, or without a label.

        An iteration without new documents is settled, whether or not anybody labels.
        """
        unknown = nothing_labelled(self.unique, self.labelled)
        return None if unknown else ratio(self.settled_good, self.settled_results)

    def row(self) -> dict[str, Any]:
        """The contribution as plain data."""
        return {
            "conversation_id": self.conversation_id,
            "agents": sorted(self.agents),
            "turns": sorted(self.turns),
            "last_us": self.last_us,
            "iterations": self.iterations,
            "wasted_iterations": self.wasted_iterations,
            "results": self.results,
            "beyond_limit": self.beyond_limit,
            "duplicates": self.duplicates,
            "srr": self.srr,
            "queried_searches": self.queried,
            "repeated_searches": self.repeated,
            "settled_iterations": self.settled_iterations,
            "settled_results": self.settled_results,
            "settled_good_results": self.settled_good,
            "settled_gain": self.settled_gain,
            "sre": self.sre,
            "pairs": [pair._asdict() | {"turn_text": turn_text(pair.turn)} for pair in self.pairs],
        }


def contribution_of(
    conversation: Conversation, scope: Scope, config: EngineConfig
) -> Contribution | None:
    """A conversation's contribution, without its pairs; None if no iteration is in scope."""
    part = Contribution(conversation.conversation_id)
    for turn, iteration, time_us, agent in _in_scope(conversation, scope, config):
        part.agents.add(agent)
        part.turns.add(turn.number)
        part.beyond_limit = part.beyond_limit or turn.over_limit
        part.last_us = max(part.last_us, time_us)
        part.iterations += 1
        part.results += iteration.results
        part.duplicates += iteration.results - iteration.unique
        part.unique += iteration.unique
        part.labelled += iteration.labelled
        part.queried += iteration.queried
        part.repeated += iteration.repeated
        if settled(iteration.unique, iteration.labelled, config.settled_percent):
            part.settled_iterations += 1
            part.settled_results += iteration.results
            part.settled_good += iteration.good
            part.settled_gain += iteration.gain
            part.wasted_iterations += not iteration.gain
    return part if part.iterations else None


def pairs_of(
    conversation: Conversation, scope: Scope, config: EngineConfig
) -> Iterator[DuplicatePair]:
    """The duplicates in scope, in canonical order; a first occurrence may lie before the scope."""
    for turn, iteration, _, _ in _in_scope(conversation, scope, config):
        for search in iteration.searches:
            for at, evidence in enumerate(search.evidence):
                if evidence:
                    first = turn.first_results[search.documents[at]]
                    holder = turn.result_searches[first]
                    yield DuplicatePair(
                        turn.number,
                        iteration.number,
                        search.result_ids[at],
                        holder.iteration,
                        holder.result_ids[first - holder.start],
                        evidence,
                        search.types[at],
                    )


def _in_scope(
    conversation: Conversation, scope: Scope, config: EngineConfig
) -> Iterator[tuple[Turn, Iteration, int, str]]:
    """Iterations that searched, with their time and what the windows keep them by."""
    for _, turn in sorted(conversation.turns.items()):
        for iteration in turn.counted:
            time_us, agent, release = source(iteration)
            agent = dimension_of(agent, release, config)
            if scope.from_us <= time_us < scope.to_us and scope.admits(agent):
                yield turn, iteration, time_us, agent


def cut_turns(
    conversation: Conversation, scope: Scope, config: EngineConfig
) -> Iterator[tuple[Turn, frozenset[str]]]:
    """Each turn beyond a limit that may lack something in scope, with its agents (or releases).

    Such a turn goes on after its last iteration that counts: its newest event tells until when.
    """
    for turn in conversation.turns.values():
        if not turn.over_limit:
            continue
        told = [source(iteration) for iteration in turn.counted]
        if turn.newest is not None:
            told.append((turn.newest.occurred_us, turn.newest.agent, turn.newest.release))
        times = [time_us for time_us, _, _ in told]
        if not times or max(times) < scope.from_us or min(times) >= scope.to_us:
            continue
        names = (dimension_of(agent, release, config) for _, agent, release in told)
        if agents := frozenset(filter(scope.admits, names)):
            yield turn, agents


Order = tuple[float, int, str]


class Worst:
    """The worst conversations of those offered, at most ``limit`` in each ranking.

    ``judged`` is the number of conversations with enough data, by ranking: with 0, an empty ranking
    means that nothing is known. ``runaways`` are turns with ``runaway_iterations`` or more, of
    which the latest is in scope, the longest first.

    SRR and SRE are ranked from ``min_results`` results on, because a share of few is not
    meaningful. Ties are ordered by the number of results, then by conversation id. The first
    ``max_pairs`` duplicates of each conversation are kept.
    """

    def __init__(
        self,
        scope: Scope,
        config: EngineConfig,
        *,
        limit: int = 10,
        min_results: int = 10,
        max_pairs: int = 20,
        runaway_iterations: int = MANY_ITERATIONS,
    ) -> None:
        self._many = runaway_iterations
        self.conversations = 0
        self.results = 0
        self.runaways: list[RunawayTurn] = []
        self._left_out: list[tuple[int, int] | None] = []
        self._cut_by: Counter[str] = Counter()
        self.judged = dict.fromkeys(RANKINGS, 0)
        self._scope = scope
        self._config = config
        self._limit = limit
        self._min_results = min_results
        self._max_pairs = max_pairs
        self._ranked: dict[str, list[tuple[Order, Contribution]]] = {name: [] for name in RANKINGS}

    def offer(self, conversation: Conversation) -> None:
        """Rank a conversation; keeps it if it is among the worst."""
        for turn, agents in cut_turns(conversation, self._scope, self._config):
            self._left_out.append(turn.left_out)
            self._cut_by.update(agents)
        self._note_runaways(conversation)
        part = contribution_of(conversation, self._scope, self._config)
        if part is None:
            return
        self.conversations += 1
        self.results += part.results
        for name in self._judges(part):
            self.judged[name] += 1
        kept = False
        for name, order in self._orders(part):
            ranked = self._ranked[name]
            if len(ranked) < self._limit or order < ranked[-1][0]:
                insort(ranked, (order, part), key=lambda entry: entry[0])
                del ranked[self._limit :]
                kept = True
        if kept:
            for pair in pairs_of(conversation, self._scope, self._config):
                if len(part.pairs) == self._max_pairs:
                    break
                part.pairs.append(pair)

    def _note_runaways(self, conversation: Conversation) -> None:
        """Note the turns that have many iterations, and one of them in scope."""
        for turn in conversation.turns.values():
            iterations = iterations_of(turn)
            if iterations < self._many:
                continue
            told = [source(iteration) for iteration in turn.counted]
            if turn.newest is not None:
                told.append((turn.newest.occurred_us, turn.newest.agent, turn.newest.release))
            last_us, agent, release = max(told, key=lambda one: one[0])
            agent = dimension_of(agent, release, self._config)
            if not self._scope.from_us <= last_us or not self._scope.admits(agent):
                continue
            one = RunawayTurn(
                agent, conversation.conversation_id, turn.number, iterations, last_us // 1000
            )
            insort(self.runaways, one, key=longest_first)
            del self.runaways[self._limit :]

    def _judges(self, part: Contribution) -> Iterator[str]:
        """The rankings that a contribution has enough data for."""
        if part.results >= self._min_results:
            yield "highest_srr"
        if part.sre is not None and part.settled_results >= self._min_results:
            yield "lowest_sre"
        if part.settled_iterations:
            yield "most_wasted_iterations"
        if part.queried:
            yield "most_repeated_searches"

    def _orders(self, part: Contribution) -> Iterator[tuple[str, Order]]:
        """The sort key of a contribution in each of its rankings, the worst first."""
        srr, sre, judges = part.srr, part.sre, set(self._judges(part))
        if srr and "highest_srr" in judges:
            yield "highest_srr", (-srr, -part.results, part.conversation_id)
        if sre is not None and "lowest_sre" in judges:
            yield "lowest_sre", (sre, -part.settled_results, part.conversation_id)
        if part.wasted_iterations:
            wasted = -part.wasted_iterations
            yield "most_wasted_iterations", (wasted, -part.results, part.conversation_id)
        if part.repeated:
            yield "most_repeated_searches", (-part.repeated, -part.results, part.conversation_id)

    @property
    def beyond_limit(self) -> BeyondLimit:
        """What figures leave out of the turns beyond a limit."""
        return BeyondLimit.of_turns(self._left_out)

    def most_cut(self) -> list[tuple[str, int]]:
        """The turns beyond a limit by agent (or release), those that have most first."""
        return sorted(self._cut_by.items(), key=lambda entry: (-entry[1], entry[0]))

    def rankings(self) -> dict[str, list[Contribution]]:
        """The contributions by ranking, the worst first."""
        return {name: [part for _, part in ranked] for name, ranked in self._ranked.items()}
