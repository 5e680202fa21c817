"""How a model is asked for grades: within the budget, once, and again after faults."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stream_metrics.core.judge.budget import NOTHING, Book, Cost, Limits, Spending
from stream_metrics.core.judge.cache import GradeCache
from stream_metrics.core.judge.options import AskOptions, EndpointOptions
from stream_metrics.core.judge.prompt import Texts, prompt_of
from stream_metrics.live.judge.asking import Asker
from stream_metrics.live.judge.endpoint import (
    Endpoint,
    EndpointFailed,
    Failure,
    OpenAiEndpoint,
)
from stream_metrics.live.judge.ledger import Ledger
from stream_metrics.live.judge.slots import Slots
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.judge import LocalEntries
from stream_metrics.live.worker.retry import RetryPolicy
from tests import model_endpoint as model
from tests.canaries import Canaries
from tests.helpers import wait_until
from tests.model_endpoint import ModelEndpoint

TIMEOUT = 0.5
NO_LIMITS = Limits()


@dataclass
class Noted:
    """Implements ``CallCounts`` and ``Reasons``: what was told."""

    outcomes: Counter[str] = field(default_factory=Counter)
    used: Cost = NOTHING
    cache_hits: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def called(self, outcome: str, used: Cost) -> None:
        self.outcomes[outcome] += 1
        self.used = self.used.plus(used)

    def cached(self) -> None:
        self.cache_hits += 1

    def set(self, reason: str, why: str) -> None:
        self.reasons[reason] = why
        self.told.append(why)

    def hold(self, reason: str, why: str) -> None:
        self.set(reason, why)

    def clear(self, reason: str) -> None:
        self.reasons.pop(reason, None)

    def beat(self) -> None: ...


@dataclass
class Stand:
    """An asker over a file, and what it has told."""

    asker: Asker
    ledger: Ledger
    noted: Noted

    @property
    def spending(self) -> Spending:
        """What the ledger says of today."""
        return self.ledger.state().spending

    async def grade(self, text: str, order: int = 1) -> int | str:
        """Ask about a document."""
        return await self.asker.grade(Texts("Who?", "who", "", text), order)


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    """A model."""
    with model.model_endpoint() as found:
        yield found


@asynccontextmanager
async def stand(
    path: Path,
    endpoint: ModelEndpoint,
    limits: Limits = NO_LIMITS,
    *,
    attempts: int = 4,
    concurrency: int = 4,
    writer: str = "w",
    speed: float = 100.0,
    url: str | None = None,
) -> AsyncIterator[Stand]:
    """An asker of this endpoint, for which time passes at this speed while it waits."""
    noted, database = Noted(), Database(path / "judge.sqlite")
    retry = RetryPolicy(noted, lambda: None)
    book = Book(hold_ms=60_000)
    ledger = Ledger(
        LocalEntries(database, book), book, limits, writer, lambda: time.time_ns() // 1_000_000
    )
    await ledger.open()
    client = OpenAiEndpoint(
        EndpointOptions(url or endpoint.url, "secret", "m", 16, TIMEOUT, 0.0, "max_tokens")
    )

    async def pause(seconds: float) -> None:
        await asyncio.sleep(seconds / speed)

    options = AskOptions(endpoint.prices, 16, 1_000, attempts, concurrency)
    cache = GradeCache(b"key", 100)
    asker = Asker(
        client,
        ledger,
        cache,
        options,
        retry,
        noted,
        noted,
        pause,
        lambda: time.monotonic() * speed,
    )
    try:
        yield Stand(asker, ledger, noted)
    finally:
        await client.stop()
        await database.close()


async def test_a_grade_is_asked_for_once(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    """Also by several at the same time; what it used is what the endpoint says."""
    async with stand(tmp_path, endpoint) as at:
        found = await asyncio.gather(*(at.grade("grade-3") for _ in range(8)), at.grade("grade-0"))
        assert found == [3] * 8 + [0]
        assert endpoint.documents == {"grade-3": 1, "grade-0": 1}
        assert (at.spending.total, at.spending.held) == (endpoint.cost, Cost())
        assert at.noted.used == endpoint.cost
    assert endpoint.keys == {"Bearer secret"}
    [body, *_] = endpoint.bodies
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 16)


async def test_turns_that_came_first_are_finished_first(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """When one is finished, only a few later ones have begun."""
    finished: list[int] = []

    async def turn(number: int) -> None:
        for document in range(4):
            await at.grade(f"grade-2 {number} {document}", number)
        begun = {call.document.split()[1] for call in endpoint.calls}
        assert len(begun) <= len(finished) + 5
        finished.append(number)

    async with stand(tmp_path, endpoint, concurrency=2) as at:
        await asyncio.gather(*(turn(number) for number in reversed(range(20))))
    assert sorted(finished) == list(range(20))


async def test_no_place_is_lost_when_who_waits_is_cancelled() -> None:
    """Before a place was given, or just then; the lowest number of the others has it next."""
    slots, had = Slots(1), list[int]()

    async def wait(order: int) -> None:
        async with slots.held(order):
            had.append(order)

    for given in (False, True):
        had.clear()
        async with slots.held(0):
            waiting = {order: asyncio.create_task(wait(order)) for order in (3, 1, 2)}
            await asyncio.sleep(0)
            if not given:
                waiting[1].cancel()
        waiting[1].cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(*waiting.values(), return_exceptions=True)
            assert had == [2, 3]
            async with slots.held(0):
                pass


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (model.limits, "limited"),
        (model.breaks, "server_error"),
        (model.babbles, "no_grade"),
        (model.says_nothing, "no_grade"),
        (model.sends_rubbish, "garbage"),
        (model.sends_a_page, "garbage"),
        (model.sends_other_json, "garbage"),
        (model.cuts, "connection"),
        (model.resets, "connection"),
        (model.never_answers, "timeout"),
        (model.drips, "timeout"),
        (model.unavailable_key, "denied"),
        (model.redirects, "denied"),
        (model.nests, "garbage"),
    ],
)
async def test_after_a_fault_it_asks_again(
    tmp_path: Path, endpoint: ModelEndpoint, fault: model.Fault, outcome: str
) -> None:
    """Each call is in the budget, for all that it may have cost."""
    endpoint.faults.append(fault)
    async with stand(tmp_path, endpoint) as at:
        assert await at.grade("grade-2") == 2
        assert at.noted.outcomes == {outcome: 1, "graded": 1}
        assert at.spending.calls == len(endpoint.calls) == 2
        assert at.spending.total.tokens >= endpoint.cost.tokens
        assert at.spending.total.picos >= endpoint.cost.picos
        assert (at.spending.held, at.noted.reasons) == (Cost(), {})


@pytest.mark.parametrize("fault", [model.babbles, model.refuses])
async def test_a_document_without_a_grade_is_given_up(
    tmp_path: Path, endpoint: ModelEndpoint, fault: model.Fault
) -> None:
    """After so many attempts, or at once if the endpoint does not take it; nothing is guessed."""
    endpoint.faults.extend([fault] * 9)
    async with stand(tmp_path, endpoint, attempts=3) as at:
        assert await at.grade("a document") == "no_grade"
        assert len(endpoint.calls) == (1 if fault is model.refuses else 3)
        assert await at.grade("another") in ("no_grade", *range(5))


async def test_an_outage_costs_no_grade(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    """However long it lasts, since no other document is answered meanwhile."""
    endpoint.faults.extend([model.breaks] * 30)
    async with stand(tmp_path, endpoint, attempts=2, speed=1000.0) as at:
        found = await asyncio.gather(*(at.grade(f"grade-{n % 5} {n}") for n in range(10)))
        assert found == [n % 5 for n in range(10)]
        assert any("server_error (HTTP 500)" in why for why in at.noted.told)


async def test_an_outage_costs_little_of_the_budget(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """Of five minutes, though each call that failed may have been charged."""
    endpoint.misfortunes, endpoint.share = (model.breaks,), 1.0
    async with stand(tmp_path, endpoint, speed=100.0) as at:
        asking = [asyncio.create_task(at.grade(f"grade-1 {n}")) for n in range(50)]
        await asyncio.wait(asking, timeout=3)
        assert len(endpoint.calls) < 40
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_a_document_that_is_to_come_later_is_not_given_up(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """Though others are answered meanwhile: the endpoint limits calls, whichever they are."""

    async def limits_one(request, at, body):  # type: ignore[no-untyped-def]
        one = "grade-4" in model.document_of(body)
        often = endpoint.documents["grade-4"] <= 5
        return await (model.limits if one and often else model.answers)(request, at, body)

    endpoint.misfortunes, endpoint.share = (limits_one,), 1.0
    async with stand(tmp_path, endpoint, attempts=2) as at:
        limited = asyncio.create_task(at.grade("grade-4"))
        number = 0
        while not limited.done():
            assert isinstance(await at.grade(f"grade-1 {number}"), int)
            number += 1
        assert await limited == 4


async def test_a_document_that_breaks_the_endpoint_is_given_up(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """If others are answered meanwhile."""

    async def breaks_on_poison(request, at, body):  # type: ignore[no-untyped-def]
        poison = "poison" in model.document_of(body)
        return await (model.breaks if poison else model.answers)(request, at, body)

    endpoint.misfortunes, endpoint.share = (breaks_on_poison,), 1.0
    async with stand(tmp_path, endpoint, attempts=3) as at:
        poison = asyncio.create_task(at.grade("poison"))
        number = 0
        while not poison.done():
            assert isinstance(await at.grade(f"grade-1 {number}"), int)
            number += 1
        assert await poison == "no_grade"


async def test_nothing_is_called_beyond_the_tokens_of_a_day(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """By the endpoint's own count; after that, documents have no grade, and the day has ended."""
    limits = Limits(tokens_per_day=20_000)
    async with stand(tmp_path, endpoint, limits) as at:
        found = await asyncio.gather(*(at.grade(f"grade-1 {n}") for n in range(100)))
        assert set(found) == {1, "spent"}
        assert endpoint.cost.tokens <= 20_000
        assert endpoint.cost.tokens > 15_000, "what was reserved and not used comes back"
        assert at.spending.ended_ms is not None
    async with stand(tmp_path, endpoint, limits, writer="after a restart") as at:
        before = len(endpoint.calls)
        assert await at.grade("grade-1 new") == "spent"
        assert len(endpoint.calls) == before
        assert at.ledger.state().incomplete_until_ms is not None


