"""``stream-metrics labels``: scores in tables, logs and traces, joined with traces."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow
import pyarrow.parquet
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError
from stream_metrics.core.events import Limits
from stream_metrics.core.telemetry import Grading, Options, mapping
from stream_metrics.core.telemetry.assembly import ClosedTrace
from stream_metrics.core.telemetry.labels.evaluations import instant
from stream_metrics.core.telemetry.otlp.logs import log_records_of
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.evaluation_reader import EvaluationReader
from stream_metrics.lab.sources.otlp.traces import TraceStore
from stream_metrics.lab.sources.unchanged import InputError
from tests.otlp import RETRIEVER, SpanSpec, as_json, as_protobuf, documents, framed
from tests.telemetry import CAPTURES, capture

DATA: Final = Path(__file__).parents[1] / "data" / "evaluations"
GRADES: Final = '{"relevant": 3, "partial": 1, "unrelated": 0, "irrelevant": 0}'
CUTOFFS: Final = '{"2": 0.5, "4": 0.9}'
TIME: Final = ("--time", "2026-11-23T10:00:00Z")
PROGRAM: Final = [
    [f"kb-{number}" for number in each]
    for each in (
        (1, 2, 3),
        (1, 3, 2),
        (3, 8, 2),
        (7, 8, 6),
        (8, 7, 6),
        (6, 4, 7),
        (4, 6, 3),
        (5, 8, 7),
    )
]
"""What each search of the captured LangGraph programs returned, in the order of their times."""
RERANKER: Final = {"openinference.span.kind": "RERANKER"}
T: Final = 1_795_424_400
GOOD: Final = {"kb-1": 3, "kb-3": 3, "kb-7": 1}


class Done(NamedTuple):
    """The output and the diagnostics of the command, and the error if it failed."""

    events: list[dict[str, Any]]
    notes: str
    refusal: str

    @property
    def gains(self) -> dict[str, int]:
        """The gains by result."""
        return {one["result_id"]: one["gain"] for event in self.events for one in event["labels"]}

    @property
    def reasons(self) -> Counter[str]:
        """The reasons of the scores that are listed as unused."""
        listed = [line for line in self.notes.splitlines() if ": label_" in line]
        return Counter(line.split(": label_")[1].split(":")[0] for line in listed)


def joined(
    scores: Path | str, traces: Path, *more: str, text: str | None = None, **settings: str
) -> Done:
    """The result of the command for a file or standard input."""
    chosen = {"grades": GRADES, "cutoffs": CUTOFFS, **settings}
    variables = {f"STREAM_METRICS_LABELS__{name.upper()}": one for name, one in chosen.items()}
    arguments = ["labels", str(scores), "--traces", str(traces), *more]
    done = CliRunner(env=variables).invoke(app, arguments, input=text)
    if done.exception is not None:
        assert isinstance(done.exception, (UsageError, InputError)), done.exception
        return Done([], done.stderr, str(done.exception))
    return Done([json.loads(line) for line in done.stdout.splitlines()], done.stderr, "")


@pytest.fixture
def otel(tmp_path: Path) -> Path:
    """The captured traces that the captured log records are about."""
    return unpacked(tmp_path, "langchain-otel-graph")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two traces: both have a span 2 with documents a and b, and the first has a span 3."""
    path = tmp_path / "two.json"
    path.write_bytes(
        as_json(
            [
                SpanSpec(1, 1, attributes={"session.id": "s"}, end_ms=9),
                SpanSpec(1, 2, 1, 1, 2, attributes={**RETRIEVER, **documents("a", "b")}),
                SpanSpec(1, 3, 1, 3, 4, attributes={**RETRIEVER, **documents("c")}),
                SpanSpec(2, 2, 0, 1, 2, attributes={**RETRIEVER, **documents("a", "b")}),
            ]
        )
    )
    return path


def unpacked(folder: Path, name: str) -> Path:
    """A capture, unpacked into a file."""
    path = folder / f"{name}.jsonl"
    path.write_bytes(gzip.decompress((CAPTURES / f"{name}.jsonl.gz").read_bytes()))
    return path


