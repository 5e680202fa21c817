"""``stream-metrics send --to``: events over HTTP, and what is said if they are not taken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.process import free_port
from stream_metrics.cli.common import UsageError
from stream_metrics.cli.send_http import ATTEMPTS, MAX_PAUSE, HttpSender, Refusal
from tests.events_endpoint import (
    EventsEndpoint,
    Fault,
    answers,
    events_endpoint,
    loses_answer,
    resets,
    takes,
)
from tests.helpers import ran


@pytest.fixture
def endpoint() -> Iterator[EventsEndpoint]:
    """An endpoint that listens."""
    with events_endpoint() as found:
        yield found


def event(number: int, **more: Any) -> dict[str, Any]:
    """A label, whose id is its number."""
    return {
        "type": "relevance_labels", "event_id": f"e-{number}", "occurred_at": 1_718_020_800,
        "conversation_id": "c", "turn": 1, "labels": [{"result_id": "r", "gain": 3}], **more,
    }  # fmt: skip


def line(number: int, **more: Any) -> bytes:
    """A label as a line of JSON."""
    return json.dumps(event(number, **more)).encode()


def sent(endpoint: EventsEndpoint, values: list[bytes]) -> tuple[list[Refusal], list[float]]:
    """What is refused, and how long each pause was."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    return asyncio.run(HttpSender(endpoint.url, pause=pause).send(values)), pauses


def failed(endpoint: EventsEndpoint, *faults: Fault, values: int = 1) -> str:
    """The error where the first requests meet faults."""
    endpoint.faults.extend(faults)
    with pytest.raises(UsageError) as raised:
        sent(endpoint, [line(number) for number in range(values)])
    return str(raised.value).replace(endpoint.url, "URL").replace(f"127.0.0.1:{endpoint.port}", "H")


def test_events_in_any_layout_arrive_in_order(endpoint: EventsEndpoint, tmp_path: Path) -> None:
    """Objects that are spread over lines, too; several requests use one connection."""
    text = "\n".join(json.dumps(event(n), indent=n % 2 or None) for n in range(600))
    (tmp_path / "events.json").write_text(text)

    done = ran("send", str(tmp_path / "events.json"), "--to", endpoint.url)

    assert (done.returncode, done.stdout) == (0, f"Sent 600 events to {endpoint.url}.\n")
    assert endpoint.ids == [f"e-{n}" for n in range(600)]
    assert (len(endpoint.bodies), len(endpoint.peers)) == (2, 1)


def test_programs_get_the_number_of_events(endpoint: EventsEndpoint, tmp_path: Path) -> None:
    """And the address that they went to; a token comes from a file."""
    endpoint.token = "t0ken"
    (tmp_path / "token").write_text("t0ken\n")

    done = ran(
        *("send", "--to", endpoint.url, "--format", "json"),
        given=line(1),
        environment={"STREAM_METRICS_SERVE__TOKEN_FILE": str(tmp_path / "token")},
    )

    assert json.loads(done.stdout) == {"events": 1, "to": endpoint.url}


def test_one_invalid_event_keeps_all_from_being_sent(endpoint: EventsEndpoint) -> None:
    """As without --to: the input is checked first."""
    done = ran("send", "--to", endpoint.url, given=line(1) + b'\n{"type": "relevance_label"}')

    assert (done.returncode, endpoint.headers) == (2, [])
    assert "line 2: unknown_type" in done.stderr


def test_events_that_the_server_alone_refuses_are_named_by_their_lines(
    endpoint: EventsEndpoint,
) -> None:
    """A server may have other limits than these settings; the exit code is 2."""
    refused = [{"place": 2, "reason": "over_limit", "message": "labels: 1, at most 0"}]
    endpoint.faults.append(answers(200, {"accepted": 1, "refused": refused}))

    done = ran("send", "--to", endpoint.url, given=b"\n".join([line(1), b"", line(2)]))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-2:] == [
        f"error: {endpoint.url} took 1 events of standard input, and refused others:",
        "  line 3: over_limit: labels: 1, at most 0",
    ]


