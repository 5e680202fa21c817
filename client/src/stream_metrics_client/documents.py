"""Converts the documents of retrievers to the results of an event.

Documents of LangChain and nodes of LlamaIndex are recognised by their attributes; neither library
is imported.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final
from uuid import UUID

JsonObject = dict[str, Any]

_FIELDS: Final = (
    "result_id", "entity_type", "ids", "doc_id", "url", "title", "snippet", "content", "fields",
    "score", "baseline_rank", "gain",
)  # fmt: skip
_TEXTS: Final = ("title", "snippet", "content")
_BODIES: Final = ("page_content", "pageContent", "text")
_SCORES: Final = ("score", "relevance_score")
_MAX_DOC_ID_LENGTH: Final = 256
_MAX_URL_BYTES: Final = 8_192
_LONG_TEXT: Final = 50  # characters from which the worker takes equal texts for evidence
_DOCUMENT_IDS: Final = ("doc_id", "document_id", "ref_doc_id", "source_id")
_FILES: Final = ("source", "file_path", "file_name", "filename")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
_LOCAL_ID: Final = re.compile(
    r"(chunk|passage|para|paragraph|segment|split)[\s_.:#-]?\d+([\s_.:-]\d+)?", re.IGNORECASE
)  # certainly unique in its document only
_PASSAGE: Final = "passage"
_PAGE: Final = "web_id"  # tells results apart if it differs, and proves none the same


def python_scalar(value: Any) -> Any:
    """A scalar of NumPy or a similar library as a Python scalar; other values unchanged."""
    return value.item() if getattr(value, "shape", None) == () else value


def text_id(value: Any) -> Any:
    """An id as text if it is a number or a UUID; other values unchanged.

    >>> text_id(17), text_id("a"), text_id(True)
    ('17', 'a', True)
    """
    value = python_scalar(value)
    return str(value) if isinstance(value, int | UUID) and not isinstance(value, bool) else value


def as_float(value: Any) -> Any:
    """A score as a float, also from NumPy; None for NaN and infinities; other values unchanged."""
    value = python_scalar(value)
    if isinstance(value, str | bool) or hasattr(value, "__len__"):
        return value
    if not hasattr(value, "__float__"):
        return value
    found = float(value)
    return found if math.isfinite(found) else None


def as_int(value: Any) -> Any:
    """A count as an int, also from NumPy; other values unchanged."""
    value = python_scalar(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def as_list(values: Any, what: str, *, ordered: bool = False) -> list[Any]:
    """The entries of a list, or of another collection unless `ordered` is set.

    Raises:
        TypeError: The value is something else. An iterator is refused, because reading it would
            leave the agent with an empty one.
    """
    kind = Sequence if ordered else Collection
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, kind):
        raise TypeError(f"{what} must be a list, not {type(values).__name__}")
    return list(islice(values, len(values)))


def as_result(document: Any) -> JsonObject:
    """Convert a document to a result, without a `result_id` unless the document has one.

    Args:
        document: A dict with the fields of a result, a LangChain `Document`, a LlamaIndex
            `NodeWithScore` or node, a text, or a pair of any of these with a score.

    Raises:
        TypeError: The document is none of these.

    >>> as_result({"id": 7, "text": "Leave is 30 days.", "embedding": [0.1]})
    {'doc_id': '7', 'content': 'Leave is 30 days.'}
    """
    if isinstance(document, tuple) and len(document) == 2:
        found = as_result(document[0]) | {"score": as_float(document[1])}
    elif isinstance(document, Mapping):
        found = _from_mapping(document)
    elif isinstance(document, str):
        found = _from_parts({}, document, {})
    elif hasattr(document, "page_content"):
        own_id = {"id": getattr(document, "id", None)}
        found = _from_parts(own_id, document.page_content, document.metadata)
    elif hasattr(document, "node") and hasattr(document, "score"):
        found = _from_node(document.node, document.score)
    elif hasattr(document, "node_id") and hasattr(document, "get_content"):
        found = _from_node(document, None)
    else:
        raise TypeError(
            f"a result is a dict, a text, a LangChain Document or a LlamaIndex node, not "
            f"{type(document).__name__}"
        )
    return {name: value for name, value in found.items() if value is not None}


def separate_chunks(documents: Sequence[Any], results: Sequence[JsonObject]) -> bool:
    """Identify the results of one search by id and text if their ids name pages; whether they do.

    Chunks of a page that have its id have different texts. A `doc_id` of a dict is what the caller
    says that it is.
    """
    converted = [
        result
        for document, result in zip(documents, results, strict=True)
        if not _says_its_id(document) and result.get("doc_id") and not result.get("ids")
    ]
    texts = [(result, form) for result in converted if (form := _form(result.get("content")))]
    first: dict[str, str] = {}
    if all(form == first.setdefault(repr(result["doc_id"]), form) for result, form in texts):
        return False
    for result, form in texts:
        result["ids"] = _passage(result["doc_id"], form)
        result.pop("url", None)
    return True


def _says_its_id(document: Any) -> bool:
    if isinstance(document, tuple):
        document = document[0]
    return isinstance(document, Mapping) and bool(document.get("doc_id"))


def baseline_ranks(results: Sequence[JsonObject], before: Iterable[Any]) -> list[int | None]:
    """The rank of each result in the list `before` reranking; None if it is not in the list.

    Documents are the same if they have the same id and text, or the same id if only one document in
    `before` has it. Without ids they are the same if they have the same text, or an address that
    only one document in `before` has.
    """
    ranks: dict[Any, list[int]] = {}
    for rank, document in enumerate(before, 1):
        for identity in (one for some in _identities(as_result(document)) for one in some):
            ranks.setdefault(identity, []).append(rank)
    return [_rank(result, ranks) for result in results]


def _rank(result: JsonObject, ranks: Mapping[Any, list[int]]) -> int | None:
    exact, loose = _identities(result)
    found = next((ranks[one] for one in exact if one in ranks), None)
    if found is None:
        found = next((ranks[one] for one in loose if len(ranks.get(one, ())) == 1), None)
    return None if found is None else found[0]


def _identities(result: JsonObject) -> tuple[list[Any], list[Any]]:
    """What identifies a result, and what does so if no other has it."""
    ids, text = result.get("ids"), tuple(map(_form, map(result.get, _TEXTS)))
    if isinstance(ids, Mapping) and _PASSAGE in ids:
        exact = [(_PASSAGE, ids[_PASSAGE]), (*text, result.get("doc_id"))]
        loose = [("doc_id", result.get("doc_id")), ("url", ids.get(_PAGE))]
    elif result.get("doc_id") or ids:
        named = next((name, repr(result[name])) for name in ("doc_id", "ids") if result.get(name))
        return [(*named, text)], [named]
    else:
        exact = [(*text, None)]
        url = result.get("url")
        loose = [("url", _address_form(url) if isinstance(url, str) else None)]
    return exact, [one for one in loose if one[1]]


def _from_mapping(document: Mapping[str, Any]) -> JsonObject:
    """Keep the fields of a result, and fill the others from known keys."""
    metadata = document.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    text = _first(document, ("content", *_BODIES))
    found = _from_parts(
        document,
        text,
        known,
        by_text=not (document.get("ids") or document.get("doc_id")),
        raw=metadata is not None or any(name in document for name in _BODIES),
    )
    if document.get("ids"):
        found["doc_id"] = None
    elif document.get("doc_id") and (chunk := text_id(_first(document, ("chunk_id",)))) is not None:
        found["ids"] = {"chunk_id": _in_document(str(chunk), str(document["doc_id"]))}
    found |= {name: document[name] for name in _FIELDS if document.get(name) is not None}
    found["doc_id"] = text_id(found.get("doc_id"))
    for name, convert in (("score", as_float), ("baseline_rank", as_int), ("gain", as_int)):
        found[name] = convert(found.get(name))
    return found


def _from_node(node: Any, score: Any) -> JsonObject:
    own_id = {"id": node.node_id}
    return _from_parts(own_id, node.get_content(), node.metadata) | {"score": as_float(score)}


def _from_parts(
    parts: Mapping[str, Any],
    text: Any,
    metadata: Mapping[str, Any] | None,
    *,
    by_text: bool = True,
    raw: bool = True,
) -> JsonObject:
    """The result of a document.

    Chunks of one page share its address, and the id that a program has put into their metadata may
    be the page's. If `by_text` is set, a text identifies them together with that. The address of
    the page would only be mistaken for the chunk's. A dict that is not `raw` is sent as it is.
    """
    known = metadata or {}
    url = next((known[name] for name in ("url", "source") if _is_address(known.get(name))), None)
    doc_id, is_own = _document_id(parts, known, url)
    ids, form = None, _form(text)
    if form and by_text and doc_id is None and raw and not parts.get("url"):
        place = _address_form(url) if url else _first(known, (*_DOCUMENT_IDS, *_FILES))
        if len(form) >= _LONG_TEXT or place is not None:
            ids = _passage(place if len(form) < _LONG_TEXT else None, form)
            ids |= {_PAGE: _short(_address_form(url))} if url else {}
    elif form and by_text and doc_id is not None and not is_own:
        ids = _passage(doc_id, form)
    return {
        "doc_id": doc_id,
        "ids": ids,
        "url": None if ids else url,
        "title": known.get("title") if isinstance(known.get("title"), str) else None,
        "content": text,
        "score": as_float(_first(known, _SCORES)),
    }


def _passage(of: Any, form: str) -> JsonObject:
    return {_PASSAGE: digest(form if of is None else f"{of}\n{form}")}


def _document_id(
    parts: Mapping[str, Any], about: Mapping[str, Any], url: str | None
) -> tuple[Any, bool]:
    """A document's id, also from its metadata, and whether it is its own: not that of a page.

    A chunk counts together with its document.
    """
    found, is_own = _first(parts, ("id", "document.id")), True
    if found is None:
        found, is_own = _first(about, ("id", "document.id")), False
    both = {**about, **parts}
    of = _first(both, _DOCUMENT_IDS) or url or _first(both, _FILES)
    if isinstance(found, str) and is_own and _LOCAL_ID.fullmatch(found):
        found = _in_document(found, of)
    for holder in (parts, about) if found is None else ():
        chunk = text_id(_first(holder, ("chunk_id",)))
        if chunk is not None:
            found, is_own = _in_document(chunk, of), True
        if found is None:
            found, is_own = text_id(_first(holder, ("doc_id",))), holder is parts
        if found is not None:
            break
    found = text_id(found)
    return _short(found) if isinstance(found, str) else found, is_own


def _in_document(chunk: Any, document: Any) -> Any:
    """A chunk's id together with its document's, unless it is a UUID or contains that already;
    None for the number of a chunk of an unknown document."""
    if not isinstance(chunk, str):
        return chunk
    if document is None:
        return None if chunk.isdecimal() else chunk
    of = str(text_id(document))
    contained = rf"(?<![^\W_]){re.escape(of)}(?![^\W_])"
    if _UUID.fullmatch(chunk) or (not of.isdecimal() and re.search(contained, chunk)):
        return chunk
    return f"{of}#{chunk}"


def _form(text: Any) -> str | None:
    """A text as the worker compares it; None if there is none."""
    if not isinstance(text, str):
        return None
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(folded.split()) or None


def _address_form(url: str) -> str:
    """An address without scheme, anchor and a slash at the end."""
    before, _, fragment = url.partition("://")[2].partition("#")
    host, slash, path = before.partition("/")
    route = f"#{fragment}" if fragment[:1] in ("/", "!") else ""
    return f"{host.casefold()}{slash}{path}".removesuffix("/") + route


def _short(text: str) -> str:
    return digest(text) if len(text) > _MAX_DOC_ID_LENGTH else text


def _is_address(value: Any) -> bool:
    return (
        isinstance(value, str)
        and value.startswith(("http://", "https://"))
        and len(value.encode(errors="replace")) <= _MAX_URL_BYTES
    )


def _first(known: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first value that is neither None nor empty."""
    values = (known.get(name) for name in names)
    return next((value for value in values if value is not None and value != ""), None)


def digest(text: str) -> str:
    """A digest of a text; surrounding white space is ignored.

    >>> digest("a")
    'sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'
    """
    return "sha256:" + hashlib.sha256(text.strip().encode(errors="surrogatepass")).hexdigest()


def without_texts(result: JsonObject) -> JsonObject:
    """The result without title, snippet and content.

    If it has neither id nor URL, a digest of its text identifies it, unless the text is short.
    """
    texts = [result.pop(name, None) for name in _TEXTS]
    if not any(result.get(name) for name in ("doc_id", "ids", "url")):
        form = next((form for one in reversed(texts) if (form := _form(one))), "")
        if len(form) >= _LONG_TEXT:
            result["ids"] = _passage(None, form)
    return result
