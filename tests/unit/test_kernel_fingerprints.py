"""The kernel makes, packs and unpacks fingerprints exactly as ``PlainDeduplicator`` does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stream_metrics.dedup.deduplicator import Deduplicator, PlainDeduplicator
from stream_metrics.dedup.digests import KNOWN_NAMES
from stream_metrics.dedup.normalise import (
    _DROPPED_PARAMETERS,
    _DROPPED_UNLESS_ALONE,
    IDENTITY_PARAMETERS,
)
from stream_metrics.dedup.tables import DedupRules, EntityType, Need
from stream_metrics.events.wire import Result
from stream_metrics.kernel import kernel as installed
from tests import strategies as streams

pytestmark = pytest.mark.kernel

PATIENT = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

# --- rules --------------------------------------------------------------------------------------

TICKET = EntityType(
    name="Ticket",
    aliases=("Vorfall", "Stra\u00dfe"),
    definitive=frozenset(("ticket_id", "upn", "text")),
    not_definitive=frozenset(("site_id",)),
    rejects=("state", "title", "id:ticket_id", "id:title", "author"),
    confirms=((Need(1, ("text", "summary")),), (Need(2, ("state", "people", "author")),)),
    parts_differ=("part",),
    title_fallback="summary",
)
NOTE = EntityType(
    name="Note",
    definitive=None,
    not_definitive=frozenset(("site_id", "n1", "content")),
    rejects=("*",),
    confirms=((Need(3, ("*", "title")),),),
    title_fallback="subject",
)
RULES = [
    DedupRules(),
    DedupRules(types=(TICKET, NOTE), ignore_fields=frozenset(("score", "n2"))),
    DedupRules(types=(), ignore_fields=frozenset()),
]
KEYS = [b"", b"k", b"a key of as many bytes as BLAKE2b takes".ljust(64, b".")]


def compiled(rules: DedupRules, key: bytes) -> Deduplicator:
    """The kernel's."""
    assert installed is not None, "stream-metrics-kernel is not installed: make kernel"
    made: Deduplicator = installed.Deduplicator(rules, key)
    return made


PAIRS: list[tuple[Deduplicator, Deduplicator]] = [
    (compiled(rules, key), PlainDeduplicator(rules, key))
    for rules in RULES
    for key in KEYS
    if installed is not None
]

# --- texts --------------------------------------------------------------------------------------

_PIECES = [
    "a", "Word", "TWO words", " ", "  ", "\n", "\t", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d",
    "\x1e", "\x1f", "\x00", "\x08", "\x0e", "\x1b", "\x7f", "\x80", "\x85", "\xa0", "\u1680",
    "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u00df",
    "\u1e9e", "\u0130", "\u0131", "\u0149", "\u01f0", "\u0390", "\u03a3", "\u03c2", "\u0587",
    "\u1f80", "\u1fb7", "\ufb03", "\u13a0", "\uab70", "\u00b5", "\u017f", "\u212a", "e\u0301",
    "\u0345", "\u4e2d\u6587", "\U0001f600", "\U00010400", "2024", "2024-05-06T09:00:00Z", "-",
]  # fmt: skip
_SURROGATES = ["\ud800", "\udfff", "x\udc80y"]
_EDGES = [49, 50, 51, 99, 100, 101, 199, 200, 201, 499, 500, 501]


@st.composite
def around_edges(draw: st.DrawFn) -> str:
    """A text whose normal form is about as long as one of the bounds of length."""
    size = draw(st.sampled_from(_EDGES))
    filler = draw(
        st.sampled_from(["a", "Ab", "\u00e9", "\u00df", "\U0001f600", "ab cd ", "x\n\ty"])
    )
    text = (filler * size)[:size]
    return (
        draw(st.sampled_from(["", " ", "\u0130"])) + text + draw(st.sampled_from(["", "  ", "z"]))
    )


