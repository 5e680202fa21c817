"""Settings of Kafka's clients: brokers, topics, groups and security."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from stream_metrics.core.events.envelope import ValueFormat
from stream_metrics.core.settings import SettingsTable

INSTANCE_ID: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class KafkaSettings(SettingsTable):
    """Where events come from."""

    bootstrap_servers: str = Field(
        "localhost:9092", description="brokers as host:port, comma separated"
    )
    topics: tuple[str, ...] = Field(
        ("search-iterations", "relevance-labels"),
        description="input topics; each accepts every event type, and all must have the same "
        "number of partitions (unless `kafka.repartition_topic` is set)",
    )
    value_format: ValueFormat = Field(
        "json",
        description="how values hold events: as JSON alone, as JSON behind the five bytes of a "
        "schema registry's serialiser for JSON Schema, or as CloudEvents 1.0 in structured or "
        "binary mode",
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
