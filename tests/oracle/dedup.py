"""Deduplication that compares the texts of every result with those of every earlier one."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

from .text import Form, field_form, fold, normalise, text_form

Result = dict[str, Any]

NAMED_TYPES = (
    "File",
    "Event",
    "EmailMessage",
    "TeamsMessage",
    "PeopleInferenceAnswer",
    "External",
    "MeetingTranscript",
)
_CANONICAL = {name.casefold(): name for name in NAMED_TYPES} | {
    "email": "EmailMessage",
    "people": "PeopleInferenceAnswer",
}
_DEFINITIVE = {
    "File": {"file_id", "unique_id"},
    "Event": {"event_id"},
    "EmailMessage": {"email_url"},
    "TeamsMessage": {"item_id"},
    "PeopleInferenceAnswer": {"alias", "upn", "email"},
    "External": {"artifact_id"},
    "MeetingTranscript": {"event_id"},
}
_NEVER_DEFINITIVE = {"site_id", "web_id", "tenant_id", "container_id"}
_FOLDED_COMPONENTS = {"alias", "upn", "email"}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TRIPLET = re.compile(r"%[0-9a-fA-F]{2}")
_UNRESERVED = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_DROPPED = {
    *("web", "preview", "auth", "token", "session", "gclid", "fbclid", "msclkid", "srsltid"),
    *("mc_cid", "mc_eid", "igshid", "ref", "ref_src"),
}
_VIEWS = {"view", "action"}
_TRACKING = {"gclid", "fbclid", "msclkid", "srsltid", "mc_cid", "mc_eid", "igshid", "ref_src"}
_NUMBERED_PLACES = {"page", "zoom", "t", "xywh", "track", "char", "line", "row", "col", "cell"}
_PLACES = {*_NUMBERED_PLACES, "nameddest", "pagemode", "heading", "bookmark", "slide"}
_LOCAL = {
    *("chunk", "chunk_id", "chunk_idx", "chunk_index", "chunk_number", "page", "page_label"),
    *("page_number", "paragraph_id", "passage_id", "section_id", "segment_id", "split_id"),
    "start_index",
}
_PLACE_SYNTAX = (
    *("epubcfi(", "xpointer(", "element(", "svgView(", "alg:", "app:", "chap:", "cite:", "def:"),
    *("eq:", "eqn:", "fig:", "fn:", "fnref:", "lem:", "lst:", "ref:", "sec:", "subsec:", "tab:"),
    *("tbl:", "thm:"),
)
_IDENTITY = ("id", "itemid", "version", "sourcedoc", "docid", "v", "p")
_IGNORED = {"retrieved_at", "score", "rank", "similarity", "highlight", "language", "source"}
_TITLE_FIELDS = ("subject", "file_name", "display_name")
MAX_PARAMETERS = 500
MAX_VERIFIED = 64


@dataclass(frozen=True)
class Settings:
    """The options that change a verdict."""

    identical_content: str = "duplicate"
    snippet_rejects: bool = True
    tables: int = 2

    @property
    def canonical(self) -> bool:
        """Whether canonically equivalent texts are equal."""
        return self.tables >= 2


@dataclass(frozen=True)
class Verdict:
    """The verdict on a pair, its evidence, and the step that decided."""

    duplicate: bool
    evidence: str | None
    step: str


@dataclass(frozen=True)
class Placement:
    """The document of one result."""

    first: int  # index of the unique document's first occurrence; its own if unique
    verdict: Verdict | None  # evidence of the deciding pair, None if unique
    contradicted: int  # matches that the IDs of their document contradict
    refused: tuple[str, ...]  # steps at which verification rejected a candidate
    truncated: int


# --- parts of one result ----------------------------------------------------------------------


def canonical_type(result: Result, settings: Settings) -> str:
    """The table's spelling of a type in the tables, else the folded name."""
    folded = fold(result["entity_type"], settings.canonical)
    return str(_CANONICAL.get(folded, folded))


