"""What is no event and no OTLP is named as what it is, with what to do."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.cli.send import check_event
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.core.events import BadRecord, Limits
from stream_metrics.core.events.foreign import foreign_form, form_of
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import Grading, mapping
from stream_metrics.core.telemetry.otlp.payloads import OtlpDecoder
from stream_metrics.lab.sources.evaluation_reader import EvaluationReader
from stream_metrics.lab.sources.files import parse_line
from stream_metrics.lab.sources.problems import find_problems
from stream_metrics.lab.sources.unchanged import InputError
from tests.helpers import examples
from tests.otlp import SpanSpec, as_json, as_protobuf, document, framed

EVENT: Final = {"type": "search_iteration", "event_id": "e", "conversation_id": "c"}
RESOURCE: Final[dict[str, Any]] = {"attributes": []}
SPAN: Final = {"traceId": "5b", "spanId": "ee", "name": "search", "kind": 1}
JAEGER: Final = {"traceID": "5b", "spanID": "ee", "operationName": "search", "tags": []}
ZIPKIN: Final = {"traceId": "5b", "id": "ee", "name": "s", "tags": {}, "localEndpoint": {}}
CONSOLE: Final = {
    "name": "search",
    "context": {"trace_id": "0x5b", "span_id": "0xee", "trace_state": "[]"},
    "kind": "SpanKind.INTERNAL",
    "attributes": {"openinference.span.kind": "RETRIEVER"},
}
PHOENIX: Final = {
    "name": "search",
    "span_kind": "RETRIEVER",
    "context": {"trace_id": "5b", "span_id": "ee"},
}
RECORD: Final = {"topic": "t", "partition": 0, "offset": 7, "timestamp": 5, "key": "c"}

FORMS: Final[dict[str, tuple[Any, str]]] = {
    "Tempo": ({"batches": [{"resource": RESOURCE, "scopeSpans": []}]}, "Tempo's API"),
    "Tempo, old": ({"batches": [{"instrumentationLibrarySpans": []}]}, "rename `batches`"),
    "Tempo v2": ({"trace": {"resourceSpans": []}}, "inside another object"),
    "Tempo's search": ({"traces": [{"traceID": "5b", "rootServiceName": "a"}]}, "Tempo's API"),
    "Jaeger v3": ({"result": {"resourceSpans": []}}, "inside another object"),
    "a bare resource": ({"resource": RESOURCE, "scopeSpans": []}, "a part of OTLP traces"),
    "bare spans": ([SPAN], "single spans of OTLP"),
    "OTLP as an event": ({"resourceSpans": []}, "stream-metrics bridge"),
    "snake case as an event": ({"resource_spans": []}, "stream-metrics bridge"),
    "OTLP logs": ({"resourceLogs": []}, "OTLP metrics, logs or profiles"),
    "Jaeger's API": ({"data": [{"traceID": "5b", "spans": [JAEGER], "processes": {}}]}, "Jaeger"),
    "Jaeger's page": ({"total": 0, "data": [{"traceID": "5b", "spans": [JAEGER]}]}, "Jaeger"),
    "one trace of Jaeger": ({"traceID": "5b", "spans": [], "processes": {}}, "Jaeger"),
    "one span of Jaeger": (JAEGER, "Jaeger"),
    "Zipkin": ([ZIPKIN], "Zipkin"),
    "one span of Zipkin": (ZIPKIN, "Zipkin"),
    "Zipkin v1": ([{"traceId": "5b", "id": "ee", "binaryAnnotations": []}], "Zipkin"),
    "Phoenix": (PHOENIX, "Phoenix"),
    "Phoenix's API": ({"data": [PHOENIX], "next_cursor": None}, "Phoenix"),
    "a row of Phoenix": ({"name": "s", "context.span_id": "ee", "span_kind": "LLM"}, "Phoenix"),
    "columns of Phoenix": ({"name": {"0": "s"}, "context.span_id": {"0": "ee"}}, "Phoenix"),
    "Python's console": (CONSOLE, "console exporter"),
    "Go's console": ({"Name": "s", "SpanContext": {"TraceID": "5b"}}, "console exporter"),
    "Langfuse": ({"id": "5b", "sessionId": "s", "observations": []}, "Langfuse"),
    "Langfuse's API": ({"data": [{"id": "5b", "sessionId": "s", "projectId": "p"}]}, "Langfuse"),
    "an observation": (
        {"id": "ee", "type": "SPAN", "traceId": "5b", "startTime": "", "parentObservationId": None},
        "Langfuse",
    ),
    "Langfuse's batch": ({"batch": [{"type": "trace-create", "body": {}}]}, "Langfuse"),
    "LangSmith": ({"id": "5b", "run_type": "retriever", "inputs": {}, "outputs": {}}, "LangSmith"),
    "MLflow": ({"info": {"trace_id": "tr-5"}, "data": {"spans": []}}, "MLflow"),
    "MLflow 2": ({"info": {"request_id": "tr-5"}, "data": {"spans": []}}, "MLflow"),
    "Datadog": ([[{"trace_id": 5, "span_id": 7, "resource": "r", "service": "s"}]], "Datadog"),
    "X-Ray": ({"Traces": [{"Id": "1-5", "Segments": []}]}, "X-Ray"),
    "Jaeger's JSON of the Collector": (
        {"traceId": "W4", "spanId": "7u", "operationName": "s", "process": {}},
        "Jaeger",
    ),
    "MLflow's search": (
        {"trace_id": "tr-5", "request": "{}", "response": "{}", "spans": [{"name": "s"}]},
        "MLflow",
    ),
    "ClickHouse": ({"TraceId": "5b", "SpanId": "ee", "SpanAttributes": {}}, "another product"),
    "Weave": ({"op_name": "s", "trace_id": "5b", "started_at": "2026"}, "another product"),
    "another product": ({"trace_id": "5b", "span_id": "ee", "duration_ms": 5}, "another product"),
    "Elasticsearch": ({"hits": {"hits": [{"_source": EVENT}]}}, "Elasticsearch"),
    "its document": ({"_index": "i", "_id": "1", "_source": EVENT}, "Elasticsearch"),
    "kcat -J": ({"topic": "t", "offset": 7, "ts": 5, "broker": 1, "payload": "{}"}, "kcat -J"),
    "kcat -J without value": ({"topic": "t", "offset": 7, "payload": None}, "kcat -J"),
    "Debezium": ({"before": None, "after": EVENT, "op": "c", "source": {}}, "Debezium"),
    "Debezium with schema": (
        {"schema": {}, "payload": {"before": None, "after": EVENT, "op": "c"}},
        "Debezium",
    ),
    "Kafka Connect": ({"schema": {"type": "struct"}, "payload": EVENT}, "schemas.enable"),
    "a CloudEvent": ({"specversion": "1.0", "type": "x", "source": "s", "data": EVENT}, "CloudEv"),
    "Filebeat": ({"@timestamp": "2026", "message": "{}"}, "log shipper"),
    "Docker": ({"log": "{}", "stream": "stdout", "time": "2026"}, "log shipper"),
    "columns": ({"type": {"0": "forget", "1": "forget"}, "turn": {"0": 1, "1": 2}}, "data frame"),
    "one column": ({"event": {"0": "{}", "1": "{}"}}, "data frame"),
    "Polars": ({"columns": [{"name": "type", "values": ["forget"]}]}, "write_ndjson"),
    "rows by index": ({"0": EVENT, "1": EVENT}, "data frame"),
    "split": ({"columns": ["type"], "index": [0], "data": [["forget"]]}, "orient='split'"),
    "table": ({"schema": {"fields": []}, "data": [EVENT]}, "orient='table'"),
    "values": ([["forget", 1], ["forget", 2]], "list of rows"),
    "records": ([EVENT, EVENT], "a list: write one event or record a line"),
    "a fractional timestamp": (
        {**RECORD, "timestamp": 1773824400000.0, "value": "{}"},
        "`timestamp` 1773824400000.0 is no whole number",
    ),
    "a timestamp as text": ({**RECORD, "timestamp": "2026", "value": "{}"}, "no whole number"),
    "a true timestamp": ({**RECORD, "timestamp": True, "value": "{}"}, "no whole number"),
    "an object as value": ({**RECORD, "value": EVENT}, "`value` must be text"),
    "a number as key": ({**RECORD, "key": 5, "value": "{}"}, "`key` must be text"),
    "no base64": ({**RECORD, "value_base64": "*"}, "`value_base64` is not base64"),
    "no text as base64": ({**RECORD, "value_base64": 5}, "`value_base64` is not base64"),
    "no offset": ({"topic": "t", "key": "c", "value": "{}"}, "without `offset`"),
    "S3 sink": ({"topic": "t", "offset": 7, "key": "c", "value": EVENT}, "`value` must be text"),
    "a text": ('{"type": "forget"}', "JSON inside a text"),
    "a good record": ({**RECORD, "value": "{}"}, "replay --into-kafka"),
}  # fmt: skip

BYTES: Final = {
    "zip": (b"PK\x03\x04\x14\0", "a zip archive"),
    "bzip2": (b"BZh91AY", "bzip2"),
    "xz": (b"\xfd7zXZ\x00\0", "xz"),
    "lz4": (b"\x04\x22\x4d\x18d", "lz4"),
    "tar": (b"a.jsonl".ljust(257, b"\0") + b"ustar\0", "a tar archive"),
    "Avro": (b"Obj\x01\x04", "an Avro file"),
    "ORC": (b"ORC\x08\x03", "an ORC file"),
    "Feather": (b"ARROW1\0\0", "Arrow or Feather"),
    "pickle": (b"\x80\x04\x95\x10", "a Python pickle"),
    "SQLite": (b"SQLite format 3\0", "a SQLite database"),
    "pcap": (b"\xd4\xc3\xb2\xa1\x02\0", "pcap"),
    "pcapng": (b"\n\r\r\n\x1c\0\0\0\x4d\x3c\x2b\x1a", "pcap"),
    "a log segment": (bytes(16) + b"\x02" + bytes(9), "a segment of a Kafka log"),
    "HTML": (b"\n<!DOCTYPE html>\n<html>", "HTML"),
    "HTML, bare": (b"<HTML><head>", "HTML"),
    "XML": (b'<?xml version="1.0"?>', "XML"),
    "HTML of a data frame": (b'<table border="1">', "HTML"),
    "HDF5": (b"\x89HDF\r\n", "HDF5"),
    "PDF": (b"%PDF-1.7", "a PDF"),
}
LINES: Final = {
    "UTF-16": ('{"type": 1}'.encode("utf-16"), "UTF-16"),
    "UTF-16 without a mark": ('{"type": 1}'.encode("utf-16-le"), "UTF-16"),
    "Python": (b"{'type': 'forget'}", "json.dumps"),
    "JavaScript's console": (b"{\n  traceId: '5b',\n}", "JavaScript's console exporter"),
    "console consumer": (b'CreateTime:1773\tc\t{"type": "forget"}', "kafka-console-consumer"),
    "the debug exporter": (b"ResourceSpans #0", "debug exporter"),
    "its log": (b"2026-11-28T07:00:00Z\tinfo\tResourceSpans #0", "debug exporter"),
    "CSV": (b"type,event_id,turn", "a line of CSV"),
    "a row of CSV": (b'forget,"e 1",', "a line of CSV"),
    "HTTP": (b"HTTP/1.1 200 OK", "over HTTP"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
    "a sequence": (b'\x1e{"type": "forget"}', "RFC 7464"),
    "OTLP": (as_protobuf([SpanSpec(1, 1, resource={"a": "b"})]), "OTLP in protobuf"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_named_wherever_records_are_checked(name: str) -> None:
    """A line of a file, in ``validate`` and replays, and an event that is sent."""
    value, said = FORMS[name]
    text = json.dumps(value).encode()
    line = text if name == "a good record" else parse_line(text).value

    (found,) = find_problems(line, limits=Limits())
    sent = check_event(text, Limits(), None)

    assert said in found.message
    assert isinstance(sent, BadRecord)
    assert said in sent.message


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=examples(5))
@given(data=st.data())
def test_the_order_of_keys_never_matters(name: str, data: st.DataObject) -> None:
    """A form is told by the keys that it has."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [*map(shuffled, value)]
        if not isinstance(value, dict):
            return value
        return {key: shuffled(value[key]) for key in data.draw(st.permutations([*value]))}

    assert foreign_form(shuffled(FORMS[name][0])) == foreign_form(FORMS[name][0])


