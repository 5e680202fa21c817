"""Traces from faulty or hostile senders have bounded time and memory, and reasons of refusal."""

from __future__ import annotations

import json
import time
import tracemalloc
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from prometheus_client import CollectorRegistry, generate_latest

from stream_metrics.cli.bridge_metrics import LoggedBridgeMetrics
from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.core.events import Limits, decode
from stream_metrics.core.events.decode import Event
from stream_metrics.core.events.record import Record
from stream_metrics.core.settings import OtlpSettings
from stream_metrics.core.telemetry import HELP, Options, Span, interpret
from stream_metrics.core.telemetry.contents.documents import (
    Document,
    DocumentIndex,
    documents_in_value,
    same_document,
)
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.interpretation import MAX_MESSAGE_LENGTH
from stream_metrics.core.telemetry.interpreter import InterpretedTrace
from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.core.telemetry.roles.scopes import ScopeChoice
from stream_metrics.lab.sources.otlp.traces import MAX_KINDS, TraceCounts, TraceStore
from stream_metrics.live.health import Health
from stream_metrics.live.page.bridge import BridgePage
from tests.helpers import examples, rest_long
from tests.otlp import RETRIEVER, SpanSpec, as_json, as_protobuf, document, documents
from tests.telemetry import (
    MAPPING,
    OTEL,
    SCOPE,
    agent,
    interpreted,
    model,
    of_kind,
    reranker,
    search,
    span,
    tool,
)

MANY = 6_000
BUT_ANOTHER = Options(scopes=ScopeChoice(frozenset({SCOPE, OTEL, "a", "b"})))
Spans = Callable[[int], list[Span]]


def chain(kind: str, depth: int, name: str = "c") -> list[Span]:
    """Nested spans."""
    ids = [f"{name}{at}" for at in range(depth)]
    return [
        of_kind(kind, id, outer, at, 10**6)
        for at, (id, outer) in enumerate(zip(ids, ["", *ids], strict=False))
    ]


def sibling_spans(
    count: int, of: Callable[[str, str, float], Span], parent: str = "agent"
) -> list[Span]:
    """A turn with concurrent child spans."""
    return [agent(end=10**6), *(of(f"s{at}", parent, 2 * at + 1) for at in range(count))]


def overlapping(id: str, parent: str, start: float) -> Span:
    """A search that does not end, of one of two scopes, with a document of its own."""
    scope = OTEL if int(start) % 4 == 1 else SCOPE
    return of_kind(
        "RETRIEVER", id, parent, start, 10**6, scope=scope,
        attributes={"output.value": json.dumps([{"id": id}])},
    )  # fmt: skip


def step(at: int) -> Span:
    """A graph node that passes on the results of one search, twice."""
    output = json.dumps({"docs": [{"id": id, "page_content": id} for id in "aa"]})
    return of_kind(
        "CHAIN", f"c{at}", "agent", 10**5 + at, attributes={"output.value": output}
    )  # fmt: skip


def searching_turn(at: int, **of: Any) -> list[Span]:
    """A turn in which a model is called; its search may be of another scope."""
    start = 10 * at
    return [
        agent(f"a{at}", start, start + 9),
        model(f"m{at}", f"a{at}", start + 1),
        search(f"s{at}", f"a{at}", start + 3, **of),
    ]


