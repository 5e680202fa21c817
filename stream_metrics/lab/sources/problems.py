"""Find problems of records: why one is rejected, and which fields and searches have no effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

from stream_metrics.core.events.canonical import decode_json
from stream_metrics.core.events.decode import MISSING, BadRecord, Event, decode
from stream_metrics.core.events.fields import MOST_NAMED, OTHER, UnknownField, without_unknown
from stream_metrics.core.events.foreign import with_form
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.wire import SearchIteration, TurnCompleted

Kind = Literal["bad_record", "misspelt_field", "unknown_field", "empty_event", "without_doc_id"]

LEAST_RATIO: Final = 0.82
"""The least similarity (``difflib``) of a misspelt name; ``search`` and ``searches`` have 0.857."""
LEAST_LENGTH: Final = 4
"""The least length of names that may be misspelt; ``id`` is similar to many."""

ALIASES: Final = {
    "results": ("hits", "documents", "docs"),
    "doc_id": ("document_id",),
    "url": ("uri", "link", "href"),
    "content": ("text", "body"),
    "gain": ("grade", "relevance"),
    "occurred_at": ("timestamp",),
    "type": ("event_type",),
    "labels": ("judgments", "judgements"),
    "reference_answers": ("references", "ground_truths"),
    "relevant": ("qrels",),
}
"""Other names that producers use for a field."""
OWN_WORDS: Final = frozenset({"context", "contest"})
"""Names that resemble a known one but are independent, as are participles like ``searched``."""
_MEANT: Final = {alias: name for name, aliases in ALIASES.items() for alias in aliases}

_LACKING: Final = re.compile(rf"{MISSING} `(\w+)`")
_WORDS: Final = re.compile(r"[_\W]+|(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a record.

    Attributes:
        kind: ``bad_record`` and ``misspelt_field`` are errors, the others are warnings.
        about: The reason of a bad record (``decode.REASONS``), the path of a field
            (``fields.paths``), or the type of an empty event or of one about which ground truth
            says nothing.
        message: The problem in words. It quotes only names of fields from the record.
    """

    kind: Kind
    about: str
    message: str

    @property
    def level(self) -> Literal["error", "warning"]:
        """``error`` if the producer must change something."""
        return "error" if self.kind in ("bad_record", "misspelt_field") else "warning"


def find_problems(
    value: bytes | None,
    *,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    limits: Limits,
    require_key: bool = False,
    take: Callable[[Event], None] = lambda _: None,
) -> list[Finding]:
    """All problems of a record; empty if there are none.

    The arguments are those of ``decode``. A field is reported once, however often it occurs.
    ``take`` is called with a valid event.
    """
    event = decode(
        value, key=key, timestamp_ms=timestamp_ms, limits=limits, require_key=require_key
    )
    if isinstance(event, BadRecord):
        event = with_form(event, value)
        sent = _sent_instead(value or b"", event.message)
        hint = f"; was it sent as `{sent}`?" if sent else ""
        return [Finding("bad_record", event.reason, event.message + hint)]
    take(event)
    found = _fields(value or b"") if event.unknown else []
    kind, missing_content = event.payload.kind, event.payload.missing_content
    if missing_content:
        found.append(
            Finding("empty_event", kind, f"a `{kind}` with {missing_content} says nothing")
        )
    return found


Place = TypeVar("Place")


class GroundTruths(Generic[Place]):
    """Finds ground truth that cannot be compared, because results have no ``doc_id``.

    A number is kept for each turn with a ``doc_id``, and a place for each with a ground truth or
    with a search without any.
    """

    def __init__(self) -> None:
        self._named: set[int] = set()
        self._unnamed: dict[int, tuple[Place, int]] = {}  # first event with such a search, and all
        self._asked: dict[int, Place] = {}

    def take(self, event: Event, place: Place) -> None:
        """Take the next event, in any order, and where it is."""
        sent, turn = event.payload, hash((event.conversation_id, event.turn))
        if isinstance(sent, TurnCompleted) and sent.relevant:
            self._asked.setdefault(turn, place)
        elif isinstance(sent, SearchIteration):
            named = [
                any(result.doc_id is not None for result in search.results)
                for search in sent.searches or ()
                if search.results
            ]
            if any(named):
                self._named.add(turn)
            if not all(named):
                first, events = self._unnamed.get(turn, (place, 0))
                self._unnamed[turn] = (first, events + 1)

    def findings(self) -> Iterator[tuple[Finding, Place]]:
        """What cannot be compared: whole turns, at their ends, or single searches."""
        for turn, place in self._asked.items():
            if turn not in self._unnamed:
                continue
            if turn not in self._named:
                yield _WITHOUT_IDS["turn_completed"], place
                continue
            first, events = self._unnamed[turn]
            for _ in range(events):
                yield _WITHOUT_IDS["search_iteration"], first


