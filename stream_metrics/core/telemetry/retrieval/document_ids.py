"""Determines the id of each document of a turn, and detects ids that cannot be relied on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from stream_metrics.core.telemetry.contents.documents import (
    LOCAL_ID,
    Document,
    address_form,
    in_document,
)
from stream_metrics.core.telemetry.retrieval.page_ids import (
    LONG_TEXT,
    are_elsewhere,
    is_of_documents,
    is_one_text,
    part_of,
    whole_texts,
)
from stream_metrics.core.telemetry.roles.kinds import is_truncated_json
from stream_metrics.core.telemetry.spans import Span, text

MAX_DOC_ID_LENGTH: Final = 256
PASSAGE: Final = "passage"
"""The component of ``ids`` that stands for a text."""
ADDRESS: Final = "web_id"
"""The component for the address of its page. It tells results apart, and proves none the same."""

_GENERATED: Final = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
_ENDED: Final = re.compile(r"[.!?…)\]}>\"'`»|*_-]\s*$")
_LAST_NUMBER: Final = re.compile(r"[-_:/#.](\d{1,4})$")
_LAST_DIGITS: Final = re.compile(r"(?<!\d)\d{1,4}$")

Documents = Sequence[Document]


class TextLimit(NamedTuple):
    """The length at which the texts of a trace were cut off, likely and certainly; None if not.

    ``longest`` is the length of the longest texts, if they are more than two, or if it is one that
    people choose as a limit.
    """

    likely: int | None = None
    certain: int | None = None
    longest: int | None = None

    def is_truncated(self, name: str | None) -> bool:
        """Whether a name, an id or an answer was cut off."""
        return name is not None and len(name) == self.certain and not _GENERATED.fullmatch(name)

    def has_cut(self, value: Any) -> bool:
        """Whether a text in which several results may stand was cut off: it has that length, and
        ends within a sentence."""
        if not isinstance(value, str) or len(value) not in (
            self.likely,
            self.certain,
            self.longest,
        ):
            return False
        return len(value) == self.certain or _ENDED.search(value) is None


NO_TEXT_LIMIT: Final = TextLimit()


class Identity(NamedTuple):
    """What identifies a result: its ``doc_id``, components of ``ids``, and its ``url``.

    ``passage`` is whether the components stand for its text.
    """

    doc_id: str | None
    ids: Mapping[str, str]
    url: str | None
    passage: bool = False


class DocumentIds:
    """The identities of the documents that the searches of one turn found.

    Chunks of one page share its address, and may share its id. A text therefore identifies a
    document better than an address, unless the address belongs to the document itself and to one
    text only. It identifies a document together with an id that names a page. Without an id it does
    so as in deduplication: different addresses decide before it, and a short text counts only
    together with a place. A document without an id takes that of another one with the same text.

    Args:
        lists: The documents of each search.
        text_limit: Where texts were cut off.
        page_ids: The names of ids that name pages.
        named: The components of ``ids`` that settings name; if a document has any, they decide.
    """

    def __init__(
        self,
        lists: Sequence[Documents],
        text_limit: TextLimit = NO_TEXT_LIMIT,
        page_ids: Collection[str] = (),
        named: Callable[[Document], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self._text_limit, self._page_ids, self._named = text_limit, page_ids, named
        self._shared = _shared_addresses(lists)
        of_text: dict[str, dict[str, Document]] = {}
        of_id: dict[str, list[Document]] = {}
        for document in (document for documents in lists for document in documents):
            if document.id is not None:
                of_id.setdefault(document.id, []).append(document)
                if (key := _text_key(document)) is not None:
                    of_text.setdefault(key, {})[document.id] = document
        self._of_text = {
            key: next(iter(found.values())) for key, found in of_text.items() if len(found) == 1
        }
        self._of_form = _identified(lists)
        self._pages = {
            id: _Page.of(documents)
            for id, documents in of_id.items()
            if any(document.id_name in page_ids for document in documents)
        }
        self._regenerated = _regenerated(lists)
        self._numbered = _numbered(lists, page_ids)
        self._contradicted = _contradicted(lists)
        self._elsewhere = {  # addresses of documents that are no passages
            address_form(document.address)
            for documents in lists
            for document in documents
            if document.address and not self._is_passage(document)
        }

    def of(self, document: Document) -> Identity:
        """What identifies the document."""
        if document.alone and document.form is not None and not self._named(document):
            document = self._of_form.get(document.form, document)
        source, named = self._with_id(document), self._named(document)
        doc_id = None if source is None else source.id
        if named or not self._is_passage(document):
            return Identity(doc_id and _short(doc_id), named, document.address)
        place = address_form(document.address) if document.address else None
        url = None if place in self._elsewhere else document.address
        if source is None or doc_id is None:
            ids = {PASSAGE: _digest(_text_key(document) or "")}
            return Identity(None, ids | ({ADDRESS: _short(place)} if place else {}), url, True)
        page = self._pages[doc_id]
        doc_id, key = page.id_of(document, doc_id), page.key(document)
        ids = {PASSAGE: _digest(f"{doc_id}\n{key}")} if key is not None else {}
        return Identity(_short(doc_id), ids, url, True)

    @property
    def page_ids(self) -> frozenset[str]:
        """The names of ids that name pages of which the turn has documents."""
        return frozenset(name for page in self._pages.values() for name in page.names).intersection(
            self._page_ids
        )

    def problem(self, documents: Documents) -> tuple[str, str] | None:
        """Why the documents of a search cannot be identified, as reason and message; None if they
        can."""
        unnamed = [document for document in documents if not self._named(document)]
        if any(document.id in self._regenerated for document in unnamed):
            return "no_identity", "the same documents have different ids in each search"
        if self._numbered and unnamed:
            return "no_identity", "its ids only number the results"
        if any(document.id in self._contradicted for document in unnamed):
            return "no_identity", "documents with one id have other titles and addresses"
        for rank, document in enumerate(documents, 1):
            if self._named(document):
                continue
            source = self._with_id(document)
            page = None
            if source is not None and source.id_name in self._page_ids:
                page = self._pages[source.id or ""]
                if page.results > 1 and page.key(document) is None:
                    message = f"the id of document {rank} is that of a page, and it has no text"
                    return "no_identity", message
            by_text = self._by_text(document)
            if source is None and not by_text and self._address(document) is None:
                message = f"document {rank} has no id, no address of its own and no usable text"
                return "no_identity", message
            if self._text_limit.is_truncated(document.id or self._address(document)):
                return "truncated", f"the id or address of document {rank} was cut off"
            length = len(document.text or "")
            if length == self._text_limit.likely and (by_text or page is not None):
                return (
                    "truncated",
                    f"the text of document {rank} was cut off at {length} characters",
                )
        by_text_only = {
            (document.form, document.address and address_form(document.address))
            for document in unnamed
            if self._by_text(document)
        }
        if len(documents) > 1 and len(by_text_only) == 1 and all(map(self._by_text, documents)):
            return (
                "no_identity",
                f"all its {len(documents)} documents have the same text, and no ids",
            )
        return None

    def _with_id(self, document: Document) -> Document | None:
        """The document if it has an id, else the one whose id it takes."""
        if document.id is not None:
            return document
        key = _text_key(document)
        source = None if key is None else self._of_text.get(key)
        if source is not None and source.address and document.address:
            same = address_form(source.address) == address_form(document.address)
            return source if same else None
        return source

    def _is_passage(self, document: Document) -> bool:
        """Whether its text, or what it is of its page, identifies the document."""
        source = self._with_id(document)
        if source is not None:
            return source.id_name in self._page_ids
        return self._by_text(document) and _text_key(document) is not None

    def _by_text(self, document: Document) -> bool:
        """Whether only the text identifies the document."""
        if document.text is None or self._with_id(document) is not None:
            return False
        return document.url is None or address_form(document.url) in self._shared

    def _address(self, document: Document) -> str | None:
        address = document.address
        return None if address is None or address_form(address) in self._shared else address


class _Page(NamedTuple):
    """What has one id that names a page."""

    results: int
    names: frozenset[str]
    texts: Mapping[str, str]
    elsewhere: bool

    @classmethod
    def of(cls, documents: Documents) -> _Page:
        return cls(
            len(documents),
            frozenset(document.id_name for document in documents),
            whole_texts(document.form for document in documents if document.form is not None),
            are_elsewhere(documents) and not is_of_documents(documents[0].id_name),
        )

    def id_of(self, document: Document, id: str) -> str:
        """The id, together with the place of the document if it is unique there only."""
        place = document.container or document.address
        return (in_document(id, place) or id) if self.elsewhere and place else id

    def key(self, document: Document) -> str | None:
        """What tells the document apart from the others; None if nothing does."""
        form = document.form
        return part_of(document) if form is None else self.texts.get(form, form)


def _text_key(document: Document) -> str | None:
    """What is equal for documents that their text says to be one; None if it says nothing."""
    form = document.form
    if form is None or len(form) >= LONG_TEXT or document.alone:
        return form
    place = address_form(document.address) if document.address else document.container
    return None if place is None else f"{place}\n{form}"


def detect_text_limit(spans: Iterable[Span]) -> TextLimit:
    """Detects at which length the texts of spans were cut off.

    That is the length of the longest text. It is likely if several texts have it and people would
    choose such a number, and certain if one of them is JSON without its end.
    """
    longest: set[str] = set()
    length = 1
    for span in spans:
        for value in span.attributes.values():
            if isinstance(value, str) and len(value) >= length:
                if len(value) > length:
                    longest, length = set(), len(value)
                longest.add(value)
    if any(map(is_truncated_json, longest)):
        return TextLimit(length, length)
    power = length & (length - 1) == 0
    chosen = length % 50 == 0 or power or length & (length + 1) == 0
    usual = len(longest) > 2 or (length >= 100 and (power or length % 500 == 0))
    return TextLimit(
        length if len(longest) > 1 and chosen else None, None, length if usual else None
    )


def _shared_addresses(lists: Iterable[Documents]) -> frozenset[str]:
    """Addresses that one search returned for several documents."""
    shared: set[str] = set()
    for documents in lists:
        seen: dict[str, Document] = {}
        for document in documents:
            if document.id is None and document.address is not None:
                place = address_form(document.address)
                if place in seen and (document.text is None or seen[place].form != document.form):
                    shared.add(place)
                seen[place] = document
    return frozenset(shared)


def _identified(lists: Iterable[Documents]) -> dict[str, Document]:
    """The documents with an id or an address, by texts that no other such document has."""
    found: dict[str, list[Document]] = {}
    for document in (document for documents in lists for document in documents):
        if document.form is not None and not document.alone:
            found.setdefault(document.form, []).append(document)
    return {
        form: documents[0]
        for form, documents in found.items()
        if len({one.id for one in documents} - {None}) < 2
        and len({address_form(one.address) for one in documents if one.address}) < 2
    }


def _regenerated(lists: Sequence[Documents]) -> frozenset[str]:
    """Ids that are made for each search, where texts repeat and such ids never do: they look
    generated, end in the places of their documents, or count on from search to search."""
    ids: set[str] = set()
    known: set[str] = set()
    again = False
    running = _run_on(lists)
    for documents in lists:
        made = [
            one for place, one in enumerate(documents) if running or _may_be_made(one.id, place)
        ]
        if any(document.id in ids for document in made):
            return frozenset()
        shown = {one.form or address_form(one.address or "") for one in made} - {""}
        again = again or not shown.isdisjoint(known)
        ids |= {document.id for document in made if document.id is not None}
        known |= shown
    return frozenset(ids) if again else frozenset()


def _run_on(lists: Sequence[Documents]) -> bool:
    """Whether the ids of all searches count on, as ``r0, r1`` in one and ``r2`` in the next."""
    found = [_LAST_DIGITS.search(one.id or "") for documents in lists for one in documents]
    numbers = [int(number[0]) for number in found if number is not None]
    return len(numbers) == len(found) and all(b == a + 1 for a, b in pairwise(numbers))


def _numbered(lists: Sequence[Documents], page_ids: Collection[str]) -> bool:
    """Whether ids only number the results: those of each search are the beginning of one sequence,
    such as ``doc1, doc2, …``, and documents with one id differ.

    In a sequence without numbers all of them have to. One id alone may be that of a page or of its
    chunks.
    """
    first: dict[str, Document] = {}
    found: set[bool | None] = set()
    for documents in lists:
        for place, document in enumerate(documents):
            id = _written_id(document)
            if id is None or [*first][place : place + 1] not in ([], [id]):
                return False
            if place < len(first):
                found.add(_differs(first[id], document))
            elif id in first:
                return False
            else:
                first[id] = document
    numbers = [_LAST_DIGITS.search(id) for id in first]
    counting = all(
        number is not None and int(number[0]) in (place, place + 1)
        for place, number in enumerate(numbers)
    )
    if counting and (len(first) > 1 or any(id.isdecimal() for id in first)):
        return True in found
    names_pages = any(
        one.id_name in page_ids or is_of_documents(one.id_name) or LOCAL_ID.fullmatch(id)
        for id, one in first.items()
    )
    return not names_pages and (True in found if counting else found == {True} and len(first) > 1)


def _contradicted(lists: Iterable[Documents]) -> frozenset[str]:
    """Ids of documents with other titles and other addresses, whose texts do not tell them
    apart."""
    found: dict[str, list[Document]] = {}
    for document in (document for documents in lists for document in documents):
        if document.id is not None and document.title and document.address:
            found.setdefault(document.id, []).append(document)
    return frozenset(
        id
        for id, documents in found.items()
        if any(document.text is None for document in documents)
        and len({document.title for document in documents}) > 1
        and len({address_form(document.address or "") for document in documents}) > 1
    )


def _written_id(document: Document) -> str | None:
    """The id as it was recorded, without that of its page."""
    written = text(document.fields.get(document.id_name.rpartition(".")[2]))
    return written if written and (document.id or "").endswith(f"#{written}") else document.id


def _differs(one: Document, other: Document) -> bool | None:
    """Whether documents with one id differ: by address, else title, else text; None if nothing
    that both have compares."""
    if one.address and other.address:
        return address_form(one.address) != address_form(other.address)
    if one.title and other.title:
        return one.title != other.title
    if one.form is None or other.form is None:
        return None
    return not is_one_text((one.form, other.form))


def _may_be_made(id: str | None, place: int) -> bool:
    """Whether an id may be made for a search: such as a UUID, or ``q-1-0`` at the first place."""
    if id is None:
        return False
    if _GENERATED.fullmatch(id) is not None:
        return True
    number = _LAST_NUMBER.search(id)
    return number is not None and int(number[1]) in (place, place + 1)


def _short(value: str) -> str:
    return value if len(value) <= MAX_DOC_ID_LENGTH else _digest(value)


def _digest(value: str) -> str:
    return "sha256:" + hashlib.sha256(value.strip().encode(errors="surrogatepass")).hexdigest()
