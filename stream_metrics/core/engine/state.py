"""What is known of a conversation, as plain data in three layers.

- *Registers*: what events have said of each item, and who won it (``Turn.winners``). Events change
  nothing else (``plan``), and nothing else is stored.
- *Derived*: documents, iterations and counts, which follow from the registers (``derive``).
- *Cells*: what each iteration and the whole turn add to the windows (``cells``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stream_metrics.core.dedup.deduplicator import Fingerprints, Index
from stream_metrics.core.engine.config import DEFAULT_AGENT

Version = tuple[int, str, bytes]
"""What decides between two events about one item: time, event id, digest of the content."""

NO_ROUTES: Final[frozenset[str]] = frozenset()

# The registers of a turn, by their place in ``Turn.winners``.
SEARCH: Final = 0
GATE: Final = 1
RESULT_LABEL: Final = 2
ROUTE_LABEL: Final = 3
GATE_LABEL: Final = 4
END: Final = 5
_REGISTERS: Final = END + 1

WHOLE_TURN: Final = ""
"""The key of an item of which a turn has one at most."""


class DamagedState(Exception):
    """What is stored is nothing that any release writes; the message says what cannot be read."""


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


class WinningEvent:
    """An event that won at least one item; one record of the stored state.

    ``kind`` is the code of its type. ``items`` has the keys and values that it still holds, by the
    registers of its type. ``iteration``, ``agent`` and ``release`` are those of a search iteration.
    """

    __slots__ = (
        "agent", "digest", "event_id", "items", "iteration", "kind", "occurred_us", "release",
        "turn",
    )  # fmt: skip

    def __init__(
        self,
        kind: int,
        turn: int,
        version: Version,
        items: tuple[dict[Any, Any], ...],
        iteration: int = 0,
        agent: str = DEFAULT_AGENT,
        release: str | None = None,
    ) -> None:
        self.kind = kind
        self.turn = turn
        self.occurred_us, self.event_id, self.digest = version
        self.items = items
        self.iteration = iteration
        self.agent = agent
        self.release = release

    @property
    def version(self) -> Version:
        """What decides between this event and another about the same item."""
        return (self.occurred_us, self.event_id, self.digest)

    @property
    def searches(self) -> list[Search]:
        """The searches that it holds, in the order of the event."""
        return list(self.items[0].values()) if self.iteration else []

    @property
    def empty(self) -> bool:
        """Whether other events have won all of its items."""
        for held in self.items:  # noqa: SIM110 - a generator would cost more than the loop
            if held:
                return False
        return True


class Search:
    """A search that won, with its results as parallel lists by rank.

    ``documents``, ``evidence`` ('' for a first occurrence, else what proves the duplicate) and
    ``types`` are what deduplication decided. ``fingerprints`` is None while they are not loaded.
    ``doc_ids`` are the digests under which ground truth names the results; they are kept only where
    ranked metrics are configured, which need them when fingerprints are not loaded.

    ``start`` is the number of results in the turn before this search, -1 until it is placed.
    ``optimal`` is the route that would have been the best, None if nobody has said. What it says of
    its event is a copy: nothing refers in a circle, so that what the cache drops is free at once.
    """

    __slots__ = (
        "agent",
        "baseline",
        "digest",
        "doc_ids",
        "documents",
        "event_id",
        "evidence",
        "fingerprints",
        "gains",
        "index",
        "iteration",
        "occurred_us",
        "optimal",
        "ordinal",
        "release",
        "result_ids",
        "route",
        "search_id",
        "start",
        "types",
    )  # fmt: skip

    def __init__(
        self,
        event: WinningEvent,
        search_id: str,
        ordinal: int,
        index: int,
        route: str | None,
        result_ids: list[str],
        gains: list[int | None] | None,
        baseline: list[int | None] | None,
        types: list[str],
        fingerprints: Fingerprints | None = None,
    ) -> None:
        self.occurred_us = event.occurred_us
        self.event_id = event.event_id
        self.digest = event.digest
        self.iteration = event.iteration
        self.agent = event.agent
        self.release = event.release
        self.search_id = search_id
        self.ordinal = ordinal
        self.index = index
        self.route = route
        self.result_ids = result_ids
        self.gains = gains  # None: no inline gain at all
        self.baseline = baseline  # None: no baseline rank at all
        self.types = types
        self.fingerprints = fingerprints
        self.doc_ids: list[bytes | None] | None = None
        self.documents: list[int] = []
        self.evidence: list[str] = []
        self.start = -1
        self.optimal: str | None = None

    @property
    def version(self) -> Version:
        """That of its event."""
        return (self.occurred_us, self.event_id, self.digest)

    @property
    def sort_key(self) -> tuple[int, int, int, int, str]:
        """The canonical order of a turn's searches."""
        return (self.iteration, self.ordinal, self.occurred_us, self.index, self.search_id)

    def precedes(self, other: Search) -> bool:
        """Whether its place is the lower one; places cost more than what mostly differs in them."""
        if self.iteration != other.iteration:
            return self.iteration < other.iteration
        if self.ordinal != other.ordinal:
            return self.ordinal < other.ordinal
        return self.sort_key < other.sort_key


