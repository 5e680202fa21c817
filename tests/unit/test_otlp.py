"""OTLP traces: how spans are read, which of them are searches, and which events these become."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.core.events import Limits, decode
from stream_metrics.core.events.decode import Event
from stream_metrics.core.events.record import Record
from stream_metrics.core.settings import OtlpRow, OtlpSettings
from stream_metrics.core.telemetry import Link, Role
from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES
from stream_metrics.core.telemetry.otlp.payloads import is_payload, spans_of
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.files import read_records
from stream_metrics.lab.sources.otlp.traces import TraceCounts, TraceStore
from stream_metrics.lab.sources.packing import open_packed
from stream_metrics.lab.sources.unchanged import InputError
from tests.helpers import ran
from tests.otlp import (
    RETRIEVAL,
    RETRIEVER,
    START_NS,
    SpanSpec,
    as_json,
    as_protobuf,
    document,
    documents,
    framed,
    in_base64,
)

EventValue = dict[str, Any]


def taken(
    spans: Iterable[SpanSpec], settings: OtlpSettings | None = None
) -> tuple[list[Record], TraceCounts]:
    """The records of spans in one payload, and the counts."""
    chosen = Settings(otlp=settings or OtlpSettings())
    with TraceStore(
        chosen.otlp.mapping(), chosen.otlp.options(chosen.labels.grading), Limits()
    ) as traces:
        traces.add_payload(as_json(spans))
        return list(traces.records()), traces.counts


def events(spans: Iterable[SpanSpec], settings: OtlpSettings | None = None) -> list[EventValue]:
    """The events of spans, in the order of their start."""
    records, _ = taken(spans, settings)
    return [json.loads(record.value or b"") for record in records]


def search(trace: int, span: int, start_ms: int = 0, end_ms: int = 1, **others: Any) -> SpanSpec:
    """An OpenInference retrieval that found the document ``d``."""
    attributes = {**RETRIEVER, **documents("d"), **others.pop("attributes", {})}
    return SpanSpec(trace, span, start_ms=start_ms, end_ms=end_ms, attributes=attributes, **others)


def test_a_retriever_of_openinference_is_a_search() -> None:
    """Query, documents in order, ids, texts, scores and metadata become an event."""
    metadata = json.dumps({"source": "https://example.org/a", "title": "A", "page": 3})
    [record], counts = taken(
        [
            SpanSpec(
                0xAB,
                0xCD,
                start_ms=1_500,
                end_ms=1_600,
                attributes={
                    **RETRIEVER,
                    "session.id": "s-1",
                    "agent.name": "helper",
                    "input.value": "where?",
                    "retrieval.documents.1.document.id": 7,
                    "retrieval.documents.0.document.id": "a",
                    "retrieval.documents.0.document.content": "some text",
                    "retrieval.documents.0.document.score": 0.5,
                    "retrieval.documents.0.document.metadata": metadata,
                },
                resource={"service.version": "1.2"},
            )
        ]
    )

    assert json.loads(record.value or b"") == {
        "type": "search_iteration",
        "event_id": "000000000000000000000000000000ab:00000000000000cd:search_iteration",
        "occurred_at": "2024-06-10T12:00:01.500000Z",
        "conversation_id": "s-1",
        "turn": START_NS // 1000 + 1_500_000,
        "agent": "helper",
        "release": "1.2",
        "iteration": 1,
        "searches": [
            {
                "search_id": "00000000000000cd",
                "ordinal": 0,
                "query": "where?",
                "routing": {"selected": "a span"},
                "results": [
                    {
                        "result_id": "00000000000000cd/1",
                        "doc_id": "a",
                        "url": "https://example.org/a",
                        "title": "A",
                        "content": "some text",
                        "score": 0.5,
                    },
                    {"result_id": "00000000000000cd/2", "doc_id": "7"},
                ],
            }
        ],
    }
    assert (record.key, record.timestamp_ms) == (b"s-1", START_NS // 1_000_000 + 1_500)
    assert isinstance(decode(record.value, key=record.key, limits=Limits()), Event)
    assert (counts.spans, counts.searches, counts.rejected) == (1, 1, 0)


@pytest.mark.parametrize(
    "value",
    [
        '[{"id": "a", "score": 0.95}, {"id": "b", "score": 1}]',
        [{"id": "a", "score": 0.95}, {"id": "b", "score": 1}],
    ],
)
def test_a_retrieval_of_genai_is_a_search(value: Any) -> None:
    """Its documents may be structured values or JSON."""
    attributes = {
        **RETRIEVAL,
        "gen_ai.conversation.id": "c-1",
        "gen_ai.agent.name": "helper",
        "gen_ai.retrieval.query.text": "where?",
        "gen_ai.retrieval.documents": value,
    }

    [event] = events([SpanSpec(1, 2, attributes=attributes)])

    assert (event["conversation_id"], event["agent"]) == ("c-1", "helper")
    [found] = event["searches"]
    assert found["query"] == "where?"
    assert [(one["doc_id"], one["score"]) for one in found["results"]] == [("a", 0.95), ("b", 1)]


def test_documents_may_be_in_an_event_of_the_span() -> None:
    """Content in span events is read like content in attributes."""
    found = document([SpanSpec(1, 2, attributes=RETRIEVAL)])
    span = found["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    value = {"stringValue": '[{"id": "a"}]'}
    span["events"] = [{"attributes": [{"key": "gen_ai.retrieval.documents", "value": value}]}]

    with TraceStore(
        OtlpSettings().mapping(), OtlpSettings().options(NO_GRADES), Limits()
    ) as traces:
        traces.add_payload(json.dumps(found).encode())
        [record] = traces.records()

    assert json.loads(record.value or b"")["searches"][0]["results"][0]["doc_id"] == "a"


def test_hexadecimal_and_base64_ids_are_the_same_ids() -> None:
    """OTLP writes ids in hexadecimal; senders that use protobuf's JSON mapping write base64."""
    made = [SpanSpec(2**127 + 1, 2**63 + 5, parent=9, attributes=RETRIEVER)]

    upper = as_json(made, lambda value: value.hex().upper())

    assert spans_of(as_json(made, in_base64)) == spans_of(as_json(made)) == spans_of(upper)
    assert spans_of(as_json(made))[0].span_id == "8000000000000005"


