"""Groups the searches of a turn into iterations: searches that were one decision of the agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_END, _MODEL, _START, _EMPTY_END = range(4)


@dataclass(frozen=True, slots=True)
class TimedSearch:
    """A search by its time, and the ids of the nearest tool or search and the nearest step around
    it."""

    id: str
    start_ns: int
    end_ns: int
    inside: str | None = None
    step: str | None = None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A model call by its start, and the id of the nearest tool or search around it."""

    start_ns: int
    inside: str | None = None


def by_steps(searches: Sequence[TimedSearch], starts: dict[str, int]) -> dict[str, int]:
    """Iterations by the step spans around the searches, in order of their start."""
    steps = sorted(
        {search.step for search in searches if search.step}, key=lambda id: (starts[id], id)
    )
    number = {id: place for place, id in enumerate(steps, 1)}
    return {search.id: number[search.step] for search in searches if search.step}


def by_models(
    searches: Sequence[TimedSearch], calls: Sequence[ModelCall], outer: Mapping[str, str]
) -> dict[str, int]:
    """Iterations by model calls: a call that starts between two searches separates them.

    A call inside a tool or search separates only searches inside it. ``outer`` maps each tool or
    search to the next one around it. Searches that nothing separates form one iteration.
    """

    def enclosing(search: TimedSearch) -> Iterator[str | None]:
        place = search.inside
        while place is not None:
            yield place
            place = outer.get(place)
        yield None

    moments: list[tuple[int, int, str, TimedSearch | ModelCall]] = [
        (call.start_ns, _MODEL, call.inside or "", call) for call in calls
    ]
    for search in searches:
        moments.append((search.start_ns, _START, search.id, search))
        empty = search.end_ns <= search.start_ns
        moments.append(
            (max(search.start_ns, search.end_ns), _EMPTY_END if empty else _END, search.id, search)
        )
    ended: dict[str | None, int] = {}
    separated: dict[str | None, int] = {}
    numbers: dict[str, int] = {}
    for _, what, _, moment in sorted(moments, key=lambda moment: moment[:3]):
        if isinstance(moment, ModelCall):
            if moment.inside in ended:
                separated[moment.inside] = ended[moment.inside]
        elif what == _START:
            numbers[moment.id] = 1 + max(separated.get(place, 0) for place in enclosing(moment))
        else:
            for place in enclosing(moment):
                ended[place] = max(ended.get(place, 0), numbers[moment.id])
    return _without_gaps(numbers)


def by_time(searches: Sequence[TimedSearch]) -> dict[str, int]:
    """Iterations by time: one begins with the first search that starts after another has ended."""
    numbers: dict[str, int] = {}
    iteration, first_end_ns = 0, -1
    for search in sorted(searches, key=lambda search: (search.start_ns, search.id)):
        end_ns = max(search.start_ns, search.end_ns)
        if not iteration or search.start_ns >= first_end_ns:
            iteration, first_end_ns = iteration + 1, end_ns
        else:
            first_end_ns = min(first_end_ns, end_ns)
        numbers[search.id] = iteration
    return numbers


def _without_gaps(numbers: dict[str, int]) -> dict[str, int]:
    number = {old: new for new, old in enumerate(sorted(set(numbers.values())), 1)}
    return {id: number[old] for id, old in numbers.items()}
