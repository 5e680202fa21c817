"""Reads the documents that a span records, in the formats of different instrumentations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from stream_metrics.core import unicode
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.spans import MIN_TEXT_LENGTH, Span, text

MAX_DEPTH: Final = 12

_LISTS: Final = (
    "documents",
    "nodes",
    "output",
    "outputs",
    "passages",
    "result",
    "results",
    "structuredContent",
)
_TEXTS: Final = ("page_content", "pageContent", "content", "text")
_URLS: Final = ("url", "link", "uri")
_OTHER_ADDRESS: Final = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
"""An address that is none of the web, such as ``kb://faq/1``: an id."""
_OWN_IDS: Final = ("id", "id_", "node_id")
_DOCUMENT_IDS: Final = ("doc_id", "document_id", "ref_doc_id", "source_id")
_FILES: Final = ("source", "file_path", "file_name", "filename")
PARTS: Final = (
    "chunk_id",
    "chunk_index",
    "chunk_number",
    "chunk",
    "split_id",
    "start_index",
    "passage_id",
    "page",
    "page_number",
    "page_label",
)
"""Names of what tells the parts of one document apart."""
LOCAL_ID: Final = re.compile(
    r"(chunk|passage|para|paragraph|segment|split)[\s_.:#-]?\d+([\s_.:-]\d+)?", re.IGNORECASE
)
"""Ids of chunks that are certainly unique in their document only."""
_RANK: Final = re.compile(
    r"#\d+|\[\d+\]|(result|hit|match|rank|source|ref|citation)[ _.:#-]?\d+|turn\d+[a-z]+\d+"
    r"|https://api\.bing\.\S+#\w+\.\d+",
    re.IGNORECASE,
)
"""Ids that number the results of a search."""
_UNIQUE: Final = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
_ROLES: Final = ("human", "user", "ai", "assistant", "system", "tool", "function")
_NODE: Final = re.compile(
    r"<?\s*NodeWithScore\(node=\w+\(id_?='?(?P<id>[^,')]++)'?[^)]*+\)\s*,\s*score=(?P<score>[^)>]*)\)"
)
_HAYSTACK: Final = re.compile(
    r"Document\(id=(?P<id>[^,)'\"]+)(?:,.*?score: (?P<score>[-\d.eE]+))?", re.S
)


class UnusableDocuments(Enum):
    """Why the documents in an attribute cannot be used."""

    CUT = "cut off"
    REDACTED = "redacted"
    SEVERAL = "several lists"


@dataclass(frozen=True, slots=True)
class Document:
    """What is known of one document.

    ``page`` is the address of what it is a part of; ``fields`` are all its own fields and its
    metadata. ``id_name`` is the name under which it has its id. ``alone`` is whether its text
    identifies it however short it is, because a tool returned nothing else.
    """

    id: str | None = None
    url: str | None = None
    page: str | None = None
    title: str | None = None
    text: str | None = None
    score: float | None = None
    fields: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)
    id_name: str = field(default="", compare=False)
    alone: bool = field(default=False, compare=False)
    _form: str | None = field(default=None, init=False, compare=False, repr=False)

    def filled_from(self, other: Document) -> Document:
        """This document, with what it lacks taken from the other."""
        return Document(
            self.id or other.id,
            self.url or other.url,
            self.page or other.page,
            self.title or other.title,
            self.text or other.text,
            self.score if self.score is not None else other.score,
            {**other.fields, **self.fields},
            other.id_name if self.id is None else self.id_name,
            self.alone and other.alone,
        )

    @property
    def signals(self) -> int:
        """The number of properties that can identify it: id, text, address."""
        return (self.id is not None) + (self.text is not None) + bool(self.url or self.page)

    @property
    def address(self) -> str | None:
        """Its own address, or else that of its page."""
        return self.url or self.page

    @property
    def form(self) -> str | None:
        """The text as it is compared."""
        if self._form is None and self.text is not None:
            object.__setattr__(self, "_form", text_form(self.text))
        return self._form

    @property
    def container(self) -> str | None:
        """The id of what it is a part of, or else the file, as far as its fields say."""
        return _named(self.fields, _DOCUMENT_IDS) or _named(self.fields, _FILES)