ASSEMBLED = st.lists(st.sampled_from(_PIECES), max_size=12).map("".join)
TEXTS = st.one_of(
    st.sampled_from(["", "Quarterly plan", "quarterly  PLAN "]),
    around_edges(),
    ASSEMBLED,
    st.text(max_size=60),
    st.text(alphabet=st.characters(max_codepoint=0x7F), max_size=300),
)

# --- URLs ---------------------------------------------------------------------------------------

_HOSTS = [
    "docs.example", "Docs.EXAMPLE", "", "[::1]", "[::zz]", "[v1.a]", "[", "]", "a]b[c", "1.2.3.4",
    "ex\u00e4mple.org", "\u2100.org", "\uff0fx", "a\\b", "a b", "a\tb", "a%41b", "\u0130.org",
    "a<>\"^`{|}b", "x\x7fy", ":80", "a:443:80",
]  # fmt: skip
_PATHS = [
    "/", "//", "a", "Page", "%7e", "%7E", "%2f", "%C3%a4", "%zz", "%4", "%", "%%41", "%0", "\u00e9",
    " ", "\t", "\n", "\x00", "[x]", ";p=1", "+", "\\", "a:b", "@", "\u3000", "&", "=", "~", "%41%",
]  # fmt: skip
_NAMES = [
    "a", "B", "id", "ID", "itemid", "Version", "sourcedoc", "docid", "v", "p", "view", "Action",
    "web", "ref", "ref_src", "utm_source", "UTM_x", "utm_", "token", "mc_cid", "", "%69d",
    "%75tm_x", "a+b", "\u00e9", "%C3%89", "%ff", "%", "a%5B%5D", "a[]", "\u212a", "%00",
    ";x", "gclid%20",
]  # fmt: skip
_VALUES = [
    "", "1", "2", "10", "x y", "%20", "+", "%2B", "%c3%a9", "%C3", "%ed%a0%80", "%f0%9f%98%80",
    "a=b", "=", "A", "\u00e9", "%zz", "%%32", "%\u00e9", "http://x/y?z", "[1]", ";", "\n", "\x1f",
]  # fmt: skip
_PARAMETERS = st.one_of(
    st.builds("{}={}".format, st.sampled_from(_NAMES), st.sampled_from(_VALUES)),
    st.sampled_from(_NAMES),
    st.just(""),
)
_SCHEMES = ["https://", "http://", "HTTP://", "//", "", "ftp:", "ftp:/", "x+y.z-1://", "a_b://",
            "1http://", "+http://", ":", "://", " https://", "\x00https://", "ht\ntps://", "https:",
            "\u00e9://", "/", "?", "#", "https:///", "https:/\\"]  # fmt: skip
ASSEMBLED_URLS = st.builds(
    "{}{}{}{}{}{}{}".format,
    st.one_of(st.just("https://"), st.sampled_from(_SCHEMES)),
    st.sampled_from(["", "", "me@", "me:pass@", "a@b@", "@", "[@", "\u00e9@"]),
    st.one_of(st.just("docs.example"), st.sampled_from(_HOSTS)),
    st.sampled_from(["", "", ":80", ":443", ":8080", ":", ":80:443", ":080"]),
    st.one_of(
        st.just("/a/page"),
        st.lists(st.sampled_from(_PATHS), max_size=6).map(lambda parts: "/" + "".join(parts)),
        st.lists(st.sampled_from(_PATHS), max_size=3).map("".join),
    ),
    st.one_of(
        st.just(""),
        st.lists(_PARAMETERS, max_size=6).map(lambda pairs: "?" + "&".join(pairs)),
        st.lists(_PARAMETERS, max_size=3).map(lambda pairs: "?" + ";".join(pairs)),
        st.integers(498, 503).map(lambda n: "?" + "&".join(f"n{i}" for i in range(n)) + "&"),
    ),
    st.sampled_from(["", "", "#", "#top", "#/route", "#!x", "#/\u00e9?a#b", "#%2f", "# "]),
)
URLS = st.one_of(
    st.sampled_from([url for url in streams.URLS if url is not None]),
    ASSEMBLED_URLS,
    TEXTS,
)

