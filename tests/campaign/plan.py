"""The plan of a round, which depends only on its seed and options.

Faults are dealt like cards: seeds 1 to 15 have every fault at least once between them, and so have
the next 15, and so on.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.campaign.faults import ANY, FAULTS, Extra, Fault, Need

FIRST_SHARE: Final = 0.14
LAST_SHARE: Final = 0.90
DECK_SEEDS: Final = 15  # seeds among which all faults are dealt
SPECIAL_ROUNDS: Final = 2  # in a deck, with each kind of servers other than the plain ones
LONG: Final = 20  # times the shortest hold


@dataclass(frozen=True, slots=True)
class Options:
    """The size of a round; ``only`` names the faults to choose from.

    A round that is not ``timed`` may recover as slowly as a busy machine makes it.
    """

    seed: int
    faults: int = 5
    events: int = 100_000
    conversations: int = 20_000
    rate: float = 6_000.0
    only: tuple[str, ...] = ()
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that starts when the state has that share of the log, and how long it is held."""

    fault: str
    share: float
    hold_seconds: float
    seed: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The servers, the workers at the start, and the schedule."""

    options: Options
    workers: int
    servers: Need
    strikes: tuple[Strike, ...]

    @property
    def extras(self) -> frozenset[Extra]:
        """What its faults need in addition to the servers."""
        found = (FAULTS[strike.fault].extra for strike in self.strikes)
        return frozenset(extra for extra in found if extra is not None)

    def lines(self) -> list[str]:
        """The schedule as text."""
        servers = ", ".join([self.servers.value, *sorted(extra.value for extra in self.extras)])
        shape = f"seed {self.options.seed}: {self.workers} workers, servers: {servers}"
        return [shape] + [
            f"  at {strike.share:.0%}: {strike.fault}, held for {strike.hold_seconds:.1f} s"
            for strike in self.strikes
        ]


def make_plan(options: Options) -> Plan:
    """The schedule of a seed."""
    rng = random.Random(f"plan/{options.seed}")
    named = [FAULTS[name] for name in options.only] or list(FAULTS.values())
    deck, place = divmod(options.seed - 1, DECK_SEEDS)
    hand = _deal(random.Random(f"deck/{deck}"), named, options.faults)[place]
    step = (LAST_SHARE - FIRST_SHARE) / max(1, len(hand.faults))
    strikes = tuple(
        Strike(
            fault.name,
            round(FIRST_SHARE + step * (number + rng.uniform(0.0, 0.3)), 3),
            round(_hold(rng, fault), 1),
            f"strike/{options.seed}/{number}",
        )
        for number, fault in enumerate(sorted(hand.faults, key=lambda fault: not fault.first))
    )
    return Plan(options, rng.randint(1, 4), hand.servers, strikes)


def _hold(rng: random.Random, fault: Fault) -> float:
    """Seconds to hold a fault, drawn from a logarithmic scale if the range is wide."""
    shortest, longest = fault.hold
    if shortest > 0 and longest > LONG * shortest:
        return math.exp(rng.uniform(math.log(shortest), math.log(longest)))
    return rng.uniform(shortest, longest)


@dataclass(slots=True)
class _Hand:
    """The faults of one seed of a deck."""

    servers: Need
    faults: list[Fault] = field(default_factory=list)

    def takes(self, fault: Fault) -> bool:
        """Whether the fault can be added to the others."""
        return not (fault.alone and any(held.alone for held in self.faults))


def _deal(rng: random.Random, faults: Sequence[Fault], count: int) -> list[_Hand]:
    """The faults of each seed of a deck; every fault is dealt once before any is repeated.

    Those that fit the fewest hands are dealt first, so a round on special servers has faults that
    need them.
    """
    hands = [_Hand(servers) for servers in _servers(rng, faults)]
    dealt: Counter[str] = Counter()

    def give(hand: _Hand, choice: Sequence[Fault]) -> None:
        new = [fault for fault in choice if fault not in hand.faults] or choice
        fault = min(
            rng.sample(new, len(new)),
            key=lambda fault: (dealt[fault.name], not fault.alone, fault.needs is ANY),
        )
        dealt[fault.name] += 1
        hand.faults.append(fault)

    order = sorted(hands, key=lambda hand: hand.servers is Need.PLAIN)  # who can take fewest first
    while any(len(hand.faults) < count for hand in order):
        for hand in order:
            if len(hand.faults) < count:
                possible = [fault for fault in faults if fault.needs in (ANY, hand.servers)]
                give(hand, [fault for fault in possible if hand.takes(fault)] or possible)
    for hand in hands:
        rng.shuffle(hand.faults)
    return hands


def _servers(rng: random.Random, faults: Sequence[Fault]) -> list[Need]:
    """The servers of a deck's rounds: each special kind now and then, plain ones else.

    They are special in all rounds if none of the faults is at home on plain ones.
    """
    special = sorted(
        {fault.needs for fault in faults} - {ANY, Need.PLAIN}, key=lambda need: need.value
    )
    if special and not any(fault.needs is Need.PLAIN for fault in faults):
        dealt = special * DECK_SEEDS
    else:
        dealt = special * SPECIAL_ROUNDS + [Need.PLAIN] * DECK_SEEDS
    return rng.sample(dealt[:DECK_SEEDS], DECK_SEEDS)