def _id_value(name: str, value: str, settings: Settings) -> str:
    caseless = name in _FOLDED_COMPONENTS or _UUID.fullmatch(value)
    return fold(value, settings.canonical) if caseless else value


def id_components(result: Result, settings: Settings) -> dict[str, set[str]]:
    """The non-empty values of each component."""
    found = {
        name: {_id_value(name, value, settings) for value in values if value != ""}
        for name, values in result["ids"].items()
    }
    return {name: values for name, values in found.items() if values}


def is_definitive(kind: str, name: str) -> bool:
    """Whether equal values of this component make two results of the type one document."""
    if kind in _DEFINITIVE:
        return name in _DEFINITIVE[kind]
    return name not in _NEVER_DEFINITIVE


def has_definitive(kind: str, ids: dict[str, set[str]]) -> bool:
    """Whether any component present is definitive."""
    return any(is_definitive(kind, name) for name in ids)


def generic_id(result: Result, settings: Settings) -> str | None:
    """The comparable form of `doc_id`."""
    return None if result["doc_id"] is None else _id_value("doc_id", result["doc_id"], settings)


def own_text(result: Result, name: str, settings: Settings) -> str:
    """Normalised title, snippet or content; empty if absent."""
    return normalise(str(result[name] or ""), settings.canonical)


@dataclass(frozen=True)
class Address:
    """What is compared of a URL."""

    place: tuple[str, str]  # net location, and path with route
    parameters: Counter[tuple[str, str]]
    weak: Counter[tuple[str, str]]  # counted only where something else differs
    route: str  # the same, a fragment


def url_parts(result: Result, settings: Settings) -> Address | None:
    """None if absent."""
    if result["url"] is None:
        return None
    return _careful(result["url"]) if settings.tables >= 2 else _plain(result["url"])


def _plain(url: str) -> Address | None:
    try:
        split = urlsplit(url)
    except ValueError:
        return None
    netloc = split.netloc.casefold().rpartition("@")[2]
    for port in (":80", ":443"):
        if netloc.endswith(port):
            netloc = netloc[: -len(port)]
            break
    if not netloc:
        return None
    path = split.path
    if path == "":
        path = "/"
    elif len(path) > 1 and path.endswith("/"):
        path = path[:-1]
    path = _TRIPLET.sub(_triplet, path)
    if split.fragment[:1] in ("/", "!") and split.fragment:
        path += "#" + split.fragment
    pairs = parse_qsl(split.query, keep_blank_values=True)
    if len(pairs) > MAX_PARAMETERS:
        return None
    kept = [(name.casefold(), value) for name, value in pairs]
    kept = [pair for pair in kept if pair[0] not in _DROPPED and not pair[0].startswith("utm_")]
    if any(name not in _VIEWS for name, _ in kept):
        kept = [pair for pair in kept if pair[0] not in _VIEWS]
    return Address((netloc, path), Counter(kept), Counter(), "")


def _careful(url: str) -> Address | None:
    try:
        split = urlsplit(url)
    except ValueError:
        return None
    if split.scheme in ("", "http", "https"):
        host = split.netloc.split("@")[-1]
        implied = {"http": ":80", "https": ":443"}.get(split.scheme, ":")
        if host.endswith((implied, ":")):
            host = host.rpartition(":")[0]
        place = _host(host)
    else:
        place = split.netloc and split.scheme + "://" + _TRIPLET.sub(_triplet, split.netloc)
    if not place:
        return None
    fragment = split.fragment.split(":~:")[0]
    path = _clean(_spelled(split.path))
    if fragment.startswith(("/", "!")):
        path, fragment = path + "#" + _spelled(fragment, "?"), ""
    elif split.scheme in ("", "http", "https") and not _is_route(fragment):
        fragment = ""
    counted: Counter[tuple[str, str]] = Counter()
    weak: Counter[tuple[str, str]] = Counter()
    pairs = []
    for piece in split.query.split("&"):
        if piece:
            name, _, value = piece.partition("=")
            pairs.append((_decoded(name).casefold(), _decoded(value)))
    if len(pairs) > MAX_PARAMETERS:
        return None
    pairs = [pair for pair in pairs if pair[0] not in _TRACKING and pair[0][:4] != "utm_"]
    certain = {name for name, _ in pairs} - (_DROPPED | _VIEWS)
    for name, value in pairs:
        is_weak = name in _DROPPED or (name in _VIEWS and certain)
        (weak if is_weak else counted)[name, value] += 1
    return Address((place, path), counted, weak, _spelled(fragment, "?"))


