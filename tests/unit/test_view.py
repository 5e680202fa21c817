"""The demo's panel in the terminal: faults, and agents without a verdict."""

from __future__ import annotations

from rich.console import Console

from stream_metrics.cli.demo_view import DayView
from stream_metrics.core.alerts.calibration import FALSE_ALARMS, thresholds
from stream_metrics.core.alerts.hour import LEAST_PARTS
from stream_metrics.core.alerts.standing import Gathered, Standing
from stream_metrics.core.engine.codec import encode_sums
from stream_metrics.core.engine.config import WINDOW_BUCKETS
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.engine.windows import Windows

DAY_US = 86_400_000_000
HOUR_US = DAY_US // 24
MINUTE_US = HOUR_US // 60
PART_US = DAY_US // WINDOW_BUCKETS
NOW_US = 20_000 * DAY_US
JUDGED = 300  # results that an agent must have for its SRR to be judged, and some more


def held(**agents: tuple[float, float | None]) -> Windows:
    """Windows of agents with an SRR of the last minute, and optionally one of hours before."""
    windows = Windows(DEFAULT_WINDOWS)
    for agent, (now, before) in agents.items():
        times = [(NOW_US, now, JUDGED)]
        if before is not None:
            times += [
                (NOW_US - 10 * HOUR_US + n * PART_US, before, 900) for n in range(LEAST_PARTS)
            ]
        for at_us, srr, results in times:
            sums = {"r": results, "d": round(srr * results)}
            for window in DEFAULT_WINDOWS:
                bucket, last = at_us // window.bucket_us, NOW_US // window.bucket_us
                if bucket > last - WINDOW_BUCKETS:
                    windows.load(window.name, bucket, agent, encode_sums(sums))
    return windows


def told(**agents: tuple[float, float | None]) -> Gathered:
    """The evidence about these agents, if the hours before were such for three of them."""
    now, counts = NOW_US // MINUTE_US, dict[str, dict[int, dict[str, int]]]()
    for agent, (srr, before) in agents.items():
        results = {now: (srr, JUDGED)}
        if before is not None:
            results |= {now - 600 + n: (before, 90) for n in range(180)}
        counts[agent] = {
            minute: {"results": whole, "duplicate_results": round(share * whole)}
            for minute, (share, whole) in results.items()
        }
    return Gathered(now, Standing(thresholds(FALSE_ALARMS)).at(counts, now))


def shown(windows: Windows, gathered: Gathered | None = None) -> tuple[str, str]:
    """The panel with its lines joined, and the plain line."""
    view = DayView(NOW_US - HOUR_US, NOW_US, 9464)
    view.update([windows], gathered, NOW_US, 10, 0)
    console = Console(width=400)
    with console.capture() as panel:
        console.print(view.render(400))
    return panel.get(), view.line()


def test_a_spike_is_shown_with_its_baseline() -> None:
    """An agent that repeats more than in the day before is at fault."""
    panel, line = shown(held(support=(0.61, 0.2)), told(support=(0.61, 0.2)))

    assert "support: 61% of its results in the last minute repeat" in panel
    assert "usually it is 20%" in panel
    assert line.endswith("support 61% SPIKE")


def test_a_fresh_agent_above_a_threshold_is_not_judged() -> None:
    """Half an hour of its own is no baseline, and the agent is not called fine either."""
    panel, line = shown(held(fresh=(0.61, None)), told(fresh=(0.61, None)))

    assert "Too little data to judge the SRR of fresh." in panel
    assert "which is above 40%; whether that is unusual cannot be told yet" in panel
    assert "more than usual" not in panel
    assert line.endswith("fresh 61%?")


def test_no_agent_is_reported_fine_unless_all_are_judged() -> None:
    """With a calm and a fresh agent it does not say that no agent repeats itself."""
    calm, _ = shown(held(calm=(0.1, 0.1)), told(calm=(0.1, 0.1)))
    mixed, _ = shown(
        held(calm=(0.1, 0.1), fresh=(0.61, None)), told(calm=(0.1, 0.1), fresh=(0.61, None))
    )

    assert "No agent repeats itself more than usual." in calm
    assert "No agent repeats itself more than usual." not in mixed
    assert "Too little data to judge the SRR of fresh." in mixed


def test_the_columns_are_those_of_the_page() -> None:
    """Shares are percentages, with a decimal below 10%; gain is per iteration."""
    windows, sums = Windows(DEFAULT_WINDOWS), {"r": 40, "d": 3, "u": 37, "l": 37}
    sums |= {"si": 4, "sr": 40, "sg": 10, "sG": 30}
    for window in DEFAULT_WINDOWS:
        windows.load(window.name, NOW_US // window.bucket_us, "calm", encode_sums(sums))

    panel, _ = shown(windows)
    head, row = (line.split() for line in panel.splitlines() if "SRE" in line or "calm  " in line)

    assert " ".join(head[2:11]) == "results SRR 30m usually SRE 30m labelled good gain"
    assert row[1:8] == ["calm", "40", "7.5%", "·", "25%", "100%", "7.50"]


def test_without_a_label_there_is_no_efficiency() -> None:
    """Settled iterations with only duplicates do not give an SRE of 0%."""
    windows, sums = Windows(DEFAULT_WINDOWS), {"r": 40, "d": 20, "u": 20, "si": 2, "sr": 20}
    for window in DEFAULT_WINDOWS:
        windows.load(window.name, NOW_US // window.bucket_us, "calm", encode_sums(sums))

    panel, _ = shown(windows)
    [row] = (line.split() for line in panel.splitlines() if "calm  " in line)

    assert row[1:8] == ["calm", "40", "50%", "·", "·", "0%", "·"]


def test_before_the_first_search_nothing_is_fine() -> None:
    """Without an agent there is nothing to judge."""
    assert "No searches to judge." in shown(held())[0]
