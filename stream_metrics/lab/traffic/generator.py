"""Merge conversations that overlap in time into one stream of records in arrival order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from random import Random

from stream_metrics.lab.traffic.agent import agents_of, choose_agent
from stream_metrics.lab.traffic.conversation import Conversation
from stream_metrics.lab.traffic.faults import Arrival, ReorderBacklog
from stream_metrics.lab.traffic.profile import Ledger, TrafficProfile, TrafficRecord

_SECOND = 1_000_000
# Relative density of conversation starts in each twentieth of a working day.
_DAY = (2, 4, 7, 9, 10, 10, 9, 8, 5, 4, 6, 8, 9, 9, 8, 7, 5, 4, 2, 1)

Pieces = Iterator[tuple[int, list[Arrival]]]
# (time, tie-breaker in order of creation, a record or a conversation to resume)
Entry = tuple[int, int, Arrival | Pieces]


def generate(profile: TrafficProfile, ledger: Ledger | None = None) -> Iterator[TrafficRecord]:
    """The traffic of ``profile`` in arrival order; ``ledger`` counts what is generated.

    Memory grows with the number of concurrent conversations, not with their total.

    >>> records = list(generate(TrafficProfile(conversations=3)))
    >>> records == list(generate(TrafficProfile(conversations=3)))
    True
    """
    return _run(profile, range(profile.conversations), ledger or Ledger())


def endless(profile: TrafficProfile, ledger: Ledger | None = None) -> Iterator[TrafficRecord]:
    """Endless traffic: the profile's span repeated with new conversations."""
    if profile.conversations < 1:
        raise ValueError("endless traffic needs conversations")
    return _run(profile, count(), ledger or Ledger())


def _run(
    profile: TrafficProfile, serials: Iterable[int], ledger: Ledger
) -> Iterator[TrafficRecord]:
    agents = agents_of(profile)
    backlog = ReorderBacklog()
    heap: list[Entry] = []
    ties = count()
    for serial in serials:
        rng = Random(f"conversation/{profile.seed}/{serial}")
        start_us = _start(profile, serial, rng.random())
        yield from _advance(heap, ties, start_us, ledger)
        agent = choose_agent(agents, rng.random())
        pieces = Conversation(agent, serial, start_us, rng, ledger, backlog).pieces()
        heappush(heap, (start_us, next(ties), pieces))
    yield from _advance(heap, ties, None, ledger)


def _advance(
    heap: list[Entry], ties: Iterator[int], until_us: int | None, ledger: Ledger
) -> Iterator[TrafficRecord]:
    """Yield everything that arrives before ``until_us``, resuming conversations as needed."""
    while heap and (until_us is None or heap[0][0] < until_us):
        at_us, _, item = heappop(heap)
        if isinstance(item, Arrival):
            ledger.records[item.stream] += 1
            yield TrafficRecord(item.stream, item.key, item.value, at_us // 1000, item.valid)
            continue
        piece = next(item, None)
        if piece is not None:
            resume_us, arrivals = piece
            for arrival in arrivals:
                heappush(heap, (arrival.at_us, next(ties), arrival))
            heappush(heap, (resume_us, next(ties), item))


def _start(profile: TrafficProfile, serial: int, chance: float) -> int:
    """The start of a conversation in microseconds; later serials never start earlier."""
    span, place = divmod(serial, profile.conversations)
    share = (place + chance) / profile.conversations
    if profile.rhythm == "working_day":
        share = _of_the_day(share)
    seconds = (span + share) * profile.duration_seconds
    return profile.start * _SECOND + int(seconds * _SECOND)


def _of_the_day(share: float) -> float:
    """The time of a working day, as a share of it, by which ``share`` of conversations began."""
    left = share * sum(_DAY)
    for part, density in enumerate(_DAY):
        if left < density:
            return (part + left / density) / len(_DAY)
        left -= density
    return 1.0
