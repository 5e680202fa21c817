"""What a tool's span returned, and whether that was a search.

A tool is a search if its kind or a row of the settings says so, if a retriever ran inside it, or if
two of three things hold: its name or description means searching, its arguments have a query, and
its results have a score, a distance or a rank.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from stream_metrics.core.telemetry.contents.documents import (
    Found,
    SpanDocuments,
    documents_of,
)
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.roles.mapping import Row
from stream_metrics.core.telemetry.shapes.reading import (
    FAILED,
    Reading,
    Unread,
    innermost,
    is_block,
    plain_text,
    read_items,
    read_result,
    same_documents,
)
from stream_metrics.core.telemetry.shapes.users import WHOLE, ToolRows, tool_name
from stream_metrics.core.telemetry.spans import Span, SpanEvent, text

RESULTS: Final = (
    "gen_ai.tool.call.result",
    "gen_ai.tool.output",
    "gen_ai.tool.response",
    "gen_ai.tool.result",
    "tool_response",
    "tool.response",
    "tool.output",
    "tool.result",
    "tool.call.result",
    "gcp.vertex.agent.tool_response",
    "ai.toolCall.result",
    "mcp.tool.result",
    "mcp.response.value",
    "result",
    "output",
)
"""Attributes of a tool's span that may have its result, besides those that its row names."""
ARGUMENTS: Final = (
    "gen_ai.tool.call.arguments",
    "ai.toolCall.args",
    "tool.arguments",
    "tool_arguments",
    "gcp.vertex.agent.tool_call_args",
    "mcp.request.argument.query",
)
_SCHEMAS: Final = ("tool.parameters", "gen_ai.tool.json_schema")
"""Attributes that say which arguments a tool has, where those of the call are not recorded."""
_EVENTS: Final = {
    "gen_ai.choice": ("message", "content"),
    "gen_ai.client.inference.operation.details": ("gen_ai.output.messages",),
    "gen_ai.tool.message": ("content",),
    "gen_ai.tool.result": ("content", "result"),
    "tool.output": ("output",),
    "tool_result": ("content", "result"),
}
_VERBS: Final = (
    r"(?<![a-z])search|(?<=[a-z])Search|retriev|look(?:s|ing)?[ _-]?up"
    r"|(?<![a-z])finds?(?![a-z])|(?<![a-z])find(?=[A-Z])"
    r"|durchsuch|(?<![a-z])such(?:e|en)(?![a-z])|[a-zß_]suche(?![a-z])|nachschlag"
    r"|(?<![a-z])busca(?:r|dor)?(?![a-z])|b[uú]squeda|(?<![a-z])(?:re)?cherch(?:e|er)(?![a-z])"
    r"|(?<![a-z])(?:ri)?cerca(?:re)(?![a-z])|(?<![a-z])ricerca(?![a-z])|(?<![a-z])(?:op)?zoek(?:en)?(?![a-z])"
    r"|(?<![a-z])sök(?:a|ning)?(?![a-z])|(?<![a-z])søg(?:ning)?(?![a-z])|szuka[jć]|wyszuk|vyhled|pesquis"
    r"|поиск|искать|найти|搜索|搜尋|查询|查詢|检索|檢索|検索|調べ|검색|조회|بحث|खोज"
)
_ABOUT: Final = re.compile(rf"{_VERBS}|knowledge[ _-]?base|Search|Find|Look", re.NOFLAG)
_NAMED: Final = re.compile(
    rf"{_VERBS}|knowledge|wissen|(?<![a-z])(?:kb|rag|faqs?|wiki(?:pedia)?|handbook|docs|documents?|documentation"
    r"|passages?|corpus|articles?|tavily|duckduckgo|serp|serper|serpapi|exa)(?![a-z])",
    re.NOFLAG,
)
_STATEMENT: Final = re.compile(
    r"(?:\s|\(|```\w*\s|--[^\n]*\n|/\*.*?\*/)*+"
    r"(?:select\b.*(?:\bfrom\b|;)|select\s+[\d*]|with\s+\w+\s+as\s*\(|insert\s+into|delete\s+from"
    r"|update\s+\S+\s+set\b|(?:create|alter|drop|truncate)\s+(?:table|index|view|schema)"
    r"|explain\s+(?:select|analyze)|merge\s+into|replace\s+into|exec\s+\w|call\s+[\w.]+\("
    r"|show\s+(?:tables|databases|columns)|pragma\s+\w|(?:optional\s+)?(?:match|merge|create)\s*\("
    # GraphQL
    r"|(?:query|mutation|subscription)?\s*\w*\s*(?:\([^)]*\))?\s*\{\s*\w+\s*(?:\([^)]*\))?\s*\{"
    r"|db\.\w+\.\w+\("  # MongoDB
    r"|\w*\{\s*\w+\s*(?:=|!=|=~|!~)\s*[\"']|\w+\([^)]*\[\d+[smhd]\]"  # PromQL, LogQL
    r"|[^|]*\|\s*(?:where|stats|project|summarize|extend|eval|table|fields|take)\b"  # ES|QL
    r"|from\s+[\w.]+\s+import|import\s+\w+\s*(?:[\n,;.]|as\b)|print\(|(?:df|pd|np)\b\s*[.\[=])",
    re.IGNORECASE | re.DOTALL,
)
"""Matches statements of query languages, and code, which are no questions."""
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Matches the beginning of a word inside of a name."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CHANGING: Final = re.compile(
    r"add|append|autocomplete|build|calculate|cancel|classify|convert|copy|create|delete|detect|edit"
    r"|embed|generate|geocode|insert|moderate|move|pay|predict|remove|rename|rephrase|replace|rerank"
    r"|rewrite|save|send|sentiment|set|spell|submit|subscribe|summarize|toggle|translate|update"
    r"|upload|upsert|validate|weather|write",
    re.IGNORECASE,
)
"""Words of tools that do something else, even if a verb of searching follows in their names."""
_CHANGING_FIRST: Final = re.compile(
    r"approve|archive|compare|email|evaluate|filter|grade|index|ingest|notify|order|publish|rank"
    r"|rate|record|review|share|sign",
    re.IGNORECASE,
)
"""The same, of names without a verb of searching that begin with them."""
_CHANGING_AFTER: Final = re.compile(
    r"(?:(?-i:[a-z](?=[A-Z]))|[_-])(?:(?:and|or|then)[_-]?(?:book|buy|delete|edit|move|order|remove"
    r"|replace|reserve|save|send|update|write)|builder|cancel|expander|feedback|generator"
    r"|reindex|rewriter|settings|ingest)(?![a-z])",
    re.IGNORECASE,
)
"""The same, wherever they stand in a name."""
_CHANGING_ABROAD: Final = re.compile(
    r"l(?:ö|oe)schen|(?<![a-z])speichern(?![a-z])|umformulier|umschreib|(?:ü|ue)bersetz"
    r"|guardar|eliminar|borrar|traduc|reformul|reescrib|reservar"
    r"|enregistrer|supprimer|effacer|traduire|r[eé][eé]cri(?:re|t)"
    r"|(?<![a-z])(?:salva(?:re?)?|elimina|cancella(?:re)?)(?![a-z])|riformul|riscriv"
    r"|opslaan|verwijder|vertaa?l|herschrij|herformul"
    r"|(?<![a-z])(?:spara|ta_?bort|gem|slet|radera)(?![a-z])|översätt|oversæt"
    r"|(?<![a-z])usu[nńw]|zapisz|t[lł]umacz|excluir|apagar|traduzir"
    r"|сохран|удал[еи]|переписать|переформул|перевести"
    r"|保存|删除|刪除|改写|改寫|翻译|翻譯|削除|書き換え|翻訳|저장|삭제|번역|حفظ|حذف|सहेज|हटा",
    re.IGNORECASE,
)
"""The same in other languages, in which the verb may stand before or after its object."""
_LANGUAGES: Final = re.compile(
    r"bash|calculator|cypher|graphql|interpreter|python|repl|shell|sql|terminal", re.IGNORECASE
)
"""What tools run that are given code, unless their names have a verb of searching."""
_QUERIES: Final = frozenset(
    (
        "query", "q", "question", "keywords", "keyword", "search", "search_query",
        "searchQuery", "search_term", "searchTerm", "search_terms", "term", "terms",
        "query_text", "queryText", "query_str", "queries", "search_text", "searchText",
        "text_query", "user_query", "userQuery", "query_string", "queryString",
        "question_text", "prompt_query", "suchbegriff", "suchanfrage", "anfrage",
        "frage", "consulta", "pregunta", "busqueda", "búsqueda", "recherche", "requete",
        "requête", "domanda", "ricerca", "zoekterm", "vraag", "pergunta", "zapytanie",
        "запрос", "вопрос", "查询", "关键词", "クエリ", "質問", "검색어",
    )
)  # fmt: skip
"""Names of arguments that are what is looked for, in the languages of those who write tools."""
_UNSPECIFIED: Final = '{"result": "<not specified>"}'
"""What Google's ADK records for a tool without a result."""
_SEARCHES: Final = re.compile(r"search|retriev", re.IGNORECASE)
"""Matches names of tools that are not given ids to look them up."""
_ONLY: Final = frozenset(("__arg1", "input", "request", "topic"))
"""The names of an argument that has what is looked for, if it is the only one."""
_ROLE: Final = "role"
"""A key of messages."""
MAX_LISTS: Final = 3
"""The most lists of one result for which rows are proposed."""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A key that JMESPath needs no quotes for."""
_HOLDERS: Final = (
    "kwargs",
    "args",
    "input",
    "inputs",
    "arguments",
    "parameters",
    "properties",
    "tool_input",
    "params",
)


_Reader = Callable[[Any], Found | tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool's span returned.

    Attributes:
        named: The documents, as of any span; those of a tool that does not search are none.
        searches: Whether it is a search by the rules of this module.
        certain: What says so without signs; empty if nothing does.
        signs: What of its name, its query and its scores shows that it searches.
        readings: The values that were read, each with its reading.
    """

    named: SpanDocuments
    searches: bool = False
    certain: str = ""
    signs: tuple[str, ...] = ()
    readings: tuple[tuple[Any, Reading], ...] = ()


