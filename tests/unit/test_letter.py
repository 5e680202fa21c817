"""A dead letter printed in full, and the times of letters."""

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
from stream_metrics.live.letters import Letter
from tests.unit.test_dlq import letter, read_letters

NOON_MS = 1_718_020_800_000


def holding(value: bytes | None, key: bytes | None = b"c") -> Letter:
    """A letter of a record with this value."""
    one = letter(3)
    return replace(one, record=structs.replace(one.record, value=value, key=key))


def lines(value: bytes | None, key: bytes | None = b"c") -> list[str]:
    """The printed lines about it."""
    return page(holding(value, key), "")[0]


def body(value: bytes) -> list[str]:
    """The printed value."""
    shown = lines(value)
    return [line[2:] for line in shown[shown.index(f"value ({len(value):,} bytes)") + 1 :]]


def test_json_is_indented_and_otherwise_unchanged() -> None:
    """Repeated names, long numbers and escapes stay, because they may be the problem."""
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
    """This applies to numbers that are times, as those of traced turns are."""
    assert f"turn       {shown}" in lines(json.dumps({"turn": turn, "other": [{}]}).encode())


@pytest.mark.parametrize("value", [b"{}", b'{"turn": "1"}', b'{"turn": 1e400}', b"\xff", None])
def test_a_value_without_a_turn_shows_none(value: bytes | None) -> None:
    """It may hold anything else in its place."""
    assert not [line for line in lines(value) if line.startswith("turn ")]


def test_text_that_is_not_json_is_escaped() -> None:
    """It contains nothing that a terminal interprets."""
    assert body("no json\x1b[2J\u202e\nline".encode()) == [r"no json\x1b[2J\u202e", "line"]


def test_bytes_that_are_not_text_are_hexadecimal() -> None:
    """They are printed as hexdump prints them."""
    assert body(b"\xff\x00A" + bytes(14)) == [
        "00000000  ff 00 41 00 00 00 00 00 00 00 00 00 00 00 00 00  ..A.............",
        f"00000010  {'00':48} .",
    ]


def test_hostile_nesting_takes_little_memory() -> None:
    """A million characters, each indented by a thousand spaces, would be a gigabyte."""
    value = b"[" * 900 + b",".join([b"1"] * 100_000) + b"]" * 900

    tracemalloc.start()
    shown, cut = page(holding(value), "")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (sum(map(len, shown)) < 200_000, cut) == (True, ["value"])
    assert peak < 20 * len(value)


@pytest.mark.parametrize("byte", [b"x", b"\xff"])
def test_a_very_long_value_is_truncated_for_people_only(byte: bytes) -> None:
    """The text is bounded and says what is missing; the JSON has everything."""
    one = holding(byte * 1_000_000)

    shown, cut = page(one, "")
    told = document(one, "")

    assert sum(map(len, shown)) < 200_000
    assert cut == ["value"]
    whole = told["value"].encode() if "value" in told else b64decode(told["value_base64"])
    assert whole == one.record.value


def test_headers_and_offsets_are_shown_and_escaped() -> None:
    """They are the offsets of record and letter, the time and the reason."""
    one = replace(letter(3, **{"error.message": "bad\x1b[2J"}), written_ms=NOON_MS)

    shown, _ = page(one, "re-submitted 2024")

    assert shown[0] == "record     searches/0/3"
    assert "letter     searches.dlq/0/103" in shown
    assert "seen       2024-06-10T12:00:00.000Z" in shown
    assert "state      re-submitted 2024" in shown
    assert r"  error.message: bad\x1b[2J" in shown


def test_a_missing_key_or_value_differs_from_an_empty_one() -> None:
    """The text says that there is none."""
    assert {"key (none)", "value (none)"} <= set(lines(None, None))
    assert {"key (0 bytes)", "value (0 bytes)"} <= set(lines(b"", b""))
    assert document(holding(None, None), "")["value"] is None


def test_the_json_holds_the_same_record() -> None:
    """A program can read it."""
    one = holding(b"{}")

    told = json.loads(json.dumps(document(one, "cut")))

    assert (told["topic"], told["partition"], told["offset"]) == one.place
    assert (told["key"], told["value"], told["state"]) == ("c", "{}", "cut")


def test_the_list_has_the_first_and_last_time_of_each_reason() -> None:
    """This is per topic and reason, and some letters may have no time."""
    came = [(0, "not_json", NOON_MS + 2_000), (1, "not_json", NOON_MS), (2, "over_limit", None)]
    read = read_letters(*(replace(letter(at, why), written_ms=ms) for at, why, ms in came))
    out = StringIO()

    Console(file=out, width=200).print(summary_of(read.letters.values()))

    assert [line.split() for line in out.getvalue().splitlines()[1:]] == [
        ["searches", "not_json", "2", "2024-06-10T12:00:00.000Z", "2024-06-10T12:00:02.000Z"],
        ["searches", "over_limit", "1"],
    ]


@pytest.mark.parametrize("place", [["searches"], ["search-iterations", "1"], ["other", "0", "1"]])
def test_an_invalid_letter_is_refused(place: list[str]) -> None:
    """It is refused before anything is read."""
    done = CliRunner().invoke(app, ["dlq", "show", *place])

    assert "letter" in str(done.exception)
    assert "TOPIC/PARTITION/OFFSET" in str(done.exception) or "kafka.topics" in str(done.exception)
