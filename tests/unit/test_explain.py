"""``stream-metrics explain``: what it says of traces, and that each row gives what it says."""

from __future__ import annotations

import io
import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from pydantic import ValidationError
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError
from stream_metrics.cli.errors import error_lines
from stream_metrics.cli.explain_view import print_explanation
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.settings import OtlpSettings
from stream_metrics.core.telemetry import Interpretation, Options, Span, SpanMapping, interpret
from stream_metrics.core.telemetry.assembly import ClosedTrace
from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES
from stream_metrics.lab.sources.otlp import explanation
from stream_metrics.lab.sources.otlp.explanation import Explanation, as_documents
from stream_metrics.lab.sources.otlp.traces import TraceStore
from stream_metrics.lab.sources.unchanged import InputError
from tests.otlp import SpanSpec, as_json
from tests.shapes import CASES, HITS
from tests.telemetry import CAPTURES, CONFORMANCE, agent, capture, search, span, traces
from tests.unit.test_tool_searches import genai, ran

QUERY = json.dumps({"query": "refunds"})
PASSAGES = "\n\n".join(hit.text for hit in HITS)
LISTED = [{"id": "a", "text": "Refunds take five days."}, {"id": "b", "text": "By train."}]


def closed(spans: Sequence[Span]) -> ClosedTrace:
    """A trace as the assembly of a topic leaves it."""
    encoded = tuple(map(msgspec.msgpack.encode, spans))
    return ClosedTrace(spans[0].trace_id, 0, 0, len(spans), encoded)


def reading(otlp: OtlpSettings, row: str) -> tuple[SpanMapping, Options] | None:
    """How traces are interpreted with a row."""
    try:
        with_row = otlp.with_row(row)
    except ValueError:
        return None
    return with_row.mapping(), with_row.options(NO_GRADES)


def explained(
    *several: Sequence[Span], texts: bool = True, **settings: Any
) -> list[dict[str, Any]]:
    """The explanation of these traces."""
    otlp = OtlpSettings.model_validate(settings)
    found = Explanation(partial(reading, otlp), Limits())
    with TraceStore(otlp.mapping(), otlp.options(NO_GRADES), Limits()) as store:
        store.store_closed(map(closed, several))
        found.read(store)
    return [*as_documents(found, {}, texts=texts)]