def result_of(span: Span, row: Row, tools: ToolRows, around_search: bool) -> ToolResult:
    """What a tool's span returned; ``around_search`` is whether a retriever ran inside."""
    name = tool_name(span)
    read_values: list[tuple[Any, Reading]] = []
    own = [*tools.shapes_of(name)]
    by_row = False

    def read(value: Any) -> Found | tuple[str, str]:
        nonlocal by_row
        reading: Reading | Unread | None = None
        for shape in own:
            reading = shape.read(value)
            if reading is not None:
                by_row = True
                break
        else:
            reading = read_result(value)
        if isinstance(reading, Unread):
            rows = _rows_of_lists(name, value) if reading.reason == "ambiguous_documents" else ""
            return reading.reason, reading.message + rows
        if reading is None:
            return None
        read_values.append((value, reading))
        return [*reading.documents]

    named = documents_of(span, row.documents, strict=True, read=read)
    if named.documents is None and named.problem is None:
        others = [name for name in RESULTS if name not in row.documents and name in span.attributes]
        named = documents_of(span, others, strict=True, read=read)
    if named.problem is None and span.events:
        named = _with_events(span, named, read)
    found = [reading for _, reading in read_values]
    certain = _certain(span, tools.kind_of(name) == "search", by_row, around_search)
    signs = _signs(span, row, name, found)
    seen = (certain, tuple(signs), tuple(read_values))
    wide = bool(found) and all(one.wide for one in found)
    if wide and around_search and not any(one.id for one in named.documents or ()):
        # The retriever inside says better what it found.
        return ToolResult(SpanDocuments(None), False, *seen)
    searches = bool(certain) or (
        len(signs) > 1 and not (wide and "scores" in signs and len(signs) < 3)
    )
    if searches or not named.documents:
        if named.documents == () and not searches and not found:
            named = SpanDocuments(None)
        if named.documents == () and searches and any(one.failed for one in found):
            named = SpanDocuments(None, (FAILED.reason, FAILED.message))
        return ToolResult(named, searches, *seen)
    if wide:
        return ToolResult(SpanDocuments(None), False, *seen)
    only = f"only its {signs[0]} says" if signs else "neither its name nor a query nor scores say"
    message = f"{name!r} returned documents, and {only} that it searches; {_rows_of(name)}"
    return ToolResult(SpanDocuments(None, ("unrecognised", message)), False, *seen)


