"""A replay of OTLP traces does not depend on encoding, batches or order."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.core.events import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.settings import OtlpSettings
from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES
from stream_metrics.lab.sources.otlp.traces import TraceStore
from tests.helpers import examples
from tests.otlp import (
    RETRIEVAL,
    RETRIEVER,
    SpanSpec,
    as_json,
    as_protobuf,
    documents,
    framed,
    in_base64,
)
from tests.replays import AT_ONCE, IN_PARTS, replayed

IDS: list[str | int] = ["a", "b", "c", 7]
FOUND = st.lists(st.sampled_from(IDS), max_size=3)


@st.composite
def attributes(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes of a span of any kind, valid or not."""
    found: dict[str, Any] = {}
    match draw(st.sampled_from(["openinference", "genai", "silent", "other"])):
        case "openinference":
            found |= {**RETRIEVER, **documents(*draw(FOUND), content="some text that is found")}
        case "genai":
            listed: Any = [{"id": str(one), "score": 0.5} for one in draw(FOUND)]
            text = draw(st.booleans())
            found |= {
                **RETRIEVAL,
                "gen_ai.retrieval.documents": json.dumps(listed) if text else listed,
            }
        case "silent":
            found |= RETRIEVAL
    for name, values in (("session.id", ["s", "t", 5]), ("agent.name", ["x", "y" * 65])):
        value = draw(st.none() | st.sampled_from(values))
        if value is not None:
            found[name] = value
    return found


@st.composite
def traces(draw: st.DrawFn) -> list[SpanSpec]:
    """Spans of some traces; ids repeat, and parents may be missing or form a cycle."""
    few, moments = st.integers(0, 3), st.integers(0, 9)
    return draw(
        st.lists(
            st.builds(
                SpanSpec,
                trace=few,
                span=st.integers(0, 6),
                parent=st.integers(0, 6),
                start_ms=moments,
                end_ms=moments,
                attributes=attributes(),
                resource=st.sampled_from([{}, {"service.version": "1"}]),
                failed=st.booleans(),
            ),
            max_size=14,
        )
    )


def written(spans: Sequence[SpanSpec], cuts: Sequence[int], how: str) -> bytes:
    """A file of these spans; ``cuts`` are the payloads' numbers of spans."""
    batches: list[Sequence[SpanSpec]] = []
    at = 0
    while at < len(spans):
        size = cuts[len(batches) % len(cuts)]
        batches.append(spans[at : at + size])
        at += size
    match how:
        case "json":
            return b"".join(as_json(batch) + b"\n" for batch in batches)
        case "base64":
            return b"".join(as_json(batch, in_base64) + b"\n" for batch in batches)
        case _:
            return framed([as_protobuf(batch) for batch in batches])


def read(data: bytes, folder: str) -> list[Record]:
    """The records of a file."""
    path = Path(folder, "traces")
    path.write_bytes(data)
    try:
        return list(Sources([str(path)], Settings(), "earliest", "end").records())
    except UsageError as error:
        assert "can be used" in str(error)  # noqa: PT017
        return []


@settings(max_examples=examples(60))
@given(traces(), st.data())
def test_reports_do_not_depend_on_the_arrival_of_traces(
    spans: list[SpanSpec], data: st.DataObject
) -> None:
    """JSON and protobuf, with any batches, order and repetition, give the same files."""
    again = data.draw(st.lists(st.sampled_from(spans), max_size=4)) if spans else []
    shuffled = data.draw(st.permutations([*spans, *again]))
    cuts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    how = data.draw(st.sampled_from(["json", "base64", "protobuf"]))

    with tempfile.TemporaryDirectory() as folder:
        expected = read(written(spans, [len(spans) or 1], "json"), folder)
        found = read(written(shuffled, cuts, how), folder)

        assert found == expected
        assert replayed(found, Path(folder, "a"), IN_PARTS) == replayed(
            expected, Path(folder, "b"), AT_ONCE
        )


@settings(max_examples=examples(60))
@given(traces())
def test_every_span_is_accounted_for(spans: list[SpanSpec]) -> None:
    """Each span is used or counted as repeated, and no event is refused later."""
    with TraceStore(OtlpSettings().mapping(), OtlpSettings().options(NO_GRADES), Limits()) as kept:
        kept.add_payload(as_json(spans))
        records = list(kept.records())
    counts = kept.counts

    assert counts.spans == len(spans)
    assert sum(counts.kinds.values()) + counts.repeated + counts.refused.get("bad_id", 0) == len(
        spans
    )
    assert len(records) >= counts.searches + counts.skipped
    assert counts.rejected == 0
