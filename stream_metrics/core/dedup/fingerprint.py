"""A result's fingerprint: digests of everything that deduplication compares, without texts.

``Fingerprinter.of`` makes one from a result. ``pack`` and ``unpack`` convert it to and from the
stored bytes (17 bytes per value: a tag and a digest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import msgspec

from stream_metrics.core.dedup.address import remembered_careful_url
from stream_metrics.core.dedup.digests import KEY_BYTES, Digester, Name
from stream_metrics.core.dedup.normalise import (
    CONTENT_PREFIX,
    IDENTICAL_TEXT,
    IDENTITY_PARAMETERS,
    LONG_TEXT,
    SNIPPET_PREFIX,
    TITLE_PREFIX,
    Url,
    canonical_text,
    field_form,
    fold,
    is_uuid_form,
    normalise_text,
    parse_url,
    single_text,
)
from stream_metrics.core.dedup.tables import (
    CASELESS_COMPONENTS,
    SERIES_COMPONENT,
    TITLE_FIELDS,
    DedupRules,
    EntityType,
)
from stream_metrics.core.events.wire import Result

LONG_SNIPPET: Final = 1
LONG_CONTENT: Final = 2
IDENTICAL_CONTENT: Final = 4
DEFINITIVE: Final = 8
NO_TITLE_KEY: Final = (
    16  # the title comes from a field that is not text, so it has no candidate key
)

DEFAULT_ENTITY_TYPE: Final = "Document"
REMEMBERED: Final = 8_192
LONGEST_REMEMBERED: Final = 4_096  # bytes of a result's content

_ENCODE = msgspec.msgpack.Encoder().encode

# Shared by all fingerprints without such values; never modified.
_NO_IDS: dict[Name, tuple[bytes, ...]] = {}
_NO_IDENTITY: dict[str, bytes] = {}
_NO_FIELDS: dict[Name, bytes] = {}


class Identifiers(NamedTuple):
    """The identifiers of a result, or of all results of a document.

    ``contents`` has only contents long enough to identify the same text indexed twice.
    """

    ids: Mapping[Name, AbstractSet[bytes]]
    docs: AbstractSet[bytes]
    definitive: bool
    contents: AbstractSet[bytes]


class Fingerprint:
    """The comparable digests of one result. None, or a missing name, means absent.

    Attributes:
        type: The canonical name of the entity type.
        flags: Text length classes, and whether ``ids`` has a definitive value.
        ids: The digests of each component's values, by component name.
        doc: The generic ID in the form that deduplication compares.
        doc_exact: The generic ID in the form that qrels use, if it differs from ``doc``.
        url: Host and path.
        parameters: All URL parameters that are not dropped, as one multiset.
        identity: The multiset of values of each URL parameter that identifies a page, by name.
        route: The URL's fragment, if it may name a page of its own.
        weak: The URL parameters that count only where the results differ in something else.
        title, snippet, content: The full normalised texts.
        fields: The digest of each field's value, by field name.
        key_title, key_snippet, key_content: Candidate keys that are not prefixes of those digests.

    A fingerprint is immutable, because results with equal content share it. ``candidate_keys``,
    ``view`` and ``packed`` are caches.
    """

    __slots__ = (
        "candidate_keys", "content", "doc", "doc_exact", "fields", "flags", "identity", "ids",
        "key_content", "key_snippet", "key_title", "packed", "parameters", "route", "snippet",
        "title", "type", "url", "view", "weak",
    )  # fmt: skip

    def __init__(self, type_name: str) -> None:
        self.type = type_name
        self.flags = 0
        self.ids: dict[Name, tuple[bytes, ...]] = _NO_IDS
        self.doc: bytes | None = None
        self.doc_exact: bytes | None = None
        self.url: bytes | None = None
        self.parameters: bytes | None = None
        self.identity: dict[str, bytes] = _NO_IDENTITY
        self.route: bytes | None = None
        self.weak: bytes | None = None
        self.title: bytes | None = None
        self.snippet: bytes | None = None
        self.content: bytes | None = None
        self.fields: dict[Name, bytes] = _NO_FIELDS
        self.key_title: bytes | None = None
        self.key_snippet: bytes | None = None
        self.key_content: bytes | None = None
        self.candidate_keys: list[tuple[str, bytes]] | None = None
        self.view: Identifiers | None = None
        self.packed: bytes | None = None

    @property
    def extra_values(self) -> int:
        """The number of values beyond those of a usual result, for the cache's memory estimate."""
        many = sum(map(len, self.ids.values())) + len(self.fields)
        return max(0, many - 8)

    @property
    def qrels_doc(self) -> bytes | None:
        """The digest under which ``relevant`` names this result's document."""
        return self.doc_exact if self.doc_exact is not None else self.doc

    def keys(self, kind: EntityType) -> list[tuple[str, bytes]]:
        """The candidate keys with their kinds. Results of one type are compared if they share one.

        Digests of different slots never collide, so the key consists of 8 bytes without the kind.
        """
        keys = self.candidate_keys
        if keys is not None:
            return keys
        keys = self.candidate_keys = []
        for name, digests in self.ids.items():
            if name == SERIES_COMPONENT or kind.is_definitive(name):
                keys.extend(("id", digest[:KEY_BYTES]) for digest in digests)
        if self.doc is not None and not self.flags & DEFINITIVE:
            keys.append(("doc_id", self.doc[:KEY_BYTES]))
        if self.url is not None:
            keys.append(("url", self.url[:KEY_BYTES]))
        if self.flags & LONG_SNIPPET:
            keys.append(("snippet", self.key_snippet or self.snippet[:KEY_BYTES]))  # type: ignore[index]
        if self.flags & LONG_CONTENT:
            keys.append(("content", self.key_content or self.content[:KEY_BYTES]))  # type: ignore[index]
        if self.key_title is not None:
            keys.append(("title", self.key_title))
        elif self.title is not None and not self.flags & NO_TITLE_KEY:
            keys.append(("title", self.title[:KEY_BYTES]))
        return keys


