"""The table of obstacles, and what is written and exported of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry

import stream_metrics
from stream_metrics.core.alerts.obstacles import BY_REASON, OBSTACLES, Obstacle, kind_of, lasting
from stream_metrics.core.alerts.table import ALERTS
from stream_metrics.live.ports import Unavailable
from stream_metrics.live.prometheus.bridge import BridgeMetrics
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker import loop, source

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = ROOT / "docs" / "guides" / "troubleshooting.md"
EACH: Final = pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda one: one.reason)


@EACH
def test_an_obstacle_that_lasts_has_an_alert(obstacle: Obstacle) -> None:
    """Its alert asks for it, in the workers and in the bridges that may have it."""
    (alert,) = (alert for alert in ALERTS if alert.name == obstacle.alert)
    asked = re.findall(
        r'streammetrics_(bridge_)?obstacles\{reason=~?"([^"]+)"\}',
        " ".join(rule.expr for rule in alert.rules if rule.severity == obstacle.severity),
    )
    services = {service for service, reasons in asked if obstacle.reason in reasons.split("|")}

    assert ("" in services, "bridge_" in services) == (obstacle.worker, obstacle.bridge)


@EACH
def test_an_obstacle_is_exported(obstacle: Obstacle) -> None:
    """Its series is 1 while it is a reason, in the services that may have it."""
    worker, bridge = CollectorRegistry(), CollectorRegistry()
    Operations(worker).obstructed([obstacle.reason])
    BridgeMetrics(bridge).obstructed([obstacle.reason])

    of = {"reason": obstacle.reason}
    there = worker.get_sample_value("streammetrics_obstacles", of)
    there_too = bridge.get_sample_value("streammetrics_bridge_obstacles", of)
    assert (there, there_too) == (1 if obstacle.worker else None, 1 if obstacle.bridge else None)


def test_the_guide_names_the_runbook_of_each_reason() -> None:
    """Its table has all reasons of ``/readyz``, and links the runbook of the alert about each."""
    rows = re.findall(
        r"^\| `(\S+)` \|.*\| \[(\w+)\]\(\.\./runbooks/\2\.md\) \|$", TABLE.read_text("utf-8"), re.M
    )
    found = {kind_of(reason.replace("N", "0")): alert for reason, alert in rows}

    assert found == {one.reason: one.alert for one in OBSTACLES if one.reason != "other"}


def test_what_the_program_waits_for_is_in_the_table() -> None:
    """Every reason that the code of the services sets has an entry."""
    root = Path(stream_metrics.__file__).parent
    files = [*root.glob("live/**/*.py"), *root.glob("cli/*.py")]
    calls = [
        node
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and node.func.attr == "set" and len(node.args) == 2
        and ast.unparse(node.func.value).rpartition(".")[2] in ("_reasons", "health")
    ]  # fmt: skip
    literal = {
        ast.literal_eval(call.args[0]) for call in calls if isinstance(call.args[0], ast.Constant)
    }
    raised = {error.reason for error in _errors(Unavailable) if hasattr(error, "reason")}
    named = {loop.NOT_READING, loop.OTHER_COUNTS, source.TopicsUnavailable.reason}

    assert {"kafka", "assignment"} <= literal
    assert literal | raised | named <= BY_REASON.keys()


def _errors(base: type[Unavailable]) -> set[type[Unavailable]]:
    """The errors for which a service waits."""
    return {base, *(error for below in base.__subclasses__() for error in _errors(below))}


def test_an_alert_without_obstacles_has_no_condition() -> None:
    """Only alerts of the table ask for obstacles."""
    assert lasting("SRRSpike") == ""
