"""What tools return is read by the table of shapes, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_metrics.core.telemetry.shapes.reading import Reading, Unread, read_result
from stream_metrics.core.telemetry.shapes.table import PARALLEL, SHAPES
from tests.shapes import CASES, HITS, WITHOUT_ID, Case, Hit, deeper, in_mcp


def read(value: Any) -> Reading:
    """The reading of a value, which has one."""
    found = read_result(json.dumps(value))
    assert isinstance(found, Reading), found
    return found


def identities(reading: Reading, by: str) -> list[str | None]:
    """What identifies the results."""
    return [getattr(document, by) for document in reading.documents]


def expected(case: Case, *hits: Hit) -> list[str | None]:
    """The same of what was found; Wikipedia's ids are numbers."""
    number = case is CASES["Wikipedia: list=search of MediaWiki"]
    if case.by != "id":
        return [getattr(hit, case.by) for hit in hits]
    return [hit.id[3:] if number and hit.id else hit.id for hit in hits]


def _bare(name: str, *path: str) -> Any:
    """The list alone of an answer."""
    value = CASES[name].answer(HITS)
    for key in path:
        value = value[key]
    return value


EACH = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_each_row_has_a_case() -> None:
    """No row of the table is without one."""
    sources = [row.source for row in SHAPES] + [row.source for row in PARALLEL]

    assert sorted(sources) == sorted(CASES)


@EACH
@pytest.mark.parametrize("nested", [lambda value: value, in_mcp, deeper], ids=["", "MCP", "deeper"])
def test_results_are_read_wherever_they_stand(case: Case, nested: Any) -> None:
    """The row finds ids and texts in the answer itself, in MCP's, and some levels deeper."""
    found = read(nested(case.answer(HITS)))

    assert identities(found, case.by) == expected(case, *HITS)
    assert [document.text for document in found.documents] == [hit.text for hit in HITS]


@EACH
def test_an_item_without_its_id_is_identified_by_what_it_has(case: Case) -> None:
    """Its text, or its address, stands in for the id; no rank or request id does."""
    found = read(case.answer(WITHOUT_ID))

    assert identities(found, case.by) == expected(case, *WITHOUT_ID)
    assert found.documents[1].text == HITS[1].text


@EACH
def test_an_empty_list_is_an_empty_search(case: Case) -> None:
    """The answer of a search that found nothing has no results."""
    assert read(case.answer(())).documents == ()


def test_an_empty_list_in_a_text_in_json_is_an_empty_search() -> None:
    """So the AI SDK writes the result of a tool that returned it as a text."""
    assert read("[]").documents == ()


@EACH
def test_the_same_list_twice_counts_once(case: Case) -> None:
    """MCP has results as text and as structure."""
    answer = case.answer(HITS)
    found = read({**in_mcp(answer), "structuredContent": {"result": answer}})

    assert len(found.documents) == len(HITS)


@EACH
def test_two_different_lists_are_refused(case: Case) -> None:
    """It is unclear which of them the results are."""
    other = [{"id": "x", "text": "Another text of another list."}]
    found = read_result(json.dumps({"found": case.answer(HITS), "documents": other}))

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


LISTED = [{"id": hit.id, "text": hit.text} for hit in HITS]
OTHERS = [{"id": "x", "text": "Another text of another list."}]


@pytest.mark.parametrize("name", ["sources", "hits", "data", "matches"])
def test_a_list_of_documents_beside_another_is_refused(name: str) -> None:
    """The names of both are usual, so that neither is certainly the results."""
    found = read_result({"results": LISTED, name: OTHERS})

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


@EACH
@pytest.mark.parametrize("name", ["related", "cached", "top_pages"])
def test_a_list_under_any_name_beside_an_answer_is_refused(case: Case, name: str) -> None:
    """The agent was given its documents as well."""
    found = read_result({"found": case.answer(HITS), name: OTHERS})

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


@EACH
def test_a_list_beside_an_empty_answer_is_refused(case: Case) -> None:
    """It may be what the search found."""
    found = read_result({"result": case.answer(()), "related": OTHERS})

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