# --- ids and fields -----------------------------------------------------------------------------

_UUID = "0F8FAD5B-D9CB-469F-A165-70867728950E"
_SHARED_NAMES = ["site_id", "title", "text", "content", "*", "", "n1", "n2", "\u00fc", "x" * 80]
IDENTIFIERS = st.one_of(
    st.sampled_from([
        "", "A1", "a1", "A2", _UUID, _UUID.lower(), _UUID[:-1], _UUID + "0",
        _UUID.replace("-", "0"), "0F8FAD5B-D9CB-469F-A165-7086772895\u00e9", "Me@Example.org",
        "STRA\u00dfE@x", "\u0130",
    ]),
    TEXTS,
)  # fmt: skip
IDS = st.one_of(
    st.none(),
    st.dictionaries(
        st.one_of(
            st.sampled_from(KNOWN_NAMES),
            st.sampled_from(["ticket_id", "upn", *_SHARED_NAMES]),
            TEXTS,
        ),
        st.one_of(st.none(), IDENTIFIERS, st.lists(st.none() | IDENTIFIERS, max_size=5)),
        max_size=6,
    ),
    st.integers(44, 52).map(lambda n: {f"n{i}": ["v", "w"] for i in range(n)}),
)
_TIME_PARTS: list[list[str]] = [
    ["2024", "0000", "1900", "9999", "202", "\u0662024"],
    ["-", "-", "-", "/"],
    ["05", "02", "13", "00", "5"],
    ["-", "-", "-", ""],
    ["06", "29", "30", "31", "00"],
    ["T", "t", "T", " ", "\u2003"],
    ["09:00", "23:59", "24:00", "9:00", "09:60"],
    [":00", ":59", ":60", ""],
    ["", ".5", ".000001", ".0000009", ".", ".1234567890123", ".\u0661"],
    ["Z", "z", "+02:00", "-04:30", "+24:00", "+0200", "", "+00:60", "Z ", "\u212a"],
]
TIMES = st.tuples(*map(st.sampled_from, _TIME_PARTS)).map("".join)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**40]),
    st.sampled_from([
        0.0, -0.0, 0.1, 1.0, 1.5, 1e15, 1e15 + 0.5, 1e16, 1e17, 1e22, 1e300, 5e-324, 1e-4, 9.9e-5,
        0.00012345, 9e18, -9e18, 9.3e18, 2.0**63, -(2.0**63), 4503599627370496.5, 1 / 3, 2.5e-5,
        float("inf"), float("-inf"), float("nan"),
    ]),
    st.floats(),
    # Exactly between two shortest decimal forms, or nearly so.
    st.builds(lambda odd, half: odd / 2**half, st.integers(2**48, 2**53), st.integers(1, 50)),
    st.builds(lambda odd, half: odd / 2**half, st.integers(1, 2**24), st.integers(1, 24)),
)  # fmt: skip
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, TIMES)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=4), st.sampled_from(streams.FIELD_VALUES))
FIELDS = st.one_of(
    st.none(),
    st.dictionaries(
        st.one_of(
            st.sampled_from(KNOWN_NAMES),
            st.sampled_from(["subject", "file_name", "display_name", "summary"]),
            st.sampled_from(["score", "rank", "state", "part", "people", *_SHARED_NAMES]),
            TEXTS,
        ),
        VALUES,
        max_size=6,
    ),
    st.integers(44, 52).map(lambda n: {f"n{i}": i for i in range(n)}),
)
TYPES = st.one_of(
    st.none(),
    st.sampled_from([
        "", "File", "FILE", "Event", "Email", "eMAILmessage", "TeamsMessage", "People", "External",
        "MeetingTranscript", "Document", "Ticket", "VORFALL", "STRASSE", "stra\u1e9ee", "Note",
        "\u0130tem", "\u4e2d\u6587", "F\u0131le",
    ]),
    TEXTS,
)  # fmt: skip


