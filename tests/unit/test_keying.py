"""The detection of producers' partitioners from the keys on topics."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from stream_metrics.cli.keys import key_findings
from stream_metrics.core.events.record import Record
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.worker.keying import (
    CHANCE,
    LEAST_KEYS,
    SAMPLE_KEYS,
    Keying,
    KeyMonitor,
    KeySample,
    chance,
    keyed_differently,
)

COUNTS = st.integers(1, 200)
NAMES = st.sampled_from(sorted(PARTITIONERS))
KEYS = st.lists(st.binary(min_size=1, max_size=40), min_size=0, max_size=120, unique=True)


def keys(count: int, first: int = 0) -> list[bytes]:
    """Conversations' ids."""
    return [b"conversation-%d" % n for n in range(first, first + count)]


def placed(
    by: str, count: int, chosen: Iterable[bytes], topic: str = "searches", value: bytes = b"{}"
) -> list[Record]:
    """Records of these keys on the partitions that the partitioner chooses."""
    place = PARTITIONERS[by]
    return [Record(value, key, 0, topic, place(key, count)) for key in chosen]


def sample(count: int, records: Iterable[Record]) -> KeySample:
    """A sample of all records."""
    found = KeySample(count, PARTITIONERS)
    for record in records:
        found.add(record)
    return found


def keying(by: str, count: int, chosen: Iterable[bytes]) -> Keying:
    """The verdict on keys that one partitioner has placed."""
    return sample(count, placed(by, count, chosen)).keying


@given(NAMES, COUNTS, KEYS, KEYS)
def test_topics_with_one_partitioner_never_differ(
    by: str, count: int, one: list[bytes], other: list[bytes]
) -> None:
    """For any keys, that partitioner matches if any does."""
    found = {"one": keying(by, count, one), "other": keying(by, count, other)}

    assert not keyed_differently(found)
    assert all(
        by in each.matching_partitioners for each in found.values() if each.matching_partitioners
    )


@pytest.mark.parametrize("count", [2, 3, 4, 8, 12, 100])
@pytest.mark.parametrize(
    ("one", "other"), [pair for pair in product(PARTITIONERS, repeat=2) if pair[0] != pair[1]]
)
def test_topics_with_different_partitioners_differ(one: str, other: str, count: int) -> None:
    """They do from the number of keys on that the first one requires."""
    needed = keying(one, count, ()).keys_needed
    assert needed is not None
    enough = keying(one, count, keys(needed)), keying(other, count, keys(needed))
    few = keying(one, count, keys(needed - 1)), keying(other, count, keys(needed - 1))

    assert keyed_differently(dict(zip("ab", enough, strict=True)))
    assert not keyed_differently(dict(zip("ab", few, strict=True)))


@pytest.mark.parametrize("count", [2, 3, 8])
def test_keys_placed_at_random_match_no_partitioner(count: int) -> None:
    """This holds for samples of any size."""
    draw = random.Random(count)
    found = KeySample(count, PARTITIONERS)
    for key in keys(3_000):
        found.add(Record(b"{}", key, 0, "searches", draw.randrange(count)))
        assert not found.keying.matching_partitioners


@pytest.mark.parametrize(("count", "size"), [(2, 6), (3, 5), (4, 4)])
def test_the_chance_equals_the_count_over_all_placements(count: int, size: int) -> None:
    """It is the share of equally likely placements that agree with a given one at least
    as often."""
    placements = list(product(range(count), repeat=size))
    for agreeing in range(size + 1):
        by_counting = sum(each.count(0) >= agreeing for each in placements) / len(placements)
        assert chance(count, size, agreeing) == pytest.approx(by_counting, rel=1e-12)


@pytest.mark.parametrize("count", [2, 3, 4, 8, 100])
def test_a_false_difference_is_less_likely_than_one_in_a_trillion(count: int) -> None:
    """A worker checks after each key.

    Over all sizes of a growing sample and all partitioners, keys placed at random match one in
    fewer than one of a million cases; for two topics to differ both have to.
    """
    total = 0.0
    for size in range(LEAST_KEYS, SAMPLE_KEYS + 1):
        matching = [
            n for n in range(size + 1) if Keying(count, size, {"x": n}).matching_partitioners
        ]
        total += chance(count, size, min(matching)) if matching else 0.0

    assert 0 < (total * len(PARTITIONERS)) ** 2 < 1e-12
    assert chance(count, SAMPLE_KEYS, int(0.95 * SAMPLE_KEYS)) < CHANCE**3


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, hash_code: int) -> None:
    """The cases are those of ``UtilsTest.testMurmur2`` in Apache Kafka."""
    assert PARTITIONERS["murmur2"](key, 1 << 31) == hash_code & 0x7FFFFFFF


def test_a_few_misplaced_keys_do_not_hide_the_partitioner() -> None:
    """Records sent by hand are such keys; one in ten is too many."""
    records = placed("crc32", 8, keys(190)) + placed("murmur2", 8, keys(10, 1_000))
    assert sample(8, records).keying.matching_partitioners == {"crc32"}

    records = placed("crc32", 8, keys(180)) + placed("murmur2", 8, keys(20, 1_000))
    assert sample(8, records).keying.matching_partitioners == frozenset()


