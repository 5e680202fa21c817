"""Settings of the services: Redis, state, the bridge, one process without servers, web pages."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from stream_metrics.clients.secrets import read_secret
from stream_metrics.core.engine.codec import SCHEMAS
from stream_metrics.core.engine.window import parse_duration
from stream_metrics.core.settings import OtlpSettings, SettingsTable
from stream_metrics.core.telemetry.assembly import Bounds
from stream_metrics.live.links import ALERT, CONVERSATION, check_template, is_address
from stream_metrics.live.runaways import MANY_ITERATIONS

NO_DIGEST_KEY: Final = (
    "the digest key is empty, so anyone who can read Redis could check whether a guessed text is "
    "in the state. Create a key with `openssl rand -hex 32 > digest.key`, set "
    "state.digest_key_file (STREAM_METRICS_STATE__DIGEST_KEY_FILE) to that file, and keep it for "
    "as long as the state. To run without a key, set state.allow_empty_key = true"
)
KNOWN_MS: Final = 15 * 60_000


class RedisSettings(SettingsTable):
    """Where state is kept."""

    url: str = Field(
        "redis://localhost:6379/0",
        description="an address that begins with redis://, rediss:// or unix://",
    )
    namespace: str | None = Field(
        None, description="prefix of all keys; default: the consumer group's name"
    )
    username: str | None = None
    """ACL user; overrides the one in the URL."""
    password: SecretStr | None = None
    """That user's password; overrides the one in the URL."""
    password_file: Path | None = None
    """A file that contains the password."""
    cluster: bool = False
    """Whether the URL names a node of a Redis Cluster."""
    sentinels: tuple[str, ...] = Field(
        (),
        description="Sentinels as host:port",
        examples=[["sentinel-1:26379", "sentinel-2:26379"]],
    )
    sentinel_service: str = "mymaster"
    """The name under which the Sentinels know the master."""
    sentinel_username: str | None = None
    """ACL user for the Sentinels."""
    sentinel_password: SecretStr | None = None
    """That user's password."""
    sentinel_password_file: Path | None = None
    """A file that contains the password for the Sentinels."""
    socket_timeout_seconds: float = Field(5.0, gt=0)
    """How long to wait for a reply."""
    connect_timeout_seconds: float = Field(5.0, gt=0)
    """How long to wait for a connection."""
    ssl_ca_file: Path | None = None
    """CA certificates to trust; needs a `rediss://` URL."""
    ssl_certificate_file: Path | None = None
    """The client certificate."""
    ssl_key_file: Path | None = None
    """The private key of that certificate."""
    ssl_key_password: SecretStr | None = None
    """The password of that key, if it is encrypted."""
    ssl_key_password_file: Path | None = None
    """A file that contains the key's password."""


class StateSettings(SettingsTable):
    """How long conversations are kept, and under which key."""

    ttl: str = Field("24h", description="how long a conversation is kept after its last event")
    digest_key: SecretStr | None = Field(None, description="secret key for the digests of texts")
    digest_key_file: Path | None = None
    """A file that contains the digest key, as `openssl rand -hex 32 > digest.key` creates one;
    overrides `state.digest_key`."""
    allow_empty_key: bool = False
    """Whether a worker starts without a digest key. Without one, anyone who can read Redis can
    check whether a guessed text is in the state."""
    write_schema: int = Field(
        SCHEMAS[0],
        ge=SCHEMAS[0],
        le=SCHEMAS[-1],
        description="the schema in which state is written (see Upgrades in the docs); all "
        "schemas are read",
    )
    cache_results: int = Field(
        250_000,
        ge=0,
        description="size of a worker's cache of open conversations, in results (about 0.8 kB "
        "each); a search, an iteration, an event or four labels count as one result",
    )
    batch_records: int = Field(500, ge=1, le=900, description="records per atomic write")

    @field_validator("ttl")
    @classmethod
    def _check_ttl(cls, ttl: str) -> str:
        parse_duration(ttl)
        return ttl

    @property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        return parse_duration(self.ttl) // 1000

    def key(self) -> bytes:
        """The digest key; empty if none is configured.

        Raises ``UnreadableFile``.
        """
        secret = read_secret(self.digest_key, self.digest_key_file, "state.digest_key_file")
        return _blake2b_key(secret.encode()) if secret else b""

    def missing_key(self) -> str | None:
        """The error if the digest key is required and missing; None otherwise.

        Raises ``UnreadableFile``.
        """
        return None if self.allow_empty_key or self.key().strip() else NO_DIGEST_KEY