def written(folder: Path, name: str, text: str) -> Path:
    """A file of scores."""
    path = folder / name
    path.write_text(text)
    return path


def flat(side: str, letters: str) -> dict[str, str]:
    """Documents of a reranker as OpenInference's attributes."""
    return {f"reranker.{side}_documents.{at}.document.id": one for at, one in enumerate(letters)}


def searches(name: str) -> dict[str, list[str]]:
    """The documents of each search of a LangGraph capture, as its program recorded them."""
    found = [span for span in capture(name) if span.attributes.keys() & {_FLAT, _WHOLE}]
    found.sort(key=lambda span: span.start_ns)
    return {span.span_id: each for span, each in zip(found, PROGRAM, strict=True)}


_FLAT, _WHOLE = "retrieval.documents.0.document.content", "gen_ai.retrieval.documents"


# Formats


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl", "json"])
def test_annotations_of_phoenix_label_the_documents_of_the_program(
    tmp_path: Path, form: str
) -> None:
    """In each format of its client, positions identify the documents that the agent
    program found."""
    traces = unpacked(tmp_path, "langchain-openinference-graph")

    done = joined(DATA / f"phoenix.{form}", traces, *TIME)

    assert done.gains == {
        f"{span_id}/{rank}": GOOD.get(one, 0)
        for span_id, each in searches("langchain-openinference-graph").items()
        for rank, one in enumerate(each, 1)
    }
    assert len(done.gains) == 24
    assert "24 of 24 scores are used" in done.notes
    assert {event["labeller"] for event in done.events} == {"document_relevance"}


def test_options_say_who_judged_and_whether_turns_were_drawn(tmp_path: Path) -> None:
    """Without them events are what they were; with them they are others, by their ids as well."""
    traces = unpacked(tmp_path, "langchain-openinference-graph")
    plain = joined(DATA / "phoenix.csv", traces, *TIME)

    given = joined(DATA / "phoenix.csv", traces, *TIME, "--source", "model", "--sample", "random")

    assert all(not event.keys() & {"source", "sample"} for event in plain.events)
    assert {(event["source"], event["sample"]) for event in given.events} == {("model", "random")}
    assert given.gains == plain.gains
    ids = [{event["event_id"] for event in done.events} for done in (plain, given)]
    assert len(ids[0]) == len(ids[1]) == len(given.events)
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("form", ["jsonl", "pb"])
def test_log_records_without_a_document_are_refused(otel: Path, form: str) -> None:
    """Each captured one is about a search with three documents and does not say which."""
    done = joined(DATA / f"logs.{form}", otel)

    assert done.reasons == {"ambiguous": 8}
    assert done.refusal.startswith("none of 8 scores can be used: 8 label_ambiguous (name the doc")


@pytest.mark.parametrize("form", ["jsonl", "pb", "framed"])
def test_log_records_that_name_a_document_label_it(tmp_path: Path, otel: Path, form: str) -> None:
    """These are the captured ones with the attribute of the setting; their time is the label's."""
    logs = LogsData.FromString((DATA / "logs.pb").read_bytes())
    for number, one in enumerate(logs.resource_logs[0].scope_logs[0].log_records):
        one.attributes.add(key="app.position").value.int_value = number % 3
    content = bytes(logs.SerializeToString())
    path = tmp_path / f"logs.{form}"
    path.write_bytes(framed([content]) if form == "framed" else content)
    if form == "jsonl":
        found = json.loads((DATA / "logs.jsonl").read_text())
        for number, one in enumerate(found["resourceLogs"][0]["scopeLogs"][0]["logRecords"]):
            place = {"key": "app.position", "value": {"intValue": str(number % 3)}}
            one["attributes"].append(place)
        path.write_text(json.dumps(found))

    done = joined(path, otel, position='["app.position"]')

    assert done.gains == {
        f"{span_id}/{number % 3 + 1}": 3
        for number, span_id in enumerate(searches("langchain-otel-graph"))
    }
    assert {event["labeller"] for event in done.events} == {"Relevance"}
    assert min(event["occurred_at"] for event in done.events).startswith("2026-11-23T03:42:00.06")


