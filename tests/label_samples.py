"""Generated traffic whose conversations are in random samples of people and of a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final
from zlib import crc32

from stream_metrics.lab.traffic import TrafficRecord

_HEAD: Final = b'{"type":"relevance_labels",'
_KINDER: Final = 3  # of so many labels below the best, a model gives one a higher gain


def in_samples(records: Iterable[TrafficRecord]) -> Iterator[TrafficRecord]:
    """The records, with labels by people and a model for every third conversation, by the model
    alone for another third, and by people who chose what they label for the rest.

    The model is too kind. What is invalid or no label stays as it is.
    """
    for record in records:
        part = crc32(record.key or b"") % 3
        if not record.valid or not record.value.startswith(_HEAD) or part == 2:
            yield record
            continue
        event = json.loads(record.value)
        if part == 0:
            by_people = {**event, "source": "human", "sample": "random"}
            yield record._replace(value=json.dumps(by_people).encode())
        yield record._replace(value=json.dumps(_by_model(event)).encode())


def _by_model(event: dict[str, Any]) -> dict[str, Any]:
    labels = [
        {**label, "gain": _kinder(label["result_id"], label.get("gain"))}
        for label in event.get("labels", [])
    ]
    judged = {**event, "labels": labels, "source": "model", "sample": "random"}
    return {**judged, "event_id": f"{event['event_id']}-judged"}


def _kinder(result_id: str, gain: int | None) -> int | None:
    if gain is None or gain >= 4 or crc32(result_id.encode()) % _KINDER:
        return gain
    return gain + 1