@pytest.mark.parametrize("name", [*BYTES, *LINES])
def test_bytes_that_are_not_json_are_named_as_a_record(name: str) -> None:
    """Of a topic, say."""
    value, said = {**BYTES, **LINES}[name]

    (found,) = find_problems(value, limits=Limits())

    assert found.about == "not_json"
    assert said in found.message


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", BYTES)
def test_a_file_is_named_by_its_first_bytes(tmp_path: Path, name: str, packed: bool) -> None:
    """Also inside gzip."""
    path = tmp_path / "day.jsonl"
    path.write_bytes(gzip.compress(BYTES[name][0]) if packed else BYTES[name][0])

    with pytest.raises(InputError, match="it is ") as raised:
        list(Sources([str(path)], Settings(), "earliest", "end").records())

    assert BYTES[name][1] in str(raised.value)


@pytest.mark.parametrize("name", ["day.jsonl", "day.gz", "day.zst", "day.json"])
def test_gzip_is_read_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    """The first bytes decide."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(b'{"type": "forget"}\n'))

    records = list(Sources([str(path)], Settings(), "earliest", "end").records())

    assert [record.value for record in records] == [b'{"type": "forget"}']


def read(path: Path) -> int:
    """The number of spans in a file."""
    sources = Sources([str(path)], Settings(), "earliest", "end")
    try:
        list(sources.records())
    except Exception as error:
        if isinstance(error, InputError):
            raise
    found: int = sources.read["otlp"]["spans"]
    return found


SPANS: Final = [SpanSpec(1, 1), SpanSpec(1, 2, 1), SpanSpec(2, 3)]
FILES: Final = {
    "another first key": json.dumps({"schemaUrl": "x", **document(SPANS)}),
    "over lines": json.dumps({"schemaUrl": "x", **document(SPANS)}, indent=1),
    "a long first key": json.dumps({"note": ["x" * 9_000], **document(SPANS)}),
    "a long first key, over lines": json.dumps({"note": [1] * 9_000} | document(SPANS), indent=1),
    "a list": json.dumps([document(SPANS[:1]), document(SPANS[1:])]),
    "a list over lines": json.dumps([document(SPANS[:1]), document(SPANS[1:])], indent=4),
    "documents over lines": "\n".join(json.dumps(document([one]), indent=2) for one in SPANS),
    "lists and objects": json.dumps([document(SPANS[:1])]) + "\n" + json.dumps(document(SPANS[1:])),
}  # fmt: skip


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_otlp_is_read_in_every_form(tmp_path: Path, name: str, packed: bool, mark: str) -> None:
    """Whatever the first key, in lists, compressed or not, with and without a byte order mark."""
    path, data = tmp_path / "traces", (mark + FILES[name]).encode()
    path.write_bytes(gzip.compress(data) if packed else data)

    assert read(path) == len(SPANS)


@pytest.mark.parametrize("name", ["another first key", "a list", "a long first key"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_bridge_reads_the_same_forms(name: str, mark: str) -> None:
    """A value of the topic of traces."""
    spans = OtlpDecoder().spans((mark + FILES[name]).encode())

    assert not isinstance(spans, BadRecord)
    assert len(spans) == len(SPANS)


def test_length_prefixed_payloads_may_begin_with_another_key(tmp_path: Path) -> None:
    """The Collector's framing, around JSON of another writer."""
    path = tmp_path / "traces"
    path.write_bytes(framed([FILES["another first key"].encode(), as_json([SpanSpec(9, 9)])]))

    assert read(path) == len(SPANS) + 1


