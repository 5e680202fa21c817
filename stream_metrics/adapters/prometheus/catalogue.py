"""Names, label values and bucket bounds of the operational metrics, as data."""

from __future__ import annotations

from typing import Final

from stream_metrics.dedup.tables import type_names
from stream_metrics.engine.config import OTHER

PREFIX: Final = "streammetrics_"
OUTCOMES: Final = ("applied", "redelivered", "superseded", "forgotten", "over_limit")
KEY_KINDS: Final = ("id", "doc_id", "url", "snippet", "content", "title")
STAGES: Final = ("decode", "load", "step", "dead_letters", "output", "state", "commit")
ENTITY_TYPES: Final = (*type_names(), OTHER)
FOUND: Final = ("cache", "store", "nowhere")  # where a batch finds a conversation
OBSTACLES: Final = (
    "assignment", "dead_letters", "fetch", "halted", "kafka", "loop", "output", "redis",
    "repartition_topic", "rights", "topics", "watchdog", OTHER,
)  # fmt: skip
MOST_FIELDS: Final = 50  # unknown fields that have series of their own

# Key of Observations.counts: name of the counter, help.
COUNTS: Final[dict[str, tuple[str, str]]] = {
    "empty": (
        "empty_events",
        "Valid events that say nothing: neither searches nor a gate decision, or no label at all.",
    ),
    "stale": ("stale_events", "Events of a turn below the conversation's highest."),
    "expired": ("expired_events", "Events of a conversation that had expired; it starts afresh."),
    "over_limit": ("over_limit", "Items refused because the conversation or turn was full."),
    "version_conflicts": (
        "version_conflicts",
        "Items sent under a time and event id that another content already had.",
    ),
    "result_id_conflicts": (
        "result_id_conflicts",
        "Results whose result_id an earlier result of the turn already held.",
    ),
    "gate_conflicts": ("gate_conflicts", "Searches of an iteration whose gate says skip."),
    "routing_labels_unrouted": (
        "routing_labels_unrouted",
        "Routing labels of searches that took no route; they count nowhere else.",
    ),
    "labels_waiting": ("labels_waiting", "Labels that came before the result they name."),
    "labels_found": ("labels_found", "Labels that waited, and whose result came."),
    "labels_revised": ("labels_revised", "Labels that replaced an earlier one."),
    "labels_orphan": ("labels_orphan", "Labels whose result had not come when they expired."),
    "label_conflicts": (
        "label_conflicts",
        "Documents whose occurrences came to be labelled differently.",
    ),
    "urls_unparsed": (
        "urls_unparsed",
        "Results whose URL could not be parsed; it counts as absent.",
    ),
    "partitioner_mismatches": (
        "partitioner_mismatch",
        "New conversations on another partition than Kafka's default partitioner chooses.",
    ),
    "rebuilds": ("rebuilds", "Turns derived anew because an event changed their past."),
    "agents_beyond_limit": (
        "agents_beyond_limit",
        "Iterations and turns of agents (or releases) that are other because places are taken.",
    ),
    "routes_beyond_limit": (
        "routes_beyond_limit",
        "Iterations with a route that is other because places are taken.",
    ),
}

DELAY_BOUNDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)
LATENCY_BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
STAGE_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_BOUNDS: Final = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0, 900.0, 2_000.0)
