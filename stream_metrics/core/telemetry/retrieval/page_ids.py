"""Detects ids that name a page, of which a search returned several parts.

Instrumentations record what a program calls an id, and programs keep the id of a page in the
metadata of its chunks. What shows it is decided over all searches of a trace, so that the result
does not depend on their order.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from stream_metrics.core.telemetry.contents.documents import (
    LOCAL_ID,
    PARTS,
    Document,
    address_form,
)
from stream_metrics.core.telemetry.spans import text

LONG_TEXT: Final = 50  # characters from which an equal text is evidence, as in deduplication

_OF_DOCUMENTS: Final = frozenset(
    ("doc_id", "metadata.doc_id", "metadata.id", "metadata.document.id")
)
_LOCAL_CHUNK: Final = re.compile(
    r"[a-z]{0,4}[\s_.:#-]?\d+([\s_.:-]\d+)?|\d+[-_:.]\d+", re.IGNORECASE
)
_ELLIPSIS: Final = ("…", "...")
_SHORTEST_CUT: Final = 20  # characters from which the beginning of another text was cut off there


def find_page_ids(lists: Iterable[Sequence[Document]]) -> frozenset[str]:
    """The names of ids that name pages, such as ``metadata.doc_id``.

    One id shows it that documents with different texts have: in one search; or in several, if its
    name says that it is a document's, if it is unique in a document at most (``chunk_0``), or if
    the documents also differ in their pages or places. A text that was cut off is no other text.
    """
    groups: dict[tuple[str, str], list[tuple[int, Document]]] = {}
    for number, documents in enumerate(lists):
        for document in documents:
            if document.id is not None:
                groups.setdefault((document.id_name, document.id), []).append((number, document))
    found: set[str] = set()
    for (name, id), group in groups.items():
        if name not in found and len(group) > 1 and _names_page(name, id, group):
            found.add(name)
    return frozenset(found)


def _names_page(name: str, id: str, group: Sequence[tuple[int, Document]]) -> bool:
    of_search: dict[int, set[str]] = {}
    for number, document in group:
        if document.form is not None:
            of_search.setdefault(number, set()).add(document.form)
    if any(not is_one_text(forms) for forms in of_search.values()):
        return True
    documents = [document for _, document in group]
    forms = set().union(*of_search.values())
    if not is_one_text(forms):
        is_chunks = name.endswith("chunk_id") and _LOCAL_CHUNK.fullmatch(id) is not None
        if is_of_documents(name) or is_chunks or LOCAL_ID.fullmatch(id) is not None:
            return True
        return are_elsewhere(documents) or _are_parts(documents)
    if any(document.text is None for document in documents):
        return _are_parts(documents)
    return len(min(forms, key=len)) < LONG_TEXT and are_elsewhere(documents)


def is_of_documents(name: str) -> bool:
    """Whether the name of an id says that it is that of a document rather than a chunk."""
    return name in _OF_DOCUMENTS


def are_elsewhere(documents: Iterable[Document]) -> bool:
    """Whether some of the documents are parts of others than the rest."""
    containers = {document.container for document in documents} - {None}
    addresses = {address_form(one.address) for one in documents if one.address}
    return len(containers) > 1 or (len(addresses) > 1 and not containers)


def _are_parts(documents: Sequence[Document]) -> bool:
    return any(
        len({text(document.fields.get(name)) for document in documents} - {None}) > 1
        for name in PARTS
    )


def part_of(document: Document) -> str | None:
    """What tells a document without a text apart from other parts of its page."""
    named = (f"{name} {found}" for name in PARTS if (found := text(document.fields.get(name))))
    return next(named, None)


def is_one_text(forms: Collection[str]) -> bool:
    """Whether all texts are one that was cut off at several lengths."""
    longest = max(forms, key=len, default="")
    return all(form == longest or _begins(form, longest) for form in forms)


def _begins(form: str, whole: str) -> bool:
    """Whether the text may be the other one, cut off."""
    begins = whole.startswith(_beginning(form))
    if not begins or form.endswith(_ELLIPSIS):
        return begins
    goes_on = whole[
        len(form) - 1 : len(form) + 1
    ].isdigit()  # "part 1" is no beginning of "part 10"
    return len(form) >= _SHORTEST_CUT and not goes_on


def _beginning(form: str) -> str:
    return form.rstrip("….").rstrip() if form.endswith(_ELLIPSIS) else form


def whole_texts(forms: Iterable[str]) -> dict[str, str]:
    """For each text the longest one that begins with it, if it may have been cut off there.

    >>> whole_texts(["one…", "one two", "other"])["one…"]
    'one two'
    """
    order = sorted(set(forms), key=lambda form: (_beginning(form), form))
    beginnings = [_beginning(form) for form in order]
    whole: dict[str, str] = {}
    for place in reversed(range(len(order))):
        form = whole[order[place]] = order[place]
        last = bisect_right(beginnings, beginnings[place] + chr(0x10FFFF)) - 1
        if last > place and _begins(form, order[place + 1]):
            longest = whole[order[place + 1]]
            if longest == whole[order[last]]:  # else it may be either
                whole[form] = longest
    return whole
