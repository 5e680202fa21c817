"""Fingerprints: made, packed and unpacked exactly as ``PlainDeduplicator`` does it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from stream_metrics.core.dedup.deduplicator import Deduplicator, PlainDeduplicator
from stream_metrics.core.dedup.digests import KNOWN_NAMES, Digester
from stream_metrics.core.dedup.normalise import (
    DROPPED_PARAMETERS,
    DROPPED_UNLESS_ALONE,
    IDENTITY_PARAMETERS,
    folded_page,
)
from stream_metrics.core.dedup.tables import DedupRules, EntityType, Need, published
from stream_metrics.core.events.wire import Result
from tests import strategies as streams
from tests.twins import Claim, Pair, Refusal, Twin, kernel

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
    DedupRules(types=(), ignore_fields=frozenset(), tables=published()[1]),
    DedupRules(types=published()[1].types, tables=published()[1]),
]
KEYS = [b"", b"k", b"a key of as many bytes as BLAKE2b takes".ljust(64, b".")]


def compiled(rules: DedupRules, key: bytes) -> Deduplicator:
    """The kernel's."""
    made: Deduplicator = kernel.Deduplicator(rules, key)
    return made


CHOICES = [(rules, key) for rules in RULES for key in KEYS]
PAIRS: list[tuple[Deduplicator, Deduplicator]] = [
    (compiled(rules, key), PlainDeduplicator(rules, key))
    for rules, key in CHOICES
    if kernel is not None
]

# --- texts --------------------------------------------------------------------------------------

