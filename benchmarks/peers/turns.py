"""The state of a turn and its figures, in plain JSON values that the store of any peer can keep.

A search costs what its own results cost, whenever it comes; one that came before changes nothing,
and labels may come before what they name.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypedDict

from benchmarks.peers.identity import keys_of
from benchmarks.peers.reading import Event

FIGURES: Final = ("results", "duplicates", "labelled", "good", "gain")
GOOD_GAIN: Final = 2

Figures = list[int]


class Turn(TypedDict):
    """What is known of a turn.

    ``searches`` are the ids of those that came; ``documents`` are numbered, by key and by result;
    ``members`` are the results of each document in their canonical order, ``[iteration, ordinal,
    time, search_id, rank, result_id]``; ``labels`` are ``[time, event_id, gain]`` by result.
    """

    agent: str
    searches: list[str]
    document_of_key: dict[str, int]
    document_of_result: dict[str, int]
    members: list[list[list[Any]]]
    labels: dict[str, list[Any]]
    figures: Figures


def new_turn() -> Turn:
    """An empty turn."""
    return Turn(
        agent="",
        searches=[],
        document_of_key={},
        document_of_result={},
        members=[],
        labels={},
        figures=[0] * len(FIGURES),
    )


def take(turn: Turn, event: Event) -> Figures:
    """Merge an event into its turn; by how much the figures of the turn have changed."""
    before = turn["figures"].copy()
    if event["type"] == "search_iteration":
        turn["agent"] = event.get("agent", "default")
        for search in event.get("searches") or ():
            if search["search_id"] not in turn["searches"]:
                turn["searches"].append(search["search_id"])
                for member, keys in members_of(event, search):
                    add_result(turn, member, keys)
    for result_id, label in labels_of(event):
        add_label(turn, result_id, label)
    return difference(turn["figures"], before)


def difference(after: Sequence[int], before: Sequence[int]) -> Figures:
    """The changes of figures."""
    return [new - old for new, old in zip(after, before, strict=True)]


def add_up(totals: dict[str, Figures], agent: str, change: Sequence[int]) -> None:
    """Add what has changed to the totals of an agent."""
    if any(change):
        before = totals.get(agent, [0] * len(FIGURES))
        totals[agent] = [old + more for old, more in zip(before, change, strict=True)]


def members_of(event: Event, search: dict[str, Any]) -> Iterator[tuple[list[Any], list[str]]]:
    """The results of a search, each with its place and id as a turn keeps them, and its keys."""
    order = [
        event["iteration"],
        search.get("ordinal") or 0,
        event["occurred_at"],
        search["search_id"],
    ]
    for rank, result in enumerate(search.get("results") or ()):
        yield [*order, rank, result["result_id"]], keys_of(result)


def labels_of(event: Event) -> Iterator[tuple[str, list[Any]]]:
    """The labels of an event as a turn keeps them; any is newer than what came with a result."""
    for search in event.get("searches") or ():
        for result in search.get("results") or ():
            if result.get("gain") is not None:
                yield result["result_id"], [0.0, "", result["gain"]]
    for label in event.get("labels") or ():
        yield label["result_id"], [event["occurred_at"], event["event_id"], label["gain"]]


def add_result(turn: Turn, member: list[Any], keys: list[str]) -> None:
    """Find the document of a result."""
    document_of, members, figures = turn["document_of_key"], turn["members"], turn["figures"]
    number = next((document_of[key] for key in keys if key in document_of), len(members))
    figures[0] += 1
    if number == len(members):
        members.append([])
    else:
        figures[1] += 1
    for key in keys:
        document_of.setdefault(key, number)
    before = _gain(turn, number)
    insort(members[number], member)
    turn["document_of_result"][member[-1]] = number
    _replace(figures, before, _gain(turn, number))


def add_label(turn: Turn, result_id: str, label: list[Any]) -> None:
    """Take a label unless a later one is there; it waits if its result is not."""
    labels = turn["labels"]
    known = labels.get(result_id)
    if known is not None and known[:2] >= label[:2]:
        return
    number = turn["document_of_result"].get(result_id)
    before = None if number is None else _gain(turn, number)
    labels[result_id] = label
    if number is not None:
        _replace(turn["figures"], before, _gain(turn, number))


def _gain(turn: Turn, number: int) -> int | None:
    """The gain of a document: that of its first result that has one."""
    labels = turn["labels"]
    for member in turn["members"][number]:
        label = labels.get(member[-1])
        if label is not None and label[2] is not None:
            gain: int = label[2]
            return gain
    return None


def _replace(figures: Figures, before: int | None, after: int | None) -> None:
    """Replace the gain of a document."""
    for sign, gain in ((-1, before), (1, after)):
        if gain is not None:
            figures[2] += sign
            if gain >= GOOD_GAIN:
                figures[3] += sign
                figures[4] += sign * gain
