"""An OTLP/HTTP receiver that records the spans of a program, and the SDK that exports to it."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_IDS: Final = ("traceId", "spanId", "parentSpanId")


class Receiver:
    """Accepts OTLP over HTTP on any path that ends in /v1/traces, and stores the requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = b"".join(self._parts())
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path.endswith("/v1/traces"):
                    with lock:
                        receiver.requests.append(_decoded(body, self.headers["Content-Type"]))
                self._answer(b"{}" if "json" in self.headers["Content-Type"] else b"")

            def _parts(self) -> Iterator[bytes]:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
                    return
                while size := int(self.rfile.readline(), 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()

            def do_GET(self) -> None:
                self._answer(b"{}")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """The address on which it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def lines(self) -> list[str]:
        """The requests as JSON, one each."""
        return [json.dumps(one, separators=(",", ":")) for one in self.requests]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()


def _decoded(body: bytes, kind: str) -> dict[str, Any]:
    if "json" in kind:
        return dict(json.loads(body))
    request = MessageToDict(ExportTraceServiceRequest.FromString(body))
    for resource in request.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for holder in (span, *span.get("links", ())):
                    for name in _IDS:
                        if name in holder:
                            holder[name] = base64.b64decode(holder[name]).hex()
    return dict(request)