def tools(documents: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The tools by name."""
    return {one["name"]: one for one in documents if one["what"] == "tool"}


def turn(*inner: Span, trace_id: str = "t") -> list[Span]:
    """A turn with these spans between two model calls."""
    given = [
        genai(
            "invoke_agent",
            "turn",
            0,
            100,
            gen_ai__agent__name="support",
            gen_ai__conversation__id=f"conversation {trace_id}",
        ),
        genai("chat", "first", 1, 5),
        *inner,
        genai("chat", "last", 90, 95),
    ]
    return [msgspec.structs.replace(one, trace_id=trace_id) for one in given]


def printed(documents: Iterable[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is printed at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    print_explanation(documents, "traces.jsonl")
    return out.getvalue()


def test_a_tool_is_told_with_what_decided_on_it_and_how_it_was_read() -> None:
    """Role, shape, place, number of results, identity and an example."""
    answer = CASES["Elasticsearch, OpenSearch, Marqo: _search"].answer
    one = tools(explained(turn(ran("search_docs", answer(HITS), QUERY))))["search_docs"]

    assert one["agent"] == "support"
    assert one["roles"] == {"search": 1}
    assert list(one["why"]) == ["its name, its arguments and its scores say that it searches"]
    assert list(one["shapes"]) == ["Elasticsearch, OpenSearch, Marqo: _search"]
    assert list(one["places"]) == ["gen_ai.tool.call.result"]
    assert (one["results"], one["fewest"], one["most"], one["empty"]) == (3, 3, 3, 0)
    assert one["identified"] == {"id": 3}
    assert one["example"] == f"id: kb-1; title: Refunds; text: {HITS[0].text}"
    assert one["refused"] == {}
    assert one["effects"] == []


TEXT = turn(ran("search_docs", PASSAGES, QUERY))
MESSAGES = turn(ran("get_messages", LISTED))
ROWS = turn(ran("kb_search", {"data": {"listing": [{"key": "a", "body": "x" * 60}]}}, QUERY))
STRINGS = turn(ran("search_docs", [hit.title for hit in HITS], QUERY))
FUNCTION = turn(span("f", "turn", 10, 20, {"code.function": "find"}, name="find", scope="my.app"))
SEVERAL = turn(
    span("f", "turn", 10, 20, name="find", scope="my.app"),
    span("g", "turn", 30, 40, name="fetch", scope="my.app"),
)
ELSEWHERE = turn(ran("search_docs", None, QUERY, attributes={"app.hits": json.dumps(LISTED)}))
ODD = turn(ran('a "b"\t[*]', LISTED, QUERY))
ORPHAN = turn(ran("search_docs", LISTED, QUERY))
ORPHAN[0] = msgspec.structs.replace(ORPHAN[0], parent_id="missing")
SMALL = {
    "a text": (TEXT, 3),
    "messages": (MESSAGES, 2),
    "a list of unknown names": (ROWS, 1),
    "a list of titles": (STRINGS, 3),
    "a function": (FUNCTION, 0),
    "documents in an attribute that no row names": (ELSEWHERE, 2),
    "a name that patterns and TOML have to spell otherwise": (ODD, 2),
    "a trace without its root": (ORPHAN, 0),
}


def effects(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows with what they would give."""
    found = [one for tool in tools(documents).values() for one in tool["effects"]]
    return found + [one["together"] for one in documents if one.get("together")]


def gives_what_it_says(effect: dict[str, Any], several: Sequence[Sequence[Span]]) -> None:
    """Interpret the traces with the row as a settings file has it."""
    otlp = OtlpSettings.model_validate(tomllib.loads(effect["row"])["otlp"])
    found = [interpret(spans, otlp.mapping(), otlp.options(NO_GRADES)) for spans in several]
    turns = [turn for one in found for turn in one.turns]
    searches = [search for turn in turns for search in turn.searches]

    assert effect["turns"] == len(turns)
    assert effect["skipped"] == sum(turn.skipped for turn in turns)
    assert effect["all_searches"] == len(searches)
    assert effect["all_results"] == sum(len(search.results) for search in searches)


@pytest.mark.parametrize("name", SMALL)
def test_each_row_is_valid_and_gives_what_it_says(name: str) -> None:
    """What is refused has a row that ends it, and one gives the results."""
    spans, results = SMALL[name]
    found = effects(explained(spans))

    assert found
    assert any(effect["results"] == results for effect in found)
    assert found[0]["turns"] == 1
    for effect in found:
        gives_what_it_says(effect, [spans])


def test_each_row_gives_what_it_says_of_a_captured_program() -> None:
    """All eight searches, each with three results, in three turns."""
    several = traces(capture("langchain-mlflow-tool-semconv", CONFORMANCE))
    found = effects(explained(*several))

    assert (found[0]["searches"], found[0]["results"], found[0]["turns"]) == (8, 24, 3)
    for effect in found:
        gives_what_it_says(effect, several)


def test_settings_that_change_nothing_are_not_told() -> None:
    """As one turn, each trace would still lack the results of the tools that the model called."""
    several = traces(capture("haystack-openinference-rawtool", CONFORMANCE))

    assert effects(explained(*several)) == []


def test_a_row_that_does_not_help_is_not_told() -> None:
    """No row finds an identity in results that have none."""
    spans = turn(ran("search_docs", [{"score": 0.5}, {"score": 0.4}], QUERY))
    found = explained(spans)

    rows = [effect["row"] for effect in effects(found)]

    assert rows == ['otlp.tools = {"search_docs" = "other"}']


def test_a_tool_that_does_not_say_that_it_searches_is_first_called_none() -> None:
    """Whoever copies the first row without reading gets no figure of what is no search."""
    one = tools(explained(MESSAGES))["get_messages"]
    told = [(effect["condition"], effect["searches"]) for effect in one["effects"]]

    assert told == [("if it is no search", 0), ("if it searches", 1)]


def test_a_tool_that_is_passed_over_is_told_with_the_row_that_makes_it_a_search() -> None:
    """It counts as no search beside one, and nothing says so but this."""
    spans = turn(
        ran("search_docs", LISTED, QUERY, id="s"), ran("manual", PASSAGES, id="m", start=30)
    )
    one = tools(explained(spans))["manual"]
    first = one["effects"][0]

    assert (one["outcomes"], one["refused"]) == ({"no search": 1}, {})
    assert first["row"] == 'otlp.shapes = [{tool = "manual", split = "\\n\\n"}]'
    assert first["condition"] == "if it searches, and blank lines divide its results"
    assert (first["searches"], first["all_searches"], first["all_results"]) == (1, 2, 5)
    gives_what_it_says(first, [spans])


def test_a_name_that_may_identify_documents_is_tried_and_a_rank_is_not() -> None:
    """Documents with the same text and no id have another name that tells them apart."""
    found = [
        {"page_content": "same", "metadata": {"article_id": f"a-{at}", "result_id": at}}
        for at in range(3)
    ]
    kind = {"openinference.span.kind": "RETRIEVER", "output.value": json.dumps(found)}
    spans = turn(span("r", "turn", 10, 20, kind, name="kb"))
    (only,) = tools(explained(spans))["kb"]["effects"]

    assert only["row"] == 'otlp.ids = ["article_id"]'
    assert (only["searches"], only["results"], only["turns"]) == (1, 3, 1)
    gives_what_it_says(only, [spans])


def test_rows_come_before_those_of_the_settings() -> None:
    """A row that reads the result differently is tried before the row that is there."""
    own = {"tool": "search_docs", "split": "---"}
    otlp = OtlpSettings.model_validate({"shapes": [own], "tools": {"a": "other", "b": "other"}})
    found = otlp.with_row('otlp.shapes = [{tool = "search_docs", split = "whole"}]')

    assert [shape.split for shape in found.shapes] == ["whole", "---"]
    assert found.with_row('otlp.tools = {"b" = "search"}').tools == {"b": "search", "a": "other"}


def test_rows_of_several_functions_are_told_together() -> None:
    """One alone would leave the turn refused because of the other."""
    documents = explained(SEVERAL)
    alone = [tools(documents)[name]["effects"][0] for name in ("find", "fetch")]
    (together,) = [one["together"] for one in documents if one.get("together")]

    assert [one["turns"] for one in alone] == [0, 0]
    assert [one["no_search"] for one in alone] == [1, 1]
    assert (together["turns"], together["skipped"]) == (1, 1)
    gives_what_it_says(together, [SEVERAL])


def test_a_turn_that_something_else_refuses_names_it() -> None:
    """The searches of a turn with an unknown tool are right themselves."""
    spans = turn(
        ran("search_docs", LISTED, QUERY, id="s"), ran("get_messages", LISTED, id="m", start=30)
    )
    one = tools(explained(spans))["search_docs"]

    assert one["refused"] == {"unrecognised": 1}
    assert one["own"] == {}
    assert one["faults"] == {"get_messages": 1}


def test_calls_without_spans_are_told_with_the_messages_they_stand_in() -> None:
    """The loop over a model's API has no spans of its tools."""
    asked = [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}]
    asked[0]["tool_calls"] = [
        {"id": "c", "type": "function", "function": {"name": "search_docs", "arguments": QUERY}}
    ]
    told = [{"role": "tool", "tool_call_id": "c", "content": json.dumps(LISTED)}]
    spans = turn()
    spans[1] = msgspec.structs.replace(
        spans[1],
        attributes={**spans[1].attributes, "gen_ai.output.messages": json.dumps(asked)},
    )
    spans[2] = msgspec.structs.replace(
        spans[2], attributes={**spans[2].attributes, "gen_ai.input.messages": json.dumps(told)}
    )
    one = tools(explained(spans))["search_docs"]

    assert list(one["places"]) == ["the messages of the next model call; the call has no span"]
    assert one["outcomes"] == {"search": 1}


