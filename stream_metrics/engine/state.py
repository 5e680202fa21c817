"""What is known of a conversation, as plain data.

The state of a turn is the set of its *winning items* (searches, gate decisions, labels, the end of
the turn), each kept with the event that carried it, because the event's version decides what may
replace it. All else, documents, iterations, counts, is derived from the items (``turn``) and is
rebuilt when a conversation is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stream_metrics.dedup.deduplicator import Fingerprints, Index
from stream_metrics.engine.config import DEFAULT_AGENT

Version = tuple[int, str, bytes]


NO_ROUTES: Final[frozenset[str]] = frozenset()


class Cell:
    """Sums of one iteration or one turn, at its time and under its agent (or release).

    ``routes`` are those that some of the sums are by.
    """

    __slots__ = ("agent", "routes", "sums", "time_us")

    def __init__(
        self, time_us: int, agent: str, sums: dict[str, int], routes: frozenset[str] = NO_ROUTES
    ) -> None:
        self.time_us = time_us
        self.agent = agent
        self.sums = sums
        self.routes = routes


STALE: Final = Cell(0, "", {})

SEARCHES: Final = 1
LABELS: Final = 2
COMPLETED: Final = 3


class DamagedState(Exception):
    """What is stored is nothing that any release writes; the message says what cannot be read."""


class Carrier:
    """An event of which at least one item still stands; one record of the stored state.

    ``digest`` identifies it among the conversation's carriers. ``agent`` and ``release`` are those
    of a search iteration; ``iteration`` is 0 for other types. ``searches`` are the ids of its
    searches and ``completed`` tells of an end: the turn has them, and they know their carrier. So
    nothing refers in a circle, and what the cache drops is free at once.
    """

    __slots__ = (
        "agent", "completed", "digest", "event_id", "gate", "gate_labels", "iteration", "kind",
        "labels", "occurred_us", "release", "routing_labels", "searches", "turn",
    )  # fmt: skip

    def __init__(self, kind: int, turn: int, version: Version) -> None:
        self.kind = kind
        self.turn = turn
        self.occurred_us, self.event_id, self.digest = version
        self.iteration = 0
        self.agent = DEFAULT_AGENT
        self.release: str | None = None
        self.clear()

    def clear(self) -> None:
        """Drop all items: none of them stands any more."""
        self.gate: str | None = None
        self.searches: list[str] = []
        self.labels: dict[str, int | None] = {}
        self.routing_labels: dict[str, str | None] = {}
        self.gate_labels: dict[int, bool | None] = {}
        self.completed = False

    @property
    def version(self) -> Version:
        """What decides between two events that speak of one item."""
        return (self.occurred_us, self.event_id, self.digest)

    @property
    def empty(self) -> bool:
        """True when every item has been replaced."""
        return not (
            self.searches
            or self.gate
            or self.labels
            or self.routing_labels
            or self.gate_labels
            or self.completed
        )


class Search:
    """A winning search with its results as parallel lists, by rank.

    ``documents``, ``evidence`` ('' for a first occurrence, else i, u, t or f) and ``types`` are
    what deduplication decided; ``fingerprints`` is None while they are not loaded. ``doc_ids`` are
    the digests under which ground truth names the results, kept only where ranked metrics are
    configured, which need them when fingerprints are not loaded.
    """

    __slots__ = (
        "baseline", "carrier", "doc_ids", "documents", "evidence", "fingerprints", "first", "gains",
        "index", "ordinal", "result_ids", "route", "search_id", "types",
    )  # fmt: skip

    def __init__(self, carrier: Carrier, search_id: str, ordinal: int, index: int) -> None:
        self.carrier = carrier
        self.search_id = search_id
        self.ordinal = ordinal
        self.index = index
        self.route: str | None = None
        self.result_ids: list[str] = []
        self.gains: list[int | None] | None = None  # None: no inline gain at all
        self.baseline: list[int | None] | None = None  # None: no baseline rank at all
        self.documents: list[int] = []
        self.evidence: list[str] = []
        self.types: list[str] = []
        self.fingerprints: Fingerprints | None = None
        self.doc_ids: list[bytes | None] | None = None
        self.first = 0  # the turn's results before this search

    @property
    def place(self) -> tuple[int, int, int, int, str]:
        """The canonical order of a turn's searches."""
        carrier = self.carrier
        return (
            carrier.iteration,
            self.ordinal,
            carrier.occurred_us,
            self.index,
            self.search_id,
        )

    def precedes(self, other: Search) -> bool:
        """Whether its place is the lower one; places cost more than what mostly differs in them."""
        iteration, others = self.carrier.iteration, other.carrier.iteration
        if iteration != others:
            return iteration < others
        if self.ordinal != other.ordinal:
            return self.ordinal < other.ordinal
        return self.place < other.place


@dataclass(slots=True)
class Completed:
    """The end of a turn: the ground truth as document digests to grades, None if not given."""

    carrier: Carrier
    relevant: dict[bytes, int] | None