def _with_events(span: Span, named: SpanDocuments, read: _Reader) -> SpanDocuments:
    """The documents of a tool, if its events have them or do not differ from its attributes."""
    for event in span.events:
        for name in _result_names(span, event):
            value = event.attributes.get(name)
            found = None if value is None else read(value)
            if isinstance(found, tuple) and named.documents is None:
                return SpanDocuments(None, found)
            if not isinstance(found, list):
                continue
            if named.documents is None:
                named = SpanDocuments(tuple(found))
            elif not same_documents(named.documents, found):
                message = f"the event {event.name} has other results than the rest of the span"
                return SpanDocuments(None, ("ambiguous_documents", message))
    return named


def recorded(span: Span, row: Row) -> Iterator[Any]:
    """The values that a tool's span has as its result, in the order in which they are read."""
    return (value for _, value in recorded_at(span, row))


def recorded_at(span: Span, row: Row) -> Iterator[tuple[str, Any]]:
    """The same, each with the name of its attribute or event."""
    for name in dict.fromkeys((*row.documents, *RESULTS)):
        if (value := span.value(name)) is not None:
            yield name, value
    for event in span.events:
        for name in _result_names(span, event):
            if (value := event.attributes.get(name)) is not None:
                yield f"the event {event.name}", value


def _certain(span: Span, by_setting: bool, by_row: bool, around_search: bool) -> str:
    """What says for certain that the tool searches; empty if nothing does."""
    if by_setting:
        return "otlp.tools"
    if by_row:
        return "otlp.shapes"
    if around_search:
        return "the retriever inside it"
    return "gen_ai.tool.type" if _says_its_kind(span) else ""