class Iteration:
    """The integers of one iteration, those that its figures are computed from.

    ``compact`` is its number among the iterations that searched, from 1; 0 if it did not. ``gate``
    is the event of an explicit decision, and ``explicit`` that decision. ``needed`` is the label of
    the decision. ``cell`` is what the iteration adds to the windows, None until it is worked out.
    """

    __slots__ = (
        "cell", "compact", "duplicates", "explicit", "gain", "gate", "good", "labelled", "needed",
        "number", "results", "searches", "unique",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.compact = 0
        self.gate: WinningEvent | None = None
        self.explicit: str | None = None
        self.needed: bool | None = None
        self.searches: list[Search] = []
        self.results = 0
        self.unique = 0
        self.good = 0
        self.labelled = 0
        self.gain = 0
        self.duplicates: dict[tuple[str, str, bool], int] = {}  # (type, evidence, same iteration)
        self.cell: Cell | None = None

    @property
    def decision(self) -> str:
        """The explicit decision of the gate, else ``search``: one without it has a search."""
        return self.explicit or "search"


class Turn:
    """One turn: its registers, and what is derived from them.

    ``winners`` maps the keys of each register to the events that won them. ``newest`` is the
    search_iteration event with the highest version, even if it has lost all its items; a turn
    without one does not exist. ``results`` and ``extra_values`` are sums over the winning searches;
    ``extra_values`` counts the values of results with unusually many values, for the searches whose
    fingerprints are loaded.

    Derived values: results are numbered in canonical order and documents in order of first
    occurrence. Lists indexed by result hold its search (``result_searches``), its document
    (``documents``) and its label (``result_labels``). Lists indexed by document hold its first
    result (``first_results``) and the gain counted for it in that result's iteration
    (``document_gains``). ``label_counts`` has, for documents of which more than the first result
    was labelled or a label has changed, the number of results with each label and the first
    labelled result. ``handles`` maps result ids, as labels name them, to results. ``ranked_in``
    lists the iterations in which a document has a baseline rank. ``counted`` lists the iterations
    with a search, in order. ``relevant`` is the ground truth. ``scores`` caches the ranked metrics
    of searches. ``qrels`` is the number of iterations until all relevant documents were retrieved;
    it is stored, because it can be computed only with fingerprints.

    ``cell`` is what the turn as a whole adds to the windows, None until it is computed.
    """

    __slots__ = (
        "cell",
        "counted",
        "document_gains",
        "documents",
        "extra_values",
        "first_by_doc",
        "first_results",
        "handles",
        "index",
        "iterations",
        "label_counts",
        "newest",
        "number",
        "order",
        "over_limit",
        "qrels",
        "ranked_in",
        "refused",
        "relevant",
        "result_labels",
        "result_searches",
        "results",
        "scores",
        "winners",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.winners: tuple[dict[Any, WinningEvent], ...] = tuple([{} for _ in range(_REGISTERS)])
        self.newest: WinningEvent | None = None
        self.results = 0
        self.extra_values = 0
        self.over_limit = False
        self.refused = 0
        self.qrels: int | None = None
        self.relevant: dict[bytes, int] | None = None
        self.cell: Cell | None = None
        self.clear()

    def clear(self) -> None:
        """Drop what is derived search by search, to derive it again."""
        self.order: list[Search] = []
        self.iterations: dict[int, Iteration] = {}
        self.counted: list[Iteration] = []
        self.result_searches: list[Search] = []
        self.documents: list[int] = []
        self.first_results: list[int] = []
        self.document_gains: list[int | None] = []
        self.label_counts: dict[int, list[int]] = {}
        self.result_labels: list[int | None] = []
        self.handles: dict[str, int] = {}
        self.ranked_in: dict[int, tuple[int, ...]] = {}
        self.scores: dict[str, Sequence[float | None]] = {}
        self.index: Index | None = None
        self.first_by_doc: dict[bytes, int] | None = None  # once needed: digest to iteration

    @property
    def exists(self) -> bool:
        """Only a search_iteration event makes a turn exist."""
        return self.newest is not None

    @property
    def empty(self) -> bool:
        """Whether nothing is left that an event has brought."""
        return self.newest is None and not any(self.winners)

    @property
    def labels(self) -> int:
        """How many labels the turn has, of all kinds."""
        winners = self.winners
        return len(winners[RESULT_LABEL]) + len(winners[ROUTE_LABEL]) + len(winners[GATE_LABEL])

    def searches(self) -> list[Search]:
        """The searches that won, in no particular order."""
        return [event.items[0][key] for key, event in self.winners[SEARCH].items()]

    @property
    def weight(self) -> int:
        """What its items cost in memory, in usual results; their events are not among them."""
        return (
            self.results
            + len(self.winners[SEARCH])
            + len(self.iterations)
            + self.labels // 4
            + (self.extra_values + len(self.relevant or ())) // 8
        )


@dataclass(slots=True)
class Conversation:
    """All turns of a conversation, and the events that hold items of them, by digest.

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
    events: dict[bytes, WinningEvent] = field(default_factory=dict)
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
        return len(self.events) + sum(turn.weight for turn in self.turns.values())
