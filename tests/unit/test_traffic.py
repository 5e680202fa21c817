"""The traffic generator: reproducible bytes, the stated shares, and the published contract."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from statistics import pstdev
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.core.events import BadRecord, Limits, decode
from stream_metrics.lab.evaluation.generation import score_turns
from stream_metrics.lab.metrics.generation import AnsweredTurn
from stream_metrics.lab.traffic import (
    Incident,
    Ledger,
    TrafficProfile,
    TrafficRecord,
    endless,
    generate,
)
from stream_metrics.lab.traffic.corpus import url_variants
from stream_metrics.lab.traffic.day import DAY, INDEX_CHANGE, RECORDING, record_lines
from stream_metrics.lab.traffic.faults import INVALID_KINDS
from stream_metrics.live.kafka.partitioners import PARTITIONERS

ROOT = Path(__file__).resolve().parents[2]
PROFILE = TrafficProfile(seed=11, conversations=300)
SMALL = TrafficProfile(seed=5, conversations=40, results_per_search=4)
DIGEST = """
import hashlib
from stream_metrics.lab.traffic import TrafficProfile, generate
digest = hashlib.sha256()
for record in generate(TrafficProfile(seed=5, conversations=40, results_per_search=4)):
    digest.update(repr(tuple(record)).encode())
print(digest.hexdigest())
"""


@lru_cache(maxsize=8)
def made(profile: TrafficProfile) -> tuple[tuple[TrafficRecord, ...], Ledger]:
    """The records of a profile, and the generator's account of them."""
    ledger = Ledger()
    return tuple(generate(profile, ledger)), ledger


def events(profile: TrafficProfile) -> Iterator[tuple[TrafficRecord, dict[str, Any]]]:
    """The valid records with their events."""
    for record in made(profile)[0]:
        if record.valid:
            yield record, json.loads(record.value)


def searches(profile: TrafficProfile) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Distinct search events with their searches, in arrival order."""
    met: set[str] = set()
    for _, event in events(profile):
        if event["type"] == "search_iteration" and event["event_id"] not in met:
            met.add(event["event_id"])
            yield event, event["searches"]


def seconds(event: dict[str, Any]) -> float:
    """An event's time, in seconds of Unix time."""
    at = event["occurred_at"]
    return at if isinstance(at, float) else datetime.fromisoformat(at).timestamp()


def repeats(results: list[dict[str, Any]]) -> int:
    """Results that were shown before, by a coarse independent check of ids, places and texts."""
    met: set[tuple[str, str]] = set()
    found = 0
    for result in results:
        keys = {("id", str(v)) for k, v in result.get("ids", {}).items() if k in _DEFINITIVE}
        fields = result["fields"]
        if result["entity_type"] == "MeetingTranscript":
            keys = {("segment", str(fields["segment"]))}
        if "doc_id" in result:
            keys.add(("doc", result["doc_id"]))
        if "url" in result:
            parts = urlsplit(result["url"].casefold())
            page = (parts.hostname or "") + parts.path.rstrip("/").replace("%2d", "-")
            query = [p for p in parts.query.split("&") if p.startswith(("id=", "lang="))]
            keys.add(("url", page + "&".join(query)))
        text = " ".join(str(result.get("snippet", result.get("content", ""))).split())
        title = result["title"].casefold()
        if text:
            keys.add(("text", f"{title} {text} {fields.get('start')}"))
        keys.add(("fields", f"{title} {sorted(fields.items(), key=str)}"))
        found += not keys.isdisjoint(met)
        met |= keys
    return found


_DEFINITIVE = {
    "file_id", "article_id", "ticket_id", "email_url", "item_id", "event_id", "alias",
    "artifact_id",
}  # fmt: skip


