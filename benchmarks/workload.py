"""The workload: seeded traffic, and plain events of a chosen size."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Any

from aiokafka.partitioner import DefaultPartitioner

from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate

EVENTS, LABELS = "search-iterations", "relevance-labels"
TOPICS = {"events": EVENTS, "labels": LABELS}
SEED = 8
RECORDS_PER_CONVERSATION = 12
SPAN_SECONDS = 3600
TAIL_SECONDS = 1800  # the last labels come so long after the last conversation began


@dataclass(frozen=True, slots=True)
class Traffic:
    """Records in arrival order, and the number of their results."""

    records: list[TrafficRecord]

    @property
    def bytes(self) -> int:
        """The size of all values."""
        return sum(len(record.value) for record in self.records)

    def describe(self) -> str:
        """A line for the report."""
        parts = []
        for stream in TOPICS:
            sizes = [len(r.value) for r in self.records if r.stream == stream]
            parts.append(f"{len(sizes):,} on {stream} of {sum(sizes) / len(sizes):,.0f} B")
        return f"{len(self.records):,} records: {', '.join(parts)}"


def traffic(
    records: int, per_conversation: int = RECORDS_PER_CONVERSATION, **shape: Any
) -> Traffic:
    """Seeded traffic of this number of records, which ended shortly before now.

    ``shape`` overrides defaults of the profile. There are enough conversations if each has
    ``per_conversation`` records.

    Except for times, the content is the same in every run. Times must be recent, because state
    expires by record time.
    """
    conversations = records // per_conversation + 200
    start = int(time.time()) - SPAN_SECONDS - TAIL_SECONDS
    profile = TrafficProfile(
        **{
            "seed": SEED,
            "conversations": conversations,
            "start": start,
            "duration_seconds": SPAN_SECONDS,
            **shape,
        }
    )
    return Traffic(list(islice(generate(profile), records)))


def partition_for(key: bytes, partitions: int) -> int:
    """Where producers put a record with this key."""
    number: int = DefaultPartitioner()(key, range(partitions), ())
    return number


def unending(sent: Traffic) -> Iterator[TrafficRecord]:
    """The records, repeated endlessly with new conversations, so that none is a duplicate."""
    yield from sent.records
    for serial in count(1):
        for record in sent.records:
            old = record.key or b""
            new = b"%b.%d" % (old, serial)
            value = record.value.replace(b'"%b"' % old, b'"%b"' % new, 1) if old else record.value
            yield record._replace(key=record.key and new, value=value)


def as_records(sent: Sequence[TrafficRecord], partitions: int = 1) -> list[Record]:
    """The records as a consumer returns them."""
    offsets: dict[tuple[str, int], int] = {}
    records = []
    for record in sent:
        topic = TOPICS[record.stream]
        number = partition_for(record.key or b"", partitions) if partitions > 1 else 0
        offset = offsets.get((topic, number), 0)
        offsets[topic, number] = offset + 1
        records.append(Record(record.value, record.key, record.timestamp_ms, topic, number, offset))
    return records


class Plain:
    """Events of one shape each, for costs that depend on one thing only; ``seed`` varies texts."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(f"plain/{seed}")
        self._offsets = {EVENTS: 0, LABELS: 0}
        self._now = int(time.time()) - SPAN_SECONDS

    def result(self, number: int, *, title: str = "", further: int = 0) -> dict[str, Any]:
        """A result with one id, URL, title and snippet, and ``further`` values of another id."""
        chance = self._random
        name = f"{chance.getrandbits(48):012x}"
        made: dict[str, Any] = {
            "result_id": f"t1r{number}",
            "doc_id": f"doc-{name}",
            "url": f"https://files.example/sites/{name[:4]}/pages/{name[4:]}",
            "title": title or f"Travel form {name[:6]} for the year {name[6:]}",
            "snippet": f"Since {name} the rule is another one: the manager signs first, "
            f"then {chance.getrandbits(32):08x} goes to the shared inbox.",
        }
        if further:
            values = [f"{chance.getrandbits(60):015x}" for _ in range(further)]
            made["ids"] = {"version_id": values}
        return made

    def titled(self, number: int, title: str) -> dict[str, Any]:
        """A result whose title is its only candidate key, and whose snippet is unique."""
        made = self.result(number, title=title)
        return {name: made[name] for name in ("result_id", "title", "snippet")}

    def search(
        self,
        conversation: str,
        iteration: int,
        results: Sequence[dict[str, Any]],
        serial: int = 1,
        agent: str = "it-desk",
    ) -> Record:
        """A search iteration with one search."""
        searches = [
            {
                "search_id": f"t1s{iteration}.{serial}",
                "query": "travel form for this year",
                "routing": {"selected": "files", "scores": {"files": 0.7, "mail": 0.2}},
                "results": list(results),
            }
        ]
        event = {"agent": agent, "iteration": iteration, "searches": searches}
        return self._record(EVENTS, "search_iteration", conversation, event)

    def labels(self, conversation: str, numbers: Sequence[int]) -> Record:
        """Labels for the results of these numbers."""
        labels = [
            {"result_id": f"t1r{number}", "gain": self._random.randrange(5)} for number in numbers
        ]
        return self._record(LABELS, "relevance_labels", conversation, {"labels": labels})

    def _record(self, topic: str, kind: str, conversation: str, event: dict[str, Any]) -> Record:
        offset = self._offsets[topic]
        self._offsets[topic] = offset + 1
        occurred = self._now + offset * 0.001
        envelope = {
            "type": kind,
            "event_id": f"{conversation}.{kind[0]}{offset}",
            "occurred_at": occurred,
            "conversation_id": conversation,
            "turn": 1,
        }
        value = json.dumps(envelope | event, separators=(",", ":")).encode()
        return Record(value, conversation.encode(), int(occurred * 1000), topic, 0, offset)
