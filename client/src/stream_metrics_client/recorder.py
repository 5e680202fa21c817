"""The recorders: turns, iterations, searches and labels as an agent reports them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
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
from stream_metrics_client.documents import JsonObject, as_float, as_int, as_list, text_id
from stream_metrics_client.events import (
    NOT_RECORDED,
    RecordedSearch,
    Search,
    as_floats,
    encode,
    relevant_documents,
    turn_dimensions,
    without_none,
)
from stream_metrics_client.records import Record
from stream_metrics_client.sender import Sender
from stream_metrics_client.sinks import Target, make_opener
from stream_metrics_client.validation import InvalidEvent, refusal

_MAX_CLOCK_CORRECTION_US: Final = 60_000_000
"""If the clock is set back by less, later events keep later times."""

_logger = logging.getLogger("stream_metrics_client")

_recorders: weakref.WeakSet[_Recorder] = weakref.WeakSet()


class _Recorder:
    """The parts that both recorders share."""

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
        token: str | None = None,
        limits: Limits | None = None,
        clock: Callable[[], int] = time.time_ns,
        turn_numbers: Callable[[str], int] | None = None,
    ) -> None:
        """Prepare to record; nothing is connected before the first event.

        Args:
            sink: `kafka://host:port[,host:port][/topic[,topic of labels]]`, the `http://` or
                `https://` address of `stream-metrics serve`, the path or `file://` URL of a file to
                which one JSON object per line is appended, or a function that is called with each
                event in a thread of the recorder.
            agent: The agent's name, a label of its metrics.
            release: The agent's release.
            strict: Raise `InvalidEvent` for an event that the worker would refuse, and any other
                error of a call, such as `relevant` documents of a turn whose results have no ids to
                compare. For tests and CI; otherwise no call raises.
            texts: Whether to send queries, titles, snippets, contents, questions and answers.
            max_events: The most events that may be queued or in delivery; further ones are dropped.
            max_bytes: The same limit in bytes of JSON.
            kafka_options: Options of the Kafka client under its own names, such as those for TLS.
            token: What an `http://` or `https://` address asks for (`Authorization: Bearer`).
            limits: The worker's limits for `strict`, if they are not the defaults.
            clock: Returns the time in nanoseconds since 1970, as `time.time_ns` does.
            turn_numbers: Returns the number of a conversation's next turn. By default the time in
                microseconds, and at least one more than the last.

        Raises:
            ValueError: The sink's URL or the token is invalid.
            FileNotFoundError: The folder of the sink's file does not exist.
            ImportError: No Kafka client is installed.
        """
        self.agent, self.release = agent, release
        self.strict, self.texts = strict, texts
        self._limits = limits or DEFAULT_LIMITS
        self._clock, self._turn_numbers = clock, turn_numbers
        open_sink = make_opener(sink, kafka_options, token)
        name = "a function" if callable(sink) else os.fspath(sink)
        self._warned = False
        self._sender = Sender(open_sink, max_events=max_events, max_bytes=max_bytes, name=name)
        self._reset()
        _recorders.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a signal handler may record while it is held
        self._last_turn = self._last_us = 0
        self._process = secrets.token_hex(8)
        self._events = itertools.count(1)

    def _warn_of_pages(self) -> None:
        """Warn once that ids name pages."""
        if not self._warned:
            self._warned = True
            with contextlib.suppress(Exception):
                _logger.warning(
                    "Results of a search of %s have one id and different texts: ids name pages. Id "
                    "and text identify them where a search shows it. Pass the ids of chunks.",
                    self.agent or "an agent without a name",
                )

    @property
    def sent(self) -> int:
        """The number of events that the sink has accepted."""
        return self._sender.sent

    @property
    def failed(self) -> int:
        """The number of events that could not be built, or that the sink rejected permanently."""
        return self._sender.failed

    @property
    def refused(self) -> dict[str, int]:
        """How many of the failed events an HTTP address refused, by its reason."""
        return dict(self._sender.refused)

    @property
    def dropped(self) -> int:
        """The number of events for which there was no room, or that were still queued at the
        end."""
        return self._sender.dropped

    @property
    def pending(self) -> int:
        """The number of events that are queued or in delivery."""
        return self._sender.pending

    @property
    def last_error(self) -> str | None:
        """Why events are being retried; if none are, why one failed or was dropped last; None if
        neither has happened."""
        return self._sender.last_error

    def turn(self, conversation_id: str, *, number: int | None = None) -> Turn:
        """Begin a turn: one question of the user, and what the agent does to answer it.

        Args:
            conversation_id: The conversation; the key of its records.
            number: The turn's number, from 1, if the agent counts turns itself. A turn that is
                recorded again under its number replaces the earlier record.
        """
        turn = self._next_turn_number(conversation_id) if number is None else number
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
        source: str | None = None,
        sample: str | None = None,
    ) -> None:
        """Label a turn, before or after its searches; None withdraws a label.

        Args:
            conversation_id: The conversation.
            turn: The turn's number, as in `Turn.number`.
            gains: The gain of each result, from 0 (useless) to 4, by `result_id`.
            routing: The best route of each search, by `search_id`.
            gate: Whether a search was needed, by iteration.
            labeller: Who labelled the turn.
            source: `human` or `model`. By default the labels are a person's, unless the worker
                knows `labeller` as a model. A label of a model never replaces a person's.
            sample: `random` if the turn was drawn at random to be labelled, also if there is
                nothing to label in it; by default `chosen`.
        """
        self._record("relevance_labels", conversation_id, turn, lambda: {
            "labels": [{"result_id": text_id(one), "gain": as_int(gain)}
                       for one, gain in (gains or {}).items()],
            "routing": [{"search_id": text_id(one), "optimal": optimal}
                        for one, optimal in (routing or {}).items()],
            "gate": [{"iteration": as_int(one), "search_needed": needed}
                     for one, needed in (gate or {}).items()],
            "labeller": labeller,
            "source": source,
            "sample": sample,
        })  # fmt: skip

    def forget(self, conversation_id: str) -> None:
        """Erase everything recorded of a conversation so far."""
        self._record("forget", conversation_id, None, dict)

    # --- making events ------------------------------------------------------------------------

    def _next_turn_number(self, conversation_id: str) -> int:
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

    def _next_stamp(self) -> tuple[int, str]:
        """The time and id of a new event; both increase from event to event."""
        now_us = self._now_us()
        with self._lock:
            if now_us < self._last_us <= now_us + _MAX_CLOCK_CORRECTION_US:
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

    def _record(
        self,
        kind: str,
        conversation_id: str,
        turn: int | None,
        content: Callable[[], JsonObject],
    ) -> bool:
        """Build an event and queue it; whether that succeeded."""
        try:
            (now_us, event_id), conversation_id = self._next_stamp(), text_id(conversation_id)
            event = {
                "type": kind,
                "event_id": event_id,
                "occurred_at": now_us / 1_000_000,
                "conversation_id": conversation_id,
                "turn": as_int(turn),
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
    """Records what an agent searches and finds, without blocking.

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
        """Wait until all events so far have been sent or have failed; False on a timeout, or if
        some were dropped because the recorder was closed.

        Args:
            timeout: The maximum time to wait, in seconds; None for no limit.
        """
        return self._sender.flush(timeout)

    def close(self, timeout: float | None = 10.0) -> bool:
        """Send queued events and accept no more; False if some had to be dropped.

        Args:
            timeout: The seconds after which unsent events are dropped; None for never.
        """
        return self._sender.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRecorder(_Recorder):
    """A `Recorder` for coroutines, whose `flush` and `close` do not block the event loop.

    Recording itself never waits, so the methods of turns and iterations are the same and are not
    awaited. Turns and iterations support both `with` and `async with`.
    """

    async def flush(self, timeout: float | None = 10.0) -> bool:
        """Wait until all events so far have been sent or have failed; False on a timeout, or if
        some were dropped because the recorder was closed.

        Args:
            timeout: The maximum time to wait, in seconds; None for no limit.
        """
        return await self._sender.flush_async(timeout)

    async def close(self, timeout: float | None = 10.0) -> bool:
        """Send queued events and accept no more; False if some had to be dropped.

        Args:
            timeout: The seconds after which unsent events are dropped; None for never.
        """
        return await self._sender.close_async(timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _NoOpContext:
    """A context manager, sync and async, that does nothing at its end and suppresses no
    exception."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing: events are already queued."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing: events are already queued."""


class Turn(_NoOpContext):
    """One answer of the agent; labels refer to its `conversation_id` and `number`."""

    def __init__(self, recorder: _Recorder, conversation_id: str, number: int) -> None:
        self._recorder = recorder
        self.conversation_id, self.number = conversation_id, number
        self._iterations = itertools.count(1)
        self._searches: dict[int, Iterator[int]] = {}
        self._named: bool | None = None  # whether a result has an id of its own

    def iteration(self, *, number: int | None = None) -> Iteration:
        """Begin an iteration: one decision of the agent, and the searches that follow from it.

        Args:
            number: The iteration's number, from 1, if the agent counts them itself. Iterations with
                the same number are one.
        """
        if number is None:
            number = next(free for free in self._iterations if free not in self._searches)
        return Iteration(self, number)

    def _counter(self, iteration: Any) -> Iterator[int]:
        """The counter of the searches of an iteration, also if the iteration is begun again."""
        try:
            number = operator.index(iteration)
        except Exception:  # not a number: its events will be refused
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
        """Record the end of the turn; a later call replaces the earlier record.

        Args:
            answer: The answer given.
            question: What the user asked.
            reference_answers: Correct answers.
            relevant: All relevant documents: `doc_id` to grade 0 to 4, or only the `doc_id`s. They
                are compared with the `doc_id`s of results.
            dimensions: Strata for reports, such as `{"language": "de"}`.
        """
        texts = self._recorder.texts
        self._recorder._record("turn_completed", self.conversation_id, self.number, lambda: {
            "answer": answer if texts else None,
            "question": question if texts else None,
            "reference_answers": as_list(reference_answers, "reference_answers")
            if texts and reference_answers is not None else None,
            "relevant": self._comparable(relevant_documents(relevant)),
            "dimensions": turn_dimensions(dimensions),
        })  # fmt: skip

    def _comparable(self, relevant: Any) -> Any:
        """The relevant documents; in strict mode, only if a result has an id to compare."""
        if self._recorder.strict and relevant and self._named is False:
            raise ValueError(
                "`relevant` names documents, but no result of the turn has an id of its own: pass "
                "results with a `doc_id`"
            )
        return relevant

    def label(
        self,
        gains: Mapping[str, int | None] | None = None,
        *,
        routing: Mapping[str, str | None] | None = None,
        gate: Mapping[int, bool | None] | None = None,
        labeller: str | None = None,
        source: str | None = None,
        sample: str | None = None,
    ) -> None:
        """Label this turn, as `Recorder.label` does."""
        self._recorder.label(
            self.conversation_id,
            self.number,
            gains,
            routing=routing,
            gate=gate,
            labeller=labeller,
            source=source,
            sample=sample,
        )


class Iteration(_NoOpContext):
    """One decision of the agent; gate labels refer to its `number`."""

    def __init__(self, turn: Turn, number: int) -> None:
        self._turn, self.number = turn, number
        self._searches = turn._counter(number)

    def gate(self, decision: Literal["search", "skip"], *, score: float | None = None) -> None:
        """Record whether the agent decided to search, before the iteration's searches.

        Args:
            decision: The decision.
            score: The gate's confidence, on any scale.
        """
        self._record(lambda: {"gate": without_none(decision=decision, score=as_float(score))})

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
    ) -> RecordedSearch:
        """Record a search with the results that the agent received.

        Args:
            query: The query.
            results: The results as the agent sees them, in order, after reranking and truncation:
                dicts, LangChain documents, LlamaIndex nodes, texts, or pairs of these with a score.
            route: The index or tool that was searched, if there is a choice.
            route_scores: The router's score for each route.
            scores: The scores of the results, if the results do not contain them.
            before: What the retriever returned before reranking; ranks there become the
                `baseline_rank` of the results.
            baseline_ranks: These ranks, from 1, if they are known; None for a new result.
            search_id: The id of the search, unique in the turn. A search that is recorded again
                under its id replaces the first. By default, the iteration and a number.
        """
        texts = self._turn._recorder.texts
        search = Search(
            self.number,
            next(self._searches),
            search_id,
            query if texts else None,
            lambda: without_none(selected=route, scores=as_floats(route_scores)),
        )
        content = functools.partial(search.content, results, scores, before, baseline_ranks, texts)
        if not self._record(content):
            return NOT_RECORDED
        if search.named is not None:
            self._turn._named = self._turn._named or search.named
        if search.of_pages:
            self._turn._recorder._warn_of_pages()
        return search.ids

    def _record(self, content: Callable[[], JsonObject]) -> bool:
        turn = self._turn
        recorder = turn._recorder
        return recorder._record("search_iteration", turn.conversation_id, turn.number, lambda: {
            "agent": recorder.agent,
            "release": recorder.release,
            "iteration": self.number,
            **content(),
        })  # fmt: skip


def _after_fork() -> None:
    for recorder in list(_recorders):
        recorder._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
