"""The commands `audit` and `forget`: output and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from deploy.local.process import free_port
from deploy.local.servers import RedisServer
from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError, answered
from stream_metrics.cli.errors import error_lines
from stream_metrics.cli.forget import parse_until, read_ids
from stream_metrics.cli.options import identity
from stream_metrics.cli.settings import Settings
from stream_metrics.core.engine.codec import encode_sums
from stream_metrics.core.events.record import Record
from stream_metrics.live.layout import Generation
from stream_metrics.live.memory import MemoryDeadLetters
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.generations import begin
from stream_metrics.live.worker.ownership.generations import change as change_layout
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_audit import a_bucket, change
from tests.unit.test_state_partition import NOON_S, search


@pytest.fixture
def namespace(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisOptions:
    """A namespace of the settings with the state of one conversation."""
    options = RedisOptions(url=redis_server.url, namespace=f"commands-{uuid4()}")
    monkeypatch.setenv("STREAM_METRICS_REDIS__URL", options.url)
    monkeypatch.setenv("STREAM_METRICS_REDIS__NAMESPACE", options.namespace)

    async def begun() -> None:
        space = connect(options)
        await fill(space, await begin(space, identity(Settings(), {TOPIC: 1}), 0), "c")
        await space.close()

    asyncio.run(begun())
    return options


async def fill(space: RedisStore, generation: Generation, *conversations: str) -> None:
    """Write the state of conversations of one search each."""
    ours = generation.identity
    partition = await opened(space.generation(generation), MemoryDeadLetters(), 10, identity=ours)
    for offset, name in enumerate(conversations):
        key, value, stamp = search(name, 1, NOON_S, "a", "b")
        await partition.process([Record(value, key, stamp, TOPIC, 0, offset)], once)


def build(options: RedisOptions, settings: Settings, topics: dict[str, int]) -> None:
    """Build another generation beside it, which has two conversations."""

    async def work() -> None:
        space = connect(options)
        ours = identity(settings, topics)
        layout = await change_layout(space, lambda now: now.registered(ours, "mark", 1))
        assert layout.building is not None
        await fill(space, layout.building, "c", "d")
        await space.close()

    asyncio.run(work())


def spoil(options: RedisOptions) -> None:
    """Change one sum of one bucket."""

    async def work() -> None:
        space = connect(options)
        generation = (await space.layout()).in_force
        assert generation is not None
        store = space.generation(generation)
        place, sums = await a_bucket(store)
        await change(store, buckets={place: encode_sums({**sums, "r": 99})})
        await space.close()

    asyncio.run(work())


def test_an_audit_without_a_difference_ends_with_0(namespace: RedisOptions) -> None:
    """The output says how much was compared."""
    done = CliRunner().invoke(app, ["audit"])

    assert done.exit_code == 0
    assert "1 partitions, 1 conversations" in done.stdout
    assert "no difference" in done.stdout


def test_an_audit_with_a_difference_ends_with_1(namespace: RedisOptions) -> None:
    """The output has the bucket and both sums."""
    spoil(namespace)

    done = CliRunner().invoke(app, ["audit"])

    assert done.exit_code == 1
    line = next(line for line in done.stdout.splitlines() if "results" in line)
    assert line.split() == ["0", "24h", "2024-06-10T12:00:00Z", "default", "results", "99", "2"]


def test_an_audit_as_json_has_differences_alone_on_standard_output(
    namespace: RedisOptions,
) -> None:
    """Each is an object on a line; messages for people go to standard error."""
    spoil(namespace)

    done = CliRunner().invoke(app, ["audit", "--format", "json"])

    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["series"], found["stored"], found["computed"]) == ("results", 99, 2)
    assert "1 differ" in done.stderr


def test_an_audit_of_nothing_is_an_error(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty namespace means wrong settings."""
    monkeypatch.setenv("STREAM_METRICS_REDIS__NAMESPACE", "nobody-is-here")

    with pytest.raises(UsageError, match="has no state"):
        CliRunner().invoke(app, ["audit"], catch_exceptions=False)


