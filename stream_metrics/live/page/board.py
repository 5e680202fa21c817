"""Builds the page's content as one JSON document for a window and an agent.

The event loop only copies references to buckets (``_snapshot``); a thread updates the sums and
builds the document. Clients with the same view share a document.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from prometheus_client import CollectorRegistry

from stream_metrics import __version__
from stream_metrics.core.alerts.figures import BY_NAME as EVIDENT
from stream_metrics.core.alerts.hour import Counts
from stream_metrics.core.alerts.obstacles import kind_of
from stream_metrics.core.alerts.standing import Gathered
from stream_metrics.core.alerts.thresholds import BASELINE
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.engine.config import OTHER, WINDOW_BUCKETS
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window, parse_window, without_loops
from stream_metrics.core.engine.windows import Sums, Windows
from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.health import Health
from stream_metrics.live.page import estimates, figures, rules
from stream_metrics.live.page.agent_rules import NO_LOOPS, is_new, usual_ratio
from stream_metrics.live.page.courses import Course, Courses, together
from stream_metrics.live.page.evidence import Teller
from stream_metrics.live.page.finding import LEVELS, NONE
from stream_metrics.live.page.group import Coverage, Group, OwnedPartitions, own_coverage
from stream_metrics.live.page.operations import History, OperationsSample, read_sample
from stream_metrics.live.page.worker_rules import Worker
from stream_metrics.live.runaways import RunawayTurn

DEFAULT_WINDOW: Final = "1h"  # shown unless another is requested
BEHIND_SECONDS: Final = 15.0  # later parts of a chart are then unknown, and not without traffic
MAX_DOCUMENTS: Final = 64  # cached; there are fewer clients


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of the board. Every function is called on the event loop.

    ``windows`` returns those of the owned partitions, ``now_us`` the clock of the windows. The
    windows of other workers come from ``group``, if it is set. ``pools`` are what agents share, by
    agent. ``runaways`` are the turns that run away, of all workers as far as they are known, and
    ``own_runaways`` those of this one.
    ``loops`` tells whether the state has figures of loops. ``process`` is what is said of the one
    process without servers that serves the page, if it is one (``one_process.document``).
    ``incomplete_until_ms`` is the end of the latest day whose sample of a judge ended early, as far
    as this process knows, ``due_turns`` the turns that its judge has yet to label, and
    ``gets_no_grades`` whether the endpoint of its model gives none.
    ``on_bug`` is told why a sample could not be taken. Agents are judged by ``evidence``.
    """

    registry: CollectorRegistry
    health: Health
    windows: Callable[[], Sequence[Windows]]
    owned: Callable[[], OwnedPartitions]
    now_us: Callable[[], int]
    specs: tuple[Window, ...] = DEFAULT_WINDOWS
    agents: tuple[str, ...] = ()
    dimension: str = "agent"
    rules: Sequence[rules.Rule] = rules.RULES
    runbook_url: str | None = None
    group: Group | None = None
    pools: Mapping[str, str] = field(default_factory=dict)
    runaways: Callable[[], Sequence[RunawayTurn]] = tuple
    own_runaways: Callable[[], Sequence[RunawayTurn]] = tuple
    loops: Callable[[], bool] = lambda: True
    process: Callable[[], Mapping[str, Any] | None] = lambda: None
    incomplete_until_ms: Callable[[], int | None] = lambda: None
    due_turns: Callable[[], int] = lambda: 0
    gets_no_grades: Callable[[], bool] = lambda: False
    on_bug: Callable[[Bug], None] = lambda _: None
    evidence: Teller | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What a client requests: a window, and an agent (or release), or None for all."""

    window: Window
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The inputs of one document, copied on the event loop for the thread."""

    copies: dict[Windows, Windows]
    gathered: Gathered | None
    owned: OwnedPartitions
    coverage: Coverage
    reasons: dict[str, str]
    since: dict[str, float]
    runaways: Sequence[RunawayTurn]
    specs: Sequence[Window]
    building: int  # the generation of state that is being built, 0 where one is in force
    process: Mapping[str, Any] | None
    incomplete_until_ms: int | None
    due_turns: int
    gets_no_grades: bool
    now_us: int
    clock: float


@dataclass(frozen=True, slots=True)
class Judged:
    """The state of every rule, as ``rules.judge`` gives it.

    ``agents`` tells whether agents were judged, by the figures of all partitions up to now.
    """

    states: Sequence[Mapping[str, Any]]
    agents: bool


