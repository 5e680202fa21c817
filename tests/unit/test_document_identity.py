"""Which documents of traces are the same: ids that name pages, chunk numbers, and texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_metrics.cli.sources import summary_lines
from stream_metrics.core.dedup.normalise import LONG_TEXT, canonical_text
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.settings import OtlpSettings
from stream_metrics.core.telemetry import Interpretation, Span, events
from stream_metrics.core.telemetry.contents.documents import documents_in_value, text_form
from stream_metrics.core.telemetry.interpretation import page_ids_message
from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES
from stream_metrics.core.telemetry.retrieval import page_ids
from stream_metrics.core.telemetry.retrieval.page_ids import whole_texts
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.sources.otlp.traces import TraceStore
from tests.otlp import RETRIEVER, SpanSpec, as_json
from tests.telemetry import agent, interpreted, model, of_kind, span, tool

A, B = "https://example.org/a", "https://example.org/b"
Found = dict[str, Any]


def passage(number: int) -> str:
    """A text that is long enough to be evidence."""
    return f"Section {number} says something of its own about leave, number {number} of the policy."


def doc(text: str | None = None, id: str | None = None, /, **metadata: Any) -> Found:
    """A document as OpenInference records it."""
    parts = {"content": text, "id": id, "metadata": json.dumps(metadata) if metadata else None}
    return {name: value for name, value in parts.items() if value is not None}


def retriever(id: str, start: float, documents: list[Found], parent: str = "agent") -> Span:
    attributes = {
        f"retrieval.documents.{at}.document.{name}": value
        for at, document in enumerate(documents)
        for name, value in document.items()
    }
    return of_kind("RETRIEVER", id, parent, start, attributes=attributes)


def turn_of(*searches: list[Found], **options: Any) -> Interpretation:
    """A turn with these searches, one in each iteration."""
    spans = [agent(called="support")]
    for number, documents in enumerate(searches):
        spans.append(retriever(f"s{number}", 1 + 10 * number, documents))
        spans.append(model(f"m{number}", "agent", 5 + 10 * number))
    return interpreted(*spans, **options)


def duplicates(one: Interpretation, content: bool = True) -> list[int]:
    """The duplicates in each iteration of the only turn."""
    assert not one.refused, one.refusals
    replay = Replay(turn_scope="all")
    for event in events(one, content):
        replay.feed(Record(event.value, event.conversation.encode(), event.occurred_us // 1000))
    (row,) = replay.rows()
    return [iteration["duplicates"] for iteration in row["iterations"]]


# Ids that name pages.


@pytest.mark.parametrize("content", [True, False])
@pytest.mark.parametrize(
    "named",
    [
        lambda text, part: doc(text, doc_id="leave", chunk_index=part),
        lambda text, part: doc(text, id="leave", page=part),
        lambda text, _: doc(text, **{"document.id": "leave"}),
        lambda text, _: doc(text, "leave"),
    ],
    ids=["metadata.doc_id", "metadata.id", "metadata.document.id", "document.id"],
)
def test_chunks_of_one_search_that_have_the_id_of_their_page_are_documents(
    named: Any, content: bool
) -> None:
    """Each is a duplicate where it is found again, whether texts or digests of them are told."""
    chunks = [named(passage(number), number) for number in range(4)]

    one = turn_of(chunks[:3], [chunks[3], chunks[1]], content=content)

    assert duplicates(one, content) == [0, 1]


def test_the_id_of_a_page_remains_the_document_id() -> None:
    """Qrels name pages, and the text tells their chunks apart."""
    one = turn_of([doc(passage(n), doc_id="leave", source=A) for n in range(2)])

    [search] = [json.loads(event.value) for event in events(one)]
    results = search["searches"][0]["results"]
    assert [result["doc_id"] for result in results] == ["leave", "leave"]
    assert len({result["ids"]["passage"] for result in results}) == 2


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_what_one_search_shows_holds_for_all_searches_of_its_trace(order: tuple[int, ...]) -> None:
    """So the number of duplicates does not depend on which search comes first."""
    lists = [
        [doc(passage(0), "leave")],
        [doc(passage(1), "leave"), doc(passage(2), "leave")],
        [doc(passage(3), "leave")],
    ]

    assert duplicates(turn_of(*(lists[place] for place in order))) == [0, 0, 0]


def test_what_a_turn_shows_holds_for_the_other_turns_of_its_trace() -> None:
    """Alone, the second turn would compare its documents by id."""
    one, two, three, four = (doc(passage(number), "leave") for number in range(4))
    shows = [agent("a", 0, 90, parent="all"), retriever("s", 1, [one, two], "a")]
    alone = [
        agent("b", 100, 190, parent="all"),
        retriever("s1", 101, [three], "b"),
        retriever("s2", 103, [four], "b"),
    ]
    session = span("all", end=1000)

    _, second = interpreted(session, *shows, *alone).turns
    (without,) = interpreted(session, *alone).turns

    assert [len(search.results[0].ids) for search in second.searches] == [1, 1]
    assert [len(search.results[0].ids) for search in without.searches] == [0, 0]


def test_the_id_of_a_document_with_other_texts_in_other_searches_names_a_page() -> None:
    """A search may return one chunk of each page only. The name of the id says that it is a
    document's, or a number of the chunk differs."""
    by_name = [[doc(passage(number), doc_id="leave")] for number in (0, 1, 0)]
    by_number = [[doc(passage(n), "leave", chunk_index=n)] for n in (0, 1, 0)]

    assert duplicates(turn_of(*by_name)) == [0, 0, 1]
    assert duplicates(turn_of(*by_number)) == [0, 0, 1]


