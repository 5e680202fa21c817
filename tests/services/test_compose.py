"""docker-compose.yml, parsed by Compose's library; its programs are tested elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from deploy.local.install import GO, program
from deploy.local.stack import PORTS
from deploy.local.traces import AGENT, COLLECTOR_CONFIG, JUDGED, agent_environment
from stream_metrics.cli import app
from stream_metrics.live.settings import BridgeSettings
from tests.services.image import REPOSITORY

pytestmark = pytest.mark.service

READER: Final = Path(__file__).parent / "compose_reader"
OURS: Final = "stream-metrics:local"
BUILT: Final = {OURS, "stream-metrics-agent:local"}
PROFILES: Final = ("traffic", "otel", "judge")
ONCE: Final = {"topics"}  # exits when it is done
UNWATCHED: Final = {*ONCE, "traffic", "agent", "collector"}  # nothing depends on their health
SECRET: Final = re.compile(r"PASSWORD|SECRET|TOKEN|DIGEST_KEY|CREDENTIAL", re.IGNORECASE)

Service = dict[str, Any]


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    """The services of all profiles, as Compose reads them."""
    done = subprocess.run(
        [program(GO), "run", ".", str(REPOSITORY / "docker-compose.yml"), *PROFILES],
        cwd=READER,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Service] = json.loads(done.stdout)["services"]
    return found


def test_every_part_of_the_system_is_a_service(services: dict[str, Service]) -> None:
    """Compose accepts the file, and it has every part of the system."""
    assert set(services) == {
        "kafka", "topics", "redis", "worker-1", "worker-2", "traffic",
        "prometheus", "alertmanager", "grafana",
        "collector", "bridge", "agent", "judge",
    }  # fmt: skip


def test_images_are_pinned(services: dict[str, Service]) -> None:
    """Each third-party image has a version of three numbers."""
    foreign = {service["image"] for service in services.values()} - BUILT

    assert len(foreign) == 6
    assert all(re.fullmatch(r"[\w/.-]+:v?\d+\.\d+\.\d+(-\w+)?", name) for name in foreign), foreign


def test_every_lasting_service_is_monitored_and_limited(services: dict[str, Service]) -> None:
    """It has a health check, CPU and memory limits, and a restart policy."""
    for name, service in services.items():
        limits = service["deploy"]["resources"]["limits"]
        assert float(limits["cpus"]) > 0, name
        assert int(limits["memory"]) >= 128 << 20, name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["restart"] == ("no" if name in ONCE else "unless-stopped"), name
        check = service.get("healthcheck", {"disable": True})
        assert bool(check.get("disable")) == (name in UNWATCHED), name


def test_redis_has_memory_for_a_rewrite(services: dict[str, Service]) -> None:
    """Its memory limit exceeds twice maxmemory, which a fork without shared pages needs."""
    conf = (REPOSITORY / "deploy/redis/redis.conf").read_text(encoding="utf-8")
    found = re.search(r"^maxmemory (\d+)mb$", conf, re.M)
    assert found is not None
    limit = int(services["redis"]["deploy"]["resources"]["limits"]["memory"])

    assert limit >= 3 * int(found[1]) << 20


def test_services_start_after_their_dependencies_are_healthy(services: dict[str, Service]) -> None:
    """Dependencies must be healthy or completed, and workers depend on everything they need."""
    for service in services.values():
        for other, wait in service.get("depends_on", {}).items():
            ends = other in ONCE
            wanted = "service_completed_successfully" if ends else "service_healthy"
            assert wait["condition"] == wanted
    assert set(services["worker-1"]["depends_on"]) == {"topics", "redis"}
    assert set(services["bridge"]["depends_on"]) == {"topics"}
    assert set(services["judge"]["depends_on"]) == {"topics"}
    assert set(services["collector"]["depends_on"]) == {"topics"}
    assert set(services["topics"]["depends_on"]) == {"kafka"}
    assert set(services["grafana"]["depends_on"]) == {"prometheus"}


def test_each_worker_has_its_own_name(services: dict[str, Service]) -> None:
    """It is the name of its service; all other settings are shared."""
    named = "STREAM_METRICS_KAFKA__GROUP_INSTANCE_ID"
    shared = services["topics"]["environment"]

    assert len(shared) > 1
    for name in ("worker-1", "worker-2"):
        assert services[name]["environment"] == {**shared, named: name}
    for name in services.keys() - {"worker-1", "worker-2"}:
        assert named not in (services[name].get("environment") or {})


@pytest.mark.parametrize("key", ["", "0123456789abcdef"])
def test_commands_on_the_host_have_the_workers_settings(
    services: dict[str, Service], tmp_path: Path, key: str
) -> None:
    """``deploy/compose/host.env`` has each of them, with published addresses and the digest key of
    ``.env``, which Compose also reads."""
    if key:
        (tmp_path / ".env").write_text(f"STREAM_METRICS_STATE__DIGEST_KEY={key}\n")
    done = subprocess.run(
        ["sh", "-c", f". {REPOSITORY / 'deploy/compose/host.env'} && env -0"],
        cwd=tmp_path, env={"PATH": os.defpath}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    pairs = (pair.partition("=") for pair in done.stdout.split("\0"))
    ours = {name: value for name, _, value in pairs if name.startswith("STREAM_METRICS_")}
    workers = dict(services["topics"]["environment"])
    if key:
        workers["STREAM_METRICS_STATE__DIGEST_KEY"] = key
    places = {
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": f"localhost:{published(services['kafka'])}",
        "STREAM_METRICS_REDIS__URL": f"redis://localhost:{published(services['redis'])}/0",
    }
    properties = (REPOSITORY / "deploy/kafka/server.properties").read_text(encoding="utf-8")

    assert ours == {**workers, **places}
    assert f"EXTERNAL://{places['STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS']}\n" in properties


def test_the_stack_without_containers_has_the_same_ports(services: dict[str, Service]) -> None:
    """``make stack`` prefers the ports of docker-compose.yml, of what it runs as well."""
    in_compose = {
        name.replace("-", " "): int(published(service))
        for name, service in services.items()
        if service.get("ports") and name not in ("grafana", "judge")
    }

    assert {name.lower(): port for name, port in PORTS.items()} == in_compose


def published(service: Service) -> str:
    """The published port of a service; the last one, if there are several."""
    return str(service["ports"][-1]["published"])


def test_the_file_contains_no_secret(services: dict[str, Service]) -> None:
    """No variable for a secret has a value."""
    for service in services.values():
        for name, value in (service.get("environment") or {}).items():
            assert not (SECRET.search(name) and value), name


def test_files_with_secrets_stay_out_of_the_repository() -> None:
    """Git ignores the files into which docs/guides/compose.md says to put secrets."""
    ignored = (REPOSITORY / ".gitignore").read_text(encoding="utf-8").splitlines()

    assert {".env", "/deploy/alertmanager/secrets/"} <= set(ignored)


def test_the_collector_writes_to_the_bridges_topic(
    services: dict[str, Service],
) -> None:
    """Its default topic is the bridge's, and ``topics`` creates it."""
    assert "--traces" in services["topics"]["command"]
    assert "TRACES_TOPIC" not in services["collector"]["environment"]
    assert f"TRACES_TOPIC:-{BridgeSettings().topic}}}" in COLLECTOR_CONFIG.read_text("utf-8")


