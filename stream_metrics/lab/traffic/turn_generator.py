"""Generate the iterations of one turn: gate, routing, searches and their events."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from stream_metrics.lab.traffic import words
from stream_metrics.lab.traffic.agent import Agent
from stream_metrics.lab.traffic.labelling import LabelTargets
from stream_metrics.lab.traffic.profile import Ledger
from stream_metrics.lab.traffic.retrieval import Hit, Retriever, draw_searches, repeat_chance
from stream_metrics.lab.traffic.writing import (
    SearchText,
    TurnContext,
    write_iteration,
    write_result,
)

_MS = 1_000
_ROUTER_RIGHT = 0.87
_FINDS_NOTHING = 0.01
_SAME_QUERY = 0.9
_SECOND_REFERENCE = 0.4


class IterationOutput(NamedTuple):
    """An iteration's time, its events with their times, and its targets for labels."""

    at_us: int
    events: list[tuple[int, bytes]]
    work: LabelTargets


class _First(NamedTuple):
    """The first search of a turn: its route as ``_route`` returns it, its query and results."""

    route: tuple[str, str, str]
    query: str
    hits: list[Hit]

    def found_again(self) -> list[Hit]:
        """What the same search finds later: the same documents, as repeats by id."""
        return [hit._replace(way="id") for hit in self.hits]