def shares_by_agent(profile: TrafficProfile, within: tuple[float, float]) -> dict[str, float]:
    """The share of such repeats among the results of turns that began in a period (seconds)."""
    turns: dict[tuple[str, int], list[tuple[int, float, int, list[Any]]]] = defaultdict(list)
    agents: dict[str, str] = {}
    for event, found in searches(profile):
        agents[event["conversation_id"]] = event["agent"]
        for search in found:
            place = (event["iteration"], seconds(event), search["ordinal"], search["results"])
            turns[event["conversation_id"], event["turn"]].append(place)
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (conversation, _), parts in turns.items():
        parts.sort(key=lambda part: (part[0], part[2], part[1]))
        if within[0] <= min(part[1] for part in parts) - profile.start < within[1]:
            results = [result for part in parts for result in part[3]]
            totals[agents[conversation]][0] += repeats(results)
            totals[agents[conversation]][1] += len(results)
    return {agent: found / total for agent, (found, total) in totals.items() if total}


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_same_bytes_in_every_process(hash_seed: str) -> None:
    """A profile gives the same records for any hash seed of Python."""
    digest = hashlib.sha256()
    for record in generate(SMALL):
        digest.update(repr(tuple(record)).encode())
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", DIGEST]
    run = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == digest.hexdigest()


def test_another_seed_gives_other_traffic() -> None:
    """Records depend on the seed."""
    assert list(generate(SMALL)) != list(generate(replace(SMALL, seed=6)))


@pytest.mark.slow
def test_record_timestamps_never_decrease() -> None:
    """Record timestamps are in order, although conversations overlap."""
    records = made(PROFILE)[0]
    assert all(a.timestamp_ms <= b.timestamp_ms for a, b in pairwise(records))
    keys = [record.key for record in records if record.stream == "events"]
    changes = sum(a != b for a, b in pairwise(keys))
    assert changes > len(set(keys)) * 2


@pytest.mark.slow
def test_records_are_valid_exactly_if_marked_so() -> None:
    """Decoding accepts a record if and only if it is marked as valid."""
    wrong = [
        (record.valid, record.value[:80])
        for record in made(PROFILE)[0]
        if isinstance(_decoded(record), BadRecord) == record.valid
    ]
    assert wrong == []


def _decoded(record: TrafficRecord) -> object:
    return decode(
        record.value,
        key=record.key,
        timestamp_ms=record.timestamp_ms,
        limits=Limits(),
        require_key=True,
    )


def test_handles_are_unique_in_their_turn() -> None:
    """No result handle or search id occurs twice in a turn, so that no label is ambiguous."""
    handles: set[tuple[str, int, str]] = set()
    for event, found in searches(PROFILE):
        turn = (event["conversation_id"], event["turn"])
        for search in found:
            names = [search["search_id"], *(result["result_id"] for result in search["results"])]
            assert handles.isdisjoint((*turn, name) for name in names)
            handles.update((*turn, name) for name in names)


def test_every_kind_of_invalid_record_occurs() -> None:
    """With a larger share of invalid records each way of being invalid occurs."""
    _, ledger = made(replace(SMALL, conversations=200, invalid=0.2))
    assert set(ledger.invalid) == set(INVALID_KINDS)
    assert ledger.invalid.total() / ledger.total() == pytest.approx(0.2, abs=0.02)


def test_share_of_redelivered_and_invalid_records() -> None:
    """About 1% of the records are sent twice, and 0.5% are invalid, as the profile says."""
    records, ledger = made(PROFILE)
    valid = [record for record in records if record.valid]
    again = len(valid) - len({record.value for record in valid})
    assert again == ledger.redelivered
    assert 0.007 < again / len(records) < 0.013
    assert 0.003 < sum(not record.valid for record in records) / len(records) < 0.007


def test_share_of_records_out_of_order() -> None:
    """About 2% of the records arrive after a later one of their conversation and stream."""
    latest: dict[tuple[bytes | None, str], float] = {}
    met: set[bytes] = set()
    late = 0
    for record, event in events(PROFILE):
        if record.value in met:
            continue
        met.add(record.value)
        place = (record.key, record.stream)
        late += seconds(event) < latest.get(place, 0.0)
        latest[place] = max(seconds(event), latest.get(place, 0.0))
    assert late == pytest.approx(made(PROFILE)[1].out_of_order, abs=3)
    assert 0.015 < late / len(made(PROFILE)[0]) < 0.025