def _blake2b_key(secret: bytes) -> bytes:
    return secret if len(secret) <= 64 else hashlib.blake2b(secret).digest()


class BridgeSettings(SettingsTable):
    """How `stream-metrics bridge` turns the traces on a topic into events."""

    topic: str = "otlp_spans"
    """The topic to which the Collector's Kafka exporter writes traces."""
    group_id: str = "stream-metrics-bridge"
    """The bridge's consumer group."""
    settle: str = "10s"
    """A trace becomes events when none of its spans has arrived for this long, its root has ended
    and the parents of all its spans have arrived."""
    trace_max: str = "15m"
    """The longest time after its first record until a trace becomes events or is refused."""
    open_traces: int = Field(10_000, ge=1)
    """The largest number of open traces of a service in a partition; above it, its oldest is
    refused. Of all services together, twice as many."""
    open_bytes: int = Field(256 << 20, ge=1)
    """The most bytes of spans of a service's open traces in a partition; above it, its oldest is
    refused. Of all services together, twice as many."""
    rekey: bool = False
    """Whether records are first copied to `bridge.rekey_topic`, keyed by trace, as `--rekey` does:
    for exporters that cannot key them."""
    rekey_topic: str | None = None
    """The internal topic for those copies; by default, the name of `bridge.topic` followed by
    `-by-trace`."""
    port: int = Field(9474, ge=0, le=65_535)
    """Port of the bridge's `/metrics`, `/healthz` and `/readyz`; `web` has their other settings."""

    @field_validator("settle", "trace_max")
    @classmethod
    def _check_durations(cls, text: str) -> str:
        parse_duration(text)
        return text

    @model_validator(mode="after")
    def _check_bridge(self) -> BridgeSettings:
        if self.settle_ms >= self.trace_max_ms:
            raise ValueError("`settle` must be shorter than `trace_max`")
        if self.topic == self.internal_topic:
            raise ValueError("`rekey_topic` must not be `topic`")
        return self

    @property
    def settle_ms(self) -> int:
        """``settle`` in milliseconds."""
        return parse_duration(self.settle) // 1000

    @property
    def trace_max_ms(self) -> int:
        """``trace_max`` in milliseconds."""
        return parse_duration(self.trace_max) // 1000

    @property
    def known_ms(self) -> int:
        """How long after its last record a trace is remembered, to recognize late spans."""
        return self.trace_max_ms + max(self.trace_max_ms, KNOWN_MS)

    @property
    def internal_topic(self) -> str:
        """The topic to which records are copied by trace."""
        return self.rekey_topic or f"{self.topic}-by-trace"

    def bounds(self, otlp: OtlpSettings) -> Bounds:
        """The limits of open traces: times, numbers and bytes."""
        return Bounds(
            self.settle_ms,
            self.trace_max_ms,
            self.known_ms,
            self.open_traces,
            self.open_bytes,
            otlp.max_spans,
            otlp.max_trace_bytes,
        )


class ServeSettings(SettingsTable):
    """How `stream-metrics serve` works in one process, over one file."""

    data: Path = Path("stream-metrics-data")
    """The folder of the file, which is created if it is missing."""
    host: str = "127.0.0.1"
    """Address to listen on for traces and events; `web.host` is that of the page."""
    otlp_port: int = Field(4318, ge=0, le=65_535)
    """Port for traces and events; 0 picks a free one."""
    token_file: Path | None = None
    """A file with a token that senders must have, as `Authorization: Bearer`; needed where `host`
    can be reached from other machines."""
    retention: str = "7d"
    """How long events are kept in the log, for builds and replays; `state.ttl` is that of state."""
    spans_retention: str = "1d"
    """How long spans, which hold texts, are kept in the log: at least as long as traces are
    remembered, which is twice `bridge.trace_max`, or that and 15 minutes."""
    max_bytes: int = Field(10 << 30, ge=1 << 20)
    """The size of the file above which the oldest events and spans are deleted."""
    show_texts: bool = True
    """Whether the page of a conversation shows texts: queries, titles, questions and answers. Where
    others can reach `web.host`, they also need `web.users` or `web.users_file`."""
    max_backlog: int = Field(100_000, ge=1)
    """The most events, and the most parts of traces, that wait to be read; above it, requests are
    answered with 503."""

    @field_validator("retention", "spans_retention")
    @classmethod
    def _check_durations(cls, text: str) -> str:
        parse_duration(text)
        return text

    @property
    def retention_ms(self) -> int:
        """``retention`` in milliseconds."""
        return parse_duration(self.retention) // 1000

    @property
    def spans_retention_ms(self) -> int:
        """``spans_retention`` in milliseconds."""
        return parse_duration(self.spans_retention) // 1000

    def token(self) -> str | None:
        """The token; None without one. Raises ``UnreadableFile``."""
        return read_secret(None, self.token_file, "serve.token_file")