def test_a_documents_own_id_holds_although_its_text_depends_on_the_query() -> None:
    """Nothing shows that the id is not its own, unless it says that it is a chunk's number."""
    one, other, numbered = (
        turn_of([doc(passage(0), id)], [doc(passage(1), id)]) for id in ("kb-7", "p7", "chunk 7")
    )

    assert duplicates(one) == duplicates(other) == [0, 1]
    assert one.turns[0].page_ids == other.turns[0].page_ids == ()
    assert duplicates(numbered) == [0, 0]


@pytest.mark.parametrize(
    "other", [passage(0)[:60], passage(0)[:25], f"{passage(0)[:15]}…", f"{passage(0)[:15]} ..."]
)
def test_a_text_that_was_cut_off_is_no_other_text(other: str) -> None:
    one = turn_of([doc(passage(0), doc_id="leave")], [doc(other, doc_id="leave")])
    among_chunks = turn_of(
        [doc(passage(0), doc_id="leave"), doc(passage(1), doc_id="leave")],
        [doc(other, doc_id="leave")],
    )

    assert duplicates(one) == [0, 1]
    assert duplicates(among_chunks) == [0, 1]
    assert one.turns[0].page_ids == ()


def test_a_beginning_of_several_texts_is_a_text_of_its_own() -> None:
    """It was not cut off one of them for certain. A short one was hardly cut off, nor a number."""
    header = "The employee handbook of Example Ltd. in its version of 2026"

    whole = whole_texts(
        [header, f"{header}: leave", f"{header}: travel", "item", "items"]
        + [f"{header}, part {number}" for number in (1, 10)]
    )

    assert len(header) >= LONG_TEXT
    assert all(form == text for text, form in whole.items())


def test_texts_of_one_id_are_compared_as_deduplication_does() -> None:
    """White space, case and equivalent characters show no page."""
    text = f"Über die Prüfung\n{passage(0)}"
    written = f"U\u0308ber die Pru\u0308fung \r\n{passage(0)}".upper()
    one = turn_of([doc(text, doc_id="leave"), doc(written, doc_id="leave")])

    assert duplicates(one) == [1]
    assert one.turns[0].page_ids == ()


