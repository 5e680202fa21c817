"""The judge: reads the input topics, grades the turns of its sample, and writes labels.

In each round it fetches records, adds those of the sample to their turns, and starts to ask for the
grades of the turns that are due. Asking goes on beside the rounds. A turn's labels are written once
all its documents have a grade. Of a turn that has to wait for that, or gets none, an event without
labels says that it is in the sample, so that whoever reads the labels knows how many are missing.
What is committed lies before the first record of any turn of which something is still expected, so
whoever reads next knows the same turns; from the labels, which are on the topics that it reads, it
knows which of them are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import structlog

from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import Record
from stream_metrics.core.judge.budget import day_of
from stream_metrics.core.judge.labels import label_events, sample_event
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.core.judge.turns import HELP, OpenTurn, OpenTurns, Problem, Work
from stream_metrics.live.judge.asking import Asker, Ungraded
from stream_metrics.live.judge.ledger import Ledger, State
from stream_metrics.live.worker.retry import RetryPolicy, Stopped
from stream_metrics.live.worker.telemetry import BugCounts

MAX_ASKED: Final = 200  # turns for whose grades is asked at once; each waits for its turn
MAX_DRAWN: Final = 200  # turns of a partition that are told to be in the sample in one round
FULL_SECONDS: Final = 0.1
REFRESH_SECONDS: Final = 2.0  # how often it is read what other judges have spent
LOG_SECONDS: Final = 60.0
BACKLOG_SECONDS: Final = 5.0
BACKLOG_TURNS: Final = 20  # that took so long, or more: their end is worth a line
_ANY_TIME: Final = 1 << 62

Outcome = Literal["labelled", "no_grade", "budget"] | Problem
OUTCOMES: Final[tuple[Outcome, ...]] = ("labelled", "no_grade", "budget", "no_query", "no_text")

log = structlog.get_logger(__name__)


class ReadTime(NamedTuple):
    """Up to when a partition has been read in all its topics. ``knows_labels``: also up to where
    their ends were when it was assigned, so that all labels of earlier judges are known."""

    time_ms: int
    knows_labels: bool


class Inputs(Protocol):
    """The input topics, as one member of a consumer group reads them."""

    async def fetch(self) -> Sequence[Record]:
        """The next records; on return, ``Partitions`` has those that are assigned."""
        ...

    def rest(self) -> None:
        """Note that nothing is read now, since there is no room."""
        ...

    @property
    def changed(self) -> bool:
        """Whether the assignment has changed, so that ``fetch`` must be called."""
        ...

    def times(self) -> Mapping[int, ReadTime]:
        """Up to when each partition has been read."""
        ...

    async def commit(self) -> None:
        """Commit what ``Partitions.first_needed`` says of the partitions still assigned."""
        ...


class LabelWriter(Protocol):
    """Writes to the topic of labels."""

    async def send(self, conversation_id: str, events: Sequence[bytes]) -> None:
        """Write events of a conversation. Returns once they are stored; raises ``Unavailable``."""
        ...


class JudgeCounts(BugCounts, Protocol):
    """Receives operational counts; every method is cheap and never raises."""

    def judged(self, outcome: Outcome, documents: int) -> None: ...
    def sizes(self, turns: int, open_bytes: int, asked: int, due: int) -> None: ...
    def budget(self, state: State) -> None: ...


class Partitions:
    """The turns of the partitions that are assigned, and the tasks that ask for their grades."""

    def __init__(self, made: Callable[[], OpenTurns]) -> None:
        self._made = made
        self._of: dict[int, OpenTurns] = {}
        self._asking: dict[asyncio.Task[None], OpenTurns] = {}

    def begin(self, numbers: Iterable[int]) -> None:
        """Replace the assigned partitions; nothing of them has been read."""
        self.stop()
        self._of = {number: self._made() for number in numbers}

    def of(self, number: int) -> OpenTurns | None:
        """The turns of a partition; None if it is not assigned."""
        return self._of.get(number)

    def first_needed(self, topic: str, partition: int) -> int | None:
        """The offset of the first record of any turn; None if nothing of that log is needed."""
        turns = self._of.get(partition)
        return None if turns is None else turns.offsets().get((topic, partition))

    def ask(self, turns: OpenTurns, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends."""
        self._asking[task] = turns
        task.add_done_callback(lambda done: self._asking.pop(done, None))

    @property
    def asked(self) -> int:
        """How many turns are being asked about."""
        return len(self._asking)

    @property
    def turns(self) -> int:
        """How many turns there are."""
        return sum(map(len, self._of.values()))

    def due(self, times: Mapping[int, ReadTime]) -> int:
        """How many turns are due and have no outcome. Before the labels of earlier judges are
        known, all that were read again count."""
        return self.asked + sum(
            turns.count_due(read.time_ms if read.knows_labels else _ANY_TIME)
            for number, read in times.items()
            if (turns := self._of.get(number)) is not None
        )

    @property
    def bytes(self) -> int:
        """The size of their records."""
        return sum(one.bytes for one in self._of.values())

    def make_room(self, most_bytes: int) -> bool:
        """Forget turns that were graded if all have more bytes; whether there is room then."""
        for one in self._of.values():
            one.make_room(max(0, most_bytes - (self.bytes - one.bytes)))
        return self.bytes <= most_bytes

    def stop(self) -> None:
        """Ask for nothing any more."""
        for task in list(self._asking):
            task.cancel()