def test_log_records_are_the_same_in_both_encodings() -> None:
    """Ids, times, the event's name and attributes are equal."""
    assert log_records_of((DATA / "logs.jsonl").read_bytes()) == log_records_of(
        (DATA / "logs.pb").read_bytes()
    )


def test_older_log_records_name_their_event_in_an_attribute(two: Path) -> None:
    """They may have only the observed time; other records are skipped."""
    record = {
        "observedTimeUnixNano": "1795405320000000000",
        "traceId": f"{1:032x}",
        "spanId": f"{3:016x}",
        "attributes": [
            {"key": "event.name", "value": {"stringValue": "gen_ai.evaluation.result"}},
            {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 0.6}},
        ],
    }
    other = {"body": {"stringValue": "started"}}
    payload = {"resourceLogs": [{"scopeLogs": [{"logRecords": [other, record]}]}]}

    done = joined("-", two, text=json.dumps(payload))

    assert done.gains == {f"{3:016x}/1": 2}
    assert joined("-", two, text=json.dumps({"resourceLogs": []})).refusal.endswith(
        "no score in it; 0 records hold none"
    )


def test_evaluator_spans_of_other_traces_are_joined_by_their_link(
    tmp_path: Path, two: Path
) -> None:
    """Evaluations long after the turn are recorded so; those without a link name no span."""
    evaluator = {
        "openinference.span.kind": "EVALUATOR",
        "evaluations.0.evaluation.name": "relevance",
        "evaluations.0.evaluation.score": 1,
    }
    path = tmp_path / "evaluations.bin"
    path.write_bytes(
        as_protobuf(
            [
                SpanSpec(9, 1, attributes=evaluator, end_ms=50, links=[(1, 3)]),
                SpanSpec(9, 2, attributes=evaluator, end_ms=50),
            ]
        )
    )

    done = joined(path, two)

    assert done.gains == {f"{3:016x}/1": 4}
    assert done.reasons == {"no_span": 1}
    assert done.events[0]["occurred_at"] == "2024-06-10T12:00:00.050000Z"


def test_a_column_of_times_orders_the_scores(tmp_path: Path, two: Path) -> None:
    """Parquet times, RFC 3339 and Unix times are equivalent; the later score counts."""
    when = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
    row = {"trace_id": f"{1:032x}", "span_id": f"{3:016x}", "label": "relevant", "score": None}
    times = [when.isoformat(), "2026-11-23 09:30:00+00:00", int(when.timestamp()) * 1000]
    lines = "\n".join(json.dumps({**row, "created_at": time}) for time in times)
    table = pyarrow.Table.from_pylist([{**row, "created_at": when, "document_position": 0}])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")

    of_lines = joined(written(tmp_path, "a.jsonl", lines), two)
    of_parquet = joined(tmp_path / "a.parquet", two)

    assert of_lines.events == of_parquet.events
    assert [event["occurred_at"] for event in of_lines.events] == ["2026-11-23T09:30:00.000000Z"]
    assert of_lines.gains == {f"{3:016x}/1": 3}


def test_scores_without_a_time_have_that_of_their_file(tmp_path: Path, two: Path) -> None:
    """The same file gives the same events, and a corrected one later revisions."""
    path = written(tmp_path, "a.csv", f"span_id,score\n{3:016x},1\n")
    os.utime(path, (1_795_000_000, 1_795_000_000))
    first, again = joined(path, two), joined(path, two)
    path.write_text(f"span_id,score\n{3:016x},0.5\n")
    os.utime(path, (1_795_000_060, 1_795_000_060))
    revised = joined(path, two)

    assert first == again
    assert (first.gains, revised.gains) == ({f"{3:016x}/1": 4}, {f"{3:016x}/1": 2})
    assert instant(revised.events[0]["occurred_at"]) == 1_795_000_060 * 10**6
    assert first.events[0]["event_id"] != revised.events[0]["event_id"]


