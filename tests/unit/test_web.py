"""The pages, tested on a real server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from deploy.local.certificates import Authority
from stream_metrics.core.engine.codec import encode_sums
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.engine.windows import Windows
from stream_metrics.live.auth import MAX_PENDING, hash_password, read_users
from stream_metrics.live.health import Health
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.settings import WebSettings
from stream_metrics.live.web import Pages, WebOptions, make_app, serve, ssl_context

NOW_US = 1_700_000_000_000_000
# What Prometheus 2.4x and 3.x send.
PROMETHEUS_ACCEPTS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;"
    "q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
)


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def pages(health: Health | None = None) -> Pages:
    """Pages over a worker with one partition and 11 results."""
    registry = CollectorRegistry()
    Operations(registry).obstructed(())
    windows = Windows()
    windows.load("5m", NOW_US // DEFAULT_WINDOWS[1].bucket_us, "it-desk", encode_sums({"r": 11}))
    collector = WindowCollector(lambda: [windows], lambda: NOW_US)
    return Pages(registry, health or Health(reasons={}), collector)


Get = Callable[..., Awaitable[tuple[int, str, str]]]


@asynccontextmanager
async def served(pages: Pages, options: WebOptions) -> AsyncIterator[Get]:
    """A server on a free port, and a function that sends requests: (status, content type, body)."""
    runner = await serve(options, make_app(pages))
    scheme = "https" if options.tls_certificate else "http"
    host, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession(f"{scheme}://{host}:{port}") as session:

            async def get(path: str, **kwargs: object) -> tuple[int, str, str]:
                async with session.get(path, **kwargs) as response:  # type: ignore[arg-type]
                    content_type = response.headers["Content-Type"]
                    return response.status, content_type, await response.text()

            yield get
    finally:
        await runner.cleanup()


def ask(
    page: str, of: Pages, options: WebOptions | None = None, **kwargs: object
) -> tuple[int, str, str]:
    """Send one request."""

    async def run() -> tuple[int, str, str]:
        async with served(of, options or WebOptions(port=0)) as get:
            return await get(page, **kwargs)

    return asyncio.run(run())


def test_metrics_are_plain_text_by_default() -> None:
    """Without an Accept header, windows and operations are in Prometheus' text format."""
    status, content_type, body = ask("/metrics", pages())

    assert status == 200
    assert content_type.startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in parse_text(body)}
    assert families["streammetrics_ready"].samples[0].value == 1
    results = families["streammetrics_window_results"].samples
    assert {"agent": "it-desk", "window": "5m"} in [s.labels for s in results if s.value == 11]
    assert "# EOF" not in body


@pytest.mark.parametrize("accept", PROMETHEUS_ACCEPTS)
def test_metrics_are_openmetrics_when_asked(accept: str) -> None:
    """The Accept header of a Prometheus server gets valid OpenMetrics."""
    status, content_type, body = ask("/metrics", pages(), headers={"Accept": accept})

    assert status == 200
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in parse_openmetrics(body)}  # type: ignore[no-untyped-call]
    assert {"streammetrics_window_results", "streammetrics_events"} <= names


def test_concurrent_scrapes_get_the_whole_page() -> None:
    """Several concurrent scrapes are each complete."""

    async def run() -> list[tuple[int, str, str]]:
        async with served(pages(), WebOptions(port=0)) as get:
            return await asyncio.gather(*(get("/metrics") for _ in range(8)))

    answers = asyncio.run(run())
    assert len({body for _, _, body in answers}) == 1
    assert {status for status, _, _ in answers} == {200}


def test_a_worker_is_not_ready_at_the_start() -> None:
    """A new Health has a reason against readiness, and none against liveness."""
    health = Health()
    status, content_type, body = ask("/readyz", pages(health))

    assert (status, content_type) == (503, "application/json; charset=utf-8")
    assert json.loads(body) == {"ready": False, "reasons": health.reasons}
    assert ask("/healthz", pages(health))[0] == 200