def _host(host: str) -> str:
    """Decoded, in lower case, and each label in ASCII where it can be."""
    labels = []
    host = unquote_to_bytes(host.lower()).decode("utf-8", "replace")
    for label in re.split("[.\u3002\uff0e\uff61]", host):
        if not label.isascii():
            label = "xn--" + unicodedata.normalize("NFC", label.lower()).encode("punycode").decode()
        labels.append(label.lower())
    return ".".join(labels)


def _spelled(path: str, more: str = "") -> str:
    """With what no URI may have, and what is beyond ASCII, in percent triplets."""
    allowed = _UNRESERVED | set("/:@!$&'()*+,;=%" + more)
    signs = [s if s in allowed else "".join(f"%{b:02X}" for b in s.encode()) for s in path]
    return _TRIPLET.sub(_triplet, "".join(signs))


def _clean(path: str) -> str:
    """Without dot segments and one slash at the end."""
    segments = path.split("/")[1:]
    kept: list[str] = []
    for number, segment in enumerate(segments):
        if segment == "..":
            kept = kept[:-1]
        if segment not in (".", ".."):
            kept.append(segment)
        elif number == len(segments) - 1:
            kept.append("")
    path = "/" + "/".join(kept)
    return path[:-1] if path.endswith("/") and path != "/" else path


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "surrogateescape")


def _is_route(fragment: str) -> bool:
    """Whether it looks like the page of an application."""
    before_colon = fragment.partition(":")[0]
    word = before_colon.replace("_", "").isalnum() and before_colon.isascii()
    labelled = ":" in fragment and word and before_colon[0].isalpha()
    signs = set("/@=") & set(fragment) or fragment.startswith("eyJ")
    if not (signs or labelled) or fragment.startswith(_PLACE_SYNTAX):
        return False
    return not all(map(_is_place, fragment.split("&")))


def _is_place(part: str) -> bool:
    name, _, value = part.partition("=")
    if name.lower() in _NUMBERED_PLACES:
        return value[:1].isdigit()
    return name.lower() in _PLACES


def _triplet(match: re.Match[str]) -> str:
    char = chr(int(match[0][1:], 16))
    return char if char in _UNRESERVED else match[0].upper()


def title_key_text(result: Result, settings: Settings) -> str:
    """The text of the title key: the title, else the first text among the fallback fields."""
    if own_text(result, "title", settings):
        return own_text(result, "title", settings)
    for name in _TITLE_FIELDS:
        value = result["fields"].get(name)
        if isinstance(value, list):
            present = [one for one in value if field_form(one, settings.canonical) is not None]
            value = present[0] if len(present) == 1 else None
        if isinstance(value, str) and normalise(value, settings.canonical):
            return normalise(value, settings.canonical)
    return ""


def candidate_keys(result: Result, settings: Settings) -> set[tuple[str, ...]]:
    """All keys of phase 1."""
    kind = canonical_type(result, settings)
    ids = id_components(result, settings)
    keys: set[tuple[str, ...]] = set()
    for name, values in ids.items():
        if is_definitive(kind, name) or name == "original_id":
            keys |= {(kind, "id", name, value) for value in values}
    doc_id = generic_id(result, settings)
    if doc_id is not None and not has_definitive(kind, ids):
        keys.add((kind, "id", "doc_id", doc_id))
    url = url_parts(result, settings)
    if url is not None:
        keys.add((kind, "url", *url.place))
    for name, length in (("snippet", 100), ("content", 500)):
        text = own_text(result, name, settings)
        if len(text) >= 50:
            keys.add((kind, name, text[:length]))
    title = title_key_text(result, settings)
    if title:
        keys.add((kind, "title", title[:100]))
    return keys


