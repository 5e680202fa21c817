"""``stream_metrics_client`` over HTTP: nothing is lost, nothing refused comes again, and the reason
is said."""

from __future__ import annotations

import gc
import json
import re
import ssl
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_metrics_client import Recorder
from stream_metrics_client.http_sink import MAX_PAUSE, HttpSink, http_target
from stream_metrics_client.records import Record, WriteResult
from stream_metrics_client.sender import Sender
from stream_metrics_client.sinks import make_opener

from deploy.local.certificates import Authority
from deploy.local.process import free_port
from tests.events_endpoint import (
    EventsEndpoint,
    Fault,
    Take,
    answers,
    events_endpoint,
    loses_answer,
    never_answers,
    resets,
    takes,
)
from tests.helpers import examples
from tests.unit.test_client import eventually, run

TOO_LARGE = answers(413)


@pytest.fixture
def endpoint() -> Iterator[EventsEndpoint]:
    """An endpoint that listens."""
    with events_endpoint() as found:
        yield found


def record(number: int, **more: Any) -> Record:
    """A label, whose id is its number; with ``gain=5`` it is invalid."""
    gain = more.pop("gain", 3)
    event = {
        "type": "relevance_labels", "event_id": f"e-{number}", "occurred_at": 1_718_020_800,
        "conversation_id": "c", "turn": 1, "labels": [{"result_id": "r", "gain": gain}], **more,
    }  # fmt: skip
    return Record(b"c", json.dumps(event).encode(), True)


def sender(endpoint: EventsEndpoint, **options: Any) -> Sender:
    """A sender that hardly pauses."""
    opener = make_opener(endpoint.url, token=options.pop("token", None))
    return Sender(
        opener, max_events=10_000, max_bytes=2**30, first_pause_seconds=0.001, name="it", **options
    )


def written(
    endpoint: EventsEndpoint, records: Sequence[Record], said: list[str] | None = None
) -> WriteResult:
    """What becomes of records in one attempt; with ``said``, which gets what is said meanwhile, an
    answer is not waited for long."""
    report = ([] if said is None else said).append
    seconds = 60.0 if said is None else 0.05
    sink = HttpSink(http_target(endpoint.url), report, answer_seconds=seconds, look_seconds=0.01)
    try:
        return sink.write(records)
    finally:
        sink.close()


# --- what is sent ---------------------------------------------------------------------------------


def test_events_arrive_in_order_over_one_connection(endpoint: EventsEndpoint) -> None:
    """A second batch uses the connection of the first, and large bodies are compressed."""
    with Recorder(endpoint.url, agent="support") as recorder:
        for number in range(40):
            recorder.turn(f"c-{number}").iteration().search("q" * 100, ["T"])
        assert recorder.flush(60)
        recorder.forget("last")

    names = [f"c-{number}" for number in range(40)]
    assert [event["conversation_id"] for event in endpoint.accepted] == [*names, "last"]
    assert (recorder.sent, recorder.failed, recorder.dropped) == (41, 0, 0)
    assert len(endpoint.peers) == 1
    assert "Content-Encoding" not in endpoint.headers[-1]
    assert "gzip" in {seen.get("Content-Encoding") for seen in endpoint.headers}


def test_a_body_has_at_most_four_mebibytes_of_events(endpoint: EventsEndpoint) -> None:
    """An endpoint has a limit for bodies; an event that is larger by itself goes alone."""
    sizes = [1_500_000, 1_500_000, 1_500_000, 5_000_000, 10, 10]
    records = [record(n, labeller="x" * size) for n, size in enumerate(sizes)]

    assert written(endpoint, records).retry == []

    assert [round(size / 1e6, 1) for size in endpoint.bodies] == [3.0, 1.5, 5.0, 0.0]


def test_a_token_is_sent(endpoint: EventsEndpoint) -> None:
    """As a bearer token, which the endpoint asks for."""
    endpoint.token = "t0ken"
    with Recorder(endpoint.url, token="t0ken") as recorder:
        recorder.forget("c")

    assert (recorder.sent, len(endpoint.accepted)) == (1, 1)


