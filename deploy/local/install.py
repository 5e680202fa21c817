"""Finds and installs the programs that the servers need.

Standard library only, so that it runs before this project is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.charts import build_chart_tools, chart_tools_path
from deploy.local.collector import build_collector, collector_path
from deploy.local.kafka.fast_start import prepare
from deploy.local.kafka.jars import fetch_jars, have_jars, jars_folder

JAVA_AT_LEAST = 17
GO_AT_LEAST = (1, 23)


@dataclass(frozen=True)
class Need:
    """A program, its other names, and the Debian packages that have it, the best first.

    ``where`` finds things that are not programs, by name.
    """

    program: str
    packages: tuple[str, ...]
    purpose: str
    other_names: tuple[str, ...] = ()
    fits: Callable[[str], bool] = lambda path: True
    where: Callable[[str], str | None] = shutil.which

    def find(self) -> str | None:
        """The path of the program; ``None`` if it is missing or unsuitable."""
        for name in (self.program, *self.other_names):
            path = self.where(name)
            if path is not None and self.fits(path):
                return path
        return None


def java_version(path: str) -> int:
    """The major version of a java; 0 if it does not say."""
    done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else 0


def go_version(path: str) -> tuple[int, int]:
    """The version of a go; zeros if it does not say."""
    done = subprocess.run([path, "version"], capture_output=True, text=True, check=False)
    found = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def header(name: str) -> str | None:
    """The path of a header file of this Python; ``None`` if it is missing."""
    path = os.path.join(sysconfig.get_path("include"), name)
    return path if os.path.exists(path) else None


REDIS = Need("redis-server", ("redis-server",), "state")
PROMETHEUS = Need("prometheus", ("prometheus",), "scrapes the workers and evaluates the rules")
PROMTOOL = Need("promtool", ("prometheus",), "tests the rules")
ALERTMANAGER = Need(
    "prometheus-alertmanager", ("prometheus-alertmanager",), "delivers alerts", ("alertmanager",)
)
AMTOOL = Need("amtool", ("prometheus-alertmanager",), "tests who hears of which alert")
JAVA = Need(
    "java",
    ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless"),
    f"runs Kafka, version {JAVA_AT_LEAST} or later",
    fits=lambda path: java_version(path) >= JAVA_AT_LEAST,
)
MAVEN = Need("mvn", ("maven",), "fetches Kafka")
OPENSSL = Need("openssl", ("openssl",), "makes certificates")
CHROMIUM = Need("chromium", ("chromium",), "shows the page in tests", ("chromium-browser",))
FAKETIME = Need("faketime", ("faketime",), "gives a server a wrong clock in the fault campaign")
# Debian 12 has two: cargo-web is the newer, and needs no git clone of the registry's index.
CARGO = Need("cargo", ("cargo-web", "cargo"), "builds the compiled kernel")
CC = Need("cc", ("gcc",), "compiles modules", ("gcc", "clang"))
HEADERS = Need(
    "Python.h",
    (f"python{sys.version_info[0]}.{sys.version_info[1]}-dev", "python3-dev"),
    "what compiled modules are made with",
    where=header,
)
COMPILERS = (CARGO, CC, HEADERS)

# Compose's own library, which reads docker-compose.yml in a test, is in Go, too, and so is helm.
GO = Need(
    "go",
    ("golang-1.25-go", "golang-1.24-go", "golang-1.23-go", "golang-go"),
    f"builds the Collector, version {'.'.join(map(str, GO_AT_LEAST))} or later",
    (
        "/usr/local/go/bin/go",
        *(f"/usr/lib/go-1.{minor}/bin/go" for minor in (25, 24, 23)),
    ),
    fits=lambda path: go_version(path) >= GO_AT_LEAST,
)

SERVERS = (REDIS, PROMETHEUS, PROMTOOL, ALERTMANAGER, AMTOOL, JAVA, MAVEN, OPENSSL)
TRACED = (*SERVERS, GO)
TESTS = (*TRACED, CHROMIUM)


class Missing(RuntimeError):
    """A program is not on this machine; the message names the command that installs it."""


def program(need: Need) -> str:
    """The path of a program; raises ``Missing``."""
    path = need.find()
    if path is None:
        raise Missing(f"{need.program} is missing ({need.purpose}); install it: {advice([need])}")
    return path


def library(need: Need) -> str:
    """The path of the shared library that a program, which must be there, preloads."""
    done = subprocess.run(
        [program(need), "-f", "+0", "printenv", "LD_PRELOAD"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def chromium() -> str:
    """The path of the browser that tests look at the page with."""
    return program(CHROMIUM)


def collector() -> str:
    """The path of the OpenTelemetry Collector, which is built if it does not exist."""
    path = collector_path()
    return str(path if path.exists() else build_collector(program(GO)))


def chart_tools() -> Path:
    """The folder with helm and what tests charts, which is made if it does not exist."""
    path = chart_tools_path()
    return path if path.exists() else build_chart_tools(program(GO))


def missing(needs: Sequence[Need]) -> list[Need]:
    """Those that are not on this machine."""
    return [need for need in needs if need.find() is None]


def advice(needs: Sequence[Need]) -> str:
    """The command that installs these."""
    if shutil.which("apt-get") is None:
        return "with your package manager: " + ", ".join(need.program for need in needs)
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    return shlex.join([*sudo, *_apt_command(needs)])


def install(
    needs: Sequence[Need] = SERVERS,
    *,
    traces: bool = False,
    charts: bool = False,
    fast_start: bool = False,
) -> int:
    """Install missing programs; returns the exit code, 1 if this user may not.

    ``traces`` also builds the OpenTelemetry Collector, ``charts`` helm and what tests charts;
    ``fast_start`` prepares what lets many brokers start quickly.
    """
    absent = missing(needs)
    if absent and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        names = ", ".join(need.program for need in absent)
        print(f"missing: {names}\ninstall with:\n  {advice(absent)}", file=sys.stderr)
        return 1
    if absent:
        _apt(["apt-get", "-qq", "update"])
        _apt(_apt_command(absent))
        if still := missing(needs):
            print("still missing: " + ", ".join(n.program for n in still), file=sys.stderr)
            return 1
    try:
        if JAVA in needs:
            fetch_jars()
        if fast_start:
            prepare(program(JAVA))
        if traces and not collector_path().exists():
            print("building the OpenTelemetry Collector (some minutes the first time)")
            collector()
        if charts and not chart_tools_path().exists():
            print("building helm, helm-unittest and kubeconform (some minutes the first time)")
            chart_tools()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def doctor(needs: Sequence[Need] = TESTS) -> int:
    """Print which programs are installed; returns the exit code, 1 if a server is missing."""
    for need in needs:
        print(f"{need.program:24} {need.find() or 'missing':36} {need.purpose}")
    jars = str(jars_folder()) if have_jars() else "not fetched yet"
    print(f"{'Kafka':24} {jars}")
    built = collector_path()
    print(f"{'OpenTelemetry Collector':24} {built if built.exists() else 'not built yet'}")
    tools = chart_tools_path()
    print(f"{'helm':24} {tools if tools.exists() else 'not built yet'}")
    if absent := missing(needs):
        print(f"\ninstall with:\n  {advice(absent)}")
    return 1 if missing([need for need in needs if need in SERVERS]) else 0


def _apt_command(needs: Sequence[Need]) -> list[str]:
    packages = sorted({_available(need.packages) for need in needs})
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages]


def _available(packages: Sequence[str]) -> str:
    """The first package that this system's package lists have."""
    for package in packages if len(packages) > 1 else ():
        command = ["apt-cache", "show", package]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return package
    return packages[0]


def _apt(command: list[str]) -> None:
    print("+ " + shlex.join(command), file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ["-o", "DPkg::Lock::Timeout=300"]
    done = subprocess.run(
        [command[0], *options, *command[1:]],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        raise SystemExit(f"failed with exit code {done.returncode}: {shlex.join(command)}")