def test_a_sample_counts_each_key_once() -> None:
    """Repeated keys prove nothing more, and a forget is sent to every partition."""
    once = placed("crc32", 4, keys(30))
    wrong = [Record(b"{}", None, 0, "searches", 1)]
    forgets = [Record(b'{"type": "forget"}', b"f-%d" % n, 0, "searches", 1) for n in range(9)]

    found = sample(4, [*once, *wrong, *forgets, *once])

    assert (found.keying.keys, found.without_key) == (30, 1)
    assert found.keying.agreeing["crc32"] == 30


def test_a_full_sample_follows_the_producer() -> None:
    """The latest keys count, so that a corrected producer is noticed."""
    found = sample(4, placed("crc32", 4, keys(5_000)))
    assert (found.full, found.keying.keys) == (True, SAMPLE_KEYS)

    for record in placed("murmur2", 4, keys(SAMPLE_KEYS, 10_000)):
        found.add(record)

    assert found.keying.matching_partitioners == {"murmur2"}


def test_a_key_counts_on_its_latest_partition() -> None:
    """A corrected producer is noticed even if the same conversations continue forever."""
    found = sample(4, placed("crc32", 4, keys(100)))

    for record in placed("murmur2", 4, keys(100)):
        found.add(record)

    assert found.keying.keys == 100
    assert found.keying.matching_partitioners == {"murmur2"}


def test_a_worker_logs_a_difference_once_and_its_end_once() -> None:
    """This holds however often it checks, and even if labels are few."""
    told: list[bool] = []
    watch = KeyMonitor(told.append, PARTITIONERS)
    counts = {"searches": 4, "labels": 4}
    with capture_logs() as logs:
        watch.check()
        watch.add(placed("crc32", 4, keys(500)), counts)
        watch.add(placed("murmur2", 4, keys(30), "labels"), counts)
        watch.check()
        watch.check()
        for n in range(SAMPLE_KEYS):
            watch.add(placed("murmur2", 4, keys(3, 1_000 + 3 * n)), counts)
        watch.check()

    assert told == [False, True, True, False]
    warning, information = logs
    assert warning["log_level"] == "warning"
    assert warning["partitioners"] == {"searches": ["crc32"], "labels": ["murmur2"]}
    assert "no longer" in information["event"]


def test_a_single_topic_cannot_differ() -> None:
    """The internal topic of workers that repartition is such a topic."""
    told: list[bool] = []
    watch = KeyMonitor(told.append, PARTITIONERS)
    watch.add(placed("crc32", 4, keys(100)), {"searches": 4})
    watch.check()

    assert told == [False]


def test_added_partitions_reset_the_samples() -> None:
    """Keys placed with fewer partitions would look like another partitioner's."""
    told: list[bool] = []
    watch = KeyMonitor(told.append, PARTITIONERS)
    watch.add(placed("crc32", 4, keys(100)), {"searches": 4, "labels": 4})
    watch.add(placed("murmur2", 8, keys(100), "labels"), {"searches": 8, "labels": 8})
    watch.check()

    assert told == [False]


def test_check_names_the_partitioner_of_each_topic_and_the_difference() -> None:
    """It is an error only if two known partitioners differ, and the error says what to do."""
    samples = {
        "searches": sample(4, placed("crc32", 4, keys(60))),
        "labels": sample(4, placed("murmur2", 4, keys(60), "labels")),
    }

    searches, labels, both = key_findings(samples)

    assert (searches.state, labels.state, both.state) == ("ok", "ok", "error")
    assert "CRC-32 (librdkafka's default): 60 of 60 keys" in searches.message
    assert "murmur2 (the Java client" in labels.message
    assert "searches by crc32, labels by murmur2" in both.message
    assert "partitioner=murmur2_random" in both.message


def test_check_warns_if_it_cannot_tell() -> None:
    """Too few keys, an unknown partitioner and missing keys are warnings; one partition is fine."""
    mixed = placed("crc32", 4, keys(50)) + placed("murmur2", 4, keys(50, 500))
    mixed.append(Record(b"{}", None, 0, "mixed", 0))
    samples = {
        "few": sample(4, placed("crc32", 4, keys(11))),
        "mixed": sample(4, mixed),
        "one": sample(1, placed("crc32", 1, keys(60))),
    }

    few, unknown, without_key, one = key_findings(samples)

    assert (few.state, few.message[:2]) == ("warning", "11")
    assert "12 are needed" in few.message
    assert (unknown.state, "no known partitioner explains all keys" in unknown.message) == (
        "warning",
        True,
    )
    assert (without_key.state, "1 of the latest" in without_key.message) == ("warning", True)
    assert one.state == "ok"


def test_check_refuses_keys_on_several_partitions() -> None:
    """Round-robin, the default of some clients, splits conversations; one conversation in twenty is
    tolerated."""
    spread = [Record(b"{}", key, 0, "spread", n % 4) for n, key in enumerate(keys(61) * 3)]
    strays = placed("crc32", 4, keys(100)) + placed("murmur2", 4, keys(5))

    torn, fine = key_findings({"spread": sample(4, spread), "fine": sample(4, strays)})

    assert torn.state == "error"
    assert "61 of 61 keys are on several partitions" in torn.message
    assert fine.state == "ok"
