"""Two results with such URLs are one document, or two: the rules from tables 2 on."""

from __future__ import annotations

import pytest

from stream_metrics.core.dedup.deduplicator import PlainDeduplicator
from stream_metrics.core.dedup.index import DedupCounts
from stream_metrics.core.dedup.tables import CHUNK_COMPONENTS, DedupRules
from stream_metrics.core.events.wire import Result
from tests.oracle import dedup as oracle

ONE = "The first page is about the first thing, and says so in quite some words of its own."
OTHER = "The second page has another subject, and nothing of the first one is repeated on it."
FIELDS = ("entity_type", "doc_id", "url", "title", "snippet", "content")

# Pairs of URLs that no reader would take for one page if what is behind them differs.
PAGES = [
    ("https://mail.example/mail/u/0/#inbox/18c1", "https://mail.example/mail/u/0/#inbox/18c2"),
    ("https://portal.example/#@me/vm-a", "https://portal.example/#@me/vm-b"),
    ("https://portal.example/#@me", "https://portal.example/"),
    ("https://console.example/home#Details:id=i-1", "https://console.example/home#Details:id=i-2"),
    ("https://console.example/home#Instances:", "https://console.example/home#Volumes:"),
    ("https://sheets.example/d/1#gid=0", "https://sheets.example/d/1#gid=7"),
    ("https://app.example/#page=billing", "https://app.example/#page=users"),
    ("https://app.example/#search=a", "https://app.example/#search=b"),
    ("https://crm.example/one.app#eyJjb21wb25lbnQiOiJhIn0", "https://crm.example/one.app#eyJjIn0"),
    ("s3://kb/C# guide.pdf", "s3://kb/C# reference.pdf"),
    ("https://git.example/README.md?ref=main", "https://git.example/README.md?ref=v2"),
    ("https://conf.example/programme?session=12", "https://conf.example/programme?session=13"),
    ("https://share.example/open?token=a", "https://share.example/open?token=b"),
    ("https://app.example/open?web=12", "https://app.example/open"),
    ("https://app.example/open?id=1&view=list", "https://app.example/open?id=1&view=map"),
    ("https://app.example/open?id=1&action=new", "https://app.example/open?id=1&action=old"),
]
# Pairs that are two pages whatever else is equal.
APART = [
    ("crm://records/881", "wiki://records/881"),
    ("s3://kb/leave.md", "gs://kb/leave.md"),
    ("ftp://kb.example/leave.md", "https://kb.example/leave.md"),
    ("gdrive://1AbCdEf/", "gdrive://1aBcDeF/"),
    ("redis://kb:80/a", "redis://kb/a"),
    ("abfs://one@account.example/a", "abfs://two@account.example/a"),
    ("https://x.example:80/a", "https://x.example/a"),
    ("http://x.example:443/a", "http://x.example/a"),
    ("https://old.example/a?id=B%FCcher", "https://old.example/a?id=B%F6cher"),
    ("https://zh.example/s?v=%B1%B1", "https://zh.example/s?v=%C9%CF"),
    ("https://a.example/b%2Fc", "https://a.example/b/c"),
    ("https://stra\u00dfe.example/", "https://strasse.example/"),
    ("https://a.example/#/one", "https://a.example/#/two"),
]
# Pairs that are spelled in two ways, or point into one page.
SAME = [
    ("http://x.example:80/a", "https://x.example/a"),
    ("https://x.example:443/a", "https://X.Example:/a/"),
    ("https://me@x.example/a", "https://x.example/a"),
    ("https://x.example", "https://x.example/"),
    ("s3://kb", "s3://kb/"),
    ("S3://kb/%7ea", "s3://kb/~a"),
    ("https://x.example/a/./b/../c", "https://x.example/a/c"),
    ("https://x.example/a/%2e%2E/c", "https://x.example/c"),
    ("https://x.example/%c3%bc", "https://x.example/\u00fc"),
    ("https://x.example/a b", "https://x.example/a%20b"),
    ("https://b\u00fccher.example/a", "https://XN--bcher-kva.example/a"),
    ("https://BU\u0308CHER.example/a", "https://b%C3%BCcher.example/a"),
    ("https://\u4f8b\u3002example/a", "https://xn--fsq.example/a"),
    ("https://x.example/a?q=%C3%BC", "https://x.example/a?Q=\u00fc"),
    ("https://x.example/a?q=%fc", "https://x.example/a?q=%FC"),
    ("https://x.example/a#install", "https://x.example/a#usage"),
    ("https://x.example/a#page=2", "https://x.example/a#page=3&zoom=100"),
    ("https://x.example/a#:~:text=one", "https://x.example/a#:~:text=other"),
    ("https://x.example/a#fn:1", "https://x.example/a#fn:2"),
    ("https://x.example/a#cite_note-:0-3", "https://x.example/a#lines-10:20"),
    ("https://docs.example/d#heading=h.a", "https://docs.example/d#bookmark=id.b"),
    ("https://x.example/#/users/%7ejoe", "https://x.example/#/users/~joe"),
    ("https://x.example/#/a:~:text=one", "https://x.example/#/a"),
    ("https://x.example/a#epubcfi(/6/4)", "https://x.example/a#epubcfi(/6/8)"),
    ("https://x.example/a?utm_source=a&gclid=1", "https://x.example/a"),
]


