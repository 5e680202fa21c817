"""Reads what a tool returned: looks into containers, then reads the list by the table of shapes.

Nothing is guessed. Where two lists fit and differ the result is ambiguous; where nothing fits there
is no reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from stream_metrics.core.telemetry.contents.documents import (
    MAX_DEPTH,
    Document,
    UnusableDocuments,
    differ,
    documents_in_value,
    same_document,
    usual_document,
)
from stream_metrics.core.telemetry.contents.literals import CALL, parse_value
from stream_metrics.core.telemetry.shapes.rows import (
    Parallel,
    Shape,
    has,
    steps,
    text_at,
    values_at,
)
from stream_metrics.core.telemetry.shapes.table import PARALLEL, SHAPES
from stream_metrics.core.telemetry.shapes.texts import block, is_preamble, results_in_text
from stream_metrics.core.telemetry.spans import text

MAX_VALUES: Final = 100_000
"""The most values of one result that are looked into."""

_GENERAL: Final = (
    "documents",
    "nodes",
    "output",
    "outputs",
    "passages",
    "result",
    "results",
    "source_nodes",
    "structuredContent",
    "structured_content",
    "artifact",
)
"""Names of lists that frameworks and most programs use."""
_WIDE: Final = (
    *("articles", "chunks", "contexts", "data", "docs", "entries", "hits", "items", "matches"),
    *(
        "memories",
        "pages",
        "payload",
        "records",
        "response",
        "rows",
        "search_results",
        "searchResults",
    ),
    *("snippets", "sources", "value", "points", "objects", "retrieved", "references", "content"),
)
"""Names of lists that are read only of tools that certainly search."""
_TEXTS: Final = (
    *("page_content", "pageContent", "content", "text", "body", "chunk", "chunk_text", "chunkText"),
    *("passage", "snippet", "excerpt", "description", "summary", "abstract", "document", "memory"),
    *("markdown", "raw_content", "content_text", "body_content", "answer", "highlight"),
)
_URLS: Final = (
    "url",
    "link",
    "uri",
    "href",
    "source_url",
    "sourceUrl",
    "web_url",
    "permalink",
    "contentUrl",
)
_TITLES: Final = ("title", "name", "heading", "document_title", "file_name", "filename")
_SCORES: Final = frozenset(
    (
        *("score", "_score", "relevance", "relevance_score", "relevanceScore", "similarity"),
        *("similarity_score", "distance", "_distance", "rank", "certainty", "rerank_score"),
        *("@search.score", "@search.rerankerScore", "_rankingScore", "match_score", "search_score"),
        *(
            "vector_score",
            "bm25",
            "cosine_similarity",
            "rrf_score",
            "hybrid_score",
            "_relevance_score",
        ),
    )
)
_ENVELOPES: Final = (
    *("output", "result", "results", "content", "response", "tool_response", "toolResult", "text"),
    *("value", "json", "body", "data", "artifact", "return_value", "observation"),
)
"""Keys under which a tool's message has its result, as a text or as JSON."""
_MESSAGES: Final = frozenset(
    ("isError", "is_error", "tool_call_id", "toolUseId", "tool_use_id", "status")
)
_RESULT_KEYS: Final = ("toolResult", "tool_result")
_HOLDERS: Final = (
    *("content", "output", "result", "response", "text", "value", "toolResult", "kwargs", "data"),
)
_BLOCK_TYPES: Final = frozenset(
    (
        *(
            "text",
            "json",
            "resource",
            "resource_link",
            "input_text",
            "output_text",
            "image",
            "audio",
        ),
        *("tool_result", "tool-result", "tool_call_response", "function_call_output", "content"),
        *("error-text", "error-json", "document", "search_result", "web_search_result", "file"),
    )
)
_BLOCK_KEYS: Final = frozenset(
    (
        "type",
        "text",
        "id",
        "annotations",
        "_meta",
        "meta",
        "cache_control",
        "cachePoint",
        "index",
        "citations",
    )
)
_PROSE: Final = re.compile(
    r"answer|summar|descri|instruct|prompt|note|message|reason|explanation|query|question", re.I
)
"""Matches names of texts that are about results, or what was asked."""
_ERRORS: Final = (
    *("error", "errors", "error_message", "errorMessage", "exception", "failed", "timed_out"),
    *("is_error", "isError"),
)
_FAILED: Final = ("error", "failed", "failure")
_DOCUMENTS: Final = "a list of documents"
_NAMED: Final = "the list "
_ASIDE: Final = re.compile(
    r"(?:image|video|(?:did_?you_?mean_?)?suggest|related_?(?:search|question|quer)|people_?also|correction"
    r"|spell|info_?box|facet|agg|filter|highlight|warning|error|notice|message|usage|tool|log|debug"
    r"|explain|pagination|sitelink|thumbnail|ads?$|column|field|schema"
    r"|blocks?$)",
    re.IGNORECASE,
)
"""Matches the beginnings of names of lists that are no results, although their items have texts."""
_JSON: Final = re.compile(r"""\{\s*["']|\[\s*[{"']""")
"""The beginning of JSON, or of a Python literal."""
_OBJECTS: Final = re.compile(r"[\[({'\"\w: ]*?\b[A-Z]\w*\(\w+=")
"""The beginning of a list of objects, as in ``[Document(id=``."""


