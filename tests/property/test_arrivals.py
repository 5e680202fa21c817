"""Counts by arrival add up to what conversations contribute in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.alerts.arrivals import COUNTS, counts_of
from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.cells import split_code
from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.config import OTHER, EngineConfig
from stream_metrics.core.engine.conversation_cells import conversation_cells
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.engine.state import Cell, Conversation
from stream_metrics.core.engine.step import Step
from stream_metrics.core.engine.windows import Names
from stream_metrics.lab.traffic import Incident, TrafficProfile, generate
from tests.strategies import KeyedRecord, arrivals, streams

CONFIG = EngineConfig()
Counts = dict[tuple[str, str], int]  # by agent and count


def test_traffic_with_labels_has_all_counts() -> None:
    """The property below would hold of nothing as well."""
    incidents = (
        Incident("support", 0, 1e9, "gate_skips", 0.9),
        Incident("support", 0, 1e9, "rewriter_loops", 0.5),
        Incident("support", 0, 1e9, "empty_index", 0.1),
    )
    profile = TrafficProfile(
        seed=1, conversations=60, agents=("support",), invalid=0.0, incidents=incidents
    )
    batches: list[list[KeyedRecord]] = [
        [(r.key or b"", r.value, r.timestamp_ms)] for r in generate(profile)
    ]

    arrived, expected = counted(batches)

    assert arrived == expected
    assert {count for _, count in arrived} == set(COUNTS)


@given(st.data())
def test_counts_by_arrival_add_up_to_the_contributions_of_conversations(
    data: st.DataObject,
) -> None:
    """In any order and any batches: what is replaced or erased later is taken back."""
    arrived, expected = counted(data.draw(arrivals(data.draw(streams()))))

    assert arrived == expected


@given(st.lists(st.tuples(st.sampled_from([-1, 1]), st.integers(1, 9)), max_size=5))
def test_agents_without_series_of_their_own_are_counted_together(
    changes: list[tuple[int, int]],
) -> None:
    """As in windows, so that labels stay bounded whatever agents there are."""
    cells = [(sign, Cell(0, f"agent-{n}", {"r": n})) for sign, n in changes]
    total = sum(sign * n for sign, n in changes)

    found = net_arrivals(cells, Names(frozenset(), frozenset()))

    assert found == ({OTHER: {"results": total}} if total else {})


def net_arrivals(cells: Iterable[tuple[int, Cell]], names: Names) -> dict[str, dict[str, int]]:
    """What signed cells add to each count, by agent; less than 0 if more is taken back."""
    found: dict[str, Counter[str]] = {}
    for sign, cell in cells:
        into = found.setdefault(names.agent(cell.agent), Counter())
        for code, value in cell.sums.items():
            into.update(dict.fromkeys(counts_of(code), sign * value))
    return {
        agent: kept
        for agent, counts in found.items()
        if (kept := {count: value for count, value in counts.items() if value})
    }


def counted(batches: list[list[KeyedRecord]]) -> tuple[Counts, Counts]:
    """The counts by arrival over batches, and those of the conversations in the end."""
    dedup = deduplicator(CONFIG.rules, b"")
    decoder = RecordDecoder(dedup, "", CONFIG.rules.tables, CONFIG.limits)
    step = Step(CONFIG, lambda _: dedup)
    conversations: dict[str, Conversation] = {}
    arrived: Counter[tuple[str, str]] = Counter()
    agents: set[str] = set()
    for batch in batches:
        events: dict[str, list[DigestedEvent]] = {}
        for key, value, timestamp_ms in batch:
            event = decoder.decode(value, key=key, timestamp_ms=timestamp_ms)
            if isinstance(event, DigestedEvent):
                events.setdefault(event.conversation_id, []).append(event)
        for name, several in events.items():
            conversation = conversations.setdefault(name, Conversation(name))
            cells = step.apply(conversation, several, Observations()).cells
            agents.update(cell.agent for _, cell in cells)
            net = net_arrivals(cells, Names(frozenset(agents), frozenset()))
            for agent, counts in net.items():
                arrived.update({(agent, count): value for count, value in counts.items()})
    expected: Counter[tuple[str, str]] = Counter()
    for conversation in conversations.values():
        for cell in conversation_cells(conversation, CONFIG):
            expected.update(contributions(cell))
    return (
        {key: value for key, value in arrived.items() if value},
        {key: value for key, value in expected.items() if value},
    )


def contributions(cell: Cell) -> Counts:
    """What a cell adds to each count, by the names and labels of its series."""
    found: Counts = {}
    for code, value in cell.sums.items():
        series, labels = split_code(code)
        of = dict(zip(series.labels, labels, strict=True))
        names = [series.name] if series.name in COUNTS else []
        if series.name == "gate_decisions" and of["needed"] != "unknown":
            names.append("labelled_gate_decisions")
            if (of["decision"], of["needed"]) == ("skip", "yes"):
                names.append("missed_searches")
        elif series.name == "routed_searches" and of["correct"] != "unknown":
            names.append("labelled_routes")
            if of["correct"] == "no":
                names.append("wrong_routes")
        elif series.name == "rerank_ndcg_sum":
            names.append(f"rerank_ndcg_{of['order']}")
        for name in names:
            found[cell.agent, name] = found.get((cell.agent, name), 0) + value
    return found
