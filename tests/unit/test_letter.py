"""A dead letter that is printed whole, and when letters came."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64decode
from dataclasses import replace
from io import StringIO

import pytest
from msgspec import structs
from rich.console import Console
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.dlq import summary_of
from stream_metrics.cli.dlq_show import document, page
from stream_metrics.live.kafka.dead_letter_reader import Letter
from tests.unit.test_dlq import letter, read_letters

NOON_MS = 1_718_020_800_000


def holding(value: bytes | None, key: bytes | None = b"c") -> Letter:
    """A letter of a record with this value."""
    one = letter(3)
    return replace(one, record=structs.replace(one.record, value=value, key=key))


def lines(value: bytes | None, key: bytes | None = b"c") -> list[str]:
    """The page about it."""
    return page(holding(value, key), "")[0]


def body(value: bytes) -> list[str]:
    """What the page shows of the value."""
    shown = lines(value)
    return [line[2:] for line in shown[shown.index(f"value ({len(value):,} bytes)") + 1 :]]


def test_json_is_indented_and_otherwise_as_it_was_sent() -> None:
    """Repeated names, long numbers and escapes stay: they may be what was wrong."""
    value = rb'{"a":1.50,"a":[12345678901234567890123],"b":"\u001b[2J"}'

    assert body(value) == [
        "{",
        '  "a": 1.50,',
        '  "a": [',
        "    12345678901234567890123",
        "  ],",
        r'  "b": "\u001b[2J"',
        "}",
    ]


@pytest.mark.parametrize(
    ("turn", "shown"),
    [(3, "3"), (1_718_020_800_000_000, "1718020800000000 (2024-06-10 12:00:00Z)")],
)
def test_the_turn_of_an_event_is_shown_with_its_time(turn: int, shown: str) -> None:
    """Where its number is a time, as those of traced turns are."""
    assert f"turn       {shown}" in lines(json.dumps({"turn": turn, "other": [{}]}).encode())


@pytest.mark.parametrize("value", [b"{}", b'{"turn": "1"}', b'{"turn": 1e400}', b"\xff", None])
def test_a_value_without_a_turn_shows_none(value: bytes | None) -> None:
    """Whatever it is instead."""
    assert not [line for line in lines(value) if line.startswith("turn ")]


def test_text_that_is_no_json_is_escaped() -> None:
    """No terminal acts on anything of it."""
    assert body("no json\x1b[2J\u202e\nline".encode()) == [r"no json\x1b[2J\u202e", "line"]


def test_bytes_that_are_no_text_are_hexadecimal() -> None:
    """As hexdump prints them."""
    assert body(b"\xff\x00A" + bytes(14)) == [
        "00000000  ff 00 41 00 00 00 00 00 00 00 00 00 00 00 00 00  ..A.............",
        f"00000010  {'00':48} .",
    ]


def test_hostile_nesting_takes_no_memory() -> None:
    """A million characters, each on a line of its own behind a thousand spaces, are a gigabyte."""
    value = b"[" * 900 + b",".join([b"1"] * 100_000) + b"]" * 900

    tracemalloc.start()
    shown, cut = page(holding(value), "")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (sum(map(len, shown)) < 200_000, cut) == (True, ["value"])
    assert peak < 20 * len(value)


@pytest.mark.parametrize("byte", [b"x", b"\xff"])
def test_a_very_long_value_is_cut_for_people_only(byte: bytes) -> None:
    """The page is bounded and says what is cut; the document for programs has everything."""
    one = holding(byte * 1_000_000)

    shown, cut = page(one, "")
    told = document(one, "")

    assert sum(map(len, shown)) < 200_000
    assert cut == ["value"]
    whole = told["value"].encode() if "value" in told else b64decode(told["value_base64"])
    assert whole == one.record.value


def test_headers_and_state_are_told_and_escaped() -> None:
    """Where the record stood, where the letter lies, when it came, and why."""
    one = replace(letter(3, **{"error.message": "bad\x1b[2J"}), written_ms=NOON_MS)

    shown, _ = page(one, "re-submitted 2024")

    assert shown[0] == "record     searches/0/3"
    assert "letter     searches.dlq/0/103" in shown
    assert "seen       2024-06-10T12:00:00.000Z" in shown
    assert "state      re-submitted 2024" in shown
    assert r"  error.message: bad\x1b[2J" in shown


def test_a_record_without_key_and_value_has_none() -> None:
    """That differs from an empty one."""
    assert {"key (none)", "value (none)"} <= set(lines(None, None))
    assert {"key (0 bytes)", "value (0 bytes)"} <= set(lines(b"", b""))
    assert document(holding(None, None), "")["value"] is None


def test_a_document_is_json() -> None:
    """A program reads the same record from it."""
    one = holding(b"{}")

    told = json.loads(json.dumps(document(one, "cut")))

    assert (told["topic"], told["partition"], told["offset"]) == one.place
    assert (told["key"], told["value"], told["state"]) == ("c", "{}", "cut")


def test_the_list_says_when_letters_of_a_reason_came() -> None:
    """The first and the last of each topic and reason, also where some have no time."""
    came = [(0, "not_json", NOON_MS + 2_000), (1, "not_json", NOON_MS), (2, "over_limit", None)]
    read = read_letters(*(replace(letter(at, why), written_ms=ms) for at, why, ms in came))
    out = StringIO()

    Console(file=out, width=200).print(summary_of(read.letters.values()))

    assert [line.split() for line in out.getvalue().splitlines()[1:]] == [
        ["searches", "not_json", "2", "2024-06-10T12:00:00.000Z", "2024-06-10T12:00:02.000Z"],
        ["searches", "over_limit", "1"],
    ]


@pytest.mark.parametrize("place", [["searches"], ["search-iterations", "1"], ["other", "0", "1"]])
def test_a_letter_that_cannot_be_is_refused(place: list[str]) -> None:
    """Before anything is read."""
    done = CliRunner().invoke(app, ["dlq", "show", *place])

    assert "letter" in str(done.exception)
    assert "TOPIC/PARTITION/OFFSET" in str(done.exception) or "kafka.topics" in str(done.exception)