HOSTILE: dict[str, tuple[Spans, str | None]] = {
    "searches beside each other": (lambda n: sibling_spans(n, search), None),
    "searches at the end of a long line": (
        lambda n: [
            *chain("CHAIN", 900),
            *(search(f"s{at}", "c899", 1000 + 2 * at) for at in range(n)),
        ],
        None,
    ),
    "with model calls between them": (
        lambda n: [
            *chain("CHAIN", 900),
            *(search(f"s{at}", "c899", 1000 + 4 * at) for at in range(n // 2)),
            *(model(f"m{at}", "c899", 1002 + 4 * at) for at in range(n // 2)),
        ],
        None,
    ),
    "steps that hand on what searches returned": (
        lambda n: [*sibling_spans(n // 2, search), *(step(at) for at in range(n // 2))],
        "too_large",
    ),
    "overlapping searches of two scopes": (lambda n: sibling_spans(n, overlapping), "too_large"),
    "turns of two scopes side by side": (
        lambda n: [agent(f"a{at}", at, 10**6, scope="ab"[at % 2]) for at in range(n)],
        None,
    ),
    "turns with a model call and a search each": (
        lambda n: [one for at in range(n // 3) for one in searching_turn(at)],
        None,
    ),
    "turns whose searches are left out": (
        lambda n: [one for at in range(n // 3) for one in searching_turn(at, scope="another")],
        "left_out",
    ),
    "tools that run beside searches": (
        lambda n: [
            agent(end=10**6),
            *(tool(f"t{at}", "agent", 1, 10**6) for at in range(n // 10)),
            *(search(f"s{at}", "agent", 2 * at + 2) for at in range(n - n // 10)),
        ],
        "too_large",
    ),
    "too many turns": (lambda n: [agent(f"a{at}", at) for at in range(2 * n)], "too_large"),
    "searches and rerankers": (
        lambda n: [
            *sibling_spans(n // 2, search),
            *(reranker(f"r{at}", "agent", 10**5 + at, "a", "a") for at in range(n // 2)),
        ],
        "too_large",
    ),
    "tools that look like searches": (
        lambda n: sibling_spans(n, lambda id, parent, start: tool(f"search{id}", parent, start)),
        "unrecognised",
    ),
    "retrievers without documents inside each other": (
        lambda n: [one for at in range(n // 500) for one in chain("RETRIEVER", 500, f"{at}.")],
        "content_off",
    ),
    "spans inside each other without end": (lambda n: chain("CHAIN", n), "too_large"),
    "a circle": (
        lambda n: [
            span(f"x{at}", f"x{(at + 1) % n}", at, attributes={"output.value": "[]"})
            for at in range(n)
        ],
        "cycle",
    ),
    "spans whose parents never came": (
        lambda n: [span(f"x{at}", "lost") for at in range(n)],
        "incomplete",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_time_is_not_quadratic_in_the_number_of_spans(name: str) -> None:
    """Ten times as many spans take less than forty times as long; quadratic time would be a
    hundred."""
    made, reason = HOSTILE[name]

    few, _ = _timed(made(MANY // 10))
    many, refused = _timed(made(MANY))

    assert refused == ({reason} if reason else set())
    assert many < 40 * max(few, 0.01)


def _timed(spans: list[Span]) -> tuple[float, set[str]]:
    """The seconds that interpreting the spans takes, and the reasons of refusals."""
    started = time.process_time()
    found = interpret(spans, MAPPING, BUT_ANOTHER)
    return time.process_time() - started, {*found.refused}


class Compared(str):
    """A scope that counts its comparisons."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def test_a_turn_is_compared_with_few_concurrent_turns() -> None:
    """Two instrumentations have 1,000 turns each that all overlap."""
    spans = [agent(f"a{at}", at, 10**6, scope=Compared("ab"[at % 2])) for at in range(2_000)]

    Compared.times = 0
    interpret(spans, MAPPING)

    assert Compared.times < 10 * len(spans)


@pytest.mark.parametrize(
    "value",
    [
        "<NodeWithScore(node=T(id_=" + "a" * 200_000,
        "Document(id=" + "a" * 200_000,
        "[" * 200_000,
        "(" * 200_000,
        "{" * 200_000,
        '"' * 200_000,
        "-" * 200_000,
        "[" + "'a'," * 50_000 + "]",
        "[" + "1**" * 60_000 + "1]",
        json.dumps(json.dumps(json.dumps(["x" * 100_000]))),
    ],
    ids=lambda value: value[:12],
)
def test_every_text_is_parsed_in_linear_time(value: str) -> None:
    """Each of 200,000 characters is visited a few times; a second would mean a thousand."""
    started = time.process_time()

    documents_in_value(value)

    assert time.process_time() - started < 5


@pytest.mark.parametrize("made", ["_{}x", "({}redact", "[redact{}x", '"{}'])
@pytest.mark.parametrize("row", ["_", "*", "(", ")", "\\", " ", "tool"])
def test_every_attribute_is_read_in_linear_time(made: str, row: str) -> None:
    """Each of 200,000 characters is visited a few times, also those of the attribute's name."""
    value = made.format(row * (200_000 // len(row)))
    names = ("session.id", "agent.name", "output.value", "gen_ai.output.messages", value)
    attributes = dict.fromkeys(names, value)
    started = time.process_time()

    interpreted(agent(attributes=attributes), model("m", "agent", 1, attributes=attributes))
    interpreted(span("x", attributes=attributes))

    assert time.process_time() - started < 5


def letters(number: int, first: int = 0) -> str:
    """Documents with texts of their own, as a search or a reranker writes them."""
    return json.dumps(
        [{"id": f"d{at}", "page_content": f"text of document {at}"}
         for at in range(first, first + number)]
    )  # fmt: skip


def test_a_turn_with_too_many_documents_to_rerank_is_refused() -> None:
    """100 rerankers are given 1,000 documents each, which 100 searches may have returned."""
    given = {f"reranker.{name}_documents": letters(1_000) for name in ("input", "output")}
    spans = [
        agent(end=10**6),
        *(search(f"s{at}", "agent", 10 + 2 * at, found="ab") for at in range(100)),
        *(
            of_kind("RERANKER", f"r{at}", "agent", 10_000 + at, attributes=given)
            for at in range(100)
        ),
    ]

    took, refused = _timed(spans)

    assert refused == {"too_large"}
    assert took < 20


@pytest.mark.long
def test_a_turn_with_too_much_text_to_search_is_refused() -> None:
    """Ten models are shown ten million characters each, which may contain 20,000 documents."""
    spans = [
        agent(end=10**6),
        *(
            search(
                f"s{at}", "agent", 10 + 2 * at, found="",
                attributes={"output.value": letters(1_000, 1_000 * at)},
            )
            for at in range(20)
        ),
        *(
            model(f"m{at}", "agent", 1_000 + at, attributes={"input.value": "x" * 10_000_000})
            for at in range(10)
        ),
    ]  # fmt: skip

    took, refused = _timed(spans)

    assert refused == {"too_large"}
    assert took < 60


def test_python_text_with_unknown_escapes_is_read_without_a_warning() -> None:
    """Python's warning about a sender's text would help nobody."""
    assert parse_value(r"['\d']") == ["\\d"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (r"['a\ud800b']", ["a\ufffdb"]),
        (r"['\ud83d\ude00']", ["\U0001f600"]),
        (r'{"\udfff": "\udc00"}', {"\ufffd": "\ufffd"}),
        (r"Document(id='a\ud800')", {"type": "Document", "id": "a\ufffd"}),
        (f"[0x{'f' * 5_000}]", None),
        (f"[-0x{'f' * 5_000}]", None),
    ],
)
def test_what_is_read_from_text_can_be_written(value: str, read: Any) -> None:
    """Half a surrogate pair, as in a text that JavaScript cut off, is a replacement character, and
    an integer too long for a text is no value."""
    assert parse_value(value) == read


def test_no_name_makes_the_metrics_or_the_page_unreadable() -> None:
    """One agent's name holds half a surrogate pair, and its trace is refused."""
    health, registry = Health(reasons={}), CollectorRegistry()
    page = BridgePage(health)
    metrics = LoggedBridgeMetrics(registry, page, ["traces"])
    attributes = {"metadata": r"{'lc_agent_name': 'a\ud800'}"}
    lost = span("q", "lost", attributes=attributes)
    one = interpreted(agent(attributes=attributes), lost)
    assert one.refused == {"incomplete": 1}

    metrics.trace_closed(InterpretedTrace(one, [], [], 0))

    assert 'agent="a\ufffd"' in generate_latest(registry).decode()
    assert "a\ufffd: incomplete" in page.render(reasons=True).encode().decode()


@pytest.mark.parametrize("value", [{"a": 1}, ["a"], None, 1.5])
def test_types_that_are_not_strings_are_ignored(value: Any) -> None:
    """Senders may write anything where frameworks write a word."""
    parts = {"type": value, "role": value, "content": "x", "data": {"type": value}}
    attributes = {"output.value": json.dumps([parts]), "input.value": json.dumps(parts)}

    one = interpreted(agent(attributes=attributes), search("s", "agent", 1, attributes=attributes))

    assert len(one.turns) == 1


DOCUMENTS = st.builds(
    Document,
    id=st.none() | st.sampled_from("ab"),
    url=st.none() | st.sampled_from(["u", "v"]),
    page=st.none() | st.sampled_from(["u", "w"]),
    text=st.none() | st.sampled_from(["s", "t"]),
)


@settings(max_examples=examples(300))
@given(st.lists(DOCUMENTS, max_size=5), DOCUMENTS)
def test_looking_up_a_document_equals_comparing_with_each(
    documents: list[Document], one: Document
) -> None:
    """The result is the position of the first equal one, or of one with the same id and text."""
    same = [place for place, other in enumerate(documents) if same_document(one, other)]
    exact = [
        place
        for place, other in enumerate(documents)
        if one.id is not None and (one.id, one.text) == (other.id, other.text)
    ]

    assert DocumentIndex(documents).position(one) == next(iter((*exact, *same)), None)


def test_messages_are_short_for_long_attribute_names() -> None:
    """A name may have a million characters."""
    one = interpreted(span("q", "", 1, attributes={f"db.vector.{'x' * 10**6}": 1}))

    [refusal] = one.refusals
    assert refusal.reason == "unrecognised"
    assert len(refusal.message) <= MAX_MESSAGE_LENGTH + 1


def test_a_trace_with_one_bad_id_is_refused() -> None:
    """The span without a valid id may be one of its searches."""
    one = interpreted(agent(), search("s", "agent", 1), search("", "agent", 2))

    assert (one.turns, one.refused) == ((), {"bad_id": 1})


def test_a_cycle_of_spans_is_refused() -> None:
    """The smallest cycle is one span."""
    assert interpreted(search("s", "s", 1)).refused == {"cycle": 1}


@pytest.mark.parametrize(
    "spans",
    [
        (agent(), model("m", "agent", 1)),
        (search("s", "", 1), span("beside", "s", 0, attributes={"k": "v"})),
    ],
    ids=["a turn without a search", "a trace that begins with another span"],
)
@pytest.mark.parametrize("start_ns", [0, 1_718_020_800, 2**63 - 1])
def test_a_turn_with_an_invalid_start_is_refused(spans: tuple[Span, ...], start_ns: int) -> None:
    """Its number would be that time."""
    first = msgspec.structs.replace(spans[0], start_ns=start_ns)
    last = msgspec.structs.replace(spans[-1], start_ns=start_ns)

    for changed in ((first, *spans[1:]), (*spans[:-1], last)):
        one = interpreted(*changed)
        assert not one.turns or one.turns[0].number > 10**15
        assert set(one.refused) <= {"time_out_of_range"}
        assert one.turns or one.refused


# -- payloads and topics ----------------------------------------------------------------------


def kept(settings: OtlpSettings, payloads: Iterator[bytes]) -> tuple[list[Record], TraceCounts]:
    """The records of payloads, and the counts."""
    with TraceStore(settings.mapping(), settings.options(NO_GRADES), Limits()) as traces:
        for payload in payloads:
            traces.add_payload(payload)
        return list(traces.records()), traces.counts


SMALL = SpanSpec(2, 1, attributes={**RETRIEVER, **documents("d")})


@pytest.mark.parametrize(
    "encode",
    rest_long([pytest.param(as_json, id="json"), pytest.param(as_protobuf, id="protobuf")]),
)
@pytest.mark.parametrize(
    ("attributes", "refused"),
    [
        ({f"retrieval.documents.{at}.document.id": "d" for at in range(20_000)}, "too_large"),
        ({f"db.vector.{at}": at for at in range(20_000)}, "unrecognised"),
    ],
    ids=["documents", "others"],
)
def test_a_span_with_20_000_attributes_has_a_reason(
    encode: Callable[[list[SpanSpec]], bytes], attributes: dict[str, Any], refused: str
) -> None:
    """Other traces are interpreted, and memory stays a small multiple of the payload."""
    wide = SpanSpec(
        1, 1, attributes={**(RETRIEVER if refused == "too_large" else {}), **attributes}
    )
    payload = encode([wide, SMALL])
    tracemalloc.start()

    records, counts = kept(OtlpSettings(), iter([payload]))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts.refused == {refused: 1}
    assert len(records) == 1
    assert peak < 20 * len(payload)


@pytest.mark.slow
def test_memory_does_not_grow_with_an_endless_trace() -> None:
    """Its spans stay in the file unread; other traces are interpreted."""
    peaks = []
    for count in (3_000, 9_000):
        spans = (SpanSpec(1, number) for number in range(1, count))
        each = [SMALL, *spans]
        payloads = (as_json(each[at : at + 500]) for at in range(0, count, 500))
        tracemalloc.start()
        records, counts = kept(OtlpSettings(max_spans=1_500), payloads)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (len(records), counts.refused) == (1, {"too_large": 1})

    assert peaks[1] < 1.2 * peaks[0] + 10**6


def test_a_trace_of_more_bytes_than_allowed_is_refused() -> None:
    """The number of its spans does not matter."""
    large = (as_json([SpanSpec(1, at, attributes={"x": "y" * 10_000})]) for at in range(1, 200))
    payloads = iter([as_json([SMALL]), *large])

    records, counts = kept(OtlpSettings(max_trace_bytes=1_000_000), payloads)

    assert (len(records), counts.refused) == (1, {"too_large": 1})
    assert "otlp.max_trace_bytes" in HELP["too_large"]


def test_kinds_of_spans_are_bounded() -> None:
    """A sender may give each span another name."""
    spans = [
        SpanSpec(1, at, attributes={"db.system": f"db {at}"}) for at in range(1, MAX_KINDS + 50)
    ]

    _, counts = kept(OtlpSettings(), iter([as_json(spans)]))

    assert len(counts.kinds) == MAX_KINDS + 1
    assert sum(counts.kinds.values()) == len(spans)


def _metrics(made: Callable[[Metric], Any]) -> bytes:
    found = MetricsData()
    metric = found.resource_metrics.add().scope_metrics.add().metrics.add()
    made(metric)
    return bytes(found.SerializeToString())


def _logs() -> bytes:
    found = LogsData()
    record = found.resource_logs.add().scope_logs.add().log_records.add()
    record.time_unix_nano, record.body.string_value = 5_000_000_000, "text"
    record.trace_id, record.span_id = bytes(range(16)), bytes(range(8))
    return bytes(found.SerializeToString())


def _sum(metric: Metric) -> None:
    metric.name, metric.description = "sixteen letters.", "eight le"
    metric.sum.data_points.add().as_double = 1.5


def _gauge(metric: Metric) -> None:
    metric.name = "requests"
    metric.gauge.data_points.add().time_unix_nano = 1_718_020_800_000_000_000


OTHER_SIGNALS = {
    "sums": _metrics(_sum),
    "gauges": _metrics(_gauge),
    "logs": _logs(),
    "metrics in JSON": b'{"resourceMetrics": [{"scopeMetrics": []}]}',
    "logs in JSON": b'{"resourceLogs": [{"scopeLogs": []}]}',
}


@pytest.mark.parametrize("name", ["sums", "gauges", "logs"])
def test_another_signal_in_protobuf_is_not_read_as_traces(name: str) -> None:
    """Its messages have partly the same structure."""
    with pytest.raises(OtlpError, match="traces"):
        spans_of(OTHER_SIGNALS[name])


def _recording(path: Path, *values: bytes) -> Sources:
    lines = (
        {"topic": "otlp", "offset": at, "value_base64": b64encode(value).decode()}
        for at, value in enumerate(values)
    )
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return Sources([str(path)], Settings(), "earliest", "end")


@pytest.mark.parametrize("name", sorted(OTHER_SIGNALS))
def test_another_signal_on_the_topic_is_a_bad_record(name: str, tmp_path: Path) -> None:
    """Later records are read."""
    sources = _recording(tmp_path / "day.jsonl", OTHER_SIGNALS[name], as_protobuf([SMALL]))

    found = [decode(record.value, limits=Limits()) for record in sources.records()]

    assert [isinstance(one, Event) for one in found] == [False, True]


def test_a_replay_of_other_signals_without_turns_fails(tmp_path: Path) -> None:
    """Metrics and logs are no substitute for events."""
    useless = as_protobuf([SpanSpec(1, 1)])
    sources = _recording(tmp_path / "day.jsonl", *OTHER_SIGNALS.values(), useless)

    with pytest.raises(UsageError, match="nothing in 1 spans"):
        list(sources.records())


@pytest.mark.parametrize("encode", [as_json, as_protobuf], ids=["json", "protobuf"])
def test_a_truncated_payload_is_an_error_or_gives_its_first_spans(
    encode: Callable[[list[SpanSpec]], bytes],
) -> None:
    """It never gives anything else."""
    made = [SMALL, SpanSpec(3, 1, attributes={"a": [1, {"b": 2.5}]})]
    payload, whole = encode(made), spans_of(encode(made))

    for length in range(1, len(payload)):
        try:
            found = spans_of(payload[:length])
        except OtlpError:
            continue
        assert found == whole[: len(found)]


@pytest.mark.parametrize("size", [0, 1, 7, 9, 15, 17, 32])
def test_ids_of_a_wrong_length_are_ignored(size: int) -> None:
    """This holds in hexadecimal and as bytes."""
    text = document([SMALL])
    [found] = text["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for name in ("traceId", "spanId"):
        found[name] = "ab" * size if 2 * size not in (32, 16) else "xy" * size

    [one] = spans_of(json.dumps(text).encode())

    assert (one.trace_id, one.span_id) == ("", "")
    assert interpret([one], MAPPING).refused == {"bad_id": 1}