@pytest.mark.parametrize("url", ["http://h", "http://h/", "http://h/v1/events", "https://h:1/v1/"])
def test_an_address_may_have_the_path_or_not(url: str) -> None:
    """The path of events is added where it is missing."""
    target = http_target(url)
    assert (target.path.removeprefix("/v1"), target.tls) in [
        ("/events", url.startswith("https")),
        ("/v1/events", True),
    ]


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("http://", None, "must be http://host:port or https://host:port"),
        ("http://h:99999", None, "must be http://host:port"),
        ("http://h/a b", None, "must be http://host:port"),
        ("http://h/?x=1", None, "must be http://host:port"),
        ("http://u:secret@h", None, "takes no user and password; pass a token"),
        ("http://h", "secret\r\nX: y", "the token must be ASCII characters without spaces"),
        ("http://h", "", "the token must be ASCII characters without spaces"),
        ("kafka://h:9092", "secret", "a token is for sinks at http:// and https:// addresses only"),
    ],
)
def test_an_invalid_address_or_token_is_refused_immediately(
    url: str, token: str | None, words: str
) -> None:
    """The message repeats no secret."""
    with pytest.raises(ValueError, match=re.escape(words)) as raised:
        Recorder(url, token=token)
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(http_target("http://h", "secret"))


# --- what an answer says --------------------------------------------------------------------------


def test_what_is_refused_is_counted_by_its_reason_and_never_sent_again(
    endpoint: EventsEndpoint,
) -> None:
    """The others of the request are accepted, once."""
    with Recorder(endpoint.url) as recorder:
        for gain in (3, 5, 2, 7):
            recorder.label("c", 1, {"r": gain})
        recorder.forget("")

    assert (recorder.sent, recorder.failed, recorder.refused) == (2, 3, {"invalid": 3})
    assert str(recorder.last_error).startswith("invalid: Expected `str` of length >= 1")
    assert len(endpoint.accepted) == len(set(endpoint.ids)) == 2


def test_a_request_of_which_nothing_is_accepted_is_not_repeated(endpoint: EventsEndpoint) -> None:
    """Its status is 400, and the answer has a reason for each event."""
    sending = sender(endpoint)
    sending.put(record(1, gain=5))
    assert sending.flush(60)
    sending.put(record(2))
    assert sending.close(60)

    assert (sending.sent, sending.failed, len(endpoint.bodies)) == (1, 1, 2)
    assert sending.last_error == "invalid: Expected `int` <= 4 - at `$.labels[0].gain`"


def test_events_without_an_answer_are_sent_again_with_their_ids(endpoint: EventsEndpoint) -> None:
    """The endpoint had accepted them before the connection was reset: their ids tell it."""
    endpoint.faults.extend([loses_answer, resets, takes])
    sending = sender(endpoint)
    for number in range(3):
        sending.put(record(number))
    assert sending.close(60)

    assert (sending.sent, sending.failed) == (3, 0)
    assert set(endpoint.ids) == {"e-0", "e-1", "e-2"}
    assert Counter(endpoint.ids)["e-0"] == 2


FAR = "Fri, 31 Dec 2100 12:00:00 GMT"


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("-1", 0.0),
        ("1000000", MAX_PAUSE),
        (FAR, MAX_PAUSE),
        ("Mon, 10 Jun 2024 12:00:00 GMT", 0.0),
        ("soon", 0.0),
        ("nan", 0.0),
    ],
)
def test_the_server_says_how_long_it_wants_nothing(
    endpoint: EventsEndpoint, header: str, pause: float
) -> None:
    """In seconds, or until a time; with a bound, and nothing for what cannot be read."""
    endpoint.faults.append(answers(503, {"error": "the disk is full"}, Retry_After=header))

    found = written(endpoint, [record(1), record(2)])

    assert (len(found.retry), found.pause) == (2, pause)
    assert (
        found.error == f"127.0.0.1:{endpoint.port} takes no events for now (503: the disk is full)"
    )


