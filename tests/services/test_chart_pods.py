"""The containers of the Helm chart, as processes of this machine on real servers."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.helm.check import VALUES, Chart
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import ChildProcess, free_port, import_path
from deploy.local.servers import RedisServer, http_ok
from tests.services.image import REPOSITORY

pytestmark = [pytest.mark.service, pytest.mark.long]

Container = dict[str, Any]


class Pod(ChildProcess):
    """A container's process with its environment, ready when its probe says so."""

    def __init__(self, folder: Path, name: str, container: Container) -> None:
        self.name = name
        super().__init__(folder)
        self._container = container

    def command(self) -> list[str]:
        """The image's program with the container's arguments."""
        return [sys.executable, "-m", "stream_metrics", *self._container["args"]]

    def environment(self) -> Mapping[str, str]:
        """The container's variables; the pod's name stands for what refers to it."""
        given = {one["name"]: one.get("value", self.name) for one in self._container["env"]}
        return {**given, "PYTHONPATH": import_path(REPOSITORY)}

    async def ready(self) -> bool:
        """Whether the readiness probe is answered with 200."""
        port = self._container["ports"][0]["containerPort"]
        path = self._container["readinessProbe"]["httpGet"]["path"]
        return await http_ok(f"http://127.0.0.1:{port}{path}")


@pytest.fixture
def containers(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> dict[str, Container]:
    """The containers of a release with new topics, by name."""
    name = f"chart-{uuid.uuid4().hex[:8]}"
    topics = [f"{name}-searches", f"{name}-labels"]
    settings = {
        "kafka": {
            "bootstrap_servers": kafka.bootstrap_servers, "group_id": name, "topics": topics,
        },
        "redis": {"url": redis_server.url},
        "web": {"port": free_port()},
    }  # fmt: skip
    values = tmp_path / "values.json"
    values.write_text(json.dumps({"settings": settings, "topics": {"partitions": 3}}))
    given = ("--values", str(VALUES["development"]), "--values", str(values))
    chart = Chart.written(tmp_path)
    found = [one["spec"] for one in chart.rendered(*given) if "spec" in one]
    pods = [spec.get("template", {}).get("spec", spec) for spec in found]
    return {one["name"]: one for pod in pods for one in pod.get("containers", [])}


async def test_the_pods_of_a_release_work_together(
    containers: dict[str, Container], tmp_path: Path
) -> None:
    """The Job creates the topics; a worker becomes ready, the pod of `helm test` finds no fault
    beside it, and it ends with 0."""
    assert containers.keys() == {"topics", "worker", "check"}
    job, worker, check = (
        Pod(tmp_path, name, containers[name]) for name in ("topics", "worker", "check")
    )
    job.launch()
    await job.ended(60)
    assert job.exit_code == 0, job.log_tail()
    assert job.log_tail().count("3 partitions, created") == 4

    await worker.start()
    try:
        check.launch()
        await check.ended(60)
        assert check.exit_code == 0, check.log_tail()
    finally:
        ended = await worker.stop()

    assert ended == 0, worker.log_tail()
