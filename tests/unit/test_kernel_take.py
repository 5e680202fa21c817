"""The fast way from a record to what the engine takes of it gives what the slow ways give."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks.workload import traffic
from stream_metrics.dedup.deduplicator import Deduplicator, PlainDeduplicator
from stream_metrics.dedup.digests import KNOWN_NAMES
from stream_metrics.dedup.tables import newest
from stream_metrics.engine.registers import LONGEST_ROUTE, RELEVANCE_LABELS, SEARCH_ITERATION
from stream_metrics.engine.taken import Intake, Taken, take
from stream_metrics.events import BadRecord, Limits
from stream_metrics.events.decode import decode_slow
from stream_metrics.events.wire import Result
from stream_metrics.traffic import TrafficProfile, generate
from tests.corpus import FIELDS, FULL, Field, cases
from tests.strategies import KeyedRecord, streams
from tests.unit.test_bad_input import TABLE, Row, planted, raw, searching
from tests.unit.test_contract import mutated
from tests.unit.test_kernel_fingerprints import (
    NUMBERS,
    PAIRS,
    SCALARS,
    TEXTS,
    URLS,
    results_of,
)

pytestmark = pytest.mark.kernel

LIMITS = Limits()
KEY_ID = "a key's name"
PATIENT = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None
)
Pair = tuple[Deduplicator, Deduplicator]
ANY_PAIR = st.sampled_from(PAIRS)


def seen(taken: Taken | BadRecord, dedup: Deduplicator) -> str:
    """All of it, as a text in which ``1``, ``1.0`` and ``True`` are different."""
    if isinstance(taken, BadRecord) or taken.kind is not SEARCH_ITERATION:
        return repr(taken)
    sent, gate = taken.items
    each = [search.fingerprints for search in sent.values()]
    digests = [(f.types, f.documents, f.extra_values, f.urls_unparsed) for f in each]
    searches = {name: search._replace(fingerprints=None) for name, search in sent.items()}
    rest = msgspec.structs.replace(taken, items=(searches, gate))
    return repr((rest, digests, dedup.pack(each)))


def both(
    pair: Pair,
    value: bytes | None,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    limits: Limits = LIMITS,
    require_key: bool = False,
) -> tuple[Taken | None, Taken | BadRecord]:
    """What the two ways make of a record, after a check that they do not contradict each other."""
    compiled, plain = pair
    assert not isinstance(compiled, PlainDeduplicator)
    event = decode_slow(value, key, timestamp_ms, limits, require_key)
    slow = event if isinstance(event, BadRecord) else take(event, plain, KEY_ID, newest())
    expected = seen(slow, plain)
    intake = Intake(compiled, KEY_ID, newest(), limits, require_key=require_key)
    fast = None if value is None else intake.take_fast(value, key, timestamp_ms)
    assert fast is None or seen(fast, compiled) == expected
    assert seen(intake.take(value, key=key, timestamp_ms=timestamp_ms), compiled) == expected
    return fast, slow


def is_frequent(taken: Taken | BadRecord) -> bool:
    """Whether the slow ways take a search iteration or labels."""
    return isinstance(taken, Taken) and taken.kind in (SEARCH_ITERATION, RELEVANCE_LABELS)


# --- search iterations ----------------------------------------------------------------------------

_ODD_NAMES = ["", "x", "\u00e4" * 64, "n" * 65, "\U0001f600" * 128, "h" * 129, 'a"\\/\n\u2028']
_HANDLES = st.sampled_from(["s1", "s2", "s\u00e9", *_ODD_NAMES[2:], None, 1])
_NAMES = st.none() | st.sampled_from(["files", "\u00c4sk", *_ODD_NAMES])
_COUNTS = st.sampled_from([None, 0, 1, 4, 5, 7, -1, 2**31 - 1, 2**31, 2**64 - 1, 1.0, True, "1"])
_USUAL = st.sampled_from([None, 1, 2, 3])
_SCORES = st.none() | NUMBERS | st.sampled_from(["1", True])
RESULTS = results_of(TEXTS).map(msgspec.to_builtins)
ODD_RESULTS = st.builds(
    lambda result, changes: result | changes,
    RESULTS,
    st.fixed_dictionaries(
        {},
        optional={
            "result_id": _HANDLES,
            "gain": _COUNTS,
            "baseline_rank": _COUNTS,
            "score": _SCORES,
            "unknown": st.just({"ids": [{}], "result_id": None}),
        },
    ),
)
_RANKED = st.builds(
    lambda result, gain, rank: result | {"gain": gain, "baseline_rank": rank},
    RESULTS,
    _USUAL,
    _USUAL,
)


def searches_of(
    results: st.SearchStrategy[Any], counts: st.SearchStrategy[Any], names: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Lists of searches, some of them with one id."""
    return st.lists(
        st.fixed_dictionaries(
            {"search_id": names},
            optional={
                "ordinal": counts,
                "query": st.none() | TEXTS,
                "routing": st.none()
                | st.fixed_dictionaries(
                    {"selected": names},
                    optional={"scores": st.none() | st.dictionaries(TEXTS, _SCORES, max_size=2)},
                ),
                "results": st.none() | st.lists(results, max_size=3),
                "extra": st.just([1, {"search_id": 2}]),
            },
        ),
        max_size=3,
    )