def test_texts_are_in_the_example_only() -> None:
    """Without texts, neither the question, the query nor a result is anywhere, also not in names of
    spans that have them."""
    asked = "Where is my orange parcel?"
    canaries = (asked, "orange", "Refunds take", "By train")
    question = {"gen_ai.input.messages": json.dumps([{"role": "user", "content": asked}])}
    query = json.dumps({"query": asked})
    several = [
        turn(
            ran("search_docs", LISTED, query, id="s"),
            ran("look up", PASSAGES, query, id="x", start=30),
            trace_id="a",
        ),
        turn(span("f", "turn", 50, 60, name=f"answer {asked}", scope="my.app"), trace_id="b"),
        turn(span("f", "turn", 50, 60, name=f"search {asked}", scope="my.app"), trace_id="c"),
    ]
    for spans in several:
        spans[0] = msgspec.structs.replace(spans[0], attributes={**spans[0].attributes, **question})
    without, whole = (json.dumps(explained(*several, texts=texts)) for texts in (False, True))

    assert not [one for one in canaries if one in without]
    assert "search *" in without
    assert "Refunds take" in whole


def test_a_trace_that_is_refused_unread_is_told() -> None:
    """Such as one of a topic that has more open traces than there is room for."""
    refused = Interpretation("a", service="support", agent="support", spans=7)
    refused.refuse("no_room", "", "more traces are open", limit="bridge.open_traces")
    found = Explanation(partial(reading, OtlpSettings()), Limits())
    found.add_refused(refused)
    about, agent, told = as_documents(found, {}, texts=True)

    assert (about["spans"], agent["name"], agent["refused"]) == (7, "support", {"no_room": 1})
    assert told["messages"] == {"no_room": "more traces are open (bridge.open_traces)"}


