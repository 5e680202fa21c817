"""Evaluates the turns of a conversation from its events: winners, order, labels, metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import fsum, log2
from typing import Any

from .decode import Event
from .dedup import Placement, Result, Settings, canonical_type, deduplicate
from .text import normalise

CAP = 100
SOURCES = ("human", "model")  # in the order in which they count


@dataclass(frozen=True)
class Options:
    """The options of an evaluation."""

    turn_scope: str = "last"
    good_gain: int = 2
    gain_of_document: str = "first"
    dedup: Settings = field(default_factory=Settings)
    retrieval: tuple[str, ...] = ()
    joined_grades: bool = False
    loops: bool = False
    labels: str = "human_first"
    model_labellers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Won:
    """The winning version of an item: its event, its index in the event's list, its content."""

    event: Event
    index: int
    entry: Any


@dataclass(frozen=True)
class Found:
    """One result of a turn in canonical order, with everything derived for it."""

    raw: Result
    search_id: str
    iteration: int
    rank: int
    holds_handle: bool
    labels: dict[str, int | None]  # by source
    placement: Placement
    kind: str


@dataclass
class Turn:
    """One evaluated turn."""

    conversation: str
    number: int
    searches: dict[str, Won]
    gates: dict[int, Won]
    gain_labels: dict[str, dict[str, Won]]  # of each kind by source
    routing_labels: dict[str, dict[str, Won]]
    gate_labels: dict[str, dict[int, Won]]
    samples: set[str]
    completed: Won | None
    options: Options
    found: list[Found] = field(default_factory=list)

    # --- iterations ---

    def iterations(self) -> list[int]:
        """The numbers of all iterations with a search or an explicit gate decision."""
        return sorted({*self.counted(), *self.gates})

    def counted(self) -> list[int]:
        """The numbers of the iterations with a search, in order."""
        return sorted({won.event.body["iteration"] for won in self.searches.values()})

    def searches_of(self, iteration: int) -> list[Won]:
        """The winning searches of an iteration."""
        return [won for won in self.searches.values() if won.event.body["iteration"] == iteration]

    def _carriers(self, iteration: int) -> list[Event]:
        events = [won.event for won in self.searches_of(iteration)]
        return events or [self.gates[iteration].event]

    def time_of(self, iteration: int) -> int:
        """The time of an iteration."""
        return min(event.time for event in self._carriers(iteration))

    def agent_of(self, iteration: int) -> tuple[str, str | None]:
        """The agent and the release of an iteration."""
        newest = max(self._carriers(iteration), key=lambda event: event.order)
        return newest.body["agent"], newest.body["release"]

    def decision_of(self, iteration: int) -> str | None:
        """The gate decision of an iteration."""
        if iteration in self.gates:
            return str(self.gates[iteration].entry)
        return "search" if self.searches_of(iteration) else None

    def needed(self, iteration: int) -> bool | None:
        """The gate label of an iteration."""
        needed: bool | None = self._counting(
            {source: won.get(iteration) for source, won in self.gate_labels.items()}
        )
        return needed

    def _counting(self, by_source: dict[str, Any]) -> Any:
        """What counts of what the sources say."""
        said = {
            source: one.entry if isinstance(one, Won) else one for source, one in by_source.items()
        }
        order = {"human_first": SOURCES}.get(self.options.labels, (self.options.labels,))
        return next((said[source] for source in order if said[source] is not None), None)

    def optimal(self, search_id: str) -> str | None:
        """The routing label of a search."""
        optimal: str | None = self._counting(
            {source: won.get(search_id) for source, won in self.routing_labels.items()}
        )
        return optimal

    # --- documents ---

    def is_unique(self, index: int) -> bool:
        """Whether the result is the first of its document."""
        return self.found[index].placement.first == index

    def gain_of(self, first: int) -> int | None:
        """The gain of the document whose first result this is; None if unlabelled."""
        gain: int | None = self._counting(
            {source: self.gain_by(source, first) for source in SOURCES}
        )
        return gain

    def gain_by(self, source: str, first: int) -> int | None:
        """The gain of a document by the labels of one source."""
        labels = [
            label
            for one in self.found
            if one.placement.first == first and (label := one.labels[source]) is not None
        ]
        if not labels:
            return None
        return max(labels) if self.options.gain_of_document == "max" else labels[0]

    def labelled_by(self) -> dict[str, int]:
        """How many labelled documents have the label of each source, where it counts."""
        found = dict.fromkeys(SOURCES, 0)
        for index in range(len(self.found)):
            if self.is_unique(index) and self.gain_of(index) is not None:
                by_people = self.gain_by("human", index) is not None
                source = "human" if by_people and self.options.labels != "model" else "model"
                found[source] += 1
        return {source: count for source, count in found.items() if count}

    def is_good(self, first: int) -> bool:
        """Whether the document whose first result this is is good."""
        gain = self.gain_of(first)
        return gain is not None and gain >= self.options.good_gain

    # --- loops ---

    def in_order(self) -> list[Won]:
        """The winning searches in canonical order."""
        return sorted(
            self.searches.values(),
            key=lambda won: (
                won.event.body["iteration"],
                won.entry["ordinal"],
                won.event.time,
                won.index,
                won.entry["search_id"],
            ),
        )

    def asked(self, won: Won) -> tuple[str, str | None] | None:
        """What a search asked: its query and route; None without a query."""
        query = normalise(won.entry["query"] or "", self.options.dedup.canonical)
        return (query, won.entry["route"]) if query else None

    def queried(self, iteration: int) -> int:
        """The searches of an iteration that have a query."""
        return sum(self.asked(won) is not None for won in self.searches_of(iteration))

    def repeated(self, iteration: int) -> int:
        """Those of them that ask what an earlier search of the turn asked."""
        asked = [(won.event.body["iteration"], self.asked(won)) for won in self.in_order()]
        return sum(
            of == iteration and what is not None and what in [other for _, other in asked[:at]]
            for at, (of, what) in enumerate(asked)
        )

    def empty(self, iteration: int) -> int:
        """The searches of an iteration without a result."""
        return sum(not won.entry["results"] for won in self.searches_of(iteration))

    def without_new(self) -> list[bool]:
        """Of each counted iteration, whether it found no new document."""
        return [self.iteration_counts(iteration)["unique"] == 0 for iteration in self.counted()]

    def trailing(self) -> int:
        """How many iterations without a new document stand at the end."""
        found = self.without_new()
        return max(n for n in range(len(found) + 1) if all(found[len(found) - n :]))

    # --- figures ---

    def iteration_counts(self, iteration: int) -> dict[str, int]:
        """The integers of one counted iteration."""
        here = [n for n, one in enumerate(self.found) if one.iteration == iteration]
        unique = [n for n in here if self.is_unique(n)]
        good = [n for n in unique if self.is_good(n)]
        return {
            "results": len(here),
            "unique": len(unique),
            "good_unique": len(good),
            "duplicates": len(here) - len(unique),
            "labelled": sum(self.gain_of(n) is not None for n in unique),
            "gain": sum(self.gain_of(n) or 0 for n in good),
        }

    def iteration_rows(self) -> list[dict[str, Any]]:
        """The `iterations` of the row."""
        rows: list[dict[str, Any]] = []
        all_counts: list[dict[str, int]] = []
        for i, iteration in enumerate(self.counted(), start=1):
            counts = self.iteration_counts(iteration)
            all_counts.append(counts)
            total = {name: sum(one[name] for one in all_counts) for name in counts}
            averages = [ratio(one["gain"], one["results"]) for one in all_counts]
            dcg = fsum(one["gain"] / log2(k + 1) for k, one in enumerate(all_counts, start=1))
            discounted = fsum(avg / log2(k + 1) for k, avg in enumerate(averages, start=1))
            rows.append(
                {
                    "iteration": iteration,
                    "i": i,
                    **counts,
                    "avg_gain": averages[-1],
                    "r_at": total["results"],
                    "ur_at": total["unique"],
                    "gr_at": total["good_unique"],
                    "dup_at": total["duplicates"],
                    "cg": total["gain"],
                    "rg": total["gain"] / i,
                    "dcg": dcg,
                    "drg": dcg / i,
                    "rag": fsum(averages) / i,
                    "drag": discounted / i,
                    "sre": ratio(total["good_unique"], total["results"]),
                    "srr": ratio(total["duplicates"], total["results"]),
                }
            )
        return rows

    def all_good(self) -> tuple[int | None, str | None]:
        """The iterations needed for all good results, and the definition of "all"."""
        counted = self.counted()
        if not counted:
            return None, None
        if self.completed is not None and self.completed.entry is not None:
            wanted = [
                doc_id
                for doc_id, grade in self.completed.entry.items()
                if grade >= self.options.good_gain
            ]
            if not wanted or all(one.raw["doc_id"] is None for one in self.found):
                return None, "qrels"
            if self.options.joined_grades:
                return max(map(self._until, wanted)), "qrels"
            needed = 0
            for doc_id in wanted:
                places = [
                    counted.index(one.iteration) + 1
                    for one in self.found
                    if one.raw["doc_id"] == doc_id
                ]
                needed = max(needed, min(places, default=CAP))
            return min(needed, CAP), "qrels"
        places = [
            counted.index(one.iteration) + 1
            for n, one in enumerate(self.found)
            if self.is_unique(n) and self.is_good(n)
        ]
        return (min(max(places), CAP) if places else None), "retrieved"

    def _until(self, doc_id: str) -> int:
        """The iterations until a document of the ground truth was retrieved by any of its ids."""
        places = [
            self.counted().index(one.iteration) + 1
            for one in self.found
            if doc_id in self.ids_of(one)
        ]
        return min([*places, CAP])

    def ids_of(self, result: Found) -> frozenset[str]:
        """Every id of a result's document, of all documents with one of these ids, and so on."""
        firsts, ids, known = {result.placement.first}, set[str](), -1
        while known < len(firsts) + len(ids):
            known = len(firsts) + len(ids)
            for one in self.found:
                if one.placement.first in firsts or one.raw["doc_id"] in ids:
                    firsts.add(one.placement.first)
                    ids |= {one.raw["doc_id"]} - {None}
        return frozenset(ids)

    def rerank_of(self, search_id: str) -> tuple[float, float] | None:
        """NDCG of the shown and of the baseline order; None if the search is not compared."""
        ranked = [
            one
            for one in self.found
            if one.search_id == search_id and one.raw["baseline_rank"] is not None
        ]
        gains = {one.placement.first: self.gain_of(one.placement.first) for one in ranked}
        if len(ranked) < 2 or all(gain is None for gain in gains.values()):
            return None
        shown = sorted(ranked, key=lambda one: one.rank)
        baseline = sorted(ranked, key=lambda one: (one.raw["baseline_rank"], one.rank))
        ideal = _dcg(sorted((gain or 0 for gain in gains.values()), reverse=True))
        scores = []
        for order in (shown, baseline):
            documents = list(dict.fromkeys(one.placement.first for one in order))
            dcg = _dcg([gains[document] or 0 for document in documents])
            scores.append(dcg / ideal if ideal else 0.0)
        return scores[0], scores[1]

    def orphan_labels(self) -> int:
        """The number of winning result labels that name no result."""
        known = {one.raw["result_id"] for one in self.found}
        return sum(
            result_id not in known for labels in self.gain_labels.values() for result_id in labels
        )


