"""Delivers notices to Alertmanager or to a webhook."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import aiohttp

from stream_metrics.live.notify.episodes import Notice
from stream_metrics.live.notify.messages import About, alerts, slack

Format = Literal["alertmanager", "slack"]

ALERTS_PATH: Final = "/api/v2/alerts"
TIMEOUT: Final = aiohttp.ClientTimeout(total=20.0, sock_connect=5.0)
_SAID_LENGTH: Final = 200
_TRY_AGAIN: Final = 300.0


class NotDelivered(Exception):
    """A notice was not accepted; says why. ``pause`` is for how many seconds nothing is wanted."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


@dataclass(frozen=True, slots=True)
class Recipient:
    """Who is told. ``url`` may be a secret, ``place`` is what messages say of it.

    ``about`` has what rules are about, by name, and ``page`` is the address of the page.
    """

    url: str = field(repr=False)
    format: Format
    about: Mapping[str, About]
    page: str
    timeout: aiohttp.ClientTimeout = TIMEOUT

    @property
    def place(self) -> str:
        """Scheme, host and port."""
        return place_of(self.url)

    def body(self, notice: Notice, now: float) -> Any:
        """What is posted for a notice."""
        about = self.about[notice.rule]
        if self.format == "slack":
            return slack(notice, about, self.page, now)
        return alerts(notice, about, self.page, now)

    async def deliver(self, notice: Notice, now: float) -> None:
        """Post a notice; raises ``NotDelivered`` unless it was accepted."""
        url = self.url
        if self.format == "alertmanager" and not url.rstrip("/").endswith(ALERTS_PATH):
            url = url.rstrip("/") + ALERTS_PATH
        place = self.place
        try:
            async with (
                aiohttp.ClientSession(timeout=self.timeout) as session,
                session.post(url, json=self.body(notice, now), allow_redirects=False) as answer,
            ):
                if answer.status >= 300:
                    said = _said(
                        (await answer.content.read(_SAID_LENGTH)).decode("utf-8", "replace")
                    )
                    raise NotDelivered(f"{place} answers {answer.status}{said}", _pause(answer))
        except TimeoutError as error:
            seconds = self.timeout.total or 0.0
            raise NotDelivered(f"{place} has not answered for {seconds:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise NotDelivered(f"nothing answers at {place} ({_reason(error)})") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = type(error).__name__  # whose message may have the address
            raise NotDelivered(f"{place} could not be asked ({why})") from error


def place_of(url: str) -> str:
    """Scheme, host and port of an address, which may have secrets elsewhere.

    >>> place_of("https://hooks.slack.com/services/T0/B0/secret")
    'https://hooks.slack.com'
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}"


def _said(text: str) -> str:
    """The beginning of an answer, if it is a line."""
    text = text.strip()
    return f": {text}" if text and text.isprintable() and not text.startswith("<") else ""


def _reason(error: aiohttp.ClientConnectorError) -> str:
    """What the system says of a connection that could not be made."""
    number = error.errno
    known = number is not None and number > 0  # asyncio words these itself
    return os.strerror(number or 0) if known else error.strerror or "no connection"


def _pause(answer: aiohttp.ClientResponse) -> float:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), _TRY_AGAIN) if text.isascii() and text.isdigit() else 0.0