class AlertSettings(SettingsTable):
    """What the worker points out."""

    runaway_iterations: int = Field(MANY_ITERATIONS, ge=2)
    """From so many iterations of one turn on, the turn runs away: the page names its conversation,
    and the alert StreamMetricsRunawayTurn fires while it goes on."""


class NotifySettings(SettingsTable):
    """Who is told what fires and what ends, where there is no Prometheus."""

    url: SecretStr | None = Field(
        None,
        description="Alertmanager's address, such as `http://localhost:9093`, or that of an "
        "incoming webhook; workers tell it what fires and what ends",
    )
    url_file: Path | None = None
    """A file that contains the address; overrides `notify.url`."""
    format: Literal["alertmanager", "slack"] = "alertmanager"
    """How it is told: Alertmanager's API, version 2, or a message as Slack's webhooks take them."""
    page_url: str | None = Field(
        None,
        description="the address of the page for people who are told; default: the worker's own",
    )

    @field_validator("page_url")
    @classmethod
    def _check_page_url(cls, url: str | None) -> str | None:
        if url is not None and not is_address(url):
            raise ValueError("write an address such as https://metrics.example.org/")
        return url

    @model_validator(mode="after")
    def _check_address(self) -> NotifySettings:
        url = "" if self.url is None else self.url.get_secret_value()
        if url and not is_address(url):
            raise ValueError("`url` must be an http or https address")  # without quoting it
        return self

    def address(self) -> str | None:
        """Who is told; None if nobody is. Raises ``UnreadableFile`` and ``ValueError``."""
        found = read_secret(self.url, self.url_file, "notify.url_file")
        if found and not is_address(found):
            raise ValueError("notify.url_file: it does not contain an http or https address")
        return found or None


class WebSettings(SettingsTable):
    """The web pages of the worker."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(9464, ge=0, le=65_535)
    """Port of `/metrics`, `/healthz` and `/readyz`."""
    tls_certificate: Path | None = None
    """Certificate for serving over HTTPS."""
    tls_key: Path | None = None
    """The private key of that certificate."""
    tls_key_password: SecretStr | None = None
    """The password of that key, if it is encrypted."""
    tls_key_password_file: Path | None = None
    """A file that contains the key's password."""
    watchdog_seconds: float = Field(60.0, ge=0)
    """Seconds without progress, despite lag and with nothing to wait for, after which `/healthz`
    fails: at least 10, or 0 to disable the check."""
    users: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="users for basic authentication, with the password hashes that `stream-metrics "
        "hash-password` prints; if empty, everyone who can reach the port has access",
        examples=[{"prometheus": "scrypt$..."}],
    )
    users_file: Path | None = None
    """A file with more such users, one `name:hash` per line."""
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="host names with a dot under which the page is served without `web.users`, in "
        "addition to the machine's own; `.example.org` matches all names below it",
        examples=[["metrics.example.org"]],
    )

    conversation_url: str | None = None
    """Template for links to a conversation's trace, such as
    `https://traces.example.org/{conversation_id}`; used on the page, in `stream-metrics top` and in
    reports."""
    runbook_url: str | None = None
    """Template for links to an alert's runbook, such as
    `https://docs.example.org/runbooks/{alert}`; shown beside each rule on the page. Without it, the
    page names the file in the repository, as the alerts do."""

    @field_validator("conversation_url")
    @classmethod
    def _check_conversation_url(cls, template: str | None) -> str | None:
        return None if template is None else check_template(template, CONVERSATION)

    @field_validator("runbook_url")
    @classmethod
    def _check_runbook_url(cls, template: str | None) -> str | None:
        return None if template is None else check_template(template, ALERT)

    @field_validator("allowed_hosts")
    @classmethod
    def _check_allowed_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not re.fullmatch(r"\.?[\w-]+(\.[\w-]+)*", host):
                raise ValueError(f"{host!r}: write only the host name, without scheme and port")
        return hosts

    @field_validator("watchdog_seconds")
    @classmethod
    def _check_watchdog_seconds(cls, seconds: float) -> float:
        if 0 < seconds < 10:
            raise ValueError(
                "must be 0 or at least 10 seconds, because offsets without a record are noted "
                "every 5"
            )
        return seconds