def test_traces_without_a_search_or_a_turn_are_told_with_their_scopes() -> None:
    """Whoever exported the wrong spans sees what they are."""
    (about,) = explained([span("a", name="GET", scope="http.client")])

    assert (about["empty"], about["empty_scopes"]) == (1, {"http.client": 1})
    assert about["empty_names"] == ["GET"]


def test_remarks_say_what_they_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of traces without a turn, spans without a role, and iterations that times tell apart."""
    several = [
        [span("a", name="GET", scope="http.client", trace_id="0")],
        [
            *recorded_by("1", "probe"),
            search("later", "a", 20, found="cd", trace_id="1", scope="probe"),
            span("w", "a", 1, 2, name="websocket", trace_id="1"),
        ],
    ]
    said = " ".join(printed(explained(*several), monkeypatch).split())

    assert "neither a search nor a turn in which a model answered: GET; spans by scope" in said
    assert "http.client (1); there is nothing to do unless you expected searches there" in said
    assert "spans without a role, which are passed over: websocket; if one searches, give" in said
    assert "(iterations_inferred): SRR and SRE hold" in said


def test_settings_beyond_those_that_are_tried_are_counted_and_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever misses the right one finds it in the JSON."""
    found = [
        span(
            f"f{at}", "turn", 10 + at, 10.5 + at,
            {f"app.hits{at}": json.dumps(LISTED), "code.function": "search"},
            name="search", scope="my.app",
        )
        for at in range(8)
    ]  # fmt: skip
    documents = explained(turn(*found))
    one = tools(documents)["search"]
    said = printed(documents, monkeypatch)

    assert len(one["not_tried"]) == 3
    assert '"app.hits5"' in one["not_tried"][0]["row"]
    assert "3 more settings were not tried; --format json lists them" in said


def test_what_is_refused_stands_out_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a colour, unless NO_COLOR is set; elsewhere there is none."""
    documents = explained(TEXT)
    plain = printed(documents, monkeypatch)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = printed(documents, monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")

    assert "\x1b" not in plain
    assert coloured.count("\x1b[33m") == 2
    assert "\x1b[33m" not in printed(documents, monkeypatch)


def test_each_reason_has_its_message_and_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside others of the same tool that a row would help."""
    several = [
        turn(ran("search_docs", PASSAGES, QUERY), trace_id="a"),
        turn(ran("search_docs", None, QUERY), trace_id="b"),
    ]
    said = " ".join(printed(explained(*several), monkeypatch).split())

    assert "refused 2 of 2 (100%): unrecognised (1); content_off (1)" in said
    assert "content_off: the tool's result is not recorded" in said
    assert "what helps: let the instrumentation record the documents of searches" in said
    assert 'split = "\\n\\n"}] with this: 1 of 2 searches, 3 results; 1 still refused' in said


def test_the_example_has_200_characters() -> None:
    """A longer one ends with an ellipsis."""
    long = [{"id": "a", "text": "word " * 100}]
    one = tools(explained(turn(ran("search_docs", long, QUERY))))["search_docs"]

    assert len(one["example"]) == 200
    assert one["example"].endswith("…")


