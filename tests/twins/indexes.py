"""The index of a turn: the documents of results, the evidence, and the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from stream_metrics.core.dedup.deduplicator import Deduplicator, PlainDeduplicator
from stream_metrics.core.dedup.fingerprint import DEFINITIVE
from stream_metrics.core.dedup.index import DedupCounts
from stream_metrics.core.dedup.pack import PackedSearches
from stream_metrics.core.dedup.tables import DedupRules, EntityType, Need, newest
from stream_metrics.core.events.wire import Result
from tests.strategies import (
    CONTENTS,
    DOC_IDS,
    FIELD_VALUES,
    ID_VALUES,
    MASKS,
    SNIPPETS,
    TITLES,
    TYPE_NAMES,
    TYPE_PARTS,
    URLS,
)
from tests.twins import Claim, Pair, Refusal, Twin, kernel

KEY = b"a key of the tests"

Searches = list[list[Result]]
Decisions = list[tuple[list[int], list[str]]]
Counted = tuple[Counter[str], Counter[tuple[str, str, str]], int, int, int]


def compiled(rules: DedupRules) -> Deduplicator:
    """The kernel's deduplicator."""
    made: Deduplicator = kernel.Deduplicator(rules, KEY)
    return made


def both(rules: DedupRules) -> tuple[Deduplicator, Deduplicator]:
    """The deduplicator in Python and the compiled one."""
    return PlainDeduplicator(rules, KEY), compiled(rules)


def counted(counts: DedupCounts) -> Counted:
    """All counts."""
    return (
        counts.candidates, counts.verdicts,
        counts.truncated, counts.contradictions, counts.other_text,
    )  # fmt: skip


def decided(dedup: Deduplicator, searches: Searches) -> tuple[Decisions, Counted]:
    """The documents and evidence of each search, and the counts."""
    index, counts = dedup.index(), DedupCounts()
    decisions = [index.append(dedup.fingerprints(search), counts) for search in searches]
    return decisions, counted(counts)


def reloaded(
    dedup: Deduplicator, searches: Searches, documents: Sequence[list[int]]
) -> tuple[Decisions, Counted]:
    """The same if the first searches are restored with their stored decisions."""
    stored = dedup.unpack(dedup.pack([dedup.fingerprints(search) for search in searches]))
    index, counts = dedup.index(), DedupCounts()
    for results, numbers in zip(stored, documents, strict=False):
        index.append_decided(results, numbers)
    decisions = [index.append(results, counts) for results in stored[len(documents) :]]
    return decisions, counted(counts)


# --- streams of results that nearly meet ----------------------------------------------------------

TICKET = EntityType(
    name="Ticket",
    aliases=("Gr\u00f6\u00dfe", "Case"),
    definitive=None,
    not_definitive=frozenset(("queue", "title")),
    rejects=("title", "*", "id:queue"),
    confirms=(
        (Need(1, ("id:title", "id:queue")), Need(1, ("title",))),
        (Need(2, ("*", "snippet")),),
    ),
    parts_differ=("part", "*"),
)
NAMESAKE = replace(TICKET, aliases=("Second",), definitive=frozenset(("queue",)), confirms=())
NOTE = EntityType(
    name="Note",
    definitive=frozenset(("note_id", "content", "*")),
    rejects=("snippet", "id:colour"),
    confirms=(
        (Need(0, ("title",)), Need(1, ("colour", "id:colour"))),
        (Need(2, ("snippet", "content", "title")),),
        (Need(1, ("id:*", "id:content", "text")),),
    ),
    parts_differ=("text", "content"),
    title_fallback="colour",
)
FREE = EntityType(name="free", aliases=("\u017fame",), rejects=(), confirms=((),))
FILE = EntityType(
    name="File",
    definitive=frozenset(("file_id",)),
    rejects=("id:site_id", "content"),
    confirms=((Need(1, ("*",)), Need(1, ("text", "title"))),),
)
OWN_ROWS = (TICKET, NAMESAKE, NOTE, FREE, FILE)

