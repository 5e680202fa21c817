"""Simulate searches: new documents by popularity and topic, and repeats of earlier ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import NamedTuple

from stream_metrics.lab.traffic.corpus import Corpus, Document, DocumentPool

Chance = Callable[[], float]

# The evidence by which a repeat can be recognised, as cumulative shares.
_WAYS = ("id", "url", "text", "fields")
_WAY_EDGES = (0.55, 0.78, 0.95)
# Cumulative shares of the gains 0 to 4, for documents on the topic and for others.
_ON_TOPIC = (0.15, 0.35, 0.60, 0.84)
_OFF_TOPIC = (0.80, 0.95, 0.99, 1.0)
# Likelihood of each next number of iterations, and of each next number of searches.
_ITERATION_DECAY = 0.85
_SEARCH_DECAY = 0.5


class Hit(NamedTuple):
    """One result without a rank: its JSON members, its document and its true gain."""

    rendering: str
    document: Document
    gain: int
    way: str | None
    """The evidence by which it repeats an earlier result; None for a new document."""


class SeenDocuments:
    """The documents that a turn has seen so far."""

    __slots__ = ("gains", "shown")

    def __init__(self) -> None:
        self.gains: dict[int, int] = {}
        self.shown: list[Document] = []


class Retriever:
    """The searches of one turn over one agent's corpus."""

    __slots__ = ("_chance", "_corpus", "_topic", "memory")

    def __init__(self, corpus: Corpus, topic: int, rng: Random) -> None:
        self._corpus = corpus
        self._topic = topic
        self._chance = rng.random
        self.memory = SeenDocuments()

    def search(
        self, route: str, results: int, repeat: float, same_pages: float, *, topical: bool = True
    ) -> list[Hit]:
        """Up to ``results`` hits of a route, the best first.

        Each rank repeats an earlier document with probability ``repeat``, and otherwise becomes a
        repeat by id with probability ``same_pages``. Unless ``topical``, new documents are drawn
        by popularity only, regardless of the turn's topic.
        """
        chance = self._chance
        pool = self._corpus.by_topic.get((self._topic, route)) if topical else None
        popular = self._corpus.by_route[route]
        hits: list[Hit] = []
        here: set[int] = set()
        fresh: list[Document] = []
        for _ in range(results):
            hit = self._repeat(repeat, same_pages, here)
            if hit is None:
                on_topic = pool is not None and chance() < 0.55
                document = self._new(pool) if on_topic and pool else None
                document = document or self._new(popular)
                if document is None:
                    continue
                fresh.append(document)
                hit = Hit(document.primary, document, self._grade(document), None)
            here.add(hit.document.index)
            hits.append(hit)
        self.memory.shown += fresh
        return hits

    def _repeat(self, repeat: float, same_pages: float, here: set[int]) -> Hit | None:
        """A repeat of a document from an earlier search, by chance; else None."""
        chance, shown = self._chance, self.memory.shown
        if not shown:
            return None
        planted = chance() < repeat
        if not planted and not (same_pages and chance() < same_pages):
            return None
        for _ in range(4):
            document = shown[int(chance() * len(shown))]
            if document.index not in here:
                break
        else:
            return None
        way = _WAYS[bisect_right(_WAY_EDGES, chance())] if planted else "id"
        copies = document.copies(way)
        if not copies:
            way, copies = "id", document.copies("id")
        rendering = copies[int(chance() * len(copies))]
        return Hit(rendering, document, self.memory.gains[document.index], way)

    def _new(self, pool: DocumentPool) -> Document | None:
        """A document that the turn has not seen, by popularity; None if the pool is exhausted."""
        gains = self.memory.gains
        for _ in range(6):
            document = pool.draw(self._chance())
            if document.index not in gains:
                return document
        return next((known for known in pool.documents if known.index not in gains), None)

    def _grade(self, document: Document) -> int:
        """Draw and remember the true gain of a new document."""
        edges = _ON_TOPIC if document.topic == self._topic else _OFF_TOPIC
        gain = min(4, bisect_right(edges, self._chance()))
        self.memory.gains[document.index] = gain
        return gain


def draw_count(bounds: tuple[int, int], decay: float, chance: float) -> int:
    """Draw a number within ``bounds`` (inclusive), each ``decay`` times as likely as the last."""
    low, high = bounds
    return low + bisect_right(_edges(high - low + 1, decay), chance)


def draw_iterations(bounds: tuple[int, int], chance: float) -> int:
    """Draw the number of iterations of a turn."""
    return draw_count(bounds, _ITERATION_DECAY, chance)


def draw_searches(bounds: tuple[int, int], chance: float) -> int:
    """Draw the number of searches of an iteration."""
    return draw_count(bounds, _SEARCH_DECAY, chance)


@lru_cache(maxsize=64)
def _edges(count: int, decay: float) -> tuple[float, ...]:
    """Inner edges of the cumulative distribution of ``count`` geometrically falling shares."""
    weights = [decay**step for step in range(count)]
    total = sum(weights)
    return tuple(sum(weights[: step + 1]) / total for step in range(count - 1))


def _shares(bounds: tuple[int, int], decay: float) -> list[tuple[int, float]]:
    """The numbers within ``bounds`` with their probabilities."""
    edges = (0.0, *_edges(bounds[1] - bounds[0] + 1, decay), 1.0)
    return [(bounds[0] + step, high - low) for step, (low, high) in enumerate(pairwise(edges))]


def repeat_chance(base: float, iteration: int) -> float:
    """The probability that a result is a repeat, which grows with the iteration up to 0.95."""
    return min(0.95, base * (0.75 + 0.13 * iteration))


@lru_cache(maxsize=64)
def calibrate(share: float, iterations: tuple[int, int], searches: tuple[int, int]) -> float:
    """The ``base`` of :func:`repeat_chance` that makes ``share`` of all results repeats.

    The first search of a turn has nothing to repeat, hence the search for the base.
    """
    mean = sum(count * weight for count, weight in _shares(searches, _SEARCH_DECAY))
    lengths = _shares(iterations, _ITERATION_DECAY)

    def achieved(base: float) -> float:
        total = repeats = 0.0
        for length, weight in lengths:
            total += weight * length * mean
            repeats += weight * repeat_chance(base, 1) * (mean - 1)
            later = sum(repeat_chance(base, step) for step in range(2, length + 1))
            repeats += weight * later * mean
        return repeats / total

    low, high = 0.0, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if achieved(middle) < share else (low, middle)
    return low
