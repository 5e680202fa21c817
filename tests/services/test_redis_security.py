"""Redis with TLS and ACL users: the rights that the worker needs, and errors if one is missing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from redis.asyncio import Redis

from deploy.local.certificates import Authority
from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.redis.rights import WORKER_COMMANDS
from tests.helpers import rest_long, wait_until
from tests.services.live import PARTITIONS, LiveSystem, produce, said
from tests.services.secured import command_acl, worker_acl
from tests.services.test_build import BUILT_SECONDS, GOOD_GAIN, begun

PASSWORD = "rd-4711-secret"
RIGHTS = worker_acl()
COMMANDS = {
    "export": ("export", "--out", "{out}"),
    "audit": ("audit",),
    "top": ("top", "--window", "24h"),
    "purge": ("purge", "--yes", "--force"),
}
OF_THE_TEST = {"acl|setuser", "acl|deluser", "auth", "config|resetstat", "hello", "ping"}
BEYOND_A_PAGE = {"+zcount"}  # of a partition's conversations; asked for before the first page
LATE_RIGHTS = {"+hdel", "+hget", "+hset", "+unlink", "+zrem"}  # refused after the first deletions
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Secured:
    """A Redis with TLS, and a client with all rights."""

    server: RedisServer
    authority: Authority
    raw: Redis

    async def user(self, namespace: str, commands: list[str], keys: str | None = None) -> None:
        """Recreate the user ``worker`` with these commands on the keys of the namespace."""
        await self.raw.acl_deluser("worker")
        await self.raw.acl_setuser(
            "worker",
            enabled=True,
            passwords=[f"+{PASSWORD}"],
            keys=[keys or f"sm:{namespace}:*"],
            commands=commands,
            reset_channels=True,
        )


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    """A server of the test's own."""
    authority = Authority(tmp_path / "ca")
    async with (
        RedisServer(tmp_path / "redis", authority=authority) as server,
        Redis.from_url(server.url) as raw,
    ):
        yield Secured(server, authority, raw)


async def live_group(
    kafka: Kafka, secured: Secured, folder: Path, conversations: int
) -> LiveSystem:
    """Topics with traffic, for workers that connect to Redis by TLS as ``worker``."""
    group = f"acl-{os.getpid()}-{next(_numbers)}"
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, PARTITIONS)
        await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    start = int(time.time()) - 1_800
    profile = TrafficProfile(
        seed=7, conversations=conversations, start=start, duration_seconds=1_200
    )
    streams = {"events": topics[0], "labels": topics[1]}
    produced = await produce(kafka, streams, generate(profile))
    system = LiveSystem(kafka, secured.server, folder / group, group, topics, produced)
    system.settings |= {
        "STREAM_METRICS_REDIS__URL": secured.server.tls_url,
        "STREAM_METRICS_REDIS__USERNAME": "worker",
        "STREAM_METRICS_REDIS__PASSWORD": PASSWORD,
        "STREAM_METRICS_REDIS__SSL_CA_FILE": str(secured.authority.certificate),
    }
    return system


async def called(raw: Redis) -> set[str]:
    """The commands that the server has run since the last reset, including those in scripts."""
    found = await raw.info("commandstats")
    return {
        name.removeprefix("cmdstat_") for name, stats in found.items() if stats["calls"]
    } - OF_THE_TEST


