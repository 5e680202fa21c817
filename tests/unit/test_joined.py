"""Ground truth where deduplication joins document ids, and where results have none."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.core.dedup.tables import DedupRules, published
from stream_metrics.core.engine.cells import scaled
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import DigestedEvent
from stream_metrics.core.engine.row import conversation_rows
from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.ranking.batch import Judged
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.core.metrics.ranking.relevance import (
    Predicate,
    PredicateError,
    Query,
    Relevance,
    Retrieved,
)
from stream_metrics.core.metrics.ranking.scoring import score
from stream_metrics.lab.evaluation.notes import Run, notes_of
from stream_metrics.lab.evaluation.report_figures import without_ids_of
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.replay.report_files import merge
from stream_metrics.lab.replay.reread import InMemoryRecords, recorded_of
from stream_metrics.lab.replay.run import run
from stream_metrics.lab.replay.searches import recorded_searches
from stream_metrics.lab.reports.html.report import write_report_page
from tests.replays import AT_ONCE, RecordedProgress, located, task
from tests.unit.test_fast_paths import Fed
from tests.unit.test_replay_answers import record

NAMES = ("judged@5", "map", "mrr", "ndcg@5", "recall@5", "redundancy@5")
JOINED = DedupRules(tables=published()[2])
NOTICE = " ".join(f"This notice applies to plan {n} and to every other one." for n in range(9))
A, B = {"doc_id": "a", "content": NOTICE}, {"doc_id": "b", "content": NOTICE}
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


class Asked(Fed):
    """A conversation of one turn, with the ranked figures of its searches."""

    def __init__(self, rules: DedupRules = JOINED) -> None:
        super().__init__(retrieval=live_metrics(NAMES), rules=rules)

    def found(self, search_id: str, *results: dict[str, Any], **fields: Any) -> DigestedEvent:
        """A search with these results."""
        named = [{"result_id": f"{search_id}-{n}", **one} for n, one in enumerate(results, 1)]
        searches = [{"search_id": search_id, "results": named}]
        return self.event("search_iteration", **{"iteration": 1, **fields}, searches=searches)

    def relevant(self, documents: Any) -> DigestedEvent:
        """The ground truth of the turn."""
        return self.event("turn_completed", relevant=documents)

    def figures(self, search_id: str) -> dict[str, float | None]:
        """The figures of a search by metric; none if nothing judges it."""
        metrics = [str(metric) for metric in self.config.retrieval]
        scores = self.conversation.turns[1].scores[search_id]
        return dict(zip(metrics, scores, strict=False))

    def until(self) -> int | None:
        """The iterations until all relevant documents were retrieved."""
        (row,) = conversation_rows(self.conversation)
        assert row["all_good_basis"] == "qrels"
        until: int | None = row["iterations_for_all_good_results"]
        return until

    def sums(self) -> dict[str, int]:
        """The counts and sums of ranked metrics in windows, by code."""
        found: dict[str, int] = {}
        for sign, cell in self.cells:
            for code, value in cell.sums.items():
                if code.startswith(("rs|", "rc|")):
                    found[code] = found.get(code, 0) + sign * value
        return {code: value for code, value in found.items() if value}


def asked(relevant: Any, *searches: list[dict[str, Any]], **options: Any) -> Asked:
    """Searches ``s1``, ``s2`` and so on, one in each iteration, and then the ground truth."""
    fed = Asked(**options)
    for n, results in enumerate(searches, 1):
        fed.take(fed.found(f"s{n}", *results, iteration=n))
    fed.take(fed.relevant(relevant))
    return fed


ALL_FOUND = {"map": 1.0, "mrr": 1.0, "ndcg@5": 1.0, "recall@5": 1.0}


@pytest.mark.parametrize(
    "relevant",
    [{"b": 4}, {"a": 4}, {"a": 4, "b": 4}, {"a": 1, "b": 4}, {"a": 0, "b": 2}, ["a", "b"]],
)
@pytest.mark.parametrize("order", [[A, B], [B, A]])
def test_a_document_counts_once_with_the_best_grade_of_its_ids(
    relevant: Any, order: list[dict[str, Any]]
) -> None:
    """Its first result has the grade, whichever id that result has itself."""
    fed = asked(relevant, order)

    assert fed.figures("s1") == {"judged@5": 1.0, "redundancy@5": 0.5, **ALL_FOUND}
    assert fed.until() == 1


@pytest.mark.parametrize(
    "results",
    [
        [{"doc_id": "a", "ids": {"chunk_id": "7"}}, {"doc_id": "b", "ids": {"chunk_id": "7"}}],
        [{"url": "https://x.example/p"}, {"doc_id": "b", "url": "https://x.example/p"}],
        [{"doc_id": UUID.upper()}, {"doc_id": UUID}],
    ],
)
def test_ids_count_whatever_joined_their_results(results: list[dict[str, Any]]) -> None:
    """Equal numbers of chunks, an address, or a UUID in another case."""
    fed = asked({results[1]["doc_id"]: 3}, results)

    assert fed.figures("s1") == {"judged@5": 1.0, "redundancy@5": 0.5, **ALL_FOUND}
    assert fed.until() == 1


def test_an_id_is_compared_as_it_was_written() -> None:
    """Letters of a UUID in another case are another id, unless a result has that one as well."""
    fed = asked({UUID.upper(): 3}, [{"doc_id": UUID}])

    assert fed.figures("s1")["recall@5"] == 0.0


def test_chunks_of_a_page_are_found_with_the_first_of_them() -> None:
    """They are documents of their own; the ground truth names pages."""
    chunks = [
        {"doc_id": page, "ids": {"chunk_id": f"{page}/{n}"}}
        for page, n in (("p", 1), ("q", 1), ("p", 2), ("r", 1))
    ]
    fed = asked({"p": 3, "r": 3}, chunks)

    figures = fed.figures("s1")
    assert (figures["recall@5"], figures["mrr"], figures["redundancy@5"]) == (1.0, 1.0, 0.25)
    assert figures["map"] == (1 + 2 / 4) / 2
    assert fed.until() == 1


def test_what_several_results_connect_is_one() -> None:
    """The second document has an id in common with either of the others."""
    chunks = [
        {"doc_id": doc, "ids": {"chunk_id": chunk}}
        for doc, chunk in (("a", "1"), ("c", "3"), ("a", "2"), ("c", "2"))
    ]
    fed = asked({"c": 4}, chunks[:1], chunks)

    assert fed.figures("s1")["recall@5"] == 1.0
    assert fed.figures("s2")["redundancy@5"] == 0.75
    assert fed.until() == 1


def test_each_id_that_nothing_has_is_a_document() -> None:
    """It might be a copy of another one, but nothing says so."""
    fed = asked({"a": 4, "b": 4, "c": 4, "d": 4}, [A, B])

    assert fed.figures("s1")["recall@5"] == 1 / 3
    assert fed.until() == 100


def test_a_later_search_of_the_turn_grades_earlier_results() -> None:
    """It returns the same text under the id that the ground truth names."""
    fed = asked({"b": 4}, [A], [B])

    assert [fed.figures(name)["recall@5"] for name in ("s1", "s2")] == [1.0, 1.0]
    assert fed.until() == 1


LATE: list[tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ({"b": 4}, [A], [B]),
    ({"b": 4, "c": 2}, [{"doc_id": "c"}], [B, A]),
    ({"a": 4, "b": 4}, [{"doc_id": "c"}], [A, B]),
    ({"c": 4}, [{"doc_id": "c"}, {"url": "https://x.example/p"}],
     [{"doc_id": "p", "url": "https://x.example/p"}]),
    ({"c": 4}, [{"url": "https://x.example/p"}], [{"doc_id": "p", "url": "https://x.example/p"}]),
    ({"c": 4}, [], [{"doc_id": "c"}]),
    ({"c": 4}, [], [{"url": "https://x.example/p"}]),
    ({"p": 4}, [{"doc_id": doc, "ids": {"chunk_id": doc}} for doc in "pq"],
     [{"doc_id": "p", "ids": {"chunk_id": "3"}}, {"doc_id": "q", "ids": {"chunk_id": "3"}}]),
    ({"p": 4}, [{"doc_id": doc, "ids": {"chunk_id": doc}} for doc in "pq"],
     [{"doc_id": "q", "ids": {"chunk_id": "p"}}]),
]  # fmt: skip


@pytest.mark.parametrize(("relevant", "first", "second"), LATE)
@pytest.mark.parametrize("order", ["012", "120", "102", "021", "201", "210"])
def test_windows_follow_in_any_order(
    relevant: Any, first: list[dict[str, Any]], second: list[dict[str, Any]], order: str
) -> None:
    """Each event arrives in a batch of its own, the ground truth first, last or in between."""
    fed = Asked()
    events = [fed.found("s1", *first), fed.found("s2", *second, iteration=2)]
    events.append(fed.relevant(relevant))
    for at in order:
        fed.take(events[int(at)])

    expected: dict[str, int] = {}
    for search_id in ("s1", "s2"):
        for name, value in fed.figures(search_id).items():
            if value is not None:
                expected[f"rc|{name}"] = expected.get(f"rc|{name}", 0) + 1
                expected[f"rs|{name}"] = expected.get(f"rs|{name}", 0) + scaled(value)
    assert fed.sums() == {code: value for code, value in expected.items() if value}
    whole = asked(relevant, first, second)
    assert [fed.figures(name) for name in ("s1", "s2")] == [
        whole.figures(name) for name in ("s1", "s2")
    ]
    assert fed.until() == whole.until()


def test_a_later_id_of_a_document_makes_earlier_results_comparable() -> None:
    """The ground truth does not name it, so that they turn out not to be relevant."""
    fed = Asked()
    page = {"url": "https://x.example/p"}
    fed.take(fed.relevant({"c": 4}), fed.found("s1", {"doc_id": "c"}), fed.found("s2", page))
    before = fed.sums()["rc|recall@5"]
    fed.take(fed.found("s3", page | {"doc_id": "p"}, iteration=2))

    assert (before, fed.sums()["rc|recall@5"]) == (1, 3)


# -- results without an id --------------------------------------------------------------------

PAGE, OTHER_PAGE = {"url": "https://x.example/a"}, {"url": "https://x.example/b"}


@pytest.mark.parametrize("results", [[PAGE, OTHER_PAGE], [{"ids": {"chunk_id": "h/1"}}]])
def test_a_turn_without_ids_has_no_ranked_figures(results: list[dict[str, Any]]) -> None:
    """Nothing can be compared with the ground truth; an empty search of the turn does not count."""
    fed = asked({"https://x.example/a": 4, "h/1": 4}, results, [])

    assert [fed.figures(name) for name in ("s1", "s2")] == [{}, {}]
    assert fed.sums() == {}
    assert fed.until() is None


@pytest.mark.parametrize(("order", "times"), [("01", 1), ("10", 1), ("0101", 2), ("1000", 1)])
def test_a_ground_truth_without_ids_to_compare_is_counted(order: str, times: int) -> None:
    """When it arrives, or else the first results do; a later one counts again."""
    fed = Asked()
    for n, kind in enumerate(order):
        later = fed.relevant({"a": 4}) if kind == "1" else fed.found(f"s{n}", PAGE, iteration=n + 1)
        fed.take(later)

    assert fed.seen.counts["ground_truths_without_ids"] == times


def test_a_ground_truth_with_ids_to_compare_is_not_counted() -> None:
    """Nor is one that names nothing."""
    assert (
        "ground_truths_without_ids" not in +asked({"a": 4}, [PAGE], [{"doc_id": "b"}]).seen.counts
    )
    assert "ground_truths_without_ids" not in +asked({}, [PAGE]).seen.counts


def test_a_search_without_ids_has_no_ranked_figures() -> None:
    """Others of the turn have theirs, and a search that found nothing scores 0."""
    fed = asked({"a": 4}, [PAGE], [{"doc_id": "a"}], [])

    recalls = [fed.figures(name).get("recall@5") for name in ("s1", "s2", "s3")]
    assert recalls == [None, 1.0, 0.0]
    assert fed.sums()["rc|recall@5"] == 2
    assert fed.until() == 2


def test_a_result_without_an_id_keeps_its_rank_among_others() -> None:
    """It is not judged, as a document that the ground truth does not name."""
    fed = asked({"a": 4}, [PAGE, {"doc_id": "a"}])

    figures = fed.figures("s1")
    assert (figures["mrr"], figures["judged@5"], figures["recall@5"]) == (0.5, 0.5, 1.0)


def test_labels_do_not_take_the_place_of_a_ground_truth_without_ids() -> None:
    """A search is judged by the ground truth of its turn or not at all."""
    fed = asked({"a": 4}, [PAGE | {"gain": 4}])

    assert fed.figures("s1") == {}


def test_nothing_is_relevant_whatever_the_results_are_called() -> None:
    """An empty ground truth needs no comparison."""
    fed = asked({}, [PAGE])

    assert fed.figures("s1")["recall@5"] == 0.0


def test_figures_by_earlier_tables_stay() -> None:
    """State that was built by them goes on as before."""
    first = DedupRules(tables=published()[1])

    joined = asked({"b": 4}, [A, B], rules=first)
    without = asked({"a": 4}, [PAGE], rules=first)

    assert (joined.figures("s1")["recall@5"], joined.until()) == (0.0, 1)
    assert without.figures("s1")["recall@5"] == 0.0


# -- custom rules -----------------------------------------------------------------------------


class Named:
    """A rule by id, whose total is the number of its ids."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    def total(self, query: Query) -> int:
        """As many as there are ids."""
        return len(self.ids)

    def relevant(self, query: Query, result: Retrieved) -> bool:
        """Whether the result has one of them."""
        return result.doc_id in self.ids


