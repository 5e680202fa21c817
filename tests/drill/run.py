"""One drill: a simulated world, and the alerts that fired in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.drill.evaluation import Firing, Rule, Weeks, recorded_codes
from tests.drill.library import Numbers
from tests.drill.series import window_series
from tests.drill.simulation import World
from tests.drill.world import Agent, Incident


@dataclass(frozen=True, slots=True)
class Drill:
    """What happened and what fired. ``turns``: an agent's turns by minute of their start.

    ``rules``: all that could have fired. ``telling``: whether half of an incident's first ten
    minutes' turns tell it from chance, by ``Incident`` and alert. ``changes``: how many times its
    healthy ratio the agent's is, likewise. ``label_minutes``: after how many nine of ten of an
    agent's labels have come.
    """

    agents: Sequence[Agent]
    minutes: int
    incidents: Sequence[Incident]
    rules: Sequence[Rule]
    firings: Sequence[Firing]
    turns: dict[str, Numbers]
    telling: Mapping[tuple[Incident, str], bool]
    changes: Mapping[tuple[Incident, str], float]
    label_minutes: Mapping[str, int]


def drill(world: World, rules: Sequence[Rule] = (), fired: Sequence[Firing] = ()) -> Drill:
    """A world together with what fired in it."""
    return Drill(
        world.agents, world.minutes, world.incidents, rules, fired, world.turns, world.telling,
        world.changes, world.label_minutes,
    )  # fmt: skip


async def fire(
    world: World, folder: Path, say: Callable[[str], None] = lambda line: None
) -> tuple[list[Rule], list[Firing]]:
    """The alerts that numpy does not judge, and every time that a real Prometheus fires one."""
    weeks = Weeks(folder, world.minutes)
    codes = recorded_codes()
    series = list(world.operations)
    for agent, sums in world.sums.items():
        asked = {window: {code: sums[window][code] for code in of} for window, of in codes.items()}
        series += window_series(agent, asked)
    await weeks.fill(series, world.restarts)
    say("recording rules")
    await weeks.record()
    say("alerts")
    return await weeks.fire()
