"""The exporter: window gauges and operational metrics as Prometheus reads them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

import stream_metrics
from stream_metrics.core.alerts.obstacles import WORKER
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.engine.cells import CODES, escape, split_code
from stream_metrics.core.engine.changes import OUTCOMES, Observations
from stream_metrics.core.engine.codec import decode_sums, encode_sums
from stream_metrics.core.engine.config import MAX_RETRIEVAL, OTHER
from stream_metrics.core.engine.series import PREFIX
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window, window_specs
from stream_metrics.core.engine.window_sums import window_rows
from stream_metrics.core.engine.windows import Names, Windows
from stream_metrics.core.events.decode import REASONS
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.live.prometheus.catalogue import (
    CONVERSATION_SOURCES,
    COUNTS,
    ENTITY_TYPES,
    KEY_KINDS,
    MAX_UNKNOWN_FIELDS,
    STAGES,
)
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector, select
from tests.exposition import OPENMETRICS, Series, families_of, scraped, series_of

NOW_US = 1_700_000_000_000_000
CORE = [series.name for series in CODES.values() if not series.group]
KNOWN_LABELS = {
    "agent", "window", "metric", "iteration", "entity_type", "evidence", "span", "decision",
    "needed", "route", "correct", "order", "type", "outcome", "reason", "key", "step", "verdict",
    "stage", "state", "topic", "partition", "version", "python", "engine", "found", "le",
    "field", "kind",
}  # fmt: skip


def gauges(collector: WindowCollector) -> Series:
    """The window gauges of a newly prepared scrape."""
    collector.prepare()
    return series_of(collector.render())


def value(found: Series, name: str, /, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def expected(partitions: Iterable[Windows], now_us: int) -> Series:
    """The same gauges computed directly from the windows, without sums of 0."""
    rows = window_rows(
        (window.name, agent, decode_sums(sums))
        for windows in partitions
        for window in windows.windows
        for (bucket, agent), sums in windows.buckets[window.name].items()
        if 0 <= now_us // window.bucket_us - bucket < 60
    )
    return {
        (
            PREFIX + row["name"],
            frozenset((k, v) for k, v in row.items() if k not in ("name", "value")),
        ): row["value"]
        for row in rows
    }


def without_zeros(found: Series) -> Series:
    """The gauges about agents that are not 0."""
    return {
        key: number for key, number in found.items() if number and any("agent" in p for p in key[1])
    }


def over_agents(found: Series) -> Counter[tuple[str, frozenset[tuple[str, str]]]]:
    """Sums over agents, by name and the other labels."""
    totals: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()
    for (name, labels), number in without_zeros(found).items():
        totals[name, frozenset(pair for pair in labels if pair[0] != "agent")] += int(number)
    return totals


def every_code(window: Window, routes: Iterable[str]) -> list[str]:
    """Every series code that a window can contain."""
    named = tuple(map(escape, routes))
    return [
        "|".join((head, *values))
        for head, series in CODES.items()
        if head in window.heads
        for values in product(*(named if known is None else known for known in series.values))
    ]


def full(agents: Iterable[str], routes: Iterable[str]) -> Windows:
    """Windows in which every agent has every series; later agents have more results."""
    routes = tuple(routes)
    windows = Windows()
    for window in DEFAULT_WINDOWS:
        codes = every_code(window, routes)
        for n, agent in enumerate(agents, 1):
            sums = {code: n * 1_000 + at for at, code in enumerate(codes)}
            windows.load(window.name, NOW_US // window.bucket_us, agent, encode_sums(sums))
    return windows


AGENTS = [f"agent-{n:02}" for n in range(50)] + [OTHER]
ROUTES = [f"route-{n:02}" for n in range(20)] + [OTHER]


# -- windows ----------------------------------------------------------------------------------


def test_every_window_family_has_its_own_name_and_help() -> None:
    """No help text is empty."""
    assert all(series.help for series in CODES.values())
    assert len({series.name for series in CODES.values()}) == len(CODES)


CHANGE = st.tuples(
    st.integers(0, 2),  # partition
    st.integers(-90_000, 90),  # seconds after NOW_US
    st.sampled_from(("a", "b", "c")),
    st.dictionaries(
        st.sampled_from(("r", "G", "t", "D|File|id|same_iteration", "R|x%7C\n|yes")),
        st.integers(-3, 3).filter(bool),
        min_size=1,
    ),
)
SCRAPE = st.tuples(st.integers(0, 7_200), st.sets(st.integers(0, 2)))


def test_label_values_are_named_for_every_label() -> None:
    """Each label of a window family has a list of values, or None if the input decides."""
    for series in CODES.values():
        assert len(series.values) == len(series.labels)
        assert all(series.group for known in series.values if known)


@pytest.mark.slow
@given(st.lists(st.one_of(CHANGE, SCRAPE), max_size=30))
def test_gauges_are_the_sums_of_the_owned_partitions(
    steps: list[tuple[int, int, str, dict[str, int]] | tuple[int, set[int]]],
) -> None:
    """However buckets change and partitions move between scrapes, gauges equal newly
    computed sums."""
    all_partitions = [Windows() for _ in range(3)]
    owned: list[Windows] = []
    now = [NOW_US]
    names = Names(frozenset(("a", "b")), frozenset(("x|\n",)))
    collector = WindowCollector(lambda: owned, lambda: now[0])
    for step in [*steps, (0, {0, 1, 2})]:
        if len(step) == 4:
            at, seconds, agent, sums = step
            cell = Cell(NOW_US + seconds * 1_000_000, agent, sums)
            partition = all_partitions[at]
            partition.install(partition.changes([(1, cell)], names, NOW_US))
            continue
        now[0] += step[0] * 1_000_000
        owned[:] = [all_partitions[at] for at in sorted(step[1])]
        assert without_zeros(gauges(collector)) == expected(owned, now[0])


def test_a_window_is_sixty_buckets_up_to_now() -> None:
    """The current bucket and the 59 before it count; older and later ones do not."""
    windows, window = Windows(), DEFAULT_WINDOWS[1]
    last = NOW_US // window.bucket_us
    for power, bucket in enumerate((last - 60, last - 59, last, last + 1)):
        windows.load(window.name, bucket, "a", encode_sums({"r": 10**power}))
    now = [NOW_US]
    collector = WindowCollector(lambda: [windows], lambda: now[0])

    assert value(gauges(collector), PREFIX + "results", agent="a", window="5m") == 110
    now[0] += window.bucket_us
    assert value(gauges(collector), PREFIX + "results", agent="a", window="5m") == 1_100
    now[0] -= 2 * window.bucket_us
    assert value(gauges(collector), PREFIX + "results", agent="a", window="5m") == 11


def test_a_scrape_shows_the_time_of_its_preparation() -> None:
    """Changes to buckets before rendering do not reach it."""
    windows = full(["a"], ROUTES)
    collector = WindowCollector(lambda: [windows], lambda: NOW_US)
    before = gauges(collector)

    cell = Cell(NOW_US, "a", {"r": 7})
    windows.install(windows.changes([(1, cell)], Names(frozenset("a"), frozenset()), NOW_US))

    assert series_of(collector.render()) == before
    changed = gauges(collector)
    assert (
        value(changed, PREFIX + "results", agent="a", window="5m")
        == value(before, PREFIX + "results", agent="a", window="5m") + 7
    )


@pytest.mark.slow
def test_hostile_input_cannot_exceed_the_limit_of_series() -> None:
    """With every series for every agent, a worker exports at most 20,000, and sums stay exact."""
    partitions = [full(AGENTS, ROUTES), full(AGENTS, ROUTES)]
    found = gauges(WindowCollector(lambda: partitions, lambda: NOW_US))

    everything = expected(partitions, NOW_US)
    assert len(everything) > 20_000
    assert sum(name.startswith(PREFIX) for name, _ in found) <= 20_000
    assert over_agents(found) == over_agents(everything)
    agents = {dict(labels)["agent"] for _, labels in found if labels}
    assert agents == {OTHER, *AGENTS[-len(agents) : -1]}  # agents with the most results are kept
    assert value(found, "streammetrics_agents_folded") == len(AGENTS) - len(agents)
    of_agents = [name for name, labels in found if labels]
    assert value(found, PREFIX + "series") == len(of_agents)
    assert value(found, PREFIX + "series_cut") == 0


@pytest.mark.slow
@pytest.mark.parametrize("limit", [100, 600, 1_200, 5_000])
def test_any_limit_of_series_holds(limit: int) -> None:
    """A lower limit folds more agents; below one agent's series it drops some and counts them."""
    partition = full(AGENTS, ROUTES)
    found = gauges(WindowCollector(lambda: [partition], lambda: NOW_US, limit))

    assert sum(name.startswith(PREFIX) for name, _ in found) <= limit
    cut = value(found, PREFIX + "series_cut")
    totals, everything = over_agents(found), over_agents(expected([partition], NOW_US))
    assert len(everything) - len(totals) == cut
    assert all(everything[key] == number for key, number in totals.items())


