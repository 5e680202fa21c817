"""What a batch leaves behind, beside the changed state: what to write, and what was observed."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final, Literal, get_args

from stream_metrics.core.dedup.index import DedupCounts
from stream_metrics.core.engine.state import Cell

Outcome = Literal["applied", "redelivered", "superseded", "forgotten", "over_limit"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
"""What can become of an event."""


class Observations:
    """Operational counts of a batch; never part of the state.

    ``events``: by (type, outcome). ``label_delays_us``: labels by their event's time
    after that of what they name. ``late``: iterations and turns that changed when the window named
    had passed them. ``opened``: conversations, by where they were found. ``unknown_fields``:
    events that have a field that the contract does not name, by its path.
    """

    __slots__ = ("counts", "dedup", "events", "label_delays_us", "late", "opened", "unknown_fields")

    def __init__(self) -> None:
        self.events: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.counts: Counter[str] = Counter()
        self.dedup = DedupCounts()
        self.label_delays_us: dict[int, int] = {}
        self.late: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        self.unknown_fields: Counter[str] = Counter()


class Changes:
    """What a batch changed in one conversation.

    ``written`` and ``dropped``: events by digest; ``fingerprinted``: those whose fingerprints
    are to be written; ``identified``: those whose document ids are, or are to go. ``turns``:
    numbers of turns whose header changed. ``cells``: what windows lose (-1) and gain (+1).
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
        """Whether more than the version up to which the conversation is forgotten has changed."""
        return bool(self.written or self.dropped or self.fingerprinted or self.turns)
