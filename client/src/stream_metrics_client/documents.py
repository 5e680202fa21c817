"""What a retriever returned, as the results of an event.

Documents of LangChain and nodes of LlamaIndex are recognised by their attributes: neither library
is imported.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

JsonObject = dict[str, Any]

_FIELDS: Final = (
    "result_id", "entity_type", "ids", "doc_id", "url", "title", "snippet", "content", "fields",
    "score", "baseline_rank", "gain",
)  # fmt: skip
_TEXTS: Final = ("title", "snippet", "content")
_IDS: Final = ("id", "document.id", "doc_id", "chunk_id")
_SCORES: Final = ("score", "relevance_score")
_LONGEST_DOC_ID: Final = 256


def text_id(value: Any) -> Any:
    """An id as text if it is a number or a UUID; anything else as it is.

    >>> text_id(17), text_id("a"), text_id(True)
    ('17', 'a', True)
    """
    return str(value) if isinstance(value, int | UUID) and not isinstance(value, bool) else value


def number(value: Any) -> Any:
    """A score as a float, also NumPy's; None for NaN and infinities; else the value as it is."""
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        return value
    found = float(value)
    return found if math.isfinite(found) else None


def whole(value: Any) -> Any:
    """A count as an int, also NumPy's; else the value as it is."""
    return int(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value


def as_result(document: Any) -> JsonObject:
    """One result of an event, without a `result_id` unless the document has one.

    Args:
        document: A dict with the fields of a result, a LangChain `Document`, a LlamaIndex
            `NodeWithScore` or node, a text, or a pair of any of these with a score.

    Raises:
        TypeError: The document is none of these.

    >>> as_result({"id": 7, "text": "Leave is 30 days.", "embedding": [0.1]})
    {'content': 'Leave is 30 days.', 'doc_id': '7'}
    """
    if isinstance(document, tuple) and len(document) == 2:
        found = as_result(document[0]) | {"score": number(document[1])}
    elif isinstance(document, Mapping):
        found = _of_mapping(document)
    elif isinstance(document, str):
        found = {"content": document}
    elif hasattr(document, "page_content"):
        own_id = getattr(document, "id", None)
        found = _of_parts(own_id, document.page_content, document.metadata)
    elif hasattr(document, "node") and hasattr(document, "score"):
        found = _of_node(document.node, document.score)
    elif hasattr(document, "node_id") and hasattr(document, "get_content"):
        found = _of_node(document, None)
    else:
        raise TypeError(
            f"a result is a dict, a text, a LangChain Document or a LlamaIndex node, not "
            f"{type(document).__name__}"
        )
    return {name: value for name, value in found.items() if value is not None}


def baseline_ranks(results: Sequence[JsonObject], before: Iterable[Any]) -> list[int | None]:
    """The rank that each result had in the list `before` reranking; None if it was not there.

    A result is the same document if it has the same id, or without one the same URL, or without
    either the same text.
    """
    ranks: dict[Any, int] = {}
    for rank, document in enumerate(before, 1):
        ranks.setdefault(_identity(as_result(document)), rank)
    return [ranks.get(_identity(result)) for result in results]


def _identity(result: JsonObject) -> Any:
    for name in ("doc_id", "ids", "url"):
        if result.get(name):
            return name, repr(result[name])
    return "text", tuple(result.get(name) for name in _TEXTS)


def _of_mapping(document: Mapping[str, Any]) -> JsonObject:
    metadata = document.get("metadata")
    text = next((document[name] for name in ("page_content", "text") if name in document), None)
    found: JsonObject = {"content": text}
    if isinstance(metadata, Mapping):
        found = _of_parts(None, text, metadata)
    found |= {name: document[name] for name in _FIELDS if document.get(name) is not None}
    if "doc_id" not in document and "id" in document and not document.get("ids"):
        found["doc_id"] = document["id"]
    found["doc_id"] = text_id(found.get("doc_id"))
    for name, convert in (("score", number), ("baseline_rank", whole), ("gain", whole)):
        found[name] = convert(found.get(name))
    return found


def _of_node(node: Any, score: Any) -> JsonObject:
    return _of_parts(node.node_id, node.get_content(), node.metadata) | {"score": number(score)}


def _of_parts(own_id: Any, text: Any, metadata: Mapping[str, Any] | None) -> JsonObject:
    """The result of a document: its own id wins over ids in its metadata."""
    known = metadata or {}
    doc_id = own_id if own_id is not None else _first(known, _IDS)
    source = known.get("url", known.get("source"))
    return {
        "doc_id": _short(text_id(doc_id)),
        "url": source if isinstance(source, str) and "://" in source else None,
        "title": known.get("title") if isinstance(known.get("title"), str) else None,
        "content": text,
        "score": number(_first(known, _SCORES)),
    }


def _first(known: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((known[name] for name in names if known.get(name) is not None), None)


def _short(doc_id: Any) -> Any:
    """An id that fits; of a longer one, such as a URL, a digest. Empty ones are none."""
    if not isinstance(doc_id, str):
        return doc_id
    return (doc_id if len(doc_id) <= _LONGEST_DOC_ID else digest(doc_id)) or None


def digest(text: str) -> str:
    """A stable id in place of a text.

    >>> digest("a")
    'sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'
    """
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


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
