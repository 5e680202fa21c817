"""Registers: the kinds of items in events, and the types of events that carry them.

A register keeps one item for each key: that of the event with the highest version. The code that
enters, erases (``plan``) and stores items (``codec``) is generic over the definitions below; only
limits and derived values are specific to a kind of item.

An item is a key and a value in a dictionary of its event (``WinningEvent.items``, indexed by
``Register.event_index``). The turn maps each key to the event that won it (``Turn.winners``,
indexed by ``Register.turn_index``), so that a version is stored once per event. If an event has
several entries for one key, the first counts. A withdrawn label is an item with the value None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from stream_metrics.core.dedup.deduplicator import Deduplicator, Fingerprints
from stream_metrics.core.dedup.tables import OTHER_CODE, Tables, tables_text, type_codes
from stream_metrics.core.engine.config import OTHER
from stream_metrics.core.engine.state import (
    END,
    GATE,
    MODEL_RESULT_LABEL,
    RESULT_LABEL,
    SAMPLE,
    SEARCH,
    WHOLE_TURN,
    DamagedState,
    Search,
    WinningEvent,
)
from stream_metrics.core.events.wire import (
    PAYLOADS,
    RelevanceLabels,
    SearchIteration,
    TurnCompleted,
)
from stream_metrics.core.events.wire import Search as SentSearch
from stream_metrics.core.metrics.labels import HUMAN, MODEL

Items = dict[Any, Any]
"""Values by key."""


class Register:
    """One kind of item.

    ``turn_index`` is its index in ``Turn.winners``, ``event_index`` its index in
    ``WinningEvent.items``. ``read`` returns the items of a newly decoded event, with digests in
    place of texts. ``pack`` turns an event's items into their stored form, whose msgspec type is
    ``stored``, and ``unpack`` reads it back; the last argument of ``pack`` says whether to shorten
    ids that are UUIDs. ``revised`` and ``superseded`` name the counters of items that replaced an
    older one, or that lost to a newer one.
    """

    def __init__(
        self,
        name: str,
        turn_index: int,
        event_index: int,
        read: Callable[[Any, Deduplicator, Tables], Items],
        stored: Any,
        pack: Callable[[WinningEvent, Items, bool], Any],
        unpack: Callable[[WinningEvent, Any], Items],
        revised: str = "",
        superseded: str = "",
    ) -> None:
        self.name, self.turn_index, self.event_index = name, turn_index, event_index
        self.read = read
        self.stored, self.pack, self.unpack = stored, pack, unpack
        self.revised, self.superseded = revised, superseded


class EventType:
    """An event type: its name in the contract, its stored code, and the registers of its items.

    ``in_iteration``: its events have an iteration, an agent and a release, and create their turn.
    ``needs_fingerprints``: applying an event requires the conversation's fingerprints. ``labels``:
    its first three registers have labels of results, routes and gates, of a model if ``by_model``,
    and the fourth the random sample. Labels of models are a type of their own here, so that they
    never replace those of people.
    """

    def __init__(
        self,
        name: str,
        code: int,
        registers: tuple[Register, ...],
        *,
        in_iteration: bool = False,
        needs_fingerprints: bool = True,
        labels: bool = False,
        by_model: bool = False,
    ) -> None:
        self.name, self.code, self.registers = name, code, registers
        self.labels, self.by_model = labels, by_model
        self.in_iteration, self.needs_fingerprints = in_iteration, needs_fingerprints


# -- items of incoming events -------------------------------------------------------------------

LONGEST_ROUTE: Final = 65
"""Characters kept of a best route. Routes have 64 at most, so a longer one matches none."""
RANDOM: Final = "random"
"""The sample of events that put their turn into the random sample of their source."""
LISTED_GRADE: Final = 2
"""The grade of documents in a ``relevant`` list, which has no grades."""


class DigestedSearch(NamedTuple):
    """A search of a decoded event; results are parallel lists by rank.

    ``position`` is its index among the searches of the event, ``query`` the digest of its query.
    """

    search_id: str
    ordinal: int
    position: int
    route: str | None
    result_ids: list[str]
    gains: list[int | None] | None
    baseline: list[int | None] | None
    fingerprints: Fingerprints
    types: list[str]
    query: bytes | None


def _read_searches(sent: SearchIteration, dedup: Deduplicator, tables: Tables) -> Items:
    searches: Items = {}
    for index, search in enumerate(sent.searches or ()):
        if search.search_id not in searches:
            searches[search.search_id] = _read_search(search, index, dedup, tables)
    return searches


def _read_search(
    sent: SentSearch, index: int, dedup: Deduplicator, tables: Tables
) -> DigestedSearch:
    results = sent.results or []
    gains = [result.gain for result in results]
    baseline = [result.baseline_rank for result in results]
    fingerprints = dedup.fingerprints(results)
    return DigestedSearch(
        sent.search_id,
        sent.ordinal or 0,
        index,
        None if sent.routing is None else sent.routing.selected,
        [result.result_id for result in results],
        gains if gains.count(None) < len(gains) else None,
        baseline if baseline.count(None) < len(baseline) else None,
        fingerprints,
        [tables.labels.get(name, OTHER) for name in fingerprints.types],
        dedup.query(sent.query),
    )


def _read_gate(sent: SearchIteration, _: Deduplicator, __: Tables) -> Items:
    return {} if sent.gate is None else {sent.iteration: sent.gate.decision}


def _read_result_labels(sent: RelevanceLabels, _: Deduplicator, __: Tables) -> Items:
    items: Items = {}
    for label in sent.labels or ():
        items.setdefault(label.result_id, label.gain)
    return items


def _read_route_labels(sent: RelevanceLabels, _: Deduplicator, __: Tables) -> Items:
    items: Items = {}
    for label in sent.routing or ():
        items.setdefault(label.search_id, label.optimal)
    return shorten_routes(items)


def shorten_routes(items: Items) -> Items:
    """Best routes by search, cut to the length at which they can no longer match a route."""
    return {name: route and route[:LONGEST_ROUTE] for name, route in items.items()}


def _read_gate_labels(sent: RelevanceLabels, _: Deduplicator, __: Tables) -> Items:
    items: Items = {}
    for label in sent.gate or ():
        items.setdefault(label.iteration, label.search_needed)
    return items


def _read_human_sample(sent: RelevanceLabels, _: Deduplicator, __: Tables) -> Items:
    return {HUMAN: True} if sent.sample == RANDOM else {}


def _read_model_sample(sent: RelevanceLabels, _: Deduplicator, __: Tables) -> Items:
    return {MODEL: True} if sent.sample == RANDOM else {}


def _read_end(sent: TurnCompleted, dedup: Deduplicator, _: Tables) -> Items:
    relevant = sent.relevant
    if relevant is None:
        return {WHOLE_TURN: None}
    graded: Any = dict.fromkeys(relevant, LISTED_GRADE) if type(relevant) is list else relevant
    return {
        WHOLE_TURN: {
            dedup.document(doc): grade for doc, grade in graded.items() if grade is not None
        }
    }


# -- ids --------------------------------------------------------------------------------------

Id = Any
"""A stored id: text, or the 16 bytes of a UUID in canonical form."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_LENGTH: Final = 36
_UUID_BYTES: Final = 16