# --- verification of a pair -------------------------------------------------------------------


def verify(a: Result, b: Result, settings: Settings) -> Verdict:
    """Decide whether two results of one type are one document."""
    kind = canonical_type(a, settings)
    if kind == "MeetingTranscript" and _Pair(kind, a, b, settings).field_differs("segment"):
        return Verdict(False, None, "segment")
    by_ids = compare_ids(kind, _identity([a], settings), _identity([b], settings), settings)
    if by_ids and by_ids.duplicate and _parts_of_two_documents(kind, a, b, settings):
        return Verdict(False, None, "ids")
    return (
        by_ids
        or _compare_urls(kind, a, b, settings)
        or _compare_fields(kind, a, b, settings)
        or Verdict(False, None, "inconclusive")
    )


def _parts_of_two_documents(kind: str, a: Result, b: Result, settings: Settings) -> bool:
    """They share the number of a chunk, and documents and texts are others."""
    if settings.tables < 2:
        return False
    left, right = id_components(a, settings), id_components(b, settings)
    if not any(name in right and is_definitive(kind, name) for name in set(left) & _LOCAL):
        return False
    ids = [generic_id(result, settings) for result in (a, b)]
    if None not in ids:
        return ids[0] != ids[1] and _text(a, b, settings) == "differs"
    urls = [url_parts(result, settings) for result in (a, b)]
    contents = [own_text(result, "content", settings) for result in (a, b)]
    if None in urls or "" in contents or contents[0] == contents[1]:
        return False
    here, there = [(u.place, u.parameters, u.route) for u in urls if u is not None]
    return here != there


@dataclass(frozen=True)
class Identity:
    """The IDs and long contents of one result, or of all members of a document."""

    ids: dict[str, set[str]]
    doc_ids: set[str]
    long_contents: set[str]


def _identity(members: list[Result], settings: Settings) -> Identity:
    ids: dict[str, set[str]] = {}
    for member in members:
        for name, values in id_components(member, settings).items():
            ids[name] = ids.get(name, set()) | values
    doc_ids = {generic_id(member, settings) for member in members} - {None}
    contents = {own_text(member, "content", settings) for member in members}
    return Identity(ids, doc_ids, {text for text in contents if len(text) >= 200})  # type: ignore[arg-type]


def compare_ids(kind: str, a: Identity, b: Identity, settings: Settings) -> Verdict | None:
    """Step 1."""
    both = [name for name in a.ids if name in b.ids]
    if any(not a.ids[name] & b.ids[name] for name in both):
        return Verdict(False, None, "ids")
    if any(is_definitive(kind, name) for name in both):
        return Verdict(True, "id", "ids")
    if not a.doc_ids or not b.doc_ids:
        return None
    if has_definitive(kind, a.ids) or has_definitive(kind, b.ids):
        return None
    if a.doc_ids & b.doc_ids:
        return Verdict(True, "id", "doc_id")
    if settings.identical_content == "duplicate" and a.long_contents & b.long_contents:
        return Verdict(True, "id", "identical_content")
    return Verdict(False, None, "doc_id")


def _compare_urls(kind: str, a: Result, b: Result, settings: Settings) -> Verdict | None:
    left, right = url_parts(a, settings), url_parts(b, settings)
    if left is None or right is None:
        return None
    if left.place != right.place:
        return Verdict(False, None, "url")
    pair = _Pair(kind, a, b, settings)
    apart = pair.differs("title") or _text(a, b, settings) == "differs" or _rejected(kind, pair)
    if left.route != right.route and apart:
        return Verdict(False, None, "url")
    weak_count = left.weak != right.weak and apart
    if left.parameters == right.parameters and not weak_count:
        return Verdict(True, "url", "url")
    for name in _IDENTITY:
        values = [
            Counter({value: n for (key, value), n in side.parameters.items() if key == name})
            for side in (left, right)
        ]
        if values[0] and values[1] and values[0] != values[1]:
            return Verdict(False, None, "url_identity")
    text = _text(a, b, settings)
    if text == "matches":
        return Verdict(True, "text", "url_text")
    if text == "differs":
        return Verdict(False, None, "url_text")
    return None


