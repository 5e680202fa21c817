"""Converts the documents of retrievers to the results of an event.

Documents of LangChain and nodes of LlamaIndex are recognised by their attributes; neither library
is imported.
"""

from __future__ import annotations

import hashlib
import math
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
DIGEST: Final = "sha256:"
_MAX_URL_BYTES: Final = 8_192


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


def baseline_ranks(results: Sequence[JsonObject], before: Iterable[Any]) -> list[int | None]:
    """The rank of each result in the list `before` reranking; None if it is not in the list.

    Documents are the same if they have the same id. Without ids they are the same if they have the
    same text, or an address that only one document in `before` has.
    """
    ranks: dict[Any, list[int]] = {}
    for rank, document in enumerate(before, 1):
        for identity in _identities(as_result(document)):
            ranks.setdefault(identity, []).append(rank)
    return [_rank(result, ranks) for result in results]


def _rank(result: JsonObject, ranks: Mapping[Any, list[int]]) -> int | None:
    for identity in _identities(result):
        found = ranks.get(identity, [])
        if found and (identity[0] != "url" or len(found) == 1):
            return found[0]
    return None


def _identities(result: JsonObject) -> list[tuple[str, Any]]:
    ids = [(name, repr(result[name])) for name in ("doc_id", "ids") if result.get(name)]
    if ids and not str(result.get("doc_id")).startswith(DIGEST):
        return ids[:1]
    text = tuple(result.get(name) for name in _TEXTS)
    return [*ids, ("text", text), *([("url", result["url"])] if result.get("url") else [])]


def _from_mapping(document: Mapping[str, Any]) -> JsonObject:
    """Keep the fields of a result, and fill the others from known keys."""
    metadata = document.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    text = _first(document, ("content", *_BODIES))
    raw = metadata is not None or any(name in document for name in _BODIES)
    found = _from_parts(document, text, known, digests=raw and not document.get("url"))
    if document.get("ids"):
        found["doc_id"] = None
    found |= {name: document[name] for name in _FIELDS if document.get(name) is not None}
    found["doc_id"] = text_id(found.get("doc_id"))
    for name, convert in (("score", as_float), ("baseline_rank", as_int), ("gain", as_int)):
        found[name] = convert(found.get(name))
    return found


def _from_node(node: Any, score: Any) -> JsonObject:
    own_id = {"id": node.node_id}
    return _from_parts(own_id, node.get_content(), node.metadata) | {"score": as_float(score)}


def _from_parts(
    parts: Mapping[str, Any], text: Any, metadata: Mapping[str, Any] | None, digests: bool = True
) -> JsonObject:
    """The result of a document.

    Chunks of one page share its address. A document without an id therefore gets a digest of its
    text as `doc_id`, so that chunks remain distinct.
    """
    known = metadata or {}
    url = next((known[name] for name in ("url", "source") if _is_address(known.get(name))), None)
    doc_id = _document_id(parts, known, url)
    if doc_id is None and digests and isinstance(text, str) and text.strip():
        doc_id = digest(text)
    return {
        "doc_id": doc_id,
        "url": url,
        "title": known.get("title") if isinstance(known.get("title"), str) else None,
        "content": text,
        "score": as_float(_first(known, _SCORES)),
    }


def _document_id(parts: Mapping[str, Any], about: Mapping[str, Any], url: str | None) -> Any:
    """A document's id, also from its metadata.

    The number of a chunk counts only together with its document.
    """
    found = _first(parts, ("id", "document.id"))
    found = _first(about, ("id", "document.id")) if found is None else found
    for holder in (parts, about) if found is None else ():
        chunk, of = (text_id(_first(holder, (name,))) for name in ("chunk_id", "doc_id"))
        if isinstance(chunk, str) and chunk.isdecimal():
            found = f"{of or url}#{chunk}" if of or url else None
        else:
            found = of if chunk is None else chunk
        if found is not None:
            break
    found = text_id(found)
    return digest(found) if isinstance(found, str) and len(found) > _MAX_DOC_ID_LENGTH else found


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
    """A stable id for a text; surrounding white space is ignored.

    >>> digest("a")
    'sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'
    """
    return DIGEST + hashlib.sha256(text.strip().encode(errors="surrogatepass")).hexdigest()


def has_own_id(result: JsonObject) -> bool:
    """Whether the result has a `doc_id` that is not the digest of a text."""
    doc_id = result.get("doc_id")
    return doc_id is not None and not str(doc_id).startswith(DIGEST)


def without_texts(result: JsonObject) -> JsonObject:
    """The result without title, snippet and content.

    If it has neither id nor URL, a digest of its text becomes its `doc_id`.
    """
    texts = [result.pop(name, None) for name in _TEXTS]
    if not any(result.get(name) for name in ("doc_id", "ids", "url")):
        text = next((one for one in reversed(texts) if isinstance(one, str) and one), None)
        if text is not None:
            result["doc_id"] = digest(text)
    return result
