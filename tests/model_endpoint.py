"""A model behind an endpoint of OpenAI's protocol, with faults and a count of its own.

It runs in a thread, on a port of its own. The grade of a document is the one that its text names
(``grade-3``), else one that follows from the text. It counts every call that comes, and charges for
each that it did not turn away at once: also for those that time out, are cut off or get rubbish.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from deploy.local.process import free_port
from stream_metrics.core.judge.budget import Cost, Prices
from tests.endpoint import ThreadedServer

Fault = Callable[[web.Request, "ModelEndpoint", dict[str, Any]], Awaitable[web.StreamResponse]]
MAX_ANSWER: Final = 16
PRICES: Final = Prices.per_million(2.0, 8.0)


@dataclass(frozen=True)
class Call:
    """A call that came: when, in Unix time, about which document, and what it was charged."""

    at: float
    document: str
    cost: Cost


@dataclass
class ModelEndpoint:
    """What was asked so far; each call meets the next of ``faults``, else one of ``misfortunes``
    at random, in ``share`` of the calls."""

    prices: Prices = PRICES
    port: int = field(default_factory=free_port)
    faults: deque[Fault] = field(default_factory=deque)
    misfortunes: tuple[Fault, ...] = ()
    share: float = 0.0
    says_usage: bool = True
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    calls: list[Call] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    flooded: int = 0  # MiB that were written of answers without an end
    _server: ThreadedServer | None = None

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def cost(self) -> Cost:
        """What all calls were charged."""
        total = Cost()
        for call in list(self.calls):
            total = total.plus(call.cost)
        return total

    @property
    def documents(self) -> Counter[str]:
        """How often each document was asked about."""
        return Counter(call.document for call in list(self.calls))

    def busiest(self, seconds: float) -> int:
        """The most calls that came in any stretch of time of this length."""
        times = sorted(call.at for call in list(self.calls))
        first = most = 0
        for last, at in enumerate(times):
            while at - times[first] >= seconds:
                first += 1
            most = max(most, last - first + 1)
        return most

    def start(self) -> None:
        """Listen, until ``stop``."""
        self._server = ThreadedServer(self.port, "/v1/chat/completions", self._meet)
        self._server.start()

    def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    async def _meet(self, request: web.Request) -> web.StreamResponse:
        at, body = time.time(), json.loads(await request.read())
        self.bodies.append(body)
        self.keys.add(request.headers.get("Authorization", ""))
        fault: Fault = answers
        if self.faults:
            fault = self.faults.popleft()
        elif self.misfortunes and self.chance.random() < self.share:
            fault = self.chance.choice(self.misfortunes)
        charged = fault not in (limits, unavailable_key, refuses, redirects)
        self.calls.append(Call(at, document_of(body), self._charge(body) if charged else Cost()))
        return await fault(request, self, body)

    def _charge(self, body: dict[str, Any]) -> Cost:
        return self.prices.cost(*self.tokens(body))

    def tokens(self, body: dict[str, Any]) -> tuple[int, int]:
        """The tokens of a prompt and of the answer to it."""
        sent = sum(len(message["content"].encode()) for message in body["messages"])
        answer: int = body.get("max_tokens") or body["max_completion_tokens"]
        return sent // 3 + 12, min(answer, 3)

    def completion(self, body: dict[str, Any], text: str | None) -> dict[str, Any]:
        """An answer of the protocol."""
        prompt, answer = self.tokens(body)
        found: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": text},
                }
            ],
        }
        if self.says_usage:
            found["usage"] = {
                "prompt_tokens": prompt,
                "completion_tokens": answer,
                "total_tokens": prompt + answer,
            }
        return found


def document_of(body: dict[str, Any]) -> str:
    """The document that a request shows."""
    user: str = body["messages"][-1]["content"]
    return user.partition("<document>\n")[2].rpartition("\n</document>")[0]


def grade_of(document: str) -> int:
    """The grade that the model gives a document."""
    named = re.search(r"grade-([0-4])", document)
    return int(named[1]) if named else hashlib.sha256(document.encode()).digest()[0] % 5


@contextmanager
def model_endpoint(**options: Any) -> Iterator[ModelEndpoint]:
    """An endpoint that listens."""
    found = ModelEndpoint(**options)
    found.start()
    try:
        yield found
    finally:
        found.stop()


# --- what a call meets ----------------------------------------------------------------------------


async def answers(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """No fault."""
    return web.json_response(model.completion(body, str(grade_of(document_of(body)))))


async def limits(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """Too many calls; it is to come back in a second."""
    error = {"error": {"message": document_of(body), "code": "rate_limit_exceeded"}}
    return web.json_response(error, status=429, headers={"Retry-After": "1"})


async def breaks(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """An error of the server, which repeats what was sent."""
    return web.json_response({"error": {"message": document_of(body)}}, status=500)


async def unavailable_key(
    _: web.Request, model: ModelEndpoint, body: dict[str, Any]
) -> web.Response:
    """The key is wrong."""
    return web.json_response({"error": {"message": document_of(body)}}, status=401)


async def refuses(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """The text is not accepted."""
    return web.json_response({"error": {"message": document_of(body)}}, status=400)


async def redirects(request: web.Request, model: ModelEndpoint, _: dict[str, Any]) -> web.Response:
    """The answer is said to be elsewhere, where it is."""
    return web.Response(status=307, headers={"Location": str(request.url)})


async def nests(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """JSON with too many levels."""
    return web.Response(text="[" * 200_000, content_type="application/json")


async def overcharges(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """More tokens than any call has."""
    completion = model.completion(body, str(grade_of(document_of(body))))
    completion["usage"]["prompt_tokens"] = 10**30
    return web.json_response(completion)


async def thinks(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """An answer that took far more tokens than it might have."""
    completion = model.completion(body, str(grade_of(document_of(body))))
    completion["usage"]["completion_tokens"] = 3_000
    return web.json_response(completion)


async def babbles(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """An answer that is no grade."""
    return web.json_response(model.completion(body, "I would say 3, or maybe 4."))


async def says_nothing(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """An answer without a text."""
    return web.json_response(model.completion(body, None))


async def sends_rubbish(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """No JSON, though it says so."""
    return web.Response(
        body=b"\xff{]" + document_of(body).encode(), content_type="application/json"
    )


async def sends_a_page(_: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """A page of a proxy."""
    return web.Response(text="<html>Welcome!</html>", content_type="text/html")


async def sends_other_json(
    _: web.Request, model: ModelEndpoint, body: dict[str, Any]
) -> web.Response:
    """JSON of another form."""
    forms: list[Any] = [
        {"choices": []},
        {"choices": None},
        {"choices": [{"message": {"content": [{"text": "3"}]}}]},
        {"choices": [{"message": None}]},
        ["3"],
        3,
        None,
        {"result": 3, "choices": "3"},
    ]
    return web.json_response(model.chance.choice(forms))


async def cuts(
    request: web.Request, model: ModelEndpoint, body: dict[str, Any]
) -> web.StreamResponse:
    """The answer ends in the middle."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = 10_000
    await response.prepare(request)
    await response.write(b'{"choices": [{"message": {"content": "4"')
    assert request.transport is not None
    request.transport.abort()
    return response


async def resets(request: web.Request, model: ModelEndpoint, body: dict[str, Any]) -> web.Response:
    """The connection ends without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def never_answers(
    request: web.Request, model: ModelEndpoint, body: dict[str, Any]
) -> web.Response:
    """Nothing is said until the client goes."""
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.05)
    return web.Response()


async def floods(
    request: web.Request, model: ModelEndpoint, body: dict[str, Any]
) -> web.StreamResponse:
    """An answer without an end."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with suppress(ConnectionError, asyncio.CancelledError):
        for _ in range(1_000):
            await response.write(b" " * (1 << 20))
            model.flooded += 1
    return response


async def drips(
    request: web.Request, model: ModelEndpoint, body: dict[str, Any]
) -> web.StreamResponse:
    """A byte comes now and then, so that no single read takes long."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with suppress(ConnectionError, asyncio.CancelledError):
        for _ in range(3_000):
            await response.write(b" ")
            await asyncio.sleep(0.1)
    return response


FAULTS: Final[tuple[Fault, ...]] = (
    limits, breaks, babbles, says_nothing, sends_rubbish, sends_a_page, sends_other_json, cuts,
    resets, never_answers, drips,
)  # fmt: skip