def _text(a: Result, b: Result, settings: Settings) -> str:
    equal_long = False
    for name in ("snippet", "content"):
        left, right = own_text(a, name, settings), own_text(b, name, settings)
        if not left or not right:
            continue
        if left != right:
            if name == "snippet" and not settings.snippet_rejects:
                continue
            return "differs"
        equal_long = equal_long or len(left) >= 50
    return "matches" if equal_long else "neither"


class _Pair:
    """Equality of the named values of two results."""

    def __init__(self, kind: str, a: Result, b: Result, settings: Settings) -> None:
        self.kind, self.a, self.b, self.settings = kind, a, b, settings

    def _form(self, result: Result, name: str) -> Form | None:
        if name in ("title", "snippet", "content"):
            form = text_form(result[name], self.settings.canonical)
            if form is None and name == "title" and self.kind == "Event":
                form = self._field(result, "subject")
            return form
        return self._field(result, name)

    def _field(self, result: Result, name: str) -> Form | None:
        return field_form(result["fields"].get(name), self.settings.canonical)

    def field_differs(self, name: str) -> bool:
        """Both have the entry of `fields`, and it is not the same."""
        left, right = self._field(self.a, name), self._field(self.b, name)
        return left is not None and right is not None and left != right

    def field_matches(self, name: str) -> bool:
        """Both have the entry of `fields`, and it is the same."""
        left, right = self._field(self.a, name), self._field(self.b, name)
        return left is not None and left == right

    def differs(self, name: str) -> bool:
        """Comparable and unequal."""
        if name == "snippet" and not self.settings.snippet_rejects:
            return False
        left, right = self._form(self.a, name), self._form(self.b, name)
        return left is not None and right is not None and left != right

    def __call__(self, name: str) -> bool:
        """Comparable and equal; snippet and content need length too."""
        if name == "text":
            return _text(self.a, self.b, self.settings) == "matches"
        left, right = self._form(self.a, name), self._form(self.b, name)
        if left is None or left != right:
            return False
        if name in ("snippet", "content"):
            return len(str(left[1])) >= 50
        return True

    def count(self, *names: str) -> int:
        """The number of these that match."""
        return sum(self(name) for name in names)


Rule = tuple[tuple[str, ...], Callable[[_Pair], bool]]
_TEXTS = ("snippet", "content")
# For each type the names whose mismatch rejects, and the rules that confirm, each with its
# text-like names.
_TABLE: dict[str, tuple[tuple[str, ...], tuple[Rule, ...]]] = {
    "File": (
        (
            "file_name",
            "file_type",
            "author",
            "last_modified_by",
            "last_modified_time",
            "title",
            "snippet",
            "content",
        ),
        (
            (("text",), lambda m: m("text")),
            (
                (),
                lambda m: (
                    m("file_name")
                    and m.count(
                        "title", "author", "file_type", "last_modified_by", "last_modified_time"
                    )
                    >= 2
                ),
            ),
        ),
    ),
    "Event": (
        ("start", "end", "organizer_email"),
        (
            (
                (),
                lambda m: m("start") and m("end") and _original_id_matches(m),
            ),
            (
                _TEXTS,
                lambda m: (
                    m("start")
                    and m("end")
                    and m("organizer_email")
                    and m.count("title", *_TEXTS) >= 1
                ),
            ),
            (
                _TEXTS,
                lambda m: m("start") and m("end") and m("title") and m.count(*_TEXTS) >= 1,
            ),
        ),
    ),
    "EmailMessage": (
        ("date_time_received", "from", "to", "subject", "snippet", "content"),
        (
            (
                _TEXTS,
                lambda m: (
                    m("date_time_received")
                    and m.count("subject", "snippet", "content", "from", "to") >= 1
                ),
            ),
            (
                _TEXTS,
                lambda m: m("subject") and m.count(*_TEXTS) >= 1 and m.count("from", "to") >= 1,
            ),
            (
                _TEXTS,
                lambda m: m("from") and m("to") and m.count("subject", *_TEXTS) >= 1,
            ),
        ),
    ),
    "TeamsMessage": (
        ("from", "to", "participants", "title", "subject", "snippet", "content"),
        (
            (
                _TEXTS,
                lambda m: (
                    m.count(*_TEXTS) >= 1
                    and m.count("subject", "title") >= 1
                    and m.count("from", "to", "participants") >= 1
                ),
            ),
            (
                _TEXTS,
                lambda m: (
                    m.count("snippet", "content", "subject", "title") >= 1
                    and m.count("from", "to", "participants") >= 2
                ),
            ),
        ),
    ),
    "PeopleInferenceAnswer": (
        ("display_name", "department", "company_name", "office_location"),
        (
            (
                (),
                lambda m: (
                    m("display_name")
                    and m.count("department", "company_name", "office_location") >= 2
                ),
            ),
        ),
    ),
    "External": (
        ("plugin_id", "plugin_type", "display_name", "snippet", "content"),
        ((("text",), lambda m: m("text")),),
    ),
    "MeetingTranscript": (
        ("start", "end", "title", "snippet", "content"),
        (
            (("text",), lambda m: m("text")),
            ((), lambda m: m("title") and m.count("start", "end") >= 1),
        ),
    ),
}


