"""What notices say, to whom, and what happens while nobody can be told or nothing be kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.local.process import free_port
from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.table import ALERTS
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.notify.delivery import Format, NotDelivered, Recipient
from stream_metrics.live.notify.episodes import Episode, Found, Key, Notice, State, Timing
from stream_metrics.live.notify.messages import NAMED, About
from stream_metrics.live.notify.notifier import LOOK_SECONDS, Look, Notifier
from stream_metrics.live.page.board import Judged
from stream_metrics.live.page.notices import Charges
from stream_metrics.live.page.rules import RULES
from stream_metrics.live.runaways import RunawayTurn
from tests.helpers import ran
from tests.page import NOON_US, Showcase
from tests.unit.test_state_partition import NOON_S
from tests.unit.test_worst import searched

NOW = float(NOON_S)
PAGE = "https://metrics.example.org/"
ABOUT = {
    "srr": About("SRRSpike", "SRR spike", "docs/runbooks/SRRSpike.md", "agent"),
    "lag": About("Lag", "Consumer lag", "https://runbooks.example.org/Lag", "instance"),
}
WHY = "36% of its results repeat; usually it is 12%"


def episode(rule: str = "srr", subject: str = "support", **more: Any) -> Episode:
    """A fault of an agent, for 25 minutes."""
    given = {"level": CRITICAL, "why": WHY, "since": NOW - 1_500, "sure": NOW, **more}
    return Episode(rule, subject, **given)


def recipient(url: str = "http://h", format: Format = "alertmanager") -> Recipient:
    """Somebody who is told."""
    return Recipient(url, format, ABOUT, PAGE, aiohttp.ClientTimeout(total=0.2))


# --- formats --------------------------------------------------------------------------------------


def test_alertmanager_gets_labels_texts_links_and_times() -> None:
    """The labels are those of the rules for Prometheus, so that routes and inhibitions fit."""
    told = recipient().body(Notice("srr", (episode(),), ()), NOW)

    assert told == [
        {
            "labels": {
                "alertname": "SRRSpike", "job": "stream-metrics", "severity": "critical",
                "agent": "support",
            },
            "annotations": {
                "summary": "SRR spike: support",
                "description": WHY,
                "dashboard_url": "https://metrics.example.org/?agent=support",
                "runbook_url": "docs/runbooks/SRRSpike.md",
            },
            "startsAt": "2024-06-10T11:35:00+00:00",
            "endsAt": "2024-06-10T20:00:00+00:00",
            "generatorURL": "https://metrics.example.org/?agent=support",
        }
    ]  # fmt: skip


def test_alertmanager_ends_what_has_ended_and_the_lower_severity_of_what_gets_worse() -> None:
    """An alert with another severity is another alert there."""
    worse = episode(told=WARNING, told_at=NOW - 60)
    over = episode("lag", "host:9464", told=WARNING, over=NOW - 300)

    first = recipient().body(Notice("srr", (worse,), ()), NOW)
    second = recipient().body(Notice("lag", (), (over,)), NOW)

    ends = [(one["labels"]["severity"], one["endsAt"][11:16]) for one in first + second]
    assert ends == [("critical", "20:00"), ("warning", "12:00"), ("warning", "11:55")]
    assert second[0]["labels"]["instance"] == "host:9464"
    assert second[0]["generatorURL"] == PAGE


def test_slack_gets_agent_figure_usual_value_and_links() -> None:
    """In a line for each agent, as text that Mattermost and others show as well."""
    notice = Notice("srr", (episode(),), (episode(subject="sales", told=CRITICAL, over=NOW),))

    assert recipient(format="slack").body(notice, NOW) == {
        "text": "*SRR spike*\n"
        f"• <{PAGE}?agent=support|support> (critical, for 25 min): {WHY}\n"
        f"• <{PAGE}?agent=sales|sales> has ended after 25 min: {WHY}\n"
        "Runbook: docs/runbooks/SRRSpike.md"
    }


def test_slack_gets_no_more_lines_than_people_read() -> None:
    """The others are counted; the runbook is a link if it has one."""
    notice = Notice("lag", tuple(episode("lag", f"host-{n}") for n in range(NAMED + 2)), ())

    lines = recipient(format="slack").body(notice, NOW)["text"].splitlines()

    assert lines[-2:] == ["… and 2 more", "Runbook: <https://runbooks.example.org/Lag|Lag>"]
    assert len(lines) == NAMED + 3


def test_the_name_of_an_agent_alerts_nobody_else() -> None:
    """A name may look like a mention, a link or a line of its own."""
    hostile = episode(subject="<!channel> <http://x|y>\n*& co*")
    text = recipient(format="slack").body(Notice("srr", (hostile,), ()), NOW)["text"]

    assert "<!" not in text
    assert len(text.splitlines()) == 3
    assert text.count("|") == 1


# --- delivery -------------------------------------------------------------------------------------


@dataclass
class Webhook:
    """What was posted, and how the next requests are answered."""

    url: str = ""
    answers: deque[web.Response | float] = field(default_factory=deque)
    posted: list[tuple[str, Any]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        """Take a post, or fail as scripted: after so many seconds, or with that answer."""
        answer = self.answers.popleft() if self.answers else web.Response(text="ok")
        if not isinstance(answer, web.Response):
            await asyncio.sleep(answer)
            return web.Response()
        if answer.status == 200:
            self.posted.append((request.path, await request.json()))
        return answer


@asynccontextmanager
async def listening() -> AsyncIterator[Webhook]:
    """A webhook on a port of its own."""
    found = Webhook()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.take)
    async with TestServer(app) as server:
        found.url = str(server.make_url("")).rstrip("/")
        yield found


async def test_each_format_has_its_path() -> None:
    """A webhook's path is a part of its address, Alertmanager's is known."""
    notice = Notice("srr", (episode(),), ())
    async with listening() as hook:
        for url in (hook.url, f"{hook.url}/", f"{hook.url}/am/", f"{hook.url}/api/v2/alerts"):
            await recipient(url).deliver(notice, NOW)
        await recipient(f"{hook.url}/services/T0/B0", "slack").deliver(notice, NOW)

    paths = [path for path, _ in hook.posted]
    assert paths[:2] == ["/api/v2/alerts"] * 2
    assert paths[2:] == ["/am/api/v2/alerts", "/api/v2/alerts", "/services/T0/B0"]


@pytest.mark.parametrize(
    ("answer", "why", "pause"),
    [
        (web.Response(status=500), "answers 500", 0.0),
        (web.Response(status=404, text="no_service"), "answers 404: no_service", 0.0),
        (web.Response(status=400, text="<h1>What?</h1>"), "answers 400", 0.0),
        (web.Response(status=429, headers={"Retry-After": "30"}), "answers 429", 30.0),
        (web.Response(status=302, headers={"Location": "http://x"}), "answers 302", 0.0),
        (5.0, "has not answered for 0.2 s", 0.0),
    ],
)
async def test_what_keeps_a_notice_from_being_accepted_is_said_without_secrets(
    answer: web.Response | float, why: str, pause: float
) -> None:
    """The path of a webhook is one."""
    async with listening() as hook:
        hook.answers.append(answer)
        told = recipient(f"{hook.url}/secret", "slack")
        with pytest.raises(NotDelivered) as raised:
            await told.deliver(Notice("srr", (episode(),), ()), NOW)

    assert (str(raised.value), raised.value.pause) == (f"{hook.url} {why}", pause)
    assert "secret" not in repr(told)


async def test_nothing_that_listens_is_named() -> None:
    """With what the system says."""
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(NotDelivered) as raised:
        await recipient(url).deliver(Notice("srr", (episode(),), ()), NOW)
    assert str(raised.value) == f"nothing answers at {url} (Connection refused)"


# --- looking again and again ----------------------------------------------------------------------


class Watch:
    """A notifier with a scripted clock, which finds what it is told to find."""

    def __init__(
        self, hook: Webhook, store: MemoryStore, *, alone: bool = True, wait: float = 0.0
    ) -> None:
        self.now, self.store, self._timing = NOW, store, Timing(wait)
        self.found: list[Found] | None = []
        self.delivered: list[bool] = []
        self._hook, self._alone = hook, alone
        self.restart()

    def restart(self) -> None:
        """Begin anew, with what the store has kept."""
        self._notifier = Notifier(
            "it",
            self._look,
            recipient(self._hook.url, "slack").deliver,
            self.store,
            lambda rule, level: self._timing,
            lambda: self.now,
            alone=self._alone,
            counted=self.delivered.append,
        )

    async def _look(self) -> Look | None:
        return None if self.found is None else Look(self.found, ["srr"])

    async def live(self, seconds: float, found: list[Found] | None) -> None:
        """Look for so long."""
        self.found = found
        for _ in range(round(seconds / LOOK_SECONDS)):
            await self._notifier.step()
            self.now += LOOK_SECONDS


FAULT = [Found(Key("srr", "support"), State.FAULT, WHY, CRITICAL)]
UNSURE = [Found(Key("srr", "support"), State.UNSURE, "too few results", "unknown")]


def told(hook: Webhook) -> list[str]:
    """Whether each message tells of a beginning or of an end."""
    return ["end" if "has ended" in body["text"] else "begin" for _, body in hook.posted]


async def test_a_restart_tells_nothing_twice() -> None:
    """Not even while figures are still unknown after it; and the end is told afterwards."""
    async with listening() as hook:
        watch = Watch(hook, MemoryStore())
        await watch.live(60, FAULT)
        watch.restart()
        await watch.live(60, UNSURE)
        await watch.live(60, FAULT)
        watch.restart()
        await watch.live(120, [])

    assert told(hook) == ["begin", "end"]
    assert await watch.store.note("it") == b""


async def test_an_hour_without_an_answer_loses_nothing() -> None:
    """What began and what ended meanwhile is told once it answers again, within five minutes."""
    async with listening() as hook:
        watch = Watch(hook, MemoryStore())
        hook.answers.extend(web.Response(status=503) for _ in range(15))
        other = [Found(Key("srr", "sales"), State.FAULT, WHY, WARNING)]
        await watch.live(1_800, [*FAULT, *other])
        await watch.live(1_800, FAULT)
        assert hook.posted == []
        hook.answers.clear()
        await watch.live(315, FAULT)

    ((_, body),) = hook.posted
    assert "|support> (critical, for 6" in body["text"]
    assert "|sales> has ended after 30 min" in body["text"]
    assert watch.delivered == [False] * 14 + [True]


async def test_a_store_that_is_away_keeps_no_worker_from_telling_of_itself() -> None:
    """What it could not read is joined later: what had been told is not told again."""
    async with listening() as hook:
        watch = Watch(hook, MemoryStore())
        await watch.live(15, FAULT)
        watch.restart()
        watch.store.available = False
        await watch.live(60, UNSURE)
        other = [Found(Key("srr", "sales"), State.FAULT, WHY, WARNING)]
        await watch.live(60, [*UNSURE, *other])
        watch.store.available = True
        await watch.live(120, [*FAULT, *other])
        await watch.live(60, [])

    assert told(hook) == ["begin", "begin", "end"]
    assert "sales" in hook.posted[1][1]["text"]


async def test_what_was_told_is_known_again_before_it_would_be_told() -> None:
    """The store is back before the fault has lasted as long as its rule waits."""
    async with listening() as hook:
        watch = Watch(hook, MemoryStore(), wait=120.0)
        await watch.live(180, FAULT)
        watch.restart()
        watch.store.available = False
        await watch.live(60, FAULT)
        watch.store.available = True
        await watch.live(300, FAULT)

    assert told(hook) == ["begin"]


async def test_what_others_may_have_told_is_not_told_while_it_cannot_be_read() -> None:
    """Another worker may have told it before this one took over."""
    async with listening() as hook:
        watch = Watch(hook, MemoryStore(), alone=False)
        watch.store.available = False
        await watch.live(120, FAULT)
        assert hook.posted == []
        watch.store.available = True
        await watch.live(15, FAULT)

    assert told(hook) == ["begin"]


async def test_the_next_in_charge_goes_on_where_the_last_one_stopped() -> None:
    """One that loses the charge forgets what it knew, and reads it again when it is back."""
    async with listening() as hook:
        first, second = (Watch(hook, store, alone=False) for store in [MemoryStore()] * 2)
        await first.live(60, FAULT)
        await first.live(15, None)
        second.now = first.now
        await second.live(60, FAULT)
        await second.live(60, [])
        await second.live(15, None)
        first.now = second.now
        await first.live(60, [])

    assert told(hook) == ["begin", "end"]


# --- whose charge what is -------------------------------------------------------------------------


def test_every_rule_is_in_one_charge() -> None:
    """Agents and missing partitions are the group's; all else is a worker's own."""
    states = [
        {"name": rule.name, "findings": [{"level": CRITICAL, "agent": None, "why": "w"}]}
        for rule in RULES
    ]
    group, of_group = Charges().of_group(Judged(states, agents=True))
    own, of_worker = Charges().of_worker(Judged(states, agents=True), "host:9464")
    unknown, few = Charges().of_group(Judged(states, agents=False))

    assert sorted([*of_group, *of_worker]) == sorted(rule.name for rule in RULES)
    assert {one.key.rule for one in group} == {*of_group}
    assert {one.key.subject for one in own} == {"host:9464"}
    assert [one.key.rule for one in unknown] == [*few] == ["partitions"]


def test_faults_are_told_as_late_as_alerts_fire() -> None:
    """A rule waits as long as its alert in Prometheus, and keeps it as long."""
    timing = Charges().timing
    assert timing("srr_spike", WARNING) == Timing(0.0, 600.0)
    assert timing("kafka", CRITICAL).wait == 120.0
    assert timing("reading_stopped", WARNING).wait == 600.0
    assert timing("reading_stopped", CRITICAL).wait == 120.0
    assert timing("of another release", WARNING) == Timing()
    assert {rule.alert for rule in RULES} <= {alert.name for alert in ALERTS}


@pytest.mark.parametrize("total", [1, None])
async def test_a_fault_of_an_agent_is_found_with_its_usual_value(total: int | None) -> None:
    """As the page shows it; agents are not judged before all partitions are known, nor for a worker
    that is not in charge of them."""
    day = [searched(f"d-{n}", 1, "abcde", NOON_S - 4_000 - 120 * n) for n in range(600)]
    hour = [searched(f"h-{n}", 1, "aaaaa", NOON_S - 10 * n) for n in range(300)]
    showcase = await Showcase.new(*day, *hour, now_us=NOON_US, total=total)
    judged = await showcase.board.judged(agents=True)
    found, rules = Charges().of_group(judged)
    other = await showcase.board.judged(agents=False)
    showcase.board.close()
    showcase.worst.close()

    why = [one.why for one in found if one.key.rule == "srr_spike" and one.state is State.FAULT]
    assert (len(why), "srr_spike" in rules) == ((1, True) if total else (0, False))
    assert all(text.endswith("usually it is 0%") for text in why)
    assert not other.agents


async def test_a_worker_tells_of_its_own_turns_that_run_away() -> None:
    """The page of any worker names those of others too, which would be told twice."""
    showcase = await Showcase.new()
    turns = [RunawayTurn("a", name, 1, 500, NOON_S * 1_000) for name in ("ours", "theirs")]
    inputs = showcase.board.inputs
    showcase.board.inputs = replace(inputs, runaways=lambda: turns, own_runaways=lambda: turns[:1])
    found, _ = Charges().of_worker(await showcase.board.judged(agents=False), "host:9464")
    showcase.board.close()
    showcase.worst.close()

    (why,) = [one.why for one in found if one.key == Key("runaway_turn", "host:9464")]
    assert why == "turn 1 of conversation ours (a) has 500 iterations"


# --- the command ----------------------------------------------------------------------------------


def command(url: str, format: str = "alertmanager", *arguments: str) -> Any:
    """Run ``stream-metrics notify`` with an address."""
    environment = {
        "STREAM_METRICS_NOTIFY__URL": url, "STREAM_METRICS_NOTIFY__FORMAT": format,
    }  # fmt: skip
    return ran("notify", *arguments, environment=environment)


async def test_a_test_begins_and_ends_a_fault() -> None:
    """The command says who has accepted it, without the path."""
    async with listening() as hook:
        done = await asyncio.to_thread(command, f"{hook.url}/secret", "slack", "--test")

    assert (done.returncode, told(hook)) == (0, ["begin", "end"])
    assert done.stdout == f"{hook.url} has accepted a test, as slack takes it.\n"


async def test_a_test_that_is_not_accepted_says_why() -> None:
    """With what to check."""
    async with listening() as hook:
        hook.answers.append(web.Response(status=404, text="no_service"))
        done = await asyncio.to_thread(command, f"{hook.url}/secret", "slack", "--test")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: notify.url: {hook.url} answers 404: no_service. Check the address, and that "
        "notify.format is what it takes (it is slack)\n"
    )


@pytest.mark.parametrize(
    ("url", "arguments", "says"),
    [
        ("", ("--test",), "nobody is to be told: set notify.url or notify.url_file"),
        ("http://h", (), "--test sends a test notification"),
        ("hooks.example.org/secret", ("--test",), "`url` must be an http or https address"),
    ],
)
def test_what_is_missing_is_said(url: str, arguments: tuple[str, ...], says: str) -> None:
    """The exit code is 2."""
    done = command(url, "slack", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "secret" not in done.stderr


def test_the_address_may_be_in_a_file_and_is_never_shown(tmp_path: Path) -> None:
    """`config` masks the one of the environment."""
    file = tmp_path / "url"
    file.write_text("nonsense")
    done = ran("notify", "--test", environment={"STREAM_METRICS_NOTIFY__URL_FILE": str(file)})
    shown = ran("config", environment={"STREAM_METRICS_NOTIFY__URL": "http://h/secret"})

    assert "notify.url_file: it does not contain an http or https address" in done.stderr
    assert "secret" not in shown.stdout
    assert "notify" in shown.stdout
