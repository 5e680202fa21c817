"""Claims about the compiled index that are not about single cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from stream_metrics.core.dedup.index import DedupCounts
from stream_metrics.core.dedup.tables import DedupRules
from stream_metrics.core.dedup.verify import EVIDENCE, VERDICTS
from stream_metrics.core.events.wire import Result
from tests.twins.indexes import (
    RANDOMS,
    Decisions,
    Searches,
    any_rules,
    any_searches,
    compiled,
    decided,
)

pytestmark = pytest.mark.kernel

KEY_KINDS = {"id", "doc_id", "url", "snippet", "content", "title"}


@dataclass
class Seen:
    """What a number of streams has led to."""

    verdicts: Counter[str]
    candidates: Counter[str]
    evidence: Counter[str]
    others: list[int]


def joined(decisions: Decisions) -> list[tuple[int, str]]:
    """Each result's document and evidence, whichever search it is of."""
    return [pair for search in decisions for pair in zip(*search, strict=True)]


def resplit(random: Random, searches: Searches) -> Searches:
    """The same results in other searches."""
    rest = [result for search in searches for result in search]
    made = []
    while rest:
        size = 1 + random.randrange(6)
        made.append(rest[:size])
        rest = rest[size:]
    return made


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(RANDOMS)
def test_searches_may_be_split_anyhow(random: Random) -> None:
    """Only the order of the results matters, not their searches."""
    dedup = compiled(any_rules(random))
    searches = any_searches(random)
    split = resplit(random, searches)

    decisions, counts = decided(dedup, searches)
    split_decisions, split_counts = decided(dedup, split)

    assert joined(split_decisions) == joined(decisions)
    assert split_counts == counts


def test_the_streams_lead_to_all_there_is() -> None:
    """Every verdict, kind of key, evidence and count occurs, so that the comparison is complete."""
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


def test_types_meet_by_name() -> None:
    """A later result finds its document, even if more types than are cached come between."""
    dedup = compiled(DedupRules())
    results = [Result("r", entity_type=f"type {number}", doc_id="d") for number in range(2_100)]
    again = [Result("r", entity_type=f"TYPE {number}", doc_id="d") for number in (0, 5, 2_099)]

    (decisions,), _ = decided(dedup, [results + again])

    assert decisions[0] == [*range(2_100), 0, 5, 2_099]


def test_counts_are_added_to_what_was_counted() -> None:
    """Counts of other turns, and those that no index makes, stay unchanged."""
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
    """Too few, too many, or numbers out of order raise a ValueError and change nothing."""
    dedup = compiled(DedupRules())
    index = dedup.index()
    results = dedup.fingerprints([Result("r", title="a"), Result("r", title="b")])

    with pytest.raises(ValueError):
        index.append_decided(results, documents)

    index.append_decided(results, [0, 1])
    assert index.append(results, DedupCounts())[0] == [2, 3]


def test_a_search_without_results_places_nothing() -> None:
    """The result for an empty search is empty lists."""
    dedup = compiled(DedupRules())
    assert dedup.index().append(dedup.fingerprints([]), DedupCounts()) == ([], [])