def _result_names(span: Span, event: SpanEvent) -> tuple[str, ...]:
    """The attributes of an event that may have a tool's result; those of Strands' messages to the
    tool have its arguments."""
    if event.name == "gen_ai.tool.message" and span.scope.startswith("strands"):
        return ()
    return _EVENTS.get(event.name, ())


def is_missing(value: Any) -> bool:
    """Whether a recorded result has nothing in it, as where content is left out.

    >>> [is_missing(value) for value in ("{}", "__REDACTED__", {}, '"[]"', "No results.")]
    [True, True, True, False, False]
    """
    if isinstance(value, str):
        return "[]" not in value and (value.strip() == _UNSPECIFIED or text(value) is None)
    return isinstance(value, dict) and not value


def _says_its_kind(span: Span) -> bool:
    return span.text("gen_ai.tool.type") in ("datastore", "retriever")


def _signs(span: Span, row: Row, name: str, found: Iterable[Reading]) -> list[str]:
    """What shows that the tool searches: its name, its query, its scores."""
    about = span.text("gen_ai.tool.description", "tool.description") or ""
    signs = []
    otherwise = _does_otherwise(name)
    if not otherwise and (means_searching(name) or _ABOUT.search(about)):
        signs.append("name")
    ids = _SEARCHES.search(name) is not None
    if not otherwise and has_query(span, row, plain=bool(signs), ids=ids):
        signs.append("query")
    if any(one.scored for one in found):
        signs.append("scores")
    return signs


def means_searching(value: str) -> bool:
    """Whether the name of a tool means searching.

    >>> [means_searching(name) for name in ("SearchDocs", "dokumente_suchen", "list_orders")]
    [True, True, False]
    """
    return _NAMED.search(_in_words(value)) is not None


