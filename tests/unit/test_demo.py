"""``stream-metrics demo`` in a terminal and without one."""

from __future__ import annotations

import asyncio
import codecs
import copy
import importlib.resources
import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console

from stream_metrics.cli.demo import INCIDENT_US, LOOP_US, RecordedDay
from stream_metrics.cli.demo_view import DayView
from stream_metrics.lab.sources.files import read_records
from stream_metrics.live.prometheus.operations import Operations

COMMAND = [str(Path(sys.executable).with_name("stream-metrics")), "demo"]
WITHIN_SECONDS = 60.0


class Terminal:
    """A demo in a pseudo-terminal."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # reads end within characters
        self.said = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in the output after the previous one."""
        end = time.monotonic() + WITHIN_SECONDS
        while (found := re.search(pattern, self.said)) is None:
            left = end - time.monotonic()
            assert left > 0, f"{pattern!r} does not come: {self.said[-2000:]}"
            if select.select([self._descriptor], [], [], left)[0]:
                self.said += self._decoder.decode(os.read(self._descriptor, 65536))
        self.said = self.said[found.end() :]
        return found

    def press(self, keys: str) -> None:
        """Send keys."""
        os.write(self._descriptor, keys.encode())

    def exit_code(self) -> int:
        """Exit code of the demo; reads its output meanwhile, so that it can end."""
        try:
            while read := os.read(self._descriptor, 65536):
                self.said += self._decoder.decode(read)
        except OSError:  # Linux says that the other end is closed
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def demo_in_a_terminal(*options: str) -> Iterator[Terminal]:
    pid, descriptor = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["TERM"] = "xterm"
        os.execv(COMMAND[0], [*COMMAND, *options])  # noqa: S606
    terminal = Terminal(pid, descriptor)
    try:
        yield terminal
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(descriptor)


def srr_spike(url: str) -> str:
    """The level of the SRR rule on the page."""
    with urllib.request.urlopen(f"{url}api/state", timeout=10) as answer:  # noqa: S310
        levels = {rule["name"]: rule["level"] for rule in json.load(answer)["rules"]}
    return str(levels["srr_spike"])


def wait_for_level(url: str, *levels: str) -> None:
    """Wait until the page, which is computed every second, shows one of the levels."""
    end = time.monotonic() + WITHIN_SECONDS
    while srr_spike(url) not in levels:
        assert time.monotonic() < end, f"the page shows {srr_spike(url)}"


@pytest.mark.slow
def test_in_a_terminal_the_demo_pauses_at_the_incident_until_enter() -> None:
    """The clock stops while an alert fires, twice; then the day ends, and the page stays."""
    with demo_in_a_terminal("--seconds", "1", "--port", "0") as terminal:
        url = terminal.wait_for(r"during the incident of it-desk: see .*?(http://localhost:\d+/)")[
            1
        ]
        terminal.wait_for("Enter plays on to ")
        wait_for_level(url, "critical")

        terminal.press("\n")
        terminal.wait_for("during the loop of sales-assist")
        terminal.wait_for("Enter plays the rest of the day")
        terminal.press("\n")
        terminal.wait_for("17:56 UTC")
        terminal.wait_for("The page stays open: ")
        wait_for_level(url, "ok", "unknown")

        terminal.press("\x03")
        assert terminal.exit_code() == 0


@pytest.fixture(scope="module")
def views() -> tuple[DayView, DayView]:
    """The views of the recorded day at 14:30 and 15:45."""
    recording = importlib.resources.files("stream_metrics.lab") / "data" / "day.jsonl.gz"

    async def played() -> tuple[DayView, DayView]:
        day = RecordedDay(list(read_records([str(recording)])), Operations(CollectorRegistry()))
        await day.open()
        view = DayView(day.start_us, day.end_us, 65_535)
        for hour in range(9):
            await day.play_until(min(INCIDENT_US, day.start_us + hour * 3_600_000_000))
            view.update(day.windows, day.gathered, day.now_us, day.played, len(day.letters.letters))
        first = copy.deepcopy(view)
        await day.play_until(LOOP_US)
        view.update(day.windows, day.gathered, day.now_us, day.played, len(day.letters.letters))
        return first, view

    return asyncio.run(played())


@pytest.fixture(scope="module")
def incident(views: tuple[DayView, DayView]) -> DayView:
    """The view at 14:30."""
    return views[0]


def test_the_loop_is_called_one(views: tuple[DayView, DayView]) -> None:
    """No index changed, and only one agent asks the same again and again."""
    console = Console(width=100, color_system=None, file=io.StringIO())
    said = []
    for view in views:
        with console.capture() as captured:
            console.print(view.render(100))
        said.append(" ".join(captured.get().replace("│", "").split()))

    assert "Did an index or a query rewriter change?" in said[0]
    assert "It is in a loop" not in said[0]
    assert "sales-assist: 86% of its results in the last 19 minutes repeat" in said[1]
    assert "It is in a loop: 86% of its searches in the last 23 minutes ask again" in said[1]
    assert "it-desk: " not in said[1]


TITLES = ("results", "SRR 30m", "usually", "SRE 30m", "labelled", "good gain")


@pytest.mark.parametrize(
    ("width", "shown"),
    [(40, 0), (60, 2), (80, 4), (100, 6), (110, 6), (120, 6), (140, 6), (200, 6)],
)
def test_the_table_of_agents_is_cut_at_no_width(incident: DayView, width: int, shown: int) -> None:
    """A narrow terminal has fewer columns, each whole, and a coarser course of the day, which ends
    with the incident.
    """
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        console.print(incident.render(width))
    lines = captured.get().splitlines()

    assert {len(line) for line in lines} == {width}
    assert "…" not in captured.get()
    [head] = [line for line in lines if "SRR over the day" in line]
    assert [title for title in TITLES if title in head] == list(TITLES[:shown])
    rows = [line for line in lines if line.startswith("│ it-desk  ")]
    assert [row.rstrip("│ ")[-1] in "▅▆▇" for row in rows] == [True]


@pytest.mark.slow
def test_ctrl_c_is_not_echoed_into_the_panel() -> None:
    """An echoed ``^C`` would move the panel's last line, so that it is not erased completely."""
    with demo_in_a_terminal("--seconds", "60", "--port", "0") as terminal:
        terminal.wait_for(r"\d\d:\d\d UTC")
        terminal.press("\x03")
        assert terminal.exit_code() == 0

    assert "^C" not in terminal.said


@pytest.mark.slow
def test_without_a_terminal_the_demo_plays_the_day_and_ends() -> None:
    """Its lines describe the alert and why records were rejected."""
    found = subprocess.run(
        [*COMMAND, "--seconds", "1", "--port", "0"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WITHIN_SECONDS,
    )  # fmt: skip

    assert found.returncode == 0
    assert "17:56 UTC" in found.stdout
    assert "bad records on purpose: 41 were rejected" in found.stdout
    assert "stays open" not in found.stdout


@pytest.mark.slow
def test_the_error_about_a_port_in_use_has_a_command_to_copy() -> None:
    """``make demo`` passes options on by DEMO, and the error shows how."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True)

    assert found.returncode == 2
    assert f"port {port} on localhost is in use" in found.stderr
    assert 'make demo DEMO="--port 0"' in found.stderr
