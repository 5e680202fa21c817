"""Redis, Prometheus, Alertmanager and a Collector as child processes on free loopback ports."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import aiohttp
from redis.asyncio import Redis
from redis.exceptions import RedisError

from deploy.local.certificates import Authority
from deploy.local.install import (
    ALERTMANAGER,
    AMTOOL,
    PROMETHEUS,
    PROMTOOL,
    REDIS,
    collector,
    program,
)
from deploy.local.process import ChildProcess, ServerFailed, free_port

HTTP_TIMEOUT = aiohttp.ClientTimeout(total=5)
EXPORT_TIMEOUT = aiohttp.ClientTimeout(total=30)


class RedisServer(ChildProcess):
    """A redis-server with an append-only file and without eviction."""

    name = "redis"

    def __init__(
        self,
        folder: Path,
        *,
        fsync: Literal["always", "everysec", "no"] = "always",
        options: Mapping[str, str] | None = None,
        config: Path | None = None,
        authority: Authority | None = None,
        port: int | None = None,
    ) -> None:
        """``config`` is a redis.conf that replaces the default options; ``options`` override both.

        With ``authority`` it listens by TLS too; clients may show a certificate.
        """
        super().__init__(folder)
        self.port = port or free_port()
        self.tls_port = free_port()
        self.socket = folder / "redis.sock"
        keeping = {
            "save": "",
            "appendonly": "yes",
            "appendfsync": fsync,
            "maxmemory-policy": "noeviction",
        }
        self._config = [] if config is None else [str(config.resolve())]
        self._options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "unixsocket": self.socket.name,
            "dir": ".",
            "daemonize": "no",
            **(keeping if config is None else {}),
            **(_tls(authority, self.tls_port) if authority else {}),
            **(options or {}),
        }

    @property
    def url(self) -> str:
        """Its address for TCP."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def tls_url(self) -> str:
        """Its address for TLS."""
        return f"rediss://127.0.0.1:{self.tls_port}/0"

    @property
    def unix_url(self) -> str:
        """Its address for the Unix socket."""
        return f"unix://{self.socket}?db=0"

    def command(self) -> list[str]:
        """``redis-server [redis.conf] --name value …``."""
        arguments = [part for name, value in self._options.items() for part in (f"--{name}", value)]
        return [program(REDIS), *self._config, *arguments]

    async def ready(self) -> bool:
        """Whether it answers PING; it does not while it loads its file."""
        client = Redis.from_url(self.url, password=self._options.get("requirepass"))
        try:
            return bool(await client.ping())
        except (RedisError, OSError):
            return False
        finally:
            await client.aclose()


def _tls(authority: Authority, port: int) -> dict[str, str]:
    own = authority.issue("redis")
    return {
        "tls-port": str(port),
        "tls-cert-file": str(own.certificate),
        "tls-key-file": str(own.key),
        "tls-ca-cert-file": str(authority.certificate),
        "tls-auth-clients": "optional",
    }