@pytest.mark.parametrize("name", ["Jaeger's API", "Python's console", "Tempo", "records", "split"])
def test_a_form_over_several_lines_is_named(tmp_path: Path, name: str) -> None:
    """Not line for line."""
    path = tmp_path / "day.json"
    path.write_text(json.dumps(FORMS[name][0], indent=4))

    with pytest.raises(InputError, match="line 1: JSON over several lines, which looks") as raised:
        list(Sources([str(path)], Settings(), "earliest", "end").records())

    assert FORMS[name][1] in str(raised.value)


def test_spans_that_a_javascript_program_prints_are_named(tmp_path: Path) -> None:
    """They look like JSON over lines, and are none."""
    path = tmp_path / "day.json"
    path.write_text("{\n  resource: {\n    attributes: {}\n  },\n  traceId: '5b'\n}\n")

    with pytest.raises(InputError, match="JavaScript's console exporter"):
        list(Sources([str(path)], Settings(), "earliest", "end").records())


def test_a_line_that_was_cut_off_is_no_document_over_several_lines(tmp_path: Path) -> None:
    """It is a bad record, and the others are read."""
    path = tmp_path / "day.jsonl"
    path.write_text('{"type": "forget",\n{"type": "forget"}\n')

    records = list(Sources([str(path)], Settings(), "earliest", "end").records())

    assert [record.value for record in records] == [b'{"type": "forget",', b'{"type": "forget"}']