def test_a_list_of_items_with_the_same_unusual_keys_is_refused() -> None:
    """Nothing reads the items, and yet they are documents as those of the answer."""
    items = [{"_id": hit.id, "fields": {"title": [hit.text]}} for hit in HITS]
    found = read_result({"hits": {"hits": items, "total": 3}, "related": items[:1]})

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


@pytest.mark.parametrize(("name", "refused"), [("context", True), ("answer", False)])
def test_a_text_with_other_results_beside_a_list_is_refused(name: str, refused: bool) -> None:
    """Under any name but that of an answer, which may cite in whichever form."""
    said = "1. [Other](https://kb.example/x)\n   One.\n2. [More](https://kb.example/y)\n   Two."
    same = "\n".join(f"<document>{hit.text}</document>" for hit in HITS)

    assert isinstance(read_result({"results": LISTED, name: said}), Unread) is refused
    assert len(read({"results": LISTED, name: same}).documents) == len(HITS)


def test_a_list_beside_texts_in_content_blocks_is_refused() -> None:
    """MCP has three results in texts, and a structure has two others."""
    blocks = [{"type": "text", "text": hit.text} for hit in HITS]
    found = read_result({"content": blocks, "documents": OTHERS})

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


def test_a_content_block_may_have_an_empty_type() -> None:
    """It is a container as the others."""
    blocks = [{"type": "text", "text": json.dumps(one)} for one in LISTED]
    blocks[1]["type"] = ""

    assert identities(read({"content": blocks}), "id") == [hit.id for hit in HITS]


@pytest.mark.parametrize("name", ["images", "suggestions", "related_searches", "facets"])
def test_lists_that_are_no_results_are_left_out(name: str) -> None:
    """Their names say so, although their items have texts."""
    assert identities(read({"results": LISTED, name: OTHERS}), "id") == [hit.id for hit in HITS]


def test_lists_of_ids_are_not_taken_for_those_of_another_row() -> None:
    """Chroma's are in lists for each query; a list of objects beside them is another result."""
    answer = CASES["Chroma: query and get"].answer(HITS)
    found = read_result({**answer, "passages": OTHERS})

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


@EACH
def test_a_list_with_scores_beside_an_answer_is_refused(case: Case) -> None:
    """It may be what the search returned as well, whatever the row."""
    others = [{**one, "score": 0.5} for one in OTHERS]
    found = read_result({"found": case.answer(HITS), "ranked": others})

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


def test_different_lists_in_two_texts_are_both_seen() -> None:
    """Each is parsed for itself, and the first is not in memory any more when the second is."""
    found = read_result({"output": json.dumps(LISTED), "result": json.dumps(OTHERS)})

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


def test_sections_of_an_answer_that_are_not_its_results_are_left_out() -> None:
    """Brave adds videos and news, which are lists like that of web pages."""
    answer = CASES["Brave Search"].answer(HITS)
    videos = {"results": [{"title": "V", "url": "https://v.example/1", "description": "d"}]}

    assert identities(read({**answer, "videos": videos}), "url") == [hit.url for hit in HITS]


@pytest.mark.parametrize(
    ("value", "by"),
    [
        ([[{"id": hit.id, "page_content": hit.text}, hit.score] for hit in HITS], "id"),
        ({"found": {"documents_found": [{**one, "score": 0.5} for one in LISTED]}}, "id"),
        ({"found": [{"id": hit.id, "page_content": hit.text} for hit in HITS]}, "id"),
        ({"response": "Soon.", "source_nodes": [{"node": one} for one in LISTED]}, "id"),
        (f"```json\n{json.dumps(LISTED, indent=1)}\n```", "id"),
        (f"Found 3 results:\n{json.dumps(LISTED)}", "id"),
        ([hit.text for hit in HITS], "text"),
        ([{"ID": hit.id, "Text": hit.text, "Score": hit.score} for hit in HITS], "id"),
        ({"Documents": [{"Id": hit.id, "Content": hit.text} for hit in HITS]}, "id"),
        ({"passages": [hit.text for hit in HITS]}, "text"),
        (CASES["Bing Web Search, whose ids number the results"].answer(HITS)["webPages"], "url"),
        (_bare("Bing Web Search, whose ids number the results", "webPages", "value"), "url"),
        (
            _bare("OpenAI: search of a vector store, whose file_id is that of the file", "data"),
            "id",
        ),
    ],
)
def test_lists_as_programs_hand_them_on_are_read(value: Any, by: str) -> None:
    """With scores, under other names, in Markdown, below a line, or taken out of an answer."""
    assert identities(read(value), by) == [getattr(hit, by) for hit in HITS]