def _rows_by_key() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, shape in enumerate(SHAPES):
        without = () if shape.without_list is None else (shape.without_list[0],)
        for path in (*shape.items, *without):
            found.setdefault(str(steps(path)[0]), []).append(place)
    return found


_ROWS_BY_KEY: Final = _rows_by_key()
"""The places of rows in the table by the first keys of the paths at which their lists are."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The results in a value.

    Attributes:
        documents: The results.
        source: The row that read them.
        wide: Whether it is a reading only if the tool certainly searches.
        scored: Whether the results have a score, a distance or a rank.
        failed: Whether there is an error beside an empty list.
    """

    documents: tuple[Document, ...]
    source: str
    wide: bool = False
    scored: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a value has no reading, as a reason and a message."""

    reason: str
    message: str


FAILED: Final = Unread(
    "unrecognised",
    "its result has an error beside an empty list, which is no empty search; where a call fails, "
    "let its span fail",
)


@dataclass(slots=True)
class _Found:
    """What is found in a value: readings of its lists, by the list; and what cannot be read.

    ``beside`` are those of lists with other names, which are results only if they stand beside
    documents, and ``unread`` lists of objects in which nothing is found, with their names.
    ``texts`` are those of texts with other names. ``failed`` is whether an object says that the
    search failed.
    """

    readings: list[Reading]
    problems: list[Unread]
    taken: dict[int, Any]
    left: int = MAX_VALUES
    beside: list[Reading] = field(default_factory=list)
    unread: list[tuple[str, list[Any]]] = field(default_factory=list)
    texts: list[Reading] = field(default_factory=list)
    failed: bool = False

    def take(self, value: Any) -> None:
        """Note that the value is read, and keep it, lest another gets its ``id()``."""
        self.taken[id(value)] = value


def read_result(value: Any, wide: bool = True) -> Reading | Unread | None:
    """The results in what a tool returned; None if it has none that the table knows.

    Args:
        value: The attribute's value.
        wide: Whether to read lists and texts that are results only if the tool certainly searches.
    """
    try:
        found = _read(value)
    except RecursionError:
        return None
    if isinstance(found, Reading) and found.wide and not wide:
        return None
    return found


def read_documents(value: Any) -> list[Document] | tuple[str, str] | None:
    """The documents in what a search returned; a reason and a message say why there are none."""
    found = read_result(value)
    if isinstance(found, Reading) and found.failed:
        found = FAILED
    if isinstance(found, Unread):
        return found.reason, found.message
    return None if found is None else [*found.documents]


def _read(value: Any) -> Reading | Unread | None:
    found = _Found([], [], {})
    _look(value, found, 0, "")
    if found.left < 0:
        return Unread("too_large", f"its result has more than {MAX_VALUES:,} values")
    narrow = [one for one in found.readings if not one.wide]
    lists = [one for one in found.readings if one.source.startswith(_NAMED)]
    others = [one for one in lists + found.beside if one.documents]  # may be the results as well
    empty = next((one for one in narrow if not one.documents), None)
    chosen = _chosen(narrow + others if narrow else [])
    if empty is not None and others and not any(one.documents for one in narrow):
        chosen = _ambiguous(empty, others[0])
    chosen = _against_texts(chosen, [*found.readings, *found.texts])
    if chosen is None:
        chosen = next((one for one in found.problems if one.reason != "unrecognised"), None)
    if chosen is None:
        wide = [one for one in found.readings if one.wide]
        chosen = _chosen(wide + (found.beside if any(one.documents for one in wide) else []))
    if isinstance(chosen, Reading) and not chosen.documents and found.failed:
        return replace(chosen, failed=True)
    if isinstance(chosen, Reading) and (other := _alike(found)) is not None:
        name, items = other
        return _ambiguous(chosen, Reading((Document(),) * len(items), f"{_NAMED}{name}"))
    return chosen or next(iter(found.problems), None)


def _against_texts(
    chosen: Reading | Unread | None, readings: Sequence[Reading]
) -> Reading | Unread | None:
    """The reading of a list, unless a text beside it shows other results."""
    if not isinstance(chosen, Reading):
        return chosen
    for other in readings:
        if not other.wide or other.source.startswith(_NAMED):
            continue
        if len(chosen.documents) != len(other.documents) or differ(
            chosen.documents, other.documents
        ):
            return _ambiguous(chosen, other)
    return chosen


def _alike(found: _Found) -> tuple[str, list[Any]] | None:
    """A list that nothing reads, but whose items have the keys of those of a list that is read."""
    read = {frozenset(one[0]) for one in found.taken.values() if _has_objects(one)}
    return next((one for one in found.unread if frozenset(one[1][0]) in read), None)


def _has_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _chosen(readings: Sequence[Reading]) -> Reading | Unread | None:
    """The only reading; lists that are the same count once, and empty ones beside others not."""
    full = [one for one in readings if one.documents]
    first = next(iter(full or readings), None)
    for other in full[1:]:
        if first is not None and not same_documents(first.documents, other.documents):
            return _ambiguous(first, other)
    if first is None:
        return None
    best = max(
        full or readings, key=lambda one: sum(document.signals for document in one.documents)
    )
    return replace(best, scored=any(one.scored for one in readings))


def _ambiguous(one: Reading, other: Reading) -> Unread:
    lists = f"{len(one.documents)} and {len(other.documents)} results"
    message = f"its result has different lists: {one.source}, and {other.source}; {lists}"
    return Unread("ambiguous_documents", message)


def same_documents(some: Sequence[Document], others: Sequence[Document]) -> bool:
    """Whether two lists have the same documents in the same order, as far as they compare."""
    return len(some) == len(others) and not any(
        same_document(one, other) is False for one, other in zip(some, others, strict=True)
    )


def _look(value: Any, found: _Found, depth: int, name: str) -> None:
    """Add the readings of the value and of what it contains; ``name`` is the key it has."""
    found.left -= 1
    if depth > MAX_DEPTH or found.left < 0:
        return
    if isinstance(value, str):
        _look_at_text(value, found, depth, name)
    elif isinstance(value, list):
        _look_at_list(value, found, depth, name)
    elif isinstance(value, dict):
        _look_at_object(value, found, depth)


def _look_at_text(value: str, found: _Found, depth: int, name: str) -> None:
    stripped = _unframed(value.strip())
    if stripped and text(stripped) is None and stripped.strip('"') not in ("[]", "{}", "[[]]"):
        if re.search(r"\w", stripped):
            found.problems.append(Unread("content_off", "its result is redacted"))
        elif stripped.startswith('"'):
            _look(parse_value(stripped), found, depth + 1, name)  # an empty list, encoded twice
        return
    if stripped.startswith(("[", "{", '"')) or CALL.match(stripped):
        inner = parse_value(stripped)
        if inner is not None and not isinstance(inner, (int, float)):
            _look(inner, found, depth + 1, name)
            return
        if (lines := _json_lines(stripped)) is not None:
            _look(lines, found, depth + 1, name)
            return
        if _JSON.match(stripped) and stripped[-1:] not in ("]", "}"):
            found.problems.append(Unread("truncated", "its result was cut off"))
            return
    if stripped.startswith(("Document(", "<")):
        general = documents_in_value(stripped, True)
        if isinstance(general, list):
            found.readings.append(_reading(general, "the representation of a document", []))
            return
    if name and name not in (*_GENERAL, *_WIDE, "text", "tool_response", "body"):
        return
    if _OBJECTS.match(stripped):
        return  # objects as Python shows them, which cannot be read
    texts = results_in_text(stripped)
    if len(texts) > 1:
        rows = " and ".join(source for source, _ in texts)
        found.problems.append(
            Unread("ambiguous_documents", f"its text has different lists: {rows}")
        )
    for source, documents in texts[:1]:
        found.readings.append(_reading(documents, source, [], wide=True))


def _unframed(value: str) -> str:
    """The JSON in a block of Markdown, or below a line that only announces results; else the value
    itself."""
    head, _, rest = value.partition("\n")
    inner = rest.strip()
    if head.startswith("```") and value.endswith("```"):
        inner = inner[:-3].rstrip()
    elif not is_preamble(head):
        return value
    return inner if inner.startswith(("[{", "{", "[\n", "[ ")) else value


def _json_lines(value: str) -> list[Any] | None:
    """The objects in a text that has one in each line; None if it has other lines."""
    lines = [line for line in value.splitlines() if line.strip()]
    if len(lines) < 2 or not all(line.lstrip().startswith("{") for line in lines):
        return None
    parsed = [parse_value(line.strip()) for line in lines]
    return parsed if all(isinstance(one, dict) for one in parsed) else None


def _look_at_list(value: list[Any], found: _Found, depth: int, name: str) -> None:
    if id(value) in found.taken:
        return
    if value and all(map(is_block, value)):
        _look_at_blocks(value, found, depth)
        return
    if value and all(isinstance(one, dict) and "role" in one for one in value):
        for one in value:
            if one["role"] == "tool":
                _look(one.get("parts", one.get("content")), found, depth + 1, "")
        return
    for shape in SHAPES:
        if shape.anywhere and value and _are_all(value, shape.anywhere):
            found.take(value)
            found.readings.append(_by_shape(value, shape))
            return
    if len(value) == 1 and isinstance(value[0], list) and not _is_scored(value[0]):
        _look(value[0], found, depth + 1, name)
        return
    if value and all(map(_is_scored, value)):
        _look([{**one, "score": score} for one, score in value], found, depth + 1, name)
        return
    if value and all(isinstance(one, list) for one in value):
        if any(isinstance(one, dict) for inner in value for one in inner):
            message = f"its result has {len(value)} lists, one for each query"
            found.problems.append(Unread("ambiguous_documents", message))
        return
    if value and all(map(_is_capitalised, value)):
        found.take(value)
        name, value = (
            _uncapitalised(name),
            [{_uncapitalised(key): inner for key, inner in one.items()} for one in value],
        )
    if name in _GENERAL or not name or (value and all(map(_is_of_framework, value))):
        general = documents_in_value(value, True)
        if isinstance(general, list):
            found.take(value)
            found.readings.append(_reading(_with_texts(general, value), _DOCUMENTS, value))
            return
    if value and (documents := _wide(value)) is not None:
        reading = _reading(documents, f"{_NAMED}{name or 'itself'}", value, wide=True)
        if not name or name in _GENERAL or name in _WIDE or reading.scored:
            found.take(value)
            found.readings.append(reading)
        elif not _ASIDE.match(name):
            found.beside.append(reading)
        return
    if _has_objects(value):
        found.unread.append((name, value))
    if name in (*_GENERAL, *_WIDE, "") and (passages := _passages(value)):
        found.readings.append(_reading(passages, "a list of texts", [], wide=True))
        return
    if all(isinstance(one, str) and one.lstrip().startswith("{") for one in value):
        parsed = [parse_value(one) for one in value]
        if parsed and all(isinstance(one, dict) for one in parsed):
            _look(parsed, found, depth + 1, name)


def _is_capitalised(item: Any) -> bool:
    """Whether all keys of an object begin with capitals, as of Go and .NET."""
    return isinstance(item, dict) and bool(item) and all(key[:1].isupper() for key in item)


def _uncapitalised(name: str) -> str:
    return name.lower() if name.isupper() else name[:1].lower() + name[1:]


def _with_texts(documents: Sequence[Document], items: Sequence[Any]) -> list[Document]:
    """The documents, with the texts of those that have no id, such as their snippets; by these a
    result counts whose address is missing."""
    return [
        replace(document, text=_document(item, _ANY).text)
        if document.text is None and document.id is None and isinstance(item, dict)
        else document
        for document, item in zip(documents, items, strict=True)
    ]


def _passages(value: Sequence[Any]) -> list[Document]:
    """The texts in a list of texts; none if one of them is JSON, an address or a name."""
    texts = [one for one in value if isinstance(one, str) and len(one.split()) > 2]
    if len(texts) < len(value) or any(one.lstrip()[:1] in ("[", "{", "<") for one in texts):
        return []
    return [Document(text=text(one)) for one in texts]


def _is_scored(value: Any) -> bool:
    """Whether the value is a document with its score, as LangChain's vector stores return them."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], dict)
        and type(value[1]) in (int, float)
    )


