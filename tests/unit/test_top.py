"""The output and exit codes of `top`."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from deploy.local.servers import RedisServer
from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError, day_and_time
from stream_metrics.cli.options import identity
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.ownership.generations import begin
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_state_partition import NOON_S
from tests.unit.test_worst import labelled, searched

HOSTILE = "\x1b[2J[red]x[/red]<img src=x onerror=alert(1)>"


@pytest.fixture
def namespace(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisOptions:
    """An empty namespace that the settings point to."""
    options = RedisOptions(url=redis_server.url, namespace=f"top-{uuid4()}")
    monkeypatch.setenv("STREAM_METRICS_REDIS__URL", options.url)
    monkeypatch.setenv("STREAM_METRICS_REDIS__NAMESPACE", str(options.namespace))
    monkeypatch.setenv("COLUMNS", "120")
    return options


def fill(options: RedisOptions, *events: dict[str, Any], behind_ms: int | None = None) -> None:
    """Let a worker process these events, and say how far behind it is."""

    async def work() -> None:
        space = connect(options)
        ours = identity(Settings(), {TOPIC: 1})
        store = space.generation(await begin(space, ours, 0))
        partition = await opened(
            store,
            MemoryDeadLetters(),
            10,
            identity=ours,
            worker="worker-1:9464",
            engine=Settings().engine_config(),
        )
        records = [
            Record(
                json.dumps(event).encode(),
                event["conversation_id"].encode(),
                NOON_S * 1000,
                TOPIC,
                0,
                offset,
            )
            for offset, event in enumerate(events)
        ]
        await partition.process(records, once)
        await partition.beat(once, behind_ms)
        await space.close()

    asyncio.run(work())


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["top", "--min-results", "1", *arguments])


EVENTS = (
    searched("c-1", 1, ["a", "b"], agent="first"),
    searched("c-1", 2, ["a", "c"], agent="first"),
    searched("c-2", 1, ["a", "a", "a"], agent="second"),
    labelled("c-2", {"1.0.a": 0}),
)


def test_it_says_up_to_when_the_figures_are_complete(namespace: RedisOptions) -> None:
    """That is the time of the worker's last heartbeat, less its lag then."""
    before_us = time.time_ns() // 1_000
    fill(namespace, *EVENTS, behind_ms=300_000)
    after_us = time.time_ns() // 1_000

    until_us = json.loads(run("--format", "json").stdout)["partitions"]["read_up_to_us"]

    assert before_us - 1_000 <= until_us + 300_000_000 <= after_us + 1_000
    assert f"complete up to {day_and_time(until_us)}; what was written later" in run().stdout


def test_it_says_if_it_is_not_known_how_far_was_read(namespace: RedisOptions) -> None:
    """The worker does not know its lag before the brokers have told the end of the topics."""
    fill(namespace, *EVENTS, behind_ms=None)

    assert json.loads(run("--format", "json").stdout)["partitions"]["read_up_to_us"] is None
    assert "it is not known up to when all partitions have been read" in run().stdout


def test_it_lists_conversations_and_duplicates(namespace: RedisOptions) -> None:
    """Each ranking is a table; the duplicates of a conversation follow, once."""
    fill(namespace, *EVENTS)

    done = run()

    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["c-2", "second", "0.67", "0.00", "3", "2", "1", "1"] in lines
    assert ["c-1", "first", "0.25", "–", "4", "1", "2", "0"] in lines
    assert lines.count(["c-2"]) == 1
    assert ["result", "in", "repeats", "of", "evidence", "type"] in lines
    assert ["2.0.a", "iteration", "2", "1.0.a", "iteration", "1", "id", "other"] in lines


