"""The image, built by the steps of its Dockerfile in a clean folder instead of a container."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.process import ChildProcess, free_port
from deploy.local.servers import RedisServer
from tests.services import image

pytestmark = pytest.mark.service


@dataclass(frozen=True, slots=True)
class Image:
    """A built image: its programs in ``prefix``, and its working directory."""

    prefix: Path
    folder: Path

    def path(self, word: str) -> str:
        """A word of the Dockerfile, with paths mapped to this machine."""
        return word.replace(image.PREFIX, str(self.prefix))

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The environment of the container's process."""
        path = f"{self.prefix / 'bin'}:/usr/bin:/bin"
        return {**image.variables(), "PATH": path, **settings}

    def command(self, words: list[str], settings: Mapping[str, str]) -> list[str]:
        """A command of the image's user, without this environment."""
        variables = [f"{name}={value}" for name, value in self.environment(settings).items()]
        return [*as_user(), "env", "-i", *variables, *(self.path(word) for word in words)]

    def run(self, words: list[str], settings: Mapping[str, str]) -> tuple[int, str]:
        """Run a command as the image's user; returns the exit code and output."""
        done = subprocess.run(
            self.command(words, settings),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout


class Container(ChildProcess):
    """The image's process, ready when its health check passes."""

    name = "container"

    def __init__(self, folder: Path, built: Image, settings: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._image, self._settings = built, settings

    def command(self) -> list[str]:
        """ENTRYPOINT and CMD."""
        start = [*image.words(image.last("ENTRYPOINT")), *image.words(image.last("CMD"))]
        return self._image.command(start, self._settings)

    async def ready(self) -> bool:
        """Whether the group is joined and the state loaded."""
        port = self._settings["STREAM_METRICS_WEB__PORT"]
        check = [*image.words(image.last("HEALTHCHECK")), "ready", port]
        return self._image.run(check, self._settings)[0] == 0


def as_user() -> list[str]:
    """The command that switches from root to the image's user, who cannot write root's files.

    It may read, since this machine's Python may be readable only by root. Other users stay.
    """
    if os.geteuid() != 0:
        return []
    user, _, group = image.last("USER").partition(":")
    reading = "dac_read_search"
    return [
        "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups",
        f"--inh-caps=-all,+{reading}", f"--ambient-caps=-all,+{reading}", "--no-new-privs",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def built() -> Iterator[Image]:
    """The image, readable by every user."""
    folder = Path(tempfile.mkdtemp(prefix="stream-metrics-image-"))
    try:
        folder.chmod(0o755)
        empty = folder / "empty"
        empty.mkdir(mode=0o755)
        prefix = folder / "installed"
        image.build(image.context(folder / "context"), prefix)
        yield Image(prefix, empty)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def settings(kafka: Kafka, redis_server: RedisServer) -> dict[str, str]:
    """The settings of a container, with new topics."""
    name = f"image-{uuid.uuid4().hex[:8]}"
    return {
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAM_METRICS_KAFKA__GROUP_ID": name,
        "STREAM_METRICS_KAFKA__TOPICS": f'["{name}-searches", "{name}-labels"]',
        "STREAM_METRICS_REDIS__URL": redis_server.url,
        "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
        "STREAM_METRICS_WEB__PORT": str(free_port()),
    }


def test_the_image_is_not_root() -> None:
    """Its user is a nonzero number."""
    number, _, group = image.last("USER").partition(":")

    assert int(number) > 0
    assert int(group) > 0


@pytest.mark.long
def test_the_image_has_no_compiler_and_no_tests(built: Image) -> None:
    """It contains only what the worker needs."""
    packages = built.prefix / "lib"
    names = {path.name for path in packages.glob("python3*/site-packages/*")}

    assert "stream_metrics" in names
    assert list(packages.glob("python3*/site-packages/stream_metrics/_engine.*.so"))
    assert list(packages.glob("python3*/site-packages/stream_metrics/core/engine/step.*.so"))
    assert not names & {"pytest", "hypothesis", "setuptools_rust", "pip", "mypy", "tests", "deploy"}


@pytest.mark.long
async def test_the_image_works_with_its_default_command(
    built: Image, settings: dict[str, str], tmp_path: Path
) -> None:
    """Topics are created; the image's command starts a healthy worker, which exits with 0."""
    code, said = built.run(["stream-metrics", "topics", "create", "--partitions", "3"], settings)
    assert (code, said.count("3 partitions, created")) == (0, 4), said
    code, said = built.run(["stream-metrics", "check"], settings)
    assert code == 0, said

    container = Container(tmp_path, built, settings)
    await container.start()
    try:
        check = image.words(image.last("HEALTHCHECK"))
        assert built.run(check, settings) == (0, "")
    finally:
        ended = await container.stop()

    assert ended == 0, container.log_tail()
    code, said = built.run(check, settings)
    assert code == 1
    assert "refused" in said


def test_the_image_has_the_pinned_versions_of_the_tests() -> None:
    """The image installs the versions of constraints.txt."""
    tested = pins(image.REPOSITORY / "constraints.txt")
    for name in ("requirements.txt", "image-requirements.txt", "build-requirements.txt"):
        shipped = pins(image.DOCKER / name)

        assert shipped
        assert shipped.items() <= tested.items()


def test_the_image_reads_traces_in_protobuf() -> None:
    """A bridge in a container reads what a Collector writes by default."""
    assert "opentelemetry-proto" in pins(image.DOCKER / "image-requirements.txt")


def test_the_image_can_judge() -> None:
    """It has what a worker needs, and the extra of the judge."""
    needed = pins(image.DOCKER / "requirements.txt")
    shipped = pins(image.DOCKER / "image-requirements.txt")

    assert needed.items() <= shipped.items()
    assert "openai" in shipped


def pins(path: Path) -> dict[str, str]:
    """Versions by package."""
    lines = [line.split(" ")[0] for line in path.read_text().splitlines() if "==" in line]
    return dict(line.split("==") for line in lines if not line.startswith(("#", "-")))