def _is_of_framework(item: Any) -> bool:
    """Whether the item is a document of LangChain, or a node of LlamaIndex."""
    if not isinstance(item, dict):
        return False
    inner = item.get("node", item.get("kwargs", item))
    return isinstance(inner, dict) and ("page_content" in inner or "id_" in inner)


def _wide(value: Sequence[Any]) -> list[Document] | None:
    """The documents in objects with other than the usual names; None if they are none."""
    documents = []
    for item in value:
        if not isinstance(item, dict) or "role" in item or "tool_calls" in item:
            return None
        document = _document(item, _ANY)
        identified = document.id or document.address
        if document.text is None and not (identified and document.title):
            return None
        documents.append(document)
    return documents


_ANY: Final = Shape("usual names")


def _look_at_object(value: dict[str, Any], found: _Found, depth: int) -> None:
    if id(value) in found.taken:
        return
    found.failed = found.failed or _says_error(value)
    if is_block(value) and (depth == 0 or "toolResult" in value or "tool_result" in value):
        _look_at_blocks([value], found, depth)
        return
    inner = value.get("kwargs")
    if value.get("type") == "constructor" and isinstance(inner, dict):
        if "page_content" in inner:
            _general(value, found)
        else:
            _look(inner, found, depth + 1, "")
        return
    if value.get("type") in ("json", "text", "content", "error-json") and "value" in value:
        _look(value["value"], found, depth + 1, "")  # AI SDK
        return
    for place in sorted({place for key in value for place in _ROWS_BY_KEY.get(key, ())}):
        shape = SHAPES[place]
        for path in shape.items:
            for inner in values_at(value, path):
                _look_at_place(inner, value, shape, found)
        if shape.without_list is not None:
            path, marker = shape.without_list
            missing = not any(True for one in shape.items for _ in values_at(value, one))
            if missing and marker in [*values_at(value, path)]:
                found.readings.append(Reading((), shape.source))
    for parallel in PARALLEL:
        _look_at_parallel(value, parallel, found)
    for key, inner in value.items():
        if key in ("tool_calls", "usage", "input", "arguments", "query"):
            continue
        if isinstance(inner, str):
            if key in _ENVELOPES or (key in _GENERAL and inner.lstrip()[:1] in ("[", "{", '"')):
                _look(inner, found, depth + 1, "")
            elif not _PROSE.search(key) and ("\n" in inner or inner.startswith("<")):
                for source, several in results_in_text(inner)[:1]:
                    if len(several) > 1:
                        reading = _reading(several, f"{source}, in {key}", [], wide=True)
                        found.texts.append(reading)
        elif isinstance(inner, (dict, list)):
            is_message = key in _ENVELOPES and not _MESSAGES.isdisjoint(value)
            _look(inner, found, depth + 1, "" if is_message else key)


