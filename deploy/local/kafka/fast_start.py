"""Prepares what lets tests start many brokers quickly. Standard library only.

A broker needs half of the processor time to start if the JVM maps its classes from an archive, and
none to format its folder if the metadata of a formatted folder is copied. Both are made once per
user, by one run of Kafka itself, and brokers work without them.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import time
from pathlib import Path

from deploy.local.cache import cached, made
from deploy.local.kafka.jars import fetch_jars, kafka_version
from deploy.local.process import free_port

JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # starts faster; a benchmark passes options of its own
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
)
START_SECONDS = 120.0
CLASSES = "classes.jsa"
METADATA = "bootstrap.checkpoint"
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=data
"""


def fast_start(java: str) -> Path:
    """The folder with both for this JVM, which may not exist."""
    binary = Path(java).resolve()
    state = f"{binary} {binary.stat().st_mtime_ns}".encode() + Path(__file__).read_bytes()
    return cached(f"kafka-{kafka_version()}-start-{hashlib.sha256(state).hexdigest()[:12]}")


def prepare(java: str) -> Path:
    """The same folder, which is made if it does not exist."""
    return made(fast_start(java), lambda folder: _record(java, folder))


def _record(java: str, folder: Path) -> None:
    folder.mkdir()
    broker, controller = free_port(), free_port()
    (folder / "server.properties").write_text(
        PROPERTIES.format(broker=broker, controller=controller)
    )
    program = [java, *JVM_OPTIONS, "-cp", f"{fetch_jars()}/*"]
    done = subprocess.run(
        [*program, "kafka.tools.StorageTool", "format", "--cluster-id=c3RhcnQgcXVpY2tseSE",
         "-c", "server.properties"],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"Kafka could not format a folder:\n{done.stdout[-2000:]}")
    shutil.copy(folder / "data" / METADATA, folder / METADATA)
    # Other JVMs than HotSpot do not know the option, and go without an archive.
    archive = ("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={folder / CLASSES}")
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [java, *archive, *program[1:], "kafka.Kafka", "server.properties"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _wait_until_it_listens(running, broker, folder / "log")
    finally:
        running.terminate()
        running.wait()
    shutil.rmtree(folder / "data")


def _wait_until_it_listens(running: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if running.poll() is not None or time.monotonic() > ends:
            raise RuntimeError(f"Kafka did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)