class Busy:
    """A sink that wants nothing for an hour, and then takes everything."""

    def __init__(self) -> None:
        self.asked = 0

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Ask for an hour, the first time."""
        self.asked += 1
        return WriteResult() if self.asked > 1 else WriteResult(list(records), "busy", pause=3_600)

    def close(self) -> None:
        """There is nothing to release."""


def test_a_sender_waits_as_long_as_the_server_wants() -> None:
    """Only the end of the recorder is not put off."""
    sink = Busy()
    sending = Sender(lambda _: sink, max_events=9, max_bytes=999, first_pause_seconds=0.001)
    sending.put(record(1))
    assert eventually(lambda: sink.asked == 1)

    assert not sending.flush(0.05)
    assert sink.asked == 1
    assert sending.close(60)
    assert sending.sent == 1


def test_a_body_that_is_too_large_is_divided(endpoint: EventsEndpoint) -> None:
    """By a proxy with a limit of its own, for example; one event too large fails alone."""

    async def at_most_800_bytes(request: web.Request, take: Take) -> web.Response:
        body = await request.read()
        return await (TOO_LARGE(request, take) if len(body) >= 800 else take(request))

    endpoint.faults.extend([at_most_800_bytes] * 9)
    noise = "".join(str(pow(3, n, 10_007)) for n in range(900))
    records = [record(n, labeller=noise if n == 2 else "judge") for n in range(5)]

    found = written(endpoint, records)

    size = len(records[2].value)
    assert (found.retry, found.failed) == ([], 1)
    assert found.failure == f"127.0.0.1:{endpoint.port} does not take {size} bytes"
    assert endpoint.ids == ["e-0", "e-1", "e-3", "e-4"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (answers(500), "answers 500"),
        (answers(502, "<h1>Bad gateway</h1>"), "answers 502"),
        (answers(429, {"error": "64 at once"}), "takes no events for now (429: 64 at once)"),
        (answers(403, {"error": "no"}), "answers 403: no"),
        (answers(401), "wants a token, and no token was given (401); pass that of"),
        (answers(404), "does not take events at /v1/events (404); name the OTLP port of"),
        (answers(405), "does not take events at /v1/events (405)"),
        (answers(400, {"error": "what?"}), "does not take events at /v1/events (400: what?)"),
        (answers(200, "<h1>Hello</h1>"), "does not take events at /v1/events (200)"),
        (answers(200, {"accepted": 3, "refused": []}), "does not take events at /v1/events (200)"),
        (answers(200, [1]), "does not take events at /v1/events (200)"),
        (answers(308, Location="https://x/"), "names another address (308): https://x/"),
        (answers(500, {"error": "a\nb"}), "answers 500"),
        (resets, "closed the connection before it answered"),
    ],
)  # fmt: skip
def test_what_an_endpoint_does_instead_is_named_and_events_are_kept(
    endpoint: EventsEndpoint, fault: Fault, says: str
) -> None:
    """Each event is sent again, because nobody has refused it."""
    endpoint.faults.append(fault)

    found = written(endpoint, [record(1), record(2)])

    assert found.retry == [record(1), record(2)]
    assert str(found.error).startswith(f"127.0.0.1:{endpoint.port} {says}"), found.error


def test_a_slow_endpoint_is_named_while_it_is_waited_for(endpoint: EventsEndpoint) -> None:
    """And then its events are kept."""
    endpoint.faults.append(never_answers)
    said: list[str] = []

    found = written(endpoint, [record(1)], said)

    silent = f"127.0.0.1:{endpoint.port} has not answered for 0 s"
    assert (found.retry, found.error) == ([record(1)], silent)
    assert set(said) == {silent}


# --- while nothing answers ------------------------------------------------------------------------


def test_an_endpoint_that_is_away_blocks_nobody_and_is_named() -> None:
    """Further events than fit are dropped and counted."""
    port = free_port()
    recorder = Recorder(f"http://127.0.0.1:{port}", max_events=100)
    begun = monotonic()
    for _ in range(1_000):
        recorder.forget("c")

    assert monotonic() - begun < 5
    assert recorder.dropped == 900
    assert eventually(lambda: recorder.pending == 100 and "nothing" in str(recorder.last_error))
    assert recorder.last_error == f"nothing answers at 127.0.0.1:{port} (Connection refused)"
    assert not recorder.close(0.01)
    assert (recorder.sent, recorder.dropped) == (0, 1_000)


def test_events_recorded_before_and_during_an_outage_arrive_later() -> None:
    """In order and once, and meanwhile the last error says what is the matter."""
    endpoint = EventsEndpoint()
    sending = sender(endpoint)
    try:
        for number in range(30):
            if number == 15:
                assert sending.flush(60)
                endpoint.stop()
            sending.put(record(number))
            if number in (9, 19):
                assert eventually(lambda: "nothing answers" in str(sending.last_error))
                endpoint.start()
        assert sending.close(60)
    finally:
        endpoint.stop()

    assert endpoint.ids == [f"e-{number}" for number in range(30)]
    assert (sending.sent, sending.failed, sending.last_error) == (30, 0, None)


def test_a_connection_that_ended_meanwhile_is_no_trouble(endpoint: EventsEndpoint) -> None:
    """An endpoint closes idle connections; the next events arrive at the first attempt."""
    sink = HttpSink(http_target(endpoint.url), lambda _: None)
    assert sink.write([record(1)]).retry == []
    endpoint.stop()
    endpoint.start()

    assert sink.write([record(2)]).retry == []

    sink.close()
    assert endpoint.ids == ["e-1", "e-2"]


def test_an_unknown_host_is_named() -> None:
    """With what the system says."""
    target = http_target("http://no-such-host.invalid:4318")
    found = HttpSink(target, lambda _: None).write([record(1)])
    assert re.fullmatch(r"nothing answers at no-such-host\.invalid:4318 \(.+\)", str(found.error))


def test_an_address_without_tls_is_told_from_one_that_is_away(endpoint: EventsEndpoint) -> None:
    """Somebody wrote https where the endpoint has none."""
    target = http_target(endpoint.url.replace("http:", "https:"))
    found = HttpSink(target, lambda _: None).write([record(1)])
    assert str(found.error).startswith(f"no TLS with {target.place} (")
    gc.collect()  # the connection is closed


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.sampled_from(
            [takes, resets, loses_answer, answers(500), answers(503, Retry_After="0"), TOO_LARGE]
        ),
        max_size=12,
    ),
    st.lists(st.sampled_from([3, 5]), min_size=1, max_size=8),
)
def test_whatever_happens_every_event_is_accepted_or_refused(
    endpoint_of_all: EventsEndpoint, faults: list[Fault], gains: list[int]
) -> None:
    """None is lost; one that is refused is counted once; order is kept but for repeats."""
    endpoint_of_all.faults = deque(faults)
    endpoint_of_all.accepted.clear()
    sending = sender(endpoint_of_all)
    for number, gain in enumerate(gains):
        sending.put(record(number, gain=gain))
    assert sending.close(60)
    endpoint_of_all.faults.clear()

    too_large = sending.failed - sending.refused.total()
    good = [f"e-{number}" for number, gain in enumerate(gains) if gain == 3]
    first = list(dict.fromkeys(endpoint_of_all.ids))
    assert first == [one for one in good if one in first]
    assert too_large <= faults.count(TOO_LARGE)
    assert sending.sent + sending.failed == len(gains)
    assert len(good) - len(first) <= too_large


@pytest.fixture(scope="module")
def endpoint_of_all() -> Iterator[EventsEndpoint]:
    """One endpoint for all examples of a property."""
    with events_endpoint() as found:
        yield found


# --- processes ------------------------------------------------------------------------------------


def test_the_end_of_a_process_delivers_queued_events(endpoint: EventsEndpoint) -> None:
    """A program that never closes its recorder loses nothing."""
    done = run(
        "from stream_metrics_client import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "for n in range(2000): recorder.forget(f'c-{n}')",
        endpoint.url,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert len(endpoint.accepted) == len(set(endpoint.ids)) == 2_000


def test_a_forked_child_sends_over_a_connection_of_its_own(endpoint: EventsEndpoint) -> None:
    """The parent's connection goes on, and every event arrives once."""
    done = run(
        "import os, warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)  # 3.12 warns of forks with threads\n"
        "from stream_metrics_client import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "for n in range(50): recorder.forget('before')\n"
        "assert recorder.flush(30)\n"
        "child = os.fork()\n"
        "for n in range(50): recorder.forget('after')\n"
        "ok = recorder.close(30) and recorder.sent == (50 if child == 0 else 100)\n"
        "if child == 0: os._exit(0 if ok else 1)\n"
        "assert ok and os.waitpid(child, 0)[1] == 0",
        endpoint.url,
    )

    assert done.returncode == 0, done.stderr
    assert len(endpoint.accepted) == len(set(endpoint.ids)) == 150
    assert len(endpoint.peers) == 2


def test_a_private_authority_is_trusted_by_the_usual_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``SSL_CERT_FILE``, as for other programs; without it the certificate is refused by name."""
    authority = Authority(tmp_path)
    issued = authority.issue("endpoint")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate, issued.key)
    with events_endpoint(context) as endpoint:
        found = written(endpoint, [record(1)])
        assert "CERTIFICATE_VERIFY_FAILED" in str(found.error)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        found = written(endpoint, [record(1)])

    assert (found.retry, found.error, endpoint.ids) == ([], None, ["e-1"])
