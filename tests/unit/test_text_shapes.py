"""Prose in which tools return several results is divided by the table of texts, or refused."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from stream_metrics.core.telemetry.shapes.reading import Reading, Unread, read_result
from stream_metrics.core.telemetry.shapes.texts import TEXTS

REFUNDS = "Refunds take five days after approval."
TRAVEL = "Travel is booked through the portal.\n\nOr by phone."


class Case(NamedTuple):
    """A text with two results, and what identifies them."""

    row: int
    text: str
    by: str = "text"
    found: tuple[str, ...] = (REFUNDS, TRAVEL)


CASES = {
    "snippets in brackets": Case(
        6,
        f"[snippet: {REFUNDS}, title: Refunds, link: https://kb.example/1], "
        f"[snippet: {TRAVEL}, title: Travel, link: https://kb.example/2]",
    ),
    "snippets in a row": Case(
        6,
        f"snippet: {REFUNDS}, title: R, link: https://kb.example/1, "
        f"snippet: {TRAVEL}, title: T, link: https://kb.example/2, date: today, source: x",
        "url",
        ("https://kb.example/1", "https://kb.example/2"),
    ),
    "titles with addresses": Case(
        5, f"Refunds (https://kb.example/1)\n{REFUNDS}\n\nTravel (https://kb.example/2)\n{TRAVEL}"
    ),
    "headed blocks": Case(
        3, f"===== Document 0 =====\n{REFUNDS}\n\n===== Document 1 =====\n{TRAVEL}"
    ),
    "headed blocks with colons": Case(3, f"Result 1:\n{REFUNDS}\n\nResult 2:\n{TRAVEL}"),
    "headed blocks with an announcement": Case(
        3, f"Found 2 results:\n\n### Source 1\n{REFUNDS}\n\n### Source 2\n{TRAVEL}"
    ),
    "headed blocks with ids": Case(
        3,
        f"--- Document 1 ---\nID: kb-1\n{REFUNDS}\n--- Document 2 ---\nID: kb-2\n{TRAVEL}",
        "id",
        ("kb-1", "kb-2"),
    ),
    "headed lines with their titles": Case(
        3, f"Document [1](Title: Refunds): {REFUNDS}\n\nDocument [2](Title: Travel): {TRAVEL}"
    ),
    "headed lines with ids and scores": Case(
        3,
        f"Result 1 (id: kb-1, score: 0.9): {REFUNDS}\nResult 2 (id: kb-2, score: 0.8): {TRAVEL}",
        "id",
        ("kb-1", "kb-2"),
    ),
    "elements": Case(0, f"<document>{REFUNDS}</document>\n<document>{TRAVEL}</document>"),
    "elements inside another": Case(
        0,
        f'<results>\n<result rank="1">{REFUNDS}</result>\n<result rank="2">{TRAVEL}</result>\n'
        "</results>",
    ),
    "elements with ids": Case(
        0,
        f'<passage id="kb-1">{REFUNDS}</passage><passage id="kb-2">{TRAVEL}</passage>',
        "id",
        ("kb-1", "kb-2"),
    ),
    "elements as Anthropic advises": Case(
        0,
        '<documents><document index="1"><source>https://kb.example/1</source><document_content>'
        f'{REFUNDS}</document_content></document><document index="2"><source>https://kb.example/2'
        f"</source><document_content>{TRAVEL}</document_content></document></documents>",
        "url",
        ("https://kb.example/1", "https://kb.example/2"),
    ),
    "links of Markdown": Case(
        1,
        f"1. [Refunds](https://kb.example/1)\n{REFUNDS}\n2. [Travel](https://kb.example/2)\n{TRAVEL}",
        "url",
        ("https://kb.example/1", "https://kb.example/2"),
    ),
    "bullets with links": Case(
        1,
        f"- [Refunds](https://kb.example/1): {REFUNDS}\n- [Travel](https://kb.example/2): {TRAVEL}",
        "url",
        ("https://kb.example/1", "https://kb.example/2"),
    ),
    "numbers with labelled addresses": Case(
        1,
        f"Found 2 results:\n\n1. Refunds\n   URL: https://kb.example/1\n   Summary: {REFUNDS}"
        f"\n\n2. Travel\n   URL: https://kb.example/2\n   Summary: {TRAVEL}",
        "url",
        ("https://kb.example/1", "https://kb.example/2"),
    ),
    "labelled blocks": Case(
        2,
        f"Title: Refunds\nURL: https://kb.example/1\nContent: {REFUNDS}\n\n"
        f"Title: Travel\nURL: https://kb.example/2\nContent: {TRAVEL}",
        "url",
        ("https://kb.example/1", "https://kb.example/2"),
    ),
    "labelled ids": Case(
        2,
        f"ID: kb-1\nScore: 0.9\nText: {REFUNDS}\n\nID: kb-2\nScore: 0.8\nText: {TRAVEL}",
        "id",
        ("kb-1", "kb-2"),
    ),
    "labelled blocks of the same labels": Case(
        2, f"Page: Refunds\nSummary: {REFUNDS}\n\nPage: Travel\nSummary: {TRAVEL}"
    ),
    "titles that are links": Case(
        5,
        f"## Search Results\n\n[Refunds](https://kb.example/1)\n{REFUNDS}\n\n"
        f"[Travel](https://kb.example/2)\n{TRAVEL}",
        "url",
        ("https://kb.example/1", "https://kb.example/2"),
    ),
    "titles with addresses below": Case(
        5,
        f"### Refunds\nURL: https://kb.example/1\n{REFUNDS}\n\n"
        f"### Travel\nURL: https://kb.example/2\n{TRAVEL}",
        "url",
        ("https://kb.example/1", "https://kb.example/2"),
    ),
    "rules": Case(4, f"{REFUNDS}\n\n---\n\n{TRAVEL}"),
    "rules without blank lines": Case(4, f"{REFUNDS}\n---\n{TRAVEL}"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_text_of_a_known_form_is_divided(case: Case) -> None:
    """Each block is a result, by the id or address in it, else by its text without its heading."""
    found = read_result(case.text)

    assert isinstance(found, Reading)
    assert [getattr(document, case.by) for document in found.documents] == [*case.found]
    assert found.source == TEXTS[case.row].source
    assert [document.text for document in found.documents] == [REFUNDS, TRAVEL]


LINKED = {
    "lines with addresses": (7, "Refunds (https://kb.example/1)\nTravel (https://kb.example/2)"),
    "lines with links": (7, "[Refunds](https://kb.example/1)\n\n[Travel](https://kb.example/2)"),
    "lines below an announcement": (
        7,
        "Found 2 results:\nRefunds - https://kb.example/1\nTravel - https://kb.example/2",
    ),
    "addresses below titles": (
        8,
        f"Refunds\nhttps://kb.example/1\n{REFUNDS}\n\nTravel\nhttps://kb.example/2\nBy train.",
    ),
    "addresses above texts": (
        8,
        f"https://kb.example/1\n{REFUNDS}\n\nhttps://kb.example/2\nBy train.",
    ),
}


@pytest.mark.parametrize(("row", "text"), LINKED.values(), ids=LINKED.keys())
def test_an_address_in_each_line_or_block_tells_the_results(row: int, text: str) -> None:
    """Each has one of its own."""
    found = read_result(text)

    assert isinstance(found, Reading)
    urls = [document.url for document in found.documents]
    assert urls == ["https://kb.example/1", "https://kb.example/2"]
    assert found.source == TEXTS[row].source


def test_a_sentence_in_a_heading_is_text() -> None:
    """Else what follows it would be all that tells results apart."""
    found = read_result("Result 1: Five days.\nAsk HR.\n\nResult 2: By train.\nAsk HR.")

    assert isinstance(found, Reading)
    assert [one.text for one in found.documents] == ["Five days.\nAsk HR.", "By train.\nAsk HR."]


def test_each_row_has_a_case() -> None:
    """No row of the table of texts is without one."""
    rows = {case.row for case in CASES.values()} | {row for row, _ in LINKED.values()}
    assert rows == {*range(len(TEXTS))}


@pytest.mark.parametrize(
    "text",
    [
        f"{REFUNDS}\n\n{TRAVEL}",
        REFUNDS,
        f"[1] {REFUNDS}\n[2] {TRAVEL}",
        f"1. {REFUNDS}\n2. {TRAVEL}",
        "Result 1:\nOne\n\nResult 3:\nThree",
        f"1. See https://kb.example/1\n2. {TRAVEL}",
        f"Title: Refunds\nContent: {REFUNDS}\n\nTitle: Travel\nURL: https://kb.example/2",
        "---\ntitle: Front matter\n---\nText of one page",
        "Heading\n---\nText under it\n\n---\n\nText after a rule",
        f"<document>{REFUNDS}</document> and <document>{TRAVEL}</document>",
        "<document>one <document>two</document></document>",
        "<html><body><article>One</article><article>Two</article></body></html>",
        "<div><p>One</p><p>Two</p></div>",
        "def f():\n    return 1\n",
        "# Guide\n\n## Refunds\nFive days.\n\n## Travel\nBy train.",
        "See https://kb.example/1\nor https://kb.example/1",
        "See https://kb.example/1 for\nmore of it: https://kb.example/2\nSoon.",
        "Five days.\nhttps://kb.example/1\n\nOr six.\n\nBy train.\nhttps://kb.example/2",
        "No results found.",
        "snippet: Five days, title: Refunds, snippet: By train, title: Travel",
        "Five days.\n\nTravel (https://kb.example/2)\nBy train.",
    ],
)
def test_other_text_is_not_divided(text: str) -> None:
    """A passage may contain blank lines, numbers and rules, so that nothing is guessed."""
    assert read_result(text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"[1] {REFUNDS}\n---\nMore.\n\n[2] {TRAVEL}\n---\nMore.",
        f"[a.pdf]\n{REFUNDS}\n\n---\n\nMore.\n\n[b.pdf]\n{TRAVEL}\n\n---\n\nMore.",
        f"Refunds\nhttps://kb.example/1\n{REFUNDS}\n\n---\n\nMore.\n\nhttps://kb.example/2",
    ],
)
def test_rules_inside_of_passages_do_not_divide_them(text: str) -> None:
    """Numbers, heads or addresses show that the passages have other beginnings."""
    assert read_result(text) is None


def test_an_address_that_all_passages_cite_is_that_of_none() -> None:
    """Their first lines, which would be titles, are not the same."""
    rest = "URL: https://forms.example/x\nMore on it."
    text = f"1. {REFUNDS}\n{rest}\n2. By train.\n{rest}"

    assert read_result(text) is None


def test_a_text_of_two_forms_with_different_results_is_refused() -> None:
    """Two elements, one of which has a list of links, are two results or three."""
    text = "Title: A\nURL: https://kb.example/1\nText: a\n---\nb\n---\nTitle: C\nURL: https://kb.example/3"
    found = read_result(text)

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


def test_a_text_in_a_single_block_of_mcp_is_divided_as_any_other() -> None:
    """A content block is a container, and no result."""
    blocks = [{"type": "text", "text": CASES["rules"].text}]

    found = read_result({"content": blocks, "isError": False})

    assert isinstance(found, Reading)
    assert len(found.documents) == 2


def test_several_blocks_are_several_results() -> None:
    """Each text of MCP is one."""
    blocks = [{"type": "text", "text": text} for text in (REFUNDS, TRAVEL)]

    found = read_result({"content": blocks})

    assert isinstance(found, Reading)
    assert [document.text for document in found.documents] == [REFUNDS, TRAVEL]


@pytest.mark.parametrize(
    "passage",
    [
        "Found in most kitchens, soda removes rust.",
        "Query strings are limited to 2 kB.",
        "Results for the year were good.",
        "Found 3 results in the archive. They are listed below.",
    ],
)
def test_a_passage_that_begins_as_an_announcement_is_a_result(passage: str) -> None:
    """An announcement ends with a colon, or says how many or what was found, and nothing else."""
    found = read_result(f"{passage}\n---\n{REFUNDS}")

    assert isinstance(found, Reading)
    assert [document.text for document in found.documents] == [passage, REFUNDS]


@pytest.mark.parametrize(
    "first",
    [
        "[Refunds](https://kb.example/1)\nRead this:\n[the form](https://other.example/1)\nSoon.",
        "ID: kb-1\nText: Read this.\nID: 5 is on the form.\nSoon.",
        "Title: Refunds\nURL: https://kb.example/1\nContent: Read this.\nTitle: the form\nSoon.",
    ],
)
def test_what_looks_like_a_beginning_inside_a_block_is_none(first: str) -> None:
    """Blocks have blank lines between them."""
    second = "[Travel](https://kb.example/2)\nBy train."
    if not first.startswith("["):
        second = (
            first.partition("\n")[0].replace("1", "2")
            + "\nURL: https://kb.example/2\nText: By train."
        )
    found = read_result(f"{first}\n\n{second}")

    assert isinstance(found, Reading)
    assert len(found.documents) == 2


def test_blocks_without_blank_lines_have_the_same_labels_or_are_none() -> None:
    """Else a label inside of a text may seem to begin another block."""
    one, other = "Title: A\nURL: https://a.example/1", "Title: B\nURL: https://b.example/1"
    found = read_result(f"{one}\n{other}")

    assert isinstance(found, Reading)
    assert len(found.documents) == 2
    assert read_result("ID: 1\nScore: 2\nText: Soon.\nID: 5\nText: of the form") is None


def test_objects_that_cannot_be_read_are_no_prose() -> None:
    """Rules in their texts divide nothing."""
    assert read_result("[Document(id='a', page_content='One\n\n---\n\nTwo'), Docu") is None


def test_a_block_that_announces_as_many_results_as_follow_is_none() -> None:
    """Servers of MCP put a line before their results."""
    blocks = [{"text": text} for text in ("Found 2 results:", REFUNDS, TRAVEL)]

    found = read_result(blocks)

    assert isinstance(found, Reading)
    assert [document.text for document in found.documents] == [REFUNDS, TRAVEL]


@pytest.mark.parametrize("first", ["Found 5 results:", f"{REFUNDS}\n\n---\n\n{TRAVEL}"])
def test_blocks_that_announce_or_have_several_results_are_refused(first: str) -> None:
    """Then a block is no result."""
    blocks = [{"text": text} for text in (first, REFUNDS, TRAVEL)]

    found = read_result(blocks)

    assert isinstance(found, Unread)
    assert found.reason == "ambiguous_documents"


def test_one_block_of_text_is_no_result() -> None:
    """All passages may be in it."""
    assert read_result([{"text": f"{REFUNDS}\n\n{TRAVEL}"}]) is None


def test_lines_of_json_are_a_list() -> None:
    """Some programs return one object in each line."""
    found = read_result('{"id": "a", "text": "One"}\n{"id": "b", "text": "Two"}')

    assert isinstance(found, Reading)
    assert [document.id for document in found.documents] == ["a", "b"]


def test_a_text_that_begins_with_a_number_in_brackets_was_not_cut_off() -> None:
    """JSON that has no end was."""
    cut = read_result('[{"id": "a", "text": "One"}, {"id"')

    assert isinstance(cut, Unread)
    assert cut.reason == "truncated"
    assert read_result(f"[1] {REFUNDS}") is None
