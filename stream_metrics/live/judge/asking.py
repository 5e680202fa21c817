"""Asks for the grade of a document: once, within the budget, again after failures.

Each attempt is reserved before it is made. How long to wait after a failure is drawn at random, so
that judges do not come back together. An endpoint that fails for a long time costs no grade: a
failure counts against a document only if others were answered meanwhile. It costs little of the
budget, too: while nothing is answered, one call is made at a time, and the next one after a pause.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Final, Literal, Protocol

import structlog

from stream_metrics.core.judge.budget import NOTHING, Cost, Prices
from stream_metrics.core.judge.cache import GradeCache
from stream_metrics.core.judge.options import AskOptions
from stream_metrics.core.judge.prompt import Prompt, Texts, parse_grade, prompt_of
from stream_metrics.live.judge.endpoint import Answer, Endpoint, EndpointFailed, Failure
from stream_metrics.live.judge.ledger import Hold, Ledger
from stream_metrics.live.judge.slots import Slots
from stream_metrics.live.worker.retry import Reasons, Retry

REASON: Final = "endpoint"
"""The name of a failing endpoint on ``/readyz``."""
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 60.0
FAILING_SECONDS: Final = 5.0
"""For so long no call must have been answered until the endpoint is said to fail."""
LIMITED: Final = 20
"""A document is to come later (429) so many times until that counts as an attempt: it tells of the
endpoint, unless it never ends."""
ROOM_SECONDS: Final = 1.0
"""How long to wait for room in the budget of a minute, or for what is in flight."""

Ungraded = Literal["no_grade", "spent"]
"""Why a document has no grade: no attempt gave one, or the budget of the day is spent."""
Outcome = Literal["graded", "no_grade"] | Failure

log = structlog.get_logger(__name__)


class CallCounts(Protocol):
    """Receives operational counts; every method is cheap and never raises."""

    def called(self, outcome: Outcome, used: Cost) -> None: ...
    def cached(self) -> None: ...


class Asker:
    """Asks an endpoint for grades; ``pause`` waits so many seconds, or until the process stops."""

    def __init__(
        self,
        endpoint: Endpoint,
        ledger: Ledger,
        cache: GradeCache,
        options: AskOptions,
        retry: Retry,
        reasons: Reasons,
        counts: CallCounts,
        pause: Callable[[float], Awaitable[None]],
        monotonic: Callable[[], float],
    ) -> None:
        self._endpoint = endpoint
        self._ledger = ledger
        self._cache = cache
        self._options = options
        self._retry = retry
        self._reasons = reasons
        self._counts = counts
        self._pause = pause
        self._monotonic = monotonic
        self._slots = Slots(options.concurrency)
        self._asking: dict[Prompt, asyncio.Event] = {}
        self._answered = 0  # calls that the endpoint has answered
        self._beyond = (0, 0)  # tokens of prompts and answers beyond what was reserved, at most
        self._not_before = -float("inf")  # when the endpoint may be asked again
        self._silent_since: float | None = None  # since when no call was answered
        self._failures = 0  # calls since then
        self._alone = asyncio.Lock()  # for the only call while the endpoint fails
        self._said = False  # that it fails

    async def grade(self, texts: Texts, order: int) -> int | Ungraded:
        """The grade of a document; raises ``Stopped``.

        Of those that wait for a call, the one with the lowest ``order`` is asked about first: else
        many turns would be half graded for long, and a crash would lose what was asked of them.
        When the budget is spent there is none, also where it is known from equal texts: turns with
        often returned documents alone would be no random sample.
        """
        prompt = prompt_of(texts, self._options.text_characters)
        while True:
            if self._ledger.is_spent:
                return "spent"
            grade = self._cache.get(prompt)
            if grade is not None:
                self._counts.cached()
                return grade
            if (other := self._asking.get(prompt)) is None:
                break
            await other.wait()  # somebody asks the same
        asking = self._asking[prompt] = asyncio.Event()
        try:
            found = await self._ask(prompt, order)
        finally:
            del self._asking[prompt]
            asking.set()
        if isinstance(found, int):
            self._cache.put(prompt, found)
        return found

    async def _ask(self, prompt: Prompt, order: int) -> int | Ungraded:
        """Ask until there is a grade, or no hope of one."""
        failures, attempts, limited, answered = 0, 0, 0, self._answered
        while True:
            async with self._slots.held(order):
                found = await self._call(prompt)
            if isinstance(found, int):
                return found
            if found == "spent":
                return "spent"
            failures += 1
            limited += found == "limited"
            # Before the first answer it is not known whether the endpoint or the document is ill.
            if found == "no_grade" or self._answered != answered:
                answered = self._answered
                attempts += found != "limited" or limited % LIMITED == 0
            if found == "refused" or attempts >= self._options.attempts:
                return "no_grade"
            await self._pause(_backoff_seconds(failures))

    async def _call(self, prompt: Prompt) -> int | str:
        """Make a call once the budget and the endpoint allow it; see ``_attempt``."""
        while True:
            async with self._alone if self._fails else nullcontext():
                while (left := self._not_before - self._monotonic()) > 0:
                    await self._pause(left)
                found = await self._attempt(prompt)
            if found not in ("minute", "held"):
                return found
            await self._pause(ROOM_SECONDS)

    async def _attempt(self, prompt: Prompt) -> int | str:
        """One call: its grade, or why there is none."""
        options = self._options
        prompts, answers = self._beyond
        most = (prompt.most_tokens + prompts, options.max_tokens + answers)
        wanted = options.prices.cost(*most)
        hold = await self._retry(lambda: self._ledger.reserve(wanted))
        if not isinstance(hold, Hold):
            return hold
        try:
            answer = await self._endpoint.ask(prompt)
        except EndpointFailed as error:
            await self._ledger.settle(hold, None if error.charged else NOTHING)
            self._counts.called(error.kind, wanted if error.charged else NOTHING)
            self._failed(error)
            return error.kind
        except BaseException:
            self._ledger.abandon(hold)
            raise
        used = _used(answer, options.prices) or wanted
        await self._ledger.settle(hold, used)
        self._note_beyond(prompt, answer)
        grade = parse_grade(answer.text)
        self._counts.called("no_grade" if grade is None else "graded", used)
        self._succeeded()
        return "no_grade" if grade is None else grade

    def _note_beyond(self, prompt: Prompt, answer: Answer) -> None:
        """From now on, reserve as many tokens more as a call has used that used too many."""
        beyond = (
            (answer.prompt_tokens or 0) - prompt.most_tokens,
            (answer.answer_tokens or 0) - self._options.max_tokens,
        )
        if beyond[0] > self._beyond[0] or beyond[1] > self._beyond[1]:
            self._beyond = (max(beyond[0], self._beyond[0]), max(beyond[1], self._beyond[1]))
            log.warning(
                "a call used more tokens than were reserved",
                why="the endpoint adds to prompts or does not keep `judge.max_tokens`; from now on "
                "more is reserved",
                more_of_prompt=self._beyond[0],
                more_of_answer=self._beyond[1],
            )

    @property
    def _fails(self) -> bool:
        """Whether as many calls have failed as are made at a time, and none was answered since."""
        return self._failures >= self._options.concurrency

    def _failed(self, error: EndpointFailed) -> None:
        if error.kind == "refused":
            return
        self._failures += 1
        now, wait = self._monotonic(), error.retry_after_seconds or 0.0
        why = f"the model's endpoint, {self._endpoint.address}, gives no grades: {error}"
        is_misset = error.kind == "denied" or (error.kind == "connection" and not self._answered)
        if error.kind == "denied":
            wait = max(wait, DENIED_SECONDS)
        if is_misset:
            why += "; check `judge.url`, `judge.key_file` and `judge.model`"
        if self._fails:
            wait = max(wait, _backoff_seconds(self._failures))
        self._not_before = max(self._not_before, now + wait)
        if self._silent_since is None:
            self._silent_since = now
        if is_misset or now - self._silent_since >= FAILING_SECONDS:
            if not self._said:
                log.warning("the endpoint fails", why=why, wait_seconds=round(wait, 1))
            self._said = True
            self._reasons.set(REASON, why)

    def _succeeded(self) -> None:
        self._answered += 1
        self._failures = 0
        self._silent_since = None
        if self._said:
            log.info("the endpoint answers again")
            self._said = False
            self._reasons.clear(REASON)


def _backoff_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(failures - 1, 10))
    return random.uniform(0, longest)  # noqa: S311 - jitter, no secret


def _used(answer: Answer, prices: Prices) -> Cost | None:
    """What a call has used; None if the endpoint does not say it all."""
    if answer.prompt_tokens is None or answer.answer_tokens is None:
        return None
    return prices.cost(answer.prompt_tokens, answer.answer_tokens)
