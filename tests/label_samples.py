"""Generated traffic whose conversations are in random samples of people and of a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final
from zlib import crc32

from stream_metrics.lab.traffic import TrafficRecord

_SEARCHES: Final = b'{"type":"search_iteration",'
_LABELS: Final = b'{"type":"relevance_labels",'
_KINDER: Final = 3  # of so many labels below the best, a model gives one a higher gain


def in_samples(records: Iterable[TrafficRecord]) -> Iterator[TrafficRecord]:
    """The records, with labels by people and a model for every third conversation, by the model
    alone for another third, and by people who chose what they label for the rest.

    Turns in a sample are labelled whole, and the model is too kind.
    """
    for record in records:
        part = crc32(record.key or b"") % 3
        if not record.valid or part == 2:
            yield record
        elif not record.value.startswith(_LABELS):
            yield record
            if record.value.startswith(_SEARCHES):
                event = json.loads(record.value)
                for source in ("human", "model") if part == 0 else ("model",):
                    labels = json.dumps(_labelled(event, source)).encode()
                    yield record._replace(value=labels)


def _labelled(event: dict[str, Any], source: str) -> dict[str, Any]:
    """The labels of a source for all results of an iteration."""
    gains = {
        result["result_id"]: _gain(event["conversation_id"], result, source)
        for search in event["searches"]
        for result in search["results"]
    }
    return {
        "type": "relevance_labels",
        "event_id": f"{event['event_id']}-{source}",
        "source": source,
        "sample": "random",
        "labels": [{"result_id": name, "gain": gain} for name, gain in gains.items()],
        **{name: event[name] for name in ("occurred_at", "conversation_id", "turn")},
    }


def _gain(conversation: str, result: dict[str, Any], source: str) -> int:
    """What a source says of a document: people are the kinder, the better a conversation is."""
    document = crc32(f"{conversation} {result.get('doc_id') or result['title']}".encode())
    gain = min(4, document % (2 + crc32(conversation.encode()) % 4))
    return gain + 1 if source == "model" and gain < 4 and document % _KINDER == 0 else gain