def ratio(numerator: int, denominator: int) -> float:
    """A ratio; 0 if the denominator is 0."""
    return numerator / denominator if denominator else 0.0


def _dcg(gains: list[int]) -> float:
    return fsum(gain / log2(place + 1) for place, gain in enumerate(gains, start=1))


def alive(events: Iterable[Event]) -> list[Event]:
    """The events of a conversation that no ``forget`` erases, without the forgets."""
    events = list(events)
    tombstone = max((event.version for event in events if event.type == "forget"), default=None)
    return [
        event
        for event in events
        if event.type != "forget" and (tombstone is None or event.version > tombstone)
    ]


def turns_of(conversation: str, events: list[Event], options: Options) -> list[Turn]:
    """Evaluate every existing turn of a conversation from its remaining events."""
    existing = sorted({event.turn for event in events if event.type == "search_iteration"})
    return [
        _turn(conversation, number, [event for event in events if event.turn == number], options)
        for number in existing
    ]


def _turn(conversation: str, number: int, events: list[Event], options: Options) -> Turn:
    labels: list[dict[str, dict[Any, Won]]] = [{source: {} for source in SOURCES} for _ in range(3)]
    gains, routes, gates = labels
    turn = Turn(conversation, number, {}, {}, gains, routes, gates, set(), None, options)
    for event in sorted(events, key=lambda event: event.order):
        if event.type == "search_iteration":
            searches = [(search["search_id"], search) for search in event.body["searches"]]
            turn.searches.update(_first_entries(event, searches))
            if event.body["gate"] is not None:
                turn.gates[event.body["iteration"]] = Won(event, 0, event.body["gate"])
        elif event.type == "relevance_labels":
            source = source_of(event, options)
            turn.gain_labels[source].update(_first_entries(event, event.body["labels"]))
            turn.routing_labels[source].update(_first_entries(event, event.body["routing"]))
            turn.gate_labels[source].update(_first_entries(event, event.body["gate"]))
            if event.body["sample"] == "random":
                turn.samples.add(source)
        elif event.type == "turn_completed":
            turn.completed = Won(event, 0, event.body["relevant"])
    turn.found = _found(turn, options.dedup)
    return turn


