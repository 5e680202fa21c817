"""A judge within ``stream-metrics serve``."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client import generate_latest

from stream_metrics.cli.judging import check_judge
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.serving import ServeProcess, listening
from stream_metrics.cli.settings import Settings
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.live.judge import asking, judge
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.folder import prepare_database
from tests.canaries import Canaries
from tests.helpers import wait_until
from tests.judged import drawn, lines, turn_events, wanted, written
from tests.model_endpoint import (
    FAULTS,
    ModelEndpoint,
    answers,
    model_endpoint,
    never_answers,
    refuses,
)
from tests.serving import everything, serving
from tests.unit.test_serve import post

pytestmark = pytest.mark.slow

KEY = "a secret of the tests"


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    """A model."""
    with model_endpoint() as found:
        yield found


def settings(folder: Path, endpoint: ModelEndpoint, **judge: Any) -> Settings:
    """Settings of a process that judges everything soon."""
    chosen: dict[str, Any] = {
        "url": endpoint.url,
        "key": "secret",
        "model": "m",
        "rate": 1.0,
        "start": "earliest",
        "settle": "1s",
        "calls_per_minute": 100_000,
        "timeout_seconds": 0.5,
        "input_price": 2.0,
        "output_price": 8.0,
        **judge,
    }
    return Settings.model_validate(
        {
            "serve": {"data": folder, "otlp_port": 0},
            "web": {"port": 0},
            "state": {"digest_key": KEY},
            "judge": chosen,
        }
    )


@asynccontextmanager
async def judging(chosen: Settings) -> AsyncIterator[tuple[ServeProcess, str]]:
    """A process in this one, and the address for events. Its log goes where one looks now,
    whatever commands have run before."""
    configure_logs(chosen.log)
    database = Database(prepare_database(chosen.serve.data))
    process = ServeProcess(chosen, database)
    try:
        async with listening(process, chosen) as (_, receiver):
            work = asyncio.create_task(process.run())
            yield process, receiver
            process.stop()
            await work
    finally:
        await database.close()


async def settled(process: ServeProcess, number: int, outcome: str = "labelled") -> None:
    """Wait until so many turns have come to an outcome."""
    await wait_until(
        lambda: value(process, "turns_total", outcome=outcome) >= number, 60, "turns are not judged"
    )


def value(process: ServeProcess, name: str, **labels: str) -> float:
    """A sample of the judge's metrics."""
    found = process.registry.get_sample_value(f"streammetrics_judge_{name}", labels)
    assert found is not None, name
    return found


def conversation(number: int, turns: int = 1, **more: Any) -> list[dict[str, Any]]:
    """The events of a conversation of now."""
    chance, now = Random(number), time.time()
    found: list[dict[str, Any]] = []
    for turn in range(1, turns + 1):
        found += turn_events(f"c{number}", turn, now, chance, **more)
    return found


