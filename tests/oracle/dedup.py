"""Deduplication that compares the texts of every result with those of every earlier one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .text import Form, field_form, normalise, text_form

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


def canonical_type(result: Result) -> str:
    """The table's spelling of a type in the tables, else the folded name."""
    folded = result["entity_type"].casefold()
    return str(_CANONICAL.get(folded, folded))


def _id_value(name: str, value: str) -> str:
    return value.casefold() if name in _FOLDED_COMPONENTS or _UUID.fullmatch(value) else value


def id_components(result: Result) -> dict[str, set[str]]:
    """The non-empty values of each component."""
    found = {
        name: {_id_value(name, value) for value in values if value != ""}
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


def generic_id(result: Result) -> str | None:
    """The comparable form of `doc_id`."""
    return None if result["doc_id"] is None else _id_value("doc_id", result["doc_id"])


def own_text(result: Result, name: str) -> str:
    """Normalised title, snippet or content; empty if absent."""
    return normalise(str(result[name] or ""))


def url_parts(result: Result) -> tuple[str, str, Counter[tuple[str, str]]] | None:
    """Net location, path with route, and the parameters that count; None if absent."""
    if result["url"] is None:
        return None
    try:
        split = urlsplit(result["url"])
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
    return netloc, path, Counter(kept)


def _triplet(match: re.Match[str]) -> str:
    char = chr(int(match[0][1:], 16))
    return char if char in _UNRESERVED else match[0].upper()


def title_key_text(result: Result) -> str:
    """The text of the title key: the title, else the first text among the fallback fields."""
    if own_text(result, "title"):
        return own_text(result, "title")
    for name in _TITLE_FIELDS:
        value = result["fields"].get(name)
        if isinstance(value, list):
            present = [entry for entry in value if field_form(entry) is not None]
            value = present[0] if len(present) == 1 else None
        if isinstance(value, str) and normalise(value):
            return normalise(value)
    return ""


def candidate_keys(result: Result) -> set[tuple[str, ...]]:
    """All keys of phase 1."""
    kind = canonical_type(result)
    ids = id_components(result)
    keys: set[tuple[str, ...]] = set()
    for name, values in ids.items():
        if is_definitive(kind, name) or name == "original_id":
            keys |= {(kind, "id", name, value) for value in values}
    doc_id = generic_id(result)
    if doc_id is not None and not has_definitive(kind, ids):
        keys.add((kind, "id", "doc_id", doc_id))
    url = url_parts(result)
    if url is not None:
        keys.add((kind, "url", url[0], url[1]))
    for name, length in (("snippet", 100), ("content", 500)):
        text = own_text(result, name)
        if len(text) >= 50:
            keys.add((kind, name, text[:length]))
    title = title_key_text(result)
    if title:
        keys.add((kind, "title", title[:100]))
    return keys


# --- verification of a pair -------------------------------------------------------------------


def verify(a: Result, b: Result, settings: Settings) -> Verdict:
    """Decide whether two results of one type are one document."""
    kind = canonical_type(a)
    if kind == "MeetingTranscript":
        forms = [field_form(result["fields"].get("segment")) for result in (a, b)]
        if None not in forms and forms[0] != forms[1]:
            return Verdict(False, None, "segment")
    return (
        compare_ids(kind, _identity([a]), _identity([b]), settings)
        or _compare_urls(a, b, settings)
        or _compare_fields(kind, a, b, settings)
        or Verdict(False, None, "inconclusive")
    )


@dataclass(frozen=True)
class Identity:
    """The IDs and long contents of one result, or of all members of a document."""

    ids: dict[str, set[str]]
    doc_ids: set[str]
    long_contents: set[str]


def _identity(members: list[Result]) -> Identity:
    ids: dict[str, set[str]] = {}
    for member in members:
        for name, values in id_components(member).items():
            ids[name] = ids.get(name, set()) | values
    doc_ids = {generic_id(member) for member in members} - {None}
    contents = {own_text(member, "content") for member in members}
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


def _compare_urls(a: Result, b: Result, settings: Settings) -> Verdict | None:
    left, right = url_parts(a), url_parts(b)
    if left is None or right is None:
        return None
    if left[:2] != right[:2]:
        return Verdict(False, None, "url")
    if left[2] == right[2]:
        return Verdict(True, "url", "url")
    for name in _IDENTITY:
        values = [
            Counter({value: n for (key, value), n in side[2].items() if key == name})
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
        left, right = own_text(a, name), own_text(b, name)
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
            form = text_form(result[name])
            if form is None and name == "title" and self.kind == "Event":
                form = field_form(result["fields"].get("subject"))
            return form
        return field_form(result["fields"].get(name))

    def field_differs(self, name: str) -> bool:
        """Both have the entry of `fields`, and it is not the same."""
        left, right = (field_form(result["fields"].get(name)) for result in (self.a, self.b))
        return left is not None and right is not None and left != right

    def field_matches(self, name: str) -> bool:
        """Both have the entry of `fields`, and it is the same."""
        left, right = (field_form(result["fields"].get(name)) for result in (self.a, self.b))
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
    left, right = (id_components(result).get("original_id") for result in (pair.a, pair.b))
    return left is not None and right is not None and bool(left & right)


def _compare_fields(kind: str, a: Result, b: Result, settings: Settings) -> Verdict | None:
    pair = _Pair(kind, a, b, settings)
    if kind in _TABLE:
        rejecting, rules = _TABLE[kind]
        if any(pair.differs(name) for name in rejecting):
            return Verdict(False, None, "fields")
    else:
        names = (set(a["fields"]) & set(b["fields"])) - _IGNORED
        if any(pair.differs(name) for name in ("title", "snippet", "content")):
            return Verdict(False, None, "fields")
        if any(pair.field_differs(name) for name in names):
            return Verdict(False, None, "fields")
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
    keys = [candidate_keys(result) for result in results]
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
                canonical_type(result), _identity(members), _identity([result]), settings
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