def text_form(value: str) -> str:
    """The form in which deduplication compares texts: case, white space and equivalent characters
    count for nothing.

    >>> text_form(" Zu\\u0308rich\\r\\nWEST") == text_form("z\\xfcrich west")
    True
    """
    return " ".join(unicode.nfc(unicode.casefold(unicode.nfc(value))).split())


def address_form(url: str) -> str:
    """An address without what does not change the page: scheme, case of the host, anchor and a
    slash at the end.

    >>> address_form("https://Example.org/a/#top") == address_form("http://example.org/a")
    True
    """
    rest = url.partition("://")[2] or url
    before, _, fragment = rest.partition("#")
    host, slash, path = before.partition("/")
    route = f"#{fragment}" if fragment[:1] in ("/", "!") else ""
    return f"{host.casefold()}{slash}{path}".removesuffix("/") + route


def same_document(one: Document, other: Document) -> bool | None:
    """Whether both are one document: by id, else text, else address; None if nothing compares.

    >>> same_document(Document(id="a", text="x"), Document(id="b", text="x"))
    False
    >>> same_document(Document(id="a"), Document(text="x")) is None
    True
    """
    if one.id is not None and other.id is not None:
        return one.id == other.id
    if one.text is not None and other.text is not None:
        return one.form == other.form
    places = (one.address, other.address)
    return places[0] == places[1] if all(places) else None


def differ(some: Sequence[Document], others: Sequence[Document]) -> bool:
    """Whether two records of one result show other documents, or another number of them.

    Only what both show compares. A text may be cut off in one of them, or have words around it.

    >>> differ([Document(id="a", text="One.")], [Document(id="a")])
    False
    >>> differ([Document(id="a")], [Document(id="b")])
    True
    """
    if len(some) != len(others):
        pairs = zip(some, others, strict=False)
        return not some or not others or any(shows_same(*pair) is not None for pair in pairs)
    return any(shows_same(one, other) is False for one, other in zip(some, others, strict=True))


def shows_same(one: Document, other: Document) -> bool | None:
    """Whether two records show the same document; None if nothing that both show compares."""
    if one.id is not None and other.id is not None and one.id_name == other.id_name:
        return one.id == other.id
    pairs = ((one.id, other.id), (one.address, other.address))
    compared = [mine == its for mine, its in pairs if mine is not None and its is not None]
    if one.form is not None and other.form is not None:
        short, long = sorted((one.form, other.form), key=len)
        compared.append(short == long or (len(short) >= MIN_TEXT_LENGTH and short in long))
    return any(compared) if compared else None