def test_faults_can_be_switched_off() -> None:
    """With these shares at zero no record is late, sent twice or invalid."""
    calm = replace(SMALL, out_of_order=0.0, redelivered=0.0, invalid=0.0, early_labels=0.0)
    records, ledger = made(calm)
    assert len({record.value for record in records}) == len(records)
    assert all(record.valid for record in records)
    assert ledger.out_of_order == 0


@pytest.mark.slow
def test_a_quarter_of_the_results_are_duplicates() -> None:
    """A quarter of the results repeat others of their turn, which an independent check confirms."""
    _, ledger = made(PROFILE)
    assert ledger.duplicate_share() == pytest.approx(0.25, abs=0.015)
    ways: dict[str, int] = defaultdict(int)
    for (_, way), number in ledger.duplicates.items():
        ways[way] += number
    assert ways["id"] > ways["url"] > ways["text"] > ways["fields"] > 0
    for agent, share in shares_by_agent(PROFILE, (0.0, 1e9)).items():
        assert share == pytest.approx(ledger.duplicate_share(agent), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("iterations", "share"), [((1, 4), 0.25), ((3, 12), 0.4), ((1, 8), 0.0), ((2, 2), 0.1)]
)
def test_duplicates_follow_the_profile(iterations: tuple[int, int], share: float) -> None:
    """The share of duplicates is right for other lengths of turns as well."""
    _, ledger = made(replace(PROFILE, iterations=iterations, duplicates=share))
    assert ledger.duplicate_share() == pytest.approx(share, abs=0.02)


@pytest.mark.slow
def test_an_event_has_the_stated_size() -> None:
    """An event with one search of ten results has about 4.6 kB, and its size is a parameter."""

    def mean(profile: TrafficProfile) -> float:
        sizes = [
            len(record.value)
            for record, event in events(profile)
            if event["type"] == "search_iteration"
            and [len(search["results"]) for search in event["searches"]] == [10]
        ]
        return sum(sizes) / len(sizes)

    assert mean(PROFILE) == pytest.approx(4_600, rel=0.04)
    assert mean(replace(PROFILE, conversations=100, result_bytes=900)) > 8_500


def ends(profile: TrafficProfile) -> list[dict[str, Any]]:
    """The ends of turns, in arrival order, with redelivered ones twice."""
    return [event for _, event in events(profile) if event["type"] == "turn_completed"]


def test_share_of_turns_with_reference_answers() -> None:
    """About 40% of the turns have one or two; some answers equal one, and others resemble one."""
    referenced = [event for event in ends(PROFILE) if "reference_answers" in event]

    assert len(referenced) / len(ends(PROFILE)) == pytest.approx(0.4, abs=0.05)
    assert {len(event["reference_answers"]) for event in referenced} == {1, 2}
    turns = [
        AnsweredTurn("c", 1, "a", {}, event["answer"], event["reference_answers"])
        for event in referenced
    ]
    scores = [row["scores"] for row in score_turns(turns)]
    assert 0.2 < sum(one["exact_match"] for one in scores) / len(scores) < 0.5
    assert pstdev([one["token_f1"] for one in scores]) > 0.2


def test_reference_answers_change_nothing_else() -> None:
    """Other bytes and times are the same with and without them."""
    without = made(replace(SMALL, conversations=100, reference_answers=0.0))[0]
    found = []
    for record in made(replace(SMALL, conversations=100))[0]:
        if record.valid and b'"reference_answers"' in record.value:
            head, _, tail = record.value.partition(b',"reference_answers":[')
            record = record._replace(value=head + tail[tail.index(b"]") + 1 :])
        found.append(record)

    assert [record for record in found if record.valid] == [r for r in without if r.valid]
    assert [record[:2] + record[3:] for record in found] == [r[:2] + r[3:] for r in without]


