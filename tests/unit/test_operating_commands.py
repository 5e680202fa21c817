"""What `audit` and `forget` say and end with, as whoever types them sees it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from deploy.local.servers import RedisServer
from stream_metrics.adapters.kafka.unpacking import UnreadableBatch
from stream_metrics.adapters.memory import MemoryDeadLetters
from stream_metrics.adapters.redis.connect import RedisOptions, connect
from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError
from stream_metrics.cli.forget import parse_until, read_ids
from stream_metrics.cli.stopped import run
from stream_metrics.engine.codec import encode_sums
from stream_metrics.ports import Position, Record
from stream_metrics.runtime import identity
from stream_metrics.settings import Settings
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_audit import a_bucket, change
from tests.unit.test_state_partition import NOON_S, search


@pytest.fixture
def namespace(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisOptions:
    """A namespace with the state of one conversation, which the settings point to."""
    options = RedisOptions(url=redis_server.url, namespace=f"commands-{uuid4()}")
    monkeypatch.setenv("STREAM_METRICS_REDIS__URL", options.url)
    monkeypatch.setenv("STREAM_METRICS_REDIS__NAMESPACE", options.namespace)

    async def fill() -> None:
        store = connect(options)
        ours = identity(Settings(), {TOPIC: 1})
        await store.claim(0, b"token", {TOPIC: Position(0)})
        partition = await opened(store, MemoryDeadLetters(), 10, identity=ours)
        key, value, stamp = search("c", 1, NOON_S, "a", "b")
        await partition.process([Record(value, key, stamp, TOPIC, 0, 0)], once)
        await store.close()

    asyncio.run(fill())
    return options


def spoil(options: RedisOptions) -> None:
    """Change one sum of one bucket."""

    async def work() -> None:
        store = connect(options)
        place, sums = await a_bucket(store)
        await change(store, buckets={place: encode_sums({**sums, "r": 99})})
        await store.close()

    asyncio.run(work())


def test_an_audit_without_a_difference_ends_with_0(namespace: RedisOptions) -> None:
    """It says how much was compared."""
    done = CliRunner().invoke(app, ["audit"])

    assert done.exit_code == 0
    assert "1 partitions, 1 conversations" in done.stdout
    assert "no difference" in done.stdout


def test_an_audit_with_a_difference_ends_with_1(namespace: RedisOptions) -> None:
    """It shows the place, and both sums."""
    spoil(namespace)

    done = CliRunner().invoke(app, ["audit"])

    assert done.exit_code == 1
    line = next(line for line in done.stdout.splitlines() if "results" in line)
    assert line.split() == ["0", "24h", "2024-06-10T12:00:00Z", "default", "results", "99", "2"]


def test_an_audit_as_json_has_differences_alone_on_standard_output(
    namespace: RedisOptions,
) -> None:
    """One object a line; what is meant for people goes to standard error."""
    spoil(namespace)

    done = CliRunner().invoke(app, ["audit", "--format", "json"])

    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["series"], found["stored"], found["computed"]) == ("results", 99, 2)
    assert "1 differ" in done.stderr


def test_an_audit_of_nothing_is_an_error(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace without state is a slip in the settings."""
    monkeypatch.setenv("STREAM_METRICS_REDIS__NAMESPACE", "nobody-is-here")

    with pytest.raises(UsageError, match="has no state"):
        CliRunner().invoke(app, ["audit"], catch_exceptions=False)