NAMES: dict[str, list[str | None]] = {
    **TYPE_NAMES,
    "Document": [None, "document", "widget", "WIDGET", "\u00dcnbekannt", "\u00fcNBEKANNT"],
    "Ticket": ["Ticket", "case", "GR\u00d6SSE", "second", "Second"],
    "Note": ["Note", "note"],
    "free": ["FREE", "SAME", "same"],
}
PARTS: dict[str, tuple[list[str], list[str]]] = {
    **TYPE_PARTS,
    "Ticket": (["ticket", "queue", "title", "original_id"], ["part", "pages", "title", "*"]),
    "Note": (["note_id", "content", "colour", "*"], ["colour", "topic", "id:note_id"]),
    "free": (["a"], ["b"]),
}
OWN_POOLS: dict[str, list[Any]] = {
    "doc_id": DOC_IDS,
    "url": URLS,
    "title": TITLES,
    "snippet": SNIPPETS,
    "content": CONTENTS,
}


def any_rules(random: Random) -> DedupRules:
    """Rules with custom rows and with any options."""
    rows = {row.name.casefold(): row for row in newest().types}
    own = [row for row in OWN_ROWS if random.randrange(2)]
    rows |= {row.name.casefold(): row for row in own if row is not NAMESAKE}
    return DedupRules(
        types=(*rows.values(), *(row for row in own if row is NAMESAKE)),
        ignore_fields=frozenset(random.choice([(), ("pages", "retrieved_at")])),
        identical_content=random.choice(["duplicate", "different"]),
        snippet_rejects=random.choice([True, False]),
        max_candidates=random.choice([64, 64, 64, 2, 1, 0]),
    )


def many_values(random: Random) -> list[str]:
    """Values of an ID, enough for the index to use hash tables."""
    start = random.randrange(30)
    return [f"v{number}" for number in range(start, start + random.choice([9, 18, 40]))]


def any_document(random: Random) -> tuple[str, dict[str, Any]]:
    """A type, and a document of it that results are made from."""
    kind = random.choice(list(PARTS))
    components, fields = PARTS[kind]
    made: dict[str, Any] = {}
    for name, pool in OWN_POOLS.items():
        made[name] = random.choice([pool[0], random.choice(pool)])
    made["ids"] = {random.choice(components): "A1" for _ in range(random.choice([1, 2, 4]))}
    made["fields"] = {random.choice(fields): "x" for _ in range(random.choice([1, 3, 7]))}
    return kind, made


def any_result(random: Random, documents: list[tuple[str, dict[str, Any]]]) -> Result:
    """A document without some kinds of evidence, and with a few edits."""
    kind, document = random.choice(documents)
    components, fields = PARTS[kind]
    made = {**document, "ids": {**document["ids"]}, "fields": {**document["fields"]}}
    for _ in range(random.randrange(4)):
        slot = random.randrange(12)
        if slot < 6:
            name = random.choice(list(OWN_POOLS))
            made[name] = random.choice(OWN_POOLS[name])
        elif slot < 8:
            made["ids"][random.choice(components)] = random.choice(ID_VALUES)
        elif slot == 8:
            made["ids"][random.choice(components)] = many_values(random)
        else:
            made["fields"][random.choice(fields)] = random.choice(FIELD_VALUES)
    for name in random.choice(MASKS):
        made[name] = None
    made["entity_type"] = random.choice(NAMES[kind])
    return msgspec.convert({"result_id": "r", **made}, Result)


def any_searches(random: Random) -> Searches:
    """The searches of a turn, whose results are variants of one to three documents."""
    documents = [any_document(random) for _ in range(random.choice([1, 1, 2, 3]))]
    return [
        [any_result(random, documents) for _ in range(random.randrange(9))]
        for _ in range(1 + random.randrange(4))
    ]


RANDOMS = st.randoms(use_true_random=False)


