"""The cost of an event, which must not grow with the size of its turn.

Measures the CPU time of decode, step, encode and write in this process, with the memory store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.figures import Figure, figures_table, ratios, section
from benchmarks.inprocess import InProcess
from benchmarks.workload import Plain

RESULTS = 10
LAST_ITERATION = 100
TURN_SIZES = (10, 100, 2_000)
TITLE = "Travel policy of the whole company"
BASES = {
    "event": "event at iteration 1",
    "event in a turn": f"event in a turn of {TURN_SIZES[0]} results",
    "label": f"label on a turn of {TURN_SIZES[0]} results",
}
"""The baseline of a measurement by the beginning of its name; the longest match counts."""
GOAL = "0.8 to 1.2"


def run(*, quick: bool = False, rounds: int | None = None) -> str:
    """Measure, and return the report."""
    count, conversations = rounds or (3 if quick else 7), 10 if quick else 20
    figures = asyncio.run(_run(count, conversations))
    return section(
        "cost: CPU µs an event, by what the turn holds already",
        f"events of {RESULTS} results or of one label, {conversations} conversations side by side, "
        f"in one batch; memory store; {count} rounds\n",
        figures_table(figures),
    )


async def _run(rounds: int, conversations: int) -> list[Figure]:
    found: dict[str, list[float]] = {}
    await _sizes(-1, conversations)  # first calls fill caches
    for seed in range(rounds):
        for measure in (_iterations, _hot, _sizes, _one_title, _labels):
            for what, seconds in (await measure(seed, conversations)).items():
                found.setdefault(what, []).append(1e6 * seconds)
    figures = []
    for what, values in found.items():
        figures.append(Figure(what, values, "µs"))
        base = BASES[max((begin for begin in BASES if what.startswith(begin)), key=len)]
        if what != base:
            figures.append(Figure(f"  ÷ {base}", ratios(values, found[base]), "", GOAL))
    return figures


async def _iterations(seed: int, conversations: int) -> dict[str, float]:
    """An event of ten results at iteration 1, 10, 100 of its turn (mean of three iterations)."""
    path, plain = await _opened(seed)
    spent = {}
    for iteration in range(1, LAST_ITERATION + 1):
        first = iteration * RESULTS
        records = [
            plain.search(name, iteration, [plain.result(first + n) for n in range(RESULTS)])
            for name in _names(conversations)
        ]
        spent[iteration] = await path.process(records) / conversations
    return {
        "event at iteration 1": spent[1],
        "event at iteration 10": sum(spent[n] for n in (9, 10, 11)) / 3,
        "event at iteration 100": sum(spent[n] for n in (98, 99, 100)) / 3,
    }


async def _hot(seed: int, conversations: int) -> dict[str, float]:
    """An event of ten results in a batch that has only events of one turn."""
    path, plain = await _opened(seed)
    [name] = _names(1)
    records = [
        plain.search(name, at, [plain.result(at * RESULTS + n) for n in range(RESULTS)])
        for at in range(1, LAST_ITERATION + 1)
    ]
    return {f"event, {LAST_ITERATION} of one hot turn": await path.process(records) / len(records)}


async def _sizes(seed: int, conversations: int) -> dict[str, float]:
    """An event of ten results in a turn of 10, 100 or 2,000 results."""
    found = {}
    for size in TURN_SIZES:
        path, plain = await _filled(seed, conversations, size - RESULTS, "")
        results = [[plain.result(size + n) for n in range(RESULTS)] for _ in range(conversations)]
        found[f"event in a turn of {size:,} results"] = await _event(path, plain, results)
    return found


async def _one_title(seed: int, conversations: int) -> dict[str, float]:
    """The same if all results have one title and differ only in their snippets."""
    size = TURN_SIZES[-1]
    path, plain = await _filled(seed, conversations, size - RESULTS, TITLE)
    results = [
        [plain.titled(size + n, TITLE) for n in range(RESULTS)] for _ in range(conversations)
    ]
    return {f"event in a turn of {size:,} results of one title": await _event(path, plain, results)}


async def _labels(seed: int, conversations: int) -> dict[str, float]:
    """An event of one label for a turn of 10, 100 or 2,000 results."""
    found = {}
    for size in TURN_SIZES:
        path, plain = await _filled(seed, conversations, size, "")
        spent = 0.0
        repeats = min(size, 10)
        for number in range(1, repeats + 1):
            records = [plain.labels(name, [number]) for name in _names(conversations)]
            spent += await path.process(records)
        found[f"label on a turn of {size:,} results"] = spent / repeats / conversations
    return found


async def _opened(seed: int) -> tuple[InProcess, Plain]:
    """A path that knows its agent: what a new agent costs once is not part of an event."""
    path, plain = await InProcess().open(), Plain(seed)
    await path.process([plain.search("another", 1, [plain.result(1)])])
    return path, plain


async def _filled(seed: int, conversations: int, size: int, title: str) -> tuple[InProcess, Plain]:
    """Conversations whose turn has ``size`` results by one event."""
    path, plain = await _opened(seed)
    make = (lambda n: plain.titled(n, title)) if title else plain.result
    if size:
        for name in _names(conversations):
            await path.process([plain.search(name, 1, [make(n + 1) for n in range(size)])])
    return path, plain


async def _event(
    path: InProcess, plain: Plain, results: Sequence[Sequence[dict[str, object]]]
) -> float:
    """One more event for each conversation; CPU seconds each."""
    names = _names(len(results))
    records = [plain.search(name, 2, some) for name, some in zip(names, results, strict=True)]
    return await path.process(records) / len(results)


def _names(conversations: int) -> list[str]:
    return [f"itd-{serial:06x}" for serial in range(conversations)]
