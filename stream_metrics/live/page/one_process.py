"""What the page of one process says beside the figures: how to connect an agent, what came, and
what its log keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stream_metrics.live.local.log import Kept
from stream_metrics.live.prometheus.receiver import Received

TOKEN: Final = "TOKEN"  # noqa: S105  # the variable with the token in the lines to copy

_PYTHON: Final = """\
from stream_metrics_client import Recorder

with (
    Recorder("{receiver}", agent="my-agent"{token}) as recorder,
    recorder.turn("conversation-1") as turn,
):
    for found in (["travel", "hotels"], ["travel", "trains"]):
        with turn.iteration() as step:
            step.search("tickets", [{{"doc_id": one}} for one in found])
"""
_CURL: Final = """\
curl {receiver}/v1/events {header}--data-binary '{{
  "type": "search_iteration", "event_id": "e-1", "agent": "my-agent",
  "occurred_at": "'$(date -u +%Y-%m-%dT%H:%M:%SZ)'",
  "conversation_id": "c-1", "turn": 1, "iteration": 1,
  "searches": [{{"search_id": "s-1", "results": [
    {{"result_id": "r-1", "doc_id": "travel"}},
    {{"result_id": "r-2", "doc_id": "travel"}}]}}]}}'
"""


def variables(receiver: str, *, token: bool = False) -> list[str]:
    """The environment variables with which an agent sends its traces."""
    lines = [
        f"OTEL_EXPORTER_OTLP_ENDPOINT={receiver}",
        "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    ]
    if token:
        lines.append(f"OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20${TOKEN}")
    return lines


def ways(receiver: str, *, token: bool = False) -> list[dict[str, str]]:
    """What connects an agent, each with lines to copy; with ``token``, senders need one, which the
    lines expect in a variable."""
    needs = f" It needs the token of serve.token_file, here in {TOKEN}." if token else ""
    header = f'--header "Authorization: Bearer ${TOKEN}" ' if token else ""
    argument = f', token=os.environ["{TOKEN}"]' if token else ""
    return [
        {
            "title": "An agent traced with OpenTelemetry",
            "about": f"Where the agent runs.{needs} A trace counts some seconds after its last "
            "span.",
            "text": "".join(f"export {line}\n" for line in variables(receiver, token=token)),
        },
        {
            "title": "A Python program",
            "about": f"With the client: pip install ./client in the repository.{needs} Of the four "
            "results of these two searches, one repeats another.",
            "text": ("import os\n\n" if token else "")
            + _PYTHON.format(receiver=receiver, token=argument),
        },
        {
            "title": "Any program",
            "about": f"One search as an event, in a shell.{needs} The second of its two results "
            "repeats the first.",
            "text": _CURL.format(receiver=receiver, header=header),
        },
    ]


def document(
    receiver: str,
    folder: str,
    received: Received,
    open_traces: int,
    kept: Kept | None,
    limits: Mapping[str, str],
    max_bytes: int,
    *,
    token: bool,
) -> dict[str, Any]:
    """What the page shows; ``limits`` are the ages at which the log deletes records, by topic.
    ``kept`` is None until it is known."""
    return {
        "folder": folder,
        "ways": ways(receiver, token=token),
        "received": {
            "events": received.events,
            "spans": received.spans,
            "refused": received.refused,
            "open_traces": open_traces,
        },
        "log": kept
        and {
            "records": [
                {
                    "topic": topic,
                    "kept_for": limit,
                    "records": kept.records.get(topic, 0),
                    "aged": kept.aged.get(topic, 0),
                    "crowded": kept.crowded.get(topic, 0),
                }
                for topic, limit in limits.items()
            ],
            "file_bytes": kept.file_bytes,
            "max_bytes": max_bytes,
        },
    }
