"""The rules of the page of one process: those of a worker without its servers, and of traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

from stream_metrics.core.alerts.thresholds import REFUSED_SHARE
from stream_metrics.live.page.rules import RULES, Rule
from stream_metrics.live.page.worker_rules import WorkerRule

OF_SERVERS: Final = frozenset(
    ("redis", "kafka", "fetch", "rights", "topics", "memory", "partitions", "reading_stopped")
)
_SAID: Final[Mapping[str, Mapping[str, Any]]] = {
    "writes": {
        "fires": "events and traces have not been accepted, or what they become not been stored, "
        "for two minutes, because the disk is full or too many wait to be read",
        "look": "Is there room on the disk? Does this machine keep up with what is sent?",
    },
    "offset_gaps": {
        "fires": "the log no longer has records that the state needs, or reading is halted",
        "look": "docs/guides/troubleshooting.md says what to do about what is halted.",
    },
    "not_ready": {"fires": "the process has not begun to read for ten minutes"},
    "no_progress": {
        "fires": "the process answers requests but makes no progress",
        "look": "Restart it. The end of its log says what is stuck.",
    },
    "lag": {
        "title": "Lag",
        "fires": "reading is 2 minutes behind and falling further behind, or 15 minutes behind and "
        "hardly catching up",
        "look": "Is there more traffic than one process can take, or is the disk slow?",
    },
    "labels_missing": {"look": "Is the labeller up, and does it send here?"},
}


def rules_over(folder: Path, refused: WorkerRule) -> list[Rule]:
    """The rules of a process over a folder; ``refused`` finds what is refused of traces."""
    letters = f"stream-metrics dlq list --data {quote(str(folder))} says which records, and why."
    said = {**_SAID, "dead_letters": {"look": letters}}
    of_worker = [rule for rule in RULES if rule.name not in OF_SERVERS]
    return [
        *(replace(rule, **said.get(rule.name, {})) for rule in of_worker),
        Rule(
            "traces_refused",
            "Refused traces",
            "StreamMetricsBridgeRefuses",
            f"over {REFUSED_SHARE:.0%} of the traces of an agent were refused since the start",
            "The page Traces names what was refused, and what helps.",
            of_worker=refused,
            differs="goes by the last 15 minutes, and by late spans, too",
        ),
    ]