async def test_each_document_gets_its_label(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    """Once, and not again after a restart."""
    sent = [event for number in range(6) for event in conversation(number, turns=2)]
    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        await post(receiver, lines(sent))
        await settled(process, 12)
        records = await everything(process.records)
    asked = len(endpoint.calls)
    labels = written(records)
    assert labels == wanted(records, Sampler(KEY.encode()), 1.0, 8_000)
    assert max(endpoint.documents.values()) == 1
    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        await post(receiver, lines(conversation(99)))
        await settled(process, 1)
        later = [one for one in written(await everything(process.records)) if one[0] == "c99"]
        assert len(endpoint.calls) == asked + len(later)
        assert value(process, "budget_used", budget="tokens") == endpoint.cost.tokens


async def test_a_later_iteration_is_graded_for_its_new_documents(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """When the first one has its labels already."""
    first, second, _ = conversation(1)
    again = first["searches"][0]["results"][0] | {"result_id": "again"}
    fresh = {"result_id": "new", "doc_id": "new", "content": "grade-4 new"}
    second["searches"][0]["results"] = [again, fresh]
    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        await post(receiver, lines([first]))
        await settled(process, 1)
        before = len(endpoint.calls)
        await post(receiver, lines([second]))
        await settled(process, 2)
        assert len(endpoint.calls) == before + 1
        assert written(await everything(process.records))["c1", 1, "new"] == 4


async def test_half_of_the_conversations_are_in_a_sample_of_half(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """Each as a whole, by a hash with the digest key."""
    sent = [event for number in range(30) for event in conversation(number, iterations=1)]
    sampler = Sampler(KEY.encode())
    drawn = {f"c{n}" for n in range(30) if sampler.includes(f"c{n}", 0.5)}
    async with judging(settings(tmp_path, endpoint, rate=0.5)) as (process, receiver):
        await post(receiver, lines(sent))
        await settled(process, len(drawn))
        records = await everything(process.records)
    assert {name for name, _, _ in written(records)} == drawn
    assert 8 < len(drawn) < 22


async def test_another_rate_counts_from_midnight(
    tmp_path: Path, endpoint: ModelEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the first process of a day has begun with holds until then, and the log says so."""
    async with judging(settings(tmp_path, endpoint, rate=1.0)) as (process, receiver):
        await post(receiver, lines(conversation(1)))
        await settled(process, 1)
    async with judging(settings(tmp_path, endpoint, rate=0.0, people_rate=0.0)) as (process, to):
        await post(to, lines(conversation(2)))
        await settled(process, 1)
        assert value(process, "sample_rate") == 1.0
    said = capfd.readouterr().err
    assert "today's sample was begun with another rate, which holds until midnight" in said


async def test_a_spent_budget_ends_the_sample_aloud(
    tmp_path: Path, endpoint: ModelEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the log, in a metric, and until when estimates do without; also after a restart."""
    chosen = settings(tmp_path, endpoint, tokens_per_day=9_000)
    async with judging(chosen) as (process, receiver):
        sent = [event for number in range(12) for event in conversation(number)]
        await post(receiver, lines(sent))
        await settled(process, 1, "budget")
        labelled = value(process, "turns_total", outcome="labelled")
        await wait_until(
            lambda: value(process, "turns_total", outcome="budget") == 12 - labelled,
            30,
            "some wait",
        )
        assert endpoint.cost.tokens <= 9_000
        names = {(name, turn) for name, turn, _ in written(await everything(process.records))}
        assert len(names) == labelled
        await all_drawn(process, 12)
    async with judging(chosen) as (process, receiver):
        calls = len(endpoint.calls)
        await post(receiver, lines(conversation(77)))
        await settled(process, 1, "budget")
        assert len(endpoint.calls) == calls
        name = "streammetrics_judge_incomplete_until_timestamp_seconds"
        until = await wait_until(lambda: process.registry.get_sample_value(name), 30, "not told")
        assert until is not None
        assert 0 < until - time.time() <= 86_400
        assert until % 86_400 == 0
    assert "the budget of the day is spent" in capfd.readouterr().err


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"settle": "2s", "turn_max": "3s"}, id="they are forgotten soon"),
        pytest.param({"turn_max": "1h", "open_bytes": 1 << 20}, id="others need the room"),
    ],
)
async def test_turns_without_labels_are_drawn_before_they_are_dropped(
    tmp_path: Path, endpoint: ModelEndpoint, more: dict[str, Any]
) -> None:
    """However short they are kept: else a spent budget would look like a whole sample."""
    chosen = settings(tmp_path, endpoint, tokens_per_day=1, **more)
    async with judging(chosen) as (process, receiver):
        for number in range(12):
            events = conversation(number)
            events[0]["searches"][0]["results"][0]["snippet"] = "long " * 60_000
            await post(receiver, lines(events))
        await settled(process, 12, "budget")
        await all_drawn(process, 12)


async def all_drawn(process: ServeProcess, turns: int) -> None:
    """Wait until the labels say of so many turns that they are in the sample."""

    async def are_drawn() -> bool:
        return len(drawn(await everything(process.records))) == turns

    await wait_until(are_drawn, 30, "turns without labels are not told")