def test_labels_correlate_with_what_is_relevant() -> None:
    """Gains are 0 to 4, all of which occur, and mostly agree with grades at the end of the turn."""
    gains: dict[tuple[str, int, str], int] = {}
    documents: dict[tuple[str, int, str], str] = {}
    relevant: dict[tuple[str, int], dict[str, int]] = {}
    for _, event in events(PROFILE):
        turn = (event["conversation_id"], event["turn"])
        for label in event.get("labels", ()):
            if label["gain"] is not None:
                gains[(*turn, label["result_id"])] = label["gain"]
        if isinstance(event.get("relevant"), dict):
            relevant[turn] = event["relevant"]
        for search in event.get("searches", ()):
            for result in search["results"]:
                documents[(*turn, result["result_id"])] = result.get("doc_id", "")
    assert set(gains.values()) == {0, 1, 2, 3, 4}
    judged = [
        abs(relevant[place[:2]][doc_id] - gains[place])
        for place, doc_id in documents.items()
        if place in gains and doc_id in relevant.get(place[:2], {})
    ]
    assert len(judged) > 100
    assert sum(judged) / len(judged) < 0.3


def test_labels_can_be_switched_off() -> None:
    """Without labels there is only one stream."""
    records, _ = made(replace(SMALL, labels=False))
    assert {record.stream for record in records} == {"events"}


@pytest.mark.slow
def test_same_pages_raises_the_duplicates_of_its_agent_only() -> None:
    """The incident shows in its agent and period only."""
    incident = Incident("it-desk", 1200, 2400, "same_pages", 0.8)
    profile = replace(PROFILE, results_per_search=5, incidents=(incident,))
    during = shares_by_agent(profile, (1200, 2400))
    before = shares_by_agent(profile, (0, 1100))
    assert during.pop("it-desk") > 2 * before.pop("it-desk")
    for agent, share in (during | before).items():
        assert share == pytest.approx(0.25, abs=0.06), agent


def test_gate_skips_raise_the_skips_of_their_agent_only() -> None:
    """The incident shows in the gate decisions of its agent."""
    incident = Incident("finance-bot", 0, 3600, "gate_skips", 0.5)
    _, ledger = made(replace(SMALL, conversations=300, incidents=(incident,)))
    for agent in PROFILE.agents:
        skips, held = ledger.decisions[agent, "skip"], ledger.decisions[agent, "search"]
        share = skips / (skips + held)
        assert (share > 0.4) == (agent == "finance-bot"), (agent, share)


def test_a_stuck_router_takes_its_first_route() -> None:
    """One route gets almost all searches of the agent."""
    incident = Incident("hr-helper", 0, 3600, "router_stuck", 0.9)
    profile = replace(SMALL, conversations=300, incidents=(incident,))
    routes: dict[str, list[str]] = defaultdict(list)
    for event, found in searches(profile):
        routes[event["agent"]] += [search["routing"]["selected"] for search in found]
    shares = {agent: max(map(taken.count, taken)) / len(taken) for agent, taken in routes.items()}
    assert shares.pop("hr-helper") > 0.85
    assert max(shares.values()) < 0.6


def test_a_looping_rewriter_makes_longer_turns_that_repeat() -> None:
    """Turns have more iterations and far more duplicates."""
    incident = Incident("it-desk", 0, 1e6, "rewriter_loops", 1.0)
    profile = replace(SMALL, conversations=200, incidents=(incident,))
    last: dict[bool, list[int]] = {True: [], False: []}
    highest: dict[tuple[str, int], int] = {}
    for event, _ in searches(profile):
        turn = (event["conversation_id"], event["turn"])
        highest[turn] = max(highest.get(turn, 0), event["iteration"])
    agents = {e["conversation_id"]: e["agent"] for e, _ in searches(profile)}
    for (conversation, _), number in highest.items():
        last[agents[conversation] == "it-desk"].append(number)
    _, ledger = made(profile)

    assert min(last[True]) > 4 > min(last[False])
    assert ledger.duplicate_share("it-desk") > 2 * ledger.duplicate_share("hr-helper")