@pytest.mark.parametrize(
    "text", ["Zu\u0308rich \r\n WEST", "Groß\u00a0", "ﬁne", "ΟΔΟΣ", "\u0345a\u0301"]
)
def test_the_form_of_a_text_is_that_of_deduplication(text: str) -> None:
    assert text_form(text) == canonical_text(text)
    assert page_ids.LONG_TEXT == LONG_TEXT


def test_a_result_with_the_id_of_a_page_and_no_text_is_refused() -> None:
    """It may be any of the chunks. A chunk number says which one."""
    chunks = [doc(passage(number), doc_id="leave") for number in range(2)]

    refused = turn_of(chunks, [doc(doc_id="leave")])
    other = turn_of(chunks, [doc(doc_id="travel")])
    numbered = turn_of(chunks, *[[doc(doc_id="leave", chunk_index=7)]] * 2)

    assert (refused.turns, refused.refused) == ((), {"no_identity": 1})
    assert duplicates(other) == [0, 0]
    assert duplicates(numbered) == [0, 0, 1]


def test_a_row_of_the_settings_says_what_identifies_the_documents_of_an_agent() -> None:
    """It decides for each of its traces, and nothing has to be told any more."""
    chunks = [doc(passage(number), "leave") for number in range(2)]

    by_id = turn_of(chunks, identity={"support": "id"})
    by_text = turn_of(*([chunk] for chunk in chunks), identity={"support": "id_and_text"})
    other = turn_of(chunks, identity={"billing": "id"})

    assert (duplicates(by_id), by_id.turns[0].page_ids) == ([1], ())
    assert (duplicates(by_text), by_text.turns[0].page_ids) == ([0, 0], ())
    assert (duplicates(other), other.turns[0].page_ids) == ([0], ("id",))


def test_ids_that_the_settings_name_decide() -> None:
    """The number of a chunk counts together with its document."""
    each = [doc(passage(0), doc_id=name, chunk_index=0) for name in ("leave", "travel")]
    chunks = [doc(passage(0), doc_id="leave", chunk_index=number) for number in range(2)]

    assert duplicates(turn_of(each, ids=("chunk_index",))) == [0]
    assert duplicates(turn_of(chunks, chunks[1:], ids=("chunk_index",))) == [0, 1]


def test_an_id_under_a_name_of_the_settings_suffices() -> None:
    """Without the setting a document that has neither id nor text is refused."""
    documents = [doc(article="17"), doc(article="18")]

    assert turn_of(documents).refused == {"no_identity": 1}
    assert duplicates(turn_of(documents, documents[:1], ids=("article",))) == [0, 1]


def test_the_message_names_the_setting_of_the_agent() -> None:
    message = page_ids_message('the "support" agent', ["metadata.doc_id"])

    assert 'otlp.identity = {"the \\"support\\" agent" = "id_and_text"}' in message


def test_a_reranked_chunk_has_the_earlier_rank_of_its_own_text() -> None:
    """All chunks of the page have its id. Without a text the rank is unknown."""

    def listed(name: str, documents: list[Found]) -> dict[str, Any]:
        return {
            f"reranker.{name}_documents.{at}.document.{key}": value
            for at, document in enumerate(documents)
            for key, value in document.items()
        }

    chunks = [doc(passage(number), "leave") for number in range(3)]
    cut = [chunks[2], doc(passage(7), "leave"), chunks[0]]
    ranker = listed("input", chunks) | listed("output", cut)
    one = interpreted(
        agent(), retriever("s", 1, chunks), of_kind("RERANKER", "r", "agent", 5, attributes=ranker)
    )

    [search] = one.turns[0].searches
    assert [result.baseline_rank for result in search.results] == [3, None, 1]