def _original_id_matches(pair: _Pair) -> bool:
    left, right = (
        id_components(result, pair.settings).get("original_id") for result in (pair.a, pair.b)
    )
    return left is not None and right is not None and bool(left & right)


def _other_names(pair: _Pair) -> set[str]:
    return (set(pair.a["fields"]) & set(pair.b["fields"])) - _IGNORED


def _rejected(kind: str, pair: _Pair) -> bool:
    """Whether a name of the type's row differs."""
    if kind in _TABLE:
        return any(pair.differs(name) for name in _TABLE[kind][0])
    own = any(pair.differs(name) for name in ("title", "snippet", "content"))
    return own or any(pair.field_differs(name) for name in _other_names(pair))


def _compare_fields(kind: str, a: Result, b: Result, settings: Settings) -> Verdict | None:
    pair = _Pair(kind, a, b, settings)
    if _rejected(kind, pair):
        return Verdict(False, None, "fields")
    if kind in _TABLE:
        rules = _TABLE[kind][1]
    else:
        names = _other_names(pair)
        rules = (
            (("text",), lambda m: m("text")),
            ((), lambda m: m("title") and sum(map(m.field_matches, names)) >= 2),
        )
    holding = [texts for texts, rule in rules if rule(pair)]
    if not holding:
        return None
    by_text = any(pair(name) for texts in holding for name in texts)
    return Verdict(True, "text" if by_text else "fields", "fields")


# --- a whole turn -----------------------------------------------------------------------------


def deduplicate(results: list[Result], settings: Settings) -> list[Placement]:
    """The placements of a turn's results, which must be in canonical order."""
    placements: list[Placement] = []
    keys = [candidate_keys(result, settings) for result in results]
    for index, result in enumerate(results):
        sharing = [n for n in range(index) if keys[n] & keys[index]]
        contradicted = 0
        refused = []
        placed = None
        for earlier in sharing[:MAX_VERIFIED]:
            verdict = verify(results[earlier], result, settings)
            if not verdict.duplicate:
                refused.append(verdict.step)
                continue
            first = placements[earlier].first
            members = [results[n] for n in range(index) if placements[n].first == first]
            together = compare_ids(
                canonical_type(result, settings),
                _identity(members, settings),
                _identity([result], settings),
                settings,
            )
            if together is not None and not together.duplicate:
                contradicted += 1
                continue
            placed = (first, verdict)
            break
        truncated = max(0, len(sharing) - MAX_VERIFIED) if placed is None else 0
        first, why = placed or (index, None)
        placements.append(Placement(first, why, contradicted, tuple(refused), truncated))
    return placements