def test_it_names_the_conversations_of_turns_that_run_away(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come first, from as many iterations on as the settings say."""
    monkeypatch.setenv("STREAM_METRICS_ALERTS__RUNAWAY_ITERATIONS", "2")
    fill(namespace, *EVENTS)

    lines = [" ".join(line.split()) for line in run().stdout.splitlines()]

    assert "Turns that run away: very many iterations" in lines
    assert "c-1 first 1 2024-06-10 12:00:00Z 2" in lines


def test_it_says_which_turns_are_beyond_a_limit(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their results are marked as incomplete. An export counts the rows."""
    monkeypatch.setenv("STREAM_METRICS_LIMITS__RESULTS_PER_TURN", "3")
    fill(namespace, *EVENTS, searched("c-2", 2, ["a"], agent="second"))

    lines = [" ".join(line.split()) for line in run().stdout.splitlines()]
    exported = CliRunner().invoke(app, ["export", "--out", str(tmp_path)])

    said = "2 turns beyond a limit{}: 3 results of 2 searches are not in these figures"
    assert said.format(" (first 1, second 1)") in lines
    assert "c-2 second 0.67 0.00 3+ 2 1 1" in lines
    assert said.format("") in exported.stderr


def test_a_turn_is_shown_with_its_time(namespace: RedisOptions) -> None:
    """This applies if a conversation has several turns, numbered by times as those of traces."""
    turns = (1_718_020_800_000_000, 1_718_020_860_000_000)
    fill(namespace, *(searched("c", 1, "aa", turn=one, event_id=str(one)) for one in turns))

    shown = " ".join(run().stdout.split())

    assert "turn 1718020800000000 (2024-06-10 12:00:00Z), iteration 1" in shown
    assert "turn 1718020860000000 (2024-06-10 12:01:00Z), iteration 1" in shown


def test_the_window_ends_with_the_last_event(namespace: RedisOptions) -> None:
    """Without --now it ends as in an export, unless an event is later than all records."""
    fill(namespace, *EVENTS)

    assert "2024-06-10 11:01:00Z to 2024-06-10 12:01:00Z" in run().stdout
    assert "0 conversations" in run("--now", "2024-06-10T14:00:00Z").stdout


@pytest.mark.parametrize("ahead_seconds", [3_600, 86_000])
def test_a_clock_that_is_ahead_hides_nothing(namespace: RedisOptions, ahead_seconds: int) -> None:
    """Without --now the window ends no later than the latest record."""
    ahead = searched("ahead", 1, ["a", "a"], NOON_S + ahead_seconds)
    fill(namespace, *EVENTS, ahead)

    done = run()

    assert "2 conversations" in done.stdout
    assert "ahead" not in done.stdout


def test_it_says_how_many_partitions_were_read(namespace: RedisOptions) -> None:
    """All partitions in the namespace are read, whichever worker owns them."""
    fill(namespace, *EVENTS)

    assert "results in 1 of 1 partitions" in run().stdout
    document = json.loads(run("--format", "json").stdout)
    assert document["partitions"] == {"read": [0], "total": 1, "read_up_to_us": None}


def test_json_has_the_ranking_asked_for(namespace: RedisOptions) -> None:
    """With --format json the output is one object, with figures as numbers."""
    fill(namespace, *EVENTS)

    document = json.loads(run("--format", "json", "--by", "wasted", "--agent", "second").stdout)

    assert (document["agent"], document["conversations"]) == ("second", 1)
    assert [row["conversation_id"] for row in document["most_wasted_iterations"]] == ["c-2"]
    assert "highest_srr" not in document


def test_json_is_always_ascii(namespace: RedisOptions) -> None:
    """Names in other alphabets, or with invalid UTF-8, are escaped and can be restored."""
    fill(namespace, searched("größe", 1, ["a", "a"], agent="first"))

    named = run("--format", "json")
    of_bytes = run("--format", "json", "--agent", "caf\udce9")

    assert named.stdout.isascii()
    assert json.loads(named.stdout)["highest_srr"][0]["conversation_id"] == "größe"
    assert json.loads(of_bytes.stdout)["agent"] == "caf\udce9"


def test_an_unknown_agent_is_refused_with_the_known_ones(namespace: RedisOptions) -> None:
    """A misspelt name is an error, and not an empty window."""
    fill(namespace, *EVENTS)

    misspelt = run("--agent", "frist")
    quiet = run("--agent", "first", "--now", "2024-06-10T14:00:00Z")

    assert (
        f"namespace {namespace.namespace!r} has no agent 'frist' with series of its own. "
        "It has: first, second."
    ) in " ".join(misspelt.stderr.split())
    assert quiet.stderr == run("--agent", "other").stderr == ""


def test_the_heading_has_the_singular_for_one_conversation(namespace: RedisOptions) -> None:
    """The heading says "1 conversation"."""
    fill(namespace, *EVENTS)

    assert "1 conversation, 3 results" in run("--agent", "second").stdout


def test_an_empty_ranking_says_whether_there_was_enough_to_judge(namespace: RedisOptions) -> None:
    """Conversations that are too short, or without labels, are not reported as good."""
    fill(namespace, searched("c-1", 1, ["a", "a"]), searched("c-2", 1, ["a", "b"]))

    short = CliRunner().invoke(app, ["top"]).stdout
    assert "cannot tell: no conversation has 10 results or more" in short
    assert "cannot tell: no conversation has 10 labelled results or more" in short
    assert "cannot tell: no conversation has an iteration whose documents are labelled" in short

    assert "cannot tell: no conversation has 1 labelled results or more" in run().stdout
    document = json.loads(run("--format", "json").stdout)
    assert document["judged"] == {
        "highest_srr": 2,
        "lowest_sre": 0,
        "most_wasted_iterations": 0,
        "most_repeated_searches": 0,
    }


def test_an_empty_ranking_of_judged_conversations_says_so(
    namespace: RedisOptions,
) -> None:
    """It says how many conversations were judged."""
    fill(
        namespace,
        searched("c-1", 1, ["a", "b"]),
        labelled("c-1", {"1.0.a": 3, "1.1.b": 3}),
        searched("c-2", 1, ["a", "b"]),
    )

    done = run()

    assert "no conversation repeats a result, of 2 with 1 results or more" in done.stdout
    assert "no conversation wasted an iteration, of 1 with labelled iterations" in done.stdout


def test_conversations_by_repeated_searches_have_their_number(namespace: RedisOptions) -> None:
    """Of the searches whose query is known."""
    loop = [searched("c-1", at, ["a"]) for at in (1, 2, 3)]
    for event in loop:
        event["searches"][0]["query"] = "the same"
    fill(namespace, *loop)
    lines = run("--by", "repeated").stdout.splitlines()
    head = next(at for at, line in enumerate(lines) if "asked again" in line)

    assert lines[head].split()[-3:] == ["searches", "asked", "again"]
    assert lines[head + 1].split()[-2:] == ["3", "2"]


def test_each_conversation_has_a_link_to_its_trace(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a template, text and JSON have links; without one, neither does."""
    fill(namespace, searched("a/b", 1, ["a", "a"]))
    assert json.loads(run("--format", "json").stdout)["highest_srr"][0]["url"] is None
    assert "Their traces" not in run().stdout
    monkeypatch.setenv(
        "STREAM_METRICS_WEB__CONVERSATION_URL", "https://traces.example.org/{conversation_id}"
    )

    link = "https://traces.example.org/a%2Fb"
    assert json.loads(run("--format", "json").stdout)["highest_srr"][0]["url"] == link
    assert run().stdout.splitlines().count(f"  {link}") == 1


def test_a_window_without_results_says_so(namespace: RedisOptions) -> None:
    """An agent without traffic gets a sentence instead of an empty table."""
    fill(namespace, *EVENTS)

    assert run("--agent", "third").stdout.count("no results in this window") == 4


def test_hostile_names_are_shown_as_text(namespace: RedisOptions) -> None:
    """Ids and names cannot control the terminal and are not parsed as markup."""
    fill(namespace, searched(HOSTILE, 1, ["a", "a"], agent=HOSTILE))

    done = run()

    assert "\x1b" not in done.stdout
    assert r"\x1b[2J[red]x[/red]<img" in done.stdout


def test_settings_that_differ_from_the_workers_are_refused(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the setting, and no figures are shown."""
    fill(namespace, *EVENTS)
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")

    done = run()

    assert isinstance(done.exception, UsageError)
    assert "metrics.good_gain was 2, is 3. Use the same settings" in str(done.exception)
    assert done.stdout == ""


def test_an_unknown_window_is_refused(namespace: RedisOptions) -> None:
    """The error lists the windows that exist."""
    done = run("--window", "2h")

    assert isinstance(done.exception, UsageError)
    assert "1m, 5m, 30m, 1h, 6h, 24h" in str(done.exception)


def test_an_empty_namespace_is_refused(namespace: RedisOptions) -> None:
    """The name is more probably wrong than the traffic empty."""
    done = run()

    assert isinstance(done.exception, UsageError)
    assert "has no state" in str(done.exception)