class Iteration:
    """The integers of one iteration, those that its figures are computed from.

    ``compact`` is its number among the iterations that searched, from 1; 0 if it did not. ``cell``
    is what it adds to the windows, as last worked out; ``STALE`` if it is not known.
    """

    __slots__ = (
        "cell", "compact", "duplicates", "gain", "good", "labelled", "number", "results",
        "searches", "unique",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.compact = 0
        self.searches: list[Search] = []
        self.results = 0
        self.unique = 0
        self.good = 0
        self.labelled = 0
        self.gain = 0
        self.duplicates: dict[tuple[str, str, bool], int] = {}  # (type, evidence, same iteration)
        self.cell = STALE


class Turn:
    """One turn: its items by identity, and what is derived from them.

    The turn's results are numbered in canonical order, its documents in order of first occurrence.
    Of each result there are its search (``holders``) and its document (``documents``); of each
    document its first result (``firsts``), the gain that the iteration of this result counts
    (``credited``) and, once another than its first is labelled, or its label changes, the number of
    its results with each label, and which is the first of them (``tallies``). ``result_labels`` are
    the labels of results, ``handles`` the results that labels name, ``ranked_in`` the iterations in
    which a document has a baseline rank. ``counted`` are the iterations that searched, in order.
    ``scores`` are those of searches by the ranked metrics that are configured, as far as they are
    known. ``extra_values`` counts the values of results with unusually many, as far as their
    fingerprints are loaded.

    ``cell`` is what the turn adds to the windows beside its iterations, None for nothing, or
    ``STALE``.
    """

    __slots__ = (
        "cell", "completed", "counted", "credited", "documents", "extra_values", "first_by_doc",
        "firsts", "gate_labels", "gates", "ghost", "handles", "holders", "index", "iterations",
        "labels", "number", "order", "over_limit", "qrels", "ranked_in", "refused", "result_labels",
        "results", "routing_labels", "scores", "searches", "tallies",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        # items
        self.searches: dict[str, Search] = {}
        self.gates: dict[int, Carrier] = {}
        self.labels: dict[str, Carrier] = {}  # it has what they say
        self.routing_labels: dict[str, tuple[Carrier, str | None]] = {}
        self.gate_labels: dict[int, tuple[Carrier, bool | None]] = {}
        self.completed: Completed | None = None
        # the highest version of a search_iteration event none of whose items stands
        self.ghost: Version | None = None
        self.over_limit = False
        self.refused = 0
        # derived
        self.results = 0
        self.extra_values = 0
        self.qrels: int | None = None  # iterations until all relevant were retrieved
        self.cell: Cell | None = STALE
        self.clear()

    def clear(self) -> None:
        """Drop what is derived from the items one by one, to derive it again."""
        self.order: list[Search] = []
        self.iterations: dict[int, Iteration] = {}
        self.counted: list[Iteration] = []
        self.holders: list[Search] = []
        self.documents: list[int] = []
        self.firsts: list[int] = []
        self.credited: list[int | None] = []
        self.tallies: dict[int, list[int]] = {}
        self.result_labels: list[int | None] = []
        self.handles: dict[str, int] = {}
        self.ranked_in: dict[int, tuple[int, ...]] = {}
        self.scores: dict[str, Sequence[float | None]] = {}
        self.index: Index | None = None
        self.first_by_doc: dict[bytes, int] | None = None  # once needed: digest to iteration

    @property
    def exists(self) -> bool:
        """Only a search_iteration event makes a turn exist."""
        return bool(self.searches or self.gates) or self.ghost is not None

    @property
    def ground_truth(self) -> dict[bytes, int] | None:
        """The documents that were worth finding, with their grades; None if nobody has said."""
        return self.completed.relevant if self.completed is not None else None

    @property
    def weight(self) -> int:
        """What its items cost in memory, in usual results; carriers are not among them."""
        labels = len(self.labels) + len(self.routing_labels) + len(self.gate_labels)
        return (
            self.results
            + len(self.searches)
            + len(self.iterations)
            + labels // 4
            + (self.extra_values + len(self.ground_truth or ())) // 8
        )

    @property
    def empty(self) -> bool:
        """Whether nothing stands that an event has brought."""
        return not (
            self.exists or self.completed or self.labels or self.routing_labels or self.gate_labels
        )


@dataclass(slots=True)
class Conversation:
    """All turns of a conversation, and the events whose items still stand.

    ``forgotten`` is the version up to which it was erased; without turns the conversation is then
    a tombstone, which keeps the version and not the id. ``key_id`` names the digest key that
    its fingerprints were made with. ``schema`` is that of its stored header, 0 if the store has
    none; ``has_fingerprints`` says that they are loaded; ``expired`` that there was a conversation
    of that id before, of which nothing else is known.
    """

    conversation_id: str
    key_id: str = ""
    forgotten: Version | None = None
    turns: dict[int, Turn] = field(default_factory=dict)
    carriers: dict[bytes, Carrier] = field(default_factory=dict)
    has_fingerprints: bool = True
    schema: int = 0
    expired: bool = False

    @property
    def last_turn(self) -> int:
        """The highest turn that exists, or 0."""
        return max((n for n, turn in self.turns.items() if turn.exists), default=0)

    @property
    def latest_turn(self) -> Turn:
        """The highest turn that exists, or else the highest: it answers for turns refused."""
        return self.turns[self.last_turn or max(self.turns)]

    def count_turns(self, *, existing: bool) -> int:
        """How many turns exist, or how many do not."""
        return sum(turn.exists == existing for turn in self.turns.values())

    @property
    def weight(self) -> int:
        """What the conversation costs in memory, in usual results: some 0.8 kB each."""
        return len(self.carriers) + sum(turn.weight for turn in self.turns.values())
