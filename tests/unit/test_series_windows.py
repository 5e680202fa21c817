"""Windows of each group of series."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

from stream_metrics.cli.settings import Settings
from stream_metrics.core.engine.cells import CODES, GROUPS
from stream_metrics.core.engine.codec import encode_sums
from stream_metrics.core.engine.series import MAX_SERIES, META_SERIES
from stream_metrics.core.engine.window import parse_window, series_of_agent, window_specs
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.events.record import Record
from stream_metrics.lab.history import History
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.prometheus.windows import WindowCollector

NOW_US = 1_700_000_000_000_000


@cache
def traffic() -> list[Record]:
    """Records of ten minutes."""
    profile = TrafficProfile(seed=5, conversations=20, duration_seconds=600)
    return [Record(record.value, record.key, record.timestamp_ms) for record in generate(profile)]


def metrics(**values: Any) -> Any:
    """The section ``metrics`` of settings."""
    return Settings.model_validate({"metrics": values}).metrics


def families(*names: str, **series_windows: list[str]) -> dict[str, set[str]]:
    """The families in each window that a replay of some traffic exports."""
    replay = Replay(windows=window_specs(names, series_windows))
    for record in traffic():
        replay.feed(record)
    replay.flush()
    found: dict[str, set[str]] = {name: set() for name in names}
    for entry in replay.windows()["sums"]:
        found[entry["window"]].add(entry["name"])
    return found


def test_a_custom_window_has_every_series() -> None:
    """A window has all series even if it is not one of the default windows."""
    found = families("10m", "2h", "5m", "1h", "24h")

    assert found["10m"] == found["2h"] == found["5m"] | found["1h"] | found["24h"]
    assert {"turn_metric_sum", "iteration_gain", "duplicates", "gate_decisions"} <= found["2h"]


def test_settings_give_a_group_its_windows() -> None:
    """They also replace default windows; other groups keep theirs."""
    found = families("30m", "2h", "1h", turns=["30m"], duplicates=[])

    assert {"turn_metric_sum", "turn_metric_count"} <= found["30m"]
    assert not {"turn_metric_sum", "turn_metric_count"} & (found["2h"] | found["1h"])
    assert not any("duplicates" in names for names in found.values())
    assert "iteration_gain" in found["1h"]
    assert "iteration_gain" not in found["30m"]


def test_unknown_groups_and_windows_are_refused() -> None:
    """The error names them."""
    assert set(GROUPS) == {series.group for series in CODES.values()} - {""}
    with pytest.raises(ValidationError, match="'turn' is no group of series"):
        metrics(series_windows={"turn": ["1h"]})
    with pytest.raises(ValidationError, match="gives turns the window 2h, which"):
        metrics(series_windows={"turns": ["1h", "2h"]})


def test_more_series_than_a_worker_exports_are_refused() -> None:
    """No setting may exceed the limit with a single agent; the largest that fit are exported."""
    names = [f"{minutes}m" for minutes in range(2, 180) if minutes not in (5, 30, 60, 120)]
    room = MAX_SERIES - META_SERIES
    fits = max(
        count
        for count in range(1, len(names))
        if series_of_agent(window_specs(names[:count]), retrieval=0) <= room
    )
    with pytest.raises(ValidationError, match=rf"{fits + 1} windows have .* at most 20,000"):
        metrics(windows=names[: fits + 1])

    windows = Windows(metrics(windows=names[:fits]).window_specs())
    routes = [f"R|route-{n}|yes" for n in range(20)]
    for window in windows.windows:
        for agent in ("other", "a", "b"):
            sums = dict.fromkeys([*routes, "r", "t", "q|search|yes"], 7)
            windows.load(window.name, NOW_US // window.bucket_us, agent, encode_sums(sums))
    collector = WindowCollector(lambda: [windows], lambda: NOW_US)
    collector.prepare()
    lines = collector.render().splitlines()

    assert sum(line.startswith("streammetrics_window_") for line in lines) <= MAX_SERIES
    assert "streammetrics_window_series_cut 0" in lines


def test_windows_of_series_are_part_of_the_fingerprint() -> None:
    """The setting changes the content of buckets."""
    plain = Settings.model_validate({})
    changed = Settings.model_validate({"metrics": {"series_windows": {"turns": ["30m"]}}})

    assert plain.fingerprint() != changed.fingerprint()
    assert "metrics.series_windows" not in plain.state_settings()
    assert changed.state_settings()["metrics.series_windows"] == {"turns": ["30m"]}


def test_a_known_agent_has_the_series_of_each_window_at_zero() -> None:
    """These are the series of the windows in the settings, and no others."""
    windows = Windows(window_specs(["30m", "2h"], {"gates": ["30m"], "turns": []}))
    collector = WindowCollector(lambda: [windows], lambda: NOW_US, configured=["a"])
    collector.prepare()
    text = collector.render()

    assert 'window_gate_decisions{agent="a",window="30m",' in text
    assert 'window_gate_decisions{agent="a",window="2h",' not in text
    assert "window_turn_metric_sum{" not in text
    assert 'window_duplicates{agent="a",window="2h",' in text


def test_the_buckets_of_a_replay_name_the_series_of_their_windows() -> None:
    """They give the same series over time when they are read again."""
    replay = Replay(windows=window_specs(["30m", "1h"], {"turns": ["30m"]}))
    for record in traffic():
        replay.feed(record)
    replay.flush()
    written = replay.history()
    header, *lines = written.lines()
    read = History.of_header(header)
    for line in lines:
        read.take(line)
    steps = range(replay.last_event_us, replay.last_event_us + 1, 60_000_000)

    assert read.windows == written.windows != (parse_window("30m"), parse_window("1h"))
    assert list(read.courses(steps)) == list(written.courses(steps))
