"""The state of a conversation, as plain data in three layers.

- *Registers*: the items of events and which event won each (``Turn.winners``). Events change only
  these (``plan``), and only these are stored.
- *Derived*: documents, iterations and counts, computed from the registers (``derive``).
- *Cells*: what each iteration and the whole turn add to the windows (``cells``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stream_metrics.core.dedup.deduplicator import Fingerprints, Index
from stream_metrics.core.engine.config import DEFAULT_AGENT
from stream_metrics.core.engine.joined import Units

Version = tuple[int, str, bytes]
"""The order of events that carry the same item: time, event id, digest of the content."""

NO_ROUTES: Final[frozenset[str]] = frozenset()

# The indexes of registers in ``Turn.winners``.
SEARCH: Final = 0
GATE: Final = 1
RESULT_LABEL: Final = 2
ROUTE_LABEL: Final = 3
GATE_LABEL: Final = 4
END: Final = 5
MODEL_RESULT_LABEL: Final = 6
MODEL_ROUTE_LABEL: Final = 7
MODEL_GATE_LABEL: Final = 8
SAMPLE: Final = 9
_REGISTERS: Final = SAMPLE + 1

SCHEMA_WITH_SOURCES: Final = 3
"""The schema of conversations with labels of a model or in a random sample."""

UNKNOWN_QUERY: Final = b""
"""In place of the digest of a query if state was built without those."""

WHOLE_TURN: Final = ""
"""The key in registers that hold at most one item per turn."""


class DamagedState(Exception):
    """Stored bytes are not what any release writes; the message says what cannot be read."""


class Cell:
    """What one iteration or turn adds to the windows at its time, under its agent or release.

    ``routes`` are the routes that occur as labels in ``sums``.
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
    """An event that has won items; one record of the stored state.

    ``kind`` is the code of its type. ``items`` has the items that it still holds, for each register
    of its type. ``iteration``, ``agent`` and ``release`` are set for search iterations only.
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
        """The version by which it wins items or loses them."""
        return (self.occurred_us, self.event_id, self.digest)

    @property
    def searches(self) -> list[Search]:
        """The searches that it still holds, in the order of the event."""
        return list(self.items[0].values()) if self.iteration else []

    @property
    def empty(self) -> bool:
        """Whether it holds no items (any more)."""
        for held in self.items:  # noqa: SIM110 - a generator would cost more than the loop
            if held:
                return False
        return True


class Search:
    """A search that won, with its results as parallel lists by rank.

    ``documents``, ``evidence`` ('' for a first occurrence, else the evidence for the duplicate) and
    ``types`` are the decisions of deduplication. ``fingerprints`` is None while not loaded.
    ``doc_ids`` are the digests under which ground truth names the results; they are kept only if
    ranked metrics are configured, which need them when fingerprints are not loaded.

    ``query`` is the digest of its query, None without one, or ``UNKNOWN_QUERY``. ``start`` is the
    number of results in the turn before this search, -1 until it is counted.
    ``optimal`` is the best route by its label, None without one. The fields of its event are
    copies: without reference cycles, conversations that leave the cache are freed immediately.
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
        "query",
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
        self.query: bytes | None = UNKNOWN_QUERY
        self.doc_ids: list[bytes | None] | None = None
        self.documents: list[int] = []
        self.evidence: list[str] = []
        self.start = -1
        self.optimal: str | None = None

    @property
    def version(self) -> Version:
        """The version of its event."""
        return (self.occurred_us, self.event_id, self.digest)

    @property
    def sort_key(self) -> tuple[int, int, int, int, str]:
        """The canonical order of a turn's searches."""
        return (self.iteration, self.ordinal, self.occurred_us, self.index, self.search_id)

    def precedes(self, other: Search) -> bool:
        """Whether its sort key is lower; the most selective fields are compared first."""
        if self.iteration != other.iteration:
            return self.iteration < other.iteration
        if self.ordinal != other.ordinal:
            return self.ordinal < other.ordinal
        return self.sort_key < other.sort_key


