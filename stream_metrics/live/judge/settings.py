"""Settings of the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from stream_metrics.clients.secrets import read_secret
from stream_metrics.core.engine.window import parse_duration
from stream_metrics.core.judge.budget import Limits, Prices
from stream_metrics.core.judge.options import AskOptions, EndpointOptions, Times
from stream_metrics.core.judge.prompt import judge_hash
from stream_metrics.core.settings import SettingsTable

_HOLDS: Final = 2  # time-outs after which a call that nobody has settled counts as made


class JudgeSettings(SettingsTable):
    """How a model grades a random sample of results, by `stream-metrics judge` or, where `model` is
    set, beside `stream-metrics serve`."""

    url: str = "https://api.openai.com/v1"
    """The address of the model, with an API as OpenAI's; that of a local one is, for instance,
    `http://localhost:11434/v1` (Ollama), `http://localhost:8000/v1` (vLLM) or
    `http://localhost:8080/v1` (llama.cpp)."""
    key: SecretStr | None = Field(None, description="the key for that address, if it wants one")
    key_file: Path | None = None
    """A file that contains the key; overrides `judge.key`."""
    model: str = ""
    """The model's name there, such as `gpt-5-mini`. Without it nothing is judged."""
    rate: float = Field(0.05, ge=0, le=1)
    """The share of conversations that are graded: a random sample, in which a conversation is as a
    whole. Another share counts from the next midnight, UTC."""
    people_rate: float = Field(0.01, ge=0, le=1)
    """The share that `judge export-for-people` takes: a part of the model's sample, so at most
    `rate`."""
    calls_per_minute: int = Field(60, ge=1)
    """The most calls in any minute, of all judges together, repeated ones included."""
    tokens_per_day: int = Field(1_000_000, ge=1)
    """The most tokens in a day (UTC), of all judges together. When they are spent, the day's sample
    ends."""
    money_per_day: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="the most money in a day, in the currency of the prices; likewise. Needs "
        "`input_price` and `output_price`",
    )
    input_price: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="what a million tokens of prompts cost"
    )
    output_price: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="what a million tokens of answers cost"
    )
    max_tokens: int = Field(16, ge=1)
    """The most tokens of an answer, for which budget is reserved. An answer is one digit, but a
    model that reasons needs some hundreds."""
    tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name under which the endpoint takes `max_tokens`; OpenAI's reasoning models want
    `max_completion_tokens`."""
    temperature: float = Field(0.0, ge=0, allow_inf_nan=False)
    """How much answers vary; some models accept only 1."""
    timeout_seconds: float = Field(60.0, gt=0, allow_inf_nan=False)
    """How long to wait for an answer."""
    concurrency: int = Field(4, ge=1)
    """The most calls of one judge at a time."""
    attempts: int = Field(5, ge=1)
    """How often a document is asked about until it is given up; times when the endpoint answers
    nobody do not count."""
    text_chars: int = Field(8_000, ge=1)
    """How much of a document's text is sent, in characters."""
    settle: str = "60s"
    """A turn is graded once nothing of it has come for this long; what comes later, after that."""
    turn_max: str = "15m"
    """How long after its last event more of a turn is expected. Later searches are graded without
    knowing which documents were returned before."""
    open_bytes: int = Field(256 << 20, ge=1 << 20)
    """The most bytes of events that are kept until their turns are graded; above it, nothing is
    read."""
    cache_grades: int = Field(100_000, ge=0)
    """How many of the latest grades are kept in memory; equal texts are asked about once."""
    start: Literal["earliest", "latest"] = "latest"
    """Where judges start that have not read anything yet."""
    group_id: str = "stream-metrics-judge"
    """The judges' consumer group."""
    budget_topic: str = "stream-metrics-judge-budget"
    """A compacted topic with one partition, on which judges note what they reserve."""
    port: int = Field(9484, ge=0, le=65_535)
    """Port of the judge's `/metrics`, `/healthz` and `/readyz`; `web` has their other settings."""

    @field_validator("settle", "turn_max")
    @classmethod
    def _check_durations(cls, text: str) -> str:
        parse_duration(text)
        return text

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        found = urlsplit(url)
        if found.scheme not in ("http", "https") or not found.hostname:
            raise ValueError("write an address such as http://localhost:11434/v1")
        if found.username or found.password:
            raise ValueError("put the key into `key_file`, not into the address")
        return url

    @model_validator(mode="after")
    def _check_judge(self) -> JudgeSettings:
        if self.settle_ms >= self.turn_max_ms:
            raise ValueError("`settle` must be shorter than `turn_max`")
        if self.people_rate > self.rate and "people_rate" in self.model_fields_set:
            raise ValueError("`people_rate` must not be above `rate`: people label a part of it")
        priced = self.input_price is not None and self.output_price is not None
        if self.money_per_day is not None and not priced:
            raise ValueError("`money_per_day` needs `input_price` and `output_price`")
        return self

    @property
    def settle_ms(self) -> int:
        """``settle`` in milliseconds."""
        return parse_duration(self.settle) // 1000

    @property
    def turn_max_ms(self) -> int:
        """``turn_max`` in milliseconds."""
        return parse_duration(self.turn_max) // 1000

    @property
    def share_of_people(self) -> float:
        """The share of conversations that people label."""
        return min(self.people_rate, self.rate)

    @property
    def times(self) -> Times:
        """When turns are due, and how long they are kept."""
        return Times(self.settle_ms, self.turn_max_ms)

    @property
    def prices(self) -> Prices:
        """What a token costs; nothing where no price is set."""
        return Prices.per_million(self.input_price or 0.0, self.output_price or 0.0)

    @property
    def limits(self) -> Limits:
        """The budget."""
        money = self.money_per_day
        picos = None if money is None else round(money * 10**12)
        return Limits(self.calls_per_minute, self.tokens_per_day, picos)

    @property
    def hold_ms(self) -> int:
        """How long a call may be in flight."""
        return round(_HOLDS * self.timeout_seconds * 1000)

    @property
    def judge(self) -> str:
        """What identifies the judge: see ``judge_hash``."""
        return judge_hash(self.model, self.text_chars)

    @property
    def asking(self) -> AskOptions:
        """How documents are asked about."""
        return AskOptions(
            self.prices, self.max_tokens, self.text_chars, self.attempts, self.concurrency
        )

    def endpoint(self) -> EndpointOptions:
        """Where the model is; raises ``UnreadableFile``."""
        return EndpointOptions(
            self.url,
            read_secret(self.key, self.key_file, "judge.key_file") or "",
            self.model,
            self.max_tokens,
            self.timeout_seconds,
            self.temperature,
            self.tokens_parameter,
        )