def short_id(name: str) -> Id:
    """The stored form of an id in schema 2; schema 1 stores ids unchanged."""
    if len(name) == _UUID_LENGTH and _UUID.fullmatch(name):
        return bytes.fromhex(name.replace("-", ""))
    return name


def unpack_id(stored: object) -> str:
    """The id of a stored form of any schema; raises ``DamagedState``."""
    if type(stored) is str:
        return stored
    if type(stored) is not bytes or len(stored) != _UUID_BYTES:
        raise DamagedState("an id is neither text nor a UUID")
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# -- parts of stored events -------------------------------------------------------------------

MAX_INTEGER: Final = 2**63 - 1
"""The largest integer in stored state: that of signed 64-bit integers, as is the least, -2**63."""

Integer = Annotated[int, msgspec.Meta(le=MAX_INTEGER)]  # MessagePack has none below -2**63
Number = Annotated[int, msgspec.Meta(ge=1, le=MAX_INTEGER)]
_Gain = Annotated[int, msgspec.Meta(ge=0, le=4)]
_SearchPart = tuple[
    Id, Integer, Integer, str | None, list[Id], list[Integer], str, str,
    list[_Gain | None] | None, list[Number | None] | None,
]  # fmt: skip

_EVIDENCE: Final = {"": "-", "id": "i", "url": "u", "text": "t", "fields": "f"}
_EVIDENCE_BACK: Final = {code: name for name, code in _EVIDENCE.items()}
_TYPES: Final = {OTHER: OTHER_CODE, **type_codes()}
_TYPES_BACK: Final = {code: name for name, code in _TYPES.items()}


def _pack_searches(_: WinningEvent, items: Items, short: bool) -> Any:
    return [_pack_search(search, short) for search in items.values()]


def _pack_search(search: Search, short: bool) -> tuple[Any, ...]:
    return (
        short_id(search.search_id) if short else search.search_id,
        search.ordinal,
        search.index,
        search.route,
        [short_id(name) for name in search.result_ids] if short else search.result_ids,
        search.documents,
        "".join([_EVIDENCE[evidence] for evidence in search.evidence]),
        "".join([_TYPES[kind] for kind in search.types]),
        search.gains,
        search.baseline,
    )


def _unpack_searches(event: WinningEvent, stored: Any) -> Items:
    found: Items = {}
    for part in stored:
        search = _unpack_search(event, part)
        found[search.search_id] = search
    return found