class Iteration:
    """The integers from which the metrics of one iteration are computed.

    ``compact`` is its number among the iterations with a search, from 1; 0 without a search.
    ``gate`` is the event of an explicit gate decision, and ``explicit`` that decision. ``needed``
    is the label of the decision. ``by_model`` counts the documents among ``labelled`` whose label
    is a model's. Of its searches, ``queried`` have a query, ``repeated`` repeat an
    earlier one of the turn, and ``empty`` have no result. ``cell`` is what the iteration adds to
    the windows, None until it is computed.
    """

    __slots__ = (
        "by_model", "cell", "compact", "duplicates", "empty", "explicit", "gain", "gate", "good",
        "labelled", "needed", "number", "queried", "repeated", "results", "searches", "unique",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.compact = 0
        self.gate: WinningEvent | None = None
        self.explicit: str | None = None
        self.needed: bool | None = None
        self.searches: list[Search] = []
        self.queried = 0
        self.repeated = 0
        self.empty = 0
        self.results = 0
        self.unique = 0
        self.good = 0
        self.labelled = 0
        self.by_model = 0
        self.gain = 0
        self.duplicates: dict[tuple[str, str, bool], int] = {}  # (type, evidence, same iteration)
        self.cell: Cell | None = None

    @property
    def decision(self) -> str:
        """The explicit gate decision, else ``search``: an iteration without one has a search."""
        return self.explicit or "search"


class Labels:
    """The labels that one source has given to the results of a turn.

    ``results`` has the label of each result, ``gains`` the gain that follows for each document.
    ``counts`` has, for documents of which more than the first result was labelled or a label has
    changed, the number of results with each label and the first labelled result.
    """

    __slots__ = ("counts", "gains", "results")

    def __init__(self, results: int = 0, documents: int = 0) -> None:
        self.results: list[int | None] = [None] * results
        self.gains: list[int | None] = [None] * documents
        self.counts: dict[int, list[int]] = {}


class Turn:
    """One turn: its registers, and what is derived from them.

    ``winners`` maps the keys of each register to the events that won them. ``newest`` is the
    search_iteration event with the highest version, even if it has lost all its items; a turn
    without one does not exist. ``results`` and ``extra_values`` are sums over the winning searches;
    ``extra_values`` counts the values of results with unusually many values, for the searches whose
    fingerprints are loaded. ``left_out`` counts the searches that a limit has refused and their
    results, as often as they came; None if nothing was refused, or if that is not counted.

    Derived values: results are numbered in canonical order and documents in order of first
    occurrence. Lists indexed by result hold its search (``result_searches``) and its document
    (``documents``). Lists indexed by document hold its first
    result (``first_results``) and the gain counted for it in that result's iteration
    (``document_gains``). ``human`` and ``model`` are the labels of the two sources. Until the
    second is needed it is None, and the gains of the first are ``document_gains`` themselves.
    ``handles`` maps result ids, as labels name them, to results. ``ranked_in``
    lists the iterations in which a document has a baseline rank. ``counted`` lists the iterations
    with a search, in order. ``relevant`` is the ground truth. ``scores`` caches the ranked metrics
    of searches, and ``judged`` what each source says of a turn in a random sample. ``units`` are
    those of ``relevant``, made on demand under tables with ``joined_grades``. ``qrels`` is the
    number of iterations until all relevant documents were retrieved; it is stored, because it can
    be computed only with fingerprints.

    ``asked`` has the digest of each query with the route that was selected for it.
    ``queries_unknown``: state has no digest of a query. ``cell`` is what the turn as a whole adds
    to the windows, None until it is computed.
    """

    __slots__ = (
        "asked",
        "cell",
        "counted",
        "document_gains",
        "documents",
        "extra_values",
        "first_by_doc",
        "first_results",
        "handles",
        "human",
        "index",
        "iterations",
        "judged",
        "left_out",
        "model",
        "newest",
        "number",
        "order",
        "over_limit",
        "qrels",
        "queries_unknown",
        "ranked_in",
        "refused",
        "relevant",
        "result_searches",
        "results",
        "scores",
        "units",
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
        self.left_out: tuple[int, int] | None = None
        self.qrels: int | None = None
        self.relevant: dict[bytes, int] | None = None
        self.cell: Cell | None = None
        self.clear()

    def clear(self) -> None:
        """Clear the derived values, before they are derived again."""
        self.order: list[Search] = []
        self.iterations: dict[int, Iteration] = {}
        self.counted: list[Iteration] = []
        self.result_searches: list[Search] = []
        self.documents: list[int] = []
        self.first_results: list[int] = []
        self.human = Labels()
        self.model: Labels | None = None
        self.document_gains = self.human.gains
        self.handles: dict[str, int] = {}
        self.ranked_in: dict[int, tuple[int, ...]] = {}
        self.scores: dict[str, Sequence[float | None]] = {}
        self.judged: Any = None  # list[IterationSums], of ``label_sums``
        self.index: Index | None = None
        self.first_by_doc: dict[bytes, int] | None = None  # digest to iteration, made on demand
        self.units: Units | None = None
        self.asked: set[tuple[bytes, str | None]] = set()
        self.queries_unknown = False

    @property
    def exists(self) -> bool:
        """Whether a search_iteration event has created the turn."""
        return self.newest is not None

    @property
    def empty(self) -> bool:
        """Whether it holds no event and no item."""
        return self.newest is None and not any(self.winners)

    def separate_labels(self) -> None:
        """Keep what counts for documents apart from the labels of people, beside the model's."""
        self.model = Labels(len(self.documents), len(self.first_results))
        self.document_gains = self.human.gains.copy()

    def labels(self, *, model: bool) -> int:
        """The number of its labels of all kinds by the model, or by people."""
        winners, first = self.winners, MODEL_RESULT_LABEL if model else RESULT_LABEL
        return len(winners[first]) + len(winners[first + 1]) + len(winners[first + 2])

    def searches(self) -> list[Search]:
        """The searches that won, in no particular order."""
        return [event.items[0][key] for key, event in self.winners[SEARCH].items()]

    @property
    def weight(self) -> int:
        """The memory that its items take, in units of an average result; without their events."""
        return (
            self.results
            + len(self.winners[SEARCH])
            + len(self.iterations)
            + (self.labels(model=False) + self.labels(model=True)) // 4
            + (self.extra_values + len(self.relevant or ())) // 8
        )


@dataclass(slots=True)
class Conversation:
    """The turns of a conversation, and by digest the events that hold their items.

    ``forgotten`` is the version up to which it was erased; a conversation with this version and
    without turns is stored as a tombstone, without its id. ``key_id`` names the digest key of its
    fingerprints. ``schema`` is that of the stored header, 0 if it is not stored.
    ``has_fingerprints``: its fingerprints are loaded. ``expired``: an earlier conversation of this
    id has expired, and nothing else is known of it.
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
        """The highest turn that exists, else the highest; refused turns are counted for it."""
        return self.turns[self.last_turn or max(self.turns)]

    def count_turns(self, *, existing: bool) -> int:
        """How many turns exist, or how many do not."""
        return sum(turn.exists == existing for turn in self.turns.values())

    @property
    def weight(self) -> int:
        """The memory that the conversation takes, in units of an average result (about 0.8 kB)."""
        return len(self.events) + sum(turn.weight for turn in self.turns.values())