def _says_error(value: dict[str, Any]) -> bool:
    """Whether an object says that what it has is not what was looked for.

    >>> [_says_error(one) for one in ({"error": "timeout"}, {"error": None}, {"status": 503})]
    [True, False, True]
    """
    statuses = (value.get(name) for name in ("status", "statusCode", "status_code", "code"))
    return (
        any(value.get(name) for name in _ERRORS)
        or any(value.get(name) is False for name in ("success", "ok"))
        or any(
            400 <= one < 600 if type(one) is int else str(one).casefold() in _FAILED
            for one in statuses
        )
        or (isinstance(shards := value.get("_shards"), dict) and bool(shards.get("failed")))
    )


def _general(value: dict[str, Any], found: _Found) -> None:
    general = documents_in_value(value, True)
    if isinstance(general, list):
        found.readings.append(_reading(general, "a message of LangChain", []))
    elif general is UnusableDocuments.CUT:
        found.problems.append(Unread("truncated", "its result was cut off"))
    elif general is UnusableDocuments.REDACTED:
        found.problems.append(Unread("content_off", "its result is redacted"))


def _look_at_place(inner: Any, value: dict[str, Any], shape: Shape, found: _Found) -> None:
    if not isinstance(inner, list) or id(inner) in found.taken:
        return
    if inner and all(isinstance(one, list) for one in inner) and len(inner) == 1:
        inner = inner[0]
    if inner and not _fits(inner, shape):
        return
    if has(value, shape.beside) or not (shape.beside and (shape.always_beside or not inner)):
        found.take(inner)
        for name in shape.aside:
            if name in value:
                found.take(value[name])
        found.readings.append(_by_shape(inner, shape))


