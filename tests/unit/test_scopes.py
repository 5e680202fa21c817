"""Turns that two instrumentations recorded in traces of their own."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stream_metrics.core.settings import OtlpSettings
from stream_metrics.core.telemetry import Interpretation, Options, interpret
from stream_metrics.core.telemetry.recordings import SOON_NS, Recording, Recordings
from stream_metrics.core.telemetry.roles.scopes import ScopeChoice
from tests.telemetry import MAPPING, agent, interpreted, model, search

A, B = "openinference.instrumentation.langchain", "opentelemetry.instrumentation.genai.langchain"
Process = dict[str, str]
LONG_AGO_S = 60.0
LATER_MS = SOON_NS // 10**6


def turn(
    trace: str, scope: str, found: str = "ab", *, at: int = 0, process: Process | None = None,
    service: str = "shop",
) -> Interpretation:  # fmt: skip
    """A turn with a search that found these documents; without any, one that a model answered."""
    resource = {"service.name": service, **(process or {})}
    of: dict[str, Any] = {"trace_id": trace, "scope": scope, "resource": resource}
    inner = search("s", "a", at, found=found, **of) if found else model("m", "a", at, **of)
    return interpreted(agent("a", start=at, end=at + 100, **of), inner)


def told(*given: Interpretation) -> list[bool]:
    """Whether each trace is told."""
    recordings = Recordings()
    for one in given:
        assert one.turns
        recordings.refuse_repeated(one)
        assert one.refused == ({} if one.turns else {"two_scopes": 1})
    return [bool(one.turns) for one in given]


def test_the_second_recording_of_a_search_is_refused() -> None:
    """Its message has the trace that counts, and the setting."""
    first, second = turn("1", A), turn("2", B)

    assert told(first, second) == [True, False]
    message = second.refusals[0].message
    assert "in trace 1, span a" in message
    assert f'otlp.scopes = {{"shop" = ["{A}"]}}' in message


@pytest.mark.parametrize(
    "other",
    [
        turn("2", A),
        turn("2", B, service="desk"),
        turn("2", B, "cd"),
        turn("2", B, "abc"),
        turn("2", B, at=1_000),
        turn("2", B, process={"service.version": "2"}),
        turn("2", B, process={"process.pid": "8"}),
    ],
    ids=["same scope", "service", "documents", "more documents", "time", "release", "process"],
)
def test_other_searches_are_no_second_recording(other: Interpretation) -> None:
    """Nor are those of another process, such as the new release during a deployment."""
    first = turn("1", A, process={"service.version": "1", "process.pid": "7"})

    assert told(first, other) == [True, True]


def test_a_process_may_have_several_instance_ids() -> None:
    """SDKs make one up for each tracer provider."""
    given = (
        turn(trace, scope, process={"service.instance.id": trace})
        for trace, scope in (("1", A), ("2", B))
    )

    assert told(*given) == [True, False]


def test_turns_without_a_search_count_once_where_searches_do() -> None:
    """Alone they show nothing that could be compared."""
    skipped = [turn("3", A, "", at=500), turn("4", B, "", at=550)]

    assert told(*skipped) == [True, True]
    assert told(turn("1", A), turn("2", B), *skipped) == [True, False, True, False]


def test_each_of_many_equal_searches_has_its_second_recording() -> None:
    """An instrumentation exports its traces together, and the other one some seconds later."""
    first, second = (
        [turn(f"{scope} {at}", scope, at=10 * at) for at in range(100)] for scope in (A, B)
    )

    assert told(*first, *second) == [True] * 100 + [False] * 100


def test_scopes_of_earlier_releases_hide_no_second_recording() -> None:
    """Each release has a scope of its own, and asks the same at another time."""
    earlier = [turn(f"{at}", f"release {at}", at=1_000 * at) for at in range(1, 9)]

    assert told(*earlier, turn("x", A), turn("y", B)) == [True] * 9 + [False]


def test_a_service_with_many_searches_leaves_room_for_others() -> None:
    """Its own are forgotten instead."""
    first, second = turn("1", A), turn("2", B)
    recordings = Recordings(10)

    recordings.refuse_repeated(first)
    for at in range(100):
        recordings.refuse_repeated(turn(f"f{at}", A, at=at, service="flood"))
    recordings.refuse_repeated(second)

    assert (bool(first.turns), second.refused) == (True, {"two_scopes": 1})


def test_searches_that_are_forgotten_too_soon_are_counted() -> None:
    """A second recording of one may still come; of a service with one scope, or long after, none
    does."""
    for scopes, apart_ms, counted in (((A, B), 1, 8), ((A, A), 1, 0), ((A, B), LATER_MS, 0)):
        recordings = Recordings(2)
        for number in range(10):
            one = turn(f"{number}", scopes[number % 2], chr(97 + number), at=number * apart_ms)
            recordings.refuse_repeated(one)

        assert recordings.forgotten_soon == counted


def test_what_is_remembered_of_a_turn_is_small() -> None:
    """Whatever names its scope and its process have."""
    long = "x" * 1_000_000
    one = turn("1", long, process={"host.name": long, "process.pid": long})

    assert len(repr(one.recordings)) < 2_000


def test_a_refused_recording_refuses_no_other() -> None:
    """Only what is told counts."""
    assert told(turn("1", A), turn("2", B), turn("3", A)) == [True, False, True]


def test_a_turn_whose_searches_are_left_out_is_not_one_without_a_search() -> None:
    """The scope that counts may record the agent only, and another one its searches."""
    of: dict[str, Any] = {"resource": {"service.name": "shop"}}
    spans = [
        agent("a", end=100, scope="mine", **of),
        model("m", "a", 1, scope="mine", **of),
        search("s", "a", 10, found="ab", scope=A, **of),
    ]
    only = Options(scopes=ScopeChoice(by_service={"shop": frozenset({"mine"})}))

    assert interpret(spans[:2], MAPPING, only).turns[0].skipped
    refused = interpret(spans, MAPPING, only)
    assert (refused.turns, refused.refused) == ((), {"left_out": 1})
    assert interpret(spans, MAPPING).turns[0].searches


def test_a_turn_beside_another_is_not_one_without_a_search_either() -> None:
    """Two turns run at once, and the first one's search, left out, starts after the second."""
    of: dict[str, Any] = {"resource": {"service.name": "shop"}, "scope": "mine"}
    spans = [
        agent("a", end=100, **of),
        model("m", "a", 1, **of),
        agent("b", start=5, end=100, **of),
        model("n", "b", 6, **of),
        search("s", "a", 10, found="ab", resource=of["resource"]),
    ]
    only = Options(scopes=ScopeChoice(by_service={"shop": frozenset({"mine"})}))

    assert [turn.span_id for turn in interpret(spans[:4], MAPPING, only).turns] == ["a", "b"]
    refused = interpret(spans, MAPPING, only)
    assert (refused.turns, refused.refused) == ((), {"left_out": 2})


