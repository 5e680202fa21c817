"""The Dockerfile's instructions, carried out in a folder instead of a container."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DOCKER: Final = REPOSITORY / "deploy" / "docker"
PREFIX: Final = "/opt/stream-metrics"
BUILD_SECONDS: Final = 900


def instructions() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile: its name and its arguments, continued lines joined."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    split = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in split]


def last(name: str) -> str:
    """The last instruction of a name, which is the effective one."""
    return [rest for found, rest in instructions() if found == name][-1]


def words(instruction: str) -> list[str]:
    """The words of an instruction in its JSON form."""
    return [str(word) for word in json.loads(instruction[instruction.index("[") :])]


def variables() -> dict[str, str]:
    """The variables that ENV sets."""
    return dict(re.findall(r"(\w+)=(\S+)", last("ENV")))


def context(folder: Path) -> Path:
    """Copy the build context to a folder, without the files that the ignore file excludes."""
    rules = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    names = [rule[1:] for rule in rules if rule.startswith("!")]
    left_out = {rule.rpartition("/")[2] for rule in rules if "/" in rule and rule[0] != "!"}
    for source in (path for name in names for path in REPOSITORY.glob(name)):
        target = folder / source.relative_to(REPOSITORY)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*left_out))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


def build(source: Path, prefix: Path, wheels: str = "") -> None:
    """Run the step of the build stage with this Python instead of the image's."""
    [step] = [rest for name, rest in instructions() if name == "RUN" and "build.sh" in rest]
    command = step.replace(PREFIX, str(prefix)).replace("$WHEELS", wheels).split()
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    path = [str(Path(sys.base_prefix) / "bin"), os.environ["PATH"], str(cargo)]
    done = subprocess.run(
        command,
        cwd=source,
        env={**bare(), "PATH": os.pathsep.join(path), "HOME": str(Path.home())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith(("--from", ". ")):
            what, where = rest.split()
            shutil.copy2(source / what, where.replace(PREFIX, str(prefix)))


def bare() -> Mapping[str, str]:
    """Only the proxies and package indexes of the environment."""
    kept = re.compile(r"(?i).*_proxy|PIP_.*|CARGO_.*|RUSTUP_.*|SSL_CERT_.*|LANG")
    return {name: value for name, value in os.environ.items() if kept.fullmatch(name)}