def test_an_output_without_a_character_shows_a_question_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as one in ASCII, where an error would end the command."""
    documents = explained(TEXT)
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    print_explanation(documents, "traces.jsonl")
    out.flush()

    assert b"after approval. ??" in written.getvalue()


def recorded_by(trace: str, scope: str) -> list[Span]:
    """A turn of the service shop with a search."""
    of: dict[str, Any] = {"trace_id": trace, "scope": scope, "resource": {"service.name": "shop"}}
    return [agent("a", end=100, **of), search("s", "a", 1, found="ab", **of)]


def test_a_row_that_chooses_a_scope_names_it_and_the_service() -> None:
    """The name before the scope is that of the service, not of the agent."""
    found = effects(explained(recorded_by("1", "langfuse"), recorded_by("2", "probe")))

    assert [one["condition"] for one in found] == [
        f"if {scope} is the one to use of service.name shop" for scope in ("langfuse", "probe")
    ]


def test_scopes_to_choose_are_told_also_if_each_loses_turns_that_the_other_lacks() -> None:
    """In a bigger input both scopes have turns of their own."""
    alone = [
        [
            msgspec.structs.replace(one, start_ns=one.start_ns + ns, end_ns=one.end_ns + ns)
            for one in recorded_by(str(ns), scope)
        ]
        for ns, scope in ((10**12, "langfuse"), (10**13, "probe"))
    ]
    found = effects(explained(recorded_by("1", "langfuse"), *alone, recorded_by("2", "probe")))

    assert [(one["turns"], one["turns_before"]) for one in found] == [(2, 3), (2, 3)]


def test_scopes_to_choose_are_told_of_traces_far_from_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows are tried on the traces that were recorded twice, however many there are before."""
    monkeypatch.setattr(explanation, "MAX_TRIED_TRACES", 2)
    before = [turn(ran("search_docs", LISTED, QUERY), trace_id=f"0{at}") for at in range(3)]
    found = effects(explained(*before, recorded_by("1", "langfuse"), recorded_by("2", "probe")))

    assert len(found) == 2
    assert {(one["turns"], one["traces"], one["of_traces"]) for one in found} == {(1, 2, 5)}


def test_what_the_settings_leave_out_has_no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was chosen."""
    several = recorded_by("1", "langfuse"), recorded_by("2", "probe")
    said = printed(explained(*several, scopes={"shop": ["langfuse"]}), monkeypatch)

    assert "as you chose: there is nothing to do" in " ".join(said.split())
    assert "what helps" not in said


def test_spans_with_the_ids_of_others_are_counted(tmp_path: Path) -> None:
    """A folder of captures with equal ids would mix them without a word."""
    packed = (CAPTURES / "langchain-openinference-rawtool.jsonl.gz").read_bytes()
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(packed)
    done = run(str(tmp_path))

    assert "41 spans are copies of others, which count once" in " ".join(done.stdout.split())


def test_spans_with_the_ids_of_others_and_other_contents_are_counted(tmp_path: Path) -> None:
    """Only one of each counts, which matters only if they differ."""
    for name in ("a", "b"):
        told = [SpanSpec(1, 1), SpanSpec(1, 2, attributes={"app.name": name})]
        (tmp_path / f"{name}.json").write_bytes(as_json(told))
    said = " ".join(run(str(tmp_path)).stdout.split())

    assert "2 spans have the ids of others and are left out, 1 of them with other contents" in said


@pytest.mark.parametrize("section", ["metrics", "otlp"])
def test_a_row_in_the_wrong_place_of_a_settings_file_is_told_where_it_belongs(
    tmp_path: Path, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the header of a section, TOML takes it for a setting of that section."""
    monkeypatch.setenv("STREAM_METRICS_CONFIG", "")
    (tmp_path / "own.toml").write_text(f'[{section}]\notlp.turn = "trace"\n')
    done = run(str(tmp_path), "--config", str(tmp_path / "own.toml"))

    assert isinstance(done.exception, ValidationError)
    assert "belongs above the first [section]" in error_lines(done.exception)[0]