_GOOD = searches_of(_RANKED, _USUAL, st.sampled_from(["s1", "s2", "\u00e9"]))
_ODD = searches_of(ODD_RESULTS, _COUNTS, _HANDLES)
ITERATIONS = st.fixed_dictionaries(
    {"searches": st.none() | _GOOD | _ODD},
    optional={
        "agent": _NAMES,
        "release": _NAMES,
        "gate": st.none()
        | st.fixed_dictionaries(
            {"decision": st.sampled_from(["search", "skip", "Skip", "", None])},
            optional={"score": _SCORES, "x": TEXTS},
        ),
        "iteration": _COUNTS,
        "version": st.sampled_from([None, 1, 2, "1"]),
        "extra": SCALARS,
    },
).map(lambda changes: {**FULL["search_iteration"], **changes})


_KINDS = ('"search_iteration"', '"relevance_labels"')
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_CHARACTER = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)


def respelled(text: str, step: int, names_as_they_are: bool) -> str:
    """JSON in which each so many-th character of texts is escaped, if it is not already.

    Optionally names, and the name of the event's type, are left alone.
    """

    def coded(character: re.Match[str]) -> str:
        found = character[0]
        if len(found) > 1 or found == '"' or character.start() % step:
            return found
        if found == "/":
            return "\\/"
        units = found.encode("utf-16-be").hex()
        return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))

    def written(token: re.Match[str]) -> str:
        if names_as_they_are and (token[1] is not None or token[0] in _KINDS):
            return token[0]
        return _CHARACTER.sub(coded, token[0].removesuffix(token[1] or "")) + (token[1] or "")

    return _TEXT.sub(written, text) if step else text


@st.composite
def spelled(
    draw: st.DrawFn, documents: st.SearchStrategy[Any], names_as_they_are: bool = False
) -> bytes:
    """A document as bytes, in one of many spellings."""
    document = draw(documents)
    if draw(st.booleans()):
        document = dict(sorted(document.items(), reverse=draw(st.booleans())))
    text = json.dumps(
        document,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, None, 1])),
        separators=draw(st.sampled_from([None, (",", ":")])),
    )
    step = draw(st.sampled_from([0, 0, 0, 1, 3, 20]))
    return respelled(text, step, names_as_they_are).encode()


_NEEDED = st.sampled_from([None, True, False, 0, "true"])
_ROUTES = st.none() | TEXTS | st.sampled_from([1, ["web"]])


