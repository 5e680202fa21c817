"""What an agent calls while it works: turns, iterations, searches, labels."""

from __future__ import annotations

import functools
import itertools
import operator
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

from stream_metrics_client.contract import DEFAULT_LIMITS, Limits
from stream_metrics_client.documents import JsonObject, listed, number, text_id, whole
from stream_metrics_client.events import (
    NOTHING,
    Search,
    Searched,
    encode,
    numbers,
    relevant_documents,
    strata,
    without_none,
)
from stream_metrics_client.sending import Sender
from stream_metrics_client.sinks import Record, Target, opener
from stream_metrics_client.validation import InvalidEvent, refusal

_CLOCK_SET_BACK_US: Final = 60_000_000
"""A clock that is set back by less leaves the order of events as it is."""

_recorders: weakref.WeakSet[_Recorder] = weakref.WeakSet()


class _Recorder:
    """What the two recorders have in common."""

    def __init__(
        self,
        sink: Target,
        *,
        agent: str | None = None,
        release: str | None = None,
        strict: bool = False,
        texts: bool = True,
        max_events: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        kafka_options: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        clock: Callable[[], int] = time.time_ns,
        turn_numbers: Callable[[str], int] | None = None,
    ) -> None:
        """Prepare to record; nothing is connected before the first event.

        Args:
            sink: `kafka://host:port[,host:port][/topic[,topic of labels]]`, the path or `file://`
                URL of a file that gets a JSON object a line, or a function that is called with
                each event in a thread of the recorder.
            agent: The agent's name, the label under which its figures are shown.
            release: The agent's release.
            strict: Raise `InvalidEvent` for an event that the worker would refuse, and any other
                error of a call. For tests and CI; without it, no call raises.
            texts: Whether queries, titles, snippets, contents, questions and answers are sent.
            max_events: How many events may wait or be under way; further ones are dropped.
            max_bytes: The same in bytes of JSON.
            kafka_options: Options of the Kafka client under its own names, such as those for TLS.
            limits: The worker's limits for `strict`, if they are not the defaults.
            clock: The time in nanoseconds since 1970, as `time.time_ns`.
            turn_numbers: The number of a conversation's next turn. By default the time in
                microseconds, and at least one more than the last.

        Raises:
            ValueError: The sink's URL is wrong.
            FileNotFoundError: The folder of the sink's file does not exist.
            ImportError: No Kafka client is installed.
        """
        self.agent, self.release = agent, release
        self.strict, self.texts = strict, texts
        self._limits = limits or DEFAULT_LIMITS
        self._clock, self._turn_numbers = clock, turn_numbers
        open_sink = opener(sink, kafka_options)
        name = "a function" if callable(sink) else os.fspath(sink)
        self._sender = Sender(open_sink, max_events=max_events, max_bytes=max_bytes, name=name)
        self._begin()
        _recorders.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may record while it is held
        self._last_turn = self._last_us = 0
        self._process = secrets.token_hex(8)
        self._events = itertools.count(1)

    @property
    def sent(self) -> int:
        """Events that the sink has taken."""
        return self._sender.sent

    @property
    def failed(self) -> int:
        """Events that could not be made, or that the sink refused for good."""
        return self._sender.failed

    @property
    def dropped(self) -> int:
        """Events for which there was no room, or that were still waiting at the end."""
        return self._sender.dropped

    @property
    def pending(self) -> int:
        """Events that wait or are under way."""
        return self._sender.pending

    @property
    def last_error(self) -> str | None:
        """What the last event failed of, or why delivery is being tried again; None if nothing."""
        return self._sender.last_error

    def turn(self, conversation_id: str, *, number: int | None = None) -> Turn:
        """Begin a turn: one question of the user, and what the agent does to answer it.

        Args:
            conversation_id: The conversation; the key of its records.
            number: The turn's number, from 1, if the agent counts turns itself. A turn that is
                recorded again under its number replaces what was recorded before.
        """
        turn = self._number(conversation_id) if number is None else number
        return Turn(self, conversation_id, turn)

    def label(
        self,
        conversation_id: str,
        turn: int,
        gains: Mapping[str, int | None] | None = None,
        *,
        routing: Mapping[str, str | None] | None = None,
        gate: Mapping[int, bool | None] | None = None,
        labeller: str | None = None,
    ) -> None:
        """Judge a turn, at any time after or before its searches; None withdraws a judgement.

        Args:
            conversation_id: The conversation.
            turn: The turn's number, as in `Turn.number`.
            gains: By `result_id` the gain of a result, from 0 (useless) to 4.
            routing: By `search_id` the route that would have been best.
            gate: By iteration whether a search was needed.
            labeller: Who judged.
        """
        self._tell("relevance_labels", conversation_id, turn, lambda: {
            "labels": [{"result_id": text_id(one), "gain": whole(gain)}
                       for one, gain in (gains or {}).items()],
            "routing": [{"search_id": text_id(one), "optimal": optimal}
                        for one, optimal in (routing or {}).items()],
            "gate": [{"iteration": whole(one), "search_needed": needed}
                     for one, needed in (gate or {}).items()],
            "labeller": labeller,
        })  # fmt: skip

    def forget(self, conversation_id: str) -> None:
        """Erase what is known of a conversation up to now."""
        self._tell("forget", conversation_id, None, dict)

    # --- making events ------------------------------------------------------------------------

    def _number(self, conversation_id: str) -> int:
        if self._turn_numbers is not None:
            try:
                return self._turn_numbers(conversation_id)
            except Exception as error:
                if self.strict:
                    raise
                self._sender.fail(error)
        now_us = self._now_us()
        with self._lock:
            self._last_turn = max(self._last_turn + 1, now_us)
            return self._last_turn

    def _stamp(self) -> tuple[int, str]:
        """The time and the id of a new event; of two events the later one has the higher."""
        now_us = self._now_us()
        with self._lock:
            if now_us < self._last_us <= now_us + _CLOCK_SET_BACK_US:
                now_us = self._last_us
            self._last_us = now_us
            return now_us, f"{self._process}-{next(self._events):012d}"

    def _now_us(self) -> int:
        try:
            return int(self._clock()) // 1000
        except Exception:
            if self.strict:
                raise
            return time.time_ns() // 1000

    def _tell(
        self,
        kind: str,
        conversation_id: str,
        turn: int | None,
        content: Callable[[], JsonObject],
    ) -> bool:
        """Make an event and queue it; whether that went well."""
        try:
            (now_us, event_id), conversation_id = self._stamp(), text_id(conversation_id)
            event = {
                "type": kind,
                "event_id": event_id,
                "occurred_at": now_us / 1_000_000,
                "conversation_id": conversation_id,
                "turn": whole(turn),
            } | content()
            event = {name: value for name, value in event.items() if not _is_absent(value)}
            value = encode(event)
            if self.strict:
                problem = refusal(value, timestamp_ms=now_us // 1000, limits=self._limits)
                if problem is not None:
                    raise InvalidEvent(problem)
            self._sender.put(Record(str.encode(conversation_id), value, kind == "relevance_labels"))
        except Exception as error:
            if self.strict:
                raise
            self._sender.fail(error)
            return False
        return True


def _is_absent(value: Any) -> bool:
    return value is None or (type(value) is list and not value)


class Recorder(_Recorder):
    """Records what an agent searches and finds; each call returns at once.

    >>> events = []
    >>> recorder = Recorder(events.append, agent="support", turn_numbers=lambda _: 1)
    >>> with recorder.turn("conversation-17") as turn, turn.iteration() as step:
    ...     found = step.search("parental leave", [{"doc_id": "handbook/12"}], route="handbook")
    >>> found.result_ids
    ('1.1.1',)
    >>> recorder.label("conversation-17", turn.number, {"1.1.1": 3})
    >>> recorder.close()
    True
    >>> recorder.sent, [event["type"] for event in events]
    (2, ['search_iteration', 'relevance_labels'])
    """

    def flush(self, timeout: float | None = 10.0) -> bool:
        """Wait until all events so far have been sent or have failed; False if time runs out.

        Args:
            timeout: The longest time to wait, in seconds; None to wait for as long as it takes.
        """
        return self._sender.flush(timeout)

    def close(self, timeout: float | None = 10.0) -> bool:
        """Send what waits, and accept no more; False if something had to be dropped.

        Args:
            timeout: After how many seconds what is not sent is dropped; None for never.
        """
        return self._sender.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRecorder(_Recorder):
    """`Recorder` for code in coroutines: waiting for the end does not block the event loop.

    Recording never waits for anything, so that the methods of turns and iterations are the same,
    and are not awaited. `with` and `async with` do the same for turns and iterations.
    """

    async def flush(self, timeout: float | None = 10.0) -> bool:
        """Wait until all events so far have been sent or have failed; False if time runs out.

        Args:
            timeout: The longest time to wait, in seconds; None to wait for as long as it takes.
        """
        return await self._sender.flush_async(timeout)

    async def close(self, timeout: float | None = 10.0) -> bool:
        """Send what waits, and accept no more; False if something had to be dropped.

        Args:
            timeout: After how many seconds what is not sent is dropped; None for never.
        """
        return await self._sender.close_async(timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Block:
    """A context manager, sync and async, that adds nothing at its end and hides no exception."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is to be done: all that was recorded is on its way."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is to be done: all that was recorded is on its way."""


class Turn(_Block):
    """One answer of the agent; `number` and `conversation_id` are what labels refer to."""

    def __init__(self, recorder: _Recorder, conversation_id: str, number: int) -> None:
        self._recorder = recorder
        self.conversation_id, self.number = conversation_id, number
        self._iterations = itertools.count(1)
        self._searches: dict[int, Iterator[int]] = {}

    def iteration(self, *, number: int | None = None) -> Iteration:
        """Begin an iteration: one decision of the agent, and the searches that follow from it.

        Args:
            number: The iteration's number, from 1, if the agent counts them itself. Several
                iterations under one number are one.
        """
        if number is None:
            number = next(free for free in self._iterations if free not in self._searches)
        return Iteration(self, number)

    def _counter(self, iteration: Any) -> Iterator[int]:
        """What numbers the searches of an iteration, however often it is begun."""
        try:
            number = operator.index(iteration)
        except Exception:  # no number: its events will be refused
            number = 0
        return self._searches.setdefault(number, itertools.count(1))

    def completed(
        self,
        answer: str | None = None,
        *,
        question: str | None = None,
        reference_answers: Sequence[str] | None = None,
        relevant: Mapping[str, int] | Collection[str] | None = None,
        dimensions: Mapping[str, str] | None = None,
    ) -> None:
        """Record the end of the turn; called again, it replaces all that was said before.

        Args:
            answer: The answer given.
            question: What the user asked.
            reference_answers: Answers that would be right.
            relevant: All relevant documents: `doc_id` to grade 0 to 4, or only the `doc_id`s.
            dimensions: Strata for reports, such as `{"language": "de"}`.
        """
        texts = self._recorder.texts
        self._recorder._tell("turn_completed", self.conversation_id, self.number, lambda: {
            "answer": answer if texts else None,
            "question": question if texts else None,
            "reference_answers": listed(reference_answers, "reference_answers")
            if texts and reference_answers is not None else None,
            "relevant": relevant_documents(relevant),
            "dimensions": strata(dimensions),
        })  # fmt: skip

    def label(
        self,
        gains: Mapping[str, int | None] | None = None,
        *,
        routing: Mapping[str, str | None] | None = None,
        gate: Mapping[int, bool | None] | None = None,
        labeller: str | None = None,
    ) -> None:
        """Judge this turn, as `Recorder.label` does."""
        self._recorder.label(
            self.conversation_id, self.number, gains, routing=routing, gate=gate, labeller=labeller
        )


class Iteration(_Block):
    """One decision of the agent; `number` is what labels of gates refer to."""

    def __init__(self, turn: Turn, number: int) -> None:
        self._turn, self.number = turn, number
        self._searches = turn._counter(number)

    def gate(self, decision: Literal["search", "skip"], *, score: float | None = None) -> None:
        """Record the decision whether to search at all, taken before the iteration.

        Args:
            decision: What was decided.
            score: How certain the gate was, on any scale.
        """
        self._tell(lambda: {"gate": without_none(decision=decision, score=number(score))})

    def search(
        self,
        query: str | None,
        results: Sequence[Any],
        *,
        route: str | None = None,
        route_scores: Mapping[str, float] | None = None,
        scores: Sequence[float | None] | None = None,
        before: Sequence[Any] | None = None,
        baseline_ranks: Sequence[int | None] | None = None,
        search_id: str | None = None,
    ) -> Searched:
        """Record a search with what the agent got from it.

        Args:
            query: The query.
            results: Hits as the agent sees them, in order, after reranking and truncation: dicts,
                LangChain documents, LlamaIndex nodes, texts, or pairs of these with a score.
            route: Which index or tool was searched, if there is a choice.
            route_scores: The router's score for each route.
            scores: The scores of the results, if they do not hold them.
            before: What the retriever returned before reranking: ranks there become the
                `baseline_rank` of the results.
            baseline_ranks: These ranks, from 1, where they are known. None for a new result.
            search_id: The id of the search, unique in the turn. A search that is recorded again
                under its id replaces the first. By default, the iteration and a number.
        """
        texts = self._turn._recorder.texts
        search = Search(
            self.number,
            next(self._searches),
            search_id,
            query if texts else None,
            lambda: without_none(selected=route, scores=numbers(route_scores)),
        )
        content = functools.partial(search.content, results, scores, before, baseline_ranks, texts)
        return search.ids if self._tell(content) else NOTHING

    def _tell(self, content: Callable[[], JsonObject]) -> bool:
        turn = self._turn
        recorder = turn._recorder
        return recorder._tell("search_iteration", turn.conversation_id, turn.number, lambda: {
            "agent": recorder.agent,
            "release": recorder.release,
            "iteration": self.number,
            **content(),
        })  # fmt: skip


def _after_fork() -> None:
    for recorder in list(_recorders):
        recorder._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
