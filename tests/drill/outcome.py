"""What became of the two worlds of a seed: by evidence, by windows and by fixed thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from stream_metrics.core.alerts.figures import FIGURES
from tests.drill.curves import Sweep, plain_thresholds, plains, sweeps
from tests.drill.evaluation import PLAIN_OF, Firing, Rule
from tests.drill.evidence import Reals
from tests.drill.gather import ALERT_OF
from tests.drill.judge import beyond, fired, judge, plain_ratio
from tests.drill.kept import KEPT, ROOT, digest, kept
from tests.drill.minutes import Placing
from tests.drill.plan import Planning, incidents
from tests.drill.run import Drill, drill
from tests.drill.simulation import Size, World, kept_world, world_key
from tests.drill.window_rules import PREFIX, judge_windows
from tests.drill.world import place

_DRILL: Final = ("curves", "evidence", "gather", "judge", "outcome", "told", "window_rules")
SOURCES: Final = (
    *(ROOT / "tests" / "drill" / f"{name}.py" for name in _DRILL),
    ROOT / "stream_metrics" / "core" / "alerts",
)
Fixed = Mapping[str, Mapping[str, Reals]]
"""The fixed thresholds that are tried, by figure and kind."""

PLAIN_AT: Final = {  # as in plain.rules.yml
    "srr": 0.5, "results": 3.0, "sre": 0.1, "gain": 3.0, "missed_searches": 0.2,
    "wrong_routes": 0.7, "reranking": 1.0, "repeated_searches": 0.4, "empty_searches": 0.25,
}  # fmt: skip


class Which(NamedTuple):
    """The worlds of a seed, how turns are placed in them, and what goes wrong."""

    seed: int
    placing: Placing = place
    planning: Planning = incidents


class Outcome(NamedTuple):
    """The drills of a seed: of evidence and of windows, both with the plain rules beside them."""

    healthy: Drill
    troubled: Drill
    windows_healthy: Drill
    windows_troubled: Drill
    swept: Mapping[str, Mapping[str, Sweep]]


def outcome(which: Which, size: Size, fixed: Fixed, folder: Path = KEPT) -> Outcome:
    """The outcome of a seed, computed unless it was before by the same sources."""
    levels = [values.tolist() for by_kind in fixed.values() for values in by_kind.values()]
    key = digest(SOURCES, world_key(size, which.placing, which.planning), levels)
    path = folder / f"{key}/{which.seed}.outcome"
    return kept(path, lambda: _outcome(which, size, fixed, folder))


def _outcome(which: Which, size: Size, fixed: Fixed, folder: Path) -> Outcome:
    healthy, troubled = (
        kept_world(
            which.seed,
            size,
            healthy=well,
            placing=which.placing,
            planning=which.planning,
            folder=folder,
        )
        for well in (True, False)
    )
    return Outcome(
        _drill(healthy, _evidence),
        _drill(troubled, _evidence),
        _drill(healthy, _windows),
        _drill(troubled, _windows),
        {figure.name: sweeps(healthy, troubled, figure, fixed[figure.name]) for figure in FIGURES},
    )


Rules = Callable[[World], tuple[list[Rule], list[Firing]]]


def _drill(world: World, rules: Rules) -> Drill:
    """The drill of some rules, with the plain ones beside them."""
    found, firings = rules(world)
    for figure in FIGURES:
        plain = Rule(PLAIN_OF[ALERT_OF[figure.name]], "", "", 5, 0)
        holds = beyond(figure, plain_ratio(world, figure, "5m"), PLAIN_AT[figure.name])
        found.append(plain)
        firings += fired(world, plain, holds)
    return drill(world, found, firings)


def _evidence(world: World) -> tuple[list[Rule], list[Firing]]:
    return judge(world)


def _windows(world: World) -> tuple[list[Rule], list[Firing]]:
    """Under the names of the alerts of today."""
    rules, firings = judge_windows(world)
    named = {rule: rule._replace(name=rule.name.removeprefix(PREFIX)) for rule in rules}
    return list(named.values()), [one._replace(rule=named[one.rule]) for one in firings]


def fixed_thresholds(worlds: Iterable[Which], size: Size, folder: Path = KEPT) -> Fixed:
    """The fixed thresholds to try, from healthy worlds."""
    healthy = [
        kept_world(which.seed, size, healthy=True, placing=which.placing, folder=folder)
        for which in worlds
    ]
    return {
        figure.name: {
            kind: plain_thresholds(healthy, figure, plain.window)
            for kind, plain in plains(figure).items()
        }
        for figure in FIGURES
    }