def ruled(rule: Predicate, *searches: list[dict[str, Any]], joined: bool = True) -> list[Judged]:
    """The searches of a turn, one in each iteration, as a replay has the rule judge them."""
    engine = Replay(EngineConfig(rules=JOINED if joined else DedupRules(tables=published()[1])))
    sent = []
    for n, results in enumerate(searches, 1):
        named = [{"result_id": f"s{n}-{at}", **one} for at, one in enumerate(results)]
        found = [{"search_id": f"s{n}", "results": named}]
        sent.append(record("search_iteration", "c", n, iteration=n, searches=found))
    held = InMemoryRecords(list(located(sent)))
    for position, (source, number, one) in held.each():
        engine.feed(one, source, number, position)
    (conversation,) = engine.conversations()
    recorded = recorded_of(held, engine, conversation, whole=True)
    relevance = Relevance(predicate=rule)
    found_searches = recorded_searches(conversation, recorded, whole=True, joined=joined)
    rows = [relevance.judge(one.query) for one in found_searches]
    return [row for row in rows if row is not None]


def recalls(rows: list[Judged]) -> list[float]:
    """Recall of each search."""
    values: list[list[float]] = score(rows, live_metrics(["recall@5"])).values.tolist()
    return [value for (value,) in values]


@pytest.mark.parametrize("ids", [("a",), ("b",), ("a", "b")])
def test_a_rule_judges_a_document_by_all_its_ids(ids: tuple[str, ...]) -> None:
    """Also by one that only a later search has; relevant ids of one document are one."""
    assert recalls(ruled(Named(*ids), [A, B])) == [1.0]
    assert recalls(ruled(Named(*ids), [A], [B], [])) == [1.0, 1.0, 0.0]