def result(**values: Any) -> Result:
    """A result of which nothing else is known."""
    return Result(result_id="r", **values)


def results_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Result]:
    """Results with such texts beside the usual."""
    return st.builds(
        result,
        entity_type=TYPES,
        ids=IDS,
        doc_id=st.none() | IDENTIFIERS,
        url=st.none() | URLS,
        title=st.none() | texts,
        snippet=st.none() | texts,
        content=st.none() | texts,
        fields=FIELDS,
    )


RESULTS = results_of(TEXTS)
STREAMED = st.sampled_from([*streams.TYPE_PARTS, "Ticket"]).flatmap(
    lambda kind: streams.results([(kind, "https://docs.example/a/page")], "r")
)
SEARCHES = st.lists(st.lists(RESULTS, max_size=3), max_size=3)


def outcome(deduplicator: Deduplicator, searches: list[list[Result]]) -> Any:
    """All that can be seen of the searches' fingerprints, or the kind of the exception."""
    try:
        made = [deduplicator.fingerprints(search) for search in searches]
        seen = [(f.types, f.documents, f.extra_values, f.urls_unparsed) for f in made]
        return seen, deduplicator.pack(made)
    except Exception as error:
        return type(error)


def assert_equal(*results: Result) -> None:
    """Under all rules and keys both make the same of the results."""
    for kernel, plain in PAIRS:
        assert outcome(kernel, [list(results)]) == outcome(plain, [list(results)])


# --- the tests ----------------------------------------------------------------------------------


@PATIENT
@given(SEARCHES, st.sampled_from(PAIRS))
def test_results_of_any_kind(
    searches: list[list[Result]], pair: tuple[Deduplicator, Deduplicator]
) -> None:
    """Types, documents, counts and packed bytes are equal."""
    kernel, plain = pair
    seen = outcome(kernel, searches)
    assert isinstance(seen, tuple)
    assert seen == outcome(plain, searches)


@PATIENT
@given(st.lists(STREAMED, max_size=4), st.sampled_from(PAIRS))
def test_results_of_streams(
    events: list[dict[str, Any]], pair: tuple[Deduplicator, Deduplicator]
) -> None:
    """Results made to collide or nearly so have equal fingerprints too."""
    kernel, plain = pair
    known = {field.encode_name for field in msgspec.structs.fields(Result)}
    results = [{name: value for name, value in e.items() if name in known} for e in events]
    searches = [[msgspec.convert(result, Result) for result in results]]
    assert outcome(kernel, searches) == outcome(plain, searches)


@PATIENT
@given(URLS)
@example("https://docs.example/?" + "&".join(f"n{n}=1" for n in range(500)))
@example("https://docs.example/?" + "&".join(f"n{n}=1" for n in range(501)))
@example("https://docs.example/?" + "&".join(f"n{n}=1" for n in range(501)) + "&%ff")
@example("https://docs.example/?%ff&" + "&".join(f"n{n}=1" for n in range(500)))
def test_urls(url: str) -> None:
    """A URL has the same parts, or is absent, for both."""
    assert_equal(result(url=url))


def test_names_of_parameters() -> None:
    """Each name that identifies a page, or is dropped, does so alone and beside others."""
    names = {*IDENTITY_PARAMETERS, *_DROPPED_PARAMETERS, *_DROPPED_UNLESS_ALONE, "utm_x", "utm"}
    for name in sorted(names):
        for query in (name, f"{name.upper()}=1", f"a=2&{name}=1&{name}=0", f"action&{name}=1"):
            assert_equal(result(url=f"https://docs.example/?{query}"))


