"""Traffic profiles, incidents and generated records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Stream = Literal["events", "labels"]
IncidentKind = Literal[
    "same_pages", "rewriter_loops", "off_topic", "gate_skips", "router_stuck", "reranker_inverted",
    "labels_late", "empty_index", "asks_again", "empty_route",
]  # fmt: skip
Rhythm = Literal["flat", "working_day"]

DEFAULT_AGENTS = ("it-desk", "hr-helper", "sales-assist", "finance-bot")
DEFAULT_START = 1_742_284_800  # 2025-03-18T08:00:00Z, a Tuesday


class TrafficRecord(NamedTuple):
    """One record in arrival order.

    ``timestamp_ms`` is the time of arrival (Unix milliseconds, non-decreasing). ``valid`` says
    whether a worker should accept the record.
    """

    stream: Stream
    key: bytes | None
    value: bytes
    timestamp_ms: int
    valid: bool


@dataclass(frozen=True, slots=True)
class Incident:
    """A temporary problem of one agent.

    ``from_seconds`` and ``to_seconds`` count from the profile's start. ``strength`` is a
    probability, by ``kind``:

    - ``same_pages``: that a slot that would hold a new document repeats an old one;
    - ``rewriter_loops``: that a turn asks nearly the same again and again, four iterations longer;
    - ``off_topic``: that a search looks for any topic but its own;
    - ``gate_skips``: that an iteration is skipped though a search was needed;
    - ``router_stuck``: that a search goes to the agent's first route whatever the query;
    - ``reranker_inverted``: that the worst results of a search come first;
    - ``labels_late``: that a label event comes a quarter to three quarters of an hour late;
    - ``empty_index``: that a search returns nothing;
    - ``asks_again``: that a turn, four iterations longer, sends the query of its first search to
      the same route again and again, and finds the same documents;
    - ``empty_route``: that a search of the agent's first route returns nothing.
    """

    agent: str
    from_seconds: float
    to_seconds: float
    kind: IncidentKind
    strength: float = 0.7

    def __post_init__(self) -> None:
        if not 0.0 <= self.strength <= 1.0:
            raise ValueError(f"strength is a probability, not {self.strength}")
        if self.to_seconds < self.from_seconds:
            raise ValueError("an incident ends after it begins")


@dataclass(frozen=True, slots=True)
class TrafficProfile:
    """The amount and shape of traffic. Equal profiles produce equal bytes.

    Shares refer to all records unless stated otherwise; ranges are inclusive.
    """

    seed: int = 1
    conversations: int = 200
    """Conversations in all (``endless``: in each span of ``duration_seconds``)."""
    start: int = DEFAULT_START
    """When the first conversation may begin, in seconds of Unix time."""
    duration_seconds: float = 3600.0
    """The span in seconds in which conversations begin; the last ones end a little later."""
    rhythm: Rhythm = "flat"
    """``flat``, or ``working_day``: two humps with a lunch break between them."""
    agents: tuple[str, ...] = DEFAULT_AGENTS
    """Agent names; each next one gets about 0.7 times the conversations of the one before."""
    turns: tuple[int, int] = (1, 2)
    """Turns a conversation."""
    iterations: tuple[int, int] = (1, 8)
    """Iterations a turn; each next number is 0.85 times as likely."""
    searches_per_iteration: tuple[int, int] = (1, 3)
    """Searches an iteration; each next number is half as likely."""
    results_per_search: int = 10
    """Results a search, unless the index runs dry or finds nothing."""
    result_bytes: int = 392
    """Aimed-at mean size of a result as JSON; 392 makes one-search events of ten 4.6 KB."""
    documents: int = 1500
    """Documents an agent's corpus."""
    duplicates: float = 0.25
    """Share of results that repeat a document of their turn, outside incidents."""
    split_searches: float = 0.5
    """Share of iterations with several searches that come as one event a search."""
    gate_skips: float = 0.06
    """Share of iterations that the gate skips, outside incidents."""
    baseline_ranks: float = 0.25
    """Share of searches that carry ranks from before the reranking."""
    inline_gains: float = 0.005
    """Share of searches whose results carry gains of their own."""
    out_of_order: float = 0.02
    """Share of records that arrive after a later one of their conversation and stream."""
    redelivered: float = 0.01
    """Share of records that are sent a second time, byte for byte."""
    invalid: float = 0.005
    """Share of records that no worker should accept; they come on top of the valid ones."""
    labels: bool = True
    """Whether there are label events, one for each iteration that searched."""
    label_delay_seconds: float = 20.0
    """Median time from an iteration to its labels."""
    early_labels: float = 0.03
    """Share of turns whose first labels arrive before what they name."""
    revisions: float = 0.05
    """Share of turns of which some labels are changed minutes later, or withdrawn."""
    relevant: float = 0.35
    """Share of turns whose end names the relevant documents."""
    reference_answers: float = 0.4
    """Share of turns whose end has reference answers, one or two."""
    incidents: tuple[Incident, ...] = ()

    def __post_init__(self) -> None:
        for name in ("turns", "iterations", "searches_per_iteration"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name} is a range from 1 up, not {(low, high)}")
        for name in ("conversations", "results_per_search"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is not negative")
        if self.duration_seconds <= 0 or self.documents < 100 or not self.agents:
            raise ValueError("a profile needs time, agents, and at least 100 documents each")
        unknown = {incident.agent for incident in self.incidents} - set(self.agents)
        if unknown:
            raise ValueError(f"incidents of agents that do not exist: {sorted(unknown)}")


@dataclass(slots=True)
class Ledger:
    """Counts of what the generator produced, for tests and summaries."""

    records: Counter[str] = field(default_factory=Counter)
    """Records by stream, including faulty ones."""
    results: Counter[str] = field(default_factory=Counter)
    """Results by agent, without redeliveries and invalid records."""
    duplicates: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Duplicates by agent and by evidence (id, url, text, fields)."""
    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Iterations by agent and whether they searched or skipped."""
    invalid: Counter[str] = field(default_factory=Counter)
    """Invalid records by kind."""
    out_of_order: int = 0
    redelivered: int = 0
    early_labels: int = 0

    def total(self) -> int:
        """All records."""
        return sum(self.records.values())

    def duplicate_share(self, agent: str | None = None) -> float:
        """Duplicates as a share of results, of one agent or of all."""
        results = self.results.total() if agent is None else self.results[agent]
        planted = sum(n for (name, _), n in self.duplicates.items() if agent in (None, name))
        return planted / results if results else 0.0