def test_json_and_protobuf_give_the_same_spans() -> None:
    """Every kind of value is equal, as are times, statuses and resources."""
    every = {"t": "text", "b": True, "i": -(2**62), "d": 0.1, "l": [1, "a", [2.5]], "y": b"\xff"}
    made = [
        SpanSpec(1, 2, 3, 4, 5, {**every, "m": {"x": {"y": False}}}, {"r": 1}),
        SpanSpec(1, 3, failed=True),
    ]

    assert spans_of(as_protobuf(made)) == spans_of(as_json(made))


def test_an_export_request_is_read_like_traces_data() -> None:
    """The Kafka exporter's message has the same bytes under another name."""
    request = ExportTraceServiceRequest.FromString(as_protobuf([search(1, 2)]))

    assert spans_of(request.SerializeToString()) == spans_of(as_json([search(1, 2)]))


def test_numbers_may_be_written_as_numbers() -> None:
    """Some senders write 64-bit integers as JSON numbers, and enumerations by name."""
    found = document([SpanSpec(1, 2, start_ms=3, attributes={"i": 7}, failed=True)])
    span = found["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["startTimeUnixNano"] = int(span["startTimeUnixNano"])
    span["attributes"][0]["value"] = {"intValue": 7}
    span["status"] = {"code": "STATUS_CODE_ERROR"}

    assert spans_of(json.dumps(found).encode()) == spans_of(
        as_json([SpanSpec(1, 2, start_ms=3, attributes={"i": 7}, failed=True)])
    )


def test_a_trace_without_a_conversation_is_its_own_conversation() -> None:
    """Its trace id becomes the conversation, and such turns are counted."""
    named = search(0xDEF, 4, attributes={"session.id": "c-1"})
    records, counts = taken([search(0xABC, 3), named])

    conversations = {json.loads(record.value or b"")["conversation_id"] for record in records}
    assert (conversations, counts.unnamed) == ({f"{0xABC:032x}", "c-1"}, 1)


def test_concurrent_searches_are_one_iteration() -> None:
    """The next iteration begins with the first search that starts after one has ended."""
    times = [(0, 10), (1, 5), (4, 20), (5, 6), (7, 7), (7, 7)]
    made = [search(1, n, start, end) for n, (start, end) in enumerate(times, 1)]

    found = [(one["iteration"], one["searches"][0]["ordinal"]) for one in events(reversed(made))]

    assert found == [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (4, 0)]


def test_a_span_that_never_ended_is_no_longer_than_its_start() -> None:
    """A missing end does not draw later searches into the iteration."""
    made = [replace(search(1, 1, 5), end_ms=-START_NS // 1_000_000), search(1, 2, 5)]

    assert [one["iteration"] for one in events(made)] == [1, 2]


def test_traces_are_turns_numbered_by_their_starts() -> None:
    """The number of a turn does not depend on other traces."""
    of_session = {"session.id": "s"}
    made = [
        search(3, 1, start_ms=20, attributes=of_session),
        SpanSpec(1, 9, start_ms=5, attributes=of_session),
        search(1, 1, start_ms=30, attributes=of_session),
    ]

    start_us = START_NS // 1000
    assert [(one["turn"], one["event_id"][:32].lstrip("0")) for one in events(made)] == [
        (start_us + 20_000, "3"),
        (start_us + 5_000, "1"),
    ]


def test_refusals_are_listed_by_span() -> None:
    """Refusals are counted by agent and reason, and listed with service, trace and span."""
    support = {"service.name": "support"}
    records, counts = taken([SpanSpec(1, 2, attributes=RETRIEVAL, resource=support), search(2, 3)])

    assert len(records) == counts.searches == 1
    assert counts.refused == {"content_off": 1}
    assert counts.refused_of == {"support": {"content_off": 1}}
    assert counts.first_refused == [
        {
            "trace_id": f"{1:032x}",
            "span_id": f"{2:016x}",
            "reason": "content_off",
            "message": "it does not record its results, not even an empty list",
            "agent": "support",
            "service": "support",
            "count": 1,
        }
    ]


def test_traces_without_turns_are_counted() -> None:
    """The trace of a web server, or of a model alone, has no search."""
    _, counts = taken(
        [SpanSpec(1, 2), SpanSpec(2, 2, attributes={"openinference.span.kind": "LLM"})]
    )

    assert (counts.traces, counts.empty, counts.refused) == (2, 2, {})


def test_refusals_are_listed_once_for_each_trace_and_reason() -> None:
    """Three spans of a trace with one problem are one entry with their count."""
    made = [SpanSpec(trace, span, attributes=RETRIEVAL) for trace, span in ((1, 2), (1, 3), (2, 4))]

    _, counts = taken([*made, SpanSpec(1, 5, attributes=RETRIEVAL)])

    assert counts.refused == {"content_off": 4}
    listed = [(one["trace_id"], one["reason"], one["count"]) for one in counts.first_refused]
    assert listed == [(f"{1:032x}", "content_off", 3), (f"{2:032x}", "content_off", 1)]


def test_a_trace_of_more_spans_than_allowed_is_refused() -> None:
    """Its spans are not read back from the database."""
    made = [search(1, 2), *(SpanSpec(1, number) for number in range(3, 9)), search(2, 3)]

    assert len(events(made, OtlpSettings(max_spans=6))) == 1


def test_turns_that_share_their_number_are_counted() -> None:
    """Two traces of a conversation began in one microsecond."""
    of_session = {"session.id": "s"}
    _, counts = taken([search(1, 2, attributes=of_session), search(2, 2, attributes=of_session)])

    assert counts.turn_conflicts == 2


def test_a_search_that_two_instrumentations_recorded_counts_once() -> None:
    """The trace that began later is refused, with the setting that chooses."""
    made = [search(1, 2), replace(search(2, 2), scope="another", resource={"service.name": "shop"})]
    made[0] = replace(made[0], resource={"service.name": "shop"})
    records, counts = taken(made)

    assert len(records) == 1
    assert counts.refused == {"two_scopes": 1}
    assert 'otlp.scopes = {"shop" = ["test"]}' in counts.first_refused[0]["message"]


def test_searches_of_two_scopes_of_a_service_that_are_not_the_same_all_count() -> None:
    """As during a deployment that renames the tracer, or of two programs of one name."""
    later = replace(search(2, 2, start_ms=5, end_ms=6), scope="another")

    assert len(events([search(1, 2), later])) == 2


@pytest.mark.parametrize("scopes", [("test",), {"shop": ("test",)}])
def test_traces_of_scopes_that_are_left_out_are_refused(scopes: Any) -> None:
    """They are neither used nor taken for traces without a search."""
    made = [
        replace(search(number, 2), scope=scope, resource={"service.name": "shop"})
        for number, scope in enumerate(("test", "another"), 1)
    ]
    records, counts = taken(made, OtlpSettings(scopes=scopes))

    assert len(records) == 1
    assert (counts.refused, counts.empty) == ({"left_out": 1}, 0)
    assert "leaves out another" in counts.first_refused[0]["message"]


def test_a_choice_for_one_service_does_not_concern_others() -> None:
    """Services that the table does not name have all their scopes."""
    made = [
        replace(search(number, 2), scope=scope, resource={"service.name": service})
        for number, (scope, service) in enumerate((("a", "shop"), ("b", "desk")), 1)
    ]

    assert len(events(made, OtlpSettings(scopes={"shop": ("a",)}))) == 2


def test_settings_name_other_spans_and_attributes() -> None:
    """Settings map the names of other producers."""
    settings = OtlpSettings(
        rows=(
            OtlpRow(
                role=Role.SEARCH, when={"my.kind": "search"}, documents=("hits",), query=("q",)
            ),
        ),
        conversation=("chat",),
        agent=("who",),
        ids=("chunk_id",),
        fields=("page",),
    )
    hits = json.dumps([{"id": "a", "metadata": {"chunk_id": 5, "page": 3}}, {"chunk_id": "six"}])
    attributes = {"my.kind": "search", "chat": 12, "q": "where?", "hits": hits, "who": "shop"}

    [event] = events([SpanSpec(1, 2, attributes=attributes)], settings)

    assert (event["conversation_id"], event["agent"]) == ("12", "shop")
    [found] = event["searches"]
    assert found["query"] == "where?"
    assert [one.get("ids") for one in found["results"]] == [{"chunk_id": "5"}, {"chunk_id": "six"}]
    assert [one.get("fields") for one in found["results"]] == [{"page": 3}, None]


def test_the_outermost_retrieval_that_names_documents_is_the_search() -> None:
    """A wrapper without documents neither hides the search inside nor counts as one."""
    wrapper = SpanSpec(1, 1, attributes=RETRIEVER)
    base = search(1, 3, parent=2)
    part = search(1, 4, parent=3)
    made = [wrapper, SpanSpec(1, 2, 1), base, part, SpanSpec(1, 5, 3, attributes=RETRIEVER)]

    records, counts = taken(made)

    assert [json.loads(one.value or b"")["searches"][0]["search_id"] for one in records] == [
        f"{3:016x}"
    ]
    assert (counts.searches, counts.nested) == (1, 2)


def test_a_repeated_span_counts_once() -> None:
    """Redelivery changes nothing; of two versions the one that ended later is kept."""
    for number in range(8):  # the digests of two versions are in either order
        early = search(1, 2, end_ms=1, attributes=documents("early"))
        late = search(1, 2, end_ms=2, attributes=documents(f"late {number}"))

        for order in ([early, late, early], [late, early, late]):
            [record], counts = taken(order)
            result = json.loads(record.value or b"")["searches"][0]["results"][0]
            assert result["doc_id"] == f"late {number}"
            assert (counts.spans, counts.repeated, counts.searches) == (3, 2, 1)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b'{"type": "forget"}',
        b'\n{"type": "forget"}',
        b'\n{\n  "type": "forget"}',
        b'{"resourceLogs": []}',
        b"\n\n\n",
        b'{"text": "resourceSpans"}',
    ],
)
def test_records_that_are_not_traces_are_unchanged(value: bytes | None) -> None:
    """Events pass unchanged, however they are written."""
    assert not is_payload(value)


SPANS = [
    search(1, 1, 0, 2, attributes={"session.id": "s"}),
    search(1, 2, 1, 3),
    search(2, 1, 9, 10, attributes={"session.id": "s"}),
    SpanSpec(2, 9, start_ms=8),
]


def zstd(data: bytes, path: Path) -> bytes:
    """The value compressed with zstd."""
    with path.open("wb") as file, open_packed(file, "zstd") as into:
        into.write(data)
    return path.read_bytes()


FILES: dict[str, Callable[[Path], bytes]] = {
    "lines.json": lambda _: b"".join(as_json([one]) + b"\n" for one in SPANS),
    "one.json": lambda _: as_json(SPANS),
    "pretty.json": lambda _: json.dumps(document(SPANS), indent=2).encode(),
    "blank.json": lambda _: b"\n\n" + as_json(SPANS) + b"\n\n",
    "lines.json.gz": lambda _: gzip.compress(b"".join(as_json([one]) + b"\n" for one in SPANS)),
    "lines.json.zst": lambda p: zstd(as_json(SPANS[:1]) + b"\n" + as_json(SPANS[1:]) + b"\n", p),
    "pretty.json.gz": lambda _: gzip.compress(json.dumps(document(SPANS), indent=1).encode()),
    "framed.bin": lambda _: framed([as_protobuf(SPANS[:1]), as_protobuf(SPANS[1:])]),
    "framed.bin.gz": lambda _: gzip.compress(framed([as_protobuf([one]) for one in SPANS])),
    "framed.json": lambda _: framed([as_json(SPANS[:2]), as_json(SPANS[2:])]),
    "each.zst": lambda p: framed([zstd(as_protobuf([one]), p) for one in SPANS]),
    "each.json": lambda p: framed([zstd(as_json([one]), p) for one in SPANS]),
    "one.bin": lambda _: as_protobuf(SPANS),
}


@pytest.mark.parametrize("name", FILES)
def test_every_form_of_a_file_holds_the_same_spans(tmp_path: Path, name: str) -> None:
    """Lines, one document, one message, or length-prefixed messages, compressed or not."""
    path = tmp_path / name
    path.write_bytes(FILES[name](tmp_path / "packed"))

    found = [span for record in read_records([str(path)]) for span in spans_of(record.value or b"")]

    assert found == spans_of(as_json(SPANS))


BROKEN: dict[str, tuple[bytes, str]] = {
    "cut.bin": (framed([as_protobuf(SPANS)])[:-3], "message 1 ends in the middle"),
    "prefix.bin": (framed([as_protobuf(SPANS)]) + b"\0\0", "message 2 ends in the middle"),
    "length.bin": (framed([as_protobuf(SPANS)]) + b"\xff" * 9, "declares 4,294,967,295 bytes"),
    "content.bin": (framed([as_protobuf(SPANS)[:-3]]), "not OTLP traces in protobuf"),
    "one.bin": (as_protobuf(SPANS)[:-3], "not OTLP traces in protobuf"),
    "cut.json": (as_json(SPANS) + b"\n" + as_json(SPANS)[:-9], "payload 2: incomplete"),
    "other.json": (b'{"resourceSpans": 5}', "not OTLP traces in JSON"),
    "pretty.json": (json.dumps(document(SPANS), indent=1).encode()[:-9], "payload 1: incomplete"),
    "number.json": (as_json(SPANS).replace(b'"1718', b'"x1718'), "not OTLP traces in JSON"),
    "logs.json": (b'{"resourceLogs": []}', "OTLP logs; searches are in traces"),
    "packed.bin": (framed([b"\x28\xb5\x2f\xfd and no zstd"]), "message 1 is damaged"),
    "deep.json": (
        b'{"resourceSpans": [{"resource": {"attributes": [{"key": "a", "value": '
        + b'{"arrayValue": {"values": [' * 2_000,
        "too many levels",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """One error names the file, the position in it, and the problem."""
    path = tmp_path / name
    path.write_bytes(BROKEN[name][0])
    sources = Sources([str(path)], Settings(), "earliest", "end")

    with pytest.raises(InputError) as raised:
        list(sources.records())

    assert str(path) in str(raised.value)
    assert BROKEN[name][1] in str(raised.value)


def test_a_damaged_payload_of_a_topic_is_a_bad_record(tmp_path: Path) -> None:
    """Reading a topic continues after it, from Kafka and from a recording."""
    recorded = [
        {"topic": "otlp_spans", "offset": 0, "value": as_json(SPANS)[:-9].decode()},
        {"topic": "otlp_spans", "offset": 1, "value": as_json(SPANS).decode()},
    ]
    path = tmp_path / "day.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in recorded))

    records = list(Sources([str(path)], Settings(), "earliest", "end").records())

    found = [decode(record.value, limits=Limits()) for record in records]
    assert [isinstance(one, Event) for one in found] == [False, True, True, True]


def test_events_and_traces_may_be_read_together(tmp_path: Path) -> None:
    """Events keep their order, and the searches of all traces follow them."""
    (tmp_path / "a.json").write_bytes(as_json(SPANS[2:]))
    (tmp_path / "b.jsonl").write_bytes(b'{"type": "forget"}\n')
    (tmp_path / "c.bin").write_bytes(as_protobuf(SPANS[:2]))

    records = list(Sources([str(tmp_path / "*")], Settings(), "earliest", "end").records())

    starts = [record.timestamp_ms for record in records[1:]]
    assert records[0].value == b'{"type": "forget"}'
    assert len(starts) == 3
    assert starts == sorted(starts, key=lambda start: start or 0)


def test_links_of_spans_are_read_from_both_encodings() -> None:
    """They name the span that an evaluator is about; ids of another length are ignored."""
    made = [SpanSpec(1, 2, links=((3, 4), (1, 5)))]

    [of_json], [of_base64] = spans_of(as_json(made)), spans_of(as_json(made, in_base64))
    [of_protobuf] = spans_of(as_protobuf(made))

    assert of_json.links == (Link(f"{3:032x}", f"{4:016x}"), Link(f"{1:032x}", f"{5:016x}"))
    assert of_json == of_base64 == of_protobuf


def test_the_database_leaves_no_file(tmp_path: Path) -> None:
    """The database file is unlinked, so nothing remains after a kill."""
    with TraceStore(
        OtlpSettings().mapping(), OtlpSettings().options(NO_GRADES), Limits(), tmp_path
    ) as traces:
        traces.add_payload(as_json(SPANS))

        assert list(tmp_path.iterdir()) == []
        assert len(list(traces.records())) == 3


def command(*arguments: str) -> tuple[int, str]:
    """The exit code and the output of ``stream-metrics``."""
    done = ran(*arguments)
    return done.returncode, done.stderr


def test_a_replay_of_traces_reports_counts_of_spans(tmp_path: Path) -> None:
    """Counts and the first refusals are in run.json, the figures in the report."""
    path = tmp_path / "traces.json"
    path.write_bytes(as_json([*SPANS, SpanSpec(3, 1, attributes=RETRIEVAL)]))

    code, said = command("replay", str(path), "--out", str(tmp_path / "out"))
    said = " ".join(said.split())  # a terminal breaks lines

    assert code == 0
    assert "3 searches in" in said
    assert "name no conversation" not in said
    rows = (tmp_path / "out" / "conversations.jsonl").read_text().splitlines()
    assert len({json.loads(row)["turn"] for row in rows}) == len(rows) > 1
    assert "set aside: 1 content_off (let the instrumentation record the documents" in said
    assert "`stream-metrics explain` shows what its traces say" in said
    assert "of searches; by agent: default: 1)" in said
    told = json.loads((tmp_path / "out" / "run.json").read_text())["otlp"]
    assert [told[name] for name in ("payloads", "spans", "searches")] == [1, 5, 3]
    assert told["refused"] == {"content_off": 1}
    assert told["first_refused"][0]["trace_id"] == f"{3:032x}"
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["counts"]["events"], report["bad_records"]["count"]) == (3, 0)
    assert report["counts"]["conversations"] == 1


def test_a_replay_of_traces_without_turns_fails(tmp_path: Path) -> None:
    """It exits with 2 and prints the reasons, the remedies and the kinds of spans."""
    path = tmp_path / "traces.json"
    path.write_bytes(as_json([SpanSpec(1, 2, attributes=RETRIEVAL), SpanSpec(1, 3, 2)]))

    code, said = command("replay", str(path), "--out", str(tmp_path / "out"))

    assert code == 2
    assert "nothing in 2 spans of OTLP traces can be used: 1 content_off (let the" in said
    assert "`stream-metrics explain` shows what its traces say" in said
    assert "1 × test: a span; 1 × test: gen_ai.operation.name=retrieval" in said


def test_a_damaged_file_ends_the_command_with_one_error(tmp_path: Path) -> None:
    """It exits with 2 and one line, and writes no partial report."""
    path = tmp_path / "traces.bin"
    path.write_bytes(framed([as_protobuf(SPANS)])[:-3])

    code, said = command("replay", str(path), "--out", str(tmp_path / "out"))

    assert code == 2
    assert "error:" in said
    assert "message 1 ends in the middle" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_resource_spans_that_are_no_list_are_refused() -> None:
    """They are not read as a payload without spans."""
    with pytest.raises(OtlpError):
        spans_of(b'{"resourceSpans": 5}')
