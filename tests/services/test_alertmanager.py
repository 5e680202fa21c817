"""Alertmanager's configuration: which receiver gets which alert, and which are inhibited."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.local.servers import Alertmanager, amtool
from deploy.local.waiting import wait_until

pytestmark = pytest.mark.service

FILE = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"
SITE = {"job": "stream-metrics"}
Start = Callable[..., Awaitable[Alertmanager]]


def ask(*arguments: str) -> str:
    """The output of amtool; raises if it fails."""
    done = subprocess.run(
        [amtool(), *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def alert(name: str, severity: str, **labels: str) -> dict[str, str]:
    """The labels of an alert as Prometheus sends it."""
    return {**SITE, "alertname": name, "severity": severity, **labels}


def test_the_file_is_valid() -> None:
    """Alertmanager's own tool accepts it."""
    assert "SUCCESS" in ask("check-config", str(FILE))


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (alert("SRRSpike", "critical", agent="a"), "page"),
        (alert("SRRSpike", "warning", agent="a"), "message"),
        (alert("StreamMetricsOffsetGap", "critical", instance="w:1"), "page"),
        (alert("StreamMetricsDeadLetters", "warning"), "message"),
    ],
)
def test_only_critical_alerts_go_to_the_pager(labels: dict[str, str], receiver: str) -> None:
    """This holds for alerts about agents and about workers."""
    words = [f"{name}={value}" for name, value in labels.items()]

    assert ask("config", "routes", "test", f"--config.file={FILE}", *words) == receiver


async def send(alertmanager: Alertmanager, alerts: list[dict[str, str]]) -> None:
    """Send alerts that fire for an hour."""
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = [{"labels": labels, "endsAt": until} for labels in alerts]
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{alertmanager.url}/api/v2/alerts", json=body) as answer,
    ):
        assert answer.status == 200, await answer.text()


async def held_back(alertmanager: Alertmanager) -> list[str]:
    """The names of the inhibited alerts, with their agents."""
    found: list[dict[str, Any]] = await alertmanager.get("/api/v2/alerts")
    return sorted(
        f"{one['labels']['alertname']} {one['labels'].get('agent', '-')}"
        for one in found
        if one["status"]["state"] == "suppressed"
    )


@pytest.mark.parametrize(
    ("sent", "suppressed"),
    [
        pytest.param(
            [
                alert("SRRSpike", "critical", agent="a"),
                alert("SRRSpike", "warning", agent="a"),
                alert("SRRSpike", "warning", agent="b"),
                alert("StreamMetricsEfficiencyDrop", "critical", agent="a"),
                alert("StreamMetricsEfficiencyDrop", "critical", agent="b"),
                alert("StreamMetricsGainDrop", "warning", agent="b"),
                alert("StreamMetricsResultsDrop", "critical", agent="c"),
                alert("StreamMetricsGainDrop", "warning", agent="c"),
                alert("StreamMetricsJudgedShareLow", "warning", agent="c"),
            ],
            [
                "SRRSpike a",
                "StreamMetricsEfficiencyDrop a",
                "StreamMetricsGainDrop b",
                "StreamMetricsGainDrop c",
                "StreamMetricsJudgedShareLow c",
            ],
            id="of the same agent",
        ),
        pytest.param(
            [
                alert("StreamMetricsLabelsStopped", "critical"),
                alert("StreamMetricsJudgedShareLow", "warning", agent="a"),
                alert("StreamMetricsRedisUnreachable", "critical", instance="w:1"),
                alert("StreamMetricsConsumerLagGrowing", "critical", topic="t", partition="0"),
                alert("StreamMetricsEvidenceMissing", "critical"),
                {
                    **alert("StreamMetricsConsumerLagGrowing", "critical", topic="t"),
                    "job": "another",
                },
            ],
            [
                "StreamMetricsConsumerLagGrowing -",
                "StreamMetricsEvidenceMissing -",
                "StreamMetricsJudgedShareLow a",
            ],
            id="of the same workers",
        ),
        pytest.param(
            [
                alert("StreamMetricsRightsMissing", "critical", instance="w:1"),
                alert("StreamMetricsEvidenceMissing", "critical"),
            ],
            ["StreamMetricsEvidenceMissing -"],
            id="of workers that may not read",
        ),
    ],
)
async def test_consequences_are_inhibited(
    alertmanager_factory: Start, sent: list[dict[str, str]], suppressed: list[str]
) -> None:
    """The alert about the cause is delivered, and alerts about its consequences are not."""
    alertmanager = await alertmanager_factory(config=FILE.read_text(encoding="utf-8"))

    await send(alertmanager, sent)

    async def as_wanted() -> bool:
        return await held_back(alertmanager) == suppressed

    await wait_until(as_wanted, 30, "Alertmanager inhibits other alerts than these")