@pytest.mark.parametrize(("building", "state"), [(True, "building"), (False, "live")])
def test_readiness_names_the_generation(building: bool, state: str) -> None:
    """A worker that builds is ready, so that a roll-out can continue; the answer says so."""
    health = Health(reasons={})
    health.generation, health.building = 2, building
    named = {"generation": {"number": 2, "state": state}}

    status, _, body = ask("/readyz", pages(health))
    assert (status, json.loads(body)) == (200, {"ready": True, **named})

    health.set("redis", "cannot be reached")
    assert json.loads(ask("/readyz", pages(health))[2]) == {
        "ready": False,
        "reasons": {"redis": "cannot be reached"},
        **named,
    }
    stranger = ask("/readyz", pages(health), WebOptions(port=0, users=USERS))
    assert json.loads(stranger[2]) == {"ready": False}


def test_readiness_follows_its_reasons() -> None:
    """Each reason makes the worker unready until it is cleared."""
    health = Health(reasons={})
    assert json.loads(ask("/readyz", pages(health))[2]) == {"ready": True}

    health.set("redis", "cannot be reached; retrying")
    health.set("output", "the topic is missing")
    status, _, body = ask("/readyz", pages(health))
    assert status == 503
    assert json.loads(body)["reasons"] == {
        "redis": "cannot be reached; retrying",
        "output": "the topic is missing",
    }
    assert ask("/healthz", pages(health))[0] == 200  # a restart would not help

    health.clear("redis")
    health.clear("output")
    health.clear("never set")
    assert ask("/readyz", pages(health))[0] == 200


def test_a_held_partition_leaves_the_worker_ready() -> None:
    """Readiness names it and does not wait for it, so that it stops no roll-out."""
    health, gap = Health(reasons={}), "halted at an offset gap"
    health.hold("partition-3", gap)
    status, _, body = ask("/readyz", pages(health))
    assert (status, json.loads(body)) == (200, {"ready": True, "reasons": {"partition-3": gap}})
    stranger = ask("/readyz", pages(health), WebOptions(port=0, users=USERS))
    assert json.loads(stranger[2]) == {"ready": True}

    health.set("redis", "cannot be reached")
    assert ask("/readyz", pages(health))[0] == 503

    health.clear("redis")
    health.set("partition-3", "taken over anew")
    assert ask("/readyz", pages(health))[0] == 503


def test_the_watchdog_fails_the_liveness_probe() -> None:
    """A reason of the watchdog asks for a restart."""
    health = Health(reasons={})
    health.set("watchdog", "no progress for 60 s with lag left")
    status, _, body = ask("/healthz", pages(health))

    assert status == 503
    assert json.loads(body) == {
        "alive": False,
        "reasons": {"watchdog": "no progress for 60 s with lag left"},
    }
    assert ask("/readyz", pages(health))[0] == 503


def test_a_silent_loop_fails_the_liveness_probe() -> None:
    """Once the loop has run, it must run again within the limit."""
    clock = Clock()
    health = Health(30, reasons={}, clock=clock)
    clock.now += 1_000
    assert health.failures() == {}  # starting takes as long as it takes

    health.beat()
    clock.now += 30
    assert ask("/healthz", pages(health))[0] == 200
    clock.now += 1
    assert list(json.loads(ask("/healthz", pages(health))[2])["reasons"]) == ["loop"]
    assert ask("/readyz", pages(health))[0] == 503
    health.beat()
    assert ask("/healthz", pages(health))[0] == 200


QUICK = 4
USERS = {
    "prometheus": hash_password("correct horse", QUICK),
    "grafana": hash_password("battery: staple", QUICK),
    "zoë": hash_password("pässword", QUICK),
}


