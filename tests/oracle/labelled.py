"""What conversations of random samples add to the windows, from the definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement

from .retrieval import scores
from .turns import Turn

Labels = tuple[tuple[str, str], ...]
SAMPLES = {"both": ("human", "model"), "people": ("human",), "model": ("model",)}
LETTERS = {"human": "y", "model": "f"}
TEN_THOUSAND = 10_000


def unit_entries(turns: Iterable[Turn]) -> Iterator[tuple[int, str, str, Labels, int]]:
    """The entries of all conversations, each with one agent."""
    units: dict[tuple[str, str], list[Turn]] = {}
    for turn in turns:
        if turn.counted():
            agent = turn.agent_of(turn.counted()[-1])[0]
            units.setdefault((turn.conversation, agent), []).append(turn)
    for (_, agent), its in units.items():
        yield from _of_unit(agent, its)
        yield from _unlabelled(agent, its)


def _of_unit(agent: str, turns: list[Turn]) -> Iterator[tuple[int, str, str, Labels, int]]:
    for sample, sources in SAMPLES.items():
        counting = {
            index: iterations
            for index, turn in enumerate(turns)
            if set(sources) <= turn.samples and _touched(turn, sources)
            if (iterations := [one for one in turn.counted() if _settled(turn, one, sources)])
        }
        if not counting:
            continue
        pairs = [(turns[at], iteration) for at, its in counting.items() for iteration in its]
        time = max(turns[at].time_of(turns[at].counted()[-1]) for at in counting)
        for figure, values in _figures(pairs, sources).items():
            if values["b"] == 0:
                continue
            products = {"n": 1, **values}
            for one, other in combinations_with_replacement(values, 2):
                products[one + other] = values[one] * values[other]
            for name, value in products.items():
                labels = (("figure", figure), ("sample", sample), ("sum", name))
                yield time, "label_sums", agent, labels, value
        return


def _unlabelled(agent: str, turns: list[Turn]) -> Iterator[tuple[int, str, str, Labels, int]]:
    """What was drawn for the model and is not labelled by it."""
    missing = [
        (turn, iteration)
        for turn in turns
        if "model" in turn.samples
        for iteration in turn.counted()
        if not (_touched(turn, ("model",)) and _settled(turn, iteration, ("model",)))
    ]
    bases = {
        "sre": sum(turn.iteration_counts(at)["results"] for turn, at in missing),
        "gain": len(missing),
    }
    for metric in turns[0].options.retrieval:
        if metric.startswith("ndcg"):
            bases[metric] = sum(len(turn.searches_of(at)) for turn, at in missing)
    for figure, base in bases.items():
        if base:
            time = max(turn.time_of(turn.counted()[-1]) for turn, _ in missing)
            for name, value in (("n", 1), ("b", base)):
                labels = (("figure", figure), ("sample", "unlabelled"), ("sum", name))
                yield time, "label_sums", agent, labels, value


def _figures(pairs: list[tuple[Turn, int]], sources: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """The base of each figure, and its numerator by each source."""
    found = {
        "sre": {"b": sum(turn.iteration_counts(at)["results"] for turn, at in pairs)},
        "gain": {"b": len(pairs)},
    }
    for source in sources:
        gains = [gain for turn, at in pairs for gain in _good(turn, at, source)]
        found["sre"][LETTERS[source]] = len(gains)
        found["gain"][LETTERS[source]] = sum(gains)
    for metric in pairs[0][0].options.retrieval:
        if metric.startswith("ndcg"):
            found[metric] = _ndcg(pairs, metric, sources)
    return found


def _ndcg(pairs: list[tuple[Turn, int]], metric: str, sources: tuple[str, ...]) -> dict[str, int]:
    values = dict.fromkeys(("b", *(LETTERS[source] for source in sources)), 0)
    for turn, iteration in pairs:
        searches = [won.entry["search_id"] for won in turn.searches_of(iteration)]
        by_source = {
            source: [scores(turn, search, (metric,), source) for search in searches]
            for source in sources
        }
        if all(any(of) for of in by_source.values()):
            scored = {
                source: [round(one[metric] * TEN_THOUSAND) for one in of if one]
                for source, of in by_source.items()
            }
            [count] = {len(found) for found in scored.values()}
            values["b"] += count
            for source, found in scored.items():
                values[LETTERS[source]] += sum(found)
    return values


def _firsts(turn: Turn, iteration: int) -> list[int]:
    """The unique documents that an iteration was the first to return."""
    return [
        at for at, one in enumerate(turn.found) if turn.is_unique(at) and one.iteration == iteration
    ]


def _good(turn: Turn, iteration: int, source: str) -> list[int]:
    gains = [turn.gain_by(source, first) for first in _firsts(turn, iteration)]
    return [gain for gain in gains if gain is not None and gain >= turn.options.good_gain]


def _touched(turn: Turn, sources: tuple[str, ...]) -> bool:
    """Whether each source has labelled a document of the turn, if it has documents."""
    firsts = [at for at in range(len(turn.found)) if turn.is_unique(at)]
    return not firsts or all(
        any(turn.gain_by(source, first) is not None for first in firsts) for source in sources
    )


def _settled(turn: Turn, iteration: int, sources: tuple[str, ...]) -> bool:
    firsts = _firsts(turn, iteration)
    return all(
        sum(turn.gain_by(source, first) is not None for first in firsts) * 10 >= len(firsts) * 9
        for source in sources
    )