_PIECES = [
    "a", "Word", "TWO words", " ", "  ", "\n", "\t", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d",
    "\x1e", "\x1f", "\x00", "\x08", "\x0e", "\x1b", "\x7f", "\x80", "\x85", "\xa0", "\u1680",
    "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u00df",
    "\u1e9e", "\u0130", "\u0131", "\u0149", "\u01f0", "\u0390", "\u03a3", "\u03c2", "\u0587",
    "\u1f80", "\u1fb7", "\ufb03", "\u13a0", "\uab70", "\u00b5", "\u017f", "\u212a", "e\u0301",
    "\u0345", "\u0323", "a\u0301\u0323", "\u00fc", "u\u0308", "\u093c",
    "\u0915\u094d", "\u1100\u1161",
    "\u11a8", "\u1e0b\u0323", "\ufb1d", "\u2126", "\u0f71\u0f72",
    "\u4e2d\u6587", "\U0001f600", "\U00010400", "2024", "2024-05-06T09:00:00Z", "-",
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
    "a<>\"^`{|}b", "x\x7fy", ":80", "a:443:80", "B\u00dccher.example", "bu\u0308cher.example",
    "XN--Bcher-kva.example", "b%C3%BCcher.example", "xn--\u00e9", "xn--zz--", "stra\u00dfe.de",
    "a\u3002b", "b%FCcher.example", "\U0001e4ec.org", "a_b",
]  # fmt: skip
_PATHS = [
    "/", "//", "a", "Page", "%7e", "%7E", "%2f", "%C3%a4", "%zz", "%4", "%", "%%41", "%0", "\u00e9",
    " ", "\t", "\n", "\x00", "[x]", ";p=1", "+", "\\", "a:b", "@", "\u3000", "&", "=", "~", "%41%",
    "/.", "/..", "/./", "/../", "/%2e", "/%2E%2e/", ".", "..", "/.a", "u\u0308", "<", "|", "^",
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
    st.sampled_from(
        [
            "",
            "",
            "#",
            "#top",
            "#/route",
            "#!x",
            "#/\u00e9?a#b",
            "#%2f",
            "# ",
            "#inbox/1",
            "#@me/x",
            "#a:b=c",
            "#page=2",
            "#t=1&xywh=2",
            "#T=1&a=2",
            "#fn:1",
            "#epubcfi(/6/4)",
            "#a:~:text=b",
            "#:~:text=a",
            "#x=%7e%fc\u00e9 ?",
            "#/%7e",
            "#!%7E",
            "#/a:~:text=b",
            "#page=x",
            "#page=2x",
            "#heading=h.a",
            "#Instances:",
            "#sec:a",
            "#eyJh",
            "#0:30",
            "#a-b:c",
        ]
    ),
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


Dedups = tuple[Deduplicator, Deduplicator]
ANY_PAIR = st.sampled_from(PAIRS)


def run(searches: list[list[Result]], pair: Dedups) -> Iterator[Pair]:
    """All that can be seen of the searches of an event."""
    compiled, plain = pair
    yield outcome(compiled, searches), outcome(plain, searches)


def run_valid(searches: list[list[Result]], pair: Dedups) -> Iterator[Pair]:
    """The same of searches that are no error."""
    ((found, expected),) = run(searches, pair)
    assert isinstance(expected, tuple)
    yield found, expected


def run_all(*results: Result) -> Iterator[Pair]:
    """The same of one search, under all rules and keys."""
    for pair in PAIRS:
        yield from run([list(results)], pair)


def run_unpacked(searches: list[list[Result]], pair: Dedups) -> Iterator[Pair]:
    """What either reads of what either packed: the bytes when packed again, and what is seen."""
    for maker in pair:
        made = [maker.fingerprints(search) for search in searches]
        packed = maker.pack(made)
        for reader in pair:
            unpacked = reader.unpack(packed)
            yield reader.pack(unpacked), packed
            yield (
                [(f.types, f.documents, f.extra_values, f.urls_unparsed) for f in unpacked],
                [(f.types, f.documents, f.extra_values, 0) for f in made],
            )


def run_packed(searches: list[list[Result]], pair: Dedups) -> Iterator[Pair]:
    """The packed bytes, and those packed again after reading them."""
    compiled, plain = pair
    packed = compiled.pack([compiled.fingerprints(search) for search in searches])
    yield packed, plain.pack([plain.fingerprints(search) for search in searches])
    yield compiled.pack(compiled.unpack(packed)), packed


def run_document(doc_id: str) -> Iterator[Pair]:
    """The digest of a document that ``relevant`` names."""
    for compiled, plain in PAIRS:
        yield compiled.document(doc_id), plain.document(doc_id)


def run_query(text: str | None) -> Iterator[Pair]:
    """The digest of a search's query, if it has one."""
    for compiled, plain in PAIRS:
        yield [compiled.query(text)], [plain.query(text)]


def run_renamed(known: str) -> Iterator[Pair]:
    """Fingerprints that were stored when one of their names was not yet known."""
    for (rules, key), (compiled, plain) in zip(CHOICES, PAIRS, strict=True):
        digester = Digester(key, rules.names())
        packed = plain.pack([plain.fingerprints([result(ids={"a1": "1"}, fields={"a1": 1})])])
        stored = packed.replace(digester.name_digest("a1"), digester.name_digest(known))
        assert stored != packed
        yield compiled.pack(compiled.unpack(stored)), plain.pack(plain.unpack(stored))


# --- cases ----------------------------------------------------------------------------------------


def of_stream(events: list[dict[str, Any]]) -> list[list[Result]]:
    """The results of events made to collide, or nearly so."""
    known = {field.encode_name for field in msgspec.structs.fields(Result)}
    results = [{name: value for name, value in e.items() if name in known} for e in events]
    return [[msgspec.convert(result, Result) for result in results]]


def named_parameters() -> Iterator[tuple[Result]]:
    """Each parameter that identifies a page, or is dropped, alone and beside others."""
    names = {*IDENTITY_PARAMETERS, *DROPPED_PARAMETERS, *DROPPED_UNLESS_ALONE, "utm_x", "utm"}
    for name in sorted(names):
        for query in (name, f"{name.upper()}=1", f"a=2&{name}=1&{name}=0", f"action&{name}=1"):
            yield (result(url=f"https://docs.example/?{query}"),)


def with_fields(one: Any, other: Any) -> tuple[Result, ...]:
    """Field values, also where they stand in for a title."""
    return (
        result(fields={"state": one, "summary": other, "n3": one}, entity_type="Ticket"),
        result(fields={"subject": one, "file_name": other, "x": other}, entity_type="Event"),
        result(fields={"display_name": one, "author": other}, entity_type="Note", title=" "),
    )


def with_number(number: float) -> tuple[Result]:
    """A number alone and in a list."""
    return (result(fields={"pages": number, "n3": [number, "x"]}),)


@st.composite
def with_halves(draw: st.DrawFn) -> tuple[Result]:
    """Half of a surrogate pair somewhere, which JSON cannot bring."""
    made = draw(results_of(TEXTS | st.sampled_from(_SURROGATES)))
    half = draw(st.sampled_from(_SURROGATES))
    part = draw(st.sampled_from(["", "entity_type", "doc_id", "url", "ids", "fields"]))
    values: dict[str, Any] = {name: getattr(made, name) for name in made.__struct_fields__}
    if part == "ids":
        values[part] = {"a" + half: "b", "site_id": half}
    elif part == "fields":
        values[part] = {"n": 10**30, "a" + half: half, "subject": half}
    elif part:
        values[part] = half
    return (Result(**values),)


def every_character() -> Iterator[tuple[Any, ...]]:
    """Each character of Unicode, to be folded, kept, composed or taken as white space."""
    halves = range(0xD800, 0xE000)
    for first in range(0, 0x110000, 256):
        codes = range(first, first + 256)
        characters = [chr(code) for code in codes if code not in halves]
        # Those whose form depends on what is around them need a text each, which goes to Python.
        forms, classes = folded_page(first // 256)
        marks = [
            chr(code)
            for code, form, combining in zip(codes, forms, classes, strict=True)
            if (form is None or combining) and code not in halves
        ]
        searches = [
            [result(content="".join(f"{character}." for character in characters))],
            [result(content="".join(f"a{c}e{c}" for c in characters if c not in marks))],
            *([result(content=f"{c}.a{c}\u0323{c}\u0301e{c}")] for c in marks),
        ]
        yield searches, PAIRS[0]
        yield searches[:1], PAIRS[-1]


def ascii_everywhere(times: int) -> tuple[Result, ...]:
    """Each ASCII character, wherever it stands in a word of bytes."""
    return tuple(
        result(title="Q" * before + chr(code) * times + "z" * behind)
        for code in range(128)
        for before in range(10)
        for behind in (0, 1, 8)
    )


def of_sizes() -> Iterator[tuple[Any, ...]]:
    """Lists and texts of the sizes at which more bytes are needed to write them."""
    for size in (0, 1, 15, 16, 255, 256, 70_000):
        searches = [
            [result(ids={"n": [str(n) for n in range(size)]}, entity_type="T" * min(size, 300))],
            [result()] * size,
            [result(entity_type=f"t{n}", fields={f"n{n}": 1}) for n in range(min(size, 300))],
            *([] for _ in range(min(size, 300))),
        ]
        yield searches, PAIRS[0]


# --- claims ---------------------------------------------------------------------------------------

MADE = Twin("Deduplicator", run, may_decline=False)
ALL_PAIRS = Twin("Deduplicator", run_all, may_decline=False)
UNPACKED = Twin("Deduplicator", run_unpacked, may_decline=False)
_MANY = "&".join(f"n{n}=1" for n in range(500))
CLAIMS = [
    Claim(
        Twin("Deduplicator", run_valid, may_decline=False),
        "results of any kind have the same types, documents, counts and packed bytes",
        st.tuples(SEARCHES, ANY_PAIR),
    ),
    Claim(
        MADE,
        "so have results that collide, or nearly so",
        st.tuples(st.lists(STREAMED, max_size=4).map(of_stream), ANY_PAIR),
    ),
    Claim(
        ALL_PAIRS,
        "a URL has the same parts, or is absent",
        URLS.map(lambda url: (result(url=url),)),
        [
            (result(url=f"https://docs.example/?{query}"),)
            for query in (_MANY, f"{_MANY}&n500=1", f"{_MANY}&n500=1&%ff", f"%ff&{_MANY}")
        ],
    ),
    Claim(ALL_PAIRS, "parameters identify a page, or are dropped, alike", listed=named_parameters),
    Claim(ALL_PAIRS, "field values have the same form", st.builds(with_fields, VALUES, VALUES)),
    Claim(
        ALL_PAIRS,
        "a number is written with the same digits",
        NUMBERS.map(with_number),
        [with_number(613649794789234.2), with_number(-172090969262084.12)],
    ),
    Claim(
        ALL_PAIRS,
        "what is a time for the one is the same time for the other",
        TIMES.map(
            lambda text: (result(fields={"start": text, "end": [text]}, entity_type="Event"),)
        ),
    ),
    Claim(
        ALL_PAIRS,
        "components, generic ids and what of them is definitive are the same",
        st.builds(
            lambda ids, doc_id, kind: (result(ids=ids, doc_id=doc_id, entity_type=kind),),
            IDS,
            st.none() | IDENTIFIERS,
            TYPES,
        ),
    ),
    Claim(
        ALL_PAIRS,
        "half of a surrogate pair makes the same fingerprint or error",
        with_halves(),
    ),
    Claim(MADE, "each character of Unicode is folded alike", listed=every_character),
    Claim(
        ALL_PAIRS,
        "each ASCII character folds alike wherever it stands in a word of bytes",
        listed=lambda: (ascii_everywhere(times) for times in (1, 2)),
    ),
    Claim(
        ALL_PAIRS,
        "names that are stored as one byte are the same, in the same order",
        listed=[
            (result(**{slot: dict.fromkeys((*KNOWN_NAMES, "none of them"), "Ab")}),)
            for slot in ("ids", "fields")
        ],
    ),
    Claim(UNPACKED, "each unpacks what the other packed", st.tuples(SEARCHES, ANY_PAIR)),
    Claim(
        Twin("Deduplicator", run_packed, may_decline=False),
        "lists and texts of any size are written in as few bytes, and read again",
        listed=of_sizes,
    ),
    Claim(
        Twin("Deduplicator", run_renamed, may_decline=False),
        "a stored digest of a name that became known is that name",
        listed=[("event_id",), ("chunk_id",), ("state",)],
    ),
    Claim(
        Twin("Deduplicator", run_document, may_decline=False),
        "a document that relevant names has the same digest",
        st.tuples(TEXTS | st.sampled_from(_SURROGATES)),
    ),
    Claim(
        Twin("Deduplicator", run_query, may_decline=False),
        "the query of a search has the same digest",
        st.tuples(st.none() | TEXTS | st.sampled_from(_SURROGATES)),
    ),
]
_WRONG: list[dict[str, Any]] = [
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
]
"""What no decoded event can hold, whatever Python makes of it."""


def wrongly_made(values: dict[str, Any]) -> object:
    """The fingerprint of such a result."""
    return compiled(DedupRules(), b"").fingerprints([result(**values)])


def foreign_fingerprints() -> object:
    """The Python deduplicator's fingerprints, given to the kernel's."""
    compiled, plain = PAIRS[0]
    return compiled.pack([plain.fingerprints([result()])])


REFUSALS = [
    *(
        Refusal("Deduplicator", lambda values=values: wrongly_made(values), TypeError)  # type: ignore[misc]
        for values in _WRONG
    ),
    Refusal(
        "Deduplicator",
        lambda: compiled(DedupRules(), b"").fingerprints([object()]),  # type: ignore[list-item]
        AttributeError,
    ),
    Refusal("Deduplicator", foreign_fingerprints, TypeError),
    Refusal("Deduplicator", lambda: compiled(DedupRules(), b"k" * 65), ValueError, "key length"),
]