_WITHOUT_IDS: Final = {
    kind: Finding("without_doc_id", kind, f"{what} has a `doc_id` to compare with {named}")
    for kind, what, named in (
        ("turn_completed", "no result of the turn", "the documents that `relevant` names"),
        ("search_iteration", "no result of a search", "the turn's `relevant` documents"),
    )
}


def likely_field(field: UnknownField) -> str | None:
    """The known field that an unknown one is probably meant to be; None if there is none.

    It must be absent from the object and accept the value. The singular of a list field, such as
    one search instead of a list of searches, matches regardless of its value.
    """
    value, known = field.owner[field.name], field.known
    if value is None:
        return None
    lacking = (name for name in known.names if field.owner.get(name) is None)
    found = _nearest(field.name, frozenset(lacking))
    if found is None or known.accepts(found, value):
        return found
    singular = f"{'_'.join(_words(field.name))}s" == found and known.is_container(found)
    return found if singular else None


@lru_cache(4_096)
def _nearest(sent: str, lacking: frozenset[str]) -> str | None:
    words = _words(sent)
    name = "_".join(words)
    alias = _MEANT.get(name)
    if name in lacking or alias in lacking:
        return name if name in lacking else alias
    joined = "".join(words)
    for known in sorted(lacking):
        if known.replace("_", "") == joined:
            return known
    if len(name) < LEAST_LENGTH or name in OWN_WORDS:
        return None
    forms = {
        form: known
        for known in sorted(lacking)
        for form in (known, known.removesuffix("s"))
        if known.count("_") == name.count("_") and len(form) >= LEAST_LENGTH
        if known.endswith("ed") or not name.endswith("ed")
    }
    swapped = [form for form in forms if sorted(form) == sorted(name)]
    close = swapped or get_close_matches(name, forms, 1, LEAST_RATIO)
    return forms[close[0]] if close else None


def _sent_instead(value: bytes, message: str) -> str | None:
    """The path of the unknown field that is probably the one whose lack the message reports."""
    lacking = _LACKING.match(message)
    if lacking is None:
        return None
    likely = (one.path for one in _unknown(value) if likely_field(one) == lacking[1])
    return next((path for path in likely if path != OTHER), None)


def _unknown(value: bytes) -> list[UnknownField]:
    obj: Any = decode_json(value)[0]
    return without_unknown(obj, obj.get("type"))[1]


def _fields(value: bytes) -> list[Finding]:
    named = sorted(
        ((likely_field(field), field.path) for field in _unknown(value)),
        key=lambda one: not one[0],
    )
    found: dict[tuple[Kind, str], Finding] = {}
    for name, path in named:  # misspelt fields first, so that they are named before others
        kind: Kind = "unknown_field" if name is None else "misspelt_field"
        if (kind, path) not in found and len(found) >= MOST_NAMED:
            path = OTHER
        what = "other unknown fields" if path == OTHER else f"unknown field `{path}`"
        more = ": without effect" if name is None else f"; did you mean `{name}`?"
        found.setdefault((kind, path), Finding(kind, path, what + more))
    return list(found.values())


def _words(name: str) -> list[str]:
    """Split a name in any naming style into words in lower case.

    >>> _words("resultId"), _words("Doc-ID"), _words("baseline_rank")
    (['result', 'id'], ['doc', 'id'], ['baseline', 'rank'])
    """
    return [word.lower() for word in _WORDS.split(name) if word]