def test_a_request_without_an_answer_is_repeated(endpoint: EventsEndpoint) -> None:
    """With the same ids, by which the server counts the events once."""
    endpoint.faults.extend([loses_answer, resets, answers(503, Retry_After="7"), takes])

    found, pauses = sent(endpoint, [line(1), line(2)])

    assert (found, pauses) == ([], [0.25, 0.5, 7.0])
    assert endpoint.ids == ["e-1", "e-2"] * 2


def test_refused_events_are_counted_over_all_requests(endpoint: EventsEndpoint) -> None:
    """The 502nd of 600 events is in the second request."""
    values = [line(n, turn=0 if n == 501 else 1) for n in range(600)]

    found, _ = sent(endpoint, values)

    assert [one.position for one in found] == [501]
    assert found[0].why.startswith("invalid: ")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (answers(503, {"error": "disk full"}),
         "--to URL: H takes no events for now (503: disk full), 6 times"),
        (answers(500), "--to URL: H takes no events for now (500), 6 times"),
        (resets, "--to URL: H closed the connection before it answered, 6 times"),
        (answers(503, Retry_After="1000000"), "--to URL: H takes no events for now (503), 6 times"),
        (answers(401),
         "--to URL: H wants a token (401); name a file with it in serve.token_file"),
        (answers(404), "--to URL: H does not take events at /v1/events (404); name the OTLP port "
         "of `stream-metrics serve`"),
        (answers(200, "<h1>Hello</h1>"), "--to URL: H does not take events at /v1/events (200); "
         "name the OTLP port of `stream-metrics serve`"),
        (answers(200, {"accepted": 2, "refused": []}), "--to URL: H does not take events at "
         "/v1/events (200); name the OTLP port of `stream-metrics serve`"),
        (answers(413), "--to URL: H does not take a request of 1 events (413); raise its limit"),
        (answers(308, Location="https://x/"), "--to URL: H does not take events at /v1/events "
         "(308); name the OTLP port of `stream-metrics serve`"),
    ],
)  # fmt: skip
def test_what_keeps_events_from_being_taken_is_said(
    endpoint: EventsEndpoint, fault: Fault, says: str
) -> None:
    """With the address, and what to do; what may pass is tried again."""
    assert failed(endpoint, *[fault] * ATTEMPTS) == says


def test_an_interrupted_file_may_be_sent_again(endpoint: EventsEndpoint) -> None:
    """The error says how much was taken, and that a repeat does no harm."""
    assert failed(endpoint, takes, answers(404), values=501).endswith(
        "500 of 501 events were taken before. Send them all again: each counts once, by its id"
    )


def test_the_longest_pause_is_bounded(endpoint: EventsEndpoint) -> None:
    """Whatever the server asks for."""
    endpoint.faults.append(answers(429, Retry_After="1000000"))
    assert sent(endpoint, [line(1)]) == ([], [MAX_PAUSE])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--to", "localhost:4318"), "--to localhost:4318: write http://host:port"),
        (("--to", "ftp://h"), "--to ftp://h: write http://host:port or https://host:port"),
        (("--to", "http://h:99999"), "--to http://h:99999: write http://host:port"),
        (("--to", "http://u:secret@h"), "serve.token_file names the file of a token"),
        (("--to", "http://h", "--topic", "search-iterations"), "--to and --topic exclude each"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(
    arguments: tuple[str, ...], says: str
) -> None:
    """The message has no password."""
    done = ran("send", *arguments, given=b"no event")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "secret" not in done.stderr


def test_nothing_that_listens_is_named() -> None:
    """At once, with what to start."""
    to = f"http://127.0.0.1:{free_port()}"
    done = ran("send", "--to", to, given=line(1))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"error: --to {to}: nothing answers at {to[7:]} (Connection refused); start "
        "`stream-metrics serve` there, or correct the address"
    )


def test_an_address_without_tls_is_named(endpoint: EventsEndpoint) -> None:
    """Somebody wrote https where the endpoint has none."""
    to = endpoint.url.replace("http:", "https:")
    done = ran("send", "--to", to, given=line(1))
    assert done.returncode == 2
    assert f"error: --to {to}: no TLS with 127.0.0.1:{endpoint.port} (" in done.stderr