@pytest.mark.parametrize("command", ["audit", "export"])
def test_settings_that_differ_from_the_workers_are_an_error(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Other thresholds give other windows and rows, so nothing is compared or written."""
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")

    with pytest.raises(UsageError, match="other settings"):
        CliRunner().invoke(app, [command], catch_exceptions=False)


IN_FORCE = (1, "note: this is generation 1, which is in force")
BUILT = (2, "note: this is generation 2, which is being built")

NOTE = r"note: this is generation \d, which is (?:in force|being built)"


@pytest.mark.parametrize(
    ("ours", "options", "found"),
    [
        ({}, [], IN_FORCE),
        ({"METRICS__GOOD_GAIN": "3"}, [], BUILT),
        ({"METRICS__GOOD_GAIN": "3"}, ["--build"], BUILT),
    ],
)
def test_commands_read_the_generation_that_workers_with_their_settings_join(
    namespace: RedisOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ours: dict[str, str],
    options: list[str],
    found: tuple[int, str],
) -> None:
    """Also the one that is being built; standard error says which one it is."""
    build(namespace, Settings.model_validate({"metrics": {"good_gain": 3}}), {TOPIC: 1})

    assert read(monkeypatch, tmp_path, ours, options) == found


@pytest.mark.parametrize(
    ("topics", "ours", "options", "found"),
    [
        ({TOPIC: 1}, {}, [], IN_FORCE),
        ({TOPIC: 1}, {}, ["--build"], BUILT),
        ({"internal": 1}, {"KAFKA__REPARTITION_TOPIC": "internal"}, [], BUILT),
        ({"internal": 1}, {"KAFKA__TOPICS": json.dumps([TOPIC])}, [], IN_FORCE),
    ],
)
def test_topics_or_an_option_decide_between_generations_with_the_same_settings(
    namespace: RedisOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    topics: dict[str, int],
    ours: dict[str, str],
    options: list[str],
    found: tuple[int, str],
) -> None:
    """A build that repairs state, and one that reads through an internal topic."""
    build(namespace, Settings(), topics)

    assert read(monkeypatch, tmp_path, ours, options) == found


def read(
    monkeypatch: pytest.MonkeyPatch, folder: Path, ours: dict[str, str], options: list[str]
) -> tuple[int, str]:
    """How many conversations `export`, `audit` and `top` find, and the generation they name."""
    for name, value in ours.items():
        monkeypatch.setenv(f"STREAM_METRICS_{name}", value)
    export = CliRunner().invoke(app, ["export", "--out", str(folder), *options])
    audit = CliRunner().invoke(app, ["audit", *options])
    top = CliRunner().invoke(app, ["top", "--format", "json", *options])
    assert [done.exit_code for done in (export, audit, top)] == [0, 0, 0], audit.output
    rows = len((folder / "conversations.jsonl").read_bytes().splitlines())
    assert f"1 partitions, {rows} conversations" in audit.stdout
    assert json.loads(top.stdout)["conversations"] == rows
    [named] = {re.findall(NOTE, done.stderr)[0] for done in (export, audit, top)}
    return rows, named


@pytest.mark.parametrize(
    ("builds", "why"), [(False, "no generation is being built"), (True, "good_gain was 3, is 2")]
)
def test_a_generation_that_is_not_being_built_is_not_read_as_one(
    namespace: RedisOptions, builds: bool, why: str
) -> None:
    """With `--build` nothing else is read in its place."""
    if builds:
        build(namespace, Settings.model_validate({"metrics": {"good_gain": 3}}), {TOPIC: 1})

    with pytest.raises(UsageError, match=why):
        CliRunner().invoke(app, ["audit", "--build"], catch_exceptions=False)


async def put_text(options: RedisOptions, *, layout: bool) -> str:
    """Put a text in the place of the layout or of a partition's offsets; the key."""
    space = connect(options)
    generation = (await space.layout()).in_force
    assert generation is not None
    key = space.keys.layout if layout else space.keys.partition(generation.places[0]).meta
    client: Any = space.client
    await client.set(key, "foreign")
    await space.close()
    return key.decode()


DAMAGED = "is damaged: the key {} has a type of value that no release writes"


@pytest.mark.parametrize(
    ("layout", "commands", "way_out"),
    [
        (True, ["export", "audit", "top", "purge --yes", "build", "forget c"], "Restore a backup"),
        (False, ["top"], "restore a backup, or run `stream-metrics build --again`"),
    ],
)
def test_a_key_of_another_type_is_named_with_the_way_out(
    namespace: RedisOptions, tmp_path: Path, layout: bool, commands: list[str], way_out: str
) -> None:
    """Commands end with one line."""
    key = asyncio.run(put_text(namespace, layout=layout))

    for command in commands:
        done = CliRunner().invoke(app, command.split())
        assert isinstance(done.exception, Exception), (command, done.output)
        [line] = error_lines(done.exception)
        assert way_out in line, (command, line)
        assert DAMAGED.format(key) in line if layout else "of the keys" in line
    said = CliRunner().invoke(app, ["check"], env={"COLUMNS": "500"}).stdout.splitlines()
    [state] = [line for line in said if line.startswith("state")]
    assert DAMAGED.format(key) in state
    assert way_out in state


def test_a_worker_does_not_start_on_a_layout_of_another_type(namespace: RedisOptions) -> None:
    """It ends with exit code 2, and names the key and the way out."""
    key = asyncio.run(put_text(namespace, layout=True))

    done = subprocess.run(
        [sys.executable, "-m", "stream_metrics", "worker"],
        capture_output=True, text=True, timeout=60, check=False,
        env={
            **os.environ,
            "STREAM_METRICS_STATE__DIGEST_KEY": "x" * 32,
            "STREAM_METRICS_WEB__PORT": str(free_port()),
        },
    )  # fmt: skip

    assert done.returncode == 2, done.stderr
    assert DAMAGED.format(key) in done.stderr
    assert "Restore a backup" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_conversation_to_forget_is_sent_once(tmp_path: Path) -> None:
    """Arguments come first, then the unchanged lines of the file without empty ones."""
    listed = tmp_path / "ids.txt"
    listed.write_bytes("b\r\na\n\n köln 3 \nb".encode())

    assert read_ids(["a"], listed) == ["a", "b", " köln 3 "]


@pytest.mark.parametrize("name", ["x" * 129, "\ud800"])
def test_an_invalid_conversation_id_is_refused(name: str) -> None:
    """No event could have it."""
    with pytest.raises(UsageError, match="1 to 128 characters"):
        read_ids([name], None)


def test_an_empty_list_to_forget_is_refused(tmp_path: Path) -> None:
    """An empty file is a mistake."""
    listed = tmp_path / "ids.txt"
    listed.write_text("\n")

    with pytest.raises(UsageError, match="--file"):
        read_ids([], listed)


def test_a_forget_reaches_up_to_now_by_default() -> None:
    """The time is in microseconds."""
    before = time.time_ns() // 1000

    assert before <= parse_until(None) <= time.time_ns() // 1000


@pytest.mark.parametrize("text", ["yesterday", "1999-12-31T23:59:59Z", "2099-01-01T00:00:00Z"])
def test_a_forget_up_to_a_time_that_workers_refuse_is_refused(text: str) -> None:
    """The event would become a dead letter."""
    with pytest.raises(UsageError, match="--until"):
        parse_until(text)


def test_check_says_that_nothing_is_set() -> None:
    """It then looks for servers where nobody may have any."""
    environment = {"COLUMNS": "500", "STREAM_METRICS_CONFIG": None}
    done = CliRunner().invoke(app, ["check"], env=environment).stdout.splitlines()

    assert "Check with the settings of the workers" in done[0]


def test_ctrl_c_at_a_question_is_no_answer_also_within_an_event_loop() -> None:
    """An event loop would note it, and wait for the answer."""
    reached = []

    async def ask() -> None:
        with answered("do it"):
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the next line")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(ask())
    assert not reached
