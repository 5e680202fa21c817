"""Whether stored state is what this worker would build, and what to do if it is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, NamedTuple

from stream_metrics.dedup.tables import published, tables_text
from stream_metrics.engine.codec import SCHEMAS, schemas_text
from stream_metrics.ports import Identity

TABLES: Final = "dedup.tables"
TURNS: Final = "limits.turns_per_conversation"

# Settings whose change can be applied to stored state: to what is derived from the items (gains,
# windows, names), to what is done from now on (expiry), or to events that are yet to come (limits
# on one event, and more turns: conversations that had too many stay flagged). The others decide
# what was digested, compared or kept.
MIGRATABLE: Final = frozenset(
    {
        "limits.fields_per_result",
        "limits.ids_per_result",
        "limits.json_levels",
        "limits.labels_per_event",
        "limits.record_bytes",
        "limits.relevant_per_event",
        "limits.results_per_event",
        "limits.searches_per_event",
        TURNS,
        "limits.url_bytes",
        "limits.values_per_list",
        "metrics.agents",
        "metrics.gain_of_document",
        "metrics.good_gain",
        "metrics.retrieval",
        "metrics.routes",
        "metrics.windows",
        "state.ttl",
    }
)


# Settings that are taken from stored state where nobody has set them.
KEPT: Final = (TABLES, TURNS)

# What settings mean that stored state does not name, because the release that built it had no such
# setting, or leaves it out to stay readable for one that has not.
UNNAMED: Final[dict[str, Any]] = {
    TABLES: 1,
    TURNS: 100,
    "metrics.retrieval": [],
}


_KEY: Final = "state.digest_key"
_REBUILD: Final = (
    "`stream-metrics rebuild`, which wipes the state and reads the topics again, as far back as "
    "Kafka retains them"
)


class OtherIdentity(Exception):
    """The stored state was built for another group, by other settings or for other topics."""


class Change(NamedTuple):
    """A setting of the state, with the value that it was built with and the one in force."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name} was {json.dumps(self.before)}, is {json.dumps(self.after)}"


def changed_settings(stored: Identity, ours: Identity) -> list[Change]:
    """The settings that differ, by name; none where nobody noted what the state was built with."""
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
    """The settings in ``KEPT`` that state was built with, by name."""
    settings = json.loads(stored.settings or "{}")
    return {name: _value(settings, name) for name in KEPT}


def check_identity(stored: Identity | None, ours: Identity, partition: int) -> None:
    """Raise ``OtherIdentity``, which says what to do, unless ``stored`` is what we would build.

    Any schema that this release reads is accepted. Partition counts are compared only where
    ``ours`` has them: commands that only read the state need not know them.
    """
    if stored is None:
        return
    if not ours.partition_counts:
        ours = replace(ours, partition_counts=stored.partition_counts)
    where = f"state partition {partition} of group {ours.group!r}"
    if stored.schema_version not in SCHEMAS:
        raise OtherIdentity(
            f"{where} is stored in schema {stored.schema_version}, but this release reads "
            f"{schemas_text()}. Use the release that wrote it, or a later one; to go back to this "
            "release, stop all workers and, with that release, run `stream-metrics migrate` with "
            f"state.write_schema={SCHEMAS[-1]}"
        )
    if replace(stored, schema_version=ours.schema_version) == ours:
        return
    before, now = dict(stored.partition_counts), dict(ours.partition_counts)
    if before != now and before.keys().isdisjoint(now):
        raise OtherIdentity(
            f"{where} was built from {', '.join(before)}, but the worker now reads "
            f"{', '.join(now)}. If kafka.repartition_topic was added or removed, choose another "
            'kafka.group_id (docs/guides/partitions.md, "Producers that hash keys differently"). '
            "If producers write to other topics, stop all workers and run `stream-metrics reshard` "
            '("Changing partition counts"). Otherwise configure the topics that it was built from'
        )
    if before != now:
        raise OtherIdentity(
            f"{where} was built for {before} (topic: partitions), but they are {now} now, so a "
            "conversation's next records go to another partition than its state. Stop all "
            "workers and run `stream-metrics reshard` "
            '(docs/guides/partitions.md, "Changing partition counts"), or configure the topics '
            "that it was built for"
        )
    if stored.fingerprint != ours.fingerprint:
        raise OtherIdentity(f"{where} was built with other settings: {_way_out(stored, ours)}")
    raise OtherIdentity(
        f"{where} belongs to group {stored.group!r}, but this worker is in group {ours.group!r}. "
        "Use a separate namespace (redis.namespace) for each group"
    )


def _way_out(stored: Identity, ours: Identity) -> str:
    changes = changed_settings(stored, ours)
    listed = "; ".join(map(str, changes))
    if not changes:
        listed = f"fingerprint {stored.fingerprint}, now {ours.fingerprint}"
    if kept_settings(stored)[TABLES] not in published():
        return (
            f"{listed}. A newer release built it, but this release has only dedup.tables "
            f"{tables_text()}. Use that release, or a later one. Or stop all workers and run "
            f"{_REBUILD}"
        )
    same = (
        f"{listed}. Use the same settings as the workers, for example the environment file or the "
        "TOML file that they are started with"
    )
    # A command without the workers' key must not be told to wipe their state.
    if any(change.name == _KEY for change in changes):
        return (
            f"{same}: the digest key must be the one that the state was built with. If that key "
            'is lost, see docs/guides/operations.md, "Changing settings"'
        )
    if changes and all(change.name in MIGRATABLE for change in changes):
        command = "`stream-metrics migrate`, which applies the new settings to the state"
    else:
        command = _REBUILD
    return (
        f"{same}. Only if you want to change the settings of the state, stop all workers and run "
        f"{command}"
    )