def _in_words(name: str) -> str:
    """The name in lower case, with its words apart.

    >>> _in_words("SearchKBDocs"), _in_words("search_docs")
    ('search_kb_docs', 'search_docs')
    """
    return _CAPITAL.sub("_", name).lower()


def named_search(name: str) -> bool:
    """Whether the name says that what it names searches."""
    return means_searching(name) and not _does_otherwise(name)


def _does_otherwise(name: str) -> bool:
    """Whether the name of a tool says that it does something else than search.

    >>> [_does_otherwise(name) for name in ("delete_docs", "saveSearch", "python", "search_code")]
    [True, True, True, False]
    >>> [_does_otherwise(name) for name in ("suche_löschen", "find_and_book", "grade_docs")]
    [True, True, True]
    """
    name = _in_words(name)
    found = re.search(_VERBS, name)
    words = _WORD.findall(name[: found.start()] if found else name)
    return (
        any(map(_CHANGING.fullmatch, words))
        or _CHANGING_AFTER.search(name) is not None
        or _CHANGING_ABROAD.search(name) is not None
        or (
            found is None
            and (
                any(map(_LANGUAGES.fullmatch, words))
                or any(map(_CHANGING_FIRST.fullmatch, words[:1]))
            )
        )
    )


def has_query(span: Span, row: Row, plain: bool = False, ids: bool = False) -> bool:
    """Whether the tool's arguments have a query.

    ``plain`` is whether a text that is the only argument is one, and ``ids`` whether it is one also
    if it looks like an id.
    """
    given = [name for name in dict.fromkeys((*row.query, *ARGUMENTS)) if span.value(name)]
    for name in given or _SCHEMAS:
        value = span.value(name)
        if name.endswith(".query") and text(value) is not None:
            return True
        if isinstance(value, str) and value.lstrip()[:1] in ("{", '"'):
            value = parse_value(value)
            value = parse_value(value) if isinstance(value, str) and value[:1] == "{" else value
        if plain and _is_question(value, ids):
            return True
        if plain and isinstance(value, dict) and len(value) == 1:
            only, asked = next(iter(value.items()))
            if only in _ONLY and _is_question(asked, ids):
                return True
        if _names_query(value, 0):
            return True
    return False


def _is_question(value: Any, ids: bool = False) -> bool:
    """Whether a text may be what somebody looks for, rather than code, or, unless ``ids`` is set,
    an id or an address.

    >>> [_is_question(one) for one in ("refunds", "how long?", "ORD-123", "a@b.example")]
    [True, True, False, False]
    """
    written = text(value) if isinstance(value, str) else None
    if written is None or _STATEMENT.match(written):
        return False
    return ids or len(written.split()) > 1 or written.strip("?!.\"'").isalpha()


def _names_query(value: Any, depth: int) -> bool:
    if not isinstance(value, dict) or depth > 3:
        return False
    for name, asked in value.items():
        if name not in _QUERIES and f"{name[:1].lower()}{name[1:]}" not in _QUERIES:
            continue
        if not (isinstance(asked, str) and _STATEMENT.match(asked)):
            return True
    return any(_names_query(value.get(name), depth + 1) for name in _HOLDERS)


def _rows_of(name: str) -> str:
    key = json.dumps(name, ensure_ascii=False)
    return f'say which it is: otlp.tools = {{{key} = "other"}}, or "search"'


def row_to_copy(span: Span, row: Row) -> str | None:
    """The row of the settings that would read what a search tool returned; None if it is empty."""
    tool = _quoted(tool_name(span))
    for value in recorded(span, row):
        written = plain_text(value)
        if written is not None:
            split = "\n\n" if "\n\n" in written.strip() else "\n"
            how = _quoted(split if split in written.strip() else WHOLE)
            other = f", or split = {_quoted(WHOLE)} if all of it is one result"
            copied = f"otlp.shapes = [{{tool = {tool}, split = {how}}}]"
            return f"{copied}{other}" if how != _quoted(WHOLE) else copied
        found = [*lists_in(value)]
        listed = next((one for one in found if _is_of_results(*one)), next(iter(found), None))
        if listed is not None:
            return f"otlp.shapes = [{{tool = {tool}, {_items(*listed)}}}]"
    return None


