"""An agent with the OpenTelemetry SDK, against one process without servers."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from deploy.local.traces import JUDGED, agent_command, agent_environment
from tests.helpers import wait_until
from tests.serving import serving

TURNS: Final = 5
RESULTS: Final = 'window_labelled_results{agent="support",window="5m"}'


@pytest.mark.long
def test_an_agent_with_two_variables_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exporter's spans become turns, searches and labels, and nothing is refused."""
    monkeypatch.setenv("STREAM_METRICS_BRIDGE__SETTLE", "1s")
    for name, value in JUDGED.items():
        monkeypatch.setenv(name, value)
    with serving(tmp_path) as served:
        environment = {
            **os.environ,
            **agent_environment(served.receiver),
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        }
        command = [*agent_command(), "--turns", str(TURNS), "--seed", "1", "--pause", "0"]
        subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True)

        def shown(name: str, least: int) -> str:
            """The metrics, once one of them has a value."""

            def look() -> str:
                found = served.get("/metrics")
                return found if _sample(found, name) >= least else ""

            return asyncio.run(wait_until(look, 60, lambda: served.get("/metrics")))

        found = shown("bridge_turns_total", TURNS)
        assert _sample(found, "bridge_searches_total") >= TURNS
        assert not re.search(r'bridge_refused_total{agent="support".*} [1-9]', found)
        assert 'receiver_requests_total{path="/v1/traces",status="200"}' in found
        shown(RESULTS, 1)
        assert served.stop() == 0


def _sample(metrics: str, name: str) -> float:
    found = re.search(rf"^streammetrics_{re.escape(name)} (\S+)$", metrics, re.M)
    return float(found[1]) if found else 0.0
