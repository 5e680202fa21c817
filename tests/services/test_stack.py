"""``make stack``: commands work with it and the settings file that it writes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from deploy.local.process import ChildProcess, ServerFailed, blocking, import_path
from tests.helpers import wait_until
from tests.services.image import REPOSITORY

pytestmark = pytest.mark.service

COMMAND = Path(sys.executable).with_name("stream-metrics")
FILE = "out/stack.env"


class Stack(ChildProcess):
    """The stack that ``make stack`` starts in its own directory, and its output."""

    name = "stack"
    start_seconds = 180.0

    def __init__(self, folder: Path, traffic: str = "generated", *options: str) -> None:
        super().__init__(folder)
        self._options = ("--traffic", traffic, *options)

    def command(self) -> list[str]:
        """The command of the Makefile."""
        return [sys.executable, "-m", "deploy.local", "stack", *self._options]

    def environment(self) -> Mapping[str, str]:
        """The environment with the stack's modules, for directories outside the repository."""
        return {"PYTHONPATH": import_path(REPOSITORY), "COLUMNS": "120"}

    def said(self) -> str:
        """All output so far."""
        return self.log.read_text(encoding="utf-8")

    def kept_in(self) -> Path:
        """The folder with its data and logs."""
        found = re.search(r"^logs: (.+)$", self.said(), re.MULTILINE)
        assert found
        return Path(found[1])

    async def kill(self, name: str) -> int:
        """Kill the process of this row of the table with SIGKILL; its id, once it is back."""
        row = re.search(rf"^{name}(?:,| ).* (\d+) *$", self.said(), re.MULTILINE)
        assert row
        os.kill(int(row[1]), signal.SIGKILL)
        await wait_until(
            lambda: f"\n{name} is ready again\n" in self.said(),
            60,
            lambda: f"{name} did not come back:\n{self.said()}",
        )
        return int(row[1])

    async def ready(self) -> bool:
        """Whether it has printed the lines that the user should type."""
        return f"  . {FILE}\n" in self.said() and "stream-metrics check\n" in self.said()


class Done(NamedTuple):
    """The exit code and output of a command."""

    code: int
    said: str


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that runs until the last of the tests that share it stops it."""
    running = Stack(tmp_path_factory.mktemp("stack"))
    blocking(running.start())
    yield running
    blocking(running.stop())


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


async def test_every_address_that_it_prints_answers(stack: Stack) -> None:
    """Pages and APIs of workers, Prometheus and Alertmanager are where the installed packages have
    them.
    """
    addresses = re.findall(r"http://\S+", stack.said())

    assert len(addresses) == 9
    async with aiohttp.ClientSession() as session:
        for address in addresses:
            async with session.get(address) as answer:
                assert answer.status == 200, address
                assert "does not include a web" not in await answer.text(), address


async def test_the_commands_work_with_the_settings_that_it_writes(stack: Stack) -> None:
    """check, audit, top, dlq list and send exit with 0 after ``. out/stack.env``; what is sent
    shows in top; alerts link to a worker's page; the file, which has the digest key, is the
    owner's only, and goes with the stack, which this test stops.
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

    folder = stack.kept_in()
    assert folder.exists()
    assert await stack.stop() == 0
    assert not file.exists()
    assert not folder.exists()


@pytest.mark.long
async def test_what_is_killed_comes_back_and_the_state_is_exact(tmp_path: Path) -> None:
    """Each kind of process is killed with SIGKILL, and is started again with its data; audit and
    check find nothing wrong, and what is sent afterwards shows in top.
    """
    async with Stack(tmp_path) as stack:
        await all_are_killed(stack)


async def all_are_killed(stack: Stack) -> None:
    """Kill each process, and look at what comes back."""
    servers = ("Redis", "Kafka", "Prometheus", "Alertmanager")
    for name in ("worker 1", *servers, "worker 2", "generated traffic"):
        pid = await stack.kill(name)
        assert f"\n{name}, process {pid}, was ended by signal 9 (Killed)." in stack.said()

    sent = await typed(stack, "send --now", json.dumps(event("sent-after")))
    assert sent.code == 0, sent.said

    async def shown() -> bool:
        return "sent-after" in (await typed(stack, "top --agent by-hand --min-results 1")).said

    await wait_until(shown, 60, lambda: f"the event does not show in top:\n{stack.said()}")
    for line in ("audit --wait 120", "check"):
        done = await typed(stack, line)
        assert done.code == 0, (line, done.said)
    assert await stack.stop() == 0


@pytest.mark.long
async def test_a_stack_goes_on_with_what_an_earlier_one_left(tmp_path: Path) -> None:
    """A stack with --keep leaves its folder and says where; one with --folder has the events of
    the first, and no other stack starts in the folder meanwhile.
    """
    async with Stack(tmp_path / "first", "generated", "--keep") as first:
        sent = await typed(first, "send --now", json.dumps(event("sent-before")))
        assert sent.code == 0, sent.said

        async def stored() -> bool:
            return "sent-before" in (await typed(first, "top --agent by-hand --min-results 1")).said

        await wait_until(stored, 60, "the event does not show in top")
        assert await first.stop() == 0
    folder = first.kept_in()
    assert f'make stack STACK="--folder {folder}"' in first.said()

    try:
        async with Stack(tmp_path / "second", "generated", "--folder", str(folder)) as second:
            done = await typed(second, "top --agent by-hand --min-results 1")
            assert "sent-before" in done.said
            third = Stack(tmp_path / "third", "generated", "--folder", str(folder))
            with pytest.raises(ServerFailed, match="another stack runs in"):
                await third.start()
            assert await second.stop() == 0
        assert folder.exists()
    finally:
        shutil.rmtree(folder)


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