# --- the twins ------------------------------------------------------------------------------------


def run(rules: DedupRules, searches: Searches) -> Iterator[Pair]:
    """Documents, evidence and counts."""
    plain, fast = both(rules)
    yield decided(fast, searches), decided(plain, searches)


def run_random(random: Random) -> Iterator[Pair]:
    """The same under any rules."""
    yield from run(any_rules(random), any_searches(random))


def run_reloaded(random: Random) -> Iterator[Pair]:
    """What the next searches get after decided ones came back from the state."""
    plain, fast = both(any_rules(random))
    searches = any_searches(random)
    whole, _ = decided(plain, searches)
    kept = random.randrange(len(searches) + 1)
    documents = [numbers for numbers, _ in whole[:kept]]
    found = reloaded(fast, searches, documents)
    yield found, reloaded(plain, searches, documents)
    yield found[0], whole[kept:]


def run_believed(random: Random) -> Iterator[Pair]:
    """The same after documents that these rules would not have decided."""
    plain, fast = both(any_rules(random))
    searches = any_searches(random)
    documents, new = [], 0
    for search in searches[:2]:
        numbers = []
        for _ in search:
            numbers.append(random.randrange(new + 1))
            new = max(new, numbers[-1] + 1)
        documents.append(numbers)
    yield reloaded(fast, searches, documents), reloaded(plain, searches, documents)


def run_pair(first: dict[str, Any], second: dict[str, Any], verdict: str) -> Iterator[Pair]:
    """The decisions on a result and on one that differs in some attributes."""
    one = {"result_id": "r", "title": "t", **first}
    results = [msgspec.convert(made, Result) for made in (one, {**one, **second})]
    ((found, expected),) = run(DedupRules(types=(*newest().types, ROW)), [results])
    assert [f"{step} {said}" for _, step, said in expected[1][1]] == [verdict]
    yield found, expected


def run_one(rules: DedupRules, results: list[Result], one: int) -> Iterator[Pair]:
    """Results of which the first so many are one document."""
    ((found, expected),) = run(rules, [results])
    assert expected[0][0][0][:one] == [0] * one
    yield found, expected


def run_alike(limit: int) -> Iterator[Pair]:
    """Stored digests of which some begin with the same key."""
    file_id, alike = bytes([32]), [b"the same" + bytes([n]) * 8 for n in range(4)]
    results = [
        b"\0\0" + bytes([DEFINITIVE]) + b"".join(file_id + digest for digest in digests)
        for digests in (alike[:2], alike[1:3], alike[2:], alike[:1], alike)
    ]
    packed = msgspec.msgpack.encode(PackedSearches([], ["File"], [results] * 2))
    found = []
    for dedup in both(DedupRules(max_candidates=limit)):
        index, counts = dedup.index(), DedupCounts()
        decisions = [index.append(results, counts) for results in dedup.unpack(packed)]
        found.append((decisions, counted(counts)))
    plain, fast = found
    assert plain[1][0]["id"] > 0
    yield fast, plain


# --- cases ----------------------------------------------------------------------------------------

ROW = EntityType("Row", rejects=(), confirms=((Need(1, ("id:title", "id:*")),),))
PAGE = "https://docs.example/page?id="
_PAIRS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"doc_id": "d1", "content": "c" * 199}, {"doc_id": "d2"}, "ids different"),
    ({"doc_id": "d1", "content": "c" * 200}, {"doc_id": "d2"}, "ids duplicate"),
    ({"url": PAGE + "1", "content": "c" * 50}, {"url": PAGE + "2"}, "url different"),
    ({"url": PAGE + "1&a=1", "content": "c" * 50}, {"url": PAGE + "1"}, "text duplicate"),
    ({"url": PAGE + "1&a=1", "content": "c" * 49}, {"url": PAGE + "1"}, "fields inconclusive"),
    ({"entity_type": "Row", "ids": {"title": "A"}}, {}, "fields duplicate"),
    ({"entity_type": "Row", "ids": {"*": "A"}}, {}, "fields inconclusive"),
]


