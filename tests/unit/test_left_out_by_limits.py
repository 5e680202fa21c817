"""What a limit leaves out is in the summary of a replay and of the bridge, with its setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from stream_metrics.cli.bridge_metrics import LoggedBridgeMetrics
from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.core.events import Limits
from stream_metrics.core.events.limits import limit_of
from stream_metrics.core.telemetry import Options, mapping
from stream_metrics.core.telemetry.assembly import Assembly, Bounds
from stream_metrics.core.telemetry.interpreter import TraceInterpreter
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from stream_metrics.live.health import Health
from stream_metrics.live.page.bridge import BridgePage
from tests.helpers import ran
from tests.otlp import RETRIEVER, START_NS, SpanSpec, as_json, documents

AGENT: Final = {"openinference.span.kind": "AGENT", "agent.name": "support"}


def turn(trace: int, *found: int, size: int = 0) -> list[SpanSpec]:
    """A turn with a search for each number of results; the texts of these have a ``size``."""
    searches = [
        SpanSpec(
            trace,
            at,
            1,
            10 * at,
            10 * at + 1,
            {
                **RETRIEVER,
                **documents(*map(str, range(number)), content="words " * (size // 6) or "a text"),
            },
        )
        for at, number in enumerate(found, 2)
    ]
    return [SpanSpec(trace, 1, 0, 0, 100, AGENT), *searches]


SMALL: Final = turn(1, 1)
LEFT_OUT: Final[dict[str, tuple[dict[str, Any], list[SpanSpec], str]]] = {
    "otlp.max_spans": ({"otlp": {"max_spans": 2}}, turn(2, 1, 1), "1 by `otlp.max_spans`"),
    "otlp.max_trace_bytes": (
        {"otlp": {"max_trace_bytes": 5_000}},
        turn(2, 1, size=9_000),
        "1 by `otlp.max_trace_bytes`",
    ),
    "results of an event": (
        {"limits": {"results_per_event": 2}},
        turn(2, 1, 3, 1),
        "1 by `limits.results_per_event`",
    ),
    "bytes of an event": (
        {"limits": {"record_bytes": 4_000}},
        turn(2, 1, 1, size=5_000),
        "1 by `limits.record_bytes`",
    ),
    "results of a search": ({}, turn(2, 2_001), "1 by a limit without a setting"),
}


def read(tmp_path: Path, settings: dict[str, Any], spans: list[SpanSpec]) -> tuple[int, list[str]]:
    """The number of events, and the lines of the summary."""
    path = tmp_path / "traces.json"
    path.write_bytes(as_json(spans))
    sources = Sources([str(path)], Settings(**settings), "earliest", "end")
    return len(list(sources.records())), sources.missed


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_replay_counts_what_a_limit_leaves_out(tmp_path: Path, name: str) -> None:
    """As turns or traces, by the setting of the limit."""
    settings, spans, said = LEFT_OUT[name]

    events, lines = read(tmp_path, settings, [*SMALL, *spans])

    assert events == 1
    assert f"turns or traces left out because of limits: {said}" in lines


def test_several_limits_are_counted_apart(tmp_path: Path) -> None:
    """The most frequent first."""
    settings = {"otlp": {"max_spans": 3}, "limits": {"results_per_event": 2}}
    spans = [*SMALL, *turn(2, 1, 1, 1), *turn(3, 3), *turn(4, 3)]

    _, lines = read(tmp_path, settings, spans)

    said = "2 by `limits.results_per_event`, 1 by `otlp.max_spans`"
    assert f"turns or traces left out because of limits: {said}" in lines


def test_a_turn_is_left_out_whole(tmp_path: Path) -> None:
    """Without one of its searches it would have the figures of another turn."""
    settings = {"limits": {"results_per_event": 2}}

    events, _ = read(tmp_path, settings, [*SMALL, *turn(2, 1, 1, 3)])

    assert events == len(SMALL) - 1


def test_the_other_turns_of_a_trace_are_used(tmp_path: Path) -> None:
    """A trace may hold a session."""
    settings = {"limits": {"results_per_event": 2}}
    later = [
        SpanSpec(1, 11, 0, 200, 300, AGENT),
        SpanSpec(1, 12, 11, 210, 220, {**RETRIEVER, **documents("a", "b", "c")}),
    ]

    events, _ = read(tmp_path, settings, [*SMALL, *later])

    assert events == 1


def test_an_input_of_which_a_limit_leaves_all_out_is_refused_with_the_setting(
    tmp_path: Path,
) -> None:
    """The remedy names it."""
    with pytest.raises(UsageError, match=r"too_large \(.*otlp\.max_spans"):
        read(tmp_path, {"otlp": {"max_spans": 1}}, SMALL)


def test_without_a_limit_nothing_is_said(tmp_path: Path) -> None:
    """A summary has no line about nothing."""
    _, lines = read(tmp_path, {}, SMALL)

    assert not any("limit" in line for line in lines)


def test_a_replay_of_events_names_the_limits_of_rejected_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their number, and the setting."""
    results = [{"result_id": str(at), "doc_id": str(at)} for at in range(3)]
    for at, found in enumerate((results, results[:1], results)):
        event = {
            "type": "search_iteration",
            "event_id": f"e{at}",
            "occurred_at": START_NS // 10**9,
            "conversation_id": f"c{at}",
            "turn": 1,
            "iteration": 1,
            "searches": [{"search_id": "s", "results": found}],
        }
        with (tmp_path / "events.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")
    monkeypatch.setenv("STREAM_METRICS_LIMITS__RESULTS_PER_EVENT", "2")

    done = ran("replay", "events.jsonl", "--out", "out", folder=tmp_path)

    assert done.returncode == 0
    assert "records left out because of limits: 2 by `limits.results_per_event`" in done.stderr