def source_of(event: Event, options: Options) -> str:
    """Whose labels an event has."""
    if event.body["source"] is not None:
        return str(event.body["source"])
    labeller = event.body["labeller"]
    models = [re.escape(one).replace(r"\*", ".*") for one in options.model_labellers]
    by_model = labeller is not None and any(
        re.fullmatch(one, labeller, re.IGNORECASE | re.DOTALL) for one in models
    )
    return "model" if by_model else "human"


def _first_entries(event: Event, entries: list[tuple[Any, Any]]) -> dict[Any, Won]:
    won: dict[Any, Won] = {}
    for index, (item, entry) in enumerate(entries):
        if item not in won:
            won[item] = Won(event, index, entry)
    return won


def _found(turn: Turn, settings: Settings) -> list[Found]:
    ordered = sorted(
        (
            won.event.body["iteration"],
            won.entry["ordinal"],
            won.event.time,
            won.index,
            search_id,
            rank,
        )
        for search_id, won in turn.searches.items()
        for rank in range(1, len(won.entry["results"]) + 1)
    )
    raws = [turn.searches[place[4]].entry["results"][place[5] - 1] for place in ordered]
    placements = deduplicate(raws, settings)
    found = []
    handles: set[str] = set()
    for place, raw, placement in zip(ordered, raws, placements, strict=True):
        holds = raw["result_id"] not in handles
        handles.add(raw["result_id"])
        labels: dict[str, int | None] = {"human": raw["gain"], "model": None}
        if holds:
            for source, events in turn.gain_labels.items():
                if raw["result_id"] in events:
                    labels[source] = events[raw["result_id"]].entry
        found.append(
            Found(
                raw,
                place[4],
                place[0],
                place[5],
                holds,
                labels,
                placement,
                canonical_type(raw, settings),
            )
        )
    return found