async def test_when_the_budget_is_spent_no_known_grade_is_given(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """Or else turns with often returned documents would be in the sample, and others not."""
    async with stand(tmp_path, endpoint, Limits(tokens_per_day=4_000)) as at:
        assert await at.grade("grade-1 often") == 1
        assert await at.grade("grade-1 often") == 1
        await asyncio.gather(*(at.grade(f"grade-1 {n}") for n in range(20)))
        assert await at.grade("grade-1 often") == "spent"


async def test_money_ends_a_day_as_well(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    """By prices of prompts and answers."""
    limits = Limits(picos_per_day=endpoint.prices.cost(10_000, 0).picos)
    async with stand(tmp_path, endpoint, limits) as at:
        found = await asyncio.gather(*(at.grade(f"grade-1 {n}") for n in range(40)))
        assert "spent" in found
        assert 0 < endpoint.cost.picos <= (limits.picos_per_day or 0)


async def test_without_a_word_about_usage_all_that_was_reserved_is_spent(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """Since nobody knows better."""
    endpoint.says_usage = False
    async with stand(tmp_path, endpoint) as at:
        assert await at.grade("grade-1") == 1
        assert at.spending.total.tokens > endpoint.cost.tokens
        assert at.spending.held == Cost()


async def test_calls_that_use_more_than_was_reserved_do_not_exceed_the_day(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """For what the first ones use beyond it is reserved for all others."""
    endpoint.misfortunes, endpoint.share = (model.thinks,), 1.0
    async with stand(tmp_path, endpoint, Limits(tokens_per_day=40_000)) as at:
        found = await asyncio.gather(*(at.grade(f"grade-1 {n}") for n in range(40)))
        assert {*found} == {1, "spent"}
        assert 20_000 < at.spending.total.tokens <= 40_000


async def test_an_answer_without_an_end_is_not_read(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """Beyond what answers may have; it is rubbish, and asked for again."""
    endpoint.faults.append(model.floods)
    async with stand(tmp_path, endpoint) as at:
        assert await at.grade("grade-2") == 2
        assert at.noted.outcomes == {"garbage": 1, "graded": 1}
        assert endpoint.flooded < 50


async def test_impossible_usage_is_taken_for_none(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    """It would end the day's sample."""
    endpoint.faults.append(model.overcharges)
    async with stand(tmp_path, endpoint) as at:
        assert [await at.grade("grade-1"), await at.grade("grade-2")] == [1, 2]
        assert at.spending.total.tokens < 10**6


async def test_an_interrupted_call_stays_in_the_budget(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """As spent, not as something that may come back."""
    endpoint.faults.append(model.never_answers)
    async with stand(tmp_path, endpoint) as at:
        asking = asyncio.create_task(at.grade("grade-1"))
        while not endpoint.calls:
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await at.grade("grade-2") == 2
        assert at.spending.total.tokens > endpoint.cost.tokens
        assert (at.spending.calls, at.spending.held) == (2, Cost())


async def test_retry_after_holds_all_calls(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    """Not just the one that was told."""
    endpoint.faults.append(model.limits)
    async with stand(tmp_path, endpoint, concurrency=1, speed=1.0) as at:
        found = await asyncio.gather(*(at.grade(f"grade-1 {n}") for n in range(4)))
        assert found == [1] * 4
        first, *others = sorted(call.at for call in endpoint.calls)
        assert min(others) - first >= 0.95


async def test_nothing_that_is_sent_is_told(
    tmp_path: Path,
    endpoint: ModelEndpoint,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not in a log, a reason or the file, though the endpoint repeats it in its errors."""
    canaries = Canaries()
    caplog.set_level("DEBUG")
    endpoint.faults.extend([model.breaks, model.limits, model.sends_rubbish, model.refuses])
    async with stand(tmp_path, endpoint) as at:
        for number in range(5):
            await at.grade(canaries.text(f"{number}.content", "grade-1 {}"))
        told = " ".join(at.noted.told) + caplog.text + "".join(capfd.readouterr())
    stored = b"".join(map(Path.read_bytes, files_of(tmp_path)))
    assert canaries.found(told.encode() + stored) == set()
    assert any(canaries.found(str(body).encode()) for body in endpoint.bodies), "they were sent"


def files_of(folder: Path) -> list[Path]:
    """The files in a folder."""
    return list(folder.iterdir())


async def test_an_endpoint_that_is_not_there_has_done_no_work() -> None:
    """So nothing of the budget is used but the call."""
    client: Endpoint = OpenAiEndpoint(
        EndpointOptions("http://127.0.0.1:9/v1", "", "m", 16, TIMEOUT, 0.0, "max_tokens")
    )
    with pytest.raises(EndpointFailed) as met:
        await client.ask(prompt_of(Texts("Who?", "", "", "text"), 100))
    kind: Failure = met.value.kind
    assert (kind, met.value.charged) == ("connection", False)
    assert str(met.value) == "connection (Connection refused)"


async def test_an_endpoint_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    """With its address, the system's reason and what to check."""
    with model.model_endpoint() as gone:
        address = gone.url
    url = address.replace("//", "//ada:pass@") + "?token=1"
    async with stand(tmp_path, gone, url=url, speed=0.01) as at:
        asking = asyncio.create_task(at.grade("a document"))
        await wait_until(lambda: bool(at.noted.told), 10, "nothing is told")
        asking.cancel()
    [why] = at.noted.told
    assert f"endpoint, {address}, gives no grades: connection (Connection refused)" in why
    assert "check `judge.url`" in why
