"""Apache Kafka in KRaft mode, one broker or several, each also a controller."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import KafkaError, for_code

from deploy.local.install import JAVA, program
from deploy.local.kafka.fast_start import CLASSES, JVM_OPTIONS, METADATA, fast_start
from deploy.local.kafka.jars import fetch_jars
from deploy.local.kafka.security import Security
from deploy.local.process import ChildProcess, Served, ServerFailed, free_port
from deploy.local.waiting import wait_until

LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"

# Small and fast, for tests with few partitions. Retention is unlimited, because the records of
# tests are years old and would be deleted half a minute after the broker starts.
PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "log.retention.hours": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.index.size.max.bytes": "1048576",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1000",
}


class KafkaBroker(ChildProcess):
    """One node, which keeps its properties and ports across restarts."""

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str],
        node: int,
        jvm: Sequence[str],
        address: str,
        format_arguments: Sequence[str] = (),
    ) -> None:
        self.name = f"kafka-{node}"
        super().__init__(folder)
        self.node = node
        self.address = address
        self._format_arguments = format_arguments
        self._cluster_id = properties["cluster.id"]
        self._properties = {key: value for key, value in properties.items() if key != "cluster.id"}
        self._java = [*jvm, LOG_LEVEL]

    async def prepare(self) -> None:
        """Write the properties, and format the data folder the first time."""
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        if not (self.folder / "data" / "meta.properties").exists():
            await asyncio.to_thread(self._format)

    def command(self) -> list[str]:
        """``java kafka.Kafka server.properties``."""
        return [*self._program(), "kafka.Kafka", "server.properties"]

    async def ready(self) -> bool:
        """Whether an admin client finds this node through this node."""
        if not await _listens(self.address):
            return False
        try:
            async with admin(self.address) as client:
                found = await client.describe_cluster()
        except (KafkaError, OSError, TimeoutError):
            return False
        return self.node in {broker["node_id"] for broker in found["brokers"]}

    def _format(self) -> None:
        metadata = self._fast_start() / METADATA
        if metadata.exists() and not self._format_arguments:
            data = self.folder / "data"
            data.mkdir(exist_ok=True)
            shutil.copy(metadata, data / METADATA)
            (data / "meta.properties").write_text(
                f"version=1\ncluster.id={self._cluster_id}\nnode.id={self.node}\n"
                f"directory.id={make_cluster_id()}\n"
            )
            return
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={self._cluster_id}"]
        done = subprocess.run(
            [*self._program(), *tool, "-c", "server.properties", *self._format_arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServerFailed(f"{self.name} could not format its folder:\n{done.stdout}")

    def _program(self) -> list[str]:
        classes = self._fast_start() / CLASSES
        archive = [f"-XX:SharedArchiveFile={classes}"] if classes.exists() else []
        return [program(JAVA), *self._java, *archive, "-cp", f"{fetch_jars()}/*"]

    @staticmethod
    def _fast_start() -> Path:
        return fast_start(program(JAVA))


class Kafka(Served):
    """A cluster; signals go to all of its brokers, ``brokers[i]`` has each of them."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = JVM_OPTIONS,
        outside: Sequence[tuple[str, str]] = (),
        security: Security | None = None,
        port: int | None = None,
    ) -> None:
        """``outside`` has, for each broker, a second address to listen on, and the one that
        clients who come by it are told to use: that of a proxy in front of it. With ``security``
        clients who come by it (``secured_servers``) must say who they are. ``port`` is the first
        broker's."""
        self.replication = min(3, brokers)
        ports = [port or free_port(), *(free_port() for _ in range(brokers - 1))]
        addresses = [f"127.0.0.1:{number}" for number in ports]
        controllers = [f"127.0.0.1:{free_port()}" for _ in range(brokers)]
        if security is not None and not outside:
            outside = [(place, place) for place in (f"127.0.0.1:{free_port()}" for _ in addresses)]
        self.secured_servers = ",".join(told for _, told in outside)
        common = {
            **PROPERTIES,
            "cluster.id": make_cluster_id(),
            "controller.quorum.voters": ",".join(
                f"{node}@{address}" for node, address in enumerate(controllers, start=1)
            ),
            **_replication(self.replication),
            **(security.properties() if security else {}),
        }
        protocol = security.protocol if security else "PLAINTEXT"
        self.brokers = [
            KafkaBroker(
                folder / f"kafka-{node}",
                {
                    **common,
                    "node.id": str(node),
                    "log.dirs": "data",
                    "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
                    "advertised.listeners": f"PLAINTEXT://{address}",
                    **_outside(common, address, controller, outside[node - 1 : node], protocol),
                    **(properties or {}),
                },
                node,
                jvm,
                address,
                security.format_arguments() if security else (),
            )
            for node, (address, controller) in enumerate(
                zip(addresses, controllers, strict=True), start=1
            )
        ]

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, comma separated."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def running(self) -> bool:
        """Whether any broker runs."""
        return any(broker.running for broker in self.brokers)

    async def start(self, deadline_seconds: float | None = None) -> Self:
        """Start all brokers together; returns when each answers."""
        outcomes = await asyncio.gather(
            *(broker.start(deadline_seconds) for broker in self.brokers), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self.kill9()
                raise outcome
        return self

    async def stop(self, deadline_seconds: float | None = None) -> None:
        """SIGTERM to all, SIGKILL to those still running after the deadline."""
        await asyncio.gather(*(broker.stop(deadline_seconds) for broker in self.brokers))

    def kill9(self) -> None:
        """SIGKILL to all; returns when they are gone."""
        for broker in self.brokers:
            broker.kill9()

    def pause(self) -> None:
        """SIGSTOP to all."""
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        """SIGCONT to all."""
        for broker in self.brokers:
            broker.resume()

    async def restart(self, deadline_seconds: float | None = None) -> Self:
        """Stop and start with the same data and ports."""
        await self.stop()
        return await self.start(deadline_seconds)

    async def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name once every partition has a leader."""
        topic = NewTopic(name, partitions, self.replication, topic_configs=dict(config or {}))
        async with admin(self.bootstrap_servers) as client:
            answer = await client.create_topics([topic])
            _check_topics(answer.topic_errors)
            await _wait_for_leaders(client, name, partitions)
        return name

    async def add_partitions(self, name: str, partitions: int) -> None:
        """Raise a topic to that number of partitions, and return once each of them has a leader.

        Brokers answer the request before they show clients the new partitions: on a busy machine, 6
        of 60 topics still had the former number right after it.
        """
        async with admin(self.bootstrap_servers) as client:
            answer = await client.create_partitions({name: NewPartitions(partitions)})
            _check_topics(answer.topic_errors)
            await _wait_for_leaders(client, name, partitions)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and return when it is no longer listed."""
        async with admin(self.bootstrap_servers) as client:
            answer = await client.delete_topics([name])
            _check_topics(answer.topic_error_codes)

            async def gone() -> bool:
                return name not in await client.list_topics()

            await wait_until(gone, 30, f"topic {name} still exists")


def make_cluster_id() -> str:
    """A random id that does not begin with ``-``, which Kafka's tool would parse as an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


@asynccontextmanager
async def admin(bootstrap_servers: str) -> AsyncIterator[Any]:
    """An admin client."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers, request_timeout_ms=10_000)
    try:
        await client.start()
        yield client
    finally:
        await client.close()


async def _wait_for_leaders(client: AIOKafkaAdminClient, name: str, partitions: int) -> None:
    async def led() -> bool:
        [found] = await client.describe_topics([name])
        leaders = [partition["leader"] for partition in found["partitions"]]
        return len(leaders) == partitions and min(leaders) >= 0

    await wait_until(led, 30, f"topic {name} has partitions without a leader")


def _check_topics(outcomes: Sequence[Sequence[Any]]) -> None:
    for name, code, *message in outcomes:
        if code:
            raise for_code(code)(f"topic {name}: {message}")


def _replication(copies: int) -> dict[str, str]:
    enough = str(max(1, copies - 1))
    return {
        "default.replication.factor": str(copies),
        "min.insync.replicas": enough,
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": enough,
    }


def _outside(
    common: Mapping[str, str],
    address: str,
    controller: str,
    doors: Sequence[tuple[str, str]],
    protocol: str,
) -> dict[str, str]:
    """The properties of one broker's second listener, if it has one."""
    if not doors:
        return {}
    [(listens, told)] = doors
    protocols = common["listener.security.protocol.map"]
    return {
        "listener.security.protocol.map": f"{protocols},OUTSIDE:{protocol}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller},OUTSIDE://{listens}",
        "advertised.listeners": f"PLAINTEXT://{address},OUTSIDE://{told}",
    }


async def _listens(address: str) -> bool:
    host, port = address.split(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True