def labels_of(
    name: str, names: st.SearchStrategy[Any], value: str, values: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Lists of labels; some name one thing twice, some name nothing or say nothing."""
    whole = st.fixed_dictionaries({name: names, value: values}, optional={"extra": SCALARS})
    lacking = st.fixed_dictionaries({}, optional={name: names, value: values})
    return st.none() | st.lists(whole, max_size=4) | st.lists(lacking, max_size=2)


LABELS = st.fixed_dictionaries(
    {
        "labels": labels_of("result_id", _HANDLES, "gain", _COUNTS)
        | labels_of("result_id", st.sampled_from(["r1", "r2", "\u00e9"]), "gain", _USUAL),
        "routing": labels_of("search_id", _HANDLES, "optimal", _ROUTES),
        "gate": labels_of("iteration", _COUNTS, "search_needed", _NEEDED),
    },
    optional={
        "turn": _COUNTS,
        "labeller": st.none() | TEXTS | st.just(1),
        "version": st.sampled_from([None, 1, 2, "1"]),
        "extra": SCALARS,
    },
).map(lambda changes: {**FULL["relevance_labels"], **changes})


@PATIENT
@given(spelled(LABELS), ANY_PAIR, st.booleans())
def test_labels(value: bytes, pair: Pair, keyed: bool) -> None:
    """So have labels of all kinds of values, in any spelling."""
    both(pair, value, b"conv-1" if keyed else None, None, LIMITS, keyed)


@PATIENT
@given(
    st.dictionaries(st.text(min_size=1, max_size=128), st.none() | st.integers(0, 4)),
    st.dictionaries(st.text(min_size=1, max_size=128), st.none() | TEXTS),
    st.dictionaries(st.integers(1, 2**31 - 1), st.none() | st.booleans()),
    ANY_PAIR,
    st.data(),
)
def test_usual_labels_are_taken(
    gains: dict[str, int | None],
    routes: dict[str, str | None],
    needed: dict[int, bool | None],
    pair: Pair,
    data: st.DataObject,
) -> None:
    """Labels that name each thing once are never left to the slow ways."""
    document = {
        **FULL["relevance_labels"],
        "labels": [{"result_id": name, "gain": gain} for name, gain in gains.items()],
        "routing": [{"search_id": name, "optimal": route} for name, route in routes.items()],
        "gate": [{"iteration": name, "search_needed": told} for name, told in needed.items()],
    }
    fast, _ = both(pair, data.draw(spelled(st.just(document), names_as_they_are=True)))
    assert fast is not None
    assert fast.kind is RELEVANCE_LABELS
    cut = {name: route and route[:LONGEST_ROUTE] for name, route in routes.items()}
    assert fast.items == (gains, cut, needed)


@PATIENT
@given(spelled(ITERATIONS), ANY_PAIR, st.booleans())
def test_search_iterations(value: bytes, pair: Pair, keyed: bool) -> None:
    """Search iterations of all kinds of values, in any spelling, have the same end on both ways."""
    both(pair, value, b"conv-1" if keyed else None, None, LIMITS, keyed)


_USUAL_NUMBERS = st.integers(-(10**9), 10**9) | st.integers(1, 10**6).map(lambda n: n / 1_000)
_USUAL_VALUES = st.none() | TEXTS | st.booleans() | _USUAL_NUMBERS
USUAL_RESULTS = st.fixed_dictionaries(
    {},
    optional={
        "entity_type": st.none() | st.text(min_size=1, max_size=64),
        "doc_id": st.none() | st.text(min_size=1, max_size=256),
        "url": st.none() | URLS,
        "title": st.none() | TEXTS,
        "snippet": st.none() | TEXTS,
        "content": st.none() | TEXTS,
        "ids": st.none()
        | st.dictionaries(
            st.sampled_from(KNOWN_NAMES),
            st.none() | TEXTS | st.lists(st.none() | TEXTS, max_size=3),
            max_size=3,
        ),
        "fields": st.none()
        | st.dictionaries(
            st.sampled_from(KNOWN_NAMES),
            _USUAL_VALUES | st.lists(_USUAL_VALUES, max_size=3),
            max_size=3,
        ),
        "gain": st.none() | st.integers(0, 4),
        "baseline_rank": st.none() | st.integers(1, 50),
        "score": st.none() | _USUAL_NUMBERS,
    },
)


@PATIENT
@given(st.lists(USUAL_RESULTS, max_size=3), ANY_PAIR, st.data())
def test_usual_results_are_taken(
    results: list[dict[str, Any]], pair: Pair, data: st.DataObject
) -> None:
    """What is usual is never left to the slow ways, whatever its texts and their spelling."""
    document = json.loads(searching(*results))
    fast, _ = both(pair, data.draw(spelled(st.just(document), names_as_they_are=True)))
    assert fast is not None


@PATIENT
@given(st.lists(USUAL_RESULTS, min_size=1, max_size=3), ANY_PAIR, st.booleans())
def test_results_of_either_kind_share_what_is_remembered(
    results: list[dict[str, Any]], pair: Pair, bytes_first: bool
) -> None:
    """Fingerprints from bytes and from decoded results are equal, whichever was made first."""
    compiled, _ = pair
    sent = [msgspec.convert({**result, "result_id": "r"}, Result) for result in results]
    if not bytes_first:
        compiled.fingerprints(sent)
    fast, _ = both(pair, searching(*results))
    assert fast is not None
    (search,) = fast.items[0].values()
    assert compiled.pack([search.fingerprints]) == compiled.pack([compiled.fingerprints(sent)])


@PATIENT
@given(
    st.lists(USUAL_RESULTS | ODD_RESULTS, min_size=1, max_size=2),
    ANY_PAIR,
    st.sampled_from([None, (",", ":")]),
    st.data(),
)
def test_results_that_come_again(
    results: list[dict[str, Any]],
    pair: Pair,
    separators: tuple[str, str] | None,
    data: st.DataObject,
) -> None:
    """Results that were sent before are taken alike, in whatever order their members stand."""
    document = json.loads(searching(*results))
    (search,) = document["searches"]
    for _ in range(3):
        again = []
        for position, sent in enumerate(search["results"]):
            changes = data.draw(
                st.fixed_dictionaries(
                    {"result_id": st.just(f"again{position}")},
                    optional={"gain": _USUAL, "score": _USUAL_NUMBERS, "extra": TEXTS},
                )
            )
            names = data.draw(st.permutations(list(sent | changes)) | st.just(list(sent | changes)))
            again.append({name: (sent | changes)[name] for name in names})
        search["results"] = again + again[:1]
        search["results"][-1] = {**again[0], "result_id": "twice"}
        both(pair, json.dumps(document, ensure_ascii=False, separators=separators).encode())


@pytest.mark.parametrize(
    ("limit", "bound", "result"),
    [
        ("ids_per_result", 2, {"ids": {"a": "x", "b": "y"}}),
        ("fields_per_result", 2, {"fields": {"a": "x", "b": 1}}),
        ("values_per_list", 2, {"ids": {"a": ["x", None]}}),
        ("url_bytes", 8, {"url": "https://"}),
    ],
)
def test_remembered_results_keep_to_limits(limit: str, bound: int, result: dict[str, Any]) -> None:
    """A result that was valid within other limits is not taken where it is not valid."""
    value = searching(result)
    for allowed in (bound, bound, bound - 1, bound, bound - 1):
        fast, slow = both(PAIRS[0], value, limits=Limits(**{limit: allowed}))
        assert (fast is not None) == (allowed == bound)
        assert isinstance(slow, Taken) == (allowed == bound)


@PATIENT
@given(st.lists(SCALARS, max_size=4), SCALARS, ANY_PAIR)
@example([0.1, 613649794789234.2], -172090969262084.12, PAIRS[0])
@example([18446744073709551615, -(2**63)], 1e15 + 0.5, PAIRS[0])
def test_values_of_fields(values: list[Any], value: Any, pair: Pair) -> None:
    """Scalars in fields have one form, also where they stand in for a title."""
    fields = {"state": value, "summary": values, "subject": value, "n3": values}
    for kind in ("Ticket", "Note", "Event", "EmailMessage", None):
        both(pair, searching({"entity_type": kind, "fields": fields}, {"ids": {"n": values}}))


# --- records of other tests -----------------------------------------------------------------------


@pytest.mark.slow
@PATIENT
@given(streams(min_events=5), ANY_PAIR)
def test_streams(stream: list[KeyedRecord], pair: Pair) -> None:
    """The records that the engine is tested on have the same end on both ways."""
    for key, value, timestamp_ms in stream:
        both(pair, value, key, timestamp_ms, LIMITS, True)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_hostile_records(row: Row) -> None:
    """So has each record of the table of bad input."""
    both(PAIRS[0], row.value, row.key, row.timestamp_ms, LIMITS, row.require_key)


@pytest.mark.parametrize(
    "field", [f for f in FIELDS if f.type in ("search_iteration", "relevance_labels")], ids=str
)
def test_every_value_in_every_field(field: Field) -> None:
    """So has an event with any kind of value in any field."""
    for case in cases(field):
        both(PAIRS[3], case.text.encode())


@pytest.mark.slow
@PATIENT
@given(mutated(), ANY_PAIR)
def test_mutated_events(text: str, pair: Pair) -> None:
    """So has a valid event to which a few things happened."""
    both(pair, text.encode())


@PATIENT
@given(planted(), st.none() | st.just(b"conv-1"), st.booleans())
def test_planted_events(value: bytes, key: bytes | None, require_key: bool) -> None:
    """So has an event with foreign texts for values and names, and one that was cut."""
    both(PAIRS[0], value, key, None, LIMITS, require_key)


_PIECES = st.binary(min_size=1, max_size=1) | st.sampled_from([
    b"", b'"', b"0", b"1.0", b"-1", b"null", b"true", b"[", b"}", b"\\", b"\\n", b"\\u00e9",
    b"\\ud83d\\ude00", b"\xc3\xa9", b'"ids":null,', b'"gain":1,', b"{},", b"[],",
])  # fmt: skip


@PATIENT
@given(
    spelled(st.sampled_from([FULL["search_iteration"], FULL["relevance_labels"]]) | ITERATIONS),
    ANY_PAIR,
    st.data(),
)
def test_changed_bytes(value: bytes, pair: Pair, data: st.DataObject) -> None:
    """So has an event of which single bytes were changed, lost or doubled."""
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(value) - 1))
        end = place + data.draw(st.integers(0, 1))
        value = value[:place] + data.draw(_PIECES) + value[end:]
    both(pair, value)


# --- what is taken --------------------------------------------------------------------------------


def test_traffic_is_taken() -> None:
    """All searches and labels of the demo's traffic that are good are taken the fast way."""
    profile = TrafficProfile(seed=3, conversations=60, start=1_718_000_000, duration_seconds=600)
    records = [(r.value, r.key, r.timestamp_ms) for r in generate(profile)]
    fast = [both(PAIRS[4], value, key, stamp) for value, key, stamp in records]
    assert all((found is not None) == is_frequent(slow) for found, slow in fast)
    assert sum(found is not None for found, _ in fast) > 200


@pytest.mark.slow
def test_the_workload_is_taken() -> None:
    """So is each of those that the speed is measured on."""
    fast = [both(PAIRS[1], r.value, r.key, r.timestamp_ms) for r in traffic(1_500).records]
    assert all((found is not None) == is_frequent(slow) for found, slow in fast)
    assert sum(found is not None for found, _ in fast) > 500


@pytest.mark.parametrize(
    ("value", "fast"),
    [
        (raw("search_iteration"), True),
        (raw("search_iteration", searches=None, gate=None, agent=None, release=None), True),
        (raw("search_iteration", searches=[]), True),
        (raw("search_iteration", searches=[{"search_id": "s"}] * 3), True),
        (raw("search_iteration", searches=[{"search_id": "s", "results": None}]), True),
        (searching({"title": 'a "title" \\ with\n\u2028 escapes'}), True),
        (searching({"fields": {"a/": [1, 1.5, None, True, "x"]}}).replace(b"/", b"\\/"), True),
        (searching({"title": "\U0001f600"}).replace(b"\xf0\x9f\x98\x80", b"\\ud83d\\ude00"), True),
        (searching({"fields": {"n": 2**63}}), True),
        (searching({"ids": {f"n{n}": None for n in range(64)}}), True),
        (searching({"ids": {f"n{n}": None for n in range(65)}}), False),
        (searching({"ids": {"doc_id": None}}), False),
        (searching({"title": "a"}).replace(b'"title"', b'"t\\u0069tle"'), False),
        (searching({"fields": {"n": 1e-5}}), False),
        (raw("search_iteration", searches=[{"search_id": "s"}] * 257), False),
        (raw("relevance_labels", x="search_iteration"), True),
        (raw("relevance_labels", labels=None, routing=None, gate=None, labeller=None), True),
        (raw("relevance_labels", labels=[{"result_id": "r", "gain": n} for n in (1, 2)]), False),
        (raw("turn_completed"), False),
        (raw("forget"), False),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_certain(value: bytes, fast: bool) -> None:
    """What is usual is taken; of what is valid but odd, some is left to the slow ways."""
    limits = Limits(searches_per_event=1_000)
    found, slow = both(PAIRS[0], value, limits=limits)
    assert isinstance(slow, Taken)
    assert (found is not None) == fast


_AT_LIMITS: list[tuple[dict[str, int], bytes]] = [
    ({"searches_per_event": 2}, raw("search_iteration", searches=[{"search_id": "s"}] * 2)),
    ({"results_per_event": 2}, searching({}, {})),
    ({"ids_per_result": 2}, searching({"ids": {"a": "x", "b": "y"}})),
    ({"fields_per_result": 2}, searching({"fields": {"a": "x", "b": 1}})),
    ({"values_per_list": 2}, searching({"ids": {"a": ["x", None]}})),
    ({"values_per_list": 2}, searching({"fields": {"a": [1, 2]}})),
    ({"url_bytes": 8}, searching({"url": "12\u20ac567"})),
    ({"json_levels": 5}, searching({})),
    ({"record_bytes": len(searching({}))}, searching({})),
    (
        {"labels_per_event": 3},
        raw(
            "relevance_labels",
            labels=[{"result_id": "r", "gain": 1}],
            routing=[{"search_id": "s", "optimal": None}],
            gate=[{"iteration": 1, "search_needed": True}],
        ),
    ),
    ({"record_bytes": len(raw("relevance_labels"))}, raw("relevance_labels")),
]


@pytest.mark.parametrize(("limit", "value"), _AT_LIMITS, ids=str)
def test_limits(limit: dict[str, int], value: bytes) -> None:
    """Both ways draw each limit at the same place."""
    ((name, bound),) = limit.items()
    fast, slow = both(PAIRS[0], value, limits=Limits(**{name: bound}))
    assert fast is not None
    fast, slow = both(PAIRS[0], value, limits=Limits(**{name: bound - 1}))
    assert isinstance(slow, BadRecord)
    assert fast is None


@pytest.mark.parametrize(
    ("key", "require_key", "fast"),
    [
        (None, False, True),
        (None, True, False),
        (b"c", True, True),
        (b"c", False, True),
        (b"d", False, False),
        (b"", False, False),
        (b"c\xff", True, False),
    ],
)
def test_keys(key: bytes | None, require_key: bool, fast: bool) -> None:
    """A key that is wrong, or lacking, is left to the slow ways."""
    for kind in ("search_iteration", "relevance_labels"):
        value = raw(kind, conversation_id="c")
        found, slow = both(PAIRS[0], value, key, None, LIMITS, require_key)
        assert (found is not None) == isinstance(slow, Taken) == fast


@given(
    st.integers(946_684_700, 4_102_444_900) | st.sampled_from([946_684_799, 946_684_800]),
    st.none() | st.integers(-86_401, 86_401),
)
@example(4_102_444_800, None)
@example(4_102_444_801, None)
@example(1_718_000_000, -86_400)
@example(1_718_000_000, -86_401)
def test_instants(seconds: int, behind: int | None) -> None:
    """An event too early, or too far ahead of its record, is refused on both ways."""
    stamp = None if behind is None else (seconds + behind) * 1000
    for kind in ("search_iteration", "relevance_labels"):
        found, slow = both(PAIRS[0], raw(kind, occurred_at=seconds), None, stamp)
        assert (found is not None) == isinstance(slow, Taken)


def test_the_plain_twin_has_no_fast_way() -> None:
    """Without the kernel's deduplicator everything goes the slow ways."""
    _, plain = PAIRS[0]
    intake = Intake(plain, KEY_ID, newest(), LIMITS)
    assert intake.take_fast(raw("search_iteration"), None, None) is None
    assert isinstance(intake.take(raw("search_iteration")), Taken)


@pytest.mark.parametrize("arguments", [("text", None), (None, None), (b"{}", "text")])
def test_wrong_arguments_are_exceptions(arguments: tuple[Any, Any]) -> None:
    """What is no record is refused, not misread."""
    intake = Intake(PAIRS[0][0], KEY_ID, newest(), LIMITS)
    with pytest.raises(TypeError):
        intake.take_fast(*arguments, None)
