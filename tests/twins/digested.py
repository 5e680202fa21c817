"""Records as digested events, directly from their bytes or through a decoded event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from benchmarks.workload import traffic as workload
from stream_metrics.core.dedup.deduplicator import Deduplicator, PlainDeduplicator
from stream_metrics.core.dedup.digests import KNOWN_NAMES
from stream_metrics.core.dedup.tables import newest
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder, digest_event
from stream_metrics.core.engine.registers import (
    LONGEST_ROUTE,
    MODEL_LABELS,
    RELEVANCE_LABELS,
    SEARCH_ITERATION,
)
from stream_metrics.core.events import BadRecord, Limits
from stream_metrics.core.events.decode import decode_slow
from stream_metrics.core.events.foreign import with_form
from stream_metrics.core.events.wire import Result
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.corpus import FIELDS, FULL, cases
from tests.strategies import streams
from tests.twins import Claim, Pair, Refusal, Twin
from tests.twins.fingerprints import NUMBERS, PAIRS, SCALARS, TEXTS, URLS, results_of
from tests.unit.test_bad_input import TABLE, planted, raw, searching
from tests.unit.test_contract import mutated

LIMITS = Limits()
KEY_ID = "a key's name"
Dedups = tuple[Deduplicator, Deduplicator]
ANY_PAIR = st.sampled_from(PAIRS)
MODELS = ("Judge*",)
FREQUENT = ("search_iteration", "relevance_labels")


def seen(taken: DigestedEvent | BadRecord, dedup: Deduplicator) -> str:
    """The whole event as a text in which ``1``, ``1.0`` and ``True`` differ."""
    if isinstance(taken, BadRecord) or taken.kind is not SEARCH_ITERATION:
        return repr(taken)
    sent, gate = taken.items
    each = [search.fingerprints for search in sent.values()]
    digests = [(f.types, f.documents, f.extra_values, f.urls_unparsed) for f in each]
    searches = {name: search._replace(fingerprints=None) for name, search in sent.items()}
    rest = msgspec.structs.replace(taken, items=(searches, gate))
    return repr((rest, digests, dedup.pack(each)))


def both(
    pair: Dedups,
    value: bytes | None,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    limits: Limits = LIMITS,
    require_key: bool = False,
) -> tuple[DigestedEvent | None, DigestedEvent | BadRecord]:
    """The results of both ways for a record; the decoder that uses them equals the slow way."""
    compiled, plain = pair
    assert not isinstance(compiled, PlainDeduplicator)
    event = decode_slow(value, key, timestamp_ms, limits, require_key)
    if isinstance(event, BadRecord):
        slow: DigestedEvent | BadRecord = with_form(event, value)
    else:
        slow = digest_event(event, plain, KEY_ID, newest(), MODELS)
    decoder = RecordDecoder(
        compiled, KEY_ID, newest(), limits, require_key=require_key, model_labellers=MODELS
    )
    fast = None if value is None else decoder.decode_fast(value, key, timestamp_ms)
    whole = decoder.decode(value, key=key, timestamp_ms=timestamp_ms)
    assert seen(whole, compiled) == seen(slow, plain)
    return fast, slow


def run(pair: Dedups, *record: Any) -> Iterator[Pair]:
    """The event of a record, with all of its digests."""
    fast, slow = both(pair, *record)
    yield (None if fast is None else seen(fast, pair[0])), seen(slow, pair[1])


def run_valid(pair: Dedups, *record: Any) -> Iterator[Pair]:
    """The same for a record that Python accepts."""
    assert isinstance(both(pair, *record)[1], DigestedEvent)
    yield from run(pair, *record)


def run_refused(pair: Dedups, *record: Any) -> Iterator[Pair]:
    """The same for a record that Python rejects."""
    assert isinstance(both(pair, *record)[1], BadRecord)
    yield from run(pair, *record)


def run_frequent(pair: Dedups, *record: Any) -> Iterator[Pair]:
    """The same; the kernel handles valid searches and labels, and nothing else."""
    fast, slow = both(pair, *record)
    kinds = (SEARCH_ITERATION, RELEVANCE_LABELS, MODEL_LABELS)
    frequent = isinstance(slow, DigestedEvent) and slow.kind in kinds
    assert (fast is not None) == frequent
    yield (None if fast is None else seen(fast, pair[0])), seen(slow, pair[1])


def run_each(pair: Dedups, values: list[bytes]) -> Iterator[Pair]:
    """The events of successive records."""
    for value in values:
        yield from run(pair, value)


def run_stream(stream: list[tuple[bytes, bytes, int]], pair: Dedups) -> Iterator[Pair]:
    """The same for the records of a stream."""
    for key, value, timestamp_ms in stream:
        yield from run(pair, value, key, timestamp_ms, LIMITS, True)


def run_shared(pair: Dedups, results: list[dict[str, Any]], bytes_first: bool) -> Iterator[Pair]:
    """Fingerprints by the kernel from bytes, and from decoded results; either may come first."""
    compiled, _ = pair
    sent = [msgspec.convert({**result, "result_id": "r"}, Result) for result in results]
    if not bytes_first:
        compiled.fingerprints(sent)
    fast, _ = both(pair, searching(*results))
    assert fast is not None
    (search,) = fast.items[0].values()
    yield compiled.pack([search.fingerprints]), compiled.pack([compiled.fingerprints(sent)])


def run_labels(
    pair: Dedups,
    value: bytes,
    gains: dict[str, int | None],
    routes: dict[str, str | None],
    needed: dict[int, bool | None],
) -> Iterator[Pair]:
    """The labels of an event that names each thing once."""
    fast, _ = both(pair, value)
    cut = {name: route and route[:LONGEST_ROUTE] for name, route in routes.items()}
    yield (None if fast is None else fast.items[:3]), (gains, cut, needed)


# --- cases ----------------------------------------------------------------------------------------

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
    """Lists of searches, some with equal ids."""
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
        "labeller": st.none() | TEXTS | st.sampled_from([1, "judge-v3"]),
        "source": st.sampled_from([None, "human", "model", "person", 1]),
        "sample": st.sampled_from([None, "random", "chosen", "all", True]),
        "version": st.sampled_from([None, 1, 2, "1"]),
        "extra": SCALARS,
    },
).map(lambda changes: {**FULL["relevance_labels"], **changes})


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

_PIECES = st.binary(min_size=1, max_size=1) | st.sampled_from([
    b"", b'"', b"0", b"1.0", b"-1", b"null", b"true", b"[", b"}", b"\\", b"\\n", b"\\u00e9",
    b"\\ud83d\\ude00", b"\xc3\xa9", b'"ids":null,', b'"gain":1,', b"{},", b"[],",
])  # fmt: skip


def keyed(
    documents: st.SearchStrategy[Any],
) -> st.SearchStrategy[tuple[Dedups, bytes, bytes | None, None, Limits, bool]]:
    """Documents in any spelling, with a key that is required or without one."""
    return st.builds(
        lambda pair, value, key: (pair, value, b"conv-1" if key else None, None, LIMITS, key),
        ANY_PAIR,
        spelled(documents),
        st.booleans(),
    )


@st.composite
def usual_labels(draw: st.DrawFn) -> tuple[Any, ...]:
    """Labels that name each item once."""
    ids = st.text(min_size=1, max_size=128)
    gains = draw(st.dictionaries(ids, st.none() | st.integers(0, 4)))
    routes = draw(st.dictionaries(ids, st.none() | TEXTS))
    needed = draw(st.dictionaries(st.integers(1, 2**31 - 1), st.none() | st.booleans()))
    document = {
        **FULL["relevance_labels"],
        "labels": [{"result_id": name, "gain": gain} for name, gain in gains.items()],
        "routing": [{"search_id": name, "optimal": route} for name, route in routes.items()],
        "gate": [{"iteration": name, "search_needed": told} for name, told in needed.items()],
    }
    value = draw(spelled(st.just(document), names_as_they_are=True))
    return draw(ANY_PAIR), value, gains, routes, needed


@st.composite
def usual_results(draw: st.DrawFn) -> tuple[Dedups, bytes]:
    """A search of usual results."""
    document = json.loads(searching(*draw(st.lists(USUAL_RESULTS, max_size=3))))
    return draw(ANY_PAIR), draw(spelled(st.just(document), names_as_they_are=True))


@st.composite
def sent_again(draw: st.DrawFn) -> tuple[Dedups, list[bytes]]:
    """Results that were sent before, in whatever order their members stand."""
    results = draw(st.lists(USUAL_RESULTS | ODD_RESULTS, min_size=1, max_size=2))
    separators = draw(st.sampled_from([None, (",", ":")]))
    document = json.loads(searching(*results))
    (search,) = document["searches"]
    values = []
    for _ in range(3):
        again = []
        for position, sent in enumerate(search["results"]):
            changes = draw(
                st.fixed_dictionaries(
                    {"result_id": st.just(f"again{position}")},
                    optional={"gain": _USUAL, "score": _USUAL_NUMBERS, "extra": TEXTS},
                )
            )
            names = draw(st.permutations(list(sent | changes)) | st.just(list(sent | changes)))
            again.append({name: (sent | changes)[name] for name in names})
        search["results"] = again + again[:1]
        search["results"][-1] = {**again[0], "result_id": "twice"}
        values.append(json.dumps(document, ensure_ascii=False, separators=separators).encode())
    return draw(ANY_PAIR), values


@st.composite
def flipped(draw: st.DrawFn) -> tuple[Dedups, bytes]:
    """An event with single bytes changed, removed or doubled."""
    frequent = st.sampled_from([FULL[kind] for kind in FREQUENT])
    value = draw(spelled(frequent | ITERATIONS))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(value) - 1))
        end = place + draw(st.integers(0, 1))
        value = value[:place] + draw(_PIECES) + value[end:]
    return draw(ANY_PAIR), value


def with_fields(pair: Dedups, values: list[Any], value: Any) -> tuple[Dedups, list[bytes]]:
    """Scalars in fields, also where they stand in for a title."""
    fields = {"state": value, "summary": values, "subject": value, "n3": values}
    return pair, [
        searching({"entity_type": kind, "fields": fields}, {"ids": {"n": values}})
        for kind in ("Ticket", "Note", "Event", "EmailMessage", None)
    ]


def demo() -> Iterator[tuple[Any, ...]]:
    """The demo's traffic."""
    profile = TrafficProfile(seed=3, conversations=60, start=1_718_000_000, duration_seconds=600)
    return ((PAIRS[4], r.value, r.key, r.timestamp_ms) for r in generate(profile))


