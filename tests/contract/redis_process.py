"""Real redis-server processes for tests, each in its own folder and on a free port."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.process import free_port

BASE = ("--save", "", "--bind", "127.0.0.1", "--daemonize", "no", "--dir", ".")
READY = ("Ready to accept connections", "+monitor", "Running mode=sentinel")


class RedisProcess:
    """A server; ``start`` returns when it accepts connections, ``kill`` when it has exited."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.socket = folder / "redis.sock"
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Its TCP address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *command: str) -> RedisProcess:
        """Start the server, and read its log until it is ready."""
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is missing; install it with: apt-get install redis")
        command = command or (*BASE, "--port", str(self.port), "--unixsocket", str(self.socket))
        self._process = subprocess.Popen(
            [program, *command, *self._options],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        log = []
        for line in self._process.stdout:
            log.append(line)
            if any(words in line for words in READY):
                return self
        raise RuntimeError("redis-server did not start:\n" + "".join(log))

    def kill(self) -> None:
        """Send SIGKILL, and wait for the exit."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def running(self) -> bool:
        """Whether it was started and not killed."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id, for signals."""
        assert self._process is not None
        return self._process.pid


@contextmanager
def running(folder: Path, *options: str) -> Iterator[RedisProcess]:
    """A server that is killed on exit."""
    process = RedisProcess(folder, *options)
    try:
        yield process.start()
    finally:
        process.kill()
