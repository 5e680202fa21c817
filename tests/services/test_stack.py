"""``make stack``: commands work with it and the settings file that it writes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from deploy.local.process import ChildProcess, import_path
from tests.helpers import wait_until
from tests.services.image import REPOSITORY

pytestmark = pytest.mark.service

COMMAND = Path(sys.executable).with_name("stream-metrics")
FILE = "out/stack.env"


class Stack(ChildProcess):
    """The stack that ``make stack`` starts in its own directory, and its output."""

    name = "stack"
    start_seconds = 180.0

    def __init__(self, folder: Path, traffic: str = "generated") -> None:
        super().__init__(folder)
        self._traffic = traffic

    def command(self) -> list[str]:
        """The command of the Makefile."""
        return [sys.executable, "-m", "deploy.local", "stack", "--traffic", self._traffic]

    def environment(self) -> Mapping[str, str]:
        """The environment with the stack's modules, for directories outside the repository."""
        return {"PYTHONPATH": import_path(REPOSITORY), "COLUMNS": "120"}

    def said(self) -> str:
        """All output so far."""
        return self.log.read_text(encoding="utf-8")

    async def ready(self) -> bool:
        """Whether it has printed the lines that the user should type."""
        return f"  . {FILE}\n" in self.said() and "stream-metrics check\n" in self.said()


class Done(NamedTuple):
    """The exit code and output of a command."""

    code: int
    said: str


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """A running stack, which is stopped by Ctrl-C."""
    async with Stack(tmp_path) as running:
        yield running


async def typed(stack: Stack, line: str, given: str = "") -> Done:
    """Type ``. out/stack.env`` and a command line into a new shell, in the stack's directory."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("STREAM_METRICS_")}
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", f". {FILE} && {COMMAND} {line}",
        cwd=stack.folder,
        env={**clean, **stack.environment()},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await shell.communicate(given.encode())
    assert shell.returncode is not None
    return Done(shell.returncode, said.decode())


async def test_it_says_what_has_started_before_it_says_where_it_is(stack: Stack) -> None:
    """A line for each server, the topics and each worker precedes the addresses, on localhost."""
    lines = [line.strip() for line in stack.said().partition("worker 1, its page")[0].splitlines()]

    servers = ("Kafka", "Redis", "Alertmanager", "Prometheus")
    began = ["starting; Ctrl-C stops everything", *(f"started: {name}" for name in servers)]
    assert sorted(lines[lines.index(began[0]) :][: len(began)]) == sorted(began)
    assert lines[lines.index(began[0]) + len(began) :][:4] == [
        "created: topics search-iterations, relevance-labels",
        "started: worker 1",
        "started: worker 2",
        "started: generated traffic",
    ]
    assert "127.0.0.1" not in stack.said()


async def test_the_commands_work_with_the_settings_that_it_writes(stack: Stack) -> None:
    """check, audit, top, dlq list and send exit with 0 after ``. out/stack.env``; what is sent
    shows in top; alerts link to a worker's page; the file, which has the digest key, is the
    owner's only, and goes with the stack.
    """
    file = stack.folder / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert re.search(r"STREAM_METRICS_STATE__DIGEST_KEY=[0-9a-f]{64}\n", file.read_text())

    for line in ("check", "audit --wait 120", "top", "dlq list"):
        done = await typed(stack, line)
        assert done.code == 0, (line, done.said)
    sent = await typed(stack, "send --now", json.dumps(event("sent-by-hand")))
    assert sent.code == 0, sent.said

    async def shown() -> bool:
        return "sent-by-hand" in (await typed(stack, "top --agent by-hand --min-results 1")).said

    await wait_until(shown, 60, "the event that was sent does not show in top")

    links = await dashboard_links(stack)
    page = re.search(r"worker 1, its page +(http://\S+)", stack.said())
    assert page
    assert links
    assert {link for link in links if not link.startswith(page[1])} == set()

    assert await stack.stop() == 0
    assert not file.exists()


@pytest.mark.long
async def test_traces_of_an_agent_become_figures(tmp_path: Path) -> None:
    """``make stack TRAFFIC=otel`` starts a Collector, the bridge and an agent, whose conversations
    show in top; check finds nothing wrong.
    """
    async with Stack(tmp_path, "otel") as stack:
        began = [line.strip() for line in stack.said().splitlines() if "started: " in line]
        assert began[-3:] == ["started: Collector", "started: bridge", "started: agent"]

        async def shown() -> bool:
            return "support-" in (await typed(stack, "top --agent support --min-results 1")).said

        await wait_until(shown, 120, lambda: f"no turn of the agent shows in top:\n{stack.said()}")
        done = await typed(stack, "check")
        assert done.code == 0, done.said
        await wait_until(lambda: told(stack), 60, "Prometheus knows of no turn of the bridge")
        assert await stack.stop() == 0


async def told(stack: Stack) -> bool:
    """Whether the bridge has converted turns, according to the last scrape of Prometheus."""
    query = {"query": 'streammetrics_bridge_turns_total{job="stream-metrics-bridge"} > 0'}
    return bool((await prometheus(stack, "query", **query))["result"])


async def prometheus(stack: Stack, page: str, **parameters: str) -> Any:
    """What Prometheus answers."""
    found = re.search(r"Prometheus +(http://\S+)", stack.said())
    assert found
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{found[1]}/api/v1/{page}", params=parameters) as answer,
    ):
        return (await answer.json())["data"]


async def dashboard_links(stack: Stack) -> list[str]:
    """The links of the alerts that Prometheus has loaded."""
    groups = (await prometheus(stack, "rules", type="alert"))["groups"]
    return [rule["annotations"]["dashboard_url"] for group in groups for rule in group["rules"]]


def event(conversation: str) -> dict[str, object]:
    """A search that returns a document twice."""
    results = [{"result_id": f"r-{number}", "doc_id": "handbook#travel"} for number in (1, 2)]
    return {
        "type": "search_iteration",
        "event_id": f"{conversation}-1",
        "occurred_at": "2025-03-18T09:00:00Z",
        "conversation_id": conversation,
        "agent": "by-hand",
        "turn": 1,
        "iteration": 1,
        "searches": [{"search_id": "s-1", "results": results}],
    }