def of_many_values() -> tuple[DedupRules, Searches]:
    """Documents with many members and many identifiers."""
    random = Random(7)
    names = [f"part{number}" for number in range(24)]
    results = []
    for _ in range(120):
        ids: dict[str, str | list[str | None] | None] = {
            name: [f"{name}{random.randrange(90)}" for _ in range(40)]
            for name in random.sample(names, 20)
        }
        ids["site_id"] = random.choice(["s1", "s2"])
        doc_id, title = random.choice(["d1", "d2", None]), random.choice(["one", "two"])
        content = random.choice(CONTENTS)
        results.append(Result("r", doc_id=doc_id, title=title, content=content, ids=ids))
    return DedupRules(), [results]


def chain() -> tuple[DedupRules, list[Result], int]:
    """Results of which each has a value of the next."""
    each = [[f"w{n}", f"w{n + 1}"] for n in range(60)] + [[f"w{n}"] for n in range(61)]
    results = [
        Result("r", entity_type="File", ids={"file_id": "same", "web_id": [*values]})
        for values in each
    ]
    return DedupRules(max_candidates=500), results, len(results)


def many_members() -> tuple[DedupRules, list[Result], int]:
    """Members beyond what is held in a list: ids of documents, and contents, of 60 results."""
    same = CONTENTS[0]
    results = [Result("r", doc_id=f"d{n}", content=same, title="t") for n in range(60)]
    results += [Result("r", doc_id=f"d{n}", title="t", snippet=str(n)) for n in range(0, 120, 7)]
    return DedupRules(max_candidates=500), results, 60


def of_two_rows() -> tuple[DedupRules, list[Result], int]:
    """Types that meet in two rows of one name."""
    rules = DedupRules(types=(replace(TICKET, confirms=((),)), NAMESAKE))
    names = ("case", "second")
    ids: dict[str, str | list[str | None] | None] = {"queue": "q"}
    return rules, [Result("r", entity_type=n, title="t", ids=ids) for n in names], 2


# --- claims ---------------------------------------------------------------------------------------

ONE = Twin("Deduplicator", run_one, may_decline=False)
CLAIMS = [
    Claim(
        Twin("Deduplicator", run_random, may_decline=False),
        "the index decides and counts alike under any rules",
        st.tuples(RANDOMS),
    ),
    Claim(
        Twin("Deduplicator", run_reloaded, may_decline=False),
        "after a reload the next searches get what they would have got without it",
        st.tuples(RANDOMS),
    ),
    Claim(
        Twin("Deduplicator", run_believed, may_decline=False),
        "documents that were decided otherwise are believed",
        st.tuples(RANDOMS),
    ),
    Claim(
        Twin("Deduplicator", run_pair, may_decline=False),
        "pairs that streams seldom hold are judged alike",
        listed=_PAIRS,
    ),
    Claim(
        Twin("Deduplicator", run, may_decline=False),
        "documents of many values are told apart",
        listed=lambda: [of_many_values()],
    ),
    Claim(ONE, "every member of a document adds its identifiers", listed=lambda: [chain()]),
    Claim(ONE, "a document of many members is one", listed=lambda: [many_members()]),
    Claim(ONE, "the last row of a name compares a type", listed=lambda: [of_two_rows()]),
    Claim(
        Twin("Deduplicator", run_alike, may_decline=False),
        "values that begin alike are one key, and a result is no candidate of its own",
        listed=[(0,), (1,), (2,), (64,)],
    ),
]


def text_among_documents() -> object:
    """Document numbers with a text among them."""
    dedup = compiled(DedupRules())
    results = dedup.fingerprints([Result("r")])
    return dedup.index().append_decided(results, ["0"])  # type: ignore[func-returns-value, list-item]


REFUSALS = [Refusal("Deduplicator", text_among_documents, TypeError)]
