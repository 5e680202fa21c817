"""Processes of ``stream-metrics`` that need not import the program first.

Importing it takes half of the processor time of a short command, and tests run hundreds. A server
of this process imports everything once, and each process that is asked for is forked from it. It is
a process like any other: its own pid, environment, files and end, and a child of this one, which
may kill, stop and await it. What differs is only when modules were imported, so commands that
settings of the interpreter or of the compiled code concern are started anew.

Linux only; elsewhere each process is started anew.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

COMMAND = [sys.executable, "-m", "stream_metrics"]

SET_PARENT_DEATH_SIGNAL, SET_SUBREAPER = 1, 36  # of prctl
AT_IMPORT = ("PYTHON", "STREAM_METRICS_KERNEL", "LD_", "OPENBLAS_", "MALLOC_")
"""The beginnings of variables that count when a process or a module begins."""
WARNINGS = "default::ResourceWarning"
LARGEST_REQUEST = 1 << 20

_lock = threading.Lock()
_server: _Server | None = None


class Forked:
    """A process, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """The exit code, as soon as it has ended."""
        code = self._wait(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None,
    files: tuple[int, int, int],
    *,
    session: bool = False,
) -> Forked | None:
    """Start ``stream-metrics`` with these arguments, the whole environment and standard files.

    None if it has to be started anew.
    """
    if sys.platform != "linux" or _at_import(environment) != _at_import(os.environ):
        return None
    global _server
    with _lock:
        if _server is None or _server.owner != os.getpid():
            _server = _Server()
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
            "session": session,
        }
        return Forked(_server.ask(request, files))


async def run(
    arguments: Sequence[str], environment: Mapping[str, str], typed: str
) -> tuple[int, str, str]:
    """Run ``stream-metrics`` with the whole environment and this on its standard input; the exit
    code, standard output and standard error."""
    pipes = [os.pipe() for _ in range(3)]
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_error, theirs_error) = pipes
    files = (theirs_in, theirs_out, theirs_error)
    try:
        process = start(arguments, environment, None, files) or _anew(arguments, environment, files)
    finally:
        for file in files:
            os.close(file)
    try:
        _, out, error = await asyncio.gather(
            asyncio.to_thread(_write, ours_in, typed.encode()),
            asyncio.to_thread(_read, ours_out),
            asyncio.to_thread(_read, ours_error),
        )
        return await asyncio.to_thread(process.wait), out, error
    finally:
        process.kill()
        process.wait()


def _anew(
    arguments: Sequence[str], environment: Mapping[str, str], files: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = files
    return subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdin=stdin, stdout=stdout, stderr=stderr
    )


def _write(file: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(file, "wb") as pipe:
        pipe.write(data)


def _read(file: int) -> str:
    with open(file, "rb") as pipe:
        return pipe.read().decode()


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(AT_IMPORT) and (name, value) != ("PYTHONWARNINGS", WARNINGS)
    }


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class _Server:
    """The process that others are forked from."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._socket = ours

    def ask(self, request: Mapping[str, object], files: tuple[int, int, int]) -> int:
        """The pid of a new process, which is a child of this one."""
        _prctl(SET_SUBREAPER, 1)
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(files))
            answer = self._socket.recv(100)
        finally:
            _prctl(SET_SUBREAPER, 0)
        if not answer:
            raise RuntimeError("the server of forked processes has ended")
        return int(answer)


def _serve(requests: socket.socket) -> dict[str, object]:
    """Fork a process for each request until the socket is closed; returns in those processes."""
    parent = os.getppid()
    while True:
        message, files, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 3)
        if not message:
            os._exit(0)
        told, telling = os.pipe()
        waiting, adopted = os.pipe()
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            os.close(adopted)
            os.read(waiting, 1)  # ends when the server has closed it: the parent has adopted this
            request = dict(json.loads(message))
            if request["session"]:
                os.setsid()
            _prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.write(telling, str(os.getpid()).encode())
            for file in (told, telling, waiting, requests.fileno(), *files):
                os.close(file)
            requests.detach()
            return request
        os.waitpid(between, 0)
        for file in (telling, waiting, adopted):
            os.close(file)
        requests.send(os.read(told, 20))
        for file in (told, *files):
            os.close(file)


def _become(request: Mapping[str, object]) -> None:
    """Run the command in this process."""
    import runpy
    import time

    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    time.tzset()
    if os.environ.get("PYTHONWARNINGS") == WARNINGS:
        warnings.simplefilter("default", ResourceWarning)
    sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]
    sys.argv = ["", *request["arguments"]]  # type: ignore[misc]
    runpy.run_module("stream_metrics", run_name="__main__", alter_sys=True)


def _import_all() -> None:
    import gc
    import importlib
    import pkgutil

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import stream_metrics

    for module in pkgutil.walk_packages(stream_metrics.__path__, "stream_metrics."):
        if module.name not in ("stream_metrics.__main__", "stream_metrics.spark"):
            importlib.import_module(module.name)
    assert threading.active_count() == 1, "threads do not survive a fork"
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if place != str(Path(__file__).parent)]
    connection = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    _become(_serve(connection))