@pytest.mark.parametrize("command", ["audit", "export"])
def test_other_settings_than_the_workers_are_an_error(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Other thresholds make other windows and rows: neither compared nor written."""
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")

    with pytest.raises(UsageError, match="other settings"):
        CliRunner().invoke(app, [command], catch_exceptions=False)


def test_conversations_to_forget_are_taken_once_each(tmp_path: Path) -> None:
    """Arguments, then the lines of the file as they stand, without empty ones."""
    listed = tmp_path / "ids.txt"
    listed.write_bytes("b\r\na\n\n köln 3 \nb".encode())

    assert read_ids(["a"], listed) == ["a", "b", " köln 3 "]


@pytest.mark.parametrize("name", ["x" * 129, "\ud800"])
def test_what_is_no_conversation_id_is_refused(name: str) -> None:
    """No event could have it."""
    with pytest.raises(UsageError, match="1 to 128 characters"):
        read_ids([name], None)


def test_forgetting_nobody_is_refused(tmp_path: Path) -> None:
    """An empty file is a slip."""
    listed = tmp_path / "ids.txt"
    listed.write_text("\n")

    with pytest.raises(UsageError, match="--file"):
        read_ids([], listed)


def test_a_forget_reaches_up_to_now_by_default() -> None:
    """In microseconds."""
    before = time.time_ns() // 1000

    assert before <= parse_until(None) <= time.time_ns() // 1000


@pytest.mark.parametrize("text", ["yesterday", "1999-12-31T23:59:59Z", "2099-01-01T00:00:00Z"])
def test_a_forget_up_to_a_time_that_workers_refuse_is_refused(text: str) -> None:
    """Such an event would be a dead letter."""
    with pytest.raises(UsageError, match="--until"):
        parse_until(text)


# -- after a command that broke off


def held_by(options: RedisOptions, command: str | None = None) -> str | None:
    """Who holds the namespace; with ``command`` a run of that has just broken off."""

    async def work() -> str | None:
        store = connect(options)
        if command is not None:
            await store.hold(b"mark", command)
        found = await store.held_by()
        await store.close()
        return found

    return asyncio.run(work())


def switched(options: RedisOptions, command: str) -> None:
    """A run of a command has broken off behind its switch."""

    async def work() -> None:
        store = connect(options)
        await store.hold(b"0a1b", command)
        before = await store.describe(0)
        assert before.identity is not None
        drafts = store.drafts(b"0a1b")
        await drafts.claim(0, b"0a1b", before.positions)
        await store.switch(b"0a1b", [0], [0])
        await store.close()

    asyncio.run(work())


def test_another_commands_hold_is_not_taken_over_unasked(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration lists its changes as ever, says who broke off, and asks."""
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")
    held_by(namespace, "reshard")

    done = CliRunner().invoke(app, ["migrate"], input="n\n")

    assert done.exit_code == 1
    assert "metrics.good_gain was 2, is 3" in done.stderr
    assert "`stream-metrics reshard` was interrupted" in done.stderr
    assert held_by(namespace) == "reshard"


def test_a_run_that_broke_off_asks_again_before_it_changes_anything(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings may be others than those that its first run asked about."""
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")
    held_by(namespace, "migrate")

    done = CliRunner().invoke(app, ["migrate"], input="n\n")

    assert (done.exit_code, held_by(namespace)) == (1, "migrate")
    assert "metrics.good_gain was 2, is 3" in done.stderr


def test_a_run_that_only_ends_goes_on_unasked(namespace: RedisOptions) -> None:
    """Nothing is changed any more; here only the hold was left to end."""
    held_by(namespace, "migrate")

    done = CliRunner().invoke(app, ["migrate"])

    assert (done.exit_code, held_by(namespace)) == (0, None)
    assert "workers may start" in done.stderr


def test_rows_that_another_command_has_left_are_sent(namespace: RedisOptions) -> None:
    """Behind a switch there is something to do also without changes: it asks, and ends it."""
    switched(namespace, "reshard")

    no = CliRunner().invoke(app, ["migrate"], input="n\n")
    still = held_by(namespace)
    done = CliRunner().invoke(app, ["migrate"], input="y\n")

    assert (no.exit_code, still) == (1, "reshard")
    assert (done.exit_code, held_by(namespace)) == (0, None)


def test_giving_up_behind_a_switch_says_what_is_owed(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows may be unsent, and who sends them is named; it asks first."""
    monkeypatch.setenv("STREAM_METRICS_KAFKA__OUTPUT_TOPIC", "rows")
    switched(namespace, "migrate")

    no = CliRunner().invoke(app, ["reshard", "--abort"], input="n\n")
    still = held_by(namespace)
    done = CliRunner().invoke(app, ["reshard", "--abort", "--yes"])

    assert (no.exit_code, still) == (1, "migrate")
    assert "may not be on the output topic rows. `stream-metrics migrate` sends" in no.stderr
    assert (done.exit_code, held_by(namespace)) == (0, None)


def test_nothing_to_do_says_who_keeps_workers_out(namespace: RedisOptions) -> None:
    """The hold stays, and the ways out are named."""
    held_by(namespace, "rebuild")

    done = CliRunner().invoke(app, ["migrate"])

    assert (done.exit_code, held_by(namespace)) == (0, "rebuild")
    assert "nothing to do" in done.stderr
    assert "`stream-metrics reshard --abort`" in done.stderr


def test_a_batch_that_cannot_be_unpacked_is_not_a_matter_of_trying_again() -> None:
    """The message names the batch, the setting and the way out."""

    async def work() -> int:
        raise UnreadableBatch("events", 2, 7, "is larger than 5 bytes decompressed")

    with pytest.raises(
        UsageError,
        match=r"offset 7 of events \[2\].*max_batch_bytes.*kafka-delete-records.*continue",
    ) as told:
        run(Settings(), work())
    assert "Run this again to continue" not in str(told.value)


@pytest.mark.parametrize("command", ["migrate", "rebuild", "reshard", "reshard --abort"])
def test_whatever_broke_off_can_be_given_up(namespace: RedisOptions, command: str) -> None:
    """Workers may start with the state that is in force."""
    held_by(namespace, command)

    done = CliRunner().invoke(app, ["reshard", "--abort"])

    assert (done.exit_code, held_by(namespace)) == (0, None)
    assert f"workers may start, with {TOPIC}: 1 partitions" in done.stderr


def test_places_that_are_kept_though_the_hold_is_lost_can_be_let_go(
    namespace: RedisOptions,
) -> None:
    """A Redis that went back in part leaves them; a worker may claim them afterwards."""

    async def lose() -> None:
        store = connect(namespace)
        client: Any = store.client
        await store.hold(b"mark", "migrate")
        await client.hdel(store.keys.layout, "held")
        await store.close()

    async def frozen() -> bool:
        store = connect(namespace)
        found = (await store.describe(0)).frozen
        await store.close()
        return found

    asyncio.run(lose())
    assert asyncio.run(frozen())

    done = CliRunner().invoke(app, ["reshard", "--abort"])

    assert (done.exit_code, asyncio.run(frozen())) == (0, False)
    assert f"workers may start, with {TOPIC}: 1 partitions" in done.stderr


def test_a_run_on_damaged_state_can_be_given_up(namespace: RedisOptions) -> None:
    """Nothing of it need be readable for that."""

    async def damage() -> None:
        store = connect(namespace)
        client: Any = store.client
        tag = await client.hget(store.keys.layout, "0")
        await client.hset(store.keys.partition(tag.decode()).meta, "i:schema", "damaged")
        await store.close()

    held_by(namespace, "migrate")
    asyncio.run(damage())

    done = CliRunner().invoke(app, ["reshard", "--abort"])

    assert (done.exit_code, held_by(namespace)) == (0, None)