_CERTAIN = [
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
    *((raw("relevance_labels", source=source), True) for source in ("human", "model", None)),
    *((raw("relevance_labels", sample=sample), True) for sample in ("random", "chosen", None)),
    (raw("relevance_labels", source=None, labeller="judge"), True),
    (raw("turn_completed"), False),
    (raw("forget"), False),
]  # fmt: skip
"""Valid events, and whether they are taken."""

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
_KEYS = [
    (None, False, True),
    (None, True, False),
    (b"c", True, True),
    (b"c", False, True),
    (b"d", False, False),
    (b"", False, False),
    (b"c\xff", True, False),
]
"""Keys of a conversation called c, whether one is required, and whether the record is good."""
_REMEMBERED = [
    ("ids_per_result", 2, {"ids": {"a": "x", "b": "y"}}),
    ("fields_per_result", 2, {"fields": {"a": "x", "b": 1}}),
    ("values_per_list", 2, {"ids": {"a": ["x", None]}}),
    ("url_bytes", 8, {"url": "https://"}),
]
"""A limit, a bound, and a result that just fits."""


def run_remembered(limit: str, bound: int, result: dict[str, Any]) -> Iterator[Pair]:
    """A result that was valid within other limits is taken only where it is valid."""
    for allowed in (bound, bound, bound - 1, bound, bound - 1):
        record = (searching(result), None, None, Limits(**{limit: allowed}))
        fast, slow = both(PAIRS[0], *record)
        assert (fast is not None) == isinstance(slow, DigestedEvent) == (allowed == bound)
        yield from run(PAIRS[0], *record)