class Board:
    """Builds documents, which are cached for ``interval_seconds``. ``close`` stops the thread."""

    def __init__(
        self,
        inputs: Inputs,
        *,
        interval_seconds: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.inputs = inputs
        self.interval_seconds = interval_seconds
        self.history = History()
        self.closed = False
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._running = Courses(inputs.specs)
        self._documents: dict[View, tuple[float, asyncio.Future[bytes]]] = {}

    def view(self, window: str | None, agent: str | None) -> View:
        """A view by names; raises ``ValueError`` for a window that is not configured.

        The default window is 1h, or the middle one if 1h is not configured.
        """
        specs = {spec.name: spec for spec in self.inputs.specs}
        if window is None:
            ordered = sorted(self.inputs.specs, key=lambda spec: spec.length_us)
            return View(specs.get(DEFAULT_WINDOW, ordered[len(ordered) // 2]), agent)
        if window not in specs:
            raise ValueError(f"no window {window!r} is kept; there are {', '.join(specs)}")
        return View(specs[window], agent)

    def sample(self) -> None:
        """Add a sample of the operational metrics to the history, or note why there is none."""
        try:
            self.history.add(read_sample(self.inputs.registry, self._clock()))
            if self.inputs.group is not None:
                self.inputs.group.rest()
        except Exception as error:
            bug = Bug.of(error)
            self.history.failure = bug.kind
            self.inputs.on_bug(bug)

    async def document(self, view: View) -> bytes:
        """The document as JSON in UTF-8, at most ``interval_seconds`` old."""
        if self.inputs.group is not None:
            await self.inputs.group.look()
        if self.inputs.evidence is not None:
            await self.inputs.evidence.look()
        now = time.monotonic()
        made = self._documents.get(view)
        if made is None or now - made[0] >= self.interval_seconds:
            loop = asyncio.get_running_loop()
            made = (now, loop.run_in_executor(self._thread, self._make, view, self._snapshot()))
            self._documents = {
                other: entry
                for other, entry in list(self._documents.items())[-MAX_DOCUMENTS:]
                if now - entry[0] < self.interval_seconds
            }
            self._documents[view] = made
        return await asyncio.shield(made[1])

    async def judged(self, *, agents: bool) -> Judged:
        """The state of every rule now, for whoever is told of faults; with ``agents``, the agents
        are judged too if the figures of all partitions are known. Of turns that run away, those of
        this worker count: each tells of its own."""
        if agents and self.inputs.group is not None:
            await self.inputs.group.read()
        if agents and self.inputs.evidence is not None:
            await self.inputs.evidence.read()
        loop = asyncio.get_running_loop()
        look = replace(self._snapshot(), runaways=self.inputs.own_runaways())
        return await loop.run_in_executor(self._thread, self._judge, look, agents)

    def close(self) -> None:
        """Stop the thread."""
        self.closed = True
        self._thread.shutdown(wait=False)
        if self.inputs.group is not None:
            self.inputs.group.close()
        if self.inputs.evidence is not None:
            self.inputs.evidence.close()

    def _snapshot(self) -> _Snapshot:
        inputs, owned, group = self.inputs, self.inputs.owned(), self.inputs.group
        evidence = inputs.evidence
        building = inputs.health.generation if inputs.health.building else 0
        copies = {windows: windows.snapshot() for windows in inputs.windows()}
        if group is not None and not building:
            copies |= group.windows()
        return _Snapshot(
            copies,
            None if evidence is None or evidence.problem else evidence.gathered,
            owned,
            own_coverage(owned) if group is None else group.coverage(),
            inputs.health.unready_reasons(),
            dict(inputs.health.since),
            inputs.runaways(),
            inputs.specs if inputs.loops() else without_loops(inputs.specs),
            building,
            inputs.process(),
            inputs.incomplete_until_ms(),
            inputs.due_turns(),
            inputs.gets_no_grades(),
            inputs.now_us(),
            self._clock(),
        )

    # -- in the thread --------------------------------------------------------------------------

    def _make(self, view: View, look: _Snapshot) -> bytes:
        self._running.keep(look.specs)
        self._running.update(look.copies, look.now_us)
        self._running.tell(look.gathered and look.gathered.stands)
        document = self._document(view, look)
        return json.dumps(document, separators=(",", ":")).encode()

    def _judge(self, look: _Snapshot, agents: bool) -> Judged:
        inputs, known = self.inputs, look.coverage.total is not None
        worker = self._worker(look, self._operating(look.clock))
        if not agents or look.building or look.coverage.problems or not known:
            return Judged(rules.judge({}, worker, inputs.rules, inputs.runbook_url), agents=False)
        self._running.keep(look.specs)
        self._running.update(look.copies, look.now_us)
        self._running.tell(look.gathered and look.gathered.stands)
        courses = self._courses(look)
        pools = rules.pools_of(inputs.pools, courses)
        states = rules.judge(courses, worker, inputs.rules, inputs.runbook_url, pools)
        return Judged(states, agents=True)

    def _courses(self, look: _Snapshot) -> dict[str, Course]:
        return {name: self._running.course(name, look.now_us) for name in self._known()}

    def _worker(self, look: _Snapshot, operating: OperationsSample) -> Worker:
        return Worker(
            operating,
            self.history,
            look.reasons,
            len(look.owned.numbers),
            look.coverage,
            look.since,
            look.runaways,
        )

    def _document(self, view: View, look: _Snapshot) -> dict[str, Any]:
        inputs, window = self.inputs, view.window
        operating = self._operating(look.clock)
        sums = self._running.of(window.name, view.agent)
        worker = self._worker(look, operating)
        courses = self._courses(look)
        pools = rules.pools_of(inputs.pools, courses)

        def judged(agents: Mapping[str, Course]) -> list[dict[str, Any]]:
            return rules.judge(agents, worker, inputs.rules, inputs.runbook_url, pools)

        all_states = judged(courses)
        shown, states = courses, all_states
        if view.agent is not None:
            course = courses.get(view.agent) or self._running.course(view.agent, look.now_us)
            shown = {view.agent: course}
            states = judged(shown)
        fresh = [name for name, course in shown.items() if is_new(course)]
        decisions = figures.window_with(figures.OF_DECISIONS, look.specs, window)
        of_loops = figures.window_with(figures.OF_LOOPS, look.specs, window)
        read_up_to = operating.complete_until or self.history.complete_until()
        return {
            "schema_version": 1,
            "version": __version__,
            "engine": ENGINE,
            "now": look.now_us,
            "window": window.name,
            "windows": [spec.name for spec in inputs.specs],
            "dimension": inputs.dimension,
            "agent": view.agent,
            "partitions": look.coverage.document(len(look.owned.numbers)),
            "reasons": look.reasons,
            "waiting": _waiting(look),
            "process": look.process,
            "sums": {
                name: sums.get(code, 0)
                for code, name in (("r", "results"), ("i", "iterations"), ("t", "turns"))
            },
            "figures": _headline(sums, _before(window, shown.values())),
            "agents": self._agents(window.name, all_states),
            "series": self._series(window, view.agent, look, figures.core_series, read_up_to),
            "decisions": decisions
            and {
                "gate": figures.gate(self._running.of(decisions.name, view.agent)),
                "routing": figures.routing(self._running.of(decisions.name, view.agent)),
                **self._series(decisions, view.agent, look, figures.decision_series, read_up_to),
            },
            "loops": of_loops
            and {
                "figures": _loops(
                    self._running.of(of_loops.name, view.agent), _before(of_loops, shown.values())
                ),
                **self._series(of_loops, view.agent, look, figures.loop_series, read_up_to),
            },
            "no_loops": None if of_loops else _why_no_loops(inputs.loops()),
            "estimates": self._estimates(view, look),
            "operating": _operations(operating, read_up_to),
            "lag": self.history.lag(),
            "verdict": rules.verdict(
                states, look.reasons, fresh, look.building, self.history.failure
            ),
            "rules": states,
        }

    def _estimates(self, view: View, look: _Snapshot) -> dict[str, Any] | None:
        window = figures.window_with(estimates.HEADS, look.specs, view.window)
        if window is None:
            return None
        agents = self._known() if view.agent is None else [view.agent]
        by_agent = {name: self._running.of(window.name, name) for name in agents}
        sums = self._running.of(window.name, view.agent)
        until_ms = look.incomplete_until_ms
        cut_off = until_ms is not None and look.now_us - until_ms * 1000 < window.length_us
        behind = estimates.behind(look.due_turns, self._running.of(window.name, None))
        buckets = self._running.buckets(window, view.agent)
        part = estimates.covered(buckets, figures.times(window, look.now_us))
        judge = estimates.Waiting(behind, look.due_turns, look.gets_no_grades)
        return estimates.document(window.name, sums, by_agent, part, judge, cut_off=cut_off)

    def _operating(self, at: float) -> OperationsSample:
        """The operational metrics now; unknown if a bug keeps them from being read."""
        try:
            return read_sample(self.inputs.registry, at)
        except Exception as error:  # the next sample reports it
            self.history.failure = Bug.of(error).kind
            return OperationsSample(at)

    def _known(self) -> list[str]:
        """Configured agents, then those with sums, by name; ``other`` is the last."""
        agents = self._running.agents()
        named = sorted((agents | {*self.inputs.agents}) - {OTHER})
        return [*named, OTHER] if OTHER in agents else named

    def _agents(self, window: str, states: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """A row for each agent, with the worst level of any rule for it."""
        levels: dict[str, str] = {}
        for state in states:
            for found in state["findings"]:
                known = levels.get(found["agent"], NONE)
                levels[found["agent"]] = min(found["level"], known, key=LEVELS.index)
        rows = []
        for name in self._known():
            sums = self._running.of(window, name)
            rows.append(
                {
                    "agent": name,
                    "level": levels.get(name, NONE),
                    "results": sums.get("r", 0),
                    "srr": figures.srr(sums),
                    "sre": figures.none_if_unlabelled(figures.sre)(sums),
                    "gain": figures.none_if_unlabelled(figures.gain)(sums),
                    "coverage": figures.coverage(sums),
                }
            )
        return rows

    def _series(
        self,
        window: Window,
        agent: str | None,
        look: _Snapshot,
        of: Callable[[Sequence[Sums]], dict[str, Any]],
        read_up_to: float | None,
    ) -> dict[str, Any]:
        """The series of a window; what lies after ``read_up_to``, if that is a while ago, is
        unknown."""
        times = figures.times(window, look.now_us)
        late = read_up_to is not None and look.now_us / 1e6 - read_up_to > BEHIND_SECONDS
        unread = [late and read_up_to is not None and at >= read_up_to for at in times]
        return {
            "window": window.name,
            "bucket_seconds": window.bucket_us / 1e6,
            "smoothed_seconds": figures.SMOOTHED * window.bucket_us / 1e6,
            "times": times,
            **figures.without(of(self._running.buckets(window, agent)), unread),
        }


def _before(window: Window, shown: Iterable[Course]) -> list[Counts]:
    """The last day of the agents shown, without the window, which is the end of it."""
    parts_left = WINDOW_BUCKETS - window.length_us // parse_window(BASELINE).bucket_us
    return together(course.day[: max(0, parts_left)] for course in shown)


def _headline(sums: Sums, before: Sequence[Counts]) -> dict[str, Any]:
    """The figures of the tiles, each with its usual value, or None if there is too little data.

    ``before`` has the parts of the day before the window.
    """
    shown = {
        "srr": figures.srr(sums),
        "sre": figures.none_if_unlabelled(figures.sre)(sums),
        "gain": figures.none_if_unlabelled(figures.gain)(sums),
        "coverage": figures.coverage(sums),
    }
    return {name: {**found, "usual": usual_ratio(name, before)} for name, found in shown.items()}


def _loops(sums: Sums, before: Sequence[Counts]) -> dict[str, Any]:
    """The figures of loops, those that alerts look at with their usual values."""
    return {
        name: {**found, "usual": usual_ratio(name, before) if name in EVIDENT else None}
        for name, found in figures.loops(sums).items()
    }


def _why_no_loops(counted: bool) -> str:
    """Why no window has figures of loops."""
    return "no window has them: see metrics.series_windows" if counted else NO_LOOPS


def _waiting(look: _Snapshot) -> dict[str, Any] | None:
    """What the worker waits for, and since when; None while it reads and writes."""
    obstacle = rules.waiting(look.reasons)
    if obstacle is None:
        return None
    since = [at for reason, at in look.since.items() if kind_of(reason) == obstacle.reason]
    return {"for": obstacle.waits_for, "since": min(since, default=None)}


def _operations(operating: OperationsSample, read_up_to: float | None) -> dict[str, Any]:
    return {
        "lag_records": operating.lag_records,
        "lag_seconds": operating.lag_seconds,
        "complete_until": operating.complete_until,
        "lag_known_at": operating.lag_known_at,
        "read_up_to": read_up_to,
        "dead_letters": operating.dead_letters,
        "events": operating.events,
    }
