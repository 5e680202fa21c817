"""Run a module, and note which functions of a folder are called while somebody asks for it.

``python recorder.py SOCKET FOLDER MODULE [ARGUMENT …]``. On the Unix socket ``start`` begins a
recording, and ``stop`` ends it: the answer is a JSON list of ``[file, first line]``, files from
FOLDER. A coroutine that goes on counts as called. This file imports nothing of the project, so that
it runs any commit's.
"""

from __future__ import annotations

import json
import os
import runpy
import socketserver
import sys
import threading
from types import CodeType, FrameType
from typing import Any


class Recorder:
    """The code that ran since ``start``."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(os.path.realpath(folder), "")
        self._called: set[CodeType] | None = None

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """What ``sys.setprofile`` calls."""
        if self._called is not None and event == "call":
            self._called.add(frame.f_code)

    def answer(self, request: str) -> list[tuple[str, int]]:
        """Do what a request asks for."""
        if request == "start":
            self._called = set()
            return []
        called, self._called = self._called or set(), None
        return sorted({place for code in called if (place := self._place(code)) is not None})

    def _place(self, code: CodeType) -> tuple[str, int] | None:
        file = os.path.realpath(code.co_filename)
        if not file.startswith(self._folder):
            return None
        return file.removeprefix(self._folder), code.co_firstlineno


def main() -> None:
    """Serve the recorder in a thread that is not recorded, and run the module."""
    socket, folder, module, *arguments = sys.argv[1:]
    recorder = Recorder(folder)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = self.rfile.readline().decode().strip()
            self.wfile.write(json.dumps(recorder.answer(request)).encode() + b"\n")

    server = socketserver.UnixStreamServer(socket, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.setprofile(recorder.note)
    sys.setprofile(recorder.note)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
