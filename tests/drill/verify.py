"""Hold the evidence that the recording rules gather in worlds equal to that of numpy.

``python -m tests.drill.verify --seeds 1 --agents 20`` gives ``promtool`` the counters of agents,
which evaluates the real rules minute by minute. Agents that are through are not verified again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from deploy.local.servers import promtool
from stream_metrics.core.alerts.evidence import CUSUM, SHIFTS
from stream_metrics.core.alerts.figures import FIGURES
from stream_metrics.core.alerts.files import rule_groups
from tests.drill.evidence import Reals
from tests.drill.gather import IN_USE
from tests.drill.judge import inputs
from tests.drill.kept import KEPT, digest, kept
from tests.drill.minutes import counters, process_starts
from tests.drill.outcome import SOURCES
from tests.drill.series import Series, window_series
from tests.drill.simulation import Size, World, kept_world, world_key
from tests.rules.cases import name
from tests.rules.parts import groups_for

EXPECTED: Final = "expected_evidence"
TOLERANCE: Final = 1e-9
_ON: Final = "on (job, agent, figure, shift)"
_LOADED: Final = 4_000  # samples of a question from each side; promtool loads 10,000 at most
_LABELS: Final = {"1h": ("l", "u")}  # the window sums that the rules ask for


def main() -> None:
    """Verify worlds, some agents at a time; ends with an error at the first difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.drill.verify", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--worlds", nargs="+", choices=_WORLDS, default=list(_WORLDS))
    parser.add_argument("--agents", type=int, default=5, help="at a time")
    parser.add_argument("--minutes", type=int, help="of the beginning of each world; else all")
    asked = parser.parse_args()
    size = Size()
    for seed in asked.seeds:
        for which in asked.worlds:
            world = kept_world(seed, size, healthy=which == "healthy")
            for first in range(0, len(world.agents), asked.agents):
                chosen = [agent.name for agent in world.agents[first : first + asked.agents]]
                began = time.monotonic()
                compared = verified(seed, which, chosen, world, size, asked.minutes)
                print(
                    f"seed {seed}, {which}, {', '.join(chosen)}: {compared:,} values are equal "
                    f"({time.monotonic() - began:.0f} s)",
                    flush=True,
                )


_WORLDS: Final = ("healthy", "troubled")


def verified(
    seed: int, which: str, agents: Sequence[str], world: World, size: Size, minutes: int | None
) -> int:
    """How many values of some agents of a world were compared; raises if one differs."""
    key = digest(SOURCES, world_key(size), agents, minutes)
    path = KEPT / f"{key}/{seed}-{which}-{agents[0]}.verified"
    return kept(path, lambda: compare(world, agents, minutes or world.minutes))


def compare(world: World, agents: Sequence[str], minutes: int) -> int:
    """Compare every value of the rules with that of numpy; returns how many there are."""
    rows = [row for row, agent in enumerate(world.agents) if agent.name in agents]
    series = dict(_exported(world, agents, minutes))
    judged = np.zeros(minutes, np.int64)
    for figure in FIGURES:
        found = inputs(world, figure).evidence(figure, IN_USE[figure.name])
        for shift, of_agents in zip(SHIFTS, found[:, rows, :minutes], strict=True):
            for agent, values in zip(agents, of_agents, strict=True):
                labels = {"agent": agent, "figure": figure.name, "shift": shift}
                series[name(EXPECTED, job="stream-metrics", **labels)] = _known(values)
                judged += ~np.isnan(values)
    length = _LOADED // (len(FIGURES) * len(SHIFTS) * len(agents))
    close = f"abs({CUSUM} - {_ON} {EXPECTED}) < {TOLERANCE}"
    beside = f"{CUSUM} unless {_ON} {EXPECTED}"
    asked = [
        (f"sum(count_over_time(({expr})[{end - start - 1}m:1m])) or vector(0)", end - 1, number)
        for start in range(0, minutes, length)
        for end in [min(start + length, minutes)]
        if end - start > 1
        for expr, number in ((close, int(judged[start:end].sum())), (beside, 0))
    ]
    _promtool(series, asked)
    return int(judged.sum())


def _exported(world: World, agents: Sequence[str], minutes: int) -> Iterator[tuple[str, str]]:
    """What a worker exports of the agents, as promtool reads it."""
    found: list[Series] = [process_starts(world.minutes, sorted(world.restarts))]
    for agent in agents:
        found += counters(agent, world.gained[agent], sorted(world.restarts))
        sums = world.sums[agent]
        labels = {w: {code: sums[w][code] for code in of} for w, of in _LABELS.items()}
        found += window_series(agent, labels)
    for one in found:
        texts = [repr(value) for value in one.values[:minutes].tolist()]
        for minute in world.restarts:
            if minute < minutes:
                texts[minute] = "stale"
        yield name(one.name, **one.labels), " ".join(texts)


def _known(values: Reals) -> str:
    """Values as promtool reads them; where there are none, a series ends."""
    return " ".join("stale" if np.isnan(value) else repr(value) for value in values.tolist())


def _promtool(series: dict[str, str], asked: Sequence[tuple[str, int, int]]) -> None:
    """Let promtool evaluate the rules; raises what it says if an answer is another."""
    rules = groups_for(CUSUM, groups=[group for file in rule_groups().values() for group in file])
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": of, "values": values} for of, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": value}],
            }
            for expr, minute, value in asked
        ],
    }
    with tempfile.TemporaryDirectory(prefix="verify-") as place:
        folder = Path(place)
        (folder / "rules.json").write_text(json.dumps({"groups": rules}), encoding="utf-8")
        document = {
            "rule_files": ["rules.json"],
            "group_eval_order": [group["name"] for group in rules],
            "evaluation_interval": "1m",
            "tests": [test],
        }
        (folder / "test.json").write_text(json.dumps(document), encoding="utf-8")
        subprocess.run([promtool(), "test", "rules", str(folder / "test.json")], check=True)


if __name__ == "__main__":
    main()
