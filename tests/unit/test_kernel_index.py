"""The compiled index of a turn decides and counts as the one in Python does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_metrics.dedup.deduplicator import Deduplicator, PlainDeduplicator
from stream_metrics.dedup.fingerprint import DEFINITIVE
from stream_metrics.dedup.index import DedupCounts
from stream_metrics.dedup.pack import PackedSearches
from stream_metrics.dedup.tables import DedupRules, EntityType, Need, newest
from stream_metrics.dedup.verify import EVIDENCE, VERDICTS
from stream_metrics.events.wire import Result
from stream_metrics.kernel import kernel
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

pytestmark = pytest.mark.kernel

KEY = b"a key of the tests"
KEY_KINDS = {"id", "doc_id", "url", "snippet", "content", "title"}
QUICK = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

Searches = list[list[Result]]
Decisions = list[tuple[list[int], list[str]]]
Counted = tuple[Counter[str], Counter[tuple[str, str, str]], int, int, int]


def compiled(rules: DedupRules) -> Deduplicator:
    """The kernel's deduplicator, without which nothing here can be said."""
    assert kernel is not None, "stream-metrics-kernel is not installed: make kernel"
    made: Deduplicator = kernel.Deduplicator(rules, KEY)
    return made


def both(rules: DedupRules) -> tuple[Deduplicator, Deduplicator]:
    """The deduplicator in Python and the compiled one."""
    return PlainDeduplicator(rules, KEY), compiled(rules)


def counted(counts: DedupCounts) -> Counted:
    """All that was counted."""
    return (
        counts.candidates, counts.verdicts,
        counts.truncated, counts.contradictions, counts.other_text,
    )  # fmt: skip


def decided(dedup: Deduplicator, searches: Searches) -> tuple[Decisions, Counted]:
    """Each search's documents and evidence, and what was counted on the way."""
    index, counts = dedup.index(), DedupCounts()
    decisions = [index.append(dedup.fingerprints(search), counts) for search in searches]
    return decisions, counted(counts)


def reloaded(
    dedup: Deduplicator, searches: Searches, documents: Sequence[list[int]]
) -> tuple[Decisions, Counted]:
    """The same where the first searches come back from the state, decided before."""
    stored = dedup.unpack(dedup.pack([dedup.fingerprints(search) for search in searches]))
    index, counts = dedup.index(), DedupCounts()
    for results, numbers in zip(stored, documents, strict=False):
        index.append_decided(results, numbers)
    decisions = [index.append(results, counts) for results in stored[len(documents) :]]
    return decisions, counted(counts)


def joined(decisions: Decisions) -> list[tuple[int, str]]:
    """Each result's document and evidence, whichever search it is of."""
    return [pair for search in decisions for pair in zip(*search, strict=True)]


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
    """Rules with rows of one's own, and with switches either way."""
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
    """Values of an ID, so many that they are held in tables."""
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


def resplit(random: Random, searches: Searches) -> Searches:
    """The same results in other searches."""
    rest = [result for search in searches for result in search]
    made = []
    while rest:
        size = 1 + random.randrange(6)
        made.append(rest[:size])
        rest = rest[size:]
    return made


RANDOMS = st.randoms(use_true_random=False)


@dataclass
class Seen:
    """What a number of streams has led to."""

    verdicts: Counter[str]
    candidates: Counter[str]
    evidence: Counter[str]
    others: list[int]


# --- the claims -----------------------------------------------------------------------------------


@QUICK
@given(RANDOMS)
def test_the_index_decides_and_counts_as_its_twin(random: Random) -> None:
    """Documents, evidence and counts are the same under any rules."""
    plain, fast = both(any_rules(random))
    searches = any_searches(random)
    assert decided(fast, searches) == decided(plain, searches)


@QUICK
@given(RANDOMS)
def test_searches_may_be_split_anyhow(random: Random) -> None:
    """Only the order of the results matters, not which search they are of."""
    dedup = compiled(any_rules(random))
    searches = any_searches(random)
    split = resplit(random, searches)

    decisions, counts = decided(dedup, searches)
    split_decisions, split_counts = decided(dedup, split)

    assert joined(split_decisions) == joined(decisions)
    assert split_counts == counts


