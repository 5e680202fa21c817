"""A child process with a folder, a log and a ready check, that never outlives its parent."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from deploy.local.waiting import wait_until

T = TypeVar("T")

LOG_TAIL_BYTES = 4_000
# Below the ports that systems hand out to clients, so that a stopped server's port stays free.
# So is the one 10,000 above, where a node of a Redis Cluster listens to the others.
PORTS = range(11_000, 21_000)

# The death signal comes when the *thread* that started the child ends: all start from this one.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
_alive: weakref.WeakSet[ChildProcess] = weakref.WeakSet()
_given_ports: set[int] = set()
# A byte of it is locked for each port given, until the process ends: others take other ports, also
# while the server that listened there is stopped for a while.
_register = Path(tempfile.gettempdir()) / f"stream-metrics-ports-{os.getuid()}"
_register_fd: int | None = None


class ServerFailed(RuntimeError):
    """A server did not start or ended by itself; the message has the end of its log."""


def free_port(preferred: int | None = None) -> int:
    """A port on the loopback interface that nobody listens on: ``preferred`` if it is free.

    Each port is given once while this process lives, whichever of the user's processes ask.
    """
    others = random.SystemRandom().sample(PORTS, k=len(PORTS))
    for port in others if preferred is None else [preferred, *others]:
        if port in _given_ports:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            _reserve(port)
            _given_ports.add(port)
            return port
    raise ServerFailed("no free port")


def _reserve(port: int) -> None:
    """Keep other processes from giving the port; ``BlockingIOError`` if one has given it."""
    global _register_fd
    if _register_fd is None:
        _register_fd = os.open(_register, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(_register_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)


def import_path(root: Path) -> str:
    """``PYTHONPATH`` of a child that imports what lies in ``root``.

    What this process was given comes first: it may be an installed wheel, which the child then runs
    as well.
    """
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([given, str(root)] if given else [str(root)])


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, also where another loop is running."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


class Served(ABC):
    """What is started on the way into a block, and stopped on the way out of it."""

    @abstractmethod
    async def start(self) -> Self:
        """Returns once it serves."""

    @abstractmethod
    async def stop(self) -> object:
        """Returns once it has ended."""

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


class ChildProcess(Served):
    """One process; subclasses say which command it is and when it is ready.

    ``start`` returns when the process answers, ``stop`` when it is gone. ``kill9``, ``pause`` and
    ``resume`` send a signal to the whole process group. The folder outlives restarts.
    """

    name = "process"
    start_seconds = 60.0
    stop_seconds = 20.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Variables beside those of this process."""
        return {}

    async def prepare(self) -> None:
        """What is to be done before each start."""

    async def ready(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The process id."""
        if self._process is None:
            raise ServerFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there (a paused one is)."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended: negative for a signal; ``None`` while it runs or before its start."""
        return None if self._process is None else self._process.poll()

    def log_tail(self) -> str:
        """The end of what it wrote."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace")

    async def start(self, deadline_seconds: float | None = None) -> Self:
        """Start, and return when it answers."""
        if self.running:
            raise ServerFailed(f"{self.name} is already running")
        self.folder.mkdir(parents=True, exist_ok=True)
        await self.prepare()
        self.launch()
        try:
            await wait_until(
                self._answers,
                deadline_seconds or self.start_seconds,
                lambda: f"{self.name} does not answer:\n{self.log_tail()}",
            )
        except BaseException:
            self.kill9()
            raise
        return self

    def launch(self) -> None:
        """Start without waiting for an answer."""
        self._process = _spawner.submit(self._spawn).result()
        _alive.add(self)

    async def stop(self, deadline_seconds: float | None = None) -> int | None:
        """SIGTERM, and SIGKILL after the deadline; the exit code."""
        if self.running:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            with suppress(AssertionError):
                await self.ended(deadline_seconds or self.stop_seconds)
        self.kill9()
        return self.exit_code

    async def ended(self, deadline_seconds: float) -> None:
        """Return when the process is gone."""
        await wait_until(
            lambda: not self.running, deadline_seconds, f"{self.name} {self.pid} is still running"
        )

    def kill9(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._process is None:
            return
        if self.running:
            self._signal(signal.SIGKILL)
        self._process.wait()
        _alive.discard(self)

    def pause(self) -> None:
        """SIGSTOP, until every thread has stopped: its connections stay open, nothing answers.

        On a busy machine threads go on for a while after the signal was sent.
        """
        self._signal(signal.SIGSTOP)
        if self.running:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    async def restart(self, deadline_seconds: float | None = None) -> Self:
        """Stop and start with the same folder and ports."""
        await self.stop()
        return await self.start(deadline_seconds)

    async def _answers(self) -> bool:
        if not self.running:
            raise ServerFailed(
                f"{self.name} ended with exit code {self.exit_code}:\n{self.log_tail()}"
            )
        return await self.ready()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*_die_with_parent(), *self.command()],
                cwd=self.folder,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _die_with_parent() -> list[str]:
    """A prefix that asks Linux to kill the child when its parent dies, however that dies."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


@atexit.register
def _kill_all() -> None:
    for process in list(_alive):
        process.kill9()