def test_texts_that_a_compressor_cut_for_the_query_show_no_page() -> None:
    """What it was given shows that the id has one text."""
    spans = [agent()]
    for at, (first, last) in enumerate([(0, 40), (30, 70)]):
        kept = {"id": "kb-7", "content": passage(0)[first:last], "metadata": '{"chunk_index": 1}'}
        given = {"id": "kb-7", "content": passage(0)}
        attributes = {
            f"reranker.{name}_documents.0.document.{key}": value
            for name, document in (("input", given), ("output", kept))
            for key, value in document.items()
        }
        spans += [
            retriever(f"s{at}", 1 + 10 * at, [given]),
            of_kind("RERANKER", f"r{at}", "agent", 3 + 10 * at, attributes=attributes),
            model(f"m{at}", "agent", 5 + 10 * at),
        ]

    assert duplicates(interpreted(*spans)) == [0, 1]


@pytest.mark.parametrize(
    "kept",
    [(1, 0, 2), (0, 1)],
    ids=["another order", "one of them dropped"],
)
def test_a_step_that_changes_chunks_with_the_id_of_their_page_is_refused(
    kept: tuple[int, ...],
) -> None:
    """Their ids are the same before and after, and their texts are not."""
    chunks = [{"id": "leave", "page_content": passage(number)} for number in range(3)]
    result = json.dumps({"documents": [{**chunks[place], "metadata": {}} for place in kept]})
    step = of_kind("CHAIN", "step", "agent", 5, attributes={"output.value": result})
    retrieved = retriever("s", 1, [doc(passage(number), "leave") for number in range(3)])

    assert interpreted(agent(), retrieved, step).refused == {"unrecognised": 1}


# Chunk numbers.


@pytest.mark.parametrize("number", ["chunk_0", "c0", "0-512", "p3", "0", 0])
@pytest.mark.parametrize("holder", ["doc_id", "document_id", "ref_doc_id", "source"])
def test_a_chunk_counts_together_with_its_document(holder: str, number: str | int) -> None:
    """Two documents have a chunk of this number each."""
    one, two = (
        doc(passage(at), chunk_id=number, **{holder: f"/{name}.pdf"})
        for at, name in enumerate(("leave", "travel"))
    )

    found = turn_of([one, two], [two])

    assert duplicates(found) == [0, 1]
    ids = [result.doc_id for result in found.turns[0].searches[0].results]
    assert ids == [f"/leave.pdf#{number}", f"/travel.pdf#{number}"]


@pytest.mark.parametrize(
    ("chunk", "id"),
    [
        ({"chunk_id": "faq/0", "doc_id": "faq"}, "faq/0"),
        ({"chunk_id": "faq2-0", "doc_id": "faq"}, "faq#faq2-0"),
        ({"chunk_id": "chunk_17", "doc_id": "17"}, "17#chunk_17"),
        ({"chunk_id": "8d1f6f0c-3c5e-4b8e-9c56-0a1b2c3d4e5f", "doc_id": "faq"},
         "8d1f6f0c-3c5e-4b8e-9c56-0a1b2c3d4e5f"),
        ({"chunk_id": "c0"}, "c0"),
        ({"chunk_id": 0}, None),
        ({"chunk_id": "c0", "source": A}, f"{A}#c0"),
        ({"id": "own", "chunk_id": "c0", "doc_id": "faq"}, "own"),
    ],
)  # fmt: skip
def test_a_chunk_that_is_unique_keeps_its_id(chunk: Found, id: str | None) -> None:
    """So does one that contains the id of its document."""
    [document] = documents_in_value([{"text": "T", **chunk}])  # type: ignore[misc]

    assert document.id == id


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("[\"Document(id=a, content: 'x...', meta: {}, score: 0.5)\"]", "id"),
        ("[\"<NodeWithScore(node=TextNode(id_='a', text='x'), score=0.5)>\"]", "id"),
        ('[{"node": {"id_": "a", "text": "x", "metadata": {"doc_id": "b"}}}]', "id_"),
        ('[{"text": "x", "metadata": {"doc_id": "a", "id": "b"}}]', "metadata.id"),
        ('[{"text": "x", "metadata": {"doc_id": "a"}}]', "metadata.doc_id"),
        ('[{"text": "x", "doc_id": "a"}]', "doc_id"),
    ],
)
def test_each_id_has_the_name_under_which_it_was_recorded(value: str, name: str) -> None:
    [document] = documents_in_value(json.loads(value))  # type: ignore[misc]

    assert document.id_name == name


