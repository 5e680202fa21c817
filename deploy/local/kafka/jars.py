"""Fetches Apache Kafka's jars with Maven, once per user. Standard library only."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
ATTEMPTS = 3


def kafka_version() -> str:
    """The version that the pom names."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", POM.read_text())
    if found is None:
        raise RuntimeError(f"{POM} names no kafka.version")
    return found[1]


def jars_folder() -> Path:
    """Where the jars lie, or will lie."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "stream-metrics" / f"kafka-{kafka_version()}"


def have_jars() -> bool:
    """Whether they were fetched; the folder appears whole or not at all."""
    return jars_folder().is_dir()


def fetch_jars() -> Path:
    """The folder of the jars, which are fetched if they are not there yet."""
    folder = jars_folder()
    if have_jars():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f"{folder.name}.lock"):
        if not have_jars():
            _download(folder)
    return folder


def _download(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError("mvn is missing; `python -m deploy.local doctor` says how to install it")
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        unfinished = Path(place) / "jars"
        command = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
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
                unfinished.rename(folder)
                return
            said = done.stdout
    raise RuntimeError(f"Maven could not fetch Kafka {kafka_version()}:\n{said[-2000:]}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