def _is_of_results(path: str, items: list[Any]) -> bool:
    return isinstance(items[0], dict) and read_items(items, path) is not None


def _rows_of_lists(name: str, value: Any) -> str:
    """The rows that say which list of a result counts, as the end of a message."""
    rows = [_items(path, items) for path, items in lists_in(value) if isinstance(items[0], dict)]
    if len(rows) < 2:
        return ""
    first, *others = rows[:MAX_LISTS]
    rest = "".join(f", or {one}" for one in others)
    return f"; say which counts: otlp.shapes = [{{tool = {_quoted(name)}, {first}}}]{rest}"


def _items(path: str, items: list[Any]) -> str:
    fields = "".join(f", {name} = {_quoted(key)}" for name, key in keys_of(items, path).items())
    return f"items = {_quoted(path)}{fields}"


def lists_in(value: Any) -> Iterator[tuple[str, list[Any]]]:
    """The lists of objects, and then of texts, in a result or in what it contains as JSON; each
    with its path."""
    for inner in (parse_value(value) if isinstance(value, str) else value, innermost(value)):
        found = [*chain(_lists_in(inner, dict, "", 0), _lists_in(inner, str, "", 0))]
        found = [one for one in found if not any(is_block(x) or _ROLE in x for x in one[1])]
        if found:
            yield from found
            return


def _lists_in(
    value: Any, of: type[dict[str, Any]] | type[str], path: str, depth: int
) -> Iterator[tuple[str, list[Any]]]:
    if depth > 8:
        return
    if isinstance(value, list):
        if value and all(isinstance(one, of) for one in value):
            yield f"{path}[]" if path else "[]", value
            yield from _inside(value, of, f"{path}[]", depth)
        elif len(value) == 1 and of is dict:
            yield from _lists_in(value[0], of, f"{path}[0]", depth + 1)
    elif isinstance(value, dict):
        for key, inner in value.items():
            step = key if _PLAIN.fullmatch(key) else _quoted(key)
            yield from _lists_in(inner, of, f"{path}.{step}" if path else step, depth + 1)


def _inside(
    items: list[Any], of: type[dict[str, Any]] | type[str], path: str, depth: int
) -> Iterator[tuple[str, list[Any]]]:
    """The lists that all of the objects have under one name, such as groups, joined to one."""
    if of is str or depth > 8:
        return
    for key in items[0]:
        inner = [one.get(key) for one in items]
        step = f"{path}.{key if _PLAIN.fullmatch(key) else _quoted(key)}"
        if all(isinstance(one, dict) for one in inner):
            yield from _inside(inner, of, step, depth + 1)
        elif all(isinstance(one, list) for one in inner):
            joined = [item for one in inner for item in one]
            if joined and all(isinstance(item, of) for item in joined):
                yield f"{step}[]", joined


def keys_of(items: list[Any], path: str) -> dict[str, str]:
    """The keys of items that look like an id, an address, and a text; none of texts, and of items
    that are identified without."""
    first = items[0]
    documents = None if isinstance(first, str) else read_items(items, path)
    if isinstance(first, str) or (documents and all(one.id or one.address for one in documents)):
        return {}
    texts = {key: value for key, value in first.items() if isinstance(value, str)}
    found: dict[str, str] = {}
    for key, value in first.items():
        short = key.casefold()
        if (
            "id" not in found
            and (short in ("id", "key", "uid", "uuid") or short.endswith(("id", "key")))
            and text(value) is not None
        ):
            found["id"] = key
        if (
            "url" not in found
            and isinstance(value, str)
            and value.startswith(("http://", "https://"))
        ):
            found["url"] = key
    longest = max(
        (key for key in texts if key not in found.values()),
        key=lambda key: len(texts[key]),
        default=None,
    )
    if longest is not None:
        found["text"] = longest
    return {field: key if _PLAIN.fullmatch(key) else _quoted(key) for field, key in found.items()}


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
