"""``stream-metrics serve``: the engine, its page and the receiver in one process, over a file."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from stream_metrics.cli.serving import ServeProcess, listening, shows_texts
from stream_metrics.cli.serving_rules import rules_over
from stream_metrics.cli.serving_traces import Traces
from stream_metrics.cli.settings import Settings
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES
from stream_metrics.lab.sources.otlp.traces import TraceStore
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.auth import hash_password
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.folder import database_of, held, prepare_database
from stream_metrics.live.local.log import Log
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.clock import Clock
from tests import oracle
from tests.gathered import of_the_log, searches, values
from tests.helpers import ran, wait_until
from tests.serving import Served, check_file, everything, serving
from tests.telemetry import CAPTURES

NOW_S = 1_718_020_800


def settings(folder: Path, bridge: object = None, **serve: object) -> Settings:
    """Settings of a process on free ports."""
    return Settings.model_validate(
        {
            "serve": {"data": folder, "otlp_port": 0, **serve},
            "web": {"port": 0},
            "state": {"digest_key": "a secret of the tests"},
            "bridge": bridge or {},
        }
    )


def events(conversations: int = 12, seed: int = 1) -> list[bytes]:
    """Events of today, some of which are not valid."""
    profile = TrafficProfile(
        seed=seed,
        conversations=conversations,
        duration_seconds=600,
        turns=(1, 2),
        iterations=(1, 3),
        results_per_search=4,
        invalid=0.05,
    )
    return [record.value for record in generate(profile) if record.value.strip()]


@asynccontextmanager
async def working(
    folder: Path, clock: Clock | None = None, /, **serve: Any
) -> AsyncIterator[tuple[ServeProcess, str, str]]:
    """A process in this one, and its addresses."""
    chosen = settings(folder, **serve)
    database = Database(prepare_database(folder))
    process = ServeProcess(chosen, database, clock)
    try:
        async with listening(process, chosen) as (page, receiver):
            work = asyncio.create_task(process.run())
            yield process, page, receiver
            process.stop()
            await work
    finally:
        await database.close()


async def post(receiver: str, body: bytes) -> int:
    """Post events; how many were accepted."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{receiver}/v1/events", data=body) as answer,
    ):
        return int((await answer.json())["accepted"])


async def read_all(process: ServeProcess) -> None:
    """Wait until the state has all that was accepted."""

    def done() -> bool:
        loop = process.loop
        if loop is None or not loop.partitions:
            return False
        return loop.partitions[0].positions["events"].offset == accepted

    accepted = len(await everything(process.records))
    await wait_until(done, 30, "the events are not read")


async def test_rows_are_those_of_a_replay_of_the_log(tmp_path: Path) -> None:
    """Before and after a restart, which goes on where the last process has stopped."""
    sent = events()
    for part in (sent[::2], sent[1::2]):
        async with working(tmp_path) as (process, _, receiver):
            await post(receiver, b"\n".join(part))
            await read_all(process)

    stored = await check_file(database_of(tmp_path))
    assert len(sent) // 2 < len(stored) < len(sent), "some are not valid"
    assert set(stored) < set(sent)


async def test_page_and_metrics_are_a_workers(tmp_path: Path) -> None:
    """Figures, readiness, what was received, and nothing about servers that are not used."""
    async with working(tmp_path) as (process, page, receiver):
        accepted = await post(receiver, b"\n".join(events(2)))
        await read_all(process)
        async with aiohttp.ClientSession() as session:
            found = {}
            for path in ("", "metrics", "readyz", "healthz", "api/state"):
                async with session.get(page + path) as answer:
                    found[path] = (answer.status, await answer.text())

    assert {status for status, _ in found.values()} == {200}
    assert f"streammetrics_receiver_events_total {accepted:.1f}" in found["metrics"][1]
    assert 'streammetrics_window_turns{agent="' in found["metrics"][1]
    rules = {rule["name"] for rule in json.loads(found["api/state"][1])["rules"]}
    assert {"dead_letters", "traces_refused"} <= rules
    assert not rules & {"kafka", "redis", "memory"}