class Fingerprinter:
    """Makes fingerprints under one set of rules and one digest key."""

    def __init__(self, rules: DedupRules, digester: Digester) -> None:
        self.rules = rules
        self.digester = digester
        canonical = rules.tables.canonical_texts
        self._text_form = canonical_text if canonical else normalise_text
        self._fold = fold if canonical else str.casefold
        self._url_form = remembered_careful_url if rules.tables.careful_addresses else parse_url
        self._types: dict[str, EntityType] = {}
        for kind in rules.types:
            for name in (kind.name, *kind.aliases):
                self._types[self._fold(name)] = kind
        self._others: dict[str, EntityType] = {}
        self._remembered: dict[bytes, Fingerprint] = {}
        self._by_name = {kind.name: kind for kind in rules.types}

    def entity_type(self, name: str | None) -> EntityType:
        """The row for the name of a type as producers write it."""
        folded = self._fold(name or DEFAULT_ENTITY_TYPE)
        kind = self._types.get(folded)
        return kind if kind is not None else self._other(folded)

    def canonical_type(self, name: str) -> EntityType:
        """The row for a canonical name."""
        kind = self._by_name.get(name)
        return kind if kind is not None else self._other(name)

    def _other(self, folded: str) -> EntityType:
        kind = self._others.get(folded)
        if kind is None:
            if len(self._others) > 1_000:
                self._others.clear()
            kind = self._others[folded] = self.rules.tables.other_row(folded)
        return kind

    def document(self, doc_id: str) -> bytes:
        """The digest of a document id in qrels, which is compared exactly."""
        return self.digester.of("doc", doc_id)

    def query(self, text: str | None) -> bytes | None:
        """The digest of a search's query; None without one, or of one without a character."""
        form = self._text_form(text) if text else ""
        return self.digester.of("query", form)[:KEY_BYTES] if form else None

    def of(self, result: Result) -> Fingerprint:
        """The fingerprint of a result; results with equal content share it.

        The last ``REMEMBERED`` are cached by content, because popular documents recur.
        """
        content = (
            result.entity_type, result.ids, result.doc_id, result.url,
            result.title, result.snippet, result.content, result.fields,
        )  # fmt: skip
        try:
            key = _ENCODE(content)
        except OverflowError:  # an integer beyond 64 bits
            return self._make(result)
        if len(key) > LONGEST_REMEMBERED:
            return self._make(result)
        made = self._remembered.get(key)
        if made is None:
            made = self._remembered[key] = self._make(result)
            if len(self._remembered) > REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return made

    def _make(self, result: Result) -> Fingerprint:
        kind = self.entity_type(result.entity_type)
        made = Fingerprint(kind.name)
        digest = self.digester.of
        if result.ids:
            self._add_ids(made, kind, result)
        doc_id = result.doc_id
        if doc_id is not None:
            made.doc = digest("doc", doc_id)
            if is_uuid_form(doc_id) and (folded := doc_id.casefold()) != doc_id:
                made.doc_exact, made.doc = made.doc, digest("doc", folded)
        if result.url and (url := self._url_form(result.url)) is not None:
            self._add_url(made, url)
        self._add_texts(made, kind, result)
        if result.fields:
            self._add_fields(made, kind, result)
        return made

    def _add_ids(self, made: Fingerprint, kind: EntityType, result: Result) -> None:
        digester = self.digester
        made.ids = {}
        for name, value in result.ids.items():  # type: ignore[union-attr]
            values = value if isinstance(value, list) else (value,)
            slot, known = "i:" + name, digester.name(name)
            caseless = name in CASELESS_COMPONENTS
            digests = {
                digester.of(slot, self._fold(v) if caseless or is_uuid_form(v) else v)
                for v in values
                if v
            }
            if digests:
                made.ids[known] = tuple(sorted(digests)) if len(digests) > 1 else tuple(digests)
                if kind.is_definitive(known):
                    made.flags |= DEFINITIVE

    def _add_url(self, made: Fingerprint, url: Url) -> None:
        digest = self.digester.of
        made.url = digest("url", f"{url.address[0]}\0{url.address[1]}")
        if url.route:
            made.route = digest("route", url.route)
        if url.weak:
            made.weak = digest("weak", _pairs_text(url.weak))
        if not url.parameters:
            return
        made.parameters = digest("parameters", _pairs_text(url.parameters))
        by_name: dict[str, list[str]] = {}
        for name, value in url.parameters:
            if name in IDENTITY_PARAMETERS:
                by_name.setdefault(name, []).append(value)
        if by_name:
            made.identity = {}
        for name, values in by_name.items():
            made.identity[name] = digest(
                "p:" + name, _pairs_text([(v, "") for v in sorted(values)])
            )

    def _add_texts(self, made: Fingerprint, kind: EntityType, result: Result) -> None:
        digest, form = self.digester.of, self._text_form
        if result.snippet and (text := form(result.snippet)):
            made.snippet = digest("snippet", text)
            if len(text) >= LONG_TEXT:
                made.flags |= LONG_SNIPPET
                if len(text) > SNIPPET_PREFIX:
                    made.key_snippet = digest("snippet", text[:SNIPPET_PREFIX])[:KEY_BYTES]
        if result.content and (text := form(result.content)):
            made.content = digest("content", text)
            if len(text) >= LONG_TEXT:
                made.flags |= LONG_CONTENT
                if len(text) >= IDENTICAL_TEXT:
                    made.flags |= IDENTICAL_CONTENT
                if len(text) > CONTENT_PREFIX:
                    made.key_content = digest("content", text[:CONTENT_PREFIX])[:KEY_BYTES]
        if result.title and (text := form(result.title)):
            made.title = digest("title", text)
            if len(text) > TITLE_PREFIX:
                made.key_title = digest("title", text[:TITLE_PREFIX])[:KEY_BYTES]
        elif result.fields:
            self._title_from_fields(made, kind, result)

    def _title_from_fields(self, made: Fingerprint, kind: EntityType, result: Result) -> None:
        fields = result.fields or {}
        if kind.title_fallback is not None:
            form = field_form(fields.get(kind.title_fallback), self._text_form)
            if form is not None:
                is_text = form[0] == "s"
                made.title = self.digester.of(
                    "title" if is_text else "title form", form[1:] if is_text else form
                )
        for name in TITLE_FIELDS:
            text = single_text(fields.get(name), self._text_form)
            if text is not None:
                made.key_title = self.digester.of("title", text[:TITLE_PREFIX])[:KEY_BYTES]
                return
        if made.title is not None:
            made.flags |= NO_TITLE_KEY

    def _add_fields(self, made: Fingerprint, kind: EntityType, result: Result) -> None:
        digester, used = self.digester, kind.fields_used
        ignored = self.rules.ignore_fields
        made.fields = {}
        for name, value in result.fields.items():  # type: ignore[union-attr]
            if (name in ignored) if used is None else (name not in used):
                continue
            form = field_form(value, self._text_form)
            if form is not None:
                made.fields[digester.name(name)] = digester.of("f:" + name, form)


def _pairs_text(pairs: Sequence[tuple[str, str]]) -> str:
    return "".join(f"{len(name)}:{name}{len(value)}:{value}" for name, value in pairs)