def basic(user: str, password: str) -> dict[str, str]:
    """The Authorization header of a user."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.mark.parametrize(
    ("user", "password", "status"),
    [
        ("prometheus", "correct horse", 200),
        ("grafana", "battery: staple", 200),
        ("zoë", "pässword", 200),
        ("prometheus", "battery: staple", 401),
        ("prometheus", "", 401),
        ("nobody", "correct horse", 401),
        pytest.param("prometheus", USERS["prometheus"], 401, id="the hash itself"),
        ("", "", 401),
    ],
)
def test_only_users_with_the_right_password_are_admitted(
    user: str, password: str, status: int
) -> None:
    """Others do not see the metrics."""
    options = WebOptions(port=0, users=USERS)
    answer = ask("/metrics", pages(), options, headers=basic(user, password))

    assert answer[0] == status
    assert ("streammetrics_" in answer[2]) == (status == 200)


def test_a_remembered_password_does_not_let_another_in() -> None:
    """After a right password a wrong one is refused, and the right one is still accepted."""

    async def run() -> list[int]:
        async with served(pages(), WebOptions(port=0, users=USERS)) as get:
            return [
                (await get("/metrics", headers=basic("prometheus", password)))[0]
                for password in ("correct horse", "wrong", "", "correct horse")
            ]

    assert asyncio.run(run()) == [200, 401, 401, 200]


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!!", "Basic bm9jb2xvbg==", "Basic /w==", "Bearer x", "Basic é"]
)
def test_a_broken_authorization_is_refused(header: str) -> None:
    """Invalid basic authorization gets a 401 with a challenge, never a 500."""
    options = WebOptions(port=0, users=USERS)
    headers = {"Authorization": header}

    assert ask("/metrics", pages(), options, headers=headers)[0] == 401


def test_probes_need_no_password() -> None:
    """An orchestrator can probe a worker whose pages have users; other paths are protected."""
    options = WebOptions(port=0, users=USERS)

    assert ask("/healthz", pages(), options)[0] == 200
    assert ask("/readyz", pages(), options)[0] == 200
    assert ask("/healthz/", pages(), options)[0] == 401
    assert ask("/elsewhere", pages(), options)[0] == 401


@pytest.mark.parametrize("page", ["/healthz", "/readyz"])
def test_probes_give_reasons_to_users_only(page: str) -> None:
    """If pages have users, only these see the reasons; others see the status."""
    health = Health(reasons={})
    health.set("watchdog", "no progress")
    options = WebOptions(port=0, users=USERS)
    headers = [{}, basic("prometheus", "wrong"), basic("prometheus", "correct horse")]

    answers = [ask(page, pages(health), options, headers=header) for header in headers]

    assert [status for status, _, _ in answers] == [503, 503, 503]
    assert ["no progress" in body for _, _, body in answers] == [False, False, True]
    assert "no progress" in ask(page, pages(health))[2]


@pytest.mark.slow
def test_too_many_password_checks_are_refused() -> None:
    """A limited number of checks may wait; known users are served meanwhile."""
    slow = {"prometheus": hash_password("correct horse", 14)}

    async def run() -> tuple[list[int], int]:
        async with served(pages(), WebOptions(port=0, users=slow)) as get:
            known = basic("prometheus", "correct horse")
            assert (await get("/metrics", headers=known))[0] == 200
            flood = [
                asyncio.ensure_future(get("/metrics", headers=basic("prometheus", f"guess {n}")))
                for n in range(2 * MAX_PENDING)
            ]
            await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
            meanwhile = (await get("/metrics", headers=known))[0]
            return [(await answer)[0] for answer in flood], meanwhile

    answers, meanwhile = asyncio.run(run())
    assert set(answers) == {401, 503}
    assert answers.count(401) >= MAX_PENDING
    assert meanwhile == 200


def test_hashes_are_salted_and_do_not_hold_the_password() -> None:
    """The same password has a different hash each time."""
    one, two = hash_password("correct horse", QUICK), hash_password("correct horse", QUICK)

    assert one != two
    assert "correct" not in one


def test_users_come_from_a_file(tmp_path: Path) -> None:
    """A line of the file has name and hash; comments and empty lines are skipped."""
    file = tmp_path / "users"
    file.write_text("# who may look\n\n" + "".join(f"{u}:{h}\n" for u, h in USERS.items()))

    assert read_users(file) == USERS


@pytest.mark.parametrize("line", ["no colon s3cret", ":s3cret", "a:x\na:s3cret"])
def test_an_invalid_line_in_the_file_of_users_is_refused(tmp_path: Path, line: str) -> None:
    """The error names file and line, and does not quote it."""
    file = tmp_path / "users"
    file.write_text(line)

    with pytest.raises(ValueError, match=r"users, line \d") as raised:
        read_users(file)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("password", [None, "pass phrase"])
def test_pages_are_served_over_tls(tmp_path: Path, password: str | None) -> None:
    """With a certificate and its key, encrypted or not, pages are served over TLS only."""
    authority = Authority(tmp_path)
    own = authority.issue("pages", password)
    options = WebOptions(
        port=0, tls_certificate=own.certificate, tls_key=own.key, tls_key_password=password
    )
    trust = ssl.create_default_context(cafile=str(authority.certificate))

    assert ask("/readyz", pages(), options, ssl=trust)[0] == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        ask("/readyz", pages(), options)


def test_invalid_options_are_refused_with_the_reason(tmp_path: Path) -> None:
    """Mistakes are errors before the server listens; the message contains no secret."""
    own = Authority(tmp_path).issue("pages", "pass phrase")
    for options, match in (
        (WebOptions(tls_key=own.key), "`web.tls_key` without `web.tls_certificate`"),
        (WebOptions(tls_certificate=tmp_path / "none"), "none: No such file"),
        (WebOptions(tls_certificate=own.key), "certificate and key must be"),
        (WebOptions(tls_certificate=own.certificate, tls_key=own.key), "web.tls_key_password"),
        (
            WebOptions("", 0, own.certificate, own.key, tls_key_password="wrong pass"),
            "web.tls_key_password",
        ),
    ):
        with pytest.raises(ValueError, match=match) as raised:
            ssl_context(options)
        assert "wrong pass" not in str(raised.value) + repr(options)
    for stored in ("plain text", hashlib.sha256(b"plain text").hexdigest(), "scrypt$15$8$3$"):
        with pytest.raises(ValueError, match="'a'") as raised:
            WebOptions(users={"a": stored})
        assert stored not in str(raised.value)
    with pytest.raises(ValueError, match="colon"):
        WebOptions(users={"a:b": USERS["grafana"]})
    assert USERS["grafana"] not in repr(WebOptions(users=USERS))


def test_a_taken_port_is_an_error_at_once() -> None:
    """A port that is in use raises an error at the start."""

    async def run() -> None:
        runner = await serve(WebOptions(port=0), make_app(pages()))
        try:
            await serve(WebOptions(port=runner.addresses[0][1]), make_app(pages()))
        finally:
            await runner.cleanup()

    with pytest.raises(OSError):
        asyncio.run(run())


def test_the_server_listens_on_localhost_by_default() -> None:
    """Other machines cannot reach it."""
    assert WebOptions().host == WebSettings().host == "127.0.0.1"
    assert WebOptions().loopback


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (WebOptions(), ""),
        (WebOptions("localhost"), ""),
        (WebOptions("::1"), ""),
        (WebOptions("0.0.0.0"), "anyone who can reach 0.0.0.0"),
        (WebOptions("", 0), "anyone"),
        (WebOptions("0.0.0.0", users=USERS), "unencrypted"),
        (WebOptions("0.0.0.0", tls_certificate=Path("crt"), users=USERS), ""),
    ],
)
def test_pages_open_to_others_have_a_warning(options: WebOptions, words: str) -> None:
    """The warning says what others can see."""
    assert [words in said for said in options.warnings()] == [True] * bool(words)
