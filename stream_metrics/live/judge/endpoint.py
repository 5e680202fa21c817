"""A model behind an endpoint that speaks OpenAI's protocol for chats.

Errors say what kind they are and, without a connection, the system's reason. They say nothing of an
answer, because an endpoint may repeat what it was sent.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import os
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

from stream_metrics.core.judge.options import EndpointOptions
from stream_metrics.core.judge.prompt import Prompt

Failure = Literal[
    "timeout", "connection", "limited", "server_error", "garbage", "refused", "denied"
]
"""``garbage``: no answer of this protocol; ``refused``: this request alone; ``denied``: the key,
the model or the address."""
FAILURES: Final[tuple[Failure, ...]] = (
    "timeout", "connection", "limited", "server_error", "garbage", "refused", "denied",
)  # fmt: skip
LONGEST_WAIT_SECONDS: Final = 3_600.0
MOST_TOKENS: Final = 1 << 22
"""More than any call uses: an endpoint that says more says nothing about usage."""
MOST_BYTES: Final = 1 << 20
"""More than any answer has."""
_DENIED: Final = frozenset({401, 403, 404, 405, 407})
_HEADERS: Final = ("content-type", "retry-after")
_AGAIN: Final = frozenset({408, 409, 425})


class Answer(NamedTuple):
    """What the model wrote, and what it says of the tokens; None if it does not."""

    text: str | None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None


class EndpointFailed(Exception):
    """A call without an answer.

    ``status`` is that of HTTP, None without one; ``reason`` is what the system says then.
    ``retry_after_seconds`` is how long the endpoint asks to wait. ``charged``: it may have done the
    work.
    """

    def __init__(
        self,
        kind: Failure,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        *,
        reason: str | None = None,
        charged: bool = True,
    ) -> None:
        why = reason if status is None else f"HTTP {status}"
        super().__init__(kind if why is None else f"{kind} ({why})")
        self.kind = kind
        self.retry_after_seconds = retry_after_seconds
        self.charged = charged


class Endpoint(Protocol):
    """Asks a model."""

    @property
    def address(self) -> str:
        """Where it is, without secrets."""
        ...

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer; raises ``EndpointFailed``. It does not repeat a call."""
        ...


class OpenAiEndpoint:
    """Implements ``Endpoint`` by the ``openai`` client; the extra ``judge`` installs it.

    Raises ``ModuleNotFoundError`` without it.
    """

    def __init__(self, options: EndpointOptions) -> None:
        import openai  # an extra, and slow to import

        self._openai = openai
        self._options = options
        for name in ("openai", "httpx2", "httpcore2"):  # they log what is sent
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._client = openai.AsyncOpenAI(
            base_url=options.url,
            api_key=options.key or "none",
            timeout=options.timeout_seconds,
            max_retries=0,  # each attempt is reserved by itself
            http_client=_bounded(openai.DefaultAsyncHttpxClient)(
                follow_redirects=False,  # it would be a further call, and send texts elsewhere
            ),
        )

    @property
    def address(self) -> str:
        """See ``Endpoint``."""
        return address_of(self._options.url)

    async def ask(self, prompt: Prompt) -> Answer:
        """See ``Endpoint``."""
        options, openai = self._options, self._openai
        try:
            async with asyncio.timeout(options.timeout_seconds):
                found = await self._client.chat.completions.create(
                    model=options.model,
                    messages=[
                        {"role": "system", "content": prompt.system},
                        {"role": "user", "content": prompt.user},
                    ],
                    temperature=options.temperature,
                    extra_body={options.tokens_parameter: options.max_tokens},
                )
        except (TimeoutError, openai.APITimeoutError):
            raise EndpointFailed("timeout") from None
        except openai.APIConnectionError as error:
            reason, charged = _system_reason(error), _was_sent(error)
            raise EndpointFailed("connection", reason=reason, charged=charged) from None
        except openai.APIStatusError as error:
            raise _of_status(error.status_code, error.response.headers) from None
        except (openai.OpenAIError, ValueError, RecursionError):
            raise EndpointFailed("garbage") from None
        return _answer(found)

    async def stop(self) -> None:
        """Close the connections."""
        await self._client.close()


def _bounded(client: Any) -> Any:
    """This class of HTTP clients, with answers of at most ``MOST_BYTES``."""

    class Bounded(client):  # type: ignore[misc]
        async def send(self, request: Any, *, stream: bool = False, **more: Any) -> Any:
            answer, body = await super().send(request, stream=True, **more), bytearray()
            try:
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise EndpointFailed("garbage", answer.status_code)
            finally:
                await answer.aclose()
            kept = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
            return type(answer)(
                answer.status_code, headers=kept, content=bytes(body), request=request
            )

    return Bounded


def address_of(url: str) -> str:
    """An address without user, password and query.

    >>> address_of("https://ada:secret@models.example:8443/v1?key=1")
    'https://models.example:8443/v1'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _system_reason(error: BaseException) -> str | None:
    """What the operating system says of a failed connection; None if it is not to blame."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, OSError) and one.errno is not None and one.strerror:
            is_by_number = not isinstance(one, (socket.gaierror, ssl.SSLError))
            return os.strerror(one.errno) if is_by_number else one.strerror
        if id(one) not in seen:
            seen.add(id(one))
            several = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            causes = (one.__context__, one.__cause__, *several)
            waiting += [cause for cause in causes if cause is not None]
    return None


def _was_sent(error: BaseException) -> bool:
    """Whether the request may have reached the endpoint: not if there was no connection."""
    return type(error.__cause__).__name__ not in ("ConnectError", "ConnectTimeout")


def _of_status(status: int, headers: Mapping[str, str]) -> EndpointFailed:
    wait = retry_after(headers.get("retry-after"), time.time())
    if status == 429:
        return EndpointFailed("limited", status, wait, charged=False)
    if status in _DENIED or 300 <= status < 400:
        return EndpointFailed("denied", status, wait, charged=False)
    if status in _AGAIN or status >= 500:
        return EndpointFailed("server_error", status, wait)
    return EndpointFailed("refused", status)


def retry_after(value: str | None, now: float) -> float | None:
    """The seconds that a header asks to wait, at most an hour; None if it does not.

    >>> retry_after("7", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20.0)
    (7.0, 40.0)
    >>> retry_after("soon", 0.0), retry_after("-1", 0.0), retry_after("1e9", 0.0)
    (None, 0.0, 3600.0)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now
        except (ValueError, OverflowError):
            return None
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)


def _answer(found: Any) -> Answer:
    """What the client has made of the response; raises ``EndpointFailed`` if it is none.

    The client does not check the form of what it gets.
    """
    try:
        text = found.choices[0].message.content
        usage = found.usage
    except (AttributeError, IndexError, TypeError, KeyError):
        raise EndpointFailed("garbage") from None
    if text is not None and not isinstance(text, str):
        raise EndpointFailed("garbage")
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    prompt, answer = (
        count if type(count) is int and 0 <= count <= MOST_TOKENS else None for count in counts
    )
    return Answer(text, prompt, answer)
