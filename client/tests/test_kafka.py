"""The Kafka sinks by each client, with a real broker whose address is in KAFKA_BROKERS."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.partitioner import murmur2
from stream_metrics_client import Recorder

from deploy.local.certificates import Authority
from deploy.local.kafka.cluster import Kafka
from deploy.local.kafka.security import Grant, Security, grant
from deploy.local.process import free_port
from deploy.local.waiting import wait_until

CLIENTS = ["confluent", "aiokafka", "kafka-python"]
PARTITIONS = 8


async def create(brokers: str, *topics: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    finally:
        await admin.close()


async def read(brokers: str, topic: str) -> list[Any]:
    places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers)
    await consumer.start()
    found: list[Any] = []
    try:
        consumer.assign(places)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += records
    finally:
        await consumer.stop()
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_places_keys_by_murmur2(client: str) -> None:
    brokers = os.environ["KAFKA_BROKERS"]
    searches, labels = (f"{client}-{kind}-{secrets.token_hex(4)}" for kind in ("s", "l"))
    asyncio.run(create(brokers, searches, labels))
    with Recorder(f"kafka://{brokers}/{searches},{labels}?client={client}") as recorder:
        for n in range(300):
            turn = recorder.turn(f"conversation-{n}")
            turn.label({turn.iteration().search("q", ["T"]).result_ids[0]: 3})
        assert recorder.flush(60)
        assert (recorder.sent, recorder.failed, recorder.dropped) == (600, 0, 0)

    for topic, kind in ((searches, "search_iteration"), (labels, "relevance_labels")):
        records = asyncio.run(read(brokers, topic))
        assert len(records) == 300
        for record in records:
            event = json.loads(record.value)
            assert (event["type"], event["conversation_id"].encode()) == (kind, record.key)
            assert record.partition == (murmur2(record.key) & 0x7FFFFFFF) % PARTITIONS


@pytest.mark.parametrize("client", CLIENTS)
def test_an_event_that_is_too_large_fails_alone(client: str) -> None:
    brokers = os.environ["KAFKA_BROKERS"]
    topic = f"{client}-large-{secrets.token_hex(4)}"
    asyncio.run(create(brokers, topic))
    with Recorder(f"kafka://{brokers}/{topic}?client={client}") as recorder:
        turn = recorder.turn("c")
        for text in ("small", "x" * 3_000_000, "small"):
            turn.completed(text)
        assert recorder.flush(60)
        assert (recorder.sent, recorder.failed) == (2, 1), recorder.last_error


@pytest.mark.parametrize("client", CLIENTS)
def test_a_program_that_ends_at_once_loses_nothing(client: str) -> None:
    brokers = os.environ["KAFKA_BROKERS"].replace("127.0.0.1", "localhost")
    topic = f"{client}-end-{secrets.token_hex(4)}"
    asyncio.run(create(brokers, topic))
    script = (
        "import sys\n"
        "from stream_metrics_client import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "for n in range(100): recorder.forget(f'c-{n}')\n"
    )
    url = f"kafka://{brokers}/{topic}?client={client}"
    done = subprocess.run(
        [sys.executable, "-c", script, url], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(asyncio.run(read(brokers, topic))) == 100


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_is_missing_keeps_no_other_events_back(client: str) -> None:
    brokers = os.environ["KAFKA_BROKERS"]
    searches = f"{client}-only-{secrets.token_hex(4)}"
    asyncio.run(create(brokers, searches))
    url = f"kafka://{brokers}/{searches},not a topic?client={client}"
    recorder = Recorder(url)
    for n in range(20):
        recorder.label("c", 1, {"r": 3})
        recorder.forget(f"c-{n}")
    deadline = time.monotonic() + 100
    while recorder.sent < 20 and time.monotonic() < deadline:
        recorder.flush(0.1)
    assert (recorder.sent, recorder.pending) == (20, 20), recorder.last_error
    assert "not a topic" in str(recorder.last_error)
    assert not recorder.close(0)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broker_that_is_away_blocks_no_client(client: str) -> None:
    recorder = Recorder(f"kafka://127.0.0.1:1?client={client}", max_events=100)
    begun = time.monotonic()
    for _ in range(1_000):
        recorder.forget("c")
    assert time.monotonic() - begun < 1
    assert recorder.dropped == 900
    assert not recorder.close(1)
    assert (recorder.sent, recorder.dropped) == (0, 1_000)
    assert time.monotonic() - begun < 5


# --- what the last error says ---------------------------------------------------------------------


def flood(log: pytest.LogCaptureFixture) -> list[str]:
    """All warnings after the first, which is that of the recorder."""
    warnings = [one for one in log.records if one.levelno >= logging.WARNING]
    return [f"{one.name}: {one.getMessage()}" for one in warnings[1:]]


def wait_for_error(recorder: Recorder, seconds: float = 5, expected: str | None = None) -> str:
    """The last error within seconds: the first one, or the ``expected`` one if it comes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if recorder.last_error is not None and expected in (None, recorder.last_error):
            break
        recorder.flush(0.02)
    assert recorder.last_error is not None, f"no error within {seconds} s"
    return recorder.last_error


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_does_not_exist_is_named(
    client: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Within seconds, with what to do; once it is created, the events arrive."""
    brokers, topic = os.environ["KAFKA_BROKERS"], f"{client}-late-{secrets.token_hex(4)}"
    recorder = Recorder(f"kafka://{brokers}/{topic}?client={client}")
    recorder.forget("c")
    assert wait_for_error(recorder) == (
        f"the topic '{topic}' does not exist; create it, or name another one in the sink's URL"
    )
    assert not recorder.flush(3)
    assert flood(caplog) == []

    asyncio.run(create(brokers, topic))
    assert recorder.close(60), recorder.last_error
    assert (recorder.sent, recorder.last_error) == (1, None)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_missing_topic_of_labels_keeps_the_pace_of_searches(client: str) -> None:
    """Thousands of searches arrive within seconds, although as many labels wait."""
    brokers, topic = os.environ["KAFKA_BROKERS"], f"{client}-pace-{secrets.token_hex(4)}"
    asyncio.run(create(brokers, topic))
    recorder = Recorder(f"kafka://{brokers}/{topic},{topic}-none?client={client}")
    for n in range(3_000):
        recorder.forget(f"c-{n}")
        recorder.label(f"c-{n}", 1, {"r": 3})
    deadline = time.monotonic() + 25
    while recorder.sent < 3_000 and time.monotonic() < deadline:
        recorder.flush(0.1)
    assert (recorder.sent, recorder.pending) == (3_000, 3_000), recorder.last_error
    assert not recorder.close(0)


def test_an_outage_is_named_and_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For each client: before the broker starts, and when it is killed later, the last error says
    within seconds what refuses connections; when it is back, all events arrive and none is left."""
    asyncio.run(outage(tmp_path, caplog))


async def outage(folder: Path, log: pytest.LogCaptureFixture) -> None:
    kafka = Kafka(folder, port=free_port())
    address = kafka.bootstrap_servers
    refused = f"nothing answers at {address} (Connection refused)"
    recorders = [Recorder(f"kafka://{address}/{client}?client={client}") for client in CLIENTS]

    async def record(kind: str, error: str | None, seconds: float) -> None:
        for recorder in recorders:
            recorder.forget(kind)

        def told() -> bool:
            errors = {recorder.last_error for recorder in recorders}
            waiting = {recorder.pending for recorder in recorders}
            return errors == {error} and waiting == {0 if error is None else 1}

        await wait_until(told, seconds, lambda: str([one.last_error for one in recorders]))

    await record("before", refused, 5)
    await kafka.start()
    try:
        await create(address, *CLIENTS)

        def delivered() -> bool:
            return all((one.pending, one.last_error) == (0, None) for one in recorders)

        await wait_until(delivered, 60, lambda: str([one.last_error for one in recorders]))
        await record("after", None, 20)
        kafka.kill9()
        await record("during", refused, 6)
        await kafka.start()
        await wait_until(delivered, 60, lambda: str([one.last_error for one in recorders]))
    finally:
        await kafka.stop()
    assert all(recorder.close(10) and recorder.sent == 3 for recorder in recorders)
    warnings = [one.getMessage() for one in log.records if one.levelno >= logging.WARNING]
    about = [text for text in warnings if address in text]
    assert len(about) == len(CLIENTS), "once for each recorder within the minute"
    assert all(text.startswith("Events to ") for text in warnings)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_is_no_kafka_is_named(client: str, caplog: pytest.LogCaptureFixture) -> None:
    """A port that accepts connections and never answers is told from one that refuses them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        recorder = Recorder(f"kafka://{address}?client={client}")
        recorder.forget("c")
        error = wait_for_error(recorder)
        assert error.startswith(f"{address} accepts connections, but "), error
        assert "and the protocol and the login in kafka_options" in error
        begun = time.monotonic()
        assert not recorder.close(1)
        assert time.monotonic() - begun < 3
        assert (recorder.last_error or "").startswith(f"{address} accepts connections"), error
    assert len(flood(caplog)) <= 1, "the recorder says it when it is closed, too"


@pytest.mark.parametrize(
    ("client", "logger"), [("aiokafka", "aiokafka"), ("kafka-python", "kafka")]
)
def test_what_the_agents_own_client_logs_is_shown(
    client: str, logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what a client logs for the recorder is hidden."""
    recorder = Recorder(f"kafka://127.0.0.1:1?client={client}")
    recorder.forget("c")
    wait_for_error(recorder)
    logging.getLogger(logger).warning("the agent's own")
    assert caplog.messages.count("the agent's own") == 1
    assert not recorder.close(0)


def test_what_a_client_logs_is_shown_at_the_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    """Who sets the client's loggers to the debug level sees also what is hidden otherwise."""
    caplog.set_level(logging.DEBUG, "aiokafka")
    recorder = Recorder("kafka://127.0.0.1:1?client=aiokafka")
    recorder.forget("c")
    wait_for_error(recorder)
    assert not recorder.close(0)
    errors = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert errors[0].name == "aiokafka"


def test_an_advertised_address_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    """For each client: brokers tell clients an address at which nothing listens, as when they run
    in containers, and the last error has that address."""
    asyncio.run(misdirection(tmp_path))


async def misdirection(folder: Path) -> None:
    door, nowhere = f"127.0.0.1:{free_port()}", "127.0.0.1:1"
    kafka = await Kafka(folder, outside=[(door, nowhere)]).start()
    try:
        await create(kafka.bootstrap_servers, "topic")
        for client in CLIENTS:
            recorder = Recorder(f"kafka://{door}/topic?client={client}")
            recorder.forget("c")
            expected = f"nothing answers at {nowhere} (Connection refused)"
            # Until a client has told what brokers there are, an error has its words alone.
            assert await asyncio.to_thread(wait_for_error, recorder, 15, expected) == expected
            assert not recorder.close(0)
    finally:
        await kafka.stop()


USERS = {"guest": "right"}


@asynccontextmanager
async def secured(folder: Path) -> AsyncIterator[tuple[Kafka, Authority]]:
    authority = Authority(folder / "ca")
    kafka = await Kafka(folder, security=Security(authority, USERS)).start()
    try:
        yield kafka, authority
    finally:
        await kafka.stop()


def login(client: str, authority: Authority, user: str, password: str) -> dict[str, Any]:
    """The options of a client that logs in over TLS."""
    if client == "confluent":
        return {
            "security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": password,
        }  # fmt: skip
    return {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256",
        "ssl_context": ssl.create_default_context(cafile=authority.certificate),
        "sasl_plain_username": user, "sasl_plain_password": password,
    }  # fmt: skip


def test_a_missing_right_or_a_wrong_login_is_named(tmp_path: Path) -> None:
    """For each client: a user without the right to write, a wrong password, and a client without
    TLS each give their reason within seconds; once the right is granted, the events arrive."""
    asyncio.run(refusals(tmp_path))


async def refusals(folder: Path) -> None:
    async with secured(folder) as (kafka, authority):
        seen, hidden = "seen", "hidden"
        await create(kafka.bootstrap_servers, seen, hidden)
        await grant(kafka.bootstrap_servers, "guest", Grant("Describe", "topic", seen))
        place = f"kafka://{kafka.secured_servers}"

        async def told(recorder: Recorder, right: Callable[[str], bool]) -> None:
            recorder.forget("c")

            def says() -> bool:
                return right(str(recorder.last_error))

            await wait_until(says, 8, lambda: str(recorder.last_error))

        waiting = []
        for client in CLIENTS:
            for topic in (seen, hidden):
                options = login(client, authority, "guest", "right")
                recorder = Recorder(f"{place}/{topic}?client={client}", kafka_options=options)
                expected = f"no right to write to the topic '{topic}'; grant it to the agent's user"
                await told(recorder, expected.__eq__)
                waiting.append(recorder)

            wrong = login(client, authority, "guest", "wrong")
            for options in (wrong, {}):
                recorder = Recorder(f"{place}/{seen}?client={client}", kafka_options=options)
                await told(recorder, lambda error: "cannot use Kafka there" in error)
                if options and client != "kafka-python":  # it does not tell
                    assert "invalid credentials" in str(recorder.last_error)
                assert not recorder.close(0)

        rights = [Grant("Write", "topic", topic) for topic in (seen, hidden)]
        await grant(kafka.bootstrap_servers, "guest", *rights)
        for recorder in waiting:
            assert recorder.close(30), recorder.last_error
            assert (recorder.sent, recorder.last_error) == (1, None)