def test_an_agent_that_asks_again_sends_one_query_to_one_route() -> None:
    """All searches of a turn are its first one again, with its results; other agents vary."""
    incident = Incident("it-desk", 0, 1e6, "asks_again", 1.0)
    profile = replace(SMALL, conversations=200, invalid=0.0, incidents=(incident,))
    asked: dict[tuple[str, str, int], list[tuple[str, str]]] = defaultdict(list)
    for event, found in searches(profile):
        turn = (event["agent"], event["conversation_id"], event["turn"])
        asked[turn] += [(search["query"], search["routing"]["selected"]) for search in found]
    _, ledger = made(profile)

    looping = [of for (agent, *_), of in asked.items() if agent == "it-desk"]
    assert all(len(set(of)) <= 1 for of in looping)
    assert sum(map(len, looping)) > 8 * len(looping)
    others = [of for (agent, *_), of in asked.items() if agent != "it-desk" and len(of) > 4]
    assert sum(len(set(of)) for of in others) > 0.7 * sum(map(len, others))
    assert ledger.duplicate_share("it-desk") > 0.8


def test_searches_off_the_topic_find_little_that_is_good() -> None:
    """Inline gains of new documents are low."""
    incident = Incident("it-desk", 0, 1e6, "off_topic", 1.0)
    profile = replace(SMALL, conversations=200, inline_gains=1.0, incidents=(incident,))
    gains: dict[bool, list[int]] = {True: [], False: []}
    for event, found in searches(profile):
        for search in found:
            gains[event["agent"] == "it-desk"] += [result["gain"] for result in search["results"]]

    shares = {off: sum(gain >= 2 for gain in of) / len(of) for off, of in gains.items()}
    assert shares[True] < 0.5 * shares[False]


def test_an_empty_index_returns_nothing() -> None:
    """Searches of its agent are empty with the incident's probability; others nearly never."""
    incident = Incident("it-desk", 0, 1e6, "empty_index", 0.7)
    profile = replace(SMALL, conversations=200, incidents=(incident,))
    empty: dict[bool, list[bool]] = {True: [], False: []}
    for event, found in searches(profile):
        empty[event["agent"] == "it-desk"] += [not search["results"] for search in found]

    shares = {there: sum(of) / len(of) for there, of in empty.items()}
    assert shares[True] == pytest.approx(0.7, abs=0.05)
    assert shares[False] < 0.03


def test_a_route_without_an_index_returns_nothing() -> None:
    """Searches of the agent's first route are empty; those of its others nearly never."""
    incident = Incident("it-desk", 0, 1e6, "empty_route", 1.0)
    profile = replace(SMALL, conversations=300, incidents=(incident,))
    empty: dict[bool, list[bool]] = {True: [], False: []}
    for event, found in searches(profile):
        for search in found if event["agent"] == "it-desk" else ():
            empty[search["routing"]["selected"] == "knowledge"].append(not search["results"])

    assert all(empty[True])
    assert sum(empty[False]) < 0.03 * len(empty[False])
    assert 0.2 < len(empty[True]) / sum(map(len, empty.values())) < 0.4


def test_an_inverted_reranker_shows_the_worst_first() -> None:
    """Inline gains normally fall with the rank, and rise while the reranker is inverted."""
    incident = Incident("it-desk", 0, 1e6, "reranker_inverted", 1.0)
    profile = replace(SMALL, conversations=200, inline_gains=1.0, incidents=(incident,))
    gains: dict[bool, list[int]] = {True: [], False: []}
    for event, found in searches(profile):
        for search in found:
            shown = [result["gain"] for result in search["results"]]
            half = len(shown) // 2
            gains[event["agent"] == "it-desk"].append(sum(shown[:half]) - sum(shown[half:]))

    assert sum(gains[False]) > 0 > sum(gains[True])


