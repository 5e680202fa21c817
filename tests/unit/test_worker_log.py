"""What a worker writes to its log when it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.local.process import free_port
from stream_metrics.core.compiled import REFERENCE
from stream_metrics.live.web import WebOptions

ROOT = Path(__file__).parents[2]


class Said(NamedTuple):
    """The first line of a worker's log, the other lines, and the port of its page."""

    first: dict[str, Any]
    rest: str
    port: int


@pytest.fixture(scope="module")
def said() -> Said:
    """The log of a worker with the reference engine that finds no server, and is stopped."""
    port = free_port()
    settings = {
        "STREAM_METRICS_KERNEL": "python",
        "PYTHONPATH": str(ROOT),  # the sources, not modules that are compiled
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "STREAM_METRICS_KAFKA__TOPICS": '["searches", "labels"]',
        "STREAM_METRICS_KAFKA__GROUP_ID": "support",
        "STREAM_METRICS_REDIS__URL": "redis://:a-secret@127.0.0.1:1/0",
        "STREAM_METRICS_STATE__DIGEST_KEY": "of-the-test",
        "STREAM_METRICS_WEB__PORT": str(port),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "stream_metrics", "worker"],
        env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True,
    ) as worker:  # fmt: skip
        assert worker.stderr is not None
        first = json.loads(worker.stderr.readline())
        worker.send_signal(signal.SIGTERM)
        rest = worker.stderr.read()
    return Said(first, rest, port)


@pytest.mark.slow
def test_the_first_line_names_topics_group_and_servers(said: Said) -> None:
    """Version, page, topics, group, Kafka and Redis, without its password; and no line tells of
    Faust's own services."""
    first, rest, port = said

    assert first["event"] == "stream-metrics worker starts"
    assert first["page"] == f"http://127.0.0.1:{port}/"
    assert (first["topics"], first["group"]) == (["searches", "labels"], "support")
    assert (first["kafka"], first["redis"]) == ("127.0.0.1:1", "redis://:**********@127.0.0.1:1/0")
    assert first["version"]
    assert "worker stops" in rest
    assert "[^" not in rest
    assert "a-secret" not in rest


@pytest.mark.slow
def test_the_first_line_names_the_engine(said: Said) -> None:
    """In the words of ``--version``."""
    assert said.first["engine"] == REFERENCE


@pytest.mark.slow
def test_a_worker_with_the_reference_engine_warns_once(said: Said) -> None:
    """It says what the engine costs, and what brings the compiled one."""
    [line] = [line for line in said.rest.splitlines() if "the engine is" in line]

    assert json.loads(line)["level"] == "warning"
    assert f"{REFERENCE}: equal figures at about three times the CPU" in line


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_page_on_all_interfaces_is_logged_with_the_host_name(host: str) -> None:
    """The logged address has the name of the machine instead of 0.0.0.0."""
    assert host not in WebOptions(host=host).url