def test_scores_on_standard_input_need_a_time(two: Path) -> None:
    """Without one in the rows they are refused, and the error names the option."""
    text = f"span_id,score\n{3:016x},1\n"

    assert "--time" in joined("-", two, text=text).notes
    assert joined("-", two, *TIME, text=text).gains == {f"{3:016x}/1": 4}


# Unused scores


def test_each_unused_row_is_listed_with_its_place_and_reason(tmp_path: Path, two: Path) -> None:
    """All other rows are used."""
    good, twice, none = f"{3:016x}", f"{2:016x}", f"{7:016x}"
    rows = [
        "trace_id,span_id,position,doc_id,score,label",
        f",{good},0,,0.95,",
        f",{twice},0,,0.95,",
        f",{none},0,,0.95,",
        f"{1:032x},{twice},5,,0.95,",
        f"{1:032x},{twice},,b,0.5,",
        f"{2:032x},{twice},,x,0.5,",
        f"{2:032x},{good},0,,0.5,",
        f"{2:032x},{twice},0,,,unheard of",
        f"{2:032x},{twice},0,,high,",
        ",,0,,1,",
    ]
    path = written(tmp_path, "scores.csv", "\n".join(rows) + "\n")

    done = joined(path, two, *TIME)

    assert done.gains == {f"{good}/1": 4, f"{twice}/2": 2}
    listed = [line.split(": ")[:2] for line in done.notes.splitlines() if ": label_" in line]
    assert sorted(listed) == sorted(
        [f"{path}:{line}", f"label_{reason}"]
        for line, reason in {
            3: "ambiguous",
            4: "no_span",
            5: "no_document",
            7: "no_document",
            8: "no_span",
            9: "no_grade",
            10: "malformed",
            11: "malformed",
        }.items()
    )
    assert "2 of 10 scores are used" in done.notes
    assert "not used: 2 label_malformed (" in done.notes


def test_unused_scores_beyond_the_limit_are_counted(tmp_path: Path, two: Path) -> None:
    """The list ends at the limit."""
    path = written(tmp_path, "a.csv", f"span_id,score\n{3:016x},1\n" + "f,1\n" * 5)

    done = joined(path, two, *TIME, "--limit", "2")

    assert done.reasons == {"no_span": 2}
    assert "not listed: 3 more" in done.notes


def test_without_a_setting_nothing_is_joined(tmp_path: Path, two: Path) -> None:
    """The error names both settings."""
    done = CliRunner().invoke(app, ["labels", str(tmp_path / "none"), "--traces", str(two)])

    assert isinstance(done.exception, UsageError)
    assert "set `labels.grades`" in str(done.exception)
    assert "or `labels.cutoffs`" in str(done.exception)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "no score in it"),
        ('{"span_id": "a", "score": 1', "not JSON"),
        ("\ufeffspan_id,score\na,1,2\n", "more values than there are columns"),
        ('span_id,score\n"a,1\n', "not CSV"),
        ('{"resourceLogs": [{"scopeLogs": 1}]}', "not OTLP logs in JSON"),
        ("[1, 2]", "2 label_malformed"),
    ],
)
def test_a_file_without_scores_is_refused(
    tmp_path: Path, two: Path, content: str, why: str
) -> None:
    """One message has the name of the file and the problem."""
    path = written(tmp_path, "scores", content)

    done = joined(path, two)

    assert why in done.refusal
    assert str(path) in done.refusal + done.notes


def test_files_of_unknown_formats_are_refused(tmp_path: Path, two: Path) -> None:
    """A damaged Parquet file is refused, too."""
    (tmp_path / "a").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.parquet").write_bytes(b"PAR1....")

    assert "neither JSON, Parquet, OTLP nor CSV" in joined(tmp_path / "a", two).refusal
    assert "not a Parquet file" in joined(tmp_path / "b.parquet", two).refusal
    with pytest.raises(OtlpError, match="not OTLP logs in protobuf"):
        log_records_of(b"\n\x05abc")


