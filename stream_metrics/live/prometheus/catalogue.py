"""Names, label values and bucket bounds of the operational metrics, as data."""

from __future__ import annotations

from typing import Final

from stream_metrics.core.dedup.tables import type_names
from stream_metrics.core.engine.config import OTHER

PREFIX: Final = "streammetrics_"
KEY_KINDS: Final = ("id", "doc_id", "url", "snippet", "content", "title")
STAGES: Final = ("decode", "load", "step", "dead_letters", "output", "state", "commit")
ENTITY_TYPES: Final = (*type_names(), OTHER)
CONVERSATION_SOURCES: Final = ("cache", "store", "nowhere")  # where a batch finds a conversation
MAX_UNKNOWN_FIELDS: Final = 50  # with a series each
MAX_BUGS: Final = 20  # kinds with a series each

# Key of Observations.counts: name of the counter, help.
COUNTS: Final[dict[str, tuple[str, str]]] = {
    "empty": (
        "empty_events",
        "Valid events without content: no searches and no gate decision, or no label.",
    ),
    "stale": ("stale_events", "Events of a turn before the conversation's latest."),
    "expired": ("expired_events", "Events of an expired conversation, which starts anew."),
    "over_limit": ("over_limit", "Items rejected because the conversation or turn was full."),
    "version_conflicts": (
        "version_conflicts",
        "Items with the time and event id of an earlier item but other content.",
    ),
    "result_id_conflicts": (
        "result_id_conflicts",
        "Results with the result_id of an earlier result of the turn.",
    ),
    "gate_conflicts": ("gate_conflicts", "Searches in an iteration whose gate decided to skip."),
    "routing_labels_unrouted": (
        "routing_labels_unrouted",
        "Routing labels for searches without a route; they have no other effect.",
    ),
    "ground_truths_without_ids": (
        "ground_truths_without_ids",
        "Ground truths that nothing can be compared with: no result of the turn has a doc_id.",
    ),
    "labels_waiting": ("labels_waiting", "Labels that arrived before their result."),
    "labels_found": ("labels_found", "Early labels whose result then arrived."),
    "labels_revised": ("labels_revised", "Labels that replaced an earlier one."),
    "labels_superseded": (
        "labels_superseded",
        "Labels without effect, because a later label of the same result had arrived.",
    ),
    "labels_orphan": ("labels_orphan", "Labels that expired before their result arrived."),
    "label_conflicts": (
        "label_conflicts",
        "Documents whose occurrences have different labels.",
    ),
    "urls_unparsed": (
        "urls_unparsed",
        "Results with an invalid URL, which is ignored.",
    ),
    "partitioner_mismatches": (
        "partitioner_mismatch",
        "New conversations on another partition than Kafka's default partitioner would choose.",
    ),
    "derived_anew": (
        "turns_derived_anew",
        "Turns derived anew because an event changed their past.",
    ),
    "agents_beyond_limit": (
        "agents_beyond_limit",
        "Iterations and turns counted under other because of the limit on agents or releases.",
    ),
    "routes_beyond_limit": (
        "routes_beyond_limit",
        "Iterations with a route counted under other because of the limit on routes.",
    ),
}

DELAY_BOUNDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)
LATENCY_BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
STAGE_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_BOUNDS: Final = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0, 900.0, 2_000.0)