def _fits(items: Sequence[Any], shape: Shape) -> bool:
    return all(isinstance(item, dict) for item in items) and any(
        has(item, shape.marks) for item in items
    )


def _are_all(items: Sequence[Any], marks: Sequence[str]) -> bool:
    return all(isinstance(one, dict) and all(has(one, (mark,)) for mark in marks) for one in items)


def _by_shape(items: Sequence[Any], shape: Shape) -> Reading:
    documents = [_document(item, shape) for item in items]
    scored = bool(items) and bool(shape.scores) and all(has(item, shape.scores) for item in items)
    return _reading(documents, shape.source, items, scored=scored)


def _document(item: dict[str, Any], shape: Shape) -> Document:
    """The document in an item, by what its row names, and else by the usual names."""
    inside = [
        one for path in shape.inside for one in values_at(item, path) if isinstance(one, dict)
    ]
    fields: dict[str, Any] = {}
    for one in (item, *inside):
        fields |= one
    usual = usual_document(fields)
    own = text_at(item, shape.id or ()) if shape.id is not None else None
    id, id_name = (own[0], own[1].rpartition(".")[2]) if own else (None, "")
    if own is None and shape.id == ():
        id, id_name = usual.id, usual.id_name
    if id is None and (whole := text_at(item, shape.document_id)) is not None:
        id, id_name = whole[0], "doc_id"
    if id_name not in ("doc_id", "chunk_id") and own is not None:
        id_name = "id"
    url = _address(text_at(item, shape.url)) or usual.url or _address(text_at(fields, _URLS))
    title = text_at(item, shape.title) or text_at(fields, _TITLES)
    body = text_at(item, shape.text)
    written = body[0] if body else usual.text
    if written is None and (other := text_at(fields, _TEXTS)) is not None:
        written = other[0]
    place = text_at(item, shape.url)
    if url is None and place is not None and not text(fields.get("source")):
        fields["source"] = place[0]
    return Document(
        id,
        url,
        usual.page,
        usual.title or (title[0] if title else None),
        written,
        usual.score,
        fields,
        id_name,
    )