def test_the_empty_list_of_a_query_is_an_empty_search() -> None:
    """Milvus' client returns a list for each query."""
    assert read([[]]).documents == ()


def test_an_item_of_bings_list_without_an_address_has_no_rank_as_id() -> None:
    """Its row does not fit such a list."""
    items = _bare("Bing Web Search, whose ids number the results", "webPages", "value")
    del items[1]["displayUrl"]

    assert identities(read(items), "id") == [None, None, None]


@pytest.mark.parametrize("value", [["a.txt", "b.txt"], ["{}", "text of a result"], [1, 2]])
def test_names_and_numbers_are_no_results(value: Any) -> None:
    """A list of texts has sentences."""
    assert read_result(value) is None


@EACH
def test_an_answer_as_python_shows_it_is_read(case: Case) -> None:
    """Programs return ``str(answer)``, also inside MCP's objects."""
    text = f"CallToolResult(content=[TextContent(type='text', text={str(case.answer(HITS))!r})])"
    for value in (str(case.answer(HITS)), text):
        found = read_result(value)
        assert isinstance(found, Reading)
        assert identities(found, case.by) == expected(case, *HITS)


@pytest.mark.parametrize(
    ("blocks", "by", "found"),
    [
        (
            [
                {"type": "resource", "resource": {"uri": f"kb://{hit.id}", "text": hit.text}}
                for hit in HITS
            ],
            "text",
            [hit.text for hit in HITS],
        ),
        (
            [{"type": "resource_link", "uri": f"kb://{hit.id}", "name": hit.title} for hit in HITS],
            "id",
            [f"kb://{hit.id}" for hit in HITS],
        ),
        (
            [
                {
                    "type": "search_result",
                    "source": hit.url,
                    "title": hit.title,
                    "content": [{"type": "text", "text": hit.text}],
                }
                for hit in HITS
            ],
            "url",
            [hit.url for hit in HITS],
        ),
        (
            [
                {
                    "toolResult": {
                        "toolUseId": "t",
                        "content": [{"json": {"results": [{"id": "a", "text": "b"}]}}],
                    }
                }
            ],
            "id",
            ["a"],
        ),
        (
            [
                {"type": "text", "text": json.dumps({"id": hit.id, "text": hit.text})}
                for hit in HITS
            ],
            "id",
            [hit.id for hit in HITS],
        ),
        (
            {"type": "json", "value": [{"id": hit.id, "text": hit.text} for hit in HITS]},
            "id",
            [hit.id for hit in HITS],
        ),
        (
            {"type": "content", "value": [{"type": "text", "text": hit.text} for hit in HITS]},
            "text",
            [hit.text for hit in HITS],
        ),
    ],
    ids=["resources", "links", "search results", "Bedrock", "objects", "AI SDK", "AI SDK, texts"],
)
def test_content_blocks_are_containers(blocks: Any, by: str, found: list[str]) -> None:
    """What is inside counts: of MCP, Anthropic, Bedrock and the AI SDK."""
    assert identities(read(blocks), by) == found


@pytest.mark.parametrize(
    "value",
    [
        [{"text": "All passages in one text. And another."}],
        {"content": [{"type": "text", "text": "One."}], "isError": False},
        [{"type": "image", "data": "…"}],
        {"id": "resp_1", "text": "An answer."},
        {"type": "text", "text": "One."},
    ],
)
def test_a_container_alone_is_no_result(value: Any) -> None:
    """It is refused where it is that of a search."""
    assert read_result(json.dumps(value)) is None