@QUICK
@given(RANDOMS)
def test_a_reload_goes_on_as_its_twin(random: Random) -> None:
    """After decided searches the next ones get what the twin gives them, and as without it."""
    plain, fast = both(any_rules(random))
    searches = any_searches(random)
    whole, _ = decided(plain, searches)
    kept = random.randrange(len(searches) + 1)
    documents = [numbers for numbers, _ in whole[:kept]]

    found = reloaded(fast, searches, documents)

    assert found == reloaded(plain, searches, documents)
    assert found[0] == whole[kept:]


@QUICK
@given(RANDOMS)
def test_decided_documents_are_taken_as_they_are(random: Random) -> None:
    """Documents that these rules would not have decided are believed, as the twin does."""
    plain, fast = both(any_rules(random))
    searches = any_searches(random)
    documents, new = [], 0
    for search in searches[:2]:
        numbers = []
        for _ in search:
            numbers.append(random.randrange(new + 1))
            new = max(new, numbers[-1] + 1)
        documents.append(numbers)

    assert reloaded(fast, searches, documents) == reloaded(plain, searches, documents)


def test_the_streams_lead_to_all_there_is() -> None:
    """Every verdict, kind of key, evidence and count comes about, so that equality says it all."""
    seen = Seen(Counter(), Counter(), Counter(), [0, 0, 0])
    for seed in range(600):
        random = Random(seed)
        decisions, counts = decided(compiled(any_rules(random)), any_searches(random))
        candidates, verdicts, *others = counts
        seen.candidates += candidates
        seen.evidence.update(text for _, evidence in decisions for text in evidence)
        seen.others = [a + b for a, b in zip(seen.others, others, strict=True)]
        for (_, step, verdict), pairs in verdicts.items():
            seen.verdicts[f"{step} {verdict}"] += pairs

    assert set(seen.verdicts) == {f"{verdict.step} {verdict.verdict}" for verdict in VERDICTS}
    assert set(seen.candidates) == KEY_KINDS
    assert set(seen.evidence) == {"", *EVIDENCE}
    assert min(seen.others) > 20


ROW = EntityType("Row", rejects=(), confirms=((Need(1, ("id:title", "id:*")),),))
PAGE = "https://docs.example/page?id="


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ({"doc_id": "d1", "content": "c" * 199}, {"doc_id": "d2"}, "ids different"),
        ({"doc_id": "d1", "content": "c" * 200}, {"doc_id": "d2"}, "ids duplicate"),
        ({"url": PAGE + "1", "content": "c" * 50}, {"url": PAGE + "2"}, "url different"),
        ({"url": PAGE + "1&a=1", "content": "c" * 50}, {"url": PAGE + "1"}, "text duplicate"),
        ({"url": PAGE + "1&a=1", "content": "c" * 49}, {"url": PAGE + "1"}, "fields inconclusive"),
        ({"entity_type": "Row", "ids": {"title": "A"}}, {}, "fields duplicate"),
        ({"entity_type": "Row", "ids": {"*": "A"}}, {}, "fields inconclusive"),
    ],
)
def test_a_pair_is_judged_as_by_its_twin(
    first: dict[str, Any], second: dict[str, Any], verdict: str
) -> None:
    """Pairs that streams seldom hold: a result, and one that differs from it in some attributes."""
    one = {"result_id": "r", "title": "t", **first}
    results = [msgspec.convert(made, Result) for made in (one, {**one, **second})]
    plain, fast = both(DedupRules(types=(*newest().types, ROW)))

    decisions, counts = decided(fast, [results])

    assert (decisions, counts) == decided(plain, [results])
    assert [f"{step} {said}" for _, step, said in counts[1]] == [verdict]


def test_documents_of_many_values_are_told_apart() -> None:
    """Documents with many members and many identifiers are compared as the twin does."""
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
    plain, fast = both(DedupRules())
    assert decided(fast, [results]) == decided(plain, [results])


