"""The rules of the page of one process: those of a worker without its servers, and of traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

from stream_metrics.cli.serving_traces import Traces
from stream_metrics.core.alerts.thresholds import LAG_SECONDS, LATE_SHARE, REFUSED_SHARE
from stream_metrics.live.page.bridge_rules import MINUTES, behind
from stream_metrics.live.page.rules import RULES, Rule

OF_SERVERS: Final = frozenset(
    ("redis", "kafka", "fetch", "rights", "topics", "memory", "partitions", "reading_stopped")
)
_LOOK: Final = "The page Traces names what is refused, and what helps."
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


def rules_over(folder: Path, traces: Callable[[], Traces]) -> list[Rule]:
    """The rules of a process over a folder, which reads ``traces``."""
    letters = f"stream-metrics dlq list --data {quote(str(folder))} says which records, and why."
    said = {**_SAID, "dead_letters": {"look": letters}}
    of_worker = [rule for rule in RULES if rule.name not in OF_SERVERS]
    return [
        *(replace(rule, **said.get(rule.name, {})) for rule in of_worker),
        Rule(
            "traces_refused",
            "Refused traces",
            "StreamMetricsBridgeRefuses",
            f"in {MINUTES} minutes, over {REFUSED_SHARE:.0%} of the traces of an agent are "
            f"refused, or over {LATE_SHARE:.0%} of the spans arrive too late",
            _LOOK,
            of_worker=lambda worker: traces().page.recent.of_refusals(worker),
        ),
        Rule(
            "traces_scopes",
            "Instrumentation to choose",
            "StreamMetricsBridgeScopes",
            "two instrumentations record the same searches of an agent, or otlp.scopes leaves out "
            "all of its traces",
            _LOOK,
            of_worker=lambda worker: traces().page.recent.of_scopes(worker),
        ),
        Rule(
            "traces_behind",
            "Traces behind",
            "StreamMetricsBridgeBehind",
            f"traces are read more than {LAG_SECONDS} s after they came",
            "Is there more traffic than one process can take, or is the disk slow?",
            of_worker=lambda _: behind(traces().lag_seconds()),
            differs="fires while reading waits, too, which is Writes refused here",
        ),
    ]