def _address(found: tuple[str, str] | None) -> str | None:
    url = found[0] if found else ""
    usable = url.startswith(("http://", "https://")) and len(url) > 8 and len(url.encode()) <= 8192
    return url if usable else None


def _reading(
    documents: Sequence[Document],
    source: str,
    items: Sequence[Any],
    *,
    wide: bool = False,
    scored: bool | None = None,
) -> Reading:
    if not scored:
        scored = bool(documents) and all(
            document.score is not None or _has_score(document.fields) for document in documents
        )
    return Reading(tuple(map(as_alone, documents)), source, wide, bool(scored))


def as_alone(document: Document) -> Document:
    """The document; its text identifies it if it has neither id nor address."""
    if document.id is None and document.address is None:
        return replace(document, alone=True)
    return document


def _has_score(fields: dict[str, Any]) -> bool:
    return any(type(fields[name]) in (int, float) for name in _SCORES & fields.keys())


def _look_at_parallel(value: dict[str, Any], row: Parallel, found: _Found) -> None:
    """Lists of fields, all of one length, perhaps in a list for each query."""
    ids, texts = _column(value, row.ids), _column(value, row.texts)
    if ids is None and texts is None:
        return
    if ids is None and not any(_column(value, names) for names in (row.metadata, row.scores)):
        return
    columns = [ids, texts, _column(value, row.metadata), _column(value, row.scores)]
    if not any(columns[1:]) and ids != []:
        return
    several = [one for one in columns if one and all(isinstance(x, list) for x in one)]
    if several:
        if any(len(one) > 1 for one in several):
            found.problems.append(
                Unread(
                    "ambiguous_documents",
                    f"its result has {len(several[0])} lists, one for each query",
                )
            )
            return
        columns = [one[0] if one and isinstance(one[0], list) else None for one in columns]
    if any(isinstance(x, (dict, list)) for one in columns[:2] if one for x in one):
        return
    length = next((len(one) for one in columns if one is not None), 0)
    if any(len(one) != length for one in columns if one is not None):
        found.problems.append(
            Unread("truncated", "its lists of ids, texts and scores differ in length")
        )
        return
    for names, column in zip((row.ids, row.texts, row.metadata, row.scores), columns, strict=True):
        if column is not None:
            found.take(_column(value, names))
    documents = []
    for place in range(length):
        own, written, about, score = (None if one is None else one[place] for one in columns)
        item: dict[str, Any] = {"metadata": about} if isinstance(about, dict) else {}
        item |= {"id": own, "text": written, "score": score}
        documents.append(usual_document(item))
    found.readings.append(_reading(documents, row.source, [], scored=bool(columns[3])))


