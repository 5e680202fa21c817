"""Tables that define when two results of an entity type are the same document.

The built-in rows are published together under a number (``Tables``), and state stores the number
that it was built with. Published rows never change. To change a row or add an entity type, publish
the rows under the next number at the end of this module. New state uses the newest number, and
existing state keeps its own until ``dedup.tables`` says otherwise.

A confirmation rule is a conjunction of needs, and a need is "at least n of these match". Names in
rules and rejections:

- ``text``: snippet and content together (``verify.text_verdict``),
- ``title``, ``snippet``, ``content``: the result's own,
- ``id:NAME``: a component of ``ids``,
- ``*``: every name in ``fields`` that both results have,
- anything else: an entry of ``fields``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Final

TEXT_NAMES: Final = frozenset(("text", "snippet", "content"))
OWN_NAMES: Final = frozenset(("text", "title", "snippet", "content"))
TITLE_FIELDS: Final = ("subject", "file_name", "display_name")
CASELESS_COMPONENTS: Final = frozenset(("alias", "upn", "email"))
SERIES_COMPONENT: Final = "original_id"
CHUNK_COMPONENTS: Final = (
    "chunk", "chunk_id", "chunk_idx", "chunk_index", "chunk_number", "page", "page_label",
    "page_number", "paragraph_id", "passage_id", "section_id", "segment_id", "split_id",
    "start_index",
)  # fmt: skip
IGNORED_FIELDS: Final = (
    "retrieved_at", "score", "rank", "similarity", "highlight", "language", "source",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Need:
    """At least ``count`` of ``names`` match."""

    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntityType:
    """One row of the tables.

    ``definitive`` None means every component of ``ids`` except those in ``not_definitive``.
    ``parts_differ`` names fields that distinguish parts of one document, which are compared first.
    ``code`` is the letter that the state stores for results of a built-in type. Rows from settings
    have none: their results are stored like those of an unknown type.
    """

    name: str
    rejects: tuple[str, ...]
    confirms: tuple[tuple[Need, ...], ...]
    aliases: tuple[str, ...] = ()
    definitive: frozenset[str] | None = frozenset()
    not_definitive: frozenset[str] = frozenset()
    parts_differ: tuple[str, ...] = ()
    title_fallback: str | None = None
    code: str = ""
    fields_used: frozenset[str] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        names = self.names_in_rules()
        if "*" not in names:
            used = {n for n in names if n not in OWN_NAMES and not n.startswith("id:")}
            object.__setattr__(self, "fields_used", frozenset(used))

    def names_in_rules(self) -> set[str]:
        """Every name in rejections and confirmations, as written there."""
        names = set(self.rejects) | set(self.parts_differ)
        for rule in self.confirms:
            for need in rule:
                names.update(need.names)
        return names

    def is_definitive(self, component: str | bytes) -> bool:
        """Whether an equal value of this component of ``ids`` identifies the document."""
        if self.definitive is None:
            return component not in self.not_definitive
        return component in self.definitive


def _one(*names: str) -> Need:
    return Need(1, names)


_EMAIL_FIELDS: Final = ("date_time_received", "from", "to", "subject", "snippet", "content")
_CHAT_PEOPLE: Final = ("from", "to", "participants")

FILE: Final = EntityType(
    name="File",
    code="B",
    definitive=frozenset(("file_id", "unique_id")),
    rejects=(
        "file_name", "file_type", "author", "last_modified_by", "last_modified_time",
        "title", "snippet", "content",
    ),
    confirms=(
        (_one("text"),),
        (
            _one("file_name"),
            Need(2, ("title", "author", "file_type", "last_modified_by", "last_modified_time")),
        ),
    ),
)  # fmt: skip

EVENT: Final = EntityType(
    name="Event",
    code="C",
    definitive=frozenset(("event_id",)),
    rejects=("start", "end", "organizer_email"),
    confirms=(
        (_one("start"), _one("end"), _one("id:original_id")),
        (_one("start"), _one("end"), _one("organizer_email"), _one("title", "snippet", "content")),
        (_one("start"), _one("end"), _one("title"), _one("snippet", "content")),
    ),
    title_fallback="subject",
)

EMAIL_MESSAGE: Final = EntityType(
    name="EmailMessage",
    code="D",
    aliases=("Email",),
    definitive=frozenset(("email_url",)),
    rejects=_EMAIL_FIELDS,
    confirms=(
        (_one("date_time_received"), _one("subject", "snippet", "content", "from", "to")),
        (_one("subject"), _one("snippet", "content"), _one("from", "to")),
        (_one("from"), _one("to"), _one("subject", "snippet", "content")),
    ),
)

TEAMS_MESSAGE: Final = EntityType(
    name="TeamsMessage",
    code="E",
    definitive=frozenset(("item_id",)),
    rejects=(*_CHAT_PEOPLE, "title", "subject", "snippet", "content"),
    confirms=(
        (_one("snippet", "content"), _one("subject", "title"), _one(*_CHAT_PEOPLE)),
        (_one("snippet", "content", "subject", "title"), Need(2, _CHAT_PEOPLE)),
    ),
)

PEOPLE: Final = EntityType(
    name="PeopleInferenceAnswer",
    code="F",
    aliases=("People",),
    definitive=frozenset(("alias", "upn", "email")),
    rejects=("display_name", "department", "company_name", "office_location"),
    confirms=((_one("display_name"), Need(2, ("department", "company_name", "office_location"))),),
)

EXTERNAL: Final = EntityType(
    name="External",
    code="G",
    definitive=frozenset(("artifact_id",)),
    rejects=("plugin_id", "plugin_type", "display_name", "snippet", "content"),
    confirms=((_one("text"),),),
)

MEETING_TRANSCRIPT: Final = EntityType(
    name="MeetingTranscript",
    code="H",
    definitive=frozenset(("event_id",)),
    rejects=("start", "end", "title", "snippet", "content"),
    confirms=((_one("text"),), (_one("title"), _one("start", "end"))),
    parts_differ=("segment",),
)

OTHER_CODE: Final = "A"  # the stored code of types without a built-in row
OTHER_NOT_DEFINITIVE: Final = frozenset(("site_id", "web_id", "tenant_id", "container_id"))


def other_type(name: str) -> EntityType:
    """The row of a type that is not in the tables."""
    return EntityType(
        name=name,
        definitive=None,
        not_definitive=OTHER_NOT_DEFINITIVE,
        rejects=("title", "snippet", "content", "*"),
        confirms=((_one("text"),), (_one("title"), Need(2, ("*",)))),
    )


@dataclass(frozen=True, slots=True)
class Tables:
    """The built-in rows with their number, and the row for all other types.

    ``other`` has no name; ``other_row`` adds that of a type. ``labels`` maps the built-in types to
    the label values of metrics.

    Attributes:
        canonical_texts: Whether canonically equivalent texts are equal
            (``normalise.canonical_text``).
        careful_addresses: Whether URLs are compared by the rules of ``address.careful_url``.
        local_components: ID components whose values may be unique within one document only. Equal
            ones in results of two documents with different texts are no evidence.
        joined_grades: Whether qrels grade a document by every id of its results, and turns whose
            results have no document id have no figures from qrels.
        loops: Whether state has what figures of loops need: digests of queries, their window
            series, and counts of what turns beyond a limit leave out.
    """

    number: int
    types: tuple[EntityType, ...]
    other: EntityType
    canonical_texts: bool = False
    careful_addresses: bool = False
    local_components: frozenset[str] = frozenset()
    joined_grades: bool = False
    loops: bool = False
    labels: Mapping[str, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", {kind.name: kind.name for kind in self.types})

    def other_row(self, name: str) -> EntityType:
        """The row of a type ``name`` that is not in the tables."""
        return replace(self.other, name=name)


_PUBLISHED: Final[dict[int, Tables]] = {}


def publish(tables: Tables) -> None:
    """Add ``tables`` to those of this release; raises ``ValueError`` if they cannot be stored.

    Numbers are consecutive. Each type has one code in all tables, and each code one type, because
    the state identifies types by it. Call this in this module, before others read ``published``.
    """
    if tables.number != len(_PUBLISHED) + 1:
        raise ValueError(f"the next tables are number {len(_PUBLISHED) + 1}, not {tables.number}")
    codes = {kind.name: kind.code for each in _PUBLISHED.values() for kind in each.types}
    names = {code: name for name, code in codes.items()} | {OTHER_CODE: ""}
    seen: set[str] = set()
    for kind in tables.types:
        if len(kind.code) != 1 or not kind.code.isascii() or not kind.code.isprintable():
            raise ValueError(f"{kind.name}: its stored code must be one ASCII character")
        if codes.setdefault(kind.name, kind.code) != kind.code:
            raise ValueError(f"{kind.name}: its stored code must remain {codes[kind.name]!r}")
        if names.setdefault(kind.code, kind.name) != kind.name:
            raise ValueError(f"{kind.name}: the stored code {kind.code!r} is taken")
        for name in (kind.name, *kind.aliases):
            if name.casefold() in seen:
                raise ValueError(f"{name}: two rows of one table name it")
            seen.add(name.casefold())
    _PUBLISHED[tables.number] = tables


def published() -> Mapping[int, Tables]:
    """All tables of this release by number."""
    return MappingProxyType(_PUBLISHED)


def tables_text() -> str:
    """The numbers of all tables of this release, for messages."""
    return " and ".join(map(str, _PUBLISHED))


def newest() -> Tables:
    """The tables that new state uses."""
    return _PUBLISHED[len(_PUBLISHED)]


def type_names() -> tuple[str, ...]:
    """The names of all types in published tables, in the order of publication."""
    every = chain.from_iterable(tables.types for tables in _PUBLISHED.values())
    return tuple(dict.fromkeys(kind.name for kind in every))


def type_codes() -> dict[str, str]:
    """The stored code of each type in published tables."""
    return {kind.name: kind.code for each in _PUBLISHED.values() for kind in each.types}


@dataclass(frozen=True, slots=True)
class DedupRules:
    """The tables and settings of deduplication, on which the state depends.

    ``types`` are the rows of ``tables`` including the configured ones.
    """

    types: tuple[EntityType, ...] = field(default_factory=lambda: newest().types)
    ignore_fields: frozenset[str] = frozenset(IGNORED_FIELDS)
    identical_content: str = "duplicate"
    snippet_rejects: bool = True
    max_candidates: int = 64
    tables: Tables = field(default_factory=newest)

    def names(self) -> frozenset[str]:
        """The names of all ID components and fields in the rows."""
        found = set(self.tables.local_components)
        for kind in (*self.types, self.tables.other):
            found |= (kind.definitive or frozenset()) | kind.not_definitive
            for name in kind.names_in_rules():
                if name.startswith("id:"):
                    found.add(name[3:])
                elif name not in OWN_NAMES:
                    found.add(name)
        return frozenset(found - {"*"})


publish(
    Tables(
        number=1,
        types=(FILE, EVENT, EMAIL_MESSAGE, TEAMS_MESSAGE, PEOPLE, EXTERNAL, MEETING_TRANSCRIPT),
        other=other_type(""),
    )
)
publish(
    Tables(
        number=2,
        types=published()[1].types,
        other=published()[1].other,
        canonical_texts=True,
        careful_addresses=True,
        local_components=frozenset(CHUNK_COMPONENTS),
        joined_grades=True,
    )
)
publish(replace(published()[2], number=3, loops=True))
