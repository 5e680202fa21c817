"""Determines the id of each document of a turn, and detects ids that cannot be relied on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from stream_metrics.core.telemetry.contents.documents import Document
from stream_metrics.core.telemetry.roles.kinds import is_truncated_json
from stream_metrics.core.telemetry.spans import Span

MAX_DOC_ID_LENGTH: Final = 256

_GENERATED: Final = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)

Documents = Sequence[Document]


class TextLimit(NamedTuple):
    """The length at which the texts of a trace were cut off, likely and certainly; None if not."""

    likely: int | None = None
    certain: int | None = None

    def is_truncated(self, name: str | None) -> bool:
        """Whether a name, an id or an answer was cut off."""
        return name is not None and len(name) == self.certain and not _GENERATED.fullmatch(name)


NO_TEXT_LIMIT: Final = TextLimit()


class DocumentIds:
    """The ids of the documents that the searches of one turn found.

    Chunks of one page share its address. A text therefore identifies a document better than an
    address, unless the address belongs to the document itself and to one text only. A document
    without an id takes the id of another document with the same text.
    """

    def __init__(self, lists: Sequence[Documents], text_limit: TextLimit = NO_TEXT_LIMIT) -> None:
        self._text_limit = text_limit
        self._shared = _shared_addresses(lists)
        of_text: dict[str, set[str]] = {}
        for document in (document for documents in lists for document in documents):
            if document.id is not None and document.text is not None:
                of_text.setdefault(document.text, set()).add(document.id)
        self._ids = {text: next(iter(ids)) for text, ids in of_text.items() if len(ids) == 1}
        self._regenerated = _regenerated(lists)
        self._numbered = _numbered(lists)

    def of(self, document: Document) -> str | None:
        """The document's own id, else a digest of its text if the text identifies it, else None."""
        own = document.id
        if own is None and document.text is not None:
            own = self._ids.get(document.text)
        if own is not None:
            return own if len(own) <= MAX_DOC_ID_LENGTH else _digest(own)
        if self._by_text(document) and document.text is not None:
            return _digest(document.text)
        return None

    def problem(self, documents: Documents) -> tuple[str, str] | None:
        """Why the documents of a search cannot be identified, as reason and message; None if they
        can."""
        if self._regenerated and any(_is_generated(document) for document in documents):
            return "no_identity", "the same texts have different ids in each search"
        if self._numbered and documents:
            return "no_identity", "its ids only number the results"
        for rank, document in enumerate(documents, 1):
            if self.of(document) is None and self._address(document) is None:
                message = f"document {rank} has no id, no address of its own and no usable text"
                return "no_identity", message
            if self._text_limit.is_truncated(document.id or self._address(document)):
                return "truncated", f"the id or address of document {rank} was cut off"
            length = len(document.text or "")
            if length == self._text_limit.likely and self._by_text(document):
                return (
                    "truncated",
                    f"the text of document {rank} was cut off at {length} characters",
                )
        texts = [document.text for document in documents if self._by_text(document)]
        if len(texts) > 1 and len(texts) == len(documents) and len(set(texts)) == 1:
            return "no_identity", f"all its {len(texts)} documents have the same text, and no ids"
        return None

    def _by_text(self, document: Document) -> bool:
        """Whether only the text identifies the document."""
        if document.id is not None or document.text is None or document.text in self._ids:
            return False
        return document.url is None or document.url in self._shared

    def _address(self, document: Document) -> str | None:
        address = document.url or document.page
        return None if address in self._shared else address


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
    chosen = length % 50 == 0 or length & (length - 1) == 0 or length & (length + 1) == 0
    return TextLimit(length if len(longest) > 1 and chosen else None)


def _shared_addresses(lists: Iterable[Documents]) -> frozenset[str]:
    """Addresses that one search returned for several documents."""
    shared: set[str] = set()
    for documents in lists:
        seen: dict[str, str | None] = {}
        for document in documents:
            place = document.url or document.page
            if document.id is None and place is not None:
                if place in seen and (document.text is None or seen[place] != document.text):
                    shared.add(place)
                seen[place] = document.text
    return frozenset(shared)


def _regenerated(lists: Sequence[Documents]) -> bool:
    """Whether ids are generated for each search: texts repeat, and their ids never do."""
    ids: set[str] = set()
    texts: set[str] = set()
    again = False
    for documents in lists:
        made = [document for document in documents if _is_generated(document)]
        if any(document.id in ids for document in made):
            return False
        again = again or any(document.text in texts for document in made)
        ids |= {document.id for document in made if document.id is not None}
        texts |= {document.text for document in made if document.text is not None}
    return again


def _numbered(lists: Sequence[Documents]) -> bool:
    """Whether ids only number the results: they count from 0 or 1, and occur with several texts."""
    texts: dict[str, str] = {}
    several = False
    for documents in lists:
        for place, document in enumerate(documents):
            if document.id not in (str(place), str(place + 1)) or document.text is None:
                return False
            several = several or texts.setdefault(document.id, document.text) != document.text
    return several


def _is_generated(document: Document) -> bool:
    """Whether the id looks like a generated one, such as a UUID."""
    return document.id is not None and _GENERATED.fullmatch(document.id) is not None


def _digest(value: str) -> str:
    return "sha256:" + hashlib.sha256(value.strip().encode(errors="surrogatepass")).hexdigest()
