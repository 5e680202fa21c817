"""The choice of dead letters to resubmit, and resubmission that changes nothing when repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.dlq import LetterIndex, LetterSummary, parse_place
from stream_metrics.cli.dlq_resubmit import choose
from stream_metrics.cli.settings import Settings
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.letters import (
    Letter,
    RecordId,
    resubmission,
    resubmitted_mark,
)
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.readers.export import export_state
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_state_partition import NOON_S, search

TRAFFIC = TrafficProfile(seed=8, conversations=20, duration_seconds=600, invalid=0.02)
STRICT = EngineConfig(limits=replace(Limits(), results_per_event=4))


def letter(
    offset: int = 0, reason: str = "over_limit", conversation: str = "c", **more: str
) -> Letter:
    """A dead letter of a search."""
    key, value, stamp = search(conversation, offset + 1, NOON_S + offset, "a")
    headers = {
        "topic": "searches",
        "partition": 0,
        "offset": offset,
        "error.class": reason,
        "error.message": "too much",
    }
    record = Record(value, key, stamp, "searches", 0, offset)
    return Letter(record, headers | more, ("searches.dlq", 0, 100 + offset))


def read_letters(*letters: Letter) -> LetterIndex:
    """The result of reading these letters."""
    return LetterIndex({one.place: LetterSummary.of(one, Limits()) for one in letters})


def chosen(
    read: LetterIndex, reason: str | None = None, *places: RecordId, again: bool = False
) -> list[int]:
    """The offsets of the letters that would be sent."""
    choice = choose(read, reason, set(places), again=again)
    return [listed.letter.place[2] for listed in choice.letters]


def test_all_letters_are_chosen_by_default() -> None:
    """Neither reason nor partition excludes one."""
    assert chosen(read_letters(letter(0), letter(1, "invalid"))) == [0, 1]


def test_letters_are_chosen_by_reason() -> None:
    """Letters with other reasons are left."""
    assert chosen(read_letters(letter(0), letter(1, "invalid")), "invalid") == [1]


def test_letters_are_chosen_by_partition() -> None:
    """Letters of other partitions are left."""
    assert chosen(read_letters(letter(0), letter(1)), None, ("searches", 0, 1)) == [1]


@pytest.mark.parametrize("how", ["truncated", "key_truncated"])
def test_a_truncated_letter_is_skipped(how: str) -> None:
    """Its record is incomplete; the number of such letters is reported."""
    choice = choose(read_letters(letter(0), letter(1, **{how: "9999"})), None, set(), again=False)

    assert [listed.letter.place[2] for listed in choice.letters] == [0]
    assert choice.skipped == {"cut (key or value is not whole)": 1}


def test_a_letter_is_sent_once_without_again() -> None:
    """A mark of an earlier run excludes it, unless `--again` is given."""
    read = read_letters(letter(0), letter(1))
    read.resubmitted["searches", 0, 0] = "2024-06-10T12:00:00Z"

    assert chosen(read) == [1]
    assert chosen(read, again=True) == [0, 1]


def test_letters_of_forgotten_conversations_are_skipped() -> None:
    """`--again` does not change this, nor does it matter if only the value names the
    conversation."""
    stray = letter(2)
    stray = replace(stray, record=structs.replace(stray.record, key=b"another"))
    read = read_letters(letter(0), letter(1, conversation="d"), stray)
    read.forgotten["c"] = ((NOON_S + 60) * 1_000_000, "f")

    assert chosen(read) == [1]
    assert chosen(read, again=True) == [1]


def test_letters_newer_than_the_forget_are_sent() -> None:
    """A forget applies up to its version."""
    read = read_letters(letter(0), letter(5))
    read.forgotten["c"] = (NOON_S * 1_000_000 + 1, "f")

    assert chosen(read) == [5]


def test_a_record_that_is_still_invalid_never_counts_as_newer() -> None:
    """Nobody knows when an unreadable event occurred."""
    broken = letter(5)
    broken = replace(broken, record=structs.replace(broken.record, value=b"{"))
    read = read_letters(broken)
    read.forgotten["c"] = (1, "f")

    assert chosen(read) == []


def test_a_record_is_sent_unchanged() -> None:
    """It has the original key, value, partition and timestamp; a header gives its
    original offset."""
    one = letter(7)

    sent = resubmission(one)

    record = one.record
    assert (sent.topic, sent.partition) == (record.topic, record.partition)
    assert (sent.key, sent.value, sent.timestamp_ms) == (
        record.key,
        record.value,
        record.timestamp_ms,
    )
    assert sent.headers == (("stream-metrics.resubmitted_from", b"searches/0/7"),)


def test_a_mark_is_on_the_partition_of_its_letter_without_its_content() -> None:
    """It has a key of its own and no value."""
    mark = resubmitted_mark(letter(7), "2024-06-10T12:00:00Z")

    assert (mark.topic, mark.partition, mark.value) == ("searches.dlq", 0, None)
    assert mark.key == b"resubmitted searches/0/7"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "search-iterations",
        "search-iterations/1",
        "search-iterations/x/1",
        "/1/2",
        "a/1/2",
        f"search-iterations/1/{'9' * 5_000}",
    ],
)
def test_an_invalid_partition_is_refused(text: str) -> None:
    """The error says how partitions are written, or which topics exist."""
    with pytest.raises(UsageError, match=r"TOPIC/PARTITION/OFFSET|kafka\.topics"):
        parse_place(text, Settings.model_validate({}))


def test_an_offset_is_read_as_it_is_listed() -> None:
    """It consists of topic, partition and offset."""
    settings = Settings.model_validate({})

    assert parse_place("search-iterations/3/14", settings) == ("search-iterations", 3, 14)


@pytest.mark.parametrize("times", [1, 2])
async def test_resubmitted_records_count_as_if_never_refused(times: int) -> None:
    """If a raised limit accepts records on resubmission, once or twice, the figures are those of a
    replay."""
    store, letters = MemoryStore(), MemoryDeadLetters()
    records = [
        Record(record.value, record.key, record.timestamp_ms, TOPIC, 0, offset)
        for offset, record in enumerate(generate(TRAFFIC))
    ]
    strict = await opened(store, letters, cache_results=1_000, engine=STRICT)
    await strict.process(records, once)
    refused = [one.record for one in letters.letters if one.reason == "over_limit"]
    assert len(refused) > 20
    partition = await opened(store, letters, cache_results=1_000)
    for _ in range(times):
        first = partition.positions[TOPIC].offset
        again = [structs.replace(record, offset=first + n) for n, record in enumerate(refused)]
        await partition.process(again, once)

    replay = Replay()
    for record in records:
        replay.feed(record)
    now_us = 1000 * (records[-1].timestamp_ms or 0)
    export = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")
    assert [canonical(row) for row in export.rows] == [canonical(row) for row in replay.rows()]
    assert export.windows_document(now_us) == replay.windows(now_us)
