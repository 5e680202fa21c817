"""How a judge works, as settings say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stream_metrics.core.judge.budget import Prices


@dataclass(frozen=True, slots=True)
class Times:
    """How long nothing of a turn must have come until it is due, and until it is forgotten."""

    settle_ms: int
    kept_ms: int


class AskOptions(NamedTuple):
    """How a document is asked about; ``attempts`` is how often at most."""

    prices: Prices
    max_tokens: int
    text_characters: int
    attempts: int
    concurrency: int


class EndpointOptions(NamedTuple):
    """Where the model is, and how it is asked.

    ``tokens_parameter`` is the name under which the endpoint takes ``max_tokens``.
    """

    url: str
    key: str
    model: str
    max_tokens: int
    timeout_seconds: float
    temperature: float
    tokens_parameter: str