def _unpack_search(event: WinningEvent, part: _SearchPart) -> Search:
    search = Search(
        event, unpack_id(part[0]), part[1], part[2], part[3], [unpack_id(name) for name in part[4]],
        part[8], part[9], [],
    )  # fmt: skip
    search.documents = part[5]
    try:
        search.evidence = [_EVIDENCE_BACK[code] for code in part[6]]
    except KeyError:
        raise DamagedState("a search has results with unknown evidence") from None
    try:
        search.types = [_TYPES_BACK[code] for code in part[7]]
    except KeyError as error:
        raise DamagedState(
            f"a search has results of an entity type that is stored as {error.args[0]!r}, and this "
            f"release has none with that code (it has dedup.tables {tables_text()}). A newer "
            "release wrote it: use that release or a later one"
        ) from None
    results = len(search.result_ids)
    if any(len(one) != results for one in part[5:] if one is not None):
        raise DamagedState("a search's results are incomplete")
    return search


def _pack_gate(event: WinningEvent, items: Items, _short: bool) -> Any:
    return items.get(event.iteration)


def _unpack_gate(event: WinningEvent, stored: Any) -> Items:
    return {} if stored is None else {event.iteration: stored}


def _pack_named(_: WinningEvent, items: Items, short: bool) -> Any:
    return {short_id(name): value for name, value in items.items()} if short else items


def _unpack_named(_: WinningEvent, stored: Any) -> Items:
    return {unpack_id(name): value for name, value in stored.items()}


def _pack_plain(_: WinningEvent, items: Items, _short: bool) -> Any:
    return items


def _unpack_plain(_: WinningEvent, stored: Any) -> Items:
    return dict(stored)


def _pack_sample(_: WinningEvent, items: Items, _short: bool) -> Any:
    return bool(items)


def _unpack_human_sample(_: WinningEvent, stored: Any) -> Items:
    return {HUMAN: True} if stored else {}


def _unpack_model_sample(_: WinningEvent, stored: Any) -> Items:
    return {MODEL: True} if stored else {}


def _pack_turn(_: WinningEvent, items: Items, _short: bool) -> Any:
    return items[WHOLE_TURN]


def _unpack_turn(_: WinningEvent, stored: Any) -> Items:
    return {WHOLE_TURN: stored}


# -- definitions of event types ---------------------------------------------------------------

FORGET: Final = EventType("forget", 0, ())
"""Has no items: it erases all items of the conversation up to its version."""

SEARCH_ITERATION: Final = EventType(
    "search_iteration",
    1,
    (
        Register(
            "search", SEARCH, 0, _read_searches, list[_SearchPart], _pack_searches, _unpack_searches
        ),
        Register("gate", GATE, 1, _read_gate, str | None, _pack_gate, _unpack_gate),
    ),
    in_iteration=True,
)


def _label_registers(first: int, sample: Register) -> tuple[Register, ...]:
    """Registers of labels from the turn's index ``first`` on, and that of the random sample."""
    return (
        Register(
            "label of a result",
            first,
            0,
            _read_result_labels,
            dict[Id, _Gain | None],
            _pack_named,
            _unpack_named,
            "labels_revised",
            "labels_superseded",
        ),
        Register(
            "label of a route",
            first + 1,
            1,
            _read_route_labels,
            dict[Id, str | None],
            _pack_named,
            _unpack_named,
        ),
        Register(
            "label of a gate",
            first + 2,
            2,
            _read_gate_labels,
            dict[Integer, bool | None],
            _pack_plain,
            _unpack_plain,
        ),
        sample,
    )


RELEVANCE_LABELS: Final = EventType(
    "relevance_labels",
    2,
    _label_registers(
        RESULT_LABEL,
        Register(
            "sample", SAMPLE, 3, _read_human_sample, bool, _pack_sample, _unpack_human_sample
        ),
    ),
    needs_fingerprints=False,
    labels=True,
)  # fmt: skip

MODEL_LABELS: Final = EventType(
    "relevance_labels",
    4,
    _label_registers(
        MODEL_RESULT_LABEL,
        Register(
            "sample", SAMPLE, 3, _read_model_sample, bool, _pack_sample, _unpack_model_sample
        ),
    ),
    needs_fingerprints=False,
    labels=True,
    by_model=True,
)  # fmt: skip

LABEL_TYPES: Final = (RELEVANCE_LABELS, MODEL_LABELS)

TURN_COMPLETED: Final = EventType(
    "turn_completed",
    3,
    (
        Register(
            "end of a turn",
            END,
            0,
            _read_end,
            dict[bytes, _Gain] | None,
            _pack_turn,
            _unpack_turn,
        ),
    ),
)

EVENT_TYPES: Final = (SEARCH_ITERATION, RELEVANCE_LABELS, TURN_COMPLETED, MODEL_LABELS)

OF_PAYLOAD: Final[dict[type, EventType]] = {
    PAYLOADS[kind.name]: kind for kind in (*EVENT_TYPES, FORGET) if not kind.by_model
}
"""Types by payload; labels are of people unless ``metrics.labels.by_model`` says otherwise."""
BY_CODE: Final = {kind.code: kind for kind in EVENT_TYPES}