class DocumentIndex:
    """Finds documents as ``same_document`` compares them, in constant time.

    An id may name a page of which the documents are parts. So of documents with one id, one with
    the same text is preferred.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._places: dict[tuple[str, ...], int] = {}
        self._several: set[str] = set()  # ids of several texts
        for place, document in enumerate(documents):
            form = document.form
            for key in _stored_keys(document, form):
                self._places.setdefault(key, place)
            if document.id is not None:
                exact = ("exact", document.id, form or "")
                if self._places["id", document.id] != self._places.setdefault(exact, place):
                    self._several.add(document.id)

    def position(self, document: Document) -> int | None:
        """The position, from 0, of the first document that is the same; None if none is."""
        form = document.form
        exact = self._places.get(("exact", document.id or "", form or ""))
        if exact is not None:
            return exact
        places = [self._places[key] for key in _lookup_keys(document, form) if key in self._places]
        return min(places, default=None)

    def certain_position(self, document: Document) -> int | None:
        """The same; None also if its id is that of documents with several other texts."""
        place = self.position(document)
        if place is not None and document.id in self._several:
            return place if ("exact", document.id, document.form or "") in self._places else None
        return place


def _stored_keys(document: Document, form: str | None) -> Iterator[tuple[str, ...]]:
    address = document.address
    if document.id is not None:
        yield "id", document.id
    for among in ("all",) if document.id is not None else ("all", "without id"):
        if form is not None:
            yield among, "text", form
        if address:
            yield among, "address", address
            if form is None:
                yield among, "address, without text", address


def _lookup_keys(document: Document, form: str | None) -> Iterator[tuple[str, ...]]:
    address = document.address or ""
    among = "all" if document.id is None else "without id"
    if document.id is not None:
        yield "id", document.id
    if form is None:
        yield among, "address", address
    else:
        yield among, "text", form
        yield among, "address, without text", address


def shares_ids(documents: Iterable[Document]) -> bool:
    """Whether documents of one list have the same id, and different texts."""
    found: dict[str, Document] = {}
    return any(
        document.form != found.setdefault(document.id, document).form
        for document in documents
        if document.id is not None and document.text is not None
    )


Found = list[Document] | UnusableDocuments | None


@dataclass(frozen=True, slots=True)
class SpanDocuments:
    """The documents that a span names.

    ``documents`` is None if it names none; ``problem`` then says why, as reason and message, if
    there is a reason.
    """

    documents: tuple[Document, ...] | None
    problem: tuple[str, str] | None = None


def documents_of(
    span: Span,
    attributes: Iterable[str],
    *,
    strict: bool = False,
    read: Callable[[Any], Found | tuple[str, str]] | None = None,
) -> SpanDocuments:
    """The documents in the attributes of a span, each completed from all attributes that agree.

    Args:
        span: The span.
        attributes: Where to look; the first that has documents determines how many there are.
        strict: Whether to accept only values that have the form of documents, as in a tool's
            result.
        read: Reads a value instead; a reason and a message say why it cannot.
    """
    lists: list[list[Document]] = []
    cut = redacted = several = unread = None
    for name in attributes:
        value = span.value(name)
        documents: Found | tuple[str, str]
        if value is None:
            documents = documents_in_attributes(span, name)
        else:
            documents = documents_in_value(value, strict) if read is None else read(value)
        if isinstance(documents, tuple):
            cut = cut or (name if documents[0] == "truncated" else None)
            redacted = redacted or (name if documents[0] == "content_off" else None)
            if documents[0] not in ("truncated", "content_off"):
                unread = unread or documents
            continue
        if name not in span.attributes and sum(name in each.attributes for each in span.events) > 1:
            documents = UnusableDocuments.SEVERAL
        if documents is UnusableDocuments.CUT:
            cut = cut or name
        elif documents is UnusableDocuments.REDACTED:
            redacted = redacted or name
        elif documents is UnusableDocuments.SEVERAL:
            several = several or name
        elif isinstance(documents, list):
            lists.append(documents)
    if unread and (not lists or unread[0] == "ambiguous_documents"):
        return SpanDocuments(None, unread)
    if not lists:
        if cut:
            return SpanDocuments(None, ("truncated", f"the attribute {cut} was cut off"))
        if redacted:
            return SpanDocuments(None, ("content_off", f"the attribute {redacted} is redacted"))
        if several:
            message = f"the attribute {several} has several lists of documents"
            return SpanDocuments(None, ("unrecognised", message))
        return SpanDocuments(None)
    first = lists[0]
    for other in lists[1:]:
        if len(other) != len(first):
            message = "its attributes name different numbers of documents"
            return SpanDocuments(None, ("truncated", message))
        pairs = [*zip(first, other, strict=True)]
        if any(same_document(mine, its) is False for mine, its in pairs):
            return SpanDocuments(None, ("truncated", "its attributes name different documents"))
        first = [mine.filled_from(its) for mine, its in pairs]
    if cut and _names_ids(span, cut) and any(document.id is None for document in first):
        message = f"the attribute {cut} was cut off, and no other has the ids"
        return SpanDocuments(tuple(first), ("truncated", message))
    return SpanDocuments(tuple(first))


def _names_ids(span: Span, prefix: str) -> bool:
    """Whether the rest of a truncated attribute shows that documents had ids."""
    value = span.value(prefix)
    if value is not None:
        return True
    return any(
        name.startswith(prefix + ".") and name.endswith((".id", "_id")) for name in span.attributes
    )


def documents_in_value(value: Any, strict: bool = False) -> Found:
    """The documents in an attribute's value; None if it is no list of documents."""
    try:
        return _find(value, strict, 0)
    except RecursionError:
        return None


