"""The whole live system as local processes: ``make stack``. Ctrl-C stops it.

A process that ends by itself, or by a signal, is started again with its data and its port.

Its traffic is generated, or that of an agent whose traces a Collector writes to Kafka.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from aiokafka.errors import TopicAlreadyExistsError
from rich.console import Console

from deploy.local.install import Missing
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import ChildProcess, ServerFailed, free_port
from deploy.local.servers import Alertmanager, Collector, Prometheus, RedisServer, http_ok
from deploy.local.stack_folder import Folder, digest_key
from deploy.local.stack_pages import Row, alert_addresses, table
from deploy.local.supervisor import Supervisor
from deploy.local.traces import (
    COLLECTOR_CONFIG,
    EVERY_TURN,
    JUDGED,
    TRACES_TOPIC,
    TRACES_TOPIC_CONFIG,
    agent_command,
    agent_environment,
)
from deploy.local.waiting import DeadlinePassed
from stream_metrics.core.alerts.alert import Links
from stream_metrics.core.alerts.files import rule_files

Traffic = Literal["generated", "otel"]

TOPICS = ("search-iterations", "relevance-labels")
PARTITIONS = 4
RETRIEVAL = '["ndcg@10", "recall@10", "mrr", "judged@10"]'
# As in docker-compose.yml; another port is taken where one of these is in use.
PORTS = {
    "Kafka": 29_092,
    "Redis": 6_380,
    "Prometheus": 9_090,
    "Alertmanager": 9_093,
    "worker 1": 9_464,
    "worker 2": 9_465,
    "bridge": 9_474,
    "collector": 4_318,
}
# Servers that only traced traffic needs: by the names of their ports, and by those of their
# processes, with what they are called beside their address.
TRACED = ("collector", "bridge")
SOURCES = {
    "Collector": ("Collector, for OTLP over HTTP", "collector"),
    "bridge": ("bridge", "bridge"),
}
WORKERS = 2
ENVIRONMENT_FILE = Path("out/stack.env")
DEPLOY = Path(__file__).resolve().parents[1]
RULES = DEPLOY / "prometheus"
TARGETS = "/etc/prometheus-targets"
# Properties with addresses and paths of the container, which differ here.
PLACES = frozenset(
    {"advertised.listeners", "controller.quorum.voters", "listeners", "log.dirs", "node.id"}
)


def worker_command() -> list[str]:
    """The command of a worker, whose settings come from the environment."""
    return [_stream_metrics(), "worker"]


def generator_command() -> list[str]:
    """The command that generates live traffic into the input topics."""
    return [_stream_metrics(), "generate", "--to-kafka", "--forever"]


def bridge_command() -> list[str]:
    """The command of the bridge, whose settings come from the environment."""
    return [_stream_metrics(), "bridge"]


class Command(ChildProcess):
    """A command of this project: ready immediately, or when a page answers 200."""

    final_codes: frozenset[int] = frozenset({2})  # invalid settings, topics or state

    def __init__(
        self,
        folder: Path,
        command: list[str],
        environment: Mapping[str, str],
        ready_url: str | None = None,
    ) -> None:
        self.name = folder.name
        super().__init__(folder)
        self._command = command
        self._environment = environment
        self._ready_url = ready_url

    def command(self) -> list[str]:
        """See ``ChildProcess``."""
        return self._command

    def environment(self) -> Mapping[str, str]:
        """See ``ChildProcess``."""
        return self._environment

    async def ready(self) -> bool:
        """Whether the page answers, if there is one."""
        return self._ready_url is None or await http_ok(self._ready_url)


class Generator(Command):
    """The command that generates traffic, which also ends with exit code 2 while Kafka is away."""

    final_codes: frozenset[int] = frozenset()


def main(traffic: Traffic = "generated", *, folder: Path | None = None, keep: bool = False) -> int:
    """Run until Ctrl-C or SIGTERM; the exit code.

    Data and logs are in a temporary folder, which is deleted unless ``keep``, or in ``folder``,
    which is kept, and where the stack goes on with the data of an earlier one.
    """
    console = Console(stderr=True)
    code = 1
    where = Folder(folder, keep=keep)
    try:
        with where.locked():
            code = asyncio.run(_run(where.path, traffic, console))
    except (Missing, ServerFailed, DeadlinePassed) as error:
        console.print(f"[red]error:[/red] {type(error).__name__}")
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
    finally:
        kept = where.leave(code)
        if kept:
            console.print(kept, markup=False, highlight=False, soft_wrap=True)
    return code


async def _run(folder: Path, traffic: Traffic, console: Console) -> int:
    """Run until Ctrl-C or SIGTERM, and return 0; raises the error of what cannot run."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    async with Supervisor(say) as supervisor:
        work = asyncio.create_task(_work(folder, traffic, supervisor, console))
        halted = asyncio.create_task(stopped.wait())
        first: set[asyncio.Future[Any]] = {work, halted, supervisor.failed}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, halted):
            task.cancel()
        outcome, _ = await asyncio.gather(work, halted, return_exceptions=True)
        if not stopped.is_set():
            if supervisor.failed.done():
                supervisor.failed.result()
            if isinstance(outcome, BaseExceptionGroup):
                raise outcome.exceptions[0] from outcome
            if isinstance(outcome, BaseException):
                raise outcome
        say("stopping")
    return 0