class _HttpServer(ChildProcess):
    """A server of the Prometheus family: ready when ``/-/ready`` says so."""

    def __init__(self, folder: Path, port: int | None) -> None:
        super().__init__(folder)
        self.port = port or free_port()

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Its page."""
        return f"http://{self.address}"

    async def ready(self) -> bool:
        """Whether it serves."""
        return await http_ok(f"{self.url}/-/ready")

    async def get(self, path: str, **parameters: str) -> Any:
        """The JSON answer to a GET."""
        async with (
            aiohttp.ClientSession(timeout=HTTP_TIMEOUT) as session,
            session.get(f"{self.url}{path}", params=parameters) as answer,
        ):
            if answer.status != 200:
                raise ServerFailed(f"{path} {parameters}: {answer.status} {await answer.text()}")
            return await answer.json()


class Prometheus(_HttpServer):
    """A Prometheus that scrapes ``jobs`` (job name → ``host:port`` each) and evaluates rules.

    ``config`` is the text of a prometheus.yml in place of ``jobs`` and the rest. ``flags`` are
    further ones of its command line.
    """

    name = "prometheus"

    def __init__(
        self,
        folder: Path,
        jobs: Mapping[str, Sequence[str]] | None = None,
        *,
        config: str | None = None,
        rule_files: Sequence[Path] = (),
        alertmanagers: Sequence[str] = (),
        interval: str = "250ms",
        flags: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        super().__init__(folder, port)
        self._flags = flags
        ours = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "rule_files": [str(path.resolve()) for path in rule_files],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [*alertmanagers]}]}]},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [*targets]}]}
                for job, targets in (jobs or {}).items()
            ],
        }
        self._config = json.dumps(ours, indent=2) if config is None else config  # JSON is YAML

    async def prepare(self) -> None:
        """Write the configuration."""
        (self.folder / "prometheus.yml").write_text(self._config)

    def command(self) -> list[str]:
        """``prometheus`` with all data in the folder."""
        return [
            program(PROMETHEUS),
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address={self.address}",
            *self._flags,
        ]

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query: ``metric`` and ``value`` each."""
        answer = await self.get("/api/v1/query", query=expression)
        return list(answer["data"]["result"])

    async def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        answer = await self.get("/api/v1/alerts")
        alerts = answer["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


class Alertmanager(_HttpServer):
    """An Alertmanager that immediately posts alerts to a webhook.

    ``config`` is the text of an alertmanager.yml that replaces this configuration.
    """

    name = "alertmanager"

    def __init__(
        self,
        folder: Path,
        webhook_url: str | None = None,
        *,
        config: str | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(folder, port)
        hooks = [{"url": webhook_url, "send_resolved": True}] if webhook_url else []
        ours = {
            "route": {
                "receiver": "local",
                "group_by": ["alertname"],
                "group_wait": "100ms",
                "group_interval": "1s",
                "repeat_interval": "1h",
            },
            "receivers": [{"name": "local", "webhook_configs": hooks}],
        }
        self._config = json.dumps(ours, indent=2) if config is None else config  # JSON is YAML

    async def prepare(self) -> None:
        """Write the configuration."""
        (self.folder / "alertmanager.yml").write_text(self._config)

    def command(self) -> list[str]:
        """``alertmanager`` alone, without peers."""
        return [
            program(ALERTMANAGER),
            "--config.file=alertmanager.yml",
            "--storage.path=data",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
        ]


class Collector(ChildProcess):
    """An OpenTelemetry Collector that writes the traces it receives to a topic of Kafka.

    Ready when it accepts OTLP. ``changes`` are further configurations, in YAML, that are merged
    into ``config`` in this order, such as ``exporters::kafka::traces::encoding: otlp_json``.
    """

    name = "otelcol"

    def __init__(
        self,
        folder: Path,
        config: Path,
        bootstrap_servers: str,
        *,
        topic: str,
        changes: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        super().__init__(folder)
        self.port = port or free_port()
        self._config = config.resolve()
        self._changes = changes
        self._environment = {
            "KAFKA_BROKERS": bootstrap_servers,
            "TRACES_TOPIC": topic,
            "OTLP_HOST": "127.0.0.1",
            "OTLP_HTTP_PORT": str(self.port),
            "OTLP_GRPC_PORT": str(free_port()),
            "COLLECTOR_METRICS_PORT": str(free_port()),
        }

    @property
    def url(self) -> str:
        """Where it accepts OTLP over HTTP: the value of ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """``otelcol --config collector.yaml …``."""
        configurations = [f"file:{self._config}", *(f"yaml:{change}" for change in self._changes)]
        return [collector(), *(f"--config={one}" for one in configurations)]

    def environment(self) -> Mapping[str, str]:
        """The variables that the configuration uses."""
        return self._environment

    async def ready(self) -> bool:
        """Whether it accepts an export of no spans."""
        return await self.export(b"{}", "application/json") == 200

    async def export(self, payload: bytes, content_type: str = "application/x-protobuf") -> int:
        """Send one export over HTTP; the status of the answer, 0 if there was none."""
        try:
            async with (
                aiohttp.ClientSession(timeout=EXPORT_TIMEOUT) as session,
                session.post(
                    f"{self.url}/v1/traces",
                    data=io.BytesIO(payload),
                    headers={"Content-Type": content_type},
                ) as answer,
            ):
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0


def promtool() -> str:
    """The path of Prometheus' own tool, which tests rules."""
    return program(PROMTOOL)


def amtool() -> str:
    """The path of Alertmanager's own tool, which tests routes."""
    return program(AMTOOL)


async def http_ok(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        async with (
            aiohttp.ClientSession(timeout=HTTP_TIMEOUT) as session,
            session.get(url) as answer,
        ):
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