@pytest.mark.parametrize("texts", [(passage(0), passage(1)), ("Contents", "Contents")])
@pytest.mark.parametrize("number", ["c0", "chunk_0"])
def test_an_own_id_that_is_unique_in_its_file_only_counts_together_with_it(
    number: str, texts: tuple[str, str]
) -> None:
    """Files and texts show it; or only the files, if the texts are too short to be evidence."""
    one, two = (
        doc(text, number, source=f"/{name}.pdf")
        for text, name in zip(texts, ("leave", "travel"), strict=True)
    )

    found = turn_of([one], [two], [one])

    assert duplicates(found) == [0, 0, 1]
    assert found.turns[0].searches[1].results[0].doc_id == f"/travel.pdf#{number}"


def test_an_own_id_that_is_certainly_a_number_needs_no_text() -> None:
    one, two = (doc(None, "chunk_0", source=f"/{name}.pdf") for name in ("leave", "travel"))

    assert duplicates(turn_of([one, two], [two])) == [0, 1]


def test_a_number_of_an_unknown_document_does_not_identify_a_chunk() -> None:
    one, two = (doc(passage(number), chunk_id="c0") for number in range(2))

    assert duplicates(turn_of([one], [two], [two])) == [0, 0, 1]


@pytest.mark.parametrize("name", ["doc0", "item_1", "S1", "r-0"])
def test_an_id_that_is_the_place_of_each_only_result_identifies_nothing(name: str) -> None:
    """Every search has one result, and each another text under the same id."""
    found = [
        turn_of(*([doc(passage(number), name)] for number in numbers))
        for numbers in ((0, 1), (0, 1, 0))
    ]

    assert [one.refused.keys() for one in found] == [{"no_identity"}] * 2


def test_ids_that_are_the_same_sequence_in_each_search_identify_nothing() -> None:
    """They have no numbers, and every one of them is of other documents each time."""
    lists = [[doc(passage(3 * n + place), "abc"[place]) for place in range(3)] for n in range(2)]

    assert turn_of(*lists).refused.keys() == {"no_identity"}


def test_ids_that_count_on_from_search_to_search_identify_nothing() -> None:
    """No result is found again by them, although its text is."""
    found = turn_of([doc(passage(0), "r0"), doc(passage(1), "r1")], [doc(passage(0), "r2")])

    assert found.refused.keys() == {"no_identity"}


@pytest.mark.parametrize("ids", [("q-1-0", "q-2-0"), ("9b2f1c3a" * 4, "1c3a9b2f" * 4)])
def test_ids_made_for_a_search_are_seen_without_texts(ids: tuple[str, str]) -> None:
    """The address of the page is the same."""
    found = turn_of(*([doc(None, id, source=A, title="A")] for id in ids))

    assert found.refused.keys() == {"no_identity"}


def test_an_id_of_pages_with_other_titles_and_addresses_identifies_nothing() -> None:
    """Nothing else tells what has one id apart."""
    one, two = (doc(None, "top", source=(A, B)[n], title=f"Page {n}") for n in range(2))
    moved = doc(None, "top", source=B, title="Page 0")

    assert turn_of([one], [two]).refused.keys() == {"no_identity"}
    assert duplicates(turn_of([one], [moved])) == [0, 1]


def test_an_excerpt_under_the_same_title_is_of_the_same_document() -> None:
    """The first result of every search may be one document, whose text depends on the query."""
    found = turn_of(*([doc(passage(n), "kb-1", title="Leave")] for n in range(3)))

    assert duplicates(found) == [0, 1, 1]


# Texts.


