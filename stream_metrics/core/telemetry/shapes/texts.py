"""The table of texts: forms of prose in which tools return several results, one row each.

A row either divides the whole text, or does not fit. Where only blank lines divide passages no row
fits: a passage may contain one, so the settings have to say it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Final

from stream_metrics.core.telemetry.contents.documents import Document, text_form
from stream_metrics.core.telemetry.spans import text

MAX_TEXT_LENGTH: Final = 1 << 20
MAX_BLOCKS: Final = 2_001
MAX_LINE: Final = 300
"""The longest line that is a title with a link."""

_ELEMENTS: Final = (
    "document|doc|result|search_result|searchresult|source|passage|chunk|snippet|context|article"
    "|page|entry|hit|item|record"
)
_GROUPS: Final = f"(?:{_ELEMENTS}|output|response|context|retrieval|knowledge|reference)s?|contexts"
_NUMBERED: Final = (
    r"search[ _-]?result|document|result|source|passage|chunk|context|snippet|hit|item|page"
    r"|article|reference|record|entry|doc|dokument|ergebnis|treffer|quelle|abschnitt|resultado"
    r"|documento|fuente|fragmento|r[ée]sultat|source|extrait|risultato|documento|resultaat|fragment"
    r"|文档|结果|文書|結果"
)
_HEADING: Final = re.compile(
    rf"^[ \t]*(?P<mark>[#=*\-\[(<_ \t]{{0,12}})(?:{_NUMBERED})"
    r"[ \t]*(?:no\.?|nr\.?|number|\#|\[)?[ \t]*"
    r"(?P<number>\d{1,4})[ \t]*(?P<rest>[^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
_ABOUT: Final = re.compile(
    r"\]?[ \t]*[(\[](?P<about>[^()\[\]\n]*)[)\]][ \t]*[:\-–—]?[ \t]*(?P<after>[^\n]*)"
)
"""Matches what follows the number of a heading, as in ``Result 2 (id: kb-2): A text.``"""
_NEXT_LABEL: Final = re.compile(r"[,;|][ \t]*(?=[A-Za-z][\w -]*:)")
_MARKER: Final = re.compile(
    r"^(?P<indent>[ \t]*)"
    r"(?:(?P<number>\d{1,4})[.)]|\[(?P<bracket>\d{1,4})\]|(?P<bullet>[-*•]))[ \t]+",
    re.MULTILINE,
)
_MARKDOWN_LINK: Final = re.compile(
    r"\[(?P<title>[^\]\n]*)\]\((?P<url>https?://[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)"
)
_LINK: Final = re.compile(r"https?://[^\s<>\"'\])}]+")
_CITED: Final = re.compile(
    r"[(\[<]?(?:\b(?:source|url|link|from|quelle|fuente)\b[ \t]*:?[ \t]*)?https?://[^\s<>\"'\])}]+[)\]>]?",
    re.IGNORECASE,
)
_RULE: Final = re.compile(r"^[ \t]*(-{3,}|\*{3,}|_{3,}|={3,})[ \t]*$", re.MULTILINE)
_LABEL: Final = re.compile(
    r"^[ \t]*(?:[-*•][ \t]+)?(?:\*\*|__)?"
    r"(?P<name>document[ _-]?id|doc[ _-]?id|chunk[ _-]?id|article[ _-]?id|page[ _-]?id|id"
    r"|title|name|url|link|page|heading"
    r"|href|uri|url source|source|address|content|contents|text|snippet|summary|description|body"
    r"|passage|excerpt"
    r"|score|relevance|similarity|distance|rank|author|authors|published|published date|date"
    r"|type|tags"
    r"|category|section|file|filename|path|titel|quelle|inhalt|texto|contenido|t[ií]tulo|fuente|contenu|titre)"
    r"(?:\*\*|__)?[ \t]*:(?:\*\*|__)?[ \t]*(?P<value>[^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
_TITLE: Final = re.compile(r"^(?P<level>#{1,6})[ \t]+(?P<title>[^\n]+)$", re.MULTILINE)
_LINKED_TITLE: Final = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+)?(?:\*\*|__)?\[(?P<title>[^\]\n]*)\]\((?P<url>https?://[^\s()]+)\)"
    r"(?:\*\*|__)?[ \t]*$",
    re.MULTILINE,
)
_SENTENCE: Final = (".", "!", "?", "。")
"""The ends of what is no title."""
_APART: Final = re.compile(
    r"(?:\n[ \t]*|^[ \t]*(?:-{3,}|\*{3,}|_{3,}|={3,})[ \t]*)\n\Z", re.MULTILINE
)
"""Matches a blank line, or a rule, at the end."""
_WITH_LINK: Final = re.compile(r"^[^\n()]+[ \t]\(https?://[^\s()]+\)[ \t]*$", re.MULTILINE)
_NEXT_SNIPPET: Final = re.compile(r"\]?,?\s+\[?(?=snippet: )")
_TITLE_AND_LINK: Final = re.compile(
    r"(?:\A|(?<=\n\n))(?P<title>[^\n]+?)[ \t]+\((?P<url>https?://[^\s()]+)\)[ \t]*(?=\n[ \t]*\S)"
)
_HEAD: Final = re.compile(r"(?:\A|(?<=\n\n))[ \t]*\[[^\]\n]+\](?!\()", re.MULTILINE)
_BLANK: Final = re.compile(r"\n[ \t]*\n\s*")
_ONLY_LINK: Final = re.compile(r"[ \t]*<?https?://[^\s<>]+>?[ \t]*")
_LINK_ALONE: Final = re.compile(r"\s*<?(?P<url>https?://[^\s<>]+)>?[ \t]*(?:\n|$)")
_IDS: Final = frozenset(("id", "documentid", "docid", "chunkid", "articleid", "pageid"))
_URLS: Final = frozenset(
    ("url", "link", "href", "uri", "urlsource", "source", "address", "quelle", "fuente")
)
_TITLES: Final = frozenset(
    ("title", "name", "titel", "título", "titulo", "titre", "page", "heading")
)
_BODIES: Final = frozenset(
    (
        "content",
        "contents",
        "text",
        "snippet",
        "summary",
        "description",
        "body",
        "passage",
        "excerpt",
        "inhalt",
        "texto",
        "contenido",
        "contenu",
    )
)
_SCORES: Final = frozenset(("score", "relevance", "similarity", "distance", "rank"))
_OPEN: Final = re.compile(
    r"<(?P<tag>[A-Za-z_][\w.-]*)(?P<attributes>(?:\s+[\w:.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*)\s*>"
)
_ATTRIBUTE: Final = re.compile(
    r"(?P<name>[\w:.-]+)\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)')"
)
_RESULTS: Final = (
    r"results?|documents?|hits?|matche?s?|passages?|sources?|articles?|pages?|chunks?|treffer"
    r"|ergebnisse?|dokumente?|resultados?|documentos?|r[ée]sultats?|risultati"
)
_COUNTS: Final = re.compile(
    rf"^[^\w<]*(?:(?:found|showing|here are|returned|retrieved|query|top \d+|gefunden)\b"
    rf"(?=[^\n]*(?::\W*$|\b(?:{_RESULTS})\b))"
    rf"|search results\b|results? for\b(?=[^\n]*(?::\W*$|[\"'“]))"
    rf"|(?:\d+ )?(?:{_RESULTS})[^\w>]*$|\d+ (?:{_RESULTS}) (?:found|for|match\w*)\b|query: )"
    rf"(?![^\n]*[.!?]\s+\S)[^\n]{{0,200}}$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TextShape:
    """A form of text; ``divide`` returns its results, or None if the text has another form."""

    source: str
    divide: Callable[[str], list[Document] | None]


def is_preamble(value: str) -> bool:
    """Whether the text only announces results, such as "Found 3 results for brakes:".

    >>> is_preamble("Found 3 results:"), is_preamble("Brakes wear down."), is_preamble("")
    (True, False, True)
    """
    value = value.strip()
    return not value or _COUNTS.match(value) is not None


def block(value: str, title: str | None = None, source: str | None = None) -> Document | None:
    """The result in a block of text: its labelled lines say id, address, title and text."""
    id = id_name = url = score = rank = None
    if (alone := _LINK_ALONE.match(value)) is not None:
        url, value = alone["url"], value[alone.end() :]
    labels = [*_LABEL.finditer(value)]
    bodies: list[str] = []
    rest: list[str] = []
    place = 0
    ends = [*(match.start() for match in labels[1:]), len(value)]
    for match, following in zip(labels, ends, strict=False):
        name = re.sub(r"[ _-]", "", match["name"].casefold())
        found = match["value"].strip()
        rest.append(value[place : match.start()])
        place = match.end()
        if name in _IDS and id is None and text(found):
            id, id_name = found, "doc_id" if name in ("docid", "documentid") else "id"
        elif name in _URLS and url is None and (link := _LINK.search(found)):
            url = link[0].rstrip(".,;")
        elif name in _URLS and source is None and text(found):
            source = found
        elif name in _TITLES and title is None and text(found):
            title = found
        elif name == "rank" and rank is None:
            rank = _number(found)
        elif name in _SCORES and score is None:
            score = _number(found)
        elif name in _BODIES:
            bodies.append(value[match.start("value") : following])
            place = following
        elif name in _IDS | _URLS | _TITLES | _SCORES:
            rest.append(match[0])  # a second one is part of the text
    rest.append(value[place:])
    body = text("\n".join(bodies).strip()) if bodies else text("".join(rest).strip())
    if id is None and url is None and body is None and title is None:
        return None
    if body is None and url is None and id is None:
        body, title = title, None
    fields: dict[str, Any] = {"source": source, "score": score, "rank": rank}
    fields = {name: found for name, found in fields.items() if found is not None}
    return Document(id, url, None, title, body, score, fields, id_name or "")


def _number(value: str) -> float | None:
    try:
        return float(value.rstrip("%"))
    except ValueError:
        return None


def _all(blocks: Iterator[Document | None]) -> list[Document] | None:
    found = [*blocks]
    return [one for one in found if one is not None] if found and None not in found else None


def _elements(value: str) -> list[Document] | None:
    """XML-like elements of one name, perhaps inside an element around all of them."""
    head, _, rest = value.strip().partition("\n")
    found = _siblings(rest if is_preamble(head) else value)
    for _ in range(2):
        if (
            found is None
            or len(found) != 1
            or not re.fullmatch(_GROUPS, found[0][0], re.IGNORECASE)
        ):
            break
        if not found[0][2].strip():
            return []
        inner = _siblings(found[0][2])
        if inner is None or not re.fullmatch(_ELEMENTS, inner[0][0], re.IGNORECASE):
            break
        if len(inner) == 1 and re.fullmatch(_ELEMENTS, found[0][0], re.IGNORECASE):
            break  # a document with one field
        found = inner
    if found is None or not re.fullmatch(_ELEMENTS, found[0][0], re.IGNORECASE):
        return None
    return _all(_element(attributes, body) for _, attributes, body in found)


def _siblings(value: str) -> list[tuple[str, str, str]] | None:
    """The elements that the text consists of, as tag, attributes and content; None if it has other
    text between them, or elements of several names."""
    value = value.strip()
    found: list[tuple[str, str, str]] = []
    place = 0
    while place < len(value):
        one = _OPEN.match(value, place)
        if one is None or len(found) > MAX_BLOCKS or (found and one["tag"] != found[0][0]):
            return None
        end = f"</{one['tag']}>"
        close = value.find(end, one.end())
        if close < 0:
            return None
        body = value[one.end() : close]
        if re.search(rf"<{re.escape(one['tag'])}(?=[\s>])", body):
            return None  # one inside another
        found.append((one["tag"], one["attributes"], body))
        place = close + len(end)
        while place < len(value) and value[place].isspace():
            place += 1
    return found or None


def _element(attributes: str, body: str) -> Document | None:
    lines = []
    for match in _ATTRIBUTE.finditer(attributes):
        found = match["double"] if match["double"] is not None else match["single"]
        lines.append(f"{match['name']}: {found}")
    inner, rest = [], body
    while (one := _OPEN.match(rest.lstrip())) is not None:
        rest = rest.lstrip()
        end = f"</{one['tag']}>"
        close = rest.find(end, one.end())
        if close < 0:
            break
        inner.append((one["tag"].casefold(), rest[one.end() : close].strip()))
        rest = rest[close + len(end) :]
    bodies = []
    for tag, found in inner:
        name = tag.replace("document_content", "content").replace("page_content", "content")
        if re.sub(r"[ _-]", "", name) in _BODIES:
            bodies.append(found)
        elif name == "metadata":
            lines += [f"{m['tag']}: {c}" for m, c in _inner(found)] or found.splitlines()
        else:
            lines.append(f"{name}: {' '.join(found.split())}")
    head = block("\n".join(lines)) if lines else None
    own = text("\n".join(bodies).strip()) if bodies else text(rest.strip())
    if head is None or not _LABEL.search("\n".join(lines)):
        return block(own) if own is not None and not bodies else _of_text(own)
    labelled = None if own is None or bodies else block(own)
    base = Document(
        head.id,
        head.url,
        None,
        head.title if _says(lines, _TITLES) else None,
        own if own is not None else (head.text if _says(lines, _BODIES) else None),
        head.score,
        head.fields,
        head.id_name,
    )
    if labelled is not None and (labelled.id or labelled.url):
        return Document(
            base.id or labelled.id,
            base.url or labelled.url,
            None,
            base.title or labelled.title,
            labelled.text,
            base.score if base.score is not None else labelled.score,
            {**labelled.fields, **base.fields},
            base.id_name or labelled.id_name,
        )
    return base if base.id or base.url or base.text else None


def _inner(value: str) -> Iterator[tuple[re.Match[str], str]]:
    place = 0
    while (one := _OPEN.search(value, place)) is not None:
        close = value.find(f"</{one['tag']}>", one.end())
        if close < 0:
            return
        yield one, " ".join(value[one.end() : close].split())
        place = close


def _says(lines: Sequence[str], names: frozenset[str]) -> bool:
    found = (_LABEL.match(line) for line in lines)
    return any(m is not None and re.sub(r"[ _-]", "", m["name"].casefold()) in names for m in found)


def _of_text(value: str | None) -> Document | None:
    return None if value is None else Document(text=value)


def without_numbers(parts: Sequence[str]) -> list[str]:
    """The parts of a text without the numbers that count them, if they do.

    >>> without_numbers(["[1] One.", "[2] Two."]), without_numbers(["1. One.", "Two."])
    (['One.', 'Two.'], ['1. One.', 'Two.'])
    """
    markers = [_MARKER.match(part) for part in parts]
    numbers = [match and (match["number"] or match["bracket"]) for match in markers]
    if not any(numbers == [str(at + first) for at in range(len(parts))] for first in (0, 1)):
        return [*parts]
    return [
        re.sub(rf"^{re.escape(match[0])}", "", part, flags=re.MULTILINE)
        for part, match in zip(parts, markers, strict=True)
        if match
    ]


def _linked_items(value: str) -> list[Document] | None:
    """A numbered list, or a bulleted one, of which each item has a link."""
    markers = list(_MARKER.finditer(value))
    if not markers or len(markers) > MAX_BLOCKS:
        return None
    first = markers[0]
    kind = "number" if first["number"] else "bracket" if first["bracket"] else "bullet"
    items = [match for match in markers if match[kind] and match["indent"] == first["indent"]]
    if kind != "bullet":
        numbers = [int(match[kind]) for match in items]
        if numbers[0] not in (0, 1) or any(b != a + 1 for a, b in pairwise(numbers)):
            return None
    if not is_preamble(value[: first.start()]):
        return None
    ends = [*(match.start() for match in items[1:]), len(value)]
    return _all(_linked(value[match.end() : end]) for match, end in zip(items, ends, strict=True))


def _linked(value: str) -> Document | None:
    """An item with a link: that of its title, of a labelled line, or its only one."""
    head, _, rest = value.strip().partition("\n")
    if link := _MARKDOWN_LINK.search(head):
        body = text((head[: link.start()] + head[link.end() :] + "\n" + rest).strip(" \t\n-–—:*"))
        return Document(None, link["url"], None, text(link["title"]), body)
    labelled = block(value.strip())
    if labelled is not None and labelled.url is not None:
        title = labelled.title or text(head.strip(" *_#:-"))
        if labelled.title is None and _LABEL.match(head) is None and labelled.text is not None:
            body = labelled.text.removeprefix(f"{head}\n").strip()
            return Document(
                labelled.id,
                labelled.url,
                None,
                title,
                text(body),
                labelled.score,
                labelled.fields,
                labelled.id_name,
            )
        return labelled
    links = _LINK.findall(value)
    if len({link.rstrip(".,;:") for link in links}) != 1:
        return None
    url = links[0].rstrip(".,;:")
    title = text(_CITED.sub("", head).strip(" \t-–—:*()<>[]|"))
    body = text(_CITED.sub("", rest).strip(" \t\n-–—:*()<>|"))
    return Document(None, url, None, title, body or title)


def _labelled_blocks(value: str) -> list[Document] | None:
    """Blocks that begin with the same label, such as ``Title:``, each with an id or an address."""
    labels = [*_LABEL.finditer(value)]
    if not labels:
        return None
    first = labels[0]
    if not is_preamble(value[: first.start()]):
        return None
    name = first["name"].casefold()
    same = [match for match in labels if match["name"].casefold() == name]
    apart = _apart(value, same)
    starts = [match.start() for match in apart]
    if len(starts) > MAX_BLOCKS:
        return None
    ends = [*starts[1:], len(value)]
    found = []
    names = set()
    for start, end in zip(starts, ends, strict=True):
        part = _RULE.sub("", value[start:end]).strip()
        document = block(part)
        if document is None:
            return None
        found.append(document)
        names.add(tuple(_name_of(match) for match in _LABEL.finditer(part)))
    tight = len(apart) > 1 and not _is_apart(value, apart[1])
    if all(document.url or document.id for document in found) and (not tight or len(names) == 1):
        return found
    alike = len(found) > 1 and len(names) == 1 and not _BODIES.isdisjoint(next(iter(names)))
    return found if alike and all(document.text for document in found) else None


def _apart(value: str, starts: list[re.Match[str]]) -> list[re.Match[str]]:
    """Of the beginnings of blocks those after a blank line or a rule, if there are any; those
    inside of blocks are no beginnings then."""
    apart = [one for one in starts[1:] if _is_apart(value, one)]
    return [*starts[:1], *apart] if apart else starts


def _is_apart(value: str, start: re.Match[str]) -> bool:
    return _APART.search(value, max(0, start.start() - 80), start.start()) is not None


def _name_of(label: re.Match[str]) -> str:
    return re.sub(r"[ _-]", "", label["name"].casefold())


def _titled_blocks(value: str) -> list[Document] | None:
    """Blocks under titles: each title is a link, or has a labelled id or address below it."""
    titles = _apart(value, [*_LINKED_TITLE.finditer(value)])
    titles = titles or [*_TITLE_AND_LINK.finditer(value)]
    linked = bool(titles)
    if not linked:
        levels = [*_TITLE.finditer(value)]
        deepest = max((match["level"] for match in levels), key=len, default="")
        titles = [match for match in levels if match["level"] == deepest]
    if not titles or len(titles) > MAX_BLOCKS:
        return None
    before = value[: titles[0].start()].strip()
    if not (is_preamble(before) or (before.startswith("#") and "\n" not in before)):
        return None
    ends = [*(match.start() for match in titles[1:]), len(value)]
    found = []
    for match, end in zip(titles, ends, strict=True):
        body = _RULE.sub("", value[match.end() : end]).strip()
        if not body:
            return None
        if linked and _WITH_LINK.search(body):
            return None  # a list of links
        if linked:
            found.append(Document(None, match["url"], None, text(match["title"]), text(body)))
            continue
        document = block(body, text(match["title"]))
        if document is None or not (document.url or document.id):
            return None
        found.append(document)
    return found


def _linked_lines(value: str) -> list[Document] | None:
    """Lines that each have one link, as in ``Refunds (https://kb.example/1)``."""
    lines = [line.strip() for line in value.splitlines() if line.strip()]
    if len(lines) > 1 and is_preamble(lines[0]):
        lines = lines[1:]
    links = [_LINK.findall(line) for line in lines]
    if not 1 < len(lines) <= MAX_BLOCKS or any(len(each) != 1 for each in links):
        return None
    if len({link for [link] in links}) == 1 or any(len(line) > MAX_LINE for line in lines):
        return None  # sentences that cite it
    return _all(_linked(_MARKER.sub("", line)) for line in lines)


def _addressed_blocks(value: str) -> list[Document] | None:
    """Blocks between blank lines that have an address alone as their first or second line."""
    parts = [part.strip() for part in _BLANK.split(value.strip())]
    if len(parts) > 1 and is_preamble(parts[0]):
        parts = parts[1:]
    if not 1 < len(parts) <= MAX_BLOCKS:
        return None
    blocks = [part.splitlines() for part in parts]
    places = {
        tuple(place for place, line in enumerate(lines) if _ONLY_LINK.fullmatch(line))
        for lines in blocks
    }
    if places not in ({(0,)}, {(1,)}):
        return None
    [(place,)] = places
    found = []
    for lines in blocks:
        title = text(lines[0].strip(" *_#")) if place else None
        body = text("\n".join(lines[place + 1 :]).strip())
        found.append(Document(None, lines[place].strip(" \t<>"), None, title, body or title))
    return found


def _headed_blocks(value: str) -> list[Document] | None:
    """Blocks under numbered headings, such as ``===== Document 2 =====`` or ``Result 2:``."""
    headings = [
        match for match in _HEADING.finditer(value) if match["mark"].strip() or _ends(match["rest"])
    ]
    if not headings or len(headings) > MAX_BLOCKS:
        return None
    mark = headings[0]["mark"].strip()
    if any(match["mark"].strip() != mark for match in headings):
        return None
    numbers = [int(match["number"]) for match in headings]
    if numbers[0] not in (0, 1) or any(b != a + 1 for a, b in pairwise(numbers)):
        return None
    if not is_preamble(value[: headings[0].start()]):
        return None
    ends = [*(match.start() for match in headings[1:]), len(value)]
    blocks = []
    for match, end in zip(headings, ends, strict=True):
        about = _ABOUT.fullmatch(match["rest"].strip())
        if about is not None and _in_heading(about["about"]):
            labels = _NEXT_LABEL.sub("\n", about["about"])
            blocks.append(block(f"{labels}\n{about['after']}{value[match.end() : end]}"))
            continue
        own = match["rest"].strip(" \t=#*-_:)]>|").lstrip(".")
        attributes = _in_heading(own)
        body = (
            _RULE.sub("", value[match.end() : end]).strip()
            if mark == ""
            else value[match.end() : end].strip()
        )
        if attributes or own.endswith(_SENTENCE):
            blocks.append(block(f"{attributes or own}\n{body}"))
        else:
            blocks.append(block(body, text(own)))
    return _all(iter(blocks))


def _in_heading(value: str) -> str | None:
    """The labelled part of a heading, such as ``(id: kb-1)``."""
    inner = value.strip("()[] ")
    return inner if _LABEL.match(inner) or _LINK.fullmatch(inner) else None


def _ends(rest: str) -> bool:
    """Whether what follows the number shows that the line is a heading."""
    rest = rest.strip()
    return rest == "" or rest[0] in ":=#-–—*)]>("


def _ruled(value: str) -> list[Document] | None:
    """Passages with a rule such as ``---`` between them."""
    rules = [*_RULE.finditer(value)]
    if not rules or len(rules) > MAX_BLOCKS or len({rule[1] for rule in rules}) > 1:
        return None
    parts = _RULE.split(value)[::2]
    if not parts[0].strip():
        return None  # front matter, or a frame
    if not parts[-1].strip():
        parts = parts[:-1]
    blank = {_blank_around(value, rule.start(), rule.end()) for rule in rules}
    if len(blank) > 1 or len(parts) < 2:
        return None  # some are underlines of titles
    if is_preamble(parts[0]):
        parts = parts[1:]
    if _has_blocks(parts):
        return None
    return _all(block(part.strip()) for part in parts)


def _has_blocks(parts: Sequence[str]) -> bool:
    """Whether what is between rules has parts of several blocks, which contain the rules: numbers
    that go on across rules, several bracketed heads, or lines of addresses at several places."""
    numbers: list[tuple[int, int]] = []
    heads = inside = 0
    lines = (enumerate(part.strip().splitlines()) for part in parts)
    links = {tuple(at < 2 for at, line in one if _ONLY_LINK.fullmatch(line)) for one in lines}
    if len(links) > 1 or len(max(links)) > 1:
        return True
    for place, part in enumerate(parts):
        starts = [match.start() for match in _HEAD.finditer(part)]
        heads += len(starts)
        inside += sum(bool(part[:start].strip()) for start in starts)
        for match in _MARKER.finditer(part):
            if number := match["number"] or match["bracket"]:
                numbers.append((place, int(number)))
    found = [number for number, _ in groupby(number for _, number in numbers)]
    goes_on = len(found) > 1 and found == [*range(found[0], found[0] + len(found))]
    return (goes_on and len({place for place, _ in numbers}) > 1) or (heads > 1 and inside > 0)


def _blank_around(value: str, start: int, end: int) -> bool:
    before = value[:start]
    return before.endswith("\n\n") or re.search(r"\n[ \t]*\n$", before) is not None


def _snippets(value: str) -> list[Document] | None:
    """Results in a row, each as ``snippet: …, title: …, link: …``, perhaps in brackets."""
    value = value.strip()
    if not value.startswith(("snippet: ", "[snippet: ")):
        return None
    found: list[Document] = []
    for part in _NEXT_SNIPPET.split(value.removeprefix("[").removesuffix("]")):
        head, _, url = part.partition(", date: ")[0].rpartition(", link: ")
        body, _, title = head.removeprefix("snippet: ").rpartition(", title: ")
        if not body or _LINK.fullmatch(url) is None:
            return None
        found.append(Document(None, url, None, text(title), text(body)))
    return found


TEXTS: Final[tuple[TextShape, ...]] = (
    TextShape("XML-like elements: document, result, source, passage", _elements),
    TextShape("numbered or bulleted lists whose items have a link", _linked_items),
    TextShape("blocks of labelled lines: Title:, URL:, Content:", _labelled_blocks),
    TextShape("blocks under numbered headings: ===== Document 2 =====, Result 2:", _headed_blocks),
    TextShape("passages between rules: ---", _ruled),
    TextShape("blocks under titles that are links, or have an id or address below", _titled_blocks),
    TextShape("snippet: …, title: …, link: …, as LangChain's DuckDuckGo", _snippets),
    TextShape("lines that each have a link", _linked_lines),
    TextShape("blocks between blank lines, with an address as a line", _addressed_blocks),
)


def results_in_text(value: str) -> list[tuple[str, list[Document]]]:
    """The rows that fit a text, each with the results that it finds; different lists only."""
    if len(value) > MAX_TEXT_LENGTH:
        return []
    found: list[tuple[str, list[Document]]] = []
    for row in TEXTS:
        documents = row.divide(value)
        if documents is None or _is_cited(documents):
            continue
        if all(_differ(documents, other) for _, other in found):
            found.append((row.source, documents))
    return found


def _is_cited(documents: Sequence[Document]) -> bool:
    """Whether all results have one id or address that only their texts cite: nothing else that
    they have is the same."""
    places = {one.id or one.url for one in documents}
    texts, titles = ({one.text for one in documents}, {one.title for one in documents})
    return len(places) == 1 and None not in places and len(texts) == 1 and len(titles) > 1


def _differ(some: Sequence[Document], others: Sequence[Document]) -> bool:
    """Whether two readings of one text find different results."""
    if len(some) != len(others):
        return True
    return any(
        (one.id or one.url) != (other.id or other.url)
        if (one.id or one.url) and (other.id or other.url)
        else text_form(one.text or "") != text_form(other.text or "")
        for one, other in zip(some, others, strict=True)
    )
