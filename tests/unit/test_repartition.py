"""Repartitioning: keys, dead letters, waiting, and the progress that workers may rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from pydantic import ValidationError

from stream_metrics.clients.kafka.records import copy_headers, origin_of
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events import BadRecord, Limits, decode
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import Headers, Origin, Record
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.internal_topic import filled_up_to_ms
from stream_metrics.live.kafka.topic_config import topic_config_problems
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import RepartitionUnavailable
from stream_metrics.live.worker.inputs import commit_note
from stream_metrics.live.worker.lag import MIN_TIMESTAMPS, LogLag
from stream_metrics.live.worker.repartition import Repartitioner, route
from stream_metrics.live.worker.retry import ComponentReasons, RetryPolicy
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_bad_input import OK, TABLE, Row

NOW_MS = 1_718_020_800_000
DAY_MS = 86_400_000
PLACE = TopicPartition("internal", 0)


# --- keys and dead letters ------------------------------------------------------------------------


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_record_is_judged_once(row: Row) -> None:
    """A record without a conversation is rejected for the reason that a worker would give; any
    other is copied under a key with which the worker judges it by its value alone."""
    limits = Limits()
    copies, letters = route([Record(row.value, row.key, row.timestamp_ms, "t", 2, 7)], limits)

    expected = decode(row.value, timestamp_ms=row.timestamp_ms, limits=limits)
    reasons = [letter.reason for letter in letters]
    for copy in copies:
        found = decode(
            copy.value,
            key=copy.key,
            timestamp_ms=copy.timestamp_ms,
            limits=limits,
            require_key=True,
        )
        reasons.append(found.reason if isinstance(found, BadRecord) else OK)
        assert copy.produced == Record(row.value, row.key, row.timestamp_ms, "t", 2, 7)
    assert reasons == [expected.reason if isinstance(expected, BadRecord) else OK]


async def test_a_dead_letter_of_a_copy_is_that_of_its_record() -> None:
    """It has the producer's partition, offset and key."""
    letters = MemoryDeadLetters()
    partition = await opened(MemoryStore(), letters, 10)
    origin = Origin("searches", 3, 14, None)
    copy = Record(b'{"conversation_id": "c"}', b"c", NOW_MS, TOPIC, 0, 0, origin=origin)

    await partition.process([copy], once)

    sent = Record(copy.value, None, NOW_MS, "searches", 3, 14)
    assert [letter.record for letter in letters.letters] == [sent]


FORGED = (
    ("stream-metrics.repartitioned_from", b"former/0/0"),
    ("trace", b"t-1"),
    ("stream-metrics.repartitioned_key", b"another"),
)


@pytest.mark.parametrize("before", [(), FORGED], ids=["none", "forged"])
@pytest.mark.parametrize("key", [b"c-1", None, b"", b"trace-9"])
def test_a_copy_has_the_origin_in_its_headers(key: bytes | None, before: Headers) -> None:
    """They have partition, offset and key of its record, whatever headers a producer gave it; other
    headers are passed on."""
    origin = Origin("searches", 3, 14, key)
    headers = copy_headers(Record(None, b"c-1", headers=before, origin=origin))

    assert origin_of(headers, b"c-1") == origin
    assert [name for name, _ in headers].count("trace") == len(before[:1])


@pytest.mark.parametrize("value", [None, b"", b"searches", b"searches/x/1", b"/0/1", b"\xff/1"])
def test_a_record_without_a_valid_origin_has_none(value: bytes | None) -> None:
    """A malformed header is ignored."""
    assert origin_of((("stream-metrics.repartitioned_from", value),), b"c") is None
    assert origin_of((), b"c") is None


# --- waiting --------------------------------------------------------------------------------------