def test_a_rule_sees_no_other_ids_by_earlier_tables() -> None:
    """As before, each result counts by itself, and repeats do not."""
    assert recalls(ruled(Named("b"), [A, B], joined=False)) == [0.0]


def test_a_rule_judges_a_result_without_an_id_by_that_of_its_document() -> None:
    """Their address is the same."""
    page = {"url": "https://x.example/p"}

    assert recalls(ruled(Named("p"), [page], [page | {"doc_id": "p"}])) == [1.0, 1.0]


def test_a_total_below_the_documents_found_is_refused() -> None:
    """A rule that counts a document once whatever its ids is not."""

    class One(Named):
        def total(self, query: Query) -> int:
            return 1

    assert recalls(ruled(One("a", "b"), [A, B], [A])) == [1.0, 1.0]
    with pytest.raises(PredicateError, match="found 2 relevant documents"):
        ruled(One("a", "c"), [A, {"doc_id": "c"}])


# -- reports ----------------------------------------------------------------------------------


def turn(name: str, relevant: Any, *searches: list[dict[str, Any]]) -> list[Record]:
    """A conversation of one turn with a ground truth."""
    records = [record("turn_completed", name, 9, relevant=relevant)]
    for n, results in enumerate(searches, 1):
        named = [{"result_id": f"s{n}-{at}", **one} for at, one in enumerate(results)]
        found = [{"search_id": f"s{n}", "results": named}]
        records.append(record("search_iteration", name, n, iteration=n, searches=found))
    return records