def test_a_short_text_is_no_evidence_of_the_same_document() -> None:
    """Pages that could not be loaded have such texts. With a place it is that of one document."""
    places = [{"source": A}, {"source": B}, {"source": "/a.pdf"}, {"document_id": "faq"}]
    placed = [doc("Access denied.", **place) for place in places]
    nowhere = [doc("Access denied."), doc(passage(0))]

    assert duplicates(turn_of(placed, placed[1:])) == [0, 3]
    assert duplicates(turn_of(nowhere, nowhere)) == [0, 1]


@pytest.mark.parametrize("content", [True, False])
def test_the_address_decides_before_a_text(content: bool) -> None:
    """A long text at two addresses is two documents, and at an unknown address it is the same."""
    for text in (passage(0), passage(0) * 4):
        at_a, at_b, somewhere = doc(text, source=A), doc(text, source=B), doc(text)
        spelled = doc(text, source="http://EXAMPLE.org/a/#top")

        one = turn_of([at_a, at_b], [spelled], [somewhere], content=content)
        assert duplicates(one, content) == [0, 1, 1]


@pytest.mark.parametrize("content", [True, False])
def test_texts_without_ids_are_compared_as_deduplication_does(content: bool) -> None:
    """Lines end in another way, letters are composed of others, and case differs."""
    text = f"Über die Prüfung:\n{passage(0)}"
    written = f"U\u0308ber die Pru\u0308fung:\r\n  {passage(0)}".upper()

    one = turn_of([doc(text)], [doc(written)], content=content)

    assert duplicates(one, content) == [0, 1]


def test_chunks_without_ids_on_the_page_of_others_are_documents() -> None:
    """Two retrievers return chunks of one page, and only one of them has ids."""
    with_ids = [doc(passage(number), f"c{number}x", source=A) for number in range(2)]

    one = turn_of(with_ids, [doc(passage(0), source=A), doc(passage(2), source=A)])
    at_b = turn_of(with_ids, [doc(passage(0), source=B)])

    assert duplicates(one) == [0, 1]
    assert duplicates(at_b) == [0, 0]


def test_a_short_text_takes_no_id_from_another_place() -> None:
    with_id = doc("Contents", "own", source=A)

    assert duplicates(turn_of([with_id], [doc("Contents", source=A)])) == [0, 1]
    assert duplicates(turn_of([with_id], [doc("Contents", source=B)])) == [0, 0]
    assert duplicates(turn_of([with_id], [doc("Contents")])) == [0, 0]


def test_documents_of_one_search_with_one_text_at_several_addresses_are_told() -> None:
    """Their addresses tell them apart, unlike documents that were masked."""
    assert duplicates(turn_of([doc("No preview", source=A), doc("No preview", source=B)])) == [0]


def test_sections_of_a_page_have_texts_of_their_own() -> None:
    """A tool gives each of them an address with an anchor."""
    found = [{"url": f"{A}#{n}", "title": "T", "text": passage(n)} for n in range(2)]

    one = interpreted(
        agent(),
        tool("t", "agent", 1, output=json.dumps(found)),
        model("m", "agent", 3),
        tool("t2", "agent", 5, output=json.dumps(found[1:])),
    )

    assert duplicates(one) == [0, 1]


def test_the_summary_of_a_replay_names_the_setting_once_for_each_agent() -> None:
    settings = OtlpSettings()
    chunks = RETRIEVER | {
        f"retrieval.documents.{at}.document.{name}": value
        for at in range(2)
        for name, value in (("id", "leave"), ("content", passage(at)))
    }
    agents = ("support", "support", "billing")
    with TraceStore(settings.mapping(), settings.options(NO_GRADES), Limits()) as traces:
        for number, name in enumerate(agents, 1):
            spec = SpanSpec(number, 1, attributes=chunks, resource={"service.name": name})
            traces.add_payload(as_json([spec]))
        assert len(list(traces.records())) == len(agents)

    assert traces.counts.page_ids == {"support": ["id"], "billing": ["id"]}
    said = [line for line in summary_lines(traces.counts) if "otlp.identity" in line]
    assert ['"support"' in line for line in said] == [True, False]