async def _work(folder: Path, traffic: Traffic, supervisor: Supervisor, console: Console) -> None:
    """Start everything, print where it is, and stay until cancelled."""
    unused = TRACED if traffic == "generated" else ()
    ports = {
        name: _port(name, preferred, console)
        for name, preferred in PORTS.items()
        if name not in unused
    }
    properties = kafka_properties(DEPLOY / "kafka" / "server.properties")
    kafka = Kafka(folder, properties=properties, port=ports["Kafka"])
    config = DEPLOY / "redis" / "redis.conf"
    redis = RedisServer(folder / "redis", config=config, port=ports["Redis"])
    settings = {
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAM_METRICS_REDIS__URL": redis.url,
        "STREAM_METRICS_STATE__DIGEST_KEY": digest_key(folder),
        "STREAM_METRICS_METRICS__RETRIEVAL": RETRIEVAL,
        **({} if traffic == "generated" else {**EVERY_TURN, **JUDGED}),
    }
    addresses = [f"localhost:{ports[f'worker {number}']}" for number in range(1, WORKERS + 1)]
    workers = [_worker(folder, number, place, settings) for number, place in enumerate(addresses)]
    alertmanager = Alertmanager(
        folder / "alertmanager",
        config=(DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8"),
        port=ports["Alertmanager"],
    )
    targets = folder / "targets"
    bridges = [f"localhost:{ports['bridge']}"] if "bridge" in ports else []
    write_targets(targets, workers=addresses, bridges=bridges, alertmanagers=[alertmanager.address])
    rules = folder / "rules"
    write_rules(rules, f"http://{addresses[0]}/")
    prometheus = Prometheus(
        folder / "prometheus", config=prometheus_config(targets, rules), port=ports["Prometheus"]
    )
    sources: dict[str, ChildProcess] = (
        {"generated traffic": Generator(folder / "generator", generator_command(), settings)}
        if traffic == "generated"
        else traced(folder, kafka.bootstrap_servers, ports, settings)
    )
    console.print("starting; Ctrl-C stops everything")
    [broker] = kafka.brokers
    servers = {
        "Kafka": broker,
        "Redis": redis,
        "Alertmanager": alertmanager,
        "Prometheus": prometheus,
    }
    # What starts last stops first: traffic first, Kafka and Redis last.
    async with asyncio.TaskGroup() as group:
        for name, server in servers.items():
            group.create_task(supervisor.start(name, server))
    topics = TOPICS if traffic == "generated" else (*TOPICS, TRACES_TOPIC)
    await _create_topics(kafka, topics, console)
    ours = {f"worker {number}": child for number, child in enumerate(workers, start=1)}
    for name, child in {**ours, **sources}.items():
        await supervisor.start(name, child)
    rows: list[Row] = []
    for (name, child), address in zip(ours.items(), addresses, strict=True):
        rows += [
            (f"{name}, its page", f"http://{address}/", child),
            ("  metrics", f"http://{address}/metrics", None),
            ("  readiness", f"http://{address}/readyz", None),
        ]
    alerts, alerting = await alert_addresses(prometheus.url, alertmanager.url)
    rows += [
        ("Prometheus", prometheus.url, prometheus),
        (*alerts, None),
        (*alerting, alertmanager),
        ("Kafka", kafka.bootstrap_servers, broker),
        ("Redis", redis.url, redis),
    ]
    for name, child in sources.items():
        label, port = SOURCES.get(name, (name, ""))
        rows.append((label, f"localhost:{ports[port]}" if port else "", child))
    console.print(table(rows))
    console.print(f"logs: {folder}", soft_wrap=True)
    with environment_file(ENVIRONMENT_FILE, settings):
        console.print(_next_lines(traffic), markup=False, highlight=False, soft_wrap=True)
        await asyncio.Event().wait()


def _port(name: str, preferred: int, console: Console) -> int:
    """The port for a server; says so if it is not the preferred one."""
    port = free_port(preferred)
    if port != preferred:
        console.print(f"port {preferred} is in use: {name} listens on {port}", highlight=False)
    return port


@contextmanager
def environment_file(file: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """A file for a shell to read, with the settings of the workers, for as long as they run.

    Only its owner can read it, since it has the digest key. At the end it is removed, unless
    another stack has written it since.
    """
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
    text = "".join(["# The settings of the `make stack` that is running.\n", *lines])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(text)
    try:
        yield
    finally:
        if file.exists() and file.read_text() == text:
            file.unlink()


def kafka_properties(file: Path) -> dict[str, str]:
    """The properties of a file, without addresses and paths."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    pairs = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: value for name, value in pairs.items() if name not in PLACES}


def prometheus_config(targets: Path, rules: Path) -> str:
    """The containers' prometheus.yml, with its rules and its targets in these folders."""
    text = (RULES / "prometheus.yml").read_text(encoding="utf-8")
    return text.replace(TARGETS, str(targets)).replace("'*.rules.yml'", f"'{rules}/*.rules.yml'")


def write_rules(folder: Path, page: str) -> None:
    """Write the rules with links to a worker's page, because the stack has no Grafana."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in rule_files(Links(dashboard=page, variable="?{label}=")).items():
        (folder / name).write_text(text, encoding="utf-8")


def write_targets(folder: Path, **groups: list[str]) -> None:
    """Write the files with Prometheus' targets."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, targets in groups.items():
        (folder / f"{name}.yml").write_text(json.dumps([{"targets": targets}]))  # JSON is YAML


def _worker(folder: Path, number: int, address: str, settings: Mapping[str, str]) -> Command:
    port = address.rpartition(":")[2]
    return Command(
        folder / f"worker-{number + 1}",
        worker_command(),
        {**settings, "STREAM_METRICS_WEB__PORT": port},
        f"http://{address}/readyz",
    )


def traced(
    folder: Path, bootstrap_servers: str, ports: Mapping[str, int], settings: Mapping[str, str]
) -> dict[str, ChildProcess]:
    """A Collector, the bridge and an agent, in the order in which they start."""
    collector = Collector(
        folder / "collector",
        COLLECTOR_CONFIG,
        bootstrap_servers,
        topic=TRACES_TOPIC,
        port=ports["collector"],
    )
    bridge = Command(
        folder / "bridge",
        bridge_command(),
        {**settings, "STREAM_METRICS_BRIDGE__PORT": str(ports["bridge"])},
        f"http://localhost:{ports['bridge']}/readyz",
    )
    agent = Command(folder / "agent", agent_command(), agent_environment(collector.url))
    return {"Collector": collector, "bridge": bridge, "agent": agent}


async def _create_topics(kafka: Kafka, topics: Sequence[str], console: Console) -> None:
    """Create the topics that an earlier stack in the same folder has not created."""
    made = []
    for topic in topics:
        config = TRACES_TOPIC_CONFIG if topic == TRACES_TOPIC else None
        for name, its_config in ((topic, config), (f"{topic}.dlq", None)):
            with suppress(TopicAlreadyExistsError):
                made.append(await kafka.create_topic(name, PARTITIONS, its_config))
    shown = [topic for topic in topics if topic in made]
    if shown:
        console.print(f"  created: topics {', '.join(shown)}", highlight=False)


def _next_lines(traffic: Traffic) -> str:
    """A text about what to expect, and how to use the commands with the stack."""
    command = os.path.relpath(_stream_metrics())
    expect = {
        "generated": "Traffic is generated. Some of its records are invalid on purpose, so the "
        "pages show\ndead letters.",
        "otel": "An agent answers a question each second. A turn is counted some ten seconds after "
        "it has\nended, when its trace is complete.",
    }
    return (
        f"\n{expect[traffic]} Alerts that compare an agent with its last day need three hours "
        "of traffic.\n"
        "\nTo use the commands with this system, type in another terminal:\n\n"
        f"  . {ENVIRONMENT_FILE}\n  {command} check\n"
    )


def _stream_metrics() -> str:
    """The command of the environment that runs this."""
    command = Path(sys.executable).with_name("stream-metrics")
    if not os.access(command, os.X_OK):
        raise Missing("stream-metrics is not installed beside this Python; run: make setup")
    return str(command)