@PATIENT
@given(VALUES, VALUES)
def test_field_values(one: Any, other: Any) -> None:
    """Field values have the same form, also where they stand in for a title."""
    assert_equal(
        result(fields={"state": one, "summary": other, "n3": one}, entity_type="Ticket"),
        result(fields={"subject": one, "file_name": other, "x": other}, entity_type="Event"),
        result(fields={"display_name": one, "author": other}, entity_type="Note", title=" "),
    )


@given(NUMBERS)
@example(613649794789234.2)
@example(-172090969262084.12)
def test_numbers(number: float) -> None:
    """A number is written with the same digits, alone and in a list."""
    assert_equal(result(fields={"pages": number, "n3": [number, "x"]}))


@given(TIMES)
def test_times(text: str) -> None:
    """What is a time for the one is the same time for the other."""
    assert_equal(result(fields={"start": text, "end": [text]}, entity_type="Event"))


@PATIENT
@given(IDS, st.none() | IDENTIFIERS, TYPES)
def test_identifiers(ids: Any, doc_id: str | None, entity_type: str | None) -> None:
    """Components, generic ids and what of them is definitive are the same."""
    assert_equal(result(ids=ids, doc_id=doc_id, entity_type=entity_type))


@given(results_of(TEXTS | st.sampled_from(_SURROGATES)), st.sampled_from(_SURROGATES), st.data())
def test_halves_of_surrogate_pairs(made: Result, half: str, data: st.DataObject) -> None:
    """Half of a surrogate pair, which JSON cannot bring, makes the same fingerprint or error."""
    part = data.draw(st.sampled_from(["", "entity_type", "doc_id", "url", "ids", "fields"]))
    values: dict[str, Any] = {name: getattr(made, name) for name in made.__struct_fields__}
    if part == "ids":
        values[part] = {"a" + half: "b", "site_id": half}
    elif part == "fields":
        values[part] = {"n": 10**30, "a" + half: half, "subject": half}
    elif part:
        values[part] = half
    assert_equal(Result(**values))


def test_every_character() -> None:
    """Each character of Unicode is folded, kept or taken as white space as Python does."""
    halves = range(0xD800, 0xE000)
    for first in range(0, 0x110000, 256):
        codes = range(first, first + 256)
        text = "".join(f"{chr(code)}." for code in codes if code not in halves)
        both = [outcome(one, [[result(content=text)]]) for one in PAIRS[0]]
        assert both[0] == both[1], hex(first)


@pytest.mark.parametrize("times", [1, 2])
def test_ascii_characters_at_every_place(times: int) -> None:
    """Each ASCII character, alone and twice, folds alike wherever it stands in a word of bytes."""
    texts = [
        "Q" * before + chr(code) * times + "z" * behind
        for code in range(128)
        for before in range(10)
        for behind in (0, 1, 8)
    ]
    assert_equal(*(result(title=text) for text in texts))


@pytest.mark.parametrize("slot", ["ids", "fields"])
def test_known_names_have_the_same_tags(slot: str) -> None:
    """The names that are stored as one byte are the same, in the same order."""
    assert_equal(result(**{slot: dict.fromkeys((*KNOWN_NAMES, "none of them"), "Ab")}))


@PATIENT
@given(SEARCHES, st.sampled_from(PAIRS))
def test_each_unpacks_what_the_other_packed(
    searches: list[list[Result]], pair: tuple[Deduplicator, Deduplicator]
) -> None:
    """Unpacking and packing again, by whichever of the two, gives the same bytes."""
    for maker in pair:
        packed = maker.pack([maker.fingerprints(search) for search in searches])
        for reader in pair:
            unpacked = reader.unpack(packed)
            assert reader.pack(unpacked) == packed
            for search, fingerprints in zip(searches, unpacked, strict=True):
                made = maker.fingerprints(search)
                assert fingerprints.types == made.types
                assert fingerprints.documents == made.documents
                assert fingerprints.extra_values == made.extra_values
                assert fingerprints.urls_unparsed == 0