class TurnGenerator:
    """Generates the iterations of one turn."""

    def __init__(
        self,
        agent: Agent,
        context: TurnContext,
        topic: int,
        rng: Random,
        ledger: Ledger,
        numbers: Iterator[int],
    ) -> None:
        self._agent = agent
        self._context = context
        self._topic = topic
        self._rng = rng
        self._ledger = ledger
        self._numbers = numbers
        self._retriever = Retriever(agent.corpus, topic, rng)
        self._results = 0
        self._searches = 0
        self._again = 0.0  # probability that a new result is replaced by a repeat, due to the query
        self._asks_again = False
        self._first: _First | None = None

    def loop(self) -> None:
        """Make the turn repeat nearly the same query from now on."""
        self._again = _SAME_QUERY

    def ask_again(self) -> None:
        """Make all searches of the turn repeat the first one: its query, route and results."""
        self._asks_again = True

    def iteration(self, number: int, at_us: int) -> IterationOutput:
        """Generate an iteration: a skip by the gate, or searches in one or several events."""
        chance, profile = self._rng.random, self._agent.profile
        skipped_wrongly = chance() < self._agent.incident_strength("gate_skips", at_us)
        if skipped_wrongly or chance() < profile.gate_skips:
            needed = skipped_wrongly or chance() < 0.15
            return self._skip(number, at_us, needed)
        self._ledger.decisions[self._context.agent, "search"] += 1
        gate = None
        if self._agent.kind.gate_scores:
            gate = f'{{"decision":"search","score":{0.5 + chance() / 2:.3f}}}'
        gains: list[tuple[str, int]] = []
        routed: list[tuple[str, str]] = []
        wanted = draw_searches(profile.searches_per_iteration, chance())
        searches = [self._search(i, number, at_us, gains, routed) for i in range(wanted)]
        events = self._events(number, at_us, gate, searches)
        needed = chance() < 0.97 - 0.04 * number
        return IterationOutput(at_us, events, LabelTargets(number, gains, routed, needed))

    def _skip(self, number: int, at_us: int, needed: bool) -> IterationOutput:
        self._ledger.decisions[self._context.agent, "skip"] += 1
        gate = f'{{"decision":"skip","score":{self._rng.random() / 2:.3f}}}'
        event = write_iteration(self._context, self._event_id(), at_us, number, gate, ())
        return IterationOutput(at_us, [(at_us, event)], LabelTargets(number, (), (), needed))

    def _events(
        self, number: int, at_us: int, gate: str | None, searches: list[SearchText]
    ) -> list[tuple[int, bytes]]:
        chance = self._rng.random
        groups = [searches]
        if len(searches) > 1 and chance() < self._agent.profile.split_searches:
            groups = [[search] for search in searches]
        events = []
        for group in groups:
            value = write_iteration(self._context, self._event_id(), at_us, number, gate, group)
            events.append((at_us, value))
            at_us += (5 + int(chance() * 120)) * _MS
            gate = None
        return events

    def _search(
        self,
        ordinal: int,
        number: int,
        at_us: int,
        gains: list[tuple[str, int]],
        routed: list[tuple[str, str]],
    ) -> SearchText:
        """One search; appends what a labeller may judge to ``gains`` and ``routed``."""
        chance = self._rng.random
        self._searches += 1
        search_id = f"t{self._context.turn}s{self._searches}"
        asked = self._first if self._asks_again else None
        route = asked.route if asked else self._route(at_us)
        selected, optimal, routing = route
        routed.append((search_id, optimal))
        hits = asked.found_again() if asked else self._find(selected, number, at_us)
        inverted = self._agent.incident_strength("reranker_inverted", at_us)
        texts = self._rank(hits, gains, inverted=bool(inverted) and chance() < inverted)
        queries = self._agent.corpus.queries[self._topic]
        query = asked.query if asked else queries[int(chance() * len(queries))]
        self._first = self._first or _First(route, query, hits)
        return SearchText(search_id, ordinal, query, routing, texts)

    def _find(self, route: str, number: int, at_us: int) -> list[Hit]:
        """What a search of a route finds."""
        chance, profile = self._rng.random, self._agent.profile
        repeat = repeat_chance(self._agent.repeat_base, number)
        same_pages = max(self._again, self._agent.incident_strength("same_pages", at_us))
        wanted = 0 if chance() < _FINDS_NOTHING else profile.results_per_search
        empty = self._agent.incident_strength("empty_index", at_us)
        if route == self._agent.corpus.routes[0]:
            empty = max(empty, self._agent.incident_strength("empty_route", at_us))
        if empty and chance() < empty:
            wanted = 0
        off_topic = self._agent.incident_strength("off_topic", at_us)
        topical = not (off_topic and chance() < off_topic)
        return self._retriever.search(route, wanted, repeat, same_pages, topical=topical)

    def _route(self, at_us: int) -> tuple[str, str, str]:
        """The selected route, the best route, and the routing as JSON."""
        chance, routes = self._rng.random, self._agent.corpus.routes
        optimal = routes[int(chance() ** 1.4 * len(routes))]
        selected = optimal if chance() < _ROUTER_RIGHT else routes[int(chance() * len(routes))]
        if chance() < self._agent.incident_strength("router_stuck", at_us):
            selected = routes[0]
        best = 0.55 + 0.4 * chance()
        second = routes[(routes.index(selected) + 1) % len(routes)]
        scores = f'"{selected}":{best:.3f},"{second}":{(1 - best) * chance():.3f}'
        return selected, optimal, f'{{"selected":"{selected}","scores":{{{scores}}}}}'

    def _rank(self, hits: list[Hit], gains: list[tuple[str, int]], *, inverted: bool) -> list[str]:
        """The results as JSON, in the order of a noisy ranker, optionally inverted."""
        chance, profile, ledger = self._rng.random, self._agent.profile, self._ledger
        agent = self._context.agent
        for hit in hits:
            if hit.way is not None:
                ledger.duplicates[agent, hit.way] += 1
        ledger.results[agent] += len(hits)
        hits.sort(key=lambda hit: -hit.gain - 3.0 * chance(), reverse=inverted)
        before: list[int] = []
        if chance() < profile.baseline_ranks:
            noisy = [-hit.gain - 6.0 * chance() for hit in hits]
            order = sorted(range(len(hits)), key=noisy.__getitem__)
            before = [0] * len(hits)
            for rank, place in enumerate(order, start=1):
                before[place] = rank
        inline = chance() < profile.inline_gains
        texts = []
        score = 0.99
        for place, hit in enumerate(hits):
            self._results += 1
            handle = f"t{self._context.turn}r{self._results}"
            score *= 0.9 + 0.1 * chance()
            extra = f',"baseline_rank":{before[place]}' if before else ""
            if inline:
                extra += f',"gain":{hit.gain}'
            texts.append(write_result(handle, hit, score, extra))
            gains.append((handle, hit.gain))
        return texts

    def summary(self) -> dict[str, object]:
        """The members of the turn's end: question and answer, often relevant documents and
        reference answers.
        """
        chance = self._rng.random
        topic = self._agent.corpus.topics[self._topic]
        person = words.FIRST_NAMES[int(chance() * len(words.FIRST_NAMES))]
        members: dict[str, object] = {
            "question": f"What should I know about {topic}?",
            "answer": words.ANSWER.format(p=person, t=topic),
            "dimensions": {
                "language": "en" if chance() < 0.8 else "de",
                "category": topic,
                "difficulty": ("easy", "medium", "hard")[int(chance() * 3)],
            },
        }
        if chance() < self._agent.profile.relevant:
            members["relevant"] = self._relevant()
        references = self._references(person, topic)
        if references:
            members["reference_answers"] = references
        return members

    def _references(self, person: str, topic: str) -> list[str]:
        """Reference answers, from a random generator of their own so that nothing else changes."""
        profile, context = self._agent.profile, self._context
        draw = Random(f"references/{profile.seed}/{context.conversation_id}/{context.turn}")
        if draw.random() >= profile.reference_answers:
            return []
        other = draw.choice(words.FIRST_NAMES)
        found = draw.sample(words.REFERENCES, 1 + (draw.random() < _SECOND_REFERENCE))
        return [one.format(p=person, o=other, t=topic) for one in found]

    def _relevant(self) -> dict[str, int] | list[str]:
        """The ground truth as grades or a list, including documents that the turn did not find."""
        memory, chance = self._retriever.memory, self._rng.random
        grades = {
            document.doc_id: gain
            for document in memory.shown
            if document.doc_id is not None and (gain := memory.gains[document.index]) > 0
        }
        if chance() < 0.15:
            for pool in self._agent.corpus.by_topic.values():
                missed = pool.draw(chance())
                if missed.topic == self._topic and missed.doc_id is not None:
                    grades.setdefault(missed.doc_id, 3)
        if chance() < 0.15:
            return [doc_id for doc_id, gain in grades.items() if gain >= 2]
        return grades

    def _event_id(self) -> str:
        return f"{self._context.conversation_id}.{next(self._numbers)}"