async def test_evidence_is_that_of_what_was_received(tmp_path: Path) -> None:
    """By the minute in which it was, also after a restart; an agent that repeats itself shows."""
    first = NOW_S // 60
    some = {first + minute for minute in (*range(35), *range(188, 200))}
    sent = [event for event in searches(first, 200) if event["occurred_at"] // 60 in some]
    now_s = sent[0]["occurred_at"]
    clock = Clock(lambda: 1_000 * now_s)
    async with working(tmp_path, clock) as (process, _, receiver):
        for at_s, at_once in groupby(sent, itemgetter("occurred_at")):
            now_s = at_s
            await post(receiver, json.dumps(list(at_once)).encode())
        await read_all(process)
    now_s = 60 * (now_s // 60 + 1)
    async with working(tmp_path, clock) as (process, _, _):
        gauges = process.operations.evidence
        await wait_until(lambda: gauges.gathered, 30, "no evidence is told")
        assert gauges.gathered is not None
        found = values(gauges.gathered.stands)

    assert found == values(of_the_log(sent, now_s // 60 - 1))
    assert found["first", "srr"][0][1] > 1 > found["second", "srr"][0][0]


async def test_a_clock_that_was_far_ahead_is_told(tmp_path: Path) -> None:
    """Once: windows go by the latest time at which something came, and would be empty."""
    now_s = NOW_S + 400 * 86_400
    clock = Clock(lambda: 1_000 * now_s)
    async with working(tmp_path, clock) as (process, _, receiver):
        await post(receiver, events(1)[0])
        await read_all(process)
        with capture_logs() as said:
            process.tell_clock()
            now_s = NOW_S
            for _ in range(2):
                process.tell_clock()

    assert [(one["event"], one["hours"]) for one in said] == [
        ("the clock was ahead when something was received", 9_600.0)
    ]


def not_asked() -> Traces:
    """What rules over a folder read; nobody asks for it."""
    raise AssertionError


def test_no_rule_of_the_page_speaks_of_servers() -> None:
    """What it names is there, and a command that it names has the folder."""
    rules = rules_over(Path("a folder"), not_asked)
    said = {text for one in rules for text in (one.title, one.fires, one.look, one.differs)}

    words = ("Kafka", "Redis", "topic", "worker", "partition")
    assert not [text for text in said if any(word in text for word in words)]
    commands = [text for text in said if "stream-metrics " in text]
    assert commands
    assert all("--data 'a folder'" in text for text in commands)


async def test_silent_connections_to_the_page_keep_no_sender_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two addresses has a share of the files that may be open."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (12, 12))
    async with working(tmp_path) as (_, page, receiver):
        port = int(page.rstrip("/").rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(9)]

        assert await post(receiver, events(1)[0]) == 1
        async with aiohttp.ClientSession() as session, session.get(f"{page}healthz") as got:
            assert got.status == 200

        assert await held[0][0].read() == b""
        for _, writer in held:
            writer.close()


async def test_old_events_are_deleted_and_the_figures_stay(tmp_path: Path) -> None:
    """Retention is that of the log, not of the state."""
    async with working(tmp_path) as (process, _, receiver):
        await post(receiver, b"\n".join(events(3)))
        await read_all(process)
        before = [partition.windows for partition in process.loop.partitions]  # type: ignore[union-attr]
    async with working(tmp_path, retention="1s") as (process, _, receiver):
        log: Log = process.records
        await wait_until(lambda: process.loop is not None and bool(process.loop.partitions), 30, "")
        assert before

        async def trimmed() -> bool:
            await process.trim()
            return not (await log.kept()).records["events"]

        await wait_until(trimmed, 30, "the log keeps what is too old")
        assert await everything(log) == []


async def test_traces_become_rows_of_every_turn(tmp_path: Path) -> None:
    """Those of a replay of the same spans; what the bridge refuses has a page of its own."""
    packed = (CAPTURES / "langchain-openinference-graph-skipturn.jsonl.gz").read_bytes()
    payloads = gzip.decompress(packed).splitlines()
    headers = {"Content-Type": "application/json"}
    replayed = replayed_events(payloads)

    async with working(tmp_path, bridge={"settle": "1s"}) as (process, page, receiver):
        async with aiohttp.ClientSession() as session:
            for payload in payloads:
                url = f"{receiver}/v1/traces"
                async with session.post(url, data=payload, headers=headers) as answer:
                    assert answer.status == 200
            await wait_until(lambda: read_up_to(process) == len(replayed), 60, "not told")
            async with session.get(f"{page}traces") as answer:
                assert "Nothing was refused" in await answer.text()
        store, chosen = process.store, process.settings
        assert store is not None
        scope = chosen.metrics.turn_scope
        export = await export_state(store, chosen.engine_config(), DEFAULT_WINDOWS, scope)

    outcome = oracle.evaluate(replayed, turn_scope="all")
    assert [canonical(row) for row in export.rows] == sorted(outcome.rows)
    assert len(outcome.rows) > 2


def replayed_events(payloads: list[bytes]) -> list[oracle.Record]:
    """The events of a replay of files with these payloads."""
    otlp = Settings().otlp
    with TraceStore(otlp.mapping(), otlp.options(NO_GRADES), Limits()) as store:
        for payload in payloads:
            store.add_payload(payload)
        return [
            oracle.Record(record.value or b"", record.key, record.timestamp_ms)
            for record in store.records()
        ]


def read_up_to(process: ServeProcess) -> int:
    """The offset up to which the state has events."""
    loop = process.loop
    if loop is None or not loop.partitions:
        return 0
    position = loop.partitions[0].positions.get("events")
    return 0 if position is None else position.offset


def test_a_folder_with_state_of_other_settings_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The message says which differ, as a worker's does."""

    async def begin() -> None:
        async with working(tmp_path) as (process, _, receiver):
            await post(receiver, b"\n".join(events(1)))
            await read_all(process)

    asyncio.run(begin())
    environment = {
        "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
        "STREAM_METRICS_METRICS__GOOD_GAIN": "3",
    }

    told = ran(
        "serve", "--data", str(tmp_path), "--port", "0", "--otlp-port", "0",
        environment=environment,
    )  # fmt: skip

    assert told.returncode == 2
    assert "good_gain" in told.stderr + capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--host", "0.0.0.0"], "set serve.token_file"),
        (["--data", "{taken}/x"], "Not a directory"),
        (["--otlp-port", "70000"], "equal to 65535"),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str], why: str
) -> None:
    """With exit code 2 and a message that says what to do."""
    taken = tmp_path / "taken"
    taken.touch()
    flags = [flag.format(taken=taken) for flag in flags]

    told = ran("serve", "--data", str(tmp_path / "data"), "--port", "0", "--otlp-port", "0", *flags)

    assert told.returncode == 2
    assert why in " ".join((told.stderr + capfd.readouterr().err).split())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("digest.key", "", "digest.key has no key"),
        ("token", "", "write one token to it"),
        ("token", "two\nlines", "write one token to it"),
    ],
)
def test_an_empty_secret_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, text: str, why: str
) -> None:
    """A file that lost what it had protects nothing."""
    (tmp_path / name).write_text(text)
    token = {"STREAM_METRICS_SERVE__TOKEN_FILE": str(tmp_path / "token")}

    told = ran(
        "serve", "--data", str(tmp_path), "--port", "0", "--otlp-port", "0",
        environment=token if name == "token" else {},
    )  # fmt: skip

    assert told.returncode == 2
    assert why in told.stderr + capfd.readouterr().err