def at_limits(less: int) -> list[tuple[Any, ...]]:
    """Records at the limits, under limits lowered by this much."""
    return [
        (PAIRS[0], value, None, None, Limits(**{name: bound - less}))
        for limit, value in _AT_LIMITS
        for name, bound in limit.items()
    ]


def under_keys(good: bool) -> list[tuple[Any, ...]]:
    """Records with a valid or an invalid key."""
    return [
        (PAIRS[0], raw(kind, conversation_id="c"), key, None, LIMITS, required)
        for key, required, fits in _KEYS
        for kind in FREQUENT
        if fits == good
    ]


def run_instants(seconds: int, behind: int | None) -> Iterator[Pair]:
    """Searches and labels at a time, by records so many seconds behind; taken if they are good."""
    stamp = None if behind is None else (seconds + behind) * 1000
    for kind in FREQUENT:
        yield from run_frequent(PAIRS[0], raw(kind, occurred_at=seconds), None, stamp)


def certain(fast: bool) -> list[tuple[Any, ...]]:
    """Valid events that are taken, or are not."""
    limits = Limits(searches_per_event=1_000)
    return [(PAIRS[0], value, None, None, limits) for value, taken in _CERTAIN if taken == fast]


# --- claims ---------------------------------------------------------------------------------------