def test_every_member_adds_its_identifiers() -> None:
    """A chain of results, each with a value of the next, is one document with every value."""
    chain = [[f"w{n}", f"w{n + 1}"] for n in range(60)] + [[f"w{n}"] for n in range(61)]
    results = [
        Result("r", entity_type="File", ids={"file_id": "same", "web_id": [*values]})
        for values in chain
    ]
    plain, fast = both(DedupRules(max_candidates=500))

    decisions, counts = decided(fast, [results])

    assert (decisions, counts) == decided(plain, [results])
    assert decisions[0][0] == [0] * len(results)


@pytest.mark.parametrize("limit", [0, 1, 2, 64])
def test_values_that_begin_alike_are_one_key(limit: int) -> None:
    """A result is no candidate of its own where two of its digests begin with the same key."""
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

    assert found[0] == found[1]
    assert found[0][1][0]["id"] > 0


def test_a_document_of_many_plain_members_is_one() -> None:
    """Members beyond what is held in a list: ids of documents, and contents, of 60 results."""
    same = CONTENTS[0]
    results = [Result("r", doc_id=f"d{n}", content=same, title="t") for n in range(60)]
    results += [Result("r", doc_id=f"d{n}", title="t", snippet=str(n)) for n in range(0, 120, 7)]
    plain, fast = both(DedupRules(max_candidates=500))

    decisions, counts = decided(fast, [results])

    assert (decisions, counts) == decided(plain, [results])
    assert decisions[0][0][:60] == [0] * 60


def test_types_meet_by_name() -> None:
    """More types than are remembered come between, and yet a later result finds its document."""
    dedup = compiled(DedupRules())
    results = [Result("r", entity_type=f"type {number}", doc_id="d") for number in range(2_100)]
    again = [Result("r", entity_type=f"TYPE {number}", doc_id="d") for number in (0, 5, 2_099)]

    (decisions,), _ = decided(dedup, [results + again])

    assert decisions[0] == [*range(2_100), 0, 5, 2_099]


def test_a_type_is_compared_by_the_last_row_of_its_name() -> None:
    """Where rules have two rows of one name, the last one compares the results of both."""
    plain, fast = both(DedupRules(types=(replace(TICKET, confirms=((),)), NAMESAKE)))
    searches = [
        [
            Result("r", entity_type=name, title="t", ids={"queue": "q"})
            for name in ("case", "second")
        ]
    ]
    decisions, counts = decided(fast, searches)
    assert (decisions, counts) == decided(plain, searches)
    assert decisions[0][0] == [0, 0]


def test_counts_are_added_to_what_was_counted() -> None:
    """Counts of other turns, and such as no index makes, stay where they are."""
    counts = DedupCounts()
    counts.candidates.update({"title": 10**30, "else": 2})
    counts.truncated = 10**30
    dedup = compiled(DedupRules(max_candidates=1))
    results = [Result("r", title="same", doc_id=f"d{number}") for number in range(3)]

    dedup.index().append(dedup.fingerprints(results), counts)

    assert counts.candidates == {"title": 10**30 + 3, "else": 2}
    assert counts.verdicts == {("document", "ids", "different"): 2}
    assert counts.truncated == 10**30 + 1


@pytest.mark.parametrize(
    "documents", [[], [0], [0, 1, 2], [1, 0], [0, 2], [0, -1], [0, 2**32 - 1], [0, 2**80]]
)
def test_impossible_documents_are_refused(documents: list[int]) -> None:
    """Too few, too many, or numbers out of order are a ValueError, and nothing is placed."""
    dedup = compiled(DedupRules())
    index = dedup.index()
    results = dedup.fingerprints([Result("r", title="a"), Result("r", title="b")])

    with pytest.raises(ValueError):
        index.append_decided(results, documents)

    index.append_decided(results, [0, 1])
    assert index.append(results, DedupCounts())[0] == [2, 3]


def test_what_is_no_number_is_refused() -> None:
    """A text among the documents is a TypeError."""
    dedup = compiled(DedupRules())
    results = dedup.fingerprints([Result("r")])
    with pytest.raises(TypeError):
        dedup.index().append_decided(results, ["0"])  # type: ignore[list-item]


def test_a_search_without_results_places_nothing() -> None:
    """An empty search is answered with empty lists."""
    dedup = compiled(DedupRules())
    assert dedup.index().append(dedup.fingerprints([]), DedupCounts()) == ([], [])