@pytest.mark.parametrize("size", [0, 1, 15, 16, 255, 256, 70_000])
def test_sizes_in_packed_bytes(size: int) -> None:
    """Sizes are written in as few bytes as they take, and read again."""
    kernel, plain = PAIRS[0]
    searches = [
        [result(ids={"n": [str(n) for n in range(size)]}, entity_type="T" * min(size, 300))],
        [result()] * size,
        [result(entity_type=f"t{n}", fields={f"n{n}": 1}) for n in range(min(size, 300))],
        *([] for _ in range(min(size, 300))),
    ]
    packed = kernel.pack([kernel.fingerprints(search) for search in searches])
    assert packed == plain.pack([plain.fingerprints(search) for search in searches])
    assert kernel.pack(kernel.unpack(packed)) == packed


@pytest.mark.parametrize("known", ["event_id", "chunk_id", "state"])
def test_a_name_that_was_stored_before_it_became_known(known: str) -> None:
    """A stored digest of a name that rules speak of is that name, with its tag if it has one."""
    for kernel, plain in PAIRS:
        packed = plain.pack([plain.fingerprints([result(ids={"a1": "1"}, fields={"a1": 1})])])
        stored = packed.replace(_name_digest(plain, "a1"), _name_digest(plain, known))
        assert stored != packed
        assert kernel.pack(kernel.unpack(stored)) == plain.pack(plain.unpack(stored))


def _name_digest(plain: Deduplicator, name: str) -> bytes:
    assert isinstance(plain, PlainDeduplicator)
    return plain._digester.name_digest(name)


@PATIENT
@given(SEARCHES, st.data())
def test_malformed_bytes_are_refused(searches: list[list[Result]], data: st.DataObject) -> None:
    """Cut or changed bytes give a ``ValueError``, or fingerprints that can be packed."""
    kernel = compiled(DedupRules(), b"")
    packed = kernel.pack([kernel.fingerprints(search) for search in searches])
    cut = data.draw(st.integers(0, len(packed) - 1))
    for broken in (packed[:cut], packed + b"\xc0"):
        with pytest.raises(ValueError):
            kernel.unpack(broken)
    changed = bytearray(packed)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    for broken in (bytes(changed), data.draw(st.binary(max_size=50))):
        try:
            unpacked = kernel.unpack(broken)
        except ValueError:
            continue
        kernel.pack(unpacked)


@given(TEXTS | st.sampled_from(_SURROGATES))
def test_documents_of_labels(doc_id: str) -> None:
    """A document that ``relevant`` names has the same digest."""
    for kernel, plain in PAIRS:
        assert kernel.document(doc_id) == plain.document(doc_id)


@pytest.mark.parametrize(
    "values",
    [
        {"title": 5},
        {"content": b"bytes"},
        {"url": 5},
        {"doc_id": 5},
        {"entity_type": 5},
        {"ids": ["a"]},
        {"ids": {5: "a"}},
        {"ids": {"a": 5}},
        {"fields": {5: "a"}},
        {"fields": "a"},
    ],
)
def test_wrong_types_are_exceptions(values: dict[str, Any]) -> None:
    """What no decoded event can hold is refused, whatever Python makes of it."""
    kernel = compiled(DedupRules(), b"")
    with pytest.raises(TypeError):
        kernel.fingerprints([result(**values)])


def test_foreign_objects_are_refused() -> None:
    """Neither a thing that is no result nor the twin's fingerprints are taken."""
    kernel, plain = PAIRS[0]
    with pytest.raises(AttributeError):
        kernel.fingerprints([object()])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        kernel.pack([plain.fingerprints([result()])])


def test_a_key_that_is_too_long() -> None:
    """More than 64 bytes of key are refused, as the twin refuses them with the first digest."""
    with pytest.raises(ValueError, match="key length"):
        compiled(DedupRules(), b"k" * 65)