def _column(value: dict[str, Any], names: Sequence[str]) -> list[Any] | None:
    return next((value[name] for name in names if isinstance(value.get(name), list)), None)


def is_block(value: Any) -> bool:
    """Whether the value is a content block: a container, and no result itself."""
    if not isinstance(value, dict) or not value:
        return False
    kind = value.get("type")
    keys = value.keys() if kind else value.keys() - {"type"}
    if len(keys) == 1 and not keys.isdisjoint(("text", "json", *_RESULT_KEYS)):
        return True
    if isinstance(kind, str) and kind in _BLOCK_TYPES:
        if kind in ("text", "input_text", "output_text"):
            return keys <= _BLOCK_KEYS
        return True
    return "toolResult" in keys


def _look_at_blocks(blocks: Sequence[dict[str, Any]], found: _Found, depth: int) -> None:
    """Look into content blocks: JSON and texts; of several texts each is a result."""
    inner: list[Any] = [_content(block) for block in blocks]
    if len(inner) > 1 and isinstance(inner[0], str) and _announces(inner[0], inner[1:]):
        inner = inner[1:]
    if all(isinstance(one, Document) for one in inner) and inner:
        found.readings.append(_reading(inner, "content blocks that are results", []))
        return
    texts = [one for one in inner if isinstance(one, str) and one.strip()]
    parsed = [_structure(one) for one in texts]
    if len(texts) > 1 and len(texts) == len(inner):
        if not any(isinstance(one, (dict, list)) for one in parsed):
            _look_at_passages(texts, found)
            return
        if all(isinstance(one, dict) for one in parsed):
            documents = documents_in_value(parsed, True)
            if isinstance(documents, list) or (documents := _wide(parsed)) is not None:
                found.readings.append(_reading(documents, "content blocks of JSON", parsed))
                return
        _look_at_all(parsed, found, depth)
        return
    for one in inner:
        if isinstance(one, Document):
            message = "its result has content blocks of several kinds"
            found.problems.append(Unread("ambiguous_documents", message))
            return
        if one is not None:
            _look(one, found, depth + 1, "")


def _announces(value: str, others: Sequence[Any]) -> bool:
    """Whether the text announces the other blocks: as many, or such that certainly are results."""
    if not value.strip() or not is_preamble(value):
        return False
    certain = all(isinstance(one, Document) for one in others)
    return certain or str(len(others)) in re.findall(r"\d+", value)


def _structure(value: str) -> Any:
    stripped = value.strip()
    return parse_value(stripped) if stripped.startswith(("[", "{")) else None


