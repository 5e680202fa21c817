"""Verify whether two results of one entity type are the same document.

The steps are IDs, URL and fields; the first conclusive one decides. A value that one side lacks is
not comparable and is neither evidence for nor against.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from stream_metrics.core.dedup.digests import Name
from stream_metrics.core.dedup.fingerprint import (
    DEFINITIVE,
    IDENTICAL_CONTENT,
    LONG_CONTENT,
    LONG_SNIPPET,
    Fingerprint,
    Identifiers,
)
from stream_metrics.core.dedup.tables import TEXT_NAMES, DedupRules, EntityType, Need

ID: Final = "id"
URL: Final = "url"
TEXT: Final = "text"
FIELDS: Final = "fields"
EVIDENCE: Final = (ID, URL, TEXT, FIELDS)


class Verdict(NamedTuple):
    """The result of verifying a pair.

    ``step`` is the deciding step (``ids``, ``url``, ``text``, ``fields``); ``verdict`` is
    ``duplicate``, ``different`` or ``inconclusive`` (which counts as different); ``evidence`` is
    set for duplicates only.
    """

    step: str
    verdict: str
    evidence: str | None = None


VERDICTS: Final = (
    PARTS_DIFFER := Verdict("segment", "different"),
    IDS_DIFFER := Verdict("ids", "different"),
    IDS_EQUAL := Verdict("ids", "duplicate", ID),
    URL_DIFFERS := Verdict("url", "different"),
    URL_EQUAL := Verdict("url", "duplicate", URL),
    TEXT_EQUAL := Verdict("text", "duplicate", TEXT),
    TEXT_DIFFERS := Verdict("text", "different"),
    FIELDS_DIFFER := Verdict("fields", "different"),
    FIELDS_TEXT := Verdict("fields", "duplicate", TEXT),
    FIELDS_EQUAL := Verdict("fields", "duplicate", FIELDS),
    INCONCLUSIVE := Verdict("fields", "inconclusive"),
)


_NONE: Final[frozenset[bytes]] = frozenset()
_NOTHING: Final[dict[Name, frozenset[bytes]]] = {}


def identifiers_of(f: Fingerprint) -> Identifiers:
    """The identifiers of a result."""
    if f.view is None:
        long = f.content is not None and bool(f.flags & IDENTICAL_CONTENT)
        f.view = Identifiers(
            {name: frozenset(digests) for name, digests in f.ids.items()} if f.ids else _NOTHING,
            _NONE if f.doc is None else frozenset((f.doc,)),
            bool(f.flags & DEFINITIVE),
            frozenset((f.content,)) if long and f.content is not None else _NONE,
        )
    return f.view


def compare_ids(
    a: Identifiers, b: Identifiers, kind: EntityType, rules: DedupRules
) -> Verdict | None:
    """Compare identifiers (step 1); None if they are inconclusive."""
    conclusive = False
    if a.ids and b.ids:
        for name, values in a.ids.items():
            others = b.ids.get(name)
            if others is None:
                continue
            if values.isdisjoint(others):
                return IDS_DIFFER
            conclusive = conclusive or kind.is_definitive(name)
        if conclusive:
            return IDS_EQUAL
    if a.docs and b.docs and not a.definitive and not b.definitive:
        if not a.docs.isdisjoint(b.docs):
            return IDS_EQUAL
        if rules.identical_content == "duplicate" and not a.contents.isdisjoint(b.contents):
            return IDS_EQUAL
        return IDS_DIFFER
    return None


def text_verdict(a: Fingerprint, b: Fingerprint, rules: DedupRules) -> bool | None:
    """Compare snippet and content: True if they match, False if they differ, None otherwise."""
    matches = False
    if a.snippet is not None and b.snippet is not None:
        if a.snippet == b.snippet:
            matches = bool(a.flags & LONG_SNIPPET)
        elif rules.snippet_rejects:
            return False
    if a.content is not None and b.content is not None:
        if a.content != b.content:
            return False
        matches = matches or bool(a.flags & LONG_CONTENT)
    return True if matches else None


def _in_other_documents(
    a: Fingerprint, b: Fingerprint, kind: EntityType, rules: DedupRules
) -> bool:
    """Whether an equal identifier is a number that each of two documents has."""
    local = rules.tables.local_components
    if not any(name in b.ids and name in local and kind.is_definitive(name) for name in a.ids):
        return False
    if a.doc is not None and b.doc is not None:
        return a.doc != b.doc and text_verdict(a, b, rules) is False
    return (
        a.url is not None
        and b.url is not None
        and (a.url, a.parameters, a.route) != (b.url, b.parameters, b.route)
        and a.content is not None
        and b.content is not None
        and a.content != b.content
    )


def _differ(a: Fingerprint, b: Fingerprint, kind: EntityType, rules: DedupRules) -> bool:
    """Whether the titles, the texts or fields that reject differ."""
    titles = a.title is not None and b.title is not None and a.title != b.title
    return titles or text_verdict(a, b, rules) is False or _fields_reject(a, b, kind, rules)


def _compare_urls(
    a: Fingerprint, b: Fingerprint, kind: EntityType, rules: DedupRules
) -> Verdict | None:
    if a.url is None or b.url is None:
        return None
    if a.url != b.url:
        return URL_DIFFERS
    if a.route != b.route and _differ(a, b, kind, rules):
        return URL_DIFFERS
    if a.parameters == b.parameters and (a.weak == b.weak or not _differ(a, b, kind, rules)):
        return URL_EQUAL
    for name, digest in a.identity.items():
        other = b.identity.get(name)
        if other is not None and other != digest:
            return URL_DIFFERS
    text = text_verdict(a, b, rules)
    if text is None:
        return None
    return TEXT_EQUAL if text else TEXT_DIFFERS


def _compare_name(
    a: Fingerprint, b: Fingerprint, name: str, rules: DedupRules
) -> tuple[bool, bool]:
    """(matches, differs) for one name of the tables; both are False if it is not comparable."""
    if name == "text":
        text = text_verdict(a, b, rules)
        return text is True, text is False
    if name == "title":
        comparable = a.title is not None and b.title is not None
        return comparable and a.title == b.title, comparable and a.title != b.title
    if name == "snippet":
        comparable = a.snippet is not None and b.snippet is not None
        same = comparable and a.snippet == b.snippet
        differs = comparable and not same and rules.snippet_rejects
        return same and bool(a.flags & LONG_SNIPPET), differs
    if name == "content":
        comparable = a.content is not None and b.content is not None
        same = comparable and a.content == b.content
        return same and bool(a.flags & LONG_CONTENT), comparable and not same
    if name.startswith("id:"):
        mine, other = identifiers_of(a).ids.get(name[3:]), identifiers_of(b).ids.get(name[3:])
        if mine is None or other is None:
            return False, False
        same = not mine.isdisjoint(other)
        return same, not same
    mine_field, other_field = a.fields.get(name), b.fields.get(name)
    if mine_field is None or other_field is None:
        return False, False
    return mine_field == other_field, mine_field != other_field


def _fields_reject(a: Fingerprint, b: Fingerprint, kind: EntityType, rules: DedupRules) -> bool:
    for name in kind.rejects:
        if name == "*":
            for field, digest in a.fields.items():
                other = b.fields.get(field)
                if other is not None and other != digest:
                    return True
        elif _compare_name(a, b, name, rules)[1]:
            return True
    return False


def _compare_fields(a: Fingerprint, b: Fingerprint, kind: EntityType, rules: DedupRules) -> Verdict:
    if _fields_reject(a, b, kind, rules):
        return FIELDS_DIFFER
    evidence = None
    for rule in kind.confirms:
        text = _rule_holds(a, b, rule, rules)
        if text is True:
            return FIELDS_TEXT
        if text is False:
            evidence = FIELDS_EQUAL
    return INCONCLUSIVE if evidence is None else evidence


def _rule_holds(
    a: Fingerprint, b: Fingerprint, rule: tuple[Need, ...], rules: DedupRules
) -> bool | None:
    """None if the rule does not hold, else whether a text is part of the evidence."""
    text = False
    for need in rule:
        matched = 0
        for name in need.names:
            if name == "*":
                fields = b.fields
                matched += sum(fields.get(n) == digest for n, digest in a.fields.items())
            elif _compare_name(a, b, name, rules)[0]:
                matched += 1
                text = text or name in TEXT_NAMES
        if matched < need.count:
            return None
    return text


def verify(a: Fingerprint, b: Fingerprint, kind: EntityType, rules: DedupRules) -> Verdict:
    """Whether ``a`` and ``b``, two results of type ``kind``, are one document.

    Symmetric in ``a`` and ``b``. ``INCONCLUSIVE`` counts as different.
    """
    for name in kind.parts_differ:
        if _compare_name(a, b, name, rules)[1]:
            return PARTS_DIFFER
    decided = compare_ids(identifiers_of(a), identifiers_of(b), kind, rules)
    if decided is None:
        decided = _compare_urls(a, b, kind, rules)
    elif decided is IDS_EQUAL and _in_other_documents(a, b, kind, rules):
        decided = IDS_DIFFER
    if decided is None:
        decided = _compare_fields(a, b, kind, rules)
    return decided