@pytest.mark.slow
def test_the_largest_set_of_ranked_metrics_keeps_the_limit() -> None:
    """With as many as settings allow, zeros included, a worker exports at most 20,000."""
    metrics = live_metrics(f"ndcg@{k}" for k in range(1, MAX_RETRIEVAL + 1))
    partition = full(AGENTS, [str(metric) for metric in metrics])
    collector = WindowCollector(lambda: [partition], lambda: NOW_US, retrieval=metrics)
    found = gauges(collector)

    assert sum(name.startswith(PREFIX) for name, _ in found) <= 20_000
    assert value(found, PREFIX + "series_cut") == 0
    assert over_agents(found) == over_agents(expected([partition], NOW_US))


@pytest.mark.slow
def test_unregistered_routes_cannot_exceed_the_limit() -> None:
    """Stored buckets with thousands of routes stay within it, core series first."""
    partition = full(["a", "b"], (f"route-{n}" for n in range(5_000)))
    found = gauges(WindowCollector(lambda: [partition], lambda: NOW_US))

    assert sum(name.startswith(PREFIX) for name, _ in found) <= 20_000
    assert value(found, PREFIX + "series_cut") > 0
    results = {labels for name, labels in found if name == PREFIX + "results"}
    assert {dict(labels)["window"] for labels in results} == {w.name for w in DEFAULT_WINDOWS}