def reported(records: list[Record], out: Path, rules: DedupRules = JOINED) -> dict[str, Any]:
    """The report of a replay in memory."""
    whole = task(records, out, AT_ONCE, metrics=["recall@5"])
    chosen = replace(whole.options, config=EngineConfig(rules=rules))
    return run(replace(whole, options=chosen), RecordedProgress()).content


UNNAMED = [
    *turn("c1", {"a": 4}, [PAGE, OTHER_PAGE], []),
    *turn("c2", {"a": 4}, [PAGE, {"doc_id": "a"}], [OTHER_PAGE]),
    *turn("c3", {"a": 4}, [{"doc_id": "x"}], [PAGE | {"doc_id": "y"}, PAGE]),
    *turn("c4", {}, [PAGE]),
]


def test_a_report_counts_what_has_no_id(tmp_path: Path) -> None:
    """A result without one has that of its document; an empty ground truth asks for none."""
    report = reported(UNNAMED, tmp_path)

    assert report["without_doc_id"] == {
        "turns": 2, "searches": 3, "results": 1, "compared": 2, "matched": 1,
    }  # fmt: skip
    assert report["retrieval"]["queries_without_judgement"] == 3
    assert report["retrieval"]["metrics"]["recall@5"]["n"] == 4
    assert report["retrieval"]["metrics"]["recall@5"]["mean"] == 1 / 4