@pytest.mark.parametrize("scopes", ["a", 7, None, [1], {"shop": "a"}, {"shop": [1]}])
def test_scopes_of_another_form_are_refused_in_words(scopes: object) -> None:
    """The error shows the form to give, and no Python types."""
    with pytest.raises(ValidationError, match=r"such as \{support = \[") as raised:
        OtlpSettings.model_validate({"scopes": scopes})

    assert raised.value.error_count() == 1


@pytest.mark.parametrize(
    ("choice", "told", "refused"),
    [
        (ScopeChoice(), ["s1", "s2"], {}),
        (ScopeChoice(by_service={"shop": frozenset({A})}), ["s1", "s2"], {}),
        (ScopeChoice(frozenset({A})), [], {"left_out": 1}),
        (ScopeChoice(by_service={"desk": frozenset({A})}), [], {"left_out": 1}),
    ],
    ids=["all", "its own", "a list", "the other's"],
)
def test_a_turn_lacks_no_search_of_another_service(
    choice: ScopeChoice, told: list[str], refused: dict[str, int]
) -> None:
    """An agent has searched, and the service that it called searches too, in the same trace."""
    shop: dict[str, Any] = {"resource": {"service.name": "shop"}, "scope": A}
    desk: dict[str, Any] = {"resource": {"service.name": "desk"}, "scope": B}
    spans = [
        agent("a", end=100, **shop),
        search("s1", "a", 10, found="ab", **shop),
        search("s2", "a", 50, found="cd", **desk),
    ]

    one = interpret(spans, MAPPING, Options(scopes=choice))

    assert [each.span_id for turn in one.turns for each in turn.searches] == told
    assert one.refused == refused


def test_a_search_that_two_instrumentations_record_in_one_trace_is_used() -> None:
    """Also if only one of them is to be used, and they differ in what they show of it."""
    of: dict[str, Any] = {"resource": {"service.name": "shop"}}
    spans = [
        agent("a", end=100, scope=A, **of),
        search("s", "a", 10, 20, found="ab", scope=A, **of),
        search("t", "a", 11, 19, found="abc", scope=B, **of),
    ]
    only = Options(scopes=ScopeChoice(by_service={"shop": frozenset({A})}))

    one = interpret(spans, MAPPING, only)

    assert [each.span_id for turn in one.turns for each in turn.searches] == ["s"]
    assert one.refused == {}


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B]), st.sampled_from(["", "a", "ab"]), st.integers(0, 400)),
        max_size=12,
    ),
    st.integers(1, 6),
)
def test_the_index_finds_what_comparing_with_all_finds(
    made: list[tuple[str, str, int]], most: int
) -> None:
    """Up to the number of searches that are remembered."""
    found = [turn(str(at), scope, text, at=at_ms) for at, (scope, text, at_ms) in enumerate(made)]
    expected, kept, rivals = [], list[Recording](), False
    for one in found:
        [mine] = one.recordings
        others = [other for other in kept[-most:] if other.scope != mine.scope]
        twice = any(a.is_recorded_in(b) for o in others for a in mine.searches for b in o.searches)
        rivals = rivals or twice
        if not mine.searches and rivals:
            twice = any(
                not other.searches
                and mine.start_ns <= other.end_ns
                and other.start_ns <= mine.end_ns
                for other in others
            )
        expected.append(not twice)
        kept += [] if twice else [mine]
    recordings = Recordings(most)
    for one in found:
        recordings.refuse_repeated(one)

    assert [bool(one.turns) for one in found] == expected


def test_many_equal_searches_of_many_scopes_cost_little() -> None:
    """No more than some of those that began nearest are compared with each."""
    one = turn("1", A)
    [recording] = one.recordings
    recordings, began = Recordings(), time.monotonic()
    for at in range(20_000):
        process = {"process.pid": str(at).encode()}
        one.recordings = (recording._replace(scope=f"scope {at % 50}", process=process),)
        recordings.refuse_repeated(one)
        assert time.monotonic() - began < LONG_AGO_S
