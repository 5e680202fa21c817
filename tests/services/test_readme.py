"""The README's way to figures of one's own agent, as it stands: commands, variables and events."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.traces import agent_command
from deploy.local.waiting import wait_until
from tests.serving import COMMAND, Served, serving

ROOT = Path(__file__).parents[2]
SECTIONS = dict(
    re.findall(r"^## (.*?)\n(.*?)(?=^## )", (ROOT / "README.md").read_text(), re.M | re.S)
)
OWN_AGENT = re.findall(r"^```sh\n(.*?)^```$", SECTIONS["Measure your own agent"], re.M | re.S)
SEND = re.findall(r"(stream-metrics send [^#`\n]*)", SECTIONS["Send your first events"])
RECEIVER = "http://localhost:4318"


def until(served: Served, agent: str, expected: list[float] | None = None) -> None:
    """Wait until the page shows SRR and SRE of an agent, or of all: these, or any SRR."""

    def shown() -> list[float | None]:
        figures = json.loads(served.get(f"/api/state?agent={agent}"))["figures"]
        return [figures[name]["value"] for name in ("srr", "sre")]

    def done() -> bool:
        return shown()[0] is not None if expected is None else shown() == expected

    asyncio.run(wait_until(done, 60, lambda: str(shown())))


def test_the_commands_are_those_that_are_tested() -> None:
    """Of the installation, and of the process: without an option, so nothing has to be chosen."""
    install, serve = (line.partition("#")[0].split() for line in OWN_AGENT[0].splitlines())

    assert install == ["pip", "install", "."]
    assert serve == ["stream-metrics", COMMAND[3]]


def test_first_events_show_the_figures_of_the_readme(tmp_path: Path) -> None:
    """25% of each, and an SRE of 50% once the label is corrected."""
    with serving(tmp_path) as served:
        for command, expected in zip(SEND, ([0.25, 0.25], [0.25, 0.5]), strict=True):
            words = shlex.split(command.replace(RECEIVER, served.receiver))
            command_line = [sys.executable, "-m", "stream_metrics", *words[1:]]
            subprocess.run(command_line, check=True, cwd=ROOT)
            until(served, "support", expected)


@pytest.mark.long
def test_an_agent_needs_the_two_variables_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its searches have a figure after that."""
    monkeypatch.setenv("STREAM_METRICS_BRIDGE__SETTLE", "1s")
    with serving(tmp_path) as served:
        _, *variables = shlex.split(OWN_AGENT[1].replace(RECEIVER, served.receiver))
        environment = {**os.environ, **dict(one.split("=", 1) for one in variables)}
        command = [*agent_command(), "--turns", "3", "--seed", "1", "--pause", "0"]
        subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True)

        until(served, "")
        assert len(variables) == 2
