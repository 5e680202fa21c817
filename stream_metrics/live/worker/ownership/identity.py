"""Compares the identity of stored state with a worker's, and says what to do if they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from stream_metrics.core.dedup.tables import published, tables_text
from stream_metrics.core.engine.codec import SCHEMAS, schemas_text
from stream_metrics.core.metrics.labels import HUMAN_FIRST
from stream_metrics.live.layout import Identity

TABLES: Final = "dedup.tables"
TURNS: Final = "limits.turns_per_conversation"
VALUE_FORMAT: Final = "kafka.value_format"

# Settings whose default is the value that the stored state was built with.
KEPT: Final = (TABLES, TURNS)

# The values of settings that stored state does not list: the release that built it did not have the
# setting, or omits it for compatibility with releases that do not.
UNNAMED: Final[dict[str, Any]] = {
    TABLES: 1,
    TURNS: 100,
    VALUE_FORMAT: "json",
    "metrics.retrieval": [],
    "metrics.series_windows": {},
    "metrics.labels": HUMAN_FIRST,
    "labels.model_labellers": [],
}

_KEY: Final = "state.digest_key"
BUILD: Final = "`stream-metrics build`, which builds the state anew beside the one in force"


class OtherIdentity(Exception):
    """The stored state was built for another group, with other settings or for other topics."""


class Change(NamedTuple):
    """A setting with the value that the state was built with and the configured one."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name} was {json.dumps(self.before)}, is {json.dumps(self.after)}"


def changed_settings(stored: Identity, ours: Identity) -> list[Change]:
    """The settings that differ, by name; none if the settings of either are not known."""
    if stored.fingerprint == ours.fingerprint or not (stored.settings and ours.settings):
        return []
    before, after = json.loads(stored.settings), json.loads(ours.settings)
    return [
        Change(name, _value(before, name), _value(after, name))
        for name in sorted({*before, *after})
        if _value(before, name) != _value(after, name)
    ]


def _value(settings: dict[str, Any], name: str) -> Any:
    return settings.get(name, UNNAMED.get(name))


def kept_settings(stored: Identity) -> dict[str, int]:
    """The values of the settings in ``KEPT`` that state was built with, by name."""
    settings = json.loads(stored.settings or "{}")
    return {name: _value(settings, name) for name in KEPT}


def check_identity(stored: Identity, ours: Identity) -> None:
    """Raise ``OtherIdentity``, which says what to do, unless ``stored`` matches ``ours``.

    Any schema that this release reads is accepted. Topics are compared only if ``ours`` has any:
    commands that only read the state need not know them. Partition counts are not compared here
    (see ``other_counts``).
    """
    where = f"the state of group {ours.group!r}"
    if stored.schema_version not in SCHEMAS:
        raise OtherIdentity(
            f"{where} is stored in schema {stored.schema_version}, but this release reads "
            f"{schemas_text()}. Use the release that wrote it, or a later one; to go back to this "
            "release, run `stream-metrics build` of that release with "
            f"state.write_schema={SCHEMAS[-1]}"
        )
    if stored.group != ours.group:
        raise OtherIdentity(
            f"the state belongs to group {stored.group!r}, but this worker is in group "
            f"{ours.group!r}. Use a separate namespace (redis.namespace) for each group"
        )
    before, now = stored.partition_counts.keys(), ours.partition_counts.keys()
    if now and before != now:
        raise OtherIdentity(
            f"{where} was built from {', '.join(before)}, but the worker now reads "
            f"{', '.join(now)}. Configure the topics that it was built from, or run {BUILD}"
        )
    if stored.fingerprint != ours.fingerprint:
        raise OtherIdentity(f"{where} was built with other settings: {_way_out(stored, ours)}")


def other_counts(stored: Identity, counts: Mapping[str, int]) -> str:
    """A message if the topics' partition counts are not those of the state; empty if they are."""
    before = dict(stored.partition_counts)
    if before == counts:
        return ""
    return (
        f"the state was built for {before} (topic: partitions), but they are {dict(counts)} now, "
        "so a conversation's next records go to another partition than its state. Reading has "
        f"stopped, and figures do not change. Run {BUILD}, with kafka.repartition_topic "
        '(docs/guides/partitions.md, "Changing partition counts")'
    )


def _way_out(stored: Identity, ours: Identity) -> str:
    changes = changed_settings(stored, ours)
    listed = "; ".join(map(str, changes))
    if not changes:
        listed = f"fingerprint {stored.fingerprint}, now {ours.fingerprint}"
    if kept_settings(stored)[TABLES] not in published():
        return (
            f"{listed}. A newer release built it, but this release has only dedup.tables "
            f"{tables_text()}. Use that release, or a later one. Or run {BUILD}"
        )
    same = (
        f"{listed}. Use the same settings as the workers, for example the environment file or the "
        "TOML file that they are started with"
    )
    # A command that lacks the workers' key must not be told to build their state anew.
    if any(change.name == _KEY for change in changes):
        return (
            f"{same}: the digest key must be the one that the state was built with. If that key "
            'is lost, see docs/guides/operations.md, "Changing settings"'
        )
    return f"{same}. To change the settings of the state, run {BUILD}"