def says_failed(value: Any) -> bool:
    """Whether a tool's message says that the call failed.

    >>> says_failed('{"type": "tool", "data": {"content": "no such index", "status": "error"}}')
    True
    """
    value = parse_value(value) if isinstance(value, str) and value.startswith("{") else value
    for name in ("output", "kwargs", "data"):
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    is_message = isinstance(value, dict) and not {"content", "tool_call_id"}.isdisjoint(value)
    return is_message and (value.get("status") == "error" or value.get("isError") is True)


def documents_in_attributes(span: Span, prefix: str) -> Found:
    """Documents whose fields are flattened to attributes, such as ``documents.0.document.id``."""
    parts: dict[int, dict[str, Any]] = {}
    start = prefix + "."
    for name, value in span.attributes.items():
        if name.startswith(start):
            number, dot, part = name[len(start) :].partition(".")
            if dot and number.isdecimal() and number.isascii() and len(number) < 8:
                parts.setdefault(int(number), {})[part.removeprefix("document.")] = value
    if not parts:
        return None
    if span.dropped_attributes or len(parts) != max(parts) + 1:
        return UnusableDocuments.CUT
    return [usual_document(parts[number]) for number in sorted(parts)]


def flatten_lists(value: Any) -> Any:
    """The list in a value, with lists of lists joined to one, as joiners are given them."""
    value = find_list(value)
    if isinstance(value, list) and value and all(isinstance(inner, list) for inner in value):
        return [item for inner in value for item in inner]
    return value


def find_list(value: Any) -> Any:
    """The list under one of the names that frameworks use, also in JSON; else the value itself."""
    value = parse_value(value) if isinstance(value, str) else value
    if isinstance(value, dict):
        for name in _LISTS:
            if isinstance(value.get(name), list):
                return find_list(value[name])
    return value


def names_no_documents(value: Any) -> bool:
    """Whether an output says by one of the usual names that there are no documents.

    >>> names_no_documents('{"documents": []}'), names_no_documents('{"errors": []}')
    (True, False)
    """
    value = parse_value(value) if isinstance(value, str) and value.startswith("{") else value
    return isinstance(value, dict) and any(value.get(name) == [] for name in _LISTS)


def _find(value: Any, strict: bool, depth: int) -> Found:
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, str):
        return _in_text(value, strict, depth)
    if isinstance(value, list):
        return _in_list(value, strict, depth)
    return _in_object(value, strict, depth) if isinstance(value, dict) else None


def _in_text(value: str, strict: bool, depth: int) -> Found:
    value = value.strip()
    inner = parse_value(value) if value.startswith(("[", "{", '"', "Document(")) else None
    if inner is None and value and text(value) is None:
        return UnusableDocuments.REDACTED
    if not value.startswith(("[", "{", '"', "Document(", "<")):
        return None
    if inner is None and value.startswith(("[", "{")):
        return UnusableDocuments.CUT
    if inner is None:
        document = _from_repr(value)
        return None if document is None else [document]
    return _find(inner, strict, depth + 1)


def _in_list(value: list[Any], strict: bool, depth: int) -> Found:
    documents = [_as_document(item, strict) for item in value]
    if all(document is not None for document in documents):
        return [document for document in documents if document is not None]
    parts = [item for item in value if isinstance(item, dict) and item.get("type") == "text"]
    return _in_parts(parts, strict, depth) if len(parts) == len(value) else None