def _look_at_all(parsed: Sequence[Any], found: _Found, depth: int) -> None:
    """Blocks that each have a list: the results are those of all of them."""
    documents: list[Document] = []
    scored, wide, source = True, False, ""
    for one in parsed:
        each = _read(one) if one is not None else None
        if not isinstance(each, Reading):
            if isinstance(each, Unread):
                found.problems.append(each)
            else:
                message = "some of its content blocks have results, and others have not"
                found.problems.append(Unread("ambiguous_documents", message))
            return
        documents += each.documents
        scored, wide, source = scored and each.scored, wide or each.wide, each.source
    found.readings.append(_reading(documents, source, [], wide=wide, scored=scored))


def _look_at_passages(texts: Sequence[str], found: _Found) -> None:
    """Several blocks of text: each is a result, unless one has several, or announces them."""
    divided = [results_in_text(one.strip()) for one in texts]
    several = [one for one in divided if one and len(one[0][1]) > 1]
    if several or any(is_preamble(one) for one in texts):
        message = "some of its content blocks have several results, or announce them"
        found.problems.append(Unread("ambiguous_documents", message))
        return
    documents = [block(one.strip()) for one in texts]
    if None in documents:
        return
    found.readings.append(
        _reading(
            [one for one in documents if one is not None], "content blocks of text", [], wide=True
        )
    )


def _content(block: dict[str, Any]) -> Any:
    """What is in a content block: a value to look into, or a document that the block is."""
    kind = block.get("type")
    if kind == "search_result":
        written = "\n".join(_texts(block.get("content")))
        source = text(block.get("source"))
        return Document(
            None,
            _address((source, "") if source else None),
            None,
            text(block.get("title")),
            text(written),
            None,
            {"source": source} if source else {},
        )
    if kind == "web_search_result":
        url = text(block.get("url"))
        return Document(None, _address((url, "") if url else None), None, text(block.get("title")))
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        uri = text(resource.get("uri"))
        structure = _structure(resource["text"]) if isinstance(resource.get("text"), str) else None
        if structure is not None:
            return structure
        url = _address((uri, "") if uri else None)
        return Document(
            uri if url is None else None,
            url,
            None,
            text(resource.get("title")) or text(resource.get("name")),
            text(resource.get("text")),
            None,
            {"source": uri} if uri else {},
            "uri" if uri and url is None else "",
        )
    if kind == "resource_link":
        uri = text(block.get("uri"))
        return Document(
            uri if uri and _address((uri, "")) is None else None,
            _address((uri, "") if uri else None),
            None,
            text(block.get("title")) or text(block.get("name")),
            text(block.get("description")),
            None,
            {},
            "id",
        )
    if kind in ("image", "audio"):
        return None
    for key in ("text", "json", *_RESULT_KEYS, "content", "response", "output", "value"):
        if block.get(key) is not None:
            return block[key]
    return None


def _texts(value: Any) -> Iterator[str]:
    for part in value if isinstance(value, list) else (value,):
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def plain_text(value: Any) -> str | None:
    """The one text that a value is, perhaps in JSON or in a content block; None if it is none."""
    found = innermost(value)
    return text(found) if isinstance(found, str) else None


def innermost(value: Any) -> Any:
    """What stands in a value that is JSON, a content block, or has one of the usual names only."""
    for _ in range(MAX_DEPTH):
        if isinstance(value, str):
            inner = parse_value(value.strip()) if value.strip()[:1] in ("[", "{", '"') else None
            if inner is None or isinstance(inner, (int, float)):
                break
            value = inner
        elif isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list):
            value = value[0]
        elif isinstance(value, dict) and is_block(value):
            value = _content(value)
        elif isinstance(value, dict):
            name = next((one for one in _HOLDERS if value.get(one) is not None), None)
            if name is None:
                break
            value = value[name]
        else:
            break
    return value


def read_items(items: Sequence[Any], path: str) -> list[Document] | None:
    """The documents that the items of the list at a path are by the table of shapes; None if they
    are none."""
    if not items:
        return None
    place = f".{path.partition('[')[0]}"
    for shape in SHAPES:
        here = any(place.endswith(f".{one}") for one in shape.items) and _fits(items, shape)
        if here or (shape.anywhere and _are_all(items, shape.anywhere)):
            return [_document(item, shape) for item in items]
    return _wide(items)