def test_parts_of_an_input_have_the_same_counts(tmp_path: Path) -> None:
    """Each has some of the conversations, and their counts are added."""
    whole = reported(UNNAMED, tmp_path / "whole")
    for n, records in enumerate((UNNAMED[:6], UNNAMED[6:])):
        reported(records, tmp_path / f"part-{n}")
    (tmp_path / "merged").mkdir()
    merged = merge([tmp_path / "part-0", tmp_path / "part-1"], tmp_path / "merged").content

    assert merged["without_doc_id"] == whole["without_doc_id"]
    assert merged["retrieval"] == whole["retrieval"]


def test_a_report_in_which_everything_is_named_says_nothing(tmp_path: Path) -> None:
    """Nor does one by earlier tables, which scores such results as before."""
    assert "without_doc_id" not in reported(turn("c", ["a"], [{"doc_id": "a"}]), tmp_path)
    first = reported(UNNAMED, tmp_path, DedupRules(tables=published()[1]))
    assert "without_doc_id" not in first
    assert first["retrieval"]["metrics"]["recall@5"]["n"] == 6 + 1


def test_a_report_says_that_no_named_document_was_found(tmp_path: Path) -> None:
    """The ids may be written in another way."""
    records = [*turn("c1", {"A": 4}, [{"doc_id": "a"}]), *turn("c2", {"B": 4}, [{"doc_id": "b"}])]

    report = reported(records, tmp_path)

    assert without_ids_of(report).texts() == [
        "no search of the 2 turns with `relevant` found a document that it names: `doc_id` has to "
        "be the same id, written the same way"
    ]
    assert report["retrieval"]["metrics"]["recall@5"]["mean"] == 0.0


def test_the_summary_of_a_replay_says_it(tmp_path: Path) -> None:
    """On standard error, below the figures."""
    lines = [one.value or b"" for one in UNNAMED]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    arguments = [str(tmp_path / "events.jsonl"), "--out", str(tmp_path / "out")]

    done = CliRunner().invoke(app, ["replay", *arguments], env={"STREAM_METRICS_CONFIG": ""})

    assert done.exit_code == 0
    assert done.stderr.splitlines()[-2:] == [
        "3 searches of 2 turns have no figures by `relevant`, because no result has a `doc_id`: "
        "send the ids that `relevant` names as `doc_id`",
        "1 result without a `doc_id` counts as not judged",
    ]


def test_the_page_and_a_comparison_say_it(tmp_path: Path) -> None:
    """In the head of the page, and in a note for each run."""
    report = reported(UNNAMED, tmp_path)
    write_report_page(tmp_path)

    said = without_ids_of(report).texts()
    assert len(said) == 2
    page = html.unescape((tmp_path / "report.html").read_text())
    assert [page.count(text) for text in said] == [1, 1]
    assert notes_of([Run("after", {}, report)], {}) == [f"after, {text}" for text in said]