def test_late_labels_are_late_for_their_agent_only() -> None:
    """They arrive at least a quarter of an hour after their iteration."""
    incident = Incident("it-desk", 0, 1e6, "labels_late", 1.0)
    profile = replace(SMALL, conversations=200, revisions=0.0, incidents=(incident,))
    agents = {e["conversation_id"]: e["agent"] for e, _ in searches(profile)}
    began: dict[tuple[str, int], float] = {}
    delays: dict[bool, list[float]] = {True: [], False: []}
    for event, _ in searches(profile):
        began.setdefault((event["conversation_id"], event["turn"]), seconds(event))
    for _, event in events(profile):
        turn = (event["conversation_id"], event["turn"])
        if event["type"] == "relevance_labels" and turn in began:
            delays[agents[turn[0]] == "it-desk"].append(seconds(event) - began[turn])
    assert min(delays[True]) > 800
    assert max(delays[False]) < 600


def test_endless_traffic_goes_on_in_event_time() -> None:
    """It continues after its period, with new conversations and the same incidents."""
    profile = replace(SMALL, conversations=20, duration_seconds=600)
    keys: set[bytes | None] = set()
    last = 0
    for record in islice(endless(profile), 2_000):
        keys.add(record.key)
        assert record.timestamp_ms >= last
        last = record.timestamp_ms
    assert last > (profile.start + 3 * 600) * 1000
    assert len(keys) > 60


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations": (0, 3)},
        {"turns": (2, 1)},
        {"duration_seconds": 0.0},
        {"agents": ()},
        {"incidents": (Incident("nobody", 0, 1, "same_pages"),)},
    ],
)
def test_impossible_profiles_are_refused(changes: dict[str, Any]) -> None:
    """A profile that cannot be generated is an error when it is created."""
    with pytest.raises(ValueError, match=r"."):
        replace(PROFILE, **changes)


def test_url_variants_differ_in_writing_only() -> None:
    """Every variant of an address is a different text with the same host and path."""
    url = "https://help.brightharbor.example/articles/hb-20001?lang=en"
    variants = url_variants(url)
    assert len({url, *variants}) == len(variants) + 1
    for variant in variants:
        parts = urlsplit(variant)
        assert parts.hostname == "help.brightharbor.example"
        assert parts.path.rstrip("/").replace("%2d", "-") == "/articles/hb-20001"
        assert "lang=en" in parts.query


@pytest.mark.slow
def test_day_is_current() -> None:
    """The bundled recording equals the generator's output, byte for byte once decompressed."""
    assert gzip.decompress(RECORDING.read_bytes()) == b"".join(record_lines(generate(DAY)))
    assert RECORDING.stat().st_size < 1_600_000


def test_day_is_a_recording() -> None:
    """Offsets begin at zero in every partition, and keys are in Kafka's partitions."""
    next_offset: dict[tuple[str, int], int] = defaultdict(int)
    bare = 0
    for line in gzip.decompress(RECORDING.read_bytes()).splitlines():
        record = json.loads(line)
        place = (record["topic"], record["partition"])
        assert record["offset"] == next_offset[place]
        next_offset[place] += 1
        assert record["partition"] == PARTITIONERS["murmur2"](record["key"].encode(), 4)
        bare += "value_base64" in record
    topics = ("relevance-labels", "search-iterations")
    assert sorted(next_offset) == [(topic, number) for topic in topics for number in range(4)]
    assert bare > 0


@pytest.mark.slow
def test_day_has_its_incident() -> None:
    """After the index change it-desk repeats twice as much as before, and others as before."""
    span = (INDEX_CHANGE.from_seconds, INDEX_CHANGE.to_seconds)
    during = shares_by_agent(DAY, span)
    before = shares_by_agent(DAY, (0.0, span[0] - 300))
    assert during.pop("it-desk") > 2 * before.pop("it-desk")
    assert max((during | before).values()) < 0.3


@pytest.mark.parametrize("to_file", [True, False])
def test_generate_says_what_it_wrote(tmp_path: Path, to_file: bool) -> None:
    """Standard error has the number of records and the file; standard output has only records."""
    file = tmp_path / "traffic.jsonl"
    out = str(file) if to_file else "-"

    done = CliRunner().invoke(app, ["generate", "--conversations", "2", "--out", out])

    written = (file.read_text() if to_file else done.stdout).splitlines()
    where = file if to_file else "standard output"
    assert done.stderr == f"{len(written)} records written to {where}\n"