@pytest.mark.parametrize(
    ("host", "users", "shown"),
    [("127.0.0.1", {}, True), ("0.0.0.0", {}, False), ("0.0.0.0", {"ann": "secret"}, True)],
)
def test_texts_are_shown_to_nobody_unknown(
    tmp_path: Path, host: str, users: dict[str, str], shown: bool
) -> None:
    """Where others can reach the page, only users read what agents found."""
    chosen = settings(tmp_path)
    given = {name: SecretStr(hash_password(password, 4)) for name, password in users.items()}
    web = chosen.web.model_copy(update={"host": host, "users": given})

    assert shows_texts(chosen.model_copy(update={"web": web})) is shown


def test_a_folder_in_use_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, and a message that names the other process."""
    with held(tmp_path):
        told = ran("serve", "--data", str(tmp_path), "--port", "0", "--otlp-port", "0")

    assert told.returncode == 2
    assert f"in use by process {os.getpid()}" in told.stderr + capfd.readouterr().err


@pytest.mark.slow
def test_what_was_acknowledged_survives_kills(tmp_path: Path) -> None:
    """A client sends again what was not acknowledged. Whatever moment the process dies at, every
    acknowledged event is there once, and rows are those of one pass over the log."""
    rng, sent, acknowledged = Random(3), events(30), set[bytes]()
    position = 0
    for kills in range(3):
        with serving(tmp_path) as served:
            if kills < 2:
                killer = Timer(rng.uniform(0.05, 0.4), served.process.kill)
                killer.start()
            while position < len(sent):
                body = sent[position : position + rng.randint(1, 4)]
                try:
                    told = served.post(b"\n".join(body))
                except OSError:
                    break
                refused = {one["place"] for one in told["refused"]}
                acknowledged |= {v for n, v in enumerate(body, 1) if n not in refused}
                position += len(body)
            if kills == 2:
                until_read(served)
                assert served.stop() == 0

    stored = asyncio.run(check_file(database_of(tmp_path)))

    assert position == len(sent)
    assert acknowledged <= set(stored)
    assert len(stored) - len(set(stored)) <= 2 * 4 + len(sent) - len(set(sent))


def until_read(served: Served) -> None:
    """Wait until the process has read all its events."""
    line = 'streammetrics_consumer_lag_records{partition="0",topic="events"} 0.0'

    def done() -> bool:
        return line in served.get("/metrics")

    asyncio.run(wait_until(done, 30, "the events are not read"))