def are_one(one: Result, other: Result) -> bool:
    """Whether deduplication joins two results; the oracle has to agree."""
    dedup = PlainDeduplicator(DedupRules(), b"")
    documents, _ = dedup.index().append(dedup.fingerprints([one, other]), DedupCounts())
    found = documents == [0, 0]
    plain = [
        {name: getattr(result, name) for name in FIELDS}
        | {"entity_type": "Document", "ids": _lists(result), "fields": result.fields or {}}
        for result in (one, other)
    ]
    placed = oracle.deduplicate(plain, oracle.Settings())
    assert [each.first for each in placed] == documents
    return found


def _lists(result: Result) -> dict[str, list[str]]:
    return {name: [str(value)] for name, value in (result.ids or {}).items()}


def page(url: str, title: str = "First page", content: str = ONE) -> Result:
    """A result with this address."""
    return Result(result_id=f"{url} {title}", url=url, title=title, content=content)


@pytest.mark.parametrize(("one", "other"), PAGES)
def test_an_address_that_may_be_another_page_is_one_where_the_results_differ(
    one: str, other: str
) -> None:
    assert not are_one(page(one), page(other, "Second page", OTHER))


@pytest.mark.parametrize(("one", "other"), PAGES)
def test_such_an_address_is_the_same_page_where_nothing_else_differs(one: str, other: str) -> None:
    assert are_one(page(one), page(other))


@pytest.mark.parametrize(("one", "other"), APART)
def test_other_addresses_are_other_pages(one: str, other: str) -> None:
    assert not are_one(page(one, content=""), page(other, content=""))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_spellings_of_an_address_are_one_page(one: str, other: str) -> None:
    assert are_one(page(one), page(other, "Second page", OTHER))


def test_a_differing_field_is_something_that_differs() -> None:
    one, other = (
        Result(result_id=name, url=f"https://a.example/?session={name}", fields={"room": name})
        for name in ("12", "13")
    )
    assert not are_one(one, other)


def test_a_text_in_two_unicode_forms_is_one_text() -> None:
    composed = ONE + " F\u00fcr alle gilt dasselbe."
    assert are_one(
        Result(result_id="1", content=composed),
        Result(result_id="2", content=composed.replace("\u00fc", "u\u0308")),
    )


def chunk(component: str = "chunk_id", **values: object) -> Result:
    """A result with a chunk number that other documents have, too."""
    return Result(result_id=str(values), ids={component: "chunk_0"}, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("component", CHUNK_COMPONENTS)
@pytest.mark.parametrize(
    "where", [("doc_id", "policy-7", "policy-8"), ("url", "https://a.example", "https://b.example")]
)
def test_equal_chunk_numbers_in_two_documents_are_two_chunks(
    where: tuple[str, str, str], component: str
) -> None:
    name, *two = where
    one, other = (
        chunk(component, **{name: value}, content=text)
        for value, text in zip(two, (ONE, OTHER), strict=True)
    )
    assert not are_one(one, other)


def test_an_equal_chunk_id_is_one_chunk_if_the_text_is_the_same() -> None:
    assert are_one(chunk(doc_id="policy-7", content=ONE), chunk(doc_id="policy-8", content=ONE))


def test_an_equal_document_id_decides_before_another_address() -> None:
    assert are_one(
        chunk(doc_id="policy-7", url="https://a.example", content=ONE),
        chunk(doc_id="policy-7", url="https://b.example", content=OTHER),
    )


def test_an_equal_chunk_number_does_not_outweigh_another_document_beside_other_identifiers() -> (
    None
):
    one, other = (
        Result(result_id=name, ids={"chunk_id": "0", "kb_id": "1"}, doc_id=name, content=text)
        for name, text in (("p7", ONE), ("p8", OTHER))
    )
    assert not are_one(one, other)


def test_messages_behind_one_address_are_told_apart_by_their_subjects() -> None:
    one, other = (
        Result(
            result_id=name,
            entity_type="EmailMessage",
            url=f"https://mail.example/#inbox/{name}",
            fields={"subject": name},
        )
        for name in ("Invoice", "Holiday")
    )
    assert not are_one(one, other)
