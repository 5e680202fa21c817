"""The recursive rules give the evidence that numpy finds (promtool)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from stream_metrics.core.alerts.calibration import threshold
from stream_metrics.core.alerts.evidence import CUSUM, NET, POOLED, SHIFTS, WEIGHT
from stream_metrics.core.alerts.figures import BY_NAME, FIGURES
from stream_metrics.core.alerts.files import rule_groups
from tests.drill.simulation import Size, simulate
from tests.drill.verify import compare
from tests.drill.world import Libraries
from tests.rules.cases import JOB, Series, name
from tests.rules.evidence import AGENTS, EXPECTED, MINUTES, Agent, pooled
from tests.rules.parts import groups_for
from tests.services.test_alert_rules import ask

Asked = list[tuple[str, int, float | None]]
Test = tuple[str, Series, Asked]

(INCIDENT,) = (agent for agent in AGENTS if agent.claim == "a quiet agent with an incident")
SHORT: Final = (INCIDENT.claim, "restarts after which counters soon pass what they were")
TOLERANCE: Final = 1e-9
_ON: Final = "on (job, agent, figure, shift)"
LENGTH: Final = 60  # minutes of a question: promtool loads at most 10,000 samples for each


def groups(
    false_alarms: float = 1.0, series: str = CUSUM, figure: str | None = None
) -> list[dict[str, Any]]:
    """The rules of evidence, by default about every figure, and what they ask for."""
    files = rule_groups(false_alarms=false_alarms).values()
    every = [group for file in files for group in file]
    return groups_for(series, figure=figure, groups=every)


def run(
    promtool: str,
    folder: Path,
    agents: Sequence[Agent],
    false_alarms: float = 1.0,
) -> None:
    """Compare the evidence of the rules with that of numpy at every minute."""
    rules = groups(false_alarms)
    thresholds = {figure.name: threshold(figure.name, false_alarms) for figure in FIGURES}
    tests: list[Test] = []
    for agent in agents:
        expected, judged = agent.expected(thresholds)
        close = f"abs({CUSUM} - {_ON} {EXPECTED}) < {TOLERANCE}"
        beside = f"{CUSUM} unless {_ON} {EXPECTED}"
        asked: Asked = [
            (f"sum(count_over_time(({expr})[{LENGTH - 1}m:1m])) or vector(0)", minute, number)
            for minute in range(LENGTH - 1, MINUTES, LENGTH)
            for expr, number in (
                (close, int(judged[minute - LENGTH + 1 : minute + 1].sum())),
                (beside, 0),
            )
        ]
        tests.append((agent.claim, agent.series() | expected, asked))
    check(promtool, folder, rules, tests)


def check(promtool: str, folder: Path, rules: list[dict[str, Any]], tests: Sequence[Test]) -> None:
    """Run promtool on agents: what they export, and expressions with a minute and a value."""
    document = {
        "rule_files": ["rules.json"],
        "group_eval_order": [group["name"] for group in rules],
        "evaluation_interval": "1m",
        "tests": [
            {
                "name": claim,
                "interval": "1m",
                "input_series": [{"series": n, "values": values} for n, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": expr,
                        "eval_time": f"{minute}m",
                        "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
                    }
                    for expr, minute, value in asked
                ],
            }
            for claim, series, asked in tests
        ],
    }
    (folder / "rules.json").write_text(json.dumps({"groups": rules}), encoding="utf-8")
    (folder / "test.json").write_text(json.dumps(document), encoding="utf-8")
    ask(promtool, "test", "rules", str(folder / "test.json"))


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(a, id=a.claim, marks=[] if a.claim in SHORT else pytest.mark.long)
        for a in AGENTS
    ],
)
def test_evidence_is_that_of_numpy(agent: Agent, promtool_path: str, tmp_path: Path) -> None:
    """Of every figure and shift, at every minute."""
    run(promtool_path, tmp_path, [agent])


@pytest.mark.long
def test_evidence_about_a_simulated_agent_is_that_of_numpy() -> None:
    """The drill judges by numpy what Prometheus would gather."""
    size = Size(agents=1, days=1, turns_each=20)
    world = simulate(1, size, Libraries(size.turns_each), healthy=True)

    assert compare(world, ["agent-00"], 240) > 500


@pytest.mark.long
def test_another_rate_of_false_alarms_scales_evidence(promtool_path: str, tmp_path: Path) -> None:
    """Evidence is in units of the threshold, and an alert fires at 1 whatever the rate."""
    run(promtool_path, tmp_path, [INCIDENT], 10.0)


def test_the_order_of_rules_delays_evidence_by_two_minutes_at_most(
    promtool_path: str, tmp_path: Path
) -> None:
    """In the opposite order, each rule reads what the others recorded a minute before."""
    rules = groups(figure="srr")
    rules[-1]["rules"].reverse()
    values = INCIDENT.evidence(BY_NAME["srr"], threshold("srr", 1.0))
    (first, *_) = np.flatnonzero((values >= 1).any(axis=0))
    expr = f'count(max by (agent) ({CUSUM}{{figure="srr"}}) >= 1)'
    asked: Asked = [(expr, int(first) - 1, None), (expr, int(first) + 2, 1)]

    check(promtool_path, tmp_path, rules, [(INCIDENT.claim, INCIDENT.series(), asked)])


def test_what_was_recorded_before_a_restart_is_not_added_again(
    promtool_path: str, tmp_path: Path
) -> None:
    """A Prometheus that stops leaves no mark at the end of a series, so that it seems to go on."""
    of = {"agent": "a", "figure": "results"}
    series: Series = {
        name(NET, part="numerator", **of): "_x10 50 _x9",
        name(NET, part="denominator", **of): "_x10 100 _x9",
        name(WEIGHT, part="numerator", shift="large", **of): "_x12 0.01x7",
        name(WEIGHT, part="denominator", shift="large", **of): "_x12 -0.001x7",
    }
    tests: list[Test] = [("a restart", series, [(f"max_over_time({CUSUM}[10m])", 14, None)])]

    check(promtool_path, tmp_path, groups(figure="results"), tests)


@pytest.mark.parametrize("figure", ["srr", "results"])
def test_evidence_about_a_pool_is_the_sum_over_its_agents(
    figure: str, promtool_path: str, tmp_path: Path
) -> None:
    """What a minute adds is added up over agents, within the limit of the figure."""
    one, two = (
        replace(agent, label=("agent", name)) for name, agent in zip("ab", AGENTS[:2], strict=True)
    )
    of = BY_NAME[figure]
    counts = (of.above, of.below)
    series = one.series(counts) | two.series(counts)
    for name_of in "ab":
        series[name("streammetrics_agent_pool", agent=name_of, agent_pool="p", **JOB)] = (
            f"1x{MINUTES}"
        )
    judged = 0
    for size, values in zip(SHIFTS, pooled([one, two], of, threshold(figure, 1.0)), strict=True):
        known = ~np.isnan(values)
        judged += int(known.sum())
        labels = {"agent_pool": "p", "figure": figure, "shift": size, **JOB}
        texts = [repr(float(v)) if here else "_" for v, here in zip(values, known, strict=True)]
        series[name(EXPECTED, **labels)] = " ".join(texts)
    close = f"abs({POOLED} - on (job, agent_pool, figure, shift) {EXPECTED}) < {TOLERANCE}"
    expr = f"sum(count_over_time(({close})[{MINUTES - 1}m:1m])) or vector(0)"

    check(
        promtool_path, tmp_path, groups(series=POOLED, figure=figure),
        [("a pool", series, [(expr, MINUTES - 1, judged)])],
    )  # fmt: skip
    assert judged > MINUTES / 2