def test_unknown_tools_of_the_same_turns_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row alone changes nothing and names the other tool, and two lines are no valid TOML."""
    spans = turn(
        ran("get_messages", LISTED, id="m", start=20), ran("get_orders", LISTED, id="o", start=30)
    )
    documents = explained(spans)
    (together,) = [one["together"] for one in documents if one.get("together")]
    said = " ".join(printed(documents, monkeypatch).split())

    assert together["row"] == 'otlp.tools = {get_messages = "other", get_orders = "other"}'
    assert "what follows together, if none of them is a search:" in said
    assert "0 turns of these traces count, as before: get_orders is refused, too" in said
    assert (together["turns"], together["skipped"]) == (1, 1)
    gives_what_it_says(together, [spans])


def test_a_function_whose_name_says_that_it_searches_is_not_first_called_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first row reads the documents, once they are recorded where it says."""
    spans = turn(span("f", "turn", 10, 20, name="search_handbook", scope="my.app"))
    documents = explained(spans)
    one = tools(documents)["search_handbook"]
    lines = printed(documents, monkeypatch).splitlines()
    rows = [line.strip() for line in lines if line.strip().startswith("otlp.")]
    recorded = {**spans[2].attributes, "app.results": json.dumps(LISTED)}
    spans[2] = msgspec.structs.replace(spans[2], attributes=recorded)
    otlp = OtlpSettings.model_validate(tomllib.loads(rows[0])["otlp"])
    (found,) = interpret(spans, otlp.mapping(), otlp.options(NO_GRADES)).turns

    assert [len(search.results) for search in found.searches] == [2]
    assert rows == [one["to_record"], one["effects"][0]["row"]]
    assert one["effects"][0]["condition"].endswith("though its name says that it searches")


def test_what_divides_a_text_that_is_not_read_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has to choose a row sees line breaks, and without texts how many blank lines."""
    shown, hidden = (
        " ".join(printed(explained(TEXT, texts=texts), monkeypatch).split())
        for texts in (True, False)
    )

    assert f"not read {HITS[0].text} ⏎⏎ {HITS[1].text} ⏎⏎ {HITS[2].text}"[:150] in shown
    assert "not read texts with 2 blank lines each" in hidden


def test_rows_stand_whole_on_a_line_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever copies one copies valid TOML, however narrow the terminal is."""
    documents = explained(turn(ran("a_search_tool_with_a_rather_long_name" * 2, PASSAGES, QUERY)))
    lines = [line.strip() for line in printed(documents, monkeypatch).splitlines()]
    rows = [line for line in lines if line.startswith("otlp.")]

    assert [tomllib.loads(row) for row in rows] == [
        tomllib.loads(effect["row"]) for effect in effects(documents)
    ]
    assert "with this: 1 of 1 search, 3 results; 1 more turn counts" in lines


def test_lines_fit_the_terminal_and_end_without_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except rows, which would not be valid in two lines."""
    documents = explained(*traces(capture("langchain-mlflow-tool-semconv", CONFORMANCE)))
    lines = printed(documents, monkeypatch).splitlines()

    assert not [line for line in lines if len(line) > 80 and "otlp." not in line]
    assert not [line for line in lines if line != line.rstrip()]


def test_tools_that_are_not_printed_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that vary from call to call do not bury the others."""
    spans = turn(
        *(
            ran(f"search_{at}", LISTED, QUERY, id=f"s{at}", start=6 + at, end=6.5 + at)
            for at in range(53)
        )
    )
    said = printed(explained(spans), monkeypatch)

    assert said.count("Tool search_") == 50
    assert said.endswith("3 more with fewer spans; --format json lists them\n")


def run(*arguments: str) -> Any:
    """The command in this process."""
    return CliRunner().invoke(app, ["explain", *arguments])


def test_a_folder_is_read_with_what_else_is_in_it_left_aside(tmp_path: Path) -> None:
    """Files that do not begin with traces are named on standard error."""
    (tmp_path / "in").mkdir()
    packed = (CAPTURES / "langchain-openinference-rawtool.jsonl.gz").read_bytes()
    (tmp_path / "in" / "traces.jsonl.gz").write_bytes(packed)
    (tmp_path / "README.md").write_text("# Traces\n")
    done = run(str(tmp_path), "--format", "json", "--no-text")
    about, agent, tool = map(json.loads, done.stdout.splitlines())

    assert done.exit_code == 0
    assert done.stderr.endswith("left aside what does not begin with traces: README.md\n")
    assert (about["traces"], about["spans"], agent["searches"]) == (3, 41, 8)
    assert (tool["name"], tool["results"]) == ("search_kb", 24)
    assert "example" not in tool