@pytest.mark.parametrize("name", ["Jaeger's API", "Tempo", "kcat -J"])
def test_the_bridge_names_what_is_no_otlp(name: str) -> None:
    """The dead letter says what was written to the topic of traces."""
    found = OtlpDecoder().spans(json.dumps(FORMS[name][0]).encode())

    assert isinstance(found, BadRecord)
    assert FORMS[name][1] in found.message


@pytest.mark.parametrize("name", ["HTML", "zip", "SQLite"])
def test_a_file_of_scores_is_named_by_its_first_bytes(tmp_path: Path, name: str) -> None:
    """HTML could be taken for CSV."""
    path = tmp_path / "scores"
    path.write_bytes(BYTES[name][0])

    with pytest.raises(InputError, match=BYTES[name][1]):
        EvaluationReader(mapping(), Grading()).file(str(path), 5)


@pytest.mark.parametrize("name", ["LangSmith", "Tempo", "kcat -J"])
def test_a_row_of_scores_that_is_another_form_is_named(name: str) -> None:
    """Rather than by the column that it lacks."""
    reader = EvaluationReader(mapping(), Grading())
    reader.record(json.dumps(FORMS[name][0]).encode(), "topic", 5)

    (unused,) = reader.unused
    assert FORMS[name][1] in unused.message