def _in_parts(parts: list[Any], strict: bool, depth: int) -> Found:
    """The documents in all content parts of a message or of a tool's result."""
    inner = [_find(part.get("text"), strict, depth + 1) for part in parts if isinstance(part, dict)]
    if any(documents is UnusableDocuments.CUT for documents in inner):
        return UnusableDocuments.CUT
    if len(inner) < len(parts) or not all(isinstance(documents, list) for documents in inner):
        return None
    return [
        document for documents in inner if isinstance(documents, list) for document in documents
    ]


def _in_object(value: dict[str, Any], strict: bool, depth: int) -> Found:
    inner = value.get("kwargs")
    if value.get("type") == "constructor" and isinstance(inner, dict):
        kind = value.get("id")
        if isinstance(kind, list) and kind and kind[-1] == "Document":
            return [usual_document(inner)]
        return _find(inner, strict, depth + 1)
    if value.get("type") in _ROLES and isinstance(value.get("data"), dict):
        return _find({"type": value["type"], **value["data"]}, strict, depth + 1)
    if isinstance(value.get("blocks"), list) and "tool_name" in value:
        return _in_parts(value["blocks"], strict, depth)
    names: tuple[str, ...] = _LISTS
    if value.get("type") == "tool" or "tool_call_id" in value or "isError" in value:
        names = (*_LISTS, "content", "artifact")
    problem: Found = None
    for name in names:
        documents = _find(value[name], strict, depth + 1) if value.get(name) is not None else None
        if isinstance(documents, list):
            return documents
        problem = problem or documents
    of_components = bool(value) and all(isinstance(inner, dict) for inner in value.values())
    if problem is None and depth < 2 and of_components:
        return _in_components(value, strict)
    return problem


def _in_components(value: dict[str, Any], strict: bool) -> Found:
    """The documents that one component of a pipeline returned.

    If others have outputs too, the documents may be those of an intermediate step.
    """
    outputs = [
        documents
        for inner in value.values()
        if (documents := _in_object(inner, strict, 2)) is not None
    ]
    return (
        outputs[0]
        if outputs and len(value) == 1
        else UnusableDocuments.SEVERAL
        if outputs
        else None
    )


def _as_document(value: Any, strict: bool) -> Document | None:
    if isinstance(value, str):
        inner = parse_value(value) if value.startswith("{") else None
        if isinstance(inner, dict):
            return _as_document(inner, strict)
        document = _from_repr(value)
        if document is None and not strict and not value.strip().startswith(("[", "{", "<")):
            document = Document(text=text(value))
        return document
    if not isinstance(value, dict):
        return None
    inner = value.get("kwargs")
    if value.get("type") == "constructor" and isinstance(inner, dict):
        return (
            _as_document({"type": "Document", **inner}, strict) if "page_content" in inner else None
        )
    for name in ("node", "document"):
        if isinstance(value.get(name), dict):
            return _as_document({"score": value.get("score"), **value[name]}, strict)
    if "role" in value or "tool_calls" in value or value.get("type") in _ROLES:
        return None
    if value.get("type") == "text" and set(value) <= {"type", "text", "id", "annotations"}:
        return None  # a content part
    document = usual_document(value)
    if strict and document.text is None and value.get("type") != "Document":
        return document if document.url and document.title else None
    known = document.signals or "metadata" in value or "id" in value or "score" in value
    return document if known else None


