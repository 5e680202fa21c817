"""Metrics and logs of a bridge show which agents are refused, and why."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from html import unescape
from importlib.resources import files
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from stream_metrics.cli.bridge_metrics import LoggedBridgeMetrics
from stream_metrics.core.engine.config import DEFAULT_AGENT, MAX_AGENTS, OTHER
from stream_metrics.core.telemetry import Interpretation, Span
from stream_metrics.core.telemetry.assembly import Assembly, Bounds
from stream_metrics.core.telemetry.events import events
from stream_metrics.core.telemetry.interpreter import InterpretedTrace
from stream_metrics.live.health import Health
from stream_metrics.live.page.bridge import BridgePage
from stream_metrics.live.prometheus.bridge import BridgeMetrics
from tests.telemetry import MAPPING, agent, interpreted, model, search, span

SUPPORT = {"gen_ai.agent.name": "support"}


def refused_search(id: str, parent: str, start: float = 1, **attributes: str) -> Span:
    """A search with a document that has neither id nor text."""
    hidden = {"output.value": "{}", "retrieval.documents.0.document.content": "__REDACTED__"}
    return search(id, parent, start, found="", attributes=hidden | attributes)


def with_events(one: Interpretation) -> InterpretedTrace:
    return InterpretedTrace(one, list(events(one)), [], 0)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"streammetrics_bridge_{name}_total", labels)


def by_agent(one: Interpretation) -> list[tuple[str | None, str]]:
    return sorted((who or "", reason) for who, reason in one.by_agent)


# The agent that a refusal counts for.


def test_a_refusal_counts_for_the_agent_of_its_turn() -> None:
    """An attribute of its spans names the agent, else the service does."""
    of_turn = interpreted(agent(name="researcher"), refused_search("s", "agent"))
    of_attribute = interpreted(agent(attributes=SUPPORT), refused_search("s", "agent"))
    of_search = interpreted(refused_search("s", "", 1, **SUPPORT))
    of_service = interpreted(refused_search("s", ""))

    for one, name in (
        (of_turn, "service"),
        (of_attribute, "support"),
        (of_search, "support"),
        (of_service, "service"),
    ):
        assert by_agent(one) == [(name, "no_identity")]
        assert [(each.agent, each.service) for each in one.refusals] == [(name, "service")]


def test_refusals_of_one_trace_count_for_the_agents_of_their_turns() -> None:
    """A trace may hold a session, or several agents."""
    one = interpreted(
        span("session", end=100),
        agent("a", 0, 9, parent="session", called="support"),
        search("s1", "a", 1),
        agent("b", 10, 19, parent="session", called="billing"),
        refused_search("s2", "b", 11),
    )

    assert [turn.agent for turn in one.turns] == ["support"]
    assert by_agent(one) == [("billing", "no_identity")]


@pytest.mark.parametrize(
    "spans",
    [
        [agent(called="support"), search("s", "gone", 1)],
        [agent(called="support"), span("", "agent", 1)],
        [agent(called="support", parent="s"), search("s", "agent", 1)],
    ],
    ids=["incomplete", "bad id", "cycle"],
)
def test_a_refused_trace_has_an_agent_or_service(spans: list[Span]) -> None:
    """It has its agent's name, or at least its service's."""
    (found,) = {who for who, _ in interpreted(*spans).by_agent}

    assert found in ("support", "service")


def test_a_trace_for_which_there_is_no_room_has_its_service() -> None:
    """Only one of its spans is decoded."""
    assembly = Assembly(Bounds(open_traces=1))
    assembly.read(0, 1, [span("s", trace_id="1", resource={"service.name": "support"})])
    (closed,) = assembly.read(1, 2, [span("s", trace_id="2", resource={"service.name": "support"})])
    one = closed.interpret(MAPPING, None)  # type: ignore[arg-type]  # nothing of it is read

    assert (one.service, by_agent(one)) == ("support", [("support", "no_room")])


# Metrics and logs of refusals.


def test_an_agent_with_refusals_only_is_counted_by_reason() -> None:
    """Closed traces are counted by agent and outcome from the first one on."""
    registry = CollectorRegistry()
    metrics = BridgeMetrics(registry)
    for _ in range(3):
        metrics.trace_closed(
            with_events(interpreted(agent(called="billing"), refused_search("s", "agent")))
        )
    metrics.trace_closed(with_events(interpreted(agent(called="support"), search("s", "agent", 1))))
    metrics.trace_closed(with_events(interpreted(model("m", "", 1))))

    assert value(registry, "refused", agent="billing", reason="no_identity") == 3
    assert [value(registry, "traces", agent="billing", outcome=o) for o in ("told", "refused")] == [
        0,
        3,
    ]
    assert value(registry, "traces", agent="support", outcome="told") == 1
    assert value(registry, "traces", agent="service", outcome="empty") == 1


def test_refused_and_accepted_traces_count_for_the_same_agent() -> None:
    """Otherwise the alert would count refusals under the service, and the agent's share would be
    0."""
    registry = CollectorRegistry()
    metrics = BridgeMetrics(registry)
    metrics.trace_closed(with_events(interpreted(search("s", "", 1, attributes=SUPPORT))))
    metrics.trace_closed(with_events(interpreted(refused_search("s", "", 1, **SUPPORT))))

    for outcome in ("told", "refused"):
        assert value(registry, "traces", agent="support", outcome=outcome) == 1


def test_agents_beyond_the_limit_are_counted_together() -> None:
    """They are counted as on the workers, whose configured agents always have their own series."""
    registry = CollectorRegistry()
    metrics = BridgeMetrics(registry, agents=["billing"])
    assert value(registry, "traces", agent="billing", outcome="told") == 0
    for number in range(MAX_AGENTS + 20):
        metrics.trace_closed(
            with_events(interpreted(agent(called=f"agent-{number}"), refused_search("s", "agent")))
        )
    metrics.trace_closed(
        with_events(interpreted(agent(called="billing"), refused_search("s", "agent")))
    )

    assert value(registry, "refused", agent="agent-0", reason="no_identity") == 1
    assert value(registry, "refused", agent="billing", reason="no_identity") == 1
    assert value(registry, "refused", agent=OTHER, reason="no_identity") == 21
    names = {
        sample.labels["agent"]
        for family in registry.collect()
        for sample in family.samples
        if "agent" in sample.labels
    }
    assert len(names) == MAX_AGENTS + 1


def test_a_trace_without_any_name_counts_for_the_default_agent() -> None:
    registry = CollectorRegistry()
    metrics = BridgeMetrics(registry)
    nameless = interpreted(span("s", attributes={"openinference.span.kind": 7}, resource={}))
    metrics.trace_closed(with_events(nameless))

    assert value(registry, "refused", agent=DEFAULT_AGENT, reason="unrecognised") == 1


def lines(
    tellings: Iterable[InterpretedTrace], clock: Callable[[], float] = time.monotonic
) -> list[dict[str, Any]]:
    """What is logged of traces, the clock being asked once for each."""
    reported = LoggedBridgeMetrics(CollectorRegistry(), BridgePage(Health()), [], clock=clock)
    with capture_logs() as found:
        for one in tellings:
            reported.trace_closed(one)
    return [dict(one) for one in found]


def test_the_log_has_a_line_for_each_agent_and_reason() -> None:
    """It names agent, service and remedy, at most once per interval."""
    made = [
        with_events(interpreted(agent(called=name), refused_search("s", "agent")))
        for name in ("support", "billing", "support")
    ]
    logged = lines(made)

    assert [(one["agent"], one["service"], one["reason"]) for one in logged] == [
        ("support", "service", "no_identity"),
        ("billing", "service", "no_identity"),
    ]
    assert "OPENINFERENCE_HIDE_OUTPUTS" in logged[0]["help"]


def test_very_many_agents_do_not_flood_the_log() -> None:
    """Agents without their own series share log lines."""
    made = [
        with_events(interpreted(agent(called=f"agent-{number}"), refused_search("s", "agent")))
        for number in range(MAX_AGENTS + 20)
    ]

    assert len(lines(made)) == MAX_AGENTS + 1


def test_a_service_whose_scopes_have_to_be_chosen_is_logged_once() -> None:
    """Only a setting ends these refusals; the line has it."""
    refused = interpreted(agent(), search("s", "agent", 1))
    refused.drop_turns({"agent"})
    refused.refuse("two_scopes", "agent", 'set otlp.scopes = {"service" = ["a"]}')
    moments = iter([0.0, 3_600.0])
    logged = lines([with_events(refused)] * 2, moments.__next__)

    assert [one["why"] for one in logged] == ['set otlp.scopes = {"service" = ["a"]}']


def test_an_agent_whose_ids_name_pages_is_logged_once() -> None:
    """The line has the setting that decides it."""
    chunks = {
        f"retrieval.documents.{at}.document.{name}": value
        for at, text in enumerate(("one", "two"))
        for name, value in (("id", "page"), ("content", text))
    }
    made = [
        with_events(interpreted(agent(called=name), search("s", "agent", 1, attributes=chunks)))
        for name in ("support", "support", "billing")
    ]
    logged = lines(made)

    assert [(one["event"], one["agent"]) for one in logged] == [
        ("ids name pages", "support"),
        ("ids name pages", "billing"),
    ]
    assert 'otlp.identity = {"support" = "id_and_text"}' in logged[0]["why"]


def test_searches_that_are_forgotten_too_soon_are_counted_and_logged_once() -> None:
    """The line says what becomes of a second recording, and names the setting."""
    one = with_events(interpreted(agent()))._replace(forgotten=3)
    registry = CollectorRegistry()
    reported = LoggedBridgeMetrics(registry, BridgePage(Health()), [])
    with capture_logs() as logs:
        reported.trace_closed(one)
        reported.trace_closed(one)

    assert value(registry, "searches_forgotten") == 6
    assert ["otlp.scopes" in line["why"] for line in logs] == [True]


def test_log_and_page_have_the_row_for_what_may_have_searched() -> None:
    """It is to be copied if the span is no search; both name the command that tries it."""
    function = span("f", "agent", 3, scope="app", name="orders")
    one = with_events(interpreted(agent(), model("m", "agent", 1), function))
    page = BridgePage(Health())
    with capture_logs() as logs:
        LoggedBridgeMetrics(CollectorRegistry(), page, []).trace_closed(one)

    row = 'otlp.rows = [{role = "other", scope = "app", span = "orders"}]'
    assert [(line["reason"], row in line["why"]) for line in logs] == [("unseen_searches", True)]
    assert row in unescape(page.render(reasons=True))
    assert "`stream-metrics explain`" in logs[0]["help"]
    assert "stream-metrics explain" in page.render(reasons=True)


def test_agents_that_follow_one_another_in_a_trace_are_logged_once() -> None:
    """The line says how to make them one turn."""
    both = [agent(at, 10 * n, 10 * n + 9, called=at) for n, at in enumerate(("desk", "expert"))]
    searches = [search(f"s{one.span_id}", one.span_id, 0) for one in both]
    logged = lines([with_events(interpreted(*both, *searches))] * 2)

    assert ["otlp.turn" in line["why"] for line in logged] == [True]


def test_the_bridges_page_shows_what_is_refused_and_what_helps() -> None:
    """Each agent and reason has its number, the latest case and the remedy, and hostile names are
    text."""
    page = BridgePage(health := Health(reasons={}))
    assert "No trace is complete yet" in page.render(reasons=True)
    reported = LoggedBridgeMetrics(CollectorRegistry(), page, [])
    reported.trace_closed(with_events(interpreted(agent(), search("s", "agent", 1))))
    assert "Nothing was refused" in page.render(reasons=True)
    for number in (1, 2):
        refused = refused_search(f"s{number}", "agent")
        reported.trace_closed(with_events(interpreted(agent(called="<b>billing</b>"), refused)))
    html = page.render(reasons=True)

    assert "1 of 3 traces became events" in html
    assert "&lt;b&gt;billing&lt;/b&gt;" in html
    assert "<b>" not in html
    assert "span s2" in html
    assert "OPENINFERENCE_HIDE_OUTPUTS" in html
    health.set("kafka", "no broker answers")
    assert "no broker answers" in page.render(reasons=True)
    assert "no broker answers" not in page.render(reasons=False)


def test_the_bridges_page_shows_reasons_beyond_those_that_a_trace_lists() -> None:
    """A trace with very many refusals must not take the page from everybody."""
    page = BridgePage(Health(reasons={}))
    many = refused_search("s", "agent")
    refused = interpreted(agent(), many)
    for number in range(200):
        refused.refuse("no_identity", str(number), "it has no id")
    refused.refuse("cycle", "last", "it is its own ancestor")
    LoggedBridgeMetrics(CollectorRegistry(), page, []).trace_closed(with_events(refused))

    assert "correct the sender: spans are their own ancestors" in page.render(reasons=True)


def test_a_workers_page_says_where_to_look_for_a_missing_agent() -> None:
    """It names the bridge's page and metric."""
    html = (files("stream_metrics.live.page") / "static" / "page.html").read_text("utf-8")
    registry = CollectorRegistry()
    BridgeMetrics(registry)
    exported = {sample.name for family in registry.collect() for sample in family.samples}

    assert {"streammetrics_bridge_refused_total"} == set(
        re.findall(r"streammetrics_bridge_\w+", html)
    )
    assert "streammetrics_bridge_refused_total" in exported