def test_records_that_are_left_aside_are_told_with_their_file(tmp_path: Path) -> None:
    """One of many files may hold something else."""
    lines = [as_json([SpanSpec(1, 1)]), b'{"resourceLogs": [{"scopeLogs": []}]}', b'{"type": "a"}']
    (tmp_path / "mixed.jsonl").write_bytes(b"\n".join(lines))
    said = "".join(run(str(tmp_path)).stdout.split())

    assert f"notraces:logs(1),unknown(1),in{tmp_path}/mixed.jsonl" in said


def test_logs_in_protobuf_are_called_logs(tmp_path: Path) -> None:
    """They are no damaged traces."""
    logs = LogsData()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=10**18)
    record.attributes.add(key="gen_ai.evaluation.name").value.string_value = "Relevance"
    (tmp_path / "logs.pb").write_bytes(logs.SerializeToString())
    done = run(str(tmp_path / "logs.pb"))

    assert "OTLP logs; searches are in traces" in str(done.exception)


def test_a_replay_reads_the_folder_that_is_explained(tmp_path: Path) -> None:
    """With the same files left aside."""
    packed = (CAPTURES / "langchain-openinference-rawtool.jsonl.gz").read_bytes()
    (tmp_path / "traces.jsonl.gz").write_bytes(packed)
    (tmp_path / "README.md").write_text("# Traces\n")
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["replay", str(tmp_path), "--out", str(out)])

    assert done.exit_code == 0
    assert "left aside what does not begin with traces: README.md" in done.stderr
    assert json.loads((out / "report.json").read_text())["counts"]["results"] == 24


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"type": "search_iteration"}\n', "stream of events, not of traces: `stream-metrics val"),
        ("no JSON\n", "1 record is neither OTLP traces nor events"),
        ('{"resourceSpans": []}\n', "there are no spans in it"),
        ('{"resourceLogs": [{"scopeLogs": []}]}\n', "OTLP logs"),
    ],
)
def test_input_without_spans_says_what_it_is(tmp_path: Path, content: str, said: str) -> None:
    """And what to run instead, with exit code 2."""
    (tmp_path / "given").write_text(content)
    done = run(str(tmp_path / "given"))

    assert isinstance(done.exception, (UsageError, InputError))
    assert said in str(done.exception)


def test_settings_apply_to_what_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is in the settings file is in force, and need not be told."""
    monkeypatch.setenv("STREAM_METRICS_OTLP__TOOLS", '{"get_messages": "other"}')
    told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_messages"}
    given = SpanSpec(1, 1, attributes={**told, "gen_ai.tool.call.result": json.dumps(LISTED)})
    (tmp_path / "traces.json").write_bytes(as_json([given]))
    done = run(str(tmp_path / "traces.json"), "--format", "json")

    assert done.exit_code == 0
    assert '"refused"' not in done.stdout


def test_the_guide_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tool that is read, and one that is refused until a row says how to divide its texts."""
    answer = CASES["Elasticsearch, OpenSearch, Marqo: _search"].answer
    several = [
        turn(
            *(
                ran("search_docs", answer(HITS), QUERY, id=f"s{at}", start=10 * at, end=10 * at + 5)
                for at in (1, 2)
            ),
            trace_id="a",
        ),
        turn(ran("handbook_search", PASSAGES, QUERY, id="h"), trace_id="b"),
    ]
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "telemetry.md").read_text()

    assert printed(explained(*several), monkeypatch) in guide


def test_the_reference_names_each_key_of_the_json() -> None:
    """And no other, under the object that has it."""
    documents = explained(SEVERAL)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "explain.md").read_text()
    tables = page.split("| key")[1:]
    rows = [one["effects"][0] for one in documents if one.get("effects")]
    kinds = [
        next(one for one in documents if one["what"] == what)
        for what in ("traces", "agent", "tool")
    ]

    for table, one in zip(tables, [*kinds, rows[0]], strict=True):
        named = [
            key
            for line in table.splitlines()[2:]
            if line.startswith("|")
            for key in re.findall(r"`([a-z_]+)`", line.split("|")[1])
        ]
        assert sorted(named) == sorted(set(one) - {"what"})
