"""What a batch produces besides the changed state: what to write, and operational counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final, Literal, NamedTuple, get_args

from stream_metrics.core.dedup.index import DedupCounts
from stream_metrics.core.engine.state import Cell, Version

Outcome = Literal["applied", "redelivered", "superseded", "forgotten", "over_limit"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
"""The outcomes of an event."""


class Refused(NamedTuple):
    """An item that a limit has kept out of a turn.

    ``register`` is the index of its register in ``Turn.winners``, and ``key`` its key there.
    ``results`` is the number of results, for a search. ``limit`` is the name of the limit, as
    ``Limits`` has it.
    """

    turn: int
    register: int
    key: Any
    version: Version
    results: int
    limit: str


class Observations:
    """Operational counts of a batch; never part of the state.

    ``events``: events by (type, outcome). ``label_delays_us``: labels by the time between the
    labelled search and their own event, in microseconds. ``late``: iterations and turns that
    changed after they had left a window, by window. ``opened``: conversations by where they were
    found. ``refused``: items that limits have refused, each as often as it was sent.
    ``unknown_fields``: events with a field that the contract does not have, by its path.
    """

    __slots__ = (
        "counts", "dedup", "events", "label_delays_us", "late", "opened", "refused",
        "unknown_fields",
    )  # fmt: skip

    def __init__(self) -> None:
        self.events: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.counts: Counter[str] = Counter()
        self.dedup = DedupCounts()
        self.label_delays_us: dict[int, int] = {}
        self.late: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        self.refused: list[Refused] = []
        self.unknown_fields: Counter[str] = Counter()


class Changes:
    """What a batch changed in one conversation.

    The sets of events hold digests: of events to write (``written``) or delete (``dropped``), of
    those whose fingerprints to write (``fingerprinted``), and of those whose document ids to write
    or delete (``identified``). ``turns``: numbers of turns whose header changed. ``cells``: cells
    to subtract from (-1) or add to (+1) the windows.
    """

    __slots__ = ("cells", "dropped", "fingerprinted", "header", "identified", "turns", "written")

    def __init__(self) -> None:
        self.written: set[bytes] = set()
        self.dropped: set[bytes] = set()
        self.fingerprinted: set[bytes] = set()
        self.identified: set[bytes] = set()
        self.turns: set[int] = set()
        self.header = False
        self.cells: list[tuple[int, Cell]] = []

    @property
    def has_items(self) -> bool:
        """Whether anything but the conversation's header has changed."""
        return bool(self.written or self.dropped or self.fingerprinted or self.turns)
