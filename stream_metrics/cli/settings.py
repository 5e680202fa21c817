"""Settings. Flags override environment variables, which override a TOML file.

``STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS`` sets ``kafka.bootstrap_servers``; the file is named by
``--config`` or ``STREAM_METRICS_CONFIG``. A secret comes from the environment, or from a file
that the setting of the same name with the suffix ``_file`` names; never from a flag.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from stream_metrics.cli.environment import check_environment
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.dedup.tables import published
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.metrics.labels import HUMAN_FIRST
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.core.settings import (
    DedupSettings,
    LabelSettings,
    LimitSettings,
    MetricSettings,
    OtlpSettings,
    SettingsTable,
)
from stream_metrics.lab.settings import ComparisonSettings, EvaluationSettings
from stream_metrics.live.judge.settings import JudgeSettings
from stream_metrics.live.settings import (
    AlertSettings,
    BridgeSettings,
    NotifySettings,
    RedisSettings,
    ServeSettings,
    StateSettings,
    WebSettings,
)

ONE_PROCESS: Final[Mapping[str, Mapping[str, Any]]] = {
    "state": {"cache_results": 100_000},
    "metrics": {"turn_scope": "all"},
}


class LogSettings(SettingsTable):
    """Logs, on standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The lowest severity that is logged. At DEBUG, repeats of a line are written too."""
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
    serve: ServeSettings = ServeSettings()
    judge: JudgeSettings = JudgeSettings()
    metrics: MetricSettings = MetricSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    comparison: ComparisonSettings = ComparisonSettings()
    alerts: AlertSettings = AlertSettings()
    notify: NotifySettings = NotifySettings()
    web: WebSettings = WebSettings()
    log: LogSettings = LogSettings()
    force: bool = Field(False, description="start even if Redis may evict state")

    @model_validator(mode="after")
    def _check_batch_bytes(self) -> Settings:
        if self.kafka.max_batch_bytes < self.limits.record_bytes:
            raise ValueError("`kafka.max_batch_bytes` must be at least `limits.record_bytes`")
        return self

    @model_validator(mode="after")
    def _check_ttl(self) -> Settings:
        longest = max(w.length_us for w in self.metrics.window_specs()) // 1000
        if self.state.ttl_ms < longest:
            raise ValueError("`state.ttl` must be at least as long as the longest window")
        if self.state.ttl_ms < self.labels.delay_ms:
            raise ValueError("`state.ttl` must be at least as long as `labels.delay`")
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
        """The sources in order of precedence: flags, environment, file."""
        sources = [init_settings, env_settings, file_secret_settings]
        check_environment(settings_cls)
        path = os.environ.get("STREAM_METRICS_CONFIG")
        if path:
            if not Path(path).is_file():
                raise ValueError(f"STREAM_METRICS_CONFIG={path}: no such file")
            try:
                sources.append(TomlConfigSettingsSource(settings_cls, Path(path)))
            except ValueError as error:
                raise ValueError(f"{path}: this is not valid TOML: {error}") from None
        return tuple(sources)

    @model_validator(mode="after")
    def _check_bridge(self) -> Settings:
        kafka, bridge = self.kafka, self.bridge
        events = {*kafka.topics, kafka.output_topic, kafka.repartition_topic}
        if events & {bridge.topic, bridge.internal_topic}:
            raise ValueError("`bridge.topic` and `bridge.rekey_topic` must not hold events")
        if bridge.group_id == kafka.group_id:
            raise ValueError("`bridge.group_id` must not be `kafka.group_id`")
        return self

    @model_validator(mode="after")
    def _check_judge(self) -> Settings:
        if self.judge.group_id in (self.kafka.group_id, self.bridge.group_id):
            raise ValueError("`judge.group_id` must not be that of workers or bridges")
        if self.judge.budget_topic in (*self.kafka.topics, self.kafka.repartition_topic):
            raise ValueError("`judge.budget_topic` must not hold events")
        return self

    @property
    def bridge_kafka(self) -> KafkaSettings:
        """The bridge's Kafka settings: ``kafka`` with the topics and the group of ``bridge``."""
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
    def judge_kafka(self) -> KafkaSettings:
        """The judge's Kafka settings: ``kafka`` with the group of ``judge``."""
        group = {"group_id": self.judge.group_id, "group_instance_id": None, "output_topic": None}
        return self.kafka.model_copy(update={**group, "start": self.judge.start})

    @property
    def namespace(self) -> str:
        """The prefix of all keys in Redis."""
        return self.redis.namespace or self.kafka.group_id

    def in_one_process(self) -> Settings:
        """These settings, with the defaults of ``stream-metrics serve``: a file is near, so less
        has to be in memory, and traces tell every turn."""
        found = self
        for name, defaults in ONE_PROCESS.items():
            table = getattr(found, name)
            left = {key: v for key, v in defaults.items() if key not in table.model_fields_set}
            found = found.model_copy(update={name: table.model_copy(update=left)})
        return found

    def engine_config(self) -> EngineConfig:
        """The configuration of the engine."""
        return EngineConfig(
            dimension=self.metrics.dimension,
            good_gain=self.metrics.good_gain,
            gain_of_document=self.metrics.gain_of_document,
            retrieval=live_metrics(self.metrics.retrieval),
            labels=self.metrics.labels,
            model_labellers=self.labels.model_labellers,
            rules=self.dedup.rules(),
            limits=self.limits.in_force(),
        )

    def key_id(self) -> str:
        """An identifier of the digest key that does not reveal it; empty without a key."""
        key = self.state.key()
        return hashlib.blake2b(b"key id", key=key, digest_size=4).hexdigest() if key else ""

    def state_settings(self) -> dict[str, Any]:
        """The settings that affect the content of the state, by name; the digest key as its id."""
        parts = {
            "dedup": self.dedup.state_settings(),
            "limits": asdict(self.limits.in_force()),
            "metrics": self._metrics_settings(),
            "state": {"ttl": self.state.ttl, "digest_key": self.key_id()},
            "kafka": self._value_format(),
            "labels": self._model_labellers(),
        }
        return {f"{part}.{name}": v for part, values in parts.items() for name, v in values.items()}

    def _metrics_settings(self) -> dict[str, Any]:
        """Those of ``metrics``, without settings of later releases that are empty."""
        values = self.metrics.model_dump(mode="json", exclude={"turn_scope", "pools"})
        if values["labels"] == HUMAN_FIRST:
            del values["labels"]
        added = ("retrieval", "series_windows")
        return {name: value for name, value in values.items() if name not in added or value}

    def _model_labellers(self) -> dict[str, Any]:
        """Nothing without patterns, as in releases that do not tell models from people."""
        patterns = self.labels.model_labellers
        return {"model_labellers": list(patterns)} if patterns else {}

    def _value_format(self) -> dict[str, Any]:
        """Nothing for values that are plain JSON, as in releases that read no others."""
        found = self.kafka.value_format
        return {} if found == "json" else {"value_format": found}

    def with_kept_values(self, built: Mapping[str, int]) -> Settings:
        """These settings, with the values of ``built`` (by name) for settings that are None.

        If this release does not have the deduplication tables of the state, ``dedup.tables`` stays
        None, and the state is then refused because it was built with other settings.
        """
        found = self
        for name, value in built.items():
            part, _, key = name.partition(".")
            table = getattr(found, part)
            if getattr(table, key) is None and (name != "dedup.tables" or value in published()):
                found = found.model_copy(update={part: table.model_copy(update={key: value})})
        return found

    def fingerprint(self) -> str:
        """A digest of the settings that affect the content of the state.

        A setting that a later release adds is left out while its value keeps the earlier
        behaviour, because workers of both releases share the state during a rolling upgrade.
        """
        parts: dict[str, Any] = {
            "dedup": self.dedup.state_settings(),
            "limits": asdict(self.limits.in_force()),
            "metrics": self._metrics_settings(),
            "ttl": self.state.ttl,
            "key": self.key_id(),
        }
        parts |= self._value_format() | self._model_labellers()
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def masked_settings(settings: Settings) -> dict[str, Any]:
    """The settings as plain data, secrets and passwords in URLs masked."""
    data: dict[str, Any] = json.loads(settings.model_dump_json())
    data["redis"]["url"] = mask_url(settings.redis.url)
    return data


_MASK = "**********"
_URL = re.compile(
    r"(?P<scheme>rediss?://|unix://)(?:(?P<user>[^:@]*):.*@|(?P<userinfo>.*@))?"
    r"(?P<address>(?:[\w.-]+|\[[\w:.]+\])?(?::\d+)?(?:/\d*)?|/[^?#]*)(?:\?(?P<query>[^#]*))?"
)
_SHOWN_PARAMETERS = frozenset({"db", "protocol", "ssl_check_hostname", "ssl_cert_reqs"})


def mask_url(url: str) -> str:
    """A URL with its password masked, and everything else that may be secret.

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
    login = f"{found['user']}:{_MASK}@" if found["user"] is not None else ""
    login = f"{_MASK}@" if found["userinfo"] is not None else login
    query = "" if found["query"] is None else "?" + _masked_query(found["query"])
    return f"{found['scheme']}{login}{found['address']}{query}"


def _masked_query(query: str) -> str:
    pairs = (part.partition("=") for part in query.split("&"))
    return "&".join(
        f"{name}{equals}{value if name in _SHOWN_PARAMETERS else _MASK}" if equals else _MASK
        for name, equals, value in pairs
    )