def test_the_agents_of_compose_and_stack_have_the_same_settings(
    services: dict[str, Service],
) -> None:
    """Its SDK and the bridge have the same variables, and its image has the files of its folder."""
    told = agent_environment("http://collector:4318")
    dockerfile = (AGENT.parent / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (.+) \S+$", dockerfile, re.M)

    assert services["agent"]["environment"] == dict(told)
    assert JUDGED.items() <= services["bridge"]["environment"].items()
    assert all((AGENT.parent / name).is_file() for names in copied for name in names.split())
    assert re.search(r"^FROM python:\d+\.\d+\.\d+-", dockerfile)


def test_ports_are_open_only_on_this_machine(services: dict[str, Service]) -> None:
    """Every published port is bound to 127.0.0.1, and none is published twice."""
    ports = [port for service in services.values() for port in service.get("ports", [])]
    published = [port["published"] for port in ports]

    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert len(published) == len(set(published)) == 11


def test_files_that_are_mounted_exist(services: dict[str, Service]) -> None:
    """Each is in the repository, and is mounted read-only."""
    mounts = [m for s in services.values() for m in s.get("volumes", []) if m["type"] == "bind"]

    assert mounts
    for mount in mounts:
        assert Path(mount["source"]).exists(), mount["source"]
        assert mount["read_only"], mount["source"]


def test_commands_of_our_image_exist(services: dict[str, Service]) -> None:
    """Each is an existing command of stream-metrics with existing options."""
    commands = {tuple(s["command"]) for s in services.values() if s["image"] == OURS}

    assert len(commands) == 5
    for command in commands:
        outcome = CliRunner().invoke(app, [*command, "--help"])
        assert outcome.exit_code == 0, outcome.output
        known = outcome.output
        assert all(word in known for word in command if word.startswith("--"))