def test_rows_under_several_keys_are_all_read() -> None:
    """Not only those of the first list."""
    row = {"span_id": "ee", "score": 1, "position": 0}
    reader = EvaluationReader(mapping(), Grading())
    reader.record(json.dumps({"data": [row], "evaluations": [row, row]}).encode(), "topic", 5)

    assert len(reader.evaluations) == 3


@pytest.mark.parametrize(
    "row", [{"score": 1, "result": {"score": 0}}, {"result": {"score": 0}, "score": 1}]
)
def test_two_scores_in_one_row_are_refused(row: dict[str, Any]) -> None:
    """Whichever comes first."""
    reader = EvaluationReader(mapping(), Grading())
    reader.record(json.dumps({"span_id": "ee", **row}).encode(), "topic", 5)

    assert "two values of score" in reader.unused[0].message


@pytest.mark.parametrize(
    "value", [b"{}", b"5", b'{"event_id": "e"}', b'{"a": {}, "b": 1}', b"", b"\xff", b"[" * 9_000]
)
def test_what_is_unknown_has_no_name(value: bytes) -> None:
    """The message is that of the worker."""
    assert form_of(value) is None


def test_a_valid_record_stays_one() -> None:
    """Nothing that was read before is refused."""
    line = json.dumps({**RECORD, "value": '{"type": "forget"}'}).encode()

    assert parse_line(line) == Record(b'{"type": "forget"}', b"c", 5, "t", 0, 7)


def test_a_parquet_file_of_spans_is_named(tmp_path: Path) -> None:
    """Phoenix writes its data frame so."""
    path = tmp_path / "spans.parquet"
    table = pyarrow.table({"name": ["s"], "span_kind": ["LLM"], "context.span_id": ["ee"]})
    pyarrow.parquet.write_table(table, path)

    with pytest.raises(InputError, match="it looks like spans of Phoenix"):
        list(Sources([str(path)], Settings(), "earliest", "end").records())


def test_an_event_over_several_lines_is_told_to_be_one_line(tmp_path: Path) -> None:
    """Its lines are no records."""
    path = tmp_path / "event.json"
    path.write_text(json.dumps(EVENT, indent=1))

    with pytest.raises(InputError, match="is no OTLP: write one event a line"):
        list(Sources([str(path)], Settings(), "earliest", "end").records())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "value",
                    "offset",
                    "key",
                    "columns",
                    "data",
                    "schema",
                    "0",
                    "spans",
                    "value_base64",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=examples(100))
@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30))
def test_no_value_is_too_strange_to_be_asked_about(value: bytes) -> None:
    """Whatever a record holds, its rejection stands."""
    assert form_of(value) != ""
