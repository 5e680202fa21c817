"""Fetches Apache Kafka's jars with Maven, once per user. Standard library only."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from deploy.local.cache import cached, made

POM = Path(__file__).with_name("pom.xml")
ATTEMPTS = 3


def kafka_version() -> str:
    """The version that the pom names."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", POM.read_text())
    if found is None:
        raise RuntimeError(f"{POM} names no kafka.version")
    return found[1]


def jars_folder() -> Path:
    """The folder of the jars, which may not exist yet."""
    return cached(f"kafka-{kafka_version()}")


def have_jars() -> bool:
    """Whether the jars were downloaded."""
    return jars_folder().is_dir()


def fetch_jars() -> Path:
    """The folder of the jars, which are downloaded if it does not exist."""
    return made(jars_folder(), _download)


def _download(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError("mvn is missing; `python -m deploy.local doctor` says how to install it")
    command = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    said = ""
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        said = done.stdout
    raise RuntimeError(f"Maven could not fetch Kafka {kafka_version()}:\n{said[-2000:]}")