def usual_document(value: dict[str, Any]) -> Document:
    """The document in an object, by the names that frameworks use."""
    parts = {name.removeprefix("document."): part for name, part in value.items()}
    metadata = next(
        (parts[name] for name in ("metadata", "meta", "extra_info") if name in parts), None
    )
    if isinstance(metadata, str):
        metadata = parse_value(metadata)
    about: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    resource = parts.get("text_resource")
    score = parts.get("score")
    where = _url(parts, _URLS)
    page = _url(about, (*_URLS, "source")) or _url(parts, ("source",))
    body = next((content for name in _TEXTS if (content := text(parts.get(name)))), None)
    if body is None and isinstance(resource, dict):
        body = text(resource.get("text"))
    if body is None and isinstance(blocks := parts.get("content"), list):
        texts = [one.get("text") for one in blocks if isinstance(one, dict)]
        body = text("\n".join(one for one in texts if isinstance(one, str)))
    id, id_name = _id(parts, about, where or page)
    if id is None and where is None:
        names = (name for name in _URLS if _OTHER_ADDRESS.fullmatch(text(parts.get(name)) or ""))
        id_name = next(names, "")
        id = text(parts.get(id_name))
    return Document(
        id,
        where,
        page,
        text(parts.get("title")) or text(about.get("title")),
        body,
        _finite(score),
        {**about, **parts},
        id_name,
    )


def _id(parts: dict[str, Any], about: dict[str, Any], page: str | None) -> tuple[str | None, str]:
    """The document's own id, and its name. That of a chunk counts together with its document."""
    for name in _OWN_IDS:
        if (own := text(parts.get(name))) and not _RANK.fullmatch(own):
            fields = {**about, **parts}
            place = _named(fields, _DOCUMENT_IDS) or page or _named(fields, _FILES)
            return (in_document(own, place) if LOCAL_ID.fullmatch(own) else own), name
    of_metadata = text(parts.get("metadata.id")) or text(about.get("id"))
    for holder, prefix in ((parts, ""), (about, "metadata.")):
        whole = text(holder.get("doc_id"))
        if (chunk := text(holder.get("chunk_id"))) is not None:
            both = {**about, **parts, **holder}
            document = _named(both, _DOCUMENT_IDS) or page or _named(both, _FILES)
            if (id := in_document(chunk, document)) is not None:
                return id, f"{prefix}chunk_id"
        if whole:
            return whole, f"{prefix}doc_id"
        if holder is parts and of_metadata:
            return of_metadata, "metadata.id"
    of_metadata = text(about.get("document.id"))
    return of_metadata, "metadata.document.id" if of_metadata else ""


def _named(fields: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((value for name in names if (value := text(fields.get(name)))), None)


def in_document(part: str, document: str | None) -> str | None:
    """A chunk's id together with that of its document, unless it is unique or contains that
    already; None for the number of a chunk of an unknown document.

    >>> in_document("chunk_0", "faq"), in_document("faq/0", "faq"), in_document("0", None)
    ('faq#chunk_0', 'faq/0', None)
    """
    if document is None:
        return None if part.isdecimal() else part
    if _UNIQUE.fullmatch(part) or _contains(part, document):
        return part
    return f"{document}#{part}"


def _contains(part: str, document: str) -> bool:
    if document.isdecimal():
        return False  # a number in it may be that of the chunk
    return re.search(rf"(?<![^\W_]){re.escape(document)}(?![^\W_])", part) is not None


def _url(parts: dict[str, Any], names: Iterable[str]) -> str | None:
    for name in names:
        url = text(parts.get(name))
        if url is not None and url.startswith(("http://", "https://")) and len(url) > 8:
            return url if len(url.encode(errors="replace")) <= 8192 else None
    return None


def _from_repr(value: str) -> Document | None:
    """A document as a framework's ``repr`` writes it; texts in these are cut off and ignored."""
    value = value.strip()
    if match := _NODE.match(value):
        return Document(id=match["id"], score=_number(match["score"]), id_name="id")
    if not value.startswith("Document("):
        return None
    inner = parse_value(value)
    if isinstance(inner, dict):
        return usual_document(inner)
    if match := _HAYSTACK.match(value):
        return Document(id=match["id"].strip(), score=_number(match["score"]), id_name="id")
    return None


def _finite(value: Any) -> float | None:
    try:
        return float(value) if type(value) in (int, float) and math.isfinite(value) else None
    except OverflowError:
        return None


def _number(value: str | None) -> float | None:
    try:
        return _finite(float(value or "nan"))
    except ValueError:
        return None
