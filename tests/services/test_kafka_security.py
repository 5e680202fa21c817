"""Kafka with TLS, logins and ACLs: the rights that the worker needs, and its errors."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from msgspec import structs

from deploy.local.certificates import Authority
from deploy.local.kafka.cluster import Kafka
from deploy.local.kafka.security import Grant, Security, grant, revoke, unsigned_token
from deploy.local.process import blocking
from deploy.local.servers import RedisServer
from stream_metrics.clients.kafka.rights import worker_rights
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.worker.probe import PROBE_SECONDS
from tests.conftest import need_servers
from tests.helpers import rest_long, wait_until
from tests.services.live import PARTITIONS, LiveSystem, Produced, produce, said, stored
from tests.services.secured import (
    BUILD,
    CASES,
    INTERNAL,
    OUTPUT,
    command_grants,
    names_of,
    renamed,
    worker_grants,
)
from tests.services.test_build import BUILT_SECONDS, GOOD_GAIN, begun
from tests.services.test_repartition import Repartitioned, place, unfit

PASSWORD = "wk-4711-secret"
RIGHTS = worker_grants()
EACH_RIGHT = [
    pytest.param(case, right, id=f"{case}-{right}") for case in CASES for right in RIGHTS[case]
]
COMMANDS = {
    "dlq list": ("dlq", "list"),
    "dlq resubmit": ("dlq", "resubmit", "--all", "--yes"),
    "forget": ("forget", "some-conversation", "--yes"),
    "purge": ("purge", "--yes"),
    "build": ("build", "--again", "--dry-run"),
    "record": ("record", "--out", "-"),
    "send": ("send", str(Path(__file__).parents[2] / "examples" / "first-events.jsonl")),
    "generate --to-kafka": ("generate", "--to-kafka", "--conversations", "1"),
}


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker that denies everything by default, and unused users for each test."""

    kafka: Kafka
    authority: Authority
    users: Iterator[str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker with 60 users and one password."""
    need_servers()
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "ca")
    names = [f"user-{number}" for number in range(60)]
    kafka = Kafka(folder, security=Security(authority, dict.fromkeys(names, PASSWORD)))
    blocking(kafka.start())
    yield Secured(kafka, authority, iter(names))
    blocking(kafka.stop())


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A Redis of the test's own."""
    async with RedisServer(tmp_path / "redis") as server:
        yield server


_numbers = count(1)


def login(secured: Secured, user: str) -> dict[str, str]:
    """The settings for a login as ``user``."""
    return {
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": secured.kafka.secured_servers,
        "STREAM_METRICS_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "STREAM_METRICS_KAFKA__SASL_USERNAME": user,
        "STREAM_METRICS_KAFKA__SASL_PASSWORD": PASSWORD,
        "STREAM_METRICS_KAFKA__SSL_CA_FILE": str(secured.authority.certificate),
        "STREAM_METRICS_STATE__TTL": "24h",
    }


async def live_group(
    secured: Secured,
    redis: RedisServer,
    folder: Path,
    *,
    case: str = "plain",
    conversations: int = 20,
    invalid: float = 0.05,
) -> tuple[LiveSystem, dict[str, str]]:
    """Topics with traffic, a user without rights, and the test's names for those in the guide.

    ``case`` selects an output topic, an internal topic, or neither.
    """
    user, group = next(secured.users), f"sec-{os.getpid()}-{next(_numbers)}"
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await secured.kafka.create_topic(topic, PARTITIONS)
        await secured.kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    start = int(time.time()) - 1_800
    profile = TrafficProfile(
        seed=5, conversations=conversations, start=start, duration_seconds=1_200, invalid=invalid
    )
    streams = {"events": topics[0], "labels": topics[1]}
    produced = await produce(secured.kafka, streams, generate(profile))
    kind = Repartitioned if case == "repartition" else LiveSystem
    produced = as_read(case, produced)
    system = kind(secured.kafka, redis, folder / group, group, topics, produced)
    system.settings |= login(secured, user)
    names = names_of(topics, group)
    further = {"output": ("OUTPUT_TOPIC", OUTPUT), "repartition": ("REPARTITION_TOPIC", INTERNAL)}
    if case in further:
        setting, topic = further[case]
        system.settings[f"STREAM_METRICS_KAFKA__{setting}"] = names[topic]
        await secured.kafka.create_topic(names[topic], PARTITIONS)
    return system, names


def as_read(case: str, produced: Produced) -> Produced:
    """The produced records as a worker judges them; repartitioning ignores their keys."""
    if case != "repartition":
        return produced
    records = tuple(structs.replace(record, key=None) for record in produced.records)
    broken = frozenset(place(record) for record in records if unfit(record))
    return replace(produced, records=records, broken=broken)


def rights_in(case: str, names: dict[str, str]) -> list[Grant]:
    """All rights that the guide gives a worker in this case."""
    rights = RIGHTS["plain"] + (RIGHTS[case] if case != "plain" else [])
    return renamed(rights, names)


async def all_read(system: LiveSystem) -> None:
    """Wait until all records of the topics are in the state."""
    if isinstance(system, Repartitioned):
        await system.everything()
    else:
        await system.reach(1.0)


async def allow(secured: Secured, system: LiveSystem, grants: list[Grant]) -> None:
    """Give rights to the system's user."""
    user = system.settings["STREAM_METRICS_KAFKA__SASL_USERNAME"]
    await grant(secured.kafka.bootstrap_servers, user, *grants)


async def same_as_replay(system: LiveSystem) -> None:
    """The exported live state equals a replay of the same records."""
    live, replayed = await system.compare(system.produced.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
        assert (live / name).read_bytes()


@pytest.mark.parametrize("case", rest_long(CASES))
async def test_the_listed_rights_suffice(
    secured: Secured, redis: RedisServer, tmp_path: Path, case: str
) -> None:
    """With only the listed rights `check` passes, and the worker's state equals a replay's."""
    system, names = await live_group(secured, redis, tmp_path, case=case, conversations=200)
    assert system.produced.broken, "dead letters must be written too"
    await allow(secured, system, rights_in(case, names))

    code, text = await said(system, "check")
    assert (code, "error" in text) == (0, False), text
    await system.start_workers(1)
    await all_read(system)

    await same_as_replay(system)
    if case == "output":
        assert await stored(secured.kafka, [names[OUTPUT]]), "rows must be written too"
    await allow(secured, system, renamed(command_grants("dlq list"), names))
    assert await system.dead_letters() == system.produced.broken
    assert await system.stop_workers() == [0]


@pytest.mark.parametrize(("case", "lacking"), rest_long(EACH_RIGHT))
async def test_a_missing_right_is_named(
    secured: Secured, redis: RedisServer, tmp_path: Path, case: str, lacking: Grant
) -> None:
    """Without one of the rights `check` and the worker fail, and name the right and the resource.

    DESCRIBE in its place is not enough.
    """
    system, names = await live_group(secured, redis, tmp_path, case=case)
    [wanted] = renamed([lacking], names)
    others = [right for right in rights_in(case, names) if right != wanted]
    sentence = f"{wanted.operation.upper()} {wanted.kind} {wanted.name}. Grant it"
    for grants in (others, [Grant("Describe", wanted.kind, wanted.name)]):
        await allow(secured, system, grants)

        code, text = await said(system, "check")
        assert code == 2
        assert sentence in text
        assert text.count(". Grant it") == 1 + text.count("DESCRIBE_CONFIGS"), "only that lacks"

    await system.start_workers(1)
    [worker] = system.workers
    await worker.ended(30)
    assert worker.exit_code == 2
    assert sentence in worker.log_tail()


@pytest.mark.parametrize("case", rest_long(CASES))
async def test_a_user_without_rights_gets_the_whole_list(
    secured: Secured, redis: RedisServer, tmp_path: Path, case: str
) -> None:
    """A user without any right gets the whole list from `check`."""
    system, names = await live_group(secured, redis, tmp_path, case=case)

    code, text = await said(system, "check")

    assert code == 2
    for right in rights_in(case, names):
        assert f"{right.operation.upper()} {right.kind} {right.name}. Grant it" in text
    assert "does not exist" not in text, "this cannot be known without rights"


def reason_of(case: str, right: Grant) -> str:
    """The reason on `/readyz` when this right is revoked."""
    if right.name.endswith(".dlq"):
        return "dead_letters"
    if right.operation == "Write":
        return {"output": "output", "repartition": "repartition_topic"}[case]
    return "rights"


@pytest.mark.parametrize(("case", "lacking"), rest_long(EACH_RIGHT))
async def test_a_worker_waits_for_a_revoked_right(
    secured: Secured, redis: RedisServer, tmp_path: Path, case: str, lacking: Grant
) -> None:
    """When a right is revoked, `/readyz` reports it; when it is granted again, reading resumes."""
    system, names = await live_group(secured, redis, tmp_path, case=case)
    await allow(secured, system, rights_in(case, names))
    user = system.settings["STREAM_METRICS_KAFKA__SASL_USERNAME"]
    [wanted] = renamed([lacking], names)
    await system.start_workers(1)
    [worker] = system.workers
    await all_read(system)
    await wait_until(worker.ready, 60, "the worker is not ready")

    await revoke(secured.kafka.bootstrap_servers, user, wanted)
    start = int(time.time()) - 600
    profile = TrafficProfile(
        seed=6, conversations=60, start=start, duration_seconds=500, invalid=0.2
    )
    streams = {"events": system.topics[0], "labels": system.topics[1]}
    more = as_read(case, await produce(secured.kafka, streams, generate(profile)))
    reason = reason_of(case, lacking)
    seen: list[object] = []

    async def complains() -> bool:
        status, body = await worker.readyz()
        reasons = body.get("reasons", {})
        seen[:] = [status, reasons]
        why = [reasons[name] for name in reasons if name.endswith(reason)]
        return status == 503 and any(wanted.name.removesuffix("*") in each for each in why)

    await wait_until(complains, 60, lambda: f"the worker does not say what is lacking: {seen}")
    assert (await worker.healthz())[0] == 200
    await allow(secured, system, [wanted])
    system.produced += more
    await all_read(system)
    await same_as_replay(system)
    assert await system.stop_workers() == [0]


async def test_a_right_that_is_missing_for_long_is_not_taken_for_silence(
    secured: Secured, redis: RedisServer, tmp_path: Path
) -> None:
    """Once the client no longer sees the topic, `/readyz` still names the right, and no more than
    that partitions wait for it, if the client joins the group again meanwhile."""
    system, names = await live_group(secured, redis, tmp_path)
    system.settings["STREAM_METRICS_KAFKA__METADATA_MAX_AGE_MS"] = "1000"
    await allow(secured, system, rights_in("plain", names))
    await system.start_workers(1)
    [worker] = system.workers
    await all_read(system)
    await wait_until(worker.ready, 60, worker.log_tail)

    user = system.settings["STREAM_METRICS_KAFKA__SASL_USERNAME"]
    await revoke(secured.kafka.bootstrap_servers, user, Grant("Read", "topic", system.topics[0]))
    unseen = f"No partition metadata for topic {system.topics[0]}"
    await wait_until(lambda: unseen in worker.log.read_text(), 60, worker.log_tail)
    seen, until = set[str](), time.monotonic() + 4 * PROBE_SECONDS

    async def watched() -> bool:
        seen.update((await worker.readyz())[1].get("reasons", {}))
        return time.monotonic() > until

    await wait_until(watched, 60, worker.log_tail)
    assert seen - {"assignment"} == {"rights"}
    assert await system.stop_workers() == [0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"SASL_PASSWORD": "another"}, "the user is unknown, or the password is wrong"),
        ({"SASL_USERNAME": "nobody"}, "rejects user 'nobody'"),
        ({"SASL_MECHANISM": "PLAIN", "SASL_PASSWORD": "another"}, "the password is wrong"),
        ({"SSL_CA_FILE": ""}, "the brokers' certificate is not trusted"),
        ({"SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, "Connection"),
    ],
    ids=str,
)
async def test_a_failed_login_is_explained(
    secured: Secured,
    redis: RedisServer,
    tmp_path: Path,
    settings: dict[str, str],
    sentence: str,
) -> None:
    """`check` explains a failed login in its own words, without the password."""
    system, _ = await live_group(secured, redis, tmp_path, conversations=1)
    for name, value in settings.items():
        system.settings[f"STREAM_METRICS_KAFKA__{name}"] = value
    if not settings.get("SSL_CA_FILE", "-"):
        del system.settings["STREAM_METRICS_KAFKA__SSL_CA_FILE"]

    code, text = await said(system, "check")

    assert code == 2
    assert sentence in text
    assert PASSWORD not in text


@pytest.mark.parametrize(
    "mechanism", rest_long(["SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
)
async def test_each_mechanism_logs_in(
    secured: Secured, redis: RedisServer, tmp_path: Path, mechanism: str
) -> None:
    """With each SASL mechanism, and secrets in files, a worker reads everything."""
    system, names = await live_group(secured, redis, tmp_path, conversations=2)
    await allow(secured, system, rights_in("plain", names))
    user = system.settings["STREAM_METRICS_KAFKA__SASL_USERNAME"]
    del system.settings["STREAM_METRICS_KAFKA__SASL_PASSWORD"]
    password, token = tmp_path / "password", tmp_path / "token"
    password.write_text(PASSWORD + "\n")
    token.write_text(unsigned_token(user))
    file = (
        ("SASL_TOKEN_FILE", token)
        if mechanism == "OAUTHBEARER"
        else ("SASL_PASSWORD_FILE", password)
    )
    system.settings |= {
        "STREAM_METRICS_KAFKA__SASL_MECHANISM": mechanism,
        f"STREAM_METRICS_KAFKA__{file[0]}": str(file[1]),
    }

    code, text = await said(system, "check")
    assert code == 0, text
    await system.start_workers(1)
    await system.reach(1.0)
    assert await system.stop_workers() == [0]


async def test_a_certificate_logs_in(redis: RedisServer, tmp_path: Path) -> None:
    """With a client certificate whose key is encrypted, the worker reads everything."""
    need_servers()
    authority = Authority(tmp_path / "ca")
    own = authority.issue("user-0", password=PASSWORD)
    async with Kafka(tmp_path / "kafka", security=Security(authority, mutual=True)) as kafka:
        secured = Secured(kafka, authority, iter(["user-0"]))
        system, names = await live_group(secured, redis, tmp_path, conversations=2)
        await allow(secured, system, rights_in("plain", names))
        for name in ("SASL_USERNAME", "SASL_PASSWORD"):
            del system.settings[f"STREAM_METRICS_KAFKA__{name}"]
        system.settings |= {
            "STREAM_METRICS_KAFKA__SECURITY_PROTOCOL": "SSL",
            "STREAM_METRICS_KAFKA__SSL_CERTIFICATE_FILE": str(own.certificate),
            "STREAM_METRICS_KAFKA__SSL_KEY_FILE": str(own.key),
        }
        code, text = await said(system, "check")
        assert code == 2
        assert "needs the right `kafka.ssl_key_password`" in text

        system.settings["STREAM_METRICS_KAFKA__SSL_KEY_PASSWORD"] = PASSWORD
        code, text = await said(system, "check")
        assert code == 0, text
        await system.start_workers(1)
        await system.reach(1.0)
        assert await system.stop_workers() == [0]


@pytest.mark.parametrize("command", rest_long([*COMMANDS, "forget and the output topic"]))
async def test_commands_need_exactly_the_listed_rights(
    secured: Secured, redis: RedisServer, tmp_path: Path, command: str
) -> None:
    """A command works with the listed rights; with one less it fails and names the resource."""
    command, _, output = command.partition(" and ")
    case = "output" if output else "plain"
    system, names = await live_group(
        secured, redis, tmp_path, case=case, conversations=60, invalid=0.2
    )
    assert {topic for topic, _, _ in system.produced.broken} == set(system.topics)
    await read_by_others(system)
    system.settings["STREAM_METRICS_KAFKA__REQUEST_TIMEOUT_MS"] = "5000"
    rights = renamed(command_grants(command, output=bool(output)), names)
    user = system.settings["STREAM_METRICS_KAFKA__SASL_USERNAME"]
    for lacking in rights:
        others = [right for right in rights if right != lacking]
        await grant(secured.kafka.bootstrap_servers, user, *others)
        code, text = await said(system, *COMMANDS[command])
        assert code != 0, f"{lacking} is not needed: {text}"
        assert "Traceback" not in text
        assert lacking.name in text
        assert "uthoriz" in text or "Kafka denies" in text
        await revoke(secured.kafka.bootstrap_servers, user, *others)

    await allow(secured, system, rights)
    code, text = await said(system, *COMMANDS[command])
    assert code == 0, text


@pytest.mark.parametrize("lacking", rest_long(RIGHTS[BUILD]), ids=str)
async def test_a_worker_of_a_build_names_a_missing_right(
    secured: Secured, redis: RedisServer, tmp_path: Path, lacking: Grant
) -> None:
    """Without one of the rights for builds, the worker of a build fails, and names the right."""
    system, names = await live_group(secured, redis, tmp_path, case="output")
    [wanted] = renamed([lacking], names)
    rights = [*rights_in("output", names), *renamed(RIGHTS[BUILD], names)]
    await allow(secured, system, [right for right in rights if right != wanted])
    await system.start_workers(1)
    await all_read(system)
    system.settings[GOOD_GAIN] = "3"
    building = await begun(system)

    await system.start_workers(1)
    old, new = system.workers
    await new.ended(30)

    assert new.exit_code == 2
    name = wanted.name.replace("*", "2" if wanted.kind == "group" else "2-output-*")
    assert f": {wanted.operation.upper()} {wanted.kind} {name}. Grant it" in new.log_tail()
    code, text = await system.command("build", "--give-up")
    assert code == 0, text
    await building
    assert await old.stop() == 0


@pytest.mark.long
async def test_a_build_needs_exactly_the_listed_rights(
    secured: Secured, redis: RedisServer, tmp_path: Path
) -> None:
    """With the listed rights workers of both generations work, and so does the command, which names
    a topic or transactional ids that it may not use."""
    system, names = await live_group(secured, redis, tmp_path, case="output", conversations=60)
    await allow(secured, system, [*rights_in("output", names), *renamed(RIGHTS[BUILD], names)])
    await system.start_workers(1)
    await all_read(system)
    worker = dict(system.settings)
    system.settings |= login(secured, next(secured.users))
    system.settings[GOOD_GAIN] = worker[GOOD_GAIN] = "3"
    command = dict(system.settings)
    rights = renamed(command_grants("build", output=True), names)
    topics = [right for right in rights if right.kind == "topic"]
    for lacking in topics:
        others = [right for right in rights if right != lacking]
        user = system.settings["STREAM_METRICS_KAFKA__SASL_USERNAME"]
        await allow(secured, system, others)
        code, text = await said(system, "build", "--yes")
        assert code == 2
        assert lacking.name in text
        assert "Traceback" not in text
        await revoke(secured.kafka.bootstrap_servers, user, *others)

    await allow(secured, system, topics)
    building = await begun(system)
    system.settings |= worker
    await system.start_workers(1)
    code, text = await asyncio.wait_for(building, BUILT_SECONDS)
    assert code == 2
    assert f"transactional ids that begin with {system.group}-output-" in " ".join(text.split())

    system.settings |= command
    await allow(secured, system, rights)
    code, text = await said(system, "build", "--yes")
    assert code == 0, text
    old, new = system.workers
    await old.ended(60)
    await wait_until(new.ready, 60, new.log_tail)
    assert await stored(secured.kafka, [names[OUTPUT]])
    assert (old.exit_code, await new.stop()) == (2, 0)


async def test_check_warns_if_it_may_not_read_topic_settings(
    secured: Secured, redis: RedisServer, tmp_path: Path
) -> None:
    """With an internal topic `check` warns unless it may read the configuration of topics."""
    system, names = await live_group(secured, redis, tmp_path, case="repartition", conversations=1)
    await allow(secured, system, rights_in("repartition", names))
    topics = [*system.topics, names[INTERNAL]]
    code, text = await said(system, "check")
    assert (code, "DESCRIBE_CONFIGS topic" in text) == (0, True), text

    await allow(secured, system, [Grant("DescribeConfigs", "topic", topic) for topic in topics])
    _, text = await said(system, "check")
    assert "DESCRIBE_CONFIGS" not in text


async def test_generate_reports_what_kafka_refused(
    secured: Secured, redis: RedisServer, tmp_path: Path
) -> None:
    """A user that may describe the input topics, but not write to them, gets an error."""
    system, _ = await live_group(secured, redis, tmp_path, conversations=1)
    seen = [Grant("Describe", "topic", topic) for topic in system.topics]
    await allow(secured, system, seen)

    code, text = await said(system, *COMMANDS["generate --to-kafka"])

    assert code == 2
    assert "TopicAuthorizationFailedError" in text


async def read_by_others(system: LiveSystem) -> None:
    """Let a worker with all rights read the topics, and stop it."""
    login = {name: value for name, value in system.settings.items() if "__S" in name}
    servers = system.settings.pop("STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS")
    for name in login:
        del system.settings[name]
    await system.start_workers(1)
    await system.reach(1.0)
    assert await system.stop_workers() == [0]
    system.settings |= {**login, "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": servers}


def test_the_guide_lists_the_rights_in_the_code() -> None:
    """The guide lists the rights in the code, in each case."""
    names = names_of(("events", "labels"), "group")
    for case in CASES:
        settings = KafkaSettings(
            topics=("events", "labels"),
            group_id="group",
            output_topic=names[OUTPUT] if case == "output" else None,
            repartition_topic=names[INTERNAL] if case == "repartition" else None,
        )
        listed = {(r.operation.upper(), r.kind, r.name) for r in rights_in(case, names)}
        assert {tuple(right) for right in worker_rights(settings)} == listed
