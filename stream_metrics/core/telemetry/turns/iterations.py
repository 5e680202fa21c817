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
    steps = sorted({one.step for one in searches if one.step}, key=lambda id: (starts[id], id))
    number = {id: place for place, id in enumerate(steps, 1)}
    return {one.id: number[one.step] for one in searches if one.step}


def by_models(
    searches: Sequence[TimedSearch], calls: Sequence[ModelCall], outer: Mapping[str, str]
) -> dict[str, int]:
    """Iterations by model calls: a call that starts between two searches separates them.

    A call inside a tool or search separates only searches inside it. ``outer`` maps each tool or
    search to the next one around it. Searches that nothing separates form one iteration.
    """

    def enclosing(one: TimedSearch) -> Iterator[str | None]:
        place = one.inside
        while place is not None:
            yield place
            place = outer.get(place)
        yield None

    moments: list[tuple[int, int, str, TimedSearch | ModelCall]] = [
        (call.start_ns, _MODEL, call.inside or "", call) for call in calls
    ]
    for one in searches:
        moments.append((one.start_ns, _START, one.id, one))
        empty = one.end_ns <= one.start_ns
        moments.append((max(one.start_ns, one.end_ns), _EMPTY_END if empty else _END, one.id, one))
    ended: dict[str | None, int] = {}
    separated: dict[str | None, int] = {}
    found: dict[str, int] = {}
    for _, what, _, moment in sorted(moments, key=lambda one: one[:3]):
        if isinstance(moment, ModelCall):
            if moment.inside in ended:
                separated[moment.inside] = ended[moment.inside]
        elif what == _START:
            found[moment.id] = 1 + max(separated.get(place, 0) for place in enclosing(moment))
        else:
            for place in enclosing(moment):
                ended[place] = max(ended.get(place, 0), found[moment.id])
    return _without_gaps(found)


def by_time(searches: Sequence[TimedSearch]) -> dict[str, int]:
    """Iterations by time: one begins with the first search that starts after another has ended."""
    found: dict[str, int] = {}
    iteration, first_end_ns = 0, -1
    for one in sorted(searches, key=lambda one: (one.start_ns, one.id)):
        end_ns = max(one.start_ns, one.end_ns)
        if not iteration or one.start_ns >= first_end_ns:
            iteration, first_end_ns = iteration + 1, end_ns
        else:
            first_end_ns = min(first_end_ns, end_ns)
        found[one.id] = iteration
    return found


def _without_gaps(found: dict[str, int]) -> dict[str, int]:
    number = {old: new for new, old in enumerate(sorted(set(found.values())), 1)}
    return {id: number[old] for id, old in found.items()}