@pytest.mark.parametrize(
    ("bounds", "spans", "limit"),
    [
        (Bounds(trace_spans=1), turn(2, 1), "otlp.max_spans"),
        (Bounds(trace_bytes=100), turn(2, 1), "otlp.max_trace_bytes"),
        (Bounds(open_traces=1), [*turn(2, 1), *turn(3, 1)], "bridge.open_traces"),
        (Bounds(open_bytes=100), turn(2, 1), "bridge.open_bytes"),
        (Bounds(), turn(2, 3), "limits.results_per_event"),
    ],
)
def test_the_bridge_names_the_setting_of_a_limit(
    bounds: Bounds, spans: list[SpanSpec], limit: str
) -> None:
    """In its log and on its page."""
    page, registry = BridgePage(Health(60)), CollectorRegistry()
    metrics = LoggedBridgeMetrics(registry, page, ["traces"])
    interpreter = TraceInterpreter(mapping(), Options(), Limits(results_per_event=2))
    assembly = Assembly(bounds)
    closed = [*assembly.read(0, START_NS // 10**6, spans_of(as_json(spans))), *assembly.finish()]

    with capture_logs() as logged:
        for one in closed:
            metrics.trace_closed(interpreter.interpret(one))

    (line,) = [line for line in logged if line["event"] == "refused"]
    assert line["why"].endswith(f"({limit})")
    assert f"({limit})" in page.render(reasons=False)


def test_every_reason_that_is_a_limit_has_its_setting() -> None:
    """Settings that exist."""
    named = [
        limit_of(reason, message)
        for reason, message in (
            ("too_large", "9 bytes; at most 8 are accepted"),
            ("too_deep", "more than 64 levels of nested JSON"),
            *(
                ("over_limit", f"{what}: 9, at most 8")
                for what in (
                    "searches", "results", "labels", "relevant", "url (bytes)", "ids of a result",
                    "fields of a result", "values in a list of the fields of a result",
                )
            ),
        )
    ]  # fmt: skip

    fields = {f"limits.{name}" for name in type(Settings().limits).model_fields}
    assert fields.issuperset(map(str, named))
    assert len(set(named)) == 10
    assert limit_of("unknown_type", "no `type`") is None