@pytest.mark.slow
def test_configured_agents_are_folded_last() -> None:
    """A configured agent keeps its series even if others have more results."""
    partition = full(AGENTS, ROUTES)
    collector = WindowCollector(lambda: [partition], lambda: NOW_US, configured=["agent-00"])
    agents = {dict(labels)["agent"] for _, labels in gauges(collector) if labels}

    assert "agent-00" in agents
    assert "agent-01" not in agents


def test_core_series_of_known_agents_stay() -> None:
    """An inactive agent, and one that is only configured, have zeros in every window."""
    windows = Windows()
    day = DEFAULT_WINDOWS[-1]
    windows.load(day.name, NOW_US // day.bucket_us - 30, "silent", encode_sums({"r": 3}))
    collector = WindowCollector(lambda: [windows], lambda: NOW_US, configured=["configured"])
    found = gauges(collector)

    for agent, name, window in product(("silent", "configured", OTHER), CORE, DEFAULT_WINDOWS):
        number = value(found, PREFIX + name, agent=agent, window=window.name)
        assert number == (3 if (agent, name, window) == ("silent", "results", day) else 0)


def test_families_with_known_labels_start_with_zeros() -> None:
    """A known agent has 0 for every value of a label, and for routes that it has used."""
    windows = Windows()
    windows.load("24h", NOW_US // DEFAULT_WINDOWS[-1].bucket_us, "a", encode_sums({"R|wiki|no": 2}))
    ranked = live_metrics(["ndcg@10"])
    found = gauges(WindowCollector(lambda: [windows], lambda: NOW_US, retrieval=ranked))

    for name, labels in (
        ("gate_decisions", {"decision": "skip", "needed": "no", "window": "5m"}),
        ("turn_metric_count", {"metric": "srr", "window": "24h"}),
        ("iteration_gain", {"iteration": "9+", "window": "1h"}),
        ("rerank_ndcg_count", {"window": "1h"}),
        ("retrieval_sum", {"metric": "ndcg@10", "window": "5m"}),
        ("retrieval_count", {"metric": "ndcg@10", "window": "24h"}),
        ("duplicates", {"entity_type": "File", "evidence": "url", "span": "same_iteration",
                        "window": "5m"}),
        ("routed_searches", {"route": "wiki", "correct": "yes", "window": "5m"}),
    ):  # fmt: skip
        assert value(found, PREFIX + name, agent="a", **labels) == 0
    assert (
        value(
            found, PREFIX + "routed_searches", agent="a", route="wiki", correct="no", window="24h"
        )
        == 2
    )


CODES_OF_INPUT = st.sampled_from(
    [code for window in window_specs(("5m", "24h")) for code in every_code(window, ("x", "y"))]
)
AGENT_SERIES = st.dictionaries(
    st.tuples(st.sampled_from(("5m", "24h")), CODES_OF_INPUT), st.integers(-5, 5), max_size=40
)


@given(
    st.dictionaries(st.sampled_from((*"abcdefgh", OTHER)), AGENT_SERIES, max_size=9),
    st.integers(0, 400),
)
def test_a_selection_never_exceeds_its_limit(
    agents: dict[str, dict[tuple[str, str], int]], limit: int
) -> None:
    """It has at most ``limit`` series for any agents, and counts what it drops."""
    chosen = select(agents, sorted(agents), limit)

    assert chosen.size <= limit
    before: Counter[tuple[str, str]] = Counter()
    after: Counter[tuple[str, str]] = Counter()
    for series in agents.values():
        before.update(series)
    for series in chosen.series.values():
        after.update(series)
    assert all(after[key] == before[key] for key in after)
    assert len(before) - len(after) == chosen.cut


def test_zeros_are_dropped_before_agents_are_folded() -> None:
    """If counted series and zeros together are too many, the zeros go and all agents stay."""
    windows = Windows()
    for window in DEFAULT_WINDOWS:
        for agent in AGENTS:
            windows.load(window.name, NOW_US // window.bucket_us, agent, encode_sums({"r": 1}))
    limit = 2 + len(AGENTS) * len(CORE) * len(DEFAULT_WINDOWS)
    found = gauges(WindowCollector(lambda: [windows], lambda: NOW_US, limit))

    assert {dict(labels)["agent"] for _, labels in found if labels} == set(AGENTS)
    assert value(found, "streammetrics_agents_folded") == 0


def test_without_a_partition_families_have_no_samples() -> None:
    """A worker that owns nothing exports no zeros, which would count in averages."""
    found = gauges(WindowCollector(list, lambda: NOW_US, configured=["a"]))

    assert {name for name, _ in found} == {
        PREFIX + "series", PREFIX + "series_cut", "streammetrics_agents_folded",
    }  # fmt: skip


class Read(Collector):
    """Families that were read from a text."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """The families."""
        return self._families


HOSTILE = 'a\\nb"b\\c\nd{e="f"} 1 # é\u2028'


@pytest.mark.parametrize("openmetrics", [False, True])
def test_rendering_equals_that_of_the_client_library(openmetrics: bool) -> None:
    """prometheus_client reads the fast rendering, and writes what it has read in the same way."""
    partition = full([HOSTILE, "b", OTHER], [HOSTILE, "|", OTHER])
    collector = WindowCollector(lambda: [partition], lambda: NOW_US)
    collector.prepare()
    ours = collector.render() + ("# EOF\n" if openmetrics else "")
    registry = CollectorRegistry()
    registry.register(Read(families_of(ours, openmetrics=openmetrics)))
    encoder, _ = choose_encoder(OPENMETRICS if openmetrics else "")
    library = encoder(registry).decode()

    found = series_of(ours, openmetrics=openmetrics)
    assert without_zeros(found) == expected([partition], NOW_US)
    assert found == series_of(library, openmetrics=openmetrics)
    comments = [line for line in ours.splitlines() if line.startswith("# ")]
    assert comments == [line for line in library.splitlines() if line.startswith("# ")]
    assert any(("agent", HOSTILE) in labels for _, labels in found)


def test_series_of_another_release_are_left_out() -> None:
    """An unknown stored code leaves out its own series, not the page."""
    windows = Windows()
    windows.load(
        "5m",
        NOW_US // DEFAULT_WINDOWS[1].bucket_us,
        "a",
        encode_sums({"r": 1, "new|x": 2, "r|x": 3}),
    )
    found = gauges(WindowCollector(lambda: [windows], lambda: NOW_US))

    assert without_zeros(found) == {
        (PREFIX + "results", frozenset({("agent", "a"), ("window", "5m")})): 1
    }


# -- operations -------------------------------------------------------------------------------


def scrape(registry: CollectorRegistry) -> Series:
    return series_of(generate_latest(registry).decode())


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def operations(registry: CollectorRegistry) -> Operations:
    return Operations(registry, topics=["search-iterations"])


@pytest.mark.usefixtures("operations")
def test_closed_label_sets_exist_from_the_start(registry: CollectorRegistry) -> None:
    """Before the first event, each has the value 0."""
    found = scrape(registry)

    wanted: dict[str, list[dict[str, str]]] = {
        "events_total": [
            {"type": kind, "outcome": outcome}
            for kind in ("search_iteration", "relevance_labels", "turn_completed", "forget")
            for outcome in OUTCOMES
        ],
        "dead_letters_total": [{"reason": reason} for reason in REASONS],
        "dedup_candidates_total": [{"key": kind} for kind in KEY_KINDS],
        "dedup_verdicts_total": [
            {"entity_type": kind, "step": "ids", "verdict": "duplicate"} for kind in ENTITY_TYPES
        ],
        "batch_seconds_count": [{"stage": stage} for stage in STAGES],
        "conversations_opened_total": [{"found": where} for where in CONVERSATION_SOURCES],
        "late_changes_total": [{"window": window.name} for window in DEFAULT_WINDOWS],
        "obstacles": [{"reason": reason} for reason in WORKER],
        "generation": [{"state": "live"}, {"state": "building"}],
        "offset_gaps_total": [{"topic": "search-iterations"}],
        "building_offset_gaps_total": [{"topic": "search-iterations"}],
        "unknown_fields_total": [{"field": OTHER}],
        **{f"{name}_total": [{}] for name, _ in COUNTS.values()},
        **{
            name: [{}]
            for name in (
                "partitioner_mismatch_total", "rebalances_total", "fenced_writes_total",
                "rewinds_total", "offset_holes_total", "redis_errors_total",
                "same_document_other_text_total", "dedup_truncated_total",
                "dedup_contradictions_total", "label_delay_seconds_count", "batch_records_count",
                "event_to_metric_latency_seconds_count", "redis_round_trip_seconds_count",
                "assigned_partitions", "open_conversations", "open_results", "ready",
                "halted_partitions", "state_written_bytes_total",
                "last_progress_timestamp_seconds",
            )
        },
    }  # fmt: skip
    for name, label_sets in wanted.items():
        for labels in label_sets:
            assert value(found, "streammetrics_" + name, **labels) == 0
    unknown = ("_lag_", "_until_timestamp_", "_ends_timestamp_", "redis_memory")
    assert not [name for name, _ in found if any(part in name for part in unknown)]
    build = next(dict(labels) for name, labels in found if name == "streammetrics_build_info")
    assert build["version"] == stream_metrics.__version__
    assert build["engine"] == ENGINE


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.usefixtures("operations")
def test_names_follow_the_conventions_of_prometheus(
    registry: CollectorRegistry, openmetrics: bool
) -> None:
    """Names have the prefix, base units, and _total on counters only; labels are known and help
    texts exist."""
    page = scraped(registry, openmetrics=openmetrics)

    families = families_of(page, openmetrics=openmetrics)
    assert len(families) > 60
    for family in families:
        assert re.fullmatch(r"streammetrics_[a-z][a-z0-9_]*[a-z0-9]", family.name)
        assert family.documentation.endswith(".")
        assert not re.search(r"_(ms|us|millis\w*|micros\w*|minutes|bytes_total_\w*)$", family.name)
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert sample.labels.keys() <= KNOWN_LABELS


def test_the_counts_of_a_batch_reach_their_counters(
    operations: Operations, registry: CollectorRegistry
) -> None:
    """Types that no table names count as other."""
    seen = Observations()
    seen.events.update({("search_iteration", "applied"): 5, ("search_iteration", "novel"): 1})
    seen.counts.update({key: n for n, key in enumerate(COUNTS, 1)})
    seen.dedup.candidates.update(url=4)
    seen.dedup.verdicts.update(
        {
            ("File", "ids", "duplicate"): 2,
            ("Invoice", "ids", "duplicate"): 3,
            ("memo", "ids", "duplicate"): 1,
        }
    )
    seen.dedup.truncated, seen.dedup.contradictions, seen.dedup.other_text = 1, 2, 3
    seen.label_delays_us.update(dict.fromkeys([-5, 0, 1_000_000, 1_000_001, 10**12], 1))
    seen.late.update({"1m": 4, "5m": 1})
    seen.opened.update(cache=9, nowhere=1)
    operations.observe(seen)
    operations.observe(seen)
    found = scrape(registry)

    def total(name: str, /, **labels: str) -> float:
        return value(found, f"streammetrics_{name}", **labels)

    assert total("events_total", type="search_iteration", outcome="applied") == 10
    assert total("events_total", type="search_iteration", outcome="other") == 2
    for n, (name, _) in enumerate(COUNTS.values(), 1):
        assert total(f"{name}_total") == 2 * n
    assert total("dedup_candidates_total", key="url") == 8
    of_ids = {"step": "ids", "verdict": "duplicate"}
    assert total("dedup_verdicts_total", entity_type="File", **of_ids) == 4
    assert total("dedup_verdicts_total", entity_type=OTHER, **of_ids) == 8
    assert total("dedup_truncated_total") == 2
    assert total("dedup_contradictions_total") == 4
    assert total("same_document_other_text_total") == 6
    assert total("late_changes_total", window="1m") == 8
    assert total("late_changes_total", window="5m") == 2
    assert total("conversations_opened_total", found="cache") == 18
    assert total("label_delay_seconds_count") == 10
    assert total("label_delay_seconds_bucket", le="1.0") == 6
    assert total("label_delay_seconds_bucket", le="5.0") == 8
    assert total("label_delay_seconds_bucket", le="+Inf") == 10
    assert total("label_delay_seconds_sum") == pytest.approx(2 * (1 + 1.000001 + 10**6))


def test_unknown_fields_have_a_bounded_number_of_series(
    operations: Operations, registry: CollectorRegistry
) -> None:
    """The first fields have their own series; later ones count as other."""
    for n in range(MAX_UNKNOWN_FIELDS + 10):
        seen = Observations()
        seen.unknown_fields.update({f"searches.x{n}": 2, "x0": 1})
        operations.observe(seen)
    found = scrape(registry)

    counted = {
        dict(labels)["field"]: n
        for (name, labels), n in found.items()
        if name == "streammetrics_unknown_fields_total"
    }
    assert len(counted) == MAX_UNKNOWN_FIELDS + 1
    assert counted["searches.x0"] == 2
    assert counted["x0"] == MAX_UNKNOWN_FIELDS + 10
    assert counted[OTHER] == 2 * 11


def test_every_count_has_a_counter() -> None:
    """This holds for every named count of the engine and of the worker."""
    root = Path(stream_metrics.__file__).parent
    sources = [
        path.read_text()
        for part in ("core/engine", "live/worker")
        for path in (root / part).glob("*.py")
    ]
    counted = {key for text in sources for key in re.findall(r"\.counts\[\"(\w+)\"\]", text)}

    assert {"stale", "derived_anew"} <= counted <= COUNTS.keys()


def test_each_call_of_the_worker_changes_its_series(
    operations: Operations, registry: CollectorRegistry
) -> None:
    """These are the calls about delivery and the worker itself."""
    operations.bad_records({"not_json": 2, "something_new": 1})
    operations.batch(400)
    operations.stage("state", 0.002)
    operations.counted(1_000, [800, 900, 1_200])
    operations.state_written(1_024)
    operations.lag("search-iterations", 3, 17, 1.5)
    operations.assigned(4)
    operations.rebalanced()
    operations.fenced()
    operations.rewound()
    operations.offset_gap("search-iterations")
    operations.offset_holes(5)
    operations.memory(6, 7)
    operations.redis(0.001)
    operations.redis_error()
    operations.cache(7, 70)
    operations.complete_until(1_700_000_000.5)
    operations.progressed(1_700_000_001.5)
    operations.obstructed(["redis", "partition-3", "partition-4", "something new"])
    found = scrape(registry)

    place = {"topic": "search-iterations", "partition": "3"}
    for name, number, labels in (
        ("dead_letters_total", 2, {"reason": "not_json"}),
        ("dead_letters_total", 1, {"reason": "other"}),
        ("batch_records_sum", 400, {}),
        ("batch_seconds_sum", 0.002, {"stage": "state"}),
        ("event_to_metric_latency_seconds_count", 3, {}),
        ("event_to_metric_latency_seconds_sum", 0.2 + 0.1, {}),
        ("event_to_metric_latency_seconds_bucket", 1, {"le": "0.01"}),
        ("state_written_bytes_total", 1_024, {}),
        ("consumer_lag_records", 17, place),
        ("consumer_lag_seconds", 1.5, place),
        ("assigned_partitions", 4, {}),
        ("rebalances_total", 1, {}),
        ("fenced_writes_total", 1, {}),
        ("rewinds_total", 1, {}),
        ("offset_gaps_total", 1, {"topic": "search-iterations"}),
        ("offset_holes_total", 5, {}),
        ("redis_memory_bytes", 6, {}),
        ("redis_memory_limit_bytes", 7, {}),
        ("redis_round_trip_seconds_count", 1, {}),
        ("redis_errors_total", 1, {}),
        ("open_conversations", 7, {}),
        ("open_results", 70, {}),
        ("complete_until_timestamp_seconds", 1_700_000_000.5, {}),
        ("last_progress_timestamp_seconds", 1_700_000_001.5, {}),
        ("ready", 0, {}),
        ("halted_partitions", 2, {}),
        ("obstacles", 1, {"reason": "redis"}),
        ("obstacles", 1, {"reason": "halted"}),
        ("obstacles", 1, {"reason": "other"}),
        ("obstacles", 0, {"reason": "kafka"}),
    ):
        assert value(found, f"streammetrics_{name}", **labels) == number


def test_reasons_for_which_copying_waits_are_exported(
    operations: Operations, registry: CollectorRegistry
) -> None:
    """A reason of the copying part counts like the worker's own, and a halted input as halted."""
    operations.obstructed(["repartition_kafka", "repartition_topic", "repartition_searches-3"])
    found = scrape(registry)

    assert value(found, "streammetrics_halted_partitions") == 1
    there = {
        dict(labels)["reason"]
        for (name, labels), number in found.items()
        if name == "streammetrics_obstacles" and number
    }
    assert there == {"kafka", "repartition_topic", "halted"}


def test_a_revoked_partition_leaves_no_lag(
    operations: Operations, registry: CollectorRegistry
) -> None:
    """Its series is gone once it is forgotten; forgetting twice is harmless."""
    operations.lag("search-iterations", 0, 9, 9.0)
    operations.lag("search-iterations", 1, 9, 9.0)
    operations.forget_partition("search-iterations", 1)
    operations.forget_partition("search-iterations", 1)

    partitions = {dict(ls)["partition"] for name, ls in scrape(registry) if "_lag_" in name}
    assert partitions == {"0"}


def test_labels_in_series_codes_are_unescaped() -> None:
    """A route with a bar or a percent sign is exported unchanged."""
    assert split_code(f"R|{escape('a|b%7Cc')}|yes")[1] == ("a|b%7Cc", "yes")


def test_a_build_has_its_own_metrics(operations: Operations, registry: CollectorRegistry) -> None:
    """Lag and offset gaps of the generation in force exclude the build; after the switch they are
    those of the new generation, and the lag of the build is gone."""

    def told() -> dict[str, float]:
        names = (
            "lag_records", "lag_seconds", "complete_until_timestamp_seconds", "offset_gaps_total",
        )  # fmt: skip
        return {
            name.removeprefix("streammetrics_"): number
            for (name, _), number in scrape(registry).items()
            if name.endswith(names) and number
        }

    operations.generation(2, building=True)
    operations.lag("search-iterations", 0, 9, 8.0)
    operations.complete_until(7.0)
    operations.offset_gap("search-iterations")
    assert told() == {
        "building_consumer_lag_records": 9,
        "building_consumer_lag_seconds": 8,
        "building_complete_until_timestamp_seconds": 7,
        "building_offset_gaps_total": 1,
    }
    found = scrape(registry)
    assert value(found, "streammetrics_generation", state="building") == 2
    assert value(found, "streammetrics_generation", state="live") == 0

    operations.generation(2, building=False)
    assert told() == {"building_offset_gaps_total": 1}
    operations.generation(2, building=False)
    operations.lag("search-iterations", 0, 6, 5.0)
    operations.complete_until(4.0)
    operations.offset_gap("search-iterations")
    operations.generation(2, building=False)
    assert told() == {
        "consumer_lag_records": 6,
        "consumer_lag_seconds": 5,
        "complete_until_timestamp_seconds": 4,
        "offset_gaps_total": 1,
        "building_offset_gaps_total": 1,
    }
    assert value(scrape(registry), "streammetrics_generation", state="live") == 2


@pytest.mark.parametrize("reason", ["partitions", "reading"])
def test_stopped_reading_has_its_own_series(
    operations: Operations, registry: CollectorRegistry, reason: str
) -> None:
    """An alert on it can say what to do."""
    operations.obstructed([reason])

    assert value(scrape(registry), "streammetrics_obstacles", reason=reason) == 1
