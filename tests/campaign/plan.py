"""What a round does, from its seed and options alone."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.campaign.faults import ANY, FAULTS, Fault, Need

FIRST_SHARE: Final = 0.14
LAST_SHARE: Final = 0.90
LONGEST_RUNS: Final = 5  # one round in so many has servers other than the plain ones


@dataclass(frozen=True, slots=True)
class Options:
    """How large a round is; ``only`` names the faults to choose from."""

    seed: int
    faults: int = 5
    events: int = 100_000
    conversations: int = 20_000
    rate: float = 6_000.0
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that strikes once the state has that share of the log, and is held for a while."""

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

    def lines(self) -> list[str]:
        """The schedule for people."""
        shape = f"seed {self.options.seed}: {self.workers} workers, servers: {self.servers.value}"
        return [shape] + [
            f"  at {strike.share:.0%}: {strike.fault}, held for {strike.hold_seconds:.1f} s"
            for strike in self.strikes
        ]


def make_plan(options: Options) -> Plan:
    """The schedule of a seed."""
    rng = random.Random(f"plan/{options.seed}")
    named = [FAULTS[name] for name in options.only] or list(FAULTS.values())
    servers = _servers(rng, named)
    possible = [fault for fault in named if fault.needs in (ANY, servers)]
    chosen = _draw(rng, possible, options.faults)
    step = (LAST_SHARE - FIRST_SHARE) / max(1, len(chosen))
    strikes = tuple(
        Strike(
            fault.name,
            round(FIRST_SHARE + step * (number + rng.uniform(0.0, 0.3)), 3),
            round(rng.uniform(*fault.hold), 1),
            f"strike/{options.seed}/{number}",
        )
        for number, fault in enumerate(chosen)
    )
    return Plan(options, rng.randint(1, 4), servers, strikes)


def _servers(rng: random.Random, faults: list[Fault]) -> Need:
    """Plain servers as a rule; others now and then, or where nothing else would do."""
    needs = sorted({fault.needs for fault in faults} - {ANY}, key=lambda need: need.value)
    special = [need for need in needs if need is not Need.PLAIN]
    if not special:
        return Need.PLAIN
    if Need.PLAIN not in needs or rng.randrange(LONGEST_RUNS) == 0:
        return rng.choice(special)
    return Need.PLAIN


def _draw(rng: random.Random, faults: list[Fault], count: int) -> list[Fault]:
    """``count`` of them, none twice before each was there once."""
    chosen: list[Fault] = []
    while len(chosen) < count:
        chosen += rng.sample(faults, min(len(faults), count - len(chosen)))
    return chosen