def test_a_file_without_traces_is_refused(tmp_path: Path, two: Path) -> None:
    """A file of events has none."""
    path = written(tmp_path, "a.csv", f"span_id,score\n{3:016x},1\n")
    events = written(tmp_path, "events.jsonl", '{"type": "forget"}\n')

    assert "no OTLP traces" in joined(path, events, *TIME).refusal


def test_results_of_two_instrumentations_get_their_labels(tmp_path: Path) -> None:
    """Which of two traces of one call the bridge tells depends on which it closes first."""
    spans = [
        SpanSpec(
            trace,
            2,
            attributes={**RETRIEVER, **documents("a")},
            scope=f"scope {trace}",
            resource={"service.name": "shop"},
        )
        for trace in (1, 2)
    ]
    traces = tmp_path / "traces.json"
    traces.write_bytes(as_json(spans))
    rows = "".join(f"{trace:032x},{2:016x},1\n" for trace in (1, 2))

    done = joined(written(tmp_path, "a.csv", "trace_id,span_id,score\n" + rows), traces, *TIME)

    assert len(done.events) == 2


def test_traces_of_a_topic_are_interpreted_as_by_the_bridge() -> None:
    """Late spans are left out, refused traces have no results, and records of which only some have
    a key are uncertain."""
    late = SpanSpec(
        1, 3, 1, 3, 4, attributes={**RERANKER, **flat("input", "ab"), **flat("output", "b")}
    )
    told = [
        SpanSpec(1, 1, end_ms=9),
        SpanSpec(1, 2, 1, 1, 2, attributes={**RETRIEVER, **documents("a", "b")}),
    ]
    scores = EvaluationReader(mapping(), Grading(cutoffs=((0.5, 2),)))
    for number, trace in enumerate((1, 7)):
        row = {
            "trace_id": f"{trace:032x}",
            "span_id": f"{2:016x}",
            "rank": 1,
            "score": 1,
            "time": T,
        }
        scores.record(json.dumps(row).encode(), f"row {number}", None)

    def labelled(*more: SpanSpec) -> tuple[list[str], list[str]]:
        with TraceStore(mapping(), Options(grading=scores.grading), Limits()) as traces:
            held = tuple(msgspec.msgpack.encode(span) for span in spans_of(as_json(told)))
            traces.store_closed([ClosedTrace(f"{1:032x}", 0, 5, 2, held)])
            traces.store_closed(
                [ClosedTrace(f"{7:032x}", 1, 5, 9, (), "incomplete", "a parent never came")]
            )
            if more:
                traces.add_payload(as_json(more))
            events, unused = traces.label_events(scores.evaluations)
        results = [one["result_id"] for e in events for one in json.loads(e.value)["labels"]]
        return results, [one.reason for one in unused]

    assert labelled() == ([f"{2:016x}/1"], ["label_not_told"])
    assert labelled(late) == ([], ["label_not_told", "label_not_told"])


# Joined labels in a replay


def test_joined_labels_count_in_a_replay(tmp_path: Path) -> None:
    """Each turn has the good gain of the documents that the program found."""
    traces = unpacked(tmp_path, "langchain-openinference-graph")
    done = joined(DATA / "phoenix.csv", traces, *TIME)
    labels = written(tmp_path, "labels.jsonl", "\n".join(map(json.dumps, done.events)) + "\n")

    out = tmp_path / "out"
    arguments = ["replay", str(traces), str(labels), "--turn-scope", "all", "--out", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 0

    rows = [json.loads(line) for line in (out / "conversations.jsonl").read_text().splitlines()]
    found = {(row["conversation_id"], row["turn"]): (row["labelled"], row["cg"]) for row in rows}
    turns = (PROGRAM[:3], PROGRAM[3:5], PROGRAM[5:])
    unique = [{one for each in turn for one in each} for turn in turns]
    good = [sum(GOOD.get(one, 0) for one in each if GOOD.get(one, 0) >= 2) for each in unique]
    expected = [(len(each), gain) for each, gain in zip(unique, good, strict=True)]
    assert [found[key] for key in sorted(found)] == expected