@pytest.mark.long
async def test_the_listed_rights_are_enough_and_are_all_used(
    kafka: Kafka, secured: Secured, tmp_path: Path
) -> None:
    """With these rights state equals a replay's and can be rebuilt; every right is used."""
    system = await live_group(kafka, secured, tmp_path, conversations=300)
    await secured.user(system.group, RIGHTS)
    code, text = await said(system, "check")
    assert (code, "error" in text) == (0, False), text
    await secured.raw.config_resetstat()
    await system.start_workers(1)
    await system.reach(1.0)
    live, replayed = await system.compare(system.produced.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name

    system.settings[GOOD_GAIN] = "3"
    building = await begun(system)
    await system.start_workers(1)
    code, text = await asyncio.wait_for(building, BUILT_SECONDS)
    assert code == 0, text
    old, new = system.workers
    await old.ended(60)
    await wait_until(new.ready, 60, new.log_tail)

    used = {f"+{name}" for name in await called(secured.raw)}
    assert used | BEYOND_A_PAGE == set(RIGHTS)
    assert (old.exit_code, await new.stop()) == (2, 0)


@pytest.mark.parametrize("lacking", rest_long([*RIGHTS, "~"]))
async def test_a_missing_right_is_named(
    kafka: Kafka, secured: Secured, tmp_path: Path, lacking: str
) -> None:
    """Without one of the rights, `check` and the worker fail, and name the right and the keys."""
    system = await live_group(kafka, secured, tmp_path, conversations=1)
    commands = [right for right in RIGHTS if right != lacking]
    await secured.user(system.group, commands, keys="other:*" if lacking == "~" else None)
    wanted = f"~sm:{system.group}:*" if lacking == "~" else lacking

    code, text = await said(system, "check")
    assert code == 2
    assert f"grant {wanted} (docs/guides/security.md" in text

    await system.start_workers(1)
    [worker] = system.workers
    await worker.ended(30)
    assert worker.exit_code == 2
    assert f"grant {wanted} (docs/guides/security.md" in worker.log_tail()


async def test_another_database_needs_select(
    kafka: Kafka, secured: Secured, tmp_path: Path
) -> None:
    """In a database other than 0 `check` asks for +select, and accepts it."""
    system = await live_group(kafka, secured, tmp_path, conversations=1)
    system.settings["STREAM_METRICS_REDIS__URL"] = secured.server.tls_url[:-1] + "3"
    await secured.user(system.group, RIGHTS)

    code, text = await said(system, "check")
    assert code == 2
    assert "grant +select" in text

    await secured.user(system.group, [*RIGHTS, "+select"])
    assert (await said(system, "check"))[0] == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"PASSWORD": "another"}, "invalid username-password pair"),
        ({"USERNAME": "nobody"}, "invalid username-password pair"),
        ({"SSL_CA_FILE": None}, "certificate verify failed"),
        ({"URL": "rediss://127.0.0.1:1/0"}, "Connect call failed"),
        ({"URL": "redis://{tls}/0", "SSL_CA_FILE": None}, "Redis is unavailable"),
        ({"URL": f"rediss://worker:{PASSWORD}/x@127.0.0.1:1/0"}, "`redis.url` is not valid"),
        ({"URL": f"rediss://:{PASSWORD}"}, "`redis.url` is not valid"),
        ({"URL": "http://127.0.0.1"}, "`redis.url` is not valid"),
    ],
    ids=str,
)
async def test_a_failed_login_is_explained(
    kafka: Kafka,
    secured: Secured,
    tmp_path: Path,
    settings: dict[str, str | None],
    sentence: str,
) -> None:
    """`check` says what is wrong with a login or address, and never shows the password."""
    system = await live_group(kafka, secured, tmp_path, conversations=1)
    await secured.user(system.group, RIGHTS)
    for name, value in settings.items():
        if value is None:
            del system.settings[f"STREAM_METRICS_REDIS__{name}"]
        else:
            place = value.replace("{tls}", f"127.0.0.1:{secured.server.tls_port}")
            system.settings[f"STREAM_METRICS_REDIS__{name}"] = place

    code, text = await said(system, "check")

    assert code == 2
    assert sentence in text
    assert PASSWORD not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("password", rest_long(["key-4711-secret", None]))
async def test_a_certificate_of_its_own(
    kafka: Kafka, secured: Secured, tmp_path: Path, password: str | None
) -> None:
    """If Redis requires a certificate, the worker presents one; its key may be encrypted."""
    await secured.raw.config_set("tls-auth-clients", "yes")
    system = await live_group(kafka, secured, tmp_path, conversations=2)
    await secured.user(system.group, RIGHTS)
    assert (await said(system, "check"))[0] == 2
    own = secured.authority.issue("worker", password)
    system.settings |= {
        "STREAM_METRICS_REDIS__SSL_CERTIFICATE_FILE": str(own.certificate),
        "STREAM_METRICS_REDIS__SSL_KEY_FILE": str(own.key),
    }
    if password is not None:
        code, text = await said(system, "check")
        assert (code, "needs the right `redis.ssl_key_password`" in text) == (2, True)
        file = tmp_path / "key-password"
        file.write_text(password + "\n")
        system.settings["STREAM_METRICS_REDIS__SSL_KEY_PASSWORD_FILE"] = str(file)

    code, text = await said(system, "check")
    assert code == 0, text
    await system.start_workers(1)
    await system.reach(1.0)
    assert await system.stop_workers() == [0]


@pytest.mark.parametrize("command", rest_long(COMMANDS))
async def test_commands_need_exactly_the_listed_rights(
    kafka: Kafka, secured: Secured, tmp_path: Path, command: str
) -> None:
    """With these rights a command works; with one less it fails and names the Redis command."""
    system = await live_group(kafka, secured, tmp_path, conversations=20)
    await secured.user(system.group, RIGHTS)
    await system.start_workers(1)
    await system.reach(1.0)
    assert await system.stop_workers() == [0]
    rights = command_acl(command)
    arguments = [part.replace("{out}", str(tmp_path / "out")) for part in COMMANDS[command]]
    for lacking in sorted(rights, key=LATE_RIGHTS.__contains__):
        await secured.user(system.group, [right for right in rights if right != lacking])
        if lacking in ("+eval", "+evalsha"):
            await secured.raw.script_flush()
        code, text = await said(system, *arguments)
        assert code == 2, f"{lacking} is not needed: {text}"
        assert f"grant {lacking} " in text
        assert "Traceback" not in text

    await secured.user(system.group, rights)
    code, text = await said(system, *arguments)
    assert code == 0, text


def test_the_guide_lists_the_rights_in_the_code() -> None:
    """It lists those that the code checks, and the commands that the check itself needs."""
    checked = {f"+{command.lower()}" for command in WORKER_COMMANDS}
    assert set(RIGHTS) == checked | {"+eval", "+evalsha", "+info"}
    assert sorted(RIGHTS) == RIGHTS