DECODED = Twin("Deduplicator", run)
LABELS_ONLY = Twin("digested_labels", run)
VALID, REFUSED = Twin("Deduplicator", run_valid), Twin("Deduplicator", run_refused)
FREQUENT_ONLY = Twin("Deduplicator", run_frequent)
EACH = Twin("Deduplicator", run_each)
CLAIMS = [
    Claim(LABELS_ONLY, "labels of all kinds of values, in any spelling", keyed(LABELS)),
    Claim(
        Twin("digested_labels", run_labels),
        "labels that name each thing once are handled",
        usual_labels(),
        handled=True,
    ),
    Claim(DECODED, "searches of all kinds of values, in any spelling", keyed(ITERATIONS)),
    Claim(
        DECODED,
        "usual results are taken, whatever their texts and their spelling",
        usual_results(),
        handled=True,
    ),
    Claim(
        Twin("Deduplicator", run_shared, may_decline=False),
        "results as bytes and decoded ones share what is remembered, whichever comes first",
        st.tuples(ANY_PAIR, st.lists(USUAL_RESULTS, min_size=1, max_size=3), st.booleans()),
    ),
    Claim(EACH, "results that come again are taken alike", sent_again()),
    Claim(
        Twin("Deduplicator", run_remembered),
        "a remembered result keeps to limits",
        listed=_REMEMBERED,
    ),
    Claim(
        EACH,
        "values of fields have one form",
        st.builds(with_fields, ANY_PAIR, st.lists(SCALARS, max_size=4), SCALARS),
        [
            with_fields(PAIRS[0], [0.1, 613649794789234.2], -172090969262084.12),
            with_fields(PAIRS[0], [18446744073709551615, -(2**63)], 1e15 + 0.5),
        ]
        if PAIRS
        else (),
    ),
    Claim(
        Twin("Deduplicator", run_stream),
        "records that the engine is tested on",
        st.tuples(streams(min_events=5), ANY_PAIR),
        slow=True,
    ),
    Claim(
        DECODED,
        "records of the table of bad input",
        listed=lambda: (
            (PAIRS[0], row.value, row.key, row.timestamp_ms, LIMITS, row.require_key)
            for row in TABLE
        ),
    ),
    Claim(
        DECODED,
        "every kind of value in every field",
        listed=lambda: (
            (PAIRS[3], case.text.encode())
            for field in FIELDS
            if field.type in FREQUENT
            for case in cases(field)
        ),
    ),
    Claim(
        DECODED,
        "valid events to which a few things happened",
        st.tuples(ANY_PAIR, mutated().map(str.encode)),
        slow=True,
    ),
    Claim(
        DECODED,
        "events with foreign texts for values and names, and those that were cut",
        st.tuples(
            st.just(PAIRS[0]) if PAIRS else st.nothing(),
            planted(),
            st.none() | st.just(b"conv-1"),
            st.none(),
            st.just(LIMITS),
            st.booleans(),
        ),
    ),
    Claim(DECODED, "events of which single bytes were changed", flipped()),
    Claim(
        FREQUENT_ONLY, "the demo's good searches and labels are handled", listed=demo, at_least=200
    ),
    Claim(
        FREQUENT_ONLY,
        "so are those that the speed is measured on",
        listed=lambda: (
            (PAIRS[1], r.value, r.key, r.timestamp_ms) for r in workload(1_500).records
        ),
        at_least=500,
        slow=True,
    ),
    Claim(VALID, "what is usual is handled", listed=lambda: certain(fast=True), handled=True),
    Claim(
        VALID,
        "some that is odd is left to Python",
        listed=lambda: certain(fast=False),
        handled=False,
    ),
    Claim(
        VALID, "what just fits into a limit is handled", listed=lambda: at_limits(0), handled=True
    ),
    Claim(
        REFUSED, "what just does not is left to Python", listed=lambda: at_limits(1), handled=False
    ),
    Claim(VALID, "a record with its key is handled", listed=lambda: under_keys(True), handled=True),
    Claim(
        REFUSED,
        "one with a wrong key, or without a needed one, is left to Python",
        listed=lambda: under_keys(False),
        handled=False,
    ),
    Claim(
        Twin("Deduplicator", run_instants),
        "an event too early, or too far ahead of its record, is left to Python",
        st.tuples(
            st.integers(946_684_700, 4_102_444_900) | st.sampled_from([946_684_799, 946_684_800]),
            st.none() | st.integers(-86_401, 86_401),
        ),
        [
            (4_102_444_800, None),
            (4_102_444_801, None),
            (1_718_000_000, -86_400),
            (1_718_000_000, -86_401),
        ],
    ),
]


def wrongly_decoded(value: Any, key: Any) -> object:
    """What is no record."""
    return RecordDecoder(PAIRS[0][0], KEY_ID, newest(), LIMITS).decode_fast(value, key, None)


REFUSALS = [
    Refusal("Deduplicator", lambda: wrongly_decoded("text", None), TypeError),
    Refusal("Deduplicator", lambda: wrongly_decoded(None, None), TypeError),
    Refusal("Deduplicator", lambda: wrongly_decoded(b"{}", "text"), TypeError),
]
