"""Child processes with a folder, a log and a readiness check, which never outlive their parent."""

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
from typing import Any, Protocol, Self, TypeVar

from deploy.local.waiting import wait_until

T = TypeVar("T")

LOG_TAIL_BYTES = 4_000
# Below the ephemeral ports, so that a stopped server's port stays free. So is the port 10,000
# above, where a node of a Redis Cluster listens to the others.
PORTS = range(11_000, 21_000)

# The parent-death signal is sent when the *thread* that started the child ends, so all are started
# from this one.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
_alive: weakref.WeakSet[ChildProcess] = weakref.WeakSet()
_given_ports: set[int] = set()
# Each port in use has a locked byte in this file until the process ends, so that other processes do
# not take the port while its server is stopped.
_register = Path(tempfile.gettempdir()) / f"stream-metrics-ports-{os.getuid()}"
_register_fd: int | None = None


class Process(Protocol):
    """What is used of ``subprocess.Popen``."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""

    def wait(self) -> int:
        """The exit code, as soon as it has ended."""


class ServerFailed(RuntimeError):
    """A server did not start or ended by itself; the message has the end of its log."""


def free_port(preferred: int | None = None) -> int:
    """A free port on the loopback interface: ``preferred`` if it is free.

    No other process of this user gets the same port while this process lives.
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
    """Reserve a port; raises ``BlockingIOError`` if another process has reserved it."""
    global _register_fd
    if _register_fd is None:
        _register_fd = os.open(_register, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(_register_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)


def import_path(root: Path) -> str:
    """``PYTHONPATH`` of a child that imports from ``root``.

    This process's ``PYTHONPATH`` comes first: it may have an installed wheel, which the child then
    uses as well.
    """
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([given, str(root)] if given else [str(root)])


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in another thread's event loop, also while a loop is running here."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


class Served(ABC):
    """An async context manager that starts and stops a server."""

    @abstractmethod
    async def start(self) -> Self:
        """Start; returns once it serves."""

    @abstractmethod
    async def stop(self) -> object:
        """Stop; returns once it has ended."""

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
    final_codes: frozenset[int] = frozenset()
    """Exit codes after which another start would end in the same way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / f"{self.name}.log"
        self._process: Process | None = None

    def command(self) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Environment variables in addition to those of this process."""
        return {}

    async def prepare(self) -> None:
        """Called before each start."""

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
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; ``None`` while it runs or before its start."""
        return None if self._process is None else self._process.poll()

    def log_tail(self) -> str:
        """The end of its log."""
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

        On a busy machine, threads continue for a while after the signal.
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

    def _spawn(self) -> Process:
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
    """A command prefix that makes Linux kill the child when its parent dies."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


@atexit.register
def _kill_all() -> None:
    for process in list(_alive):
        process.kill9()