async def test_faults_cost_neither_labels_nor_budget(
    tmp_path: Path, endpoint: ModelEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of all calls meets one; pauses are short, so that a minute is enough for many."""
    monkeypatch.setattr(asking, "LONGEST_SECONDS", 0.5)
    endpoint.misfortunes, endpoint.share = tuple(set(FAULTS) - {never_answers}), 0.33
    sent = [event for number in range(8) for event in conversation(number)]
    chosen = settings(tmp_path, endpoint, attempts=20, concurrency=32)
    async with judging(chosen) as (process, receiver):
        await post(receiver, lines(sent))
        await settled(process, 8)
        records = await everything(process.records)
        assert written(records) == wanted(records, Sampler(KEY.encode()), 1.0, 8_000)
        assert value(process, "budget_used", budget="tokens") >= endpoint.cost.tokens
        assert value(process, "budget_used", budget="money") * 10**12 >= endpoint.cost.picos


async def test_a_turn_with_an_ungraded_document_has_no_labels(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """Turns are labelled whole, and what could not be graded is counted."""

    async def refuses_one(request, model, body):  # type: ignore[no-untyped-def]
        is_bad = "unspeakable" in str(body)
        return await (refuses if is_bad else answers)(request, model, body)

    endpoint.misfortunes, endpoint.share = (refuses_one,), 1.0
    bad = conversation(1)
    bad[1]["searches"][0]["results"][0]["content"] = "unspeakable"
    bad[1]["searches"][0]["results"][0]["doc_id"] = "other"
    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        await post(receiver, lines([*bad, *conversation(2)]))
        await settled(process, 1, "no_grade")
        await settled(process, 1)
        await all_drawn(process, 2)
        assert {name for name, _, _ in written(await everything(process.records))} == {"c2"}


async def test_turns_without_texts_are_counted_with_what_helps(
    tmp_path: Path, endpoint: ModelEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    """And nothing is asked about them."""
    bare, silent = conversation(1), conversation(2)[:2]
    for event in bare[:2]:
        for result in event["searches"][0]["results"]:
            del result["title"], result["content"]
    for event in silent:
        del event["searches"][0]["query"]
    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        await post(receiver, lines([*bare, *silent]))
        await settled(process, 1, "no_text")
        await settled(process, 1, "no_query")
    assert endpoint.calls == []
    said = capfd.readouterr().err
    assert "otlp.content" in said
    assert "agent=support" in said or '"agent": "support"' in said


async def test_an_endpoint_that_is_away_delays_labels_only(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """The process receives and counts meanwhile, and says what the judge waits for."""
    endpoint.stop()
    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        await post(receiver, lines(conversation(1)))
        await wait_until(
            lambda: value(process, "obstacles", reason="endpoint") == 1, 30, "nobody says so"
        )
        assert process.health.ready
        endpoint.start()
        await settled(process, 1)
        assert value(process, "obstacles", reason="endpoint") == 0


async def test_turns_without_an_outcome_are_counted_until_they_have_one(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    """While the model does not answer, and after a start; those that are labelled stay open."""
    endpoint.stop()
    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        assert value(process, "due_turns") == 0
        await post(receiver, lines([e for n in range(3) for e in conversation(n, turns=2)]))
        await wait_until(
            lambda: value(process, "due_turns") == value(process, "asked_turns") == 6,
            30,
            "turns are not due",
        )
        assert process.due_turns() == 6
    async with judging(settings(tmp_path, endpoint)) as (process, _):
        await wait_until(lambda: value(process, "due_turns") == 6, 30, "turns are forgotten")
        endpoint.start()
        await settled(process, 6)
        await wait_until(lambda: value(process, "due_turns") == 0, 30, "turns are still due")
        assert process.due_turns() == 0
        assert value(process, "open_turns") == 6


async def test_how_far_a_judge_is_behind_is_logged_in_the_order_of_turns(
    tmp_path: Path,
    endpoint: ModelEndpoint,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once a minute, here more often; with so few calls, the first turns are done."""
    monkeypatch.setattr(judge, "LOG_SECONDS", 0.5)
    sent = [event for number in range(20) for event in conversation(number)]
    slow = settings(tmp_path, endpoint, calls_per_minute=30, cache_grades=0)
    said = ""

    def is_told() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        told = r'"done": [1-9]\d*, "of": 20, "event": "turns are being judged"'
        return re.search(told, said) is not None

    async with judging(slow) as (_, receiver):
        await post(receiver, lines(sent))
        await wait_until(is_told, 30, "nobody says how many turns are done")


async def test_who_judges_and_that_all_is_done_is_logged(
    tmp_path: Path,
    endpoint: ModelEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The model, its address and the rate at the start; the end of a backlog, not of one turn."""
    monkeypatch.setattr(judge, "BACKLOG_SECONDS", 0.0)
    monkeypatch.setattr(judge, "BACKLOG_TURNS", 5)
    said = ""

    def is_told(what: str) -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return what in said

    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        await wait_until(partial(is_told, "a judge grades turns"), 30, "no judge is told")
        assert f'"model": "m", "endpoint": "{endpoint.url}", "rate": 1.0' in said
        await post(receiver, lines(conversation(0)))
        await settled(process, 1)
        await post(receiver, lines([e for number in range(1, 8) for e in conversation(number)]))
        await wait_until(partial(is_told, "no turn is left to judge"), 30, "no end is told")
    assert '"done": 1, "event": "no turn is left' not in said


async def test_up_to_when_all_was_read_is_told(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    """The time of the last look at the ends, once they were reached."""
    sample = "streammetrics_judge_complete_until_timestamp_seconds"
    async with judging(settings(tmp_path, endpoint)) as (process, receiver):
        await post(receiver, lines(conversation(1)))
        sent = time.time()
        await wait_until(
            lambda: (process.registry.get_sample_value(sample) or 0) > sent, 30, "no time is told"
        )
        assert value(process, "log_ends_timestamp_seconds") > sent
        await settled(process, 1)  # so that no call is in flight at the end


async def test_texts_go_to_the_endpoint_and_nowhere_else(
    tmp_path: Path, endpoint: ModelEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not into the events that are written, a metric, a log or the budget."""
    endpoint.misfortunes, endpoint.share = (*FAULTS,), 0.3
    canaries = Canaries()
    sent = [canaries.planted(event, event["conversation_id"]) for event in conversation(1)]
    async with judging(settings(tmp_path, endpoint, attempts=20)) as (process, receiver):
        await post(receiver, lines(sent))
        await settled(process, 1)
        told = [generate_latest(process.registry)]
        records = await everything(process.records)
        told += [one.value or b"" for one in records if b'"model"' in (one.value or b"")]
        assert len(told) > 1
    told.append("".join(capfd.readouterr()).encode())
    # A worker tells the names of fields that the contract does not have.
    handles = ("conversation_id", "result_id", "search_id", "event_id", "agent", "release", "name")
    assert canaries.found(b"\n".join(told), allowed=handles) == set()
    assert canaries.found(json.dumps(endpoint.bodies).encode())


def test_settings_that_cannot_work_are_refused(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    """With what to change."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"money_per_day": 1.0, "input_price": None}, "needs `input_price`"),
        ({"settle": "20m"}, "must be shorter than `turn_max`"),
        ({"rate": 0.1, "people_rate": 0.2}, "must not be above `rate`"),
        ({"url": "localhost:80"}, "write an address"),
        ({"url": "http://user:pass@localhost/v1"}, "not into the address"),
    ]
    for chosen, why in cases:
        with pytest.raises(ValueError, match=why):
            settings(tmp_path, endpoint, **chosen)
    with pytest.raises(ValueError, match=r"judge\.model"):
        check_judge(settings(tmp_path, endpoint, model=""))


async def test_kills_of_the_process_cost_neither_labels_nor_budget(
    tmp_path: Path, endpoint: ModelEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in flight: labels are exact in the end, and what calls were charged is within
    what the file says."""
    endpoint.misfortunes, endpoint.share = FAULTS, 0.15
    chosen = settings(tmp_path, endpoint, attempts=20, concurrency=8)
    for name, value_of in chosen.judge.model_dump(exclude_defaults=True).items():
        given = KEY if name == "key" else value_of
        monkeypatch.setenv(f"STREAM_METRICS_JUDGE__{name.upper()}", str(given))
    monkeypatch.setenv("STREAM_METRICS_STATE__DIGEST_KEY", KEY)
    for wave in range(3):
        with serving(tmp_path) as served:
            sent = [event for n in range(6) for event in conversation(wave * 10 + n)]
            await asyncio.to_thread(served.post, lines(sent))
            least = len(endpoint.calls) + 6
            await wait_until(partial(_called, endpoint, least), 60, "nothing is asked")
            served.kill()
    async with judging(chosen) as (process, _):
        expected = wanted(await everything(process.records), Sampler(KEY.encode()), 1.0, 8_000)

        async def done() -> bool:
            return written(await everything(process.records)) == expected

        await wait_until(done, 90, "labels are missing")
        assert len(expected) > 50
        assert value(process, "budget_used", budget="tokens") >= endpoint.cost.tokens


def _called(endpoint: ModelEndpoint, times: int) -> bool:
    return len(endpoint.calls) >= times