class JudgeOptions(NamedTuple):
    """``rate`` is the configured share of conversations in the sample; ``open_bytes`` the most
    bytes of records that are kept."""

    model: str
    judge: str
    rate: float
    open_bytes: int


class Judge:
    """Grades a sample, in rounds."""

    def __init__(
        self,
        inputs: Inputs,
        partitions: Partitions,
        sampler: Sampler,
        asker: Asker,
        ledger: Ledger,
        labels: LabelWriter,
        retry: RetryPolicy,
        counts: JudgeCounts,
        options: JudgeOptions,
        monotonic: Callable[[], float],
    ) -> None:
        self._inputs = inputs
        self._partitions = partitions
        self._sampler = sampler
        self._asker = asker
        self._ledger = ledger
        self._labels = labels
        self._retry = retry
        self._counts = counts
        self._options = options
        self._monotonic = monotonic
        self._opened = False
        self._begun = 0  # turns
        self._ended = 0  # turns that have come to an outcome
        self._ended_before = (0, 0)  # when none was due, and a minute ago
        self._next_progress = monotonic() + LOG_SECONDS
        self._idle_at = monotonic()  # when none was due
        self._next_refresh = monotonic()
        self._logged: dict[tuple[str, str], float] = {}
        self._spent_day: int | None = None  # the last day whose end was logged
        self._has_told_rate = False
        self.due_turns = 0
        """The turns that were due after the last round and have no outcome yet."""

    async def turn(self) -> int:
        """Run one round; the number of records fetched."""
        if not self._opened:
            await self._retry(self._ledger.open)
            self._opened = True
        if (now := self._monotonic()) >= self._next_refresh:
            self._next_refresh = now + REFRESH_SECONDS
            await self._retry(self._ledger.refresh)
        records: Sequence[Record] = ()
        if self._inputs.changed or self._partitions.make_room(self._options.open_bytes):
            records = await self._inputs.fetch()
        else:
            self._inputs.rest()
            await self._retry.pause(FULL_SECONDS)
        rate, now_ms = self._ledger.highest_rate(self._options.rate), self._ledger.now_ms()
        for record in records:
            turns = self._partitions.of(record.partition)
            if turns is not None:
                turns.add(record, rate, now_ms)
        await self._draw()
        self._start()
        await self._inputs.commit()
        self._tell()
        return len(records)

    def _start(self) -> None:
        """Ask for the grades of turns that are due."""
        idle = not self._partitions.asked
        full = self._partitions.bytes > self._options.open_bytes
        for number, read in self._inputs.times().items():
            turns = self._partitions.of(number)
            if turns is None:
                continue
            turns.forget_old(read.time_ms)
            # Nothing more is read while turns take all the room: what they lack does not come then.
            due_ms = _ANY_TIME if full and idle else read.time_ms
            if read.knows_labels or full:
                room = max(0, MAX_ASKED - self._partitions.asked)
                for turn in turns.due(due_ms, room):
                    turn.running = True
                    self._begun += 1
                    work = self._judge(turn, self._begun)
                    self._partitions.ask(turns, asyncio.create_task(work))

    async def _draw(self) -> None:
        """Tell of turns that wait for their labels that they are in the sample, before they may be
        forgotten."""
        for number, read in self._inputs.times().items():
            turns = self._partitions.of(number)
            if turns is not None and read.knows_labels:
                found = turns.undrawn(read.time_ms, MAX_DRAWN)
                await asyncio.gather(*(self._safely(self._draw_waiting(turn)) for turn in found))

    async def _draw_waiting(self, turn: OpenTurn) -> None:
        work = turn.work()
        if work is not None and work.problem is None and await self._is_sampled(work):
            await self._tell_drawn(turn, work)

    async def _tell_drawn(self, turn: OpenTurn, work: Work) -> None:
        """Tell once that a turn is in the sample, unless it has no documents and so needs no grade.

        One that cannot be graded is in no sample.
        """
        if work.asks and not turn.is_drawn:
            event = sample_event(work, model=self._options.model, judge=self._options.judge)
            await self._retry(lambda: self._labels.send(work.conversation_id, [event]))
            turn.grade(())

    async def _is_sampled(self, work: Work) -> bool:
        """Whether the sample of the day of a turn has it."""
        day = day_of(work.time_us // 1000)
        rate = await self._retry(lambda: self._ledger.rate(day, self._options.rate))
        return self._sampler.includes(work.conversation_id, rate)

    async def _judge(self, turn: OpenTurn, order: int) -> None:
        try:
            await self._safely(self._grade(turn, order))
        finally:
            turn.running = False
            self._ended += 1

    async def _safely(self, step: Awaitable[None]) -> None:
        """Take a step about one turn. A bug is counted, and ends this step alone."""
        try:
            await step
        except Stopped:
            pass
        except Exception as error:
            self._counts.bug(Bug.of(error))

    async def _grade(self, turn: OpenTurn, order: int) -> None:
        work = turn.work()
        if work is None or not await self._is_sampled(work):
            return
        if work.problem is not None:
            self._log_problem(work, work.problem)
            self._counts.judged(work.problem, 0)
            return
        grades: dict[str, int] = {}
        # Also turns without documents get none once the budget is spent.
        ungraded: Ungraded | None = "spent" if self._ledger.is_spent else None
        for ask in work.asks if ungraded is None else ():
            found = await self._asker.grade(ask.texts, order)
            if not isinstance(found, int):
                ungraded = found
                break
            grades[ask.result_id] = found
        if ungraded is not None:
            await self._tell_drawn(turn, work)  # now, since it may be dropped from here on
            self._counts.judged("budget" if ungraded == "spent" else ungraded, 0)
            return
        model, judge = self._options.model, self._options.judge
        events = label_events(work, grades, model=model, judge=judge)
        await self._retry(lambda: self._labels.send(work.conversation_id, events))
        turn.grade(grades)
        self._counts.judged("labelled", len(grades))

    def _log_problem(self, work: Work, problem: Problem) -> None:
        """Log what an agent's turns lack, once a minute."""
        now = self._monotonic()
        if now < self._logged.get((work.agent, problem), 0.0):
            return
        self._logged = {at: until for at, until in self._logged.items() if until > now}
        self._logged[work.agent, problem] = now + LOG_SECONDS
        log.warning("a turn cannot be graded", agent=work.agent, reason=problem, why=HELP[problem])

    def _tell_progress(self) -> None:
        """Log once a minute how many turns are done, while more are due than a minute's, and when
        none of many is left."""
        now, (start, before) = self._monotonic(), self._ended_before
        if not self.due_turns:
            done, seconds = self._ended - start, now - self._idle_at
            if done >= BACKLOG_TURNS and seconds >= BACKLOG_SECONDS:
                log.info("no turn is left to judge", done=done)
            self._idle_at = now
            self._ended_before, self._next_progress = (self._ended,) * 2, now + LOG_SECONDS
        elif now >= self._next_progress:
            self._ended_before, self._next_progress = (start, self._ended), now + LOG_SECONDS
            if self.due_turns > self._ended - before:
                done = self._ended - start
                log.info("turns are being judged", done=done, of=done + self.due_turns)

    def _tell(self) -> None:
        """Export sizes and the budget; log once a day that it is spent, and once that the settings'
        rate does not count yet."""
        parts, state = self._partitions, self._ledger.state()
        self.due_turns = parts.due(self._inputs.times())
        self._counts.sizes(parts.turns, parts.bytes, parts.asked, self.due_turns)
        self._counts.budget(state)
        self._tell_progress()
        if state.rate not in (None, self._options.rate) and not self._has_told_rate:
            self._has_told_rate = True
            log.warning(
                "today's sample was begun with another rate, which holds until midnight, UTC",
                today=state.rate,
                configured=self._options.rate,
            )
        ended_ms = state.spending.ended_ms
        if ended_ms is not None and day_of(ended_ms) != self._spent_day:
            self._spent_day = day_of(ended_ms)
            log.error(
                "the budget of the day is spent, so the sample ends until midnight, UTC",
                calls=state.spending.calls,
                tokens=state.spending.total.tokens,
                why="windows that reach into this time have no combined estimate; lower "
                "`judge.rate`, or raise `judge.tokens_per_day` or `judge.money_per_day`",
            )

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._partitions.stop()