class Round:
    """A scripted source with one round, and a topic that is unavailable at first; records calls."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.failures = 2

    async def fetch(self) -> list[Record]:
        """A record to copy and one to reject."""
        self.happened.append("fetch")
        good = Record(b'{"conversation_id": "c"}', None, NOW_MS, "searches", 0, 0)
        return [good, Record(b"junk", None, NOW_MS, "searches", 0, 1)]

    async def commit(self) -> None:
        """The group moves on."""
        self.happened.append("taken")

    async def send(self, records: Sequence[Any]) -> None:
        """Copies or letters, told apart by what they are."""
        if not isinstance(records[0], Record):
            self.happened.append("letters")
            return
        if self.failures:
            self.failures -= 1
            raise RepartitionUnavailable("it is away")
        self.happened.append("copies")

    def bad_records(self, counts: Counter[str]) -> None:
        """Counts of letters."""
        assert counts == {"not_json": 1}

    def bug(self, bug: Bug) -> None:
        """There is none."""
        raise AssertionError(bug)

    def repartitioned(self, counts: Counter[str]) -> None:
        """Counts of copies."""
        assert counts == {"searches": 1}


async def test_positions_move_after_everything_is_stored() -> None:
    """While the internal topic is unavailable the round waits with a reason; then it is written
    once."""
    made, health = Round(), Health(reasons={})
    seen: list[dict[str, str]] = []

    class Watched(RetryPolicy):
        async def pause(self, seconds: float) -> None:
            seen.append(dict(health.reasons))

    retry = Watched(ComponentReasons("repartition", health), lambda: None)
    await Repartitioner(made, made, made, partial(route, limits=Limits()), retry, made).turn()

    assert seen == [{"repartition_topic": "it is away"}] * 2
    assert made.happened == ["fetch", "letters", "copies", "taken"]
    assert health.reasons == {}


# --- progress -------------------------------------------------------------------------------------


def test_progress_counts_ends_that_were_passed() -> None:
    """In a merged topic, older records may follow the newest.

    Each passed end counts for the time at which it was the end.
    """
    lag = LogLag(in_order=False)
    assert lag.read_up_to_ms(0) is None
    lag.set_end(10, NOW_MS - 3 * DAY_MS)
    lag.read([NOW_MS] * MIN_TIMESTAMPS, NOW_MS)
    assert lag.read_up_to_ms(9) == 0
    lag.set_end(20, NOW_MS - 2 * DAY_MS)
    lag.set_end(30, NOW_MS - DAY_MS)

    assert lag.read_up_to_ms(9) == 0
    assert lag.read_up_to_ms(29) == NOW_MS - 2 * DAY_MS
    assert lag.read_up_to_ms(30) == NOW_MS - DAY_MS


def test_an_end_is_reached_while_the_log_grows() -> None:
    """Newer ends do not replace the next one to reach."""
    lag = LogLag(in_order=False)
    for number in range(1, 50):
        lag.set_end(10 * number, NOW_MS + number)
        assert lag.read_up_to_ms(10 * number - 5) == (NOW_MS + number - 1 if number > 1 else 0)


def test_a_position_may_go_back() -> None:
    """After the store went back, an end that had been passed does not count any more."""
    lag = LogLag(in_order=False)
    lag.set_end(10, NOW_MS - DAY_MS)
    assert lag.read_up_to_ms(10) == NOW_MS - DAY_MS
    assert lag.read_up_to_ms(4) == 0


def test_an_end_holds_no_longer_than_what_is_behind_it_shows() -> None:
    """If a clock was set back, older records follow an end; until the next end, no later time is
    known than theirs."""
    lag = LogLag(in_order=False)
    lag.set_end(10, NOW_MS)
    lag.check([Record(None, None, NOW_MS - 500, "searches", 0, 9)])
    assert lag.no_earlier_ms(10) == NOW_MS

    lag.check([Record(None, None, NOW_MS - DAY_MS, "searches", 0, 10)])
    assert lag.no_earlier_ms(11) == NOW_MS - DAY_MS
    assert lag.read_up_to_ms(11) == NOW_MS

    lag.set_end(11, NOW_MS - DAY_MS + 1)
    assert lag.no_earlier_ms(11) == NOW_MS - DAY_MS + 1


COMMITS = {
    TopicPartition("searches", 0): OffsetAndMetadata(5, commit_note(NOW_MS)),
    TopicPartition("searches", 1): OffsetAndMetadata(5, commit_note(NOW_MS - 7)),
    TopicPartition("labels", 0): OffsetAndMetadata(0, commit_note(NOW_MS - 3)),
}


def test_the_partition_that_is_furthest_behind_counts() -> None:
    """The internal topic is complete up to the progress of the slowest input partition."""
    assert filled_up_to_ms({"searches": 2, "labels": 1}, COMMITS) == NOW_MS - 7


@pytest.mark.parametrize(
    ("counts", "changed"),
    [
        ({"searches": 3, "labels": 1}, {}),
        ({"searches": 2, "labels": 0}, {}),
        ({"searches": 2}, {TopicPartition("searches", 0): OffsetAndMetadata(5, "")}),
        ({"searches": 2}, {TopicPartition("searches", 0): OffsetAndMetadata(5, "another's")}),
    ],
    ids=["no commit", "no topic", "no note", "another note"],
)
def test_unknown_progress_stops_record_time(
    counts: dict[str, int], changed: dict[TopicPartition, OffsetAndMetadata]
) -> None:
    """A partition without a known position counts as incomplete."""
    assert filled_up_to_ms(counts, {**COMMITS, **changed}) == 0


# --- settings and configuration -------------------------------------------------------------------


def test_state_is_built_from_the_internal_topic() -> None:
    """The setting decides what workers read, and their group contains its name."""
    plain = KafkaSettings(topics=("a", "b"))
    assert plain.state_topics == ("a", "b")
    repartitioned = KafkaSettings(topics=("a", "b"), repartition_topic="c")
    assert repartitioned.state_topics == ("c",)
    assert repartitioned.repartition_group == "c"


@pytest.mark.parametrize("name", ["a", "a.dlq", "out"])
def test_the_internal_topic_differs_from_all_others(name: str) -> None:
    """It is neither an input nor an output."""
    with pytest.raises(ValidationError, match="repartition_topic"):
        KafkaSettings(topics=("a",), output_topic="out", repartition_topic=name)


INPUT = {
    "cleanup.policy": "compact",
    "retention.ms": "1000",
    "max.message.bytes": "100",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "50",
}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, []),
        ({"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": "101"}, []),
        ({"retention.ms": "999"}, ["retention.ms is 999"]),
        ({"retention.bytes": "5"}, ["retention.bytes is set"]),
        ({"max.message.bytes": "99"}, ["max.message.bytes is 99"]),
        ({"message.timestamp.after.max.ms": "49"}, ["message.timestamp.after.max.ms is 49"]),
        ({"message.timestamp.type": "LogAppendTime"}, ["message.timestamp.type is LogAppend"]),
        ({"cleanup.policy": "compact,delete"}, ["cleanup.policy is compact,delete"]),
    ],
)
def test_the_configuration_of_the_internal_topic_is_checked(
    changed: dict[str, str], named: list[str]
) -> None:
    """Every setting that would drop, refuse or restamp copies is named."""
    internal = {**INPUT, "cleanup.policy": "delete", **changed}

    found = topic_config_problems(internal, [INPUT, {**INPUT, "retention.ms": "10"}])

    assert [text[: len(start)] for text, start in zip(found, named, strict=True)] == named


def test_copies_are_kept_as_long_as_the_input() -> None:
    """If an input topic keeps records forever, the internal one must, too."""
    found = topic_config_problems({"retention.ms": "5"}, [INPUT, {"retention.ms": "-1"}])

    assert [text.endswith("set it to -1") for text in found] == [True]
