"""What the demo shows: the day so far, agent by agent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stream_metrics.engine.windows import Sums, Windows, add

SHORT: Final = "30m"
LONG: Final = "24h"
SPIKE_ABOVE: Final = 0.35
SPIKE_FACTOR: Final = 1.5
ENOUGH_RESULTS: Final = 100
STEPS: Final = 48
WIDE: Final = 110
_BARS: Final = "▁▂▃▄▅▆▇█"


def _ratio(sums: Sums, numerator: str, denominator: str) -> float | None:
    below = sums.get(denominator, 0)
    return sums.get(numerator, 0) / below if below else None


def _shown(value: float | None, digits: int = 2) -> str:
    return "·" if value is None else f"{value:.{digits}f}"


class DayView:
    """Keeps the history of SRR and renders the day."""

    def __init__(self, start_us: int, end_us: int, port: int) -> None:
        self._start_us = start_us
        self._end_us = end_us
        self._port = port
        self._now_us = start_us
        self._played = 0
        self._rejected = 0
        self._now: dict[tuple[str, str], Sums] = {}
        self._history: dict[str, dict[int, float]] = {}
        self._spikes: dict[str, tuple[int, int, float]] = {}

    def update(self, windows: Iterable[Windows], now_us: int, played: int, rejected: int) -> None:
        """Look at the windows as they are at ``now_us``."""
        self._now_us, self._played, self._rejected = now_us, played, rejected
        totals: dict[tuple[str, str], Sums] = {}
        for held in windows:
            for window, agent, sums in held.sums_at(now_us):
                if window in (SHORT, LONG):
                    add(totals.setdefault((window, agent), {}), sums, 1)
        self._now = totals
        span = max(1, self._end_us - self._start_us)
        step = min(STEPS - 1, (now_us - self._start_us) * STEPS // span)
        for agent in self._agents():
            srr = _ratio(totals.get((SHORT, agent), {}), "d", "r")
            if srr is not None:
                self._history.setdefault(agent, {})[step] = srr
            if self._spiking(agent):
                first, _, worst = self._spikes.get(agent, (now_us, now_us, 0.0))
                self._spikes[agent] = (first, now_us, max(worst, srr or 0.0))

    def _agents(self) -> list[str]:
        return sorted({agent for _, agent in self._now})

    def _spiking(self, agent: str) -> bool:
        short, long = self._now.get((SHORT, agent), {}), self._now.get((LONG, agent), {})
        srr, usual = _ratio(short, "d", "r"), _ratio(long, "d", "r")
        if srr is None or usual is None or short.get("r", 0) < ENOUGH_RESULTS:
            return False
        return srr > SPIKE_ABOVE and srr > SPIKE_FACTOR * usual

    def render(self, width: int = 80) -> Panel:
        """The day as a panel, with less in it where the terminal is narrow."""
        wide = width >= WIDE
        table = Table(expand=True, box=None, pad_edge=False)
        table.add_column("agent", no_wrap=True)
        titles = ("results", "SRR 30m", "24h", "SRE 30m", "labelled", "gain a result")
        for title in titles[: 6 if wide else 4]:
            table.add_column(title, justify="right")
        table.add_column("SRR over the day", no_wrap=True)
        for agent in self._agents():
            cells = self._row(agent, STEPS if wide else STEPS // 2)
            table.add_row(*cells[: 7 if wide else 5], cells[-1])
        share = (self._now_us - self._start_us) / max(1, self._end_us - self._start_us)
        head = Text.assemble(
            (f"{self._clock(self._now_us)} UTC", "bold"),
            f"   {self._played:,} records, {self._rejected} dead letters   ",
            (f"http://localhost:{self._port}/", "cyan"),
        )
        bar = ProgressBar(total=1.0, completed=share)
        return Panel(
            Group(head, bar, Text(), table, Text(), self._what_is_wrong()),
            title="stream-metrics: a recorded working day",
        )

    def _row(self, agent: str, steps: int) -> tuple[str | Text, ...]:
        short, long = self._now.get((SHORT, agent), {}), self._now.get((LONG, agent), {})
        spiking = self._spiking(agent)
        history: dict[int, float] = {}
        for step, srr in self._history.get(agent, {}).items():
            place = step * steps // STEPS
            history[place] = max(srr, history.get(place, 0.0))
        line = "".join(
            _BARS[min(7, int(history[step] * 10))] if step in history else " "
            for step in range(steps)
        )
        style = "bold red" if spiking else ""
        return (
            Text(agent, style=style),
            f"{short.get('r', 0):,}",
            Text(_shown(_ratio(short, "d", "r")), style=style),
            _shown(_ratio(long, "d", "r")),
            _shown(_ratio(short, "sg", "sr")),
            _shown(_ratio(short, "l", "u")),
            _shown(_ratio(short, "sG", "sr")),
            Text(line, style="red" if agent in self._spikes else "green"),
        )

    def _what_is_wrong(self) -> Text:
        spiking = [agent for agent in self._agents() if self._spiking(agent)]
        if not spiking:
            return Text("No agent repeats itself more than usual.", style="green")
        lines = []
        for agent in spiking:
            srr = _ratio(self._now.get((SHORT, agent), {}), "d", "r") or 0.0
            usual = _ratio(self._now.get((LONG, agent), {}), "d", "r") or 0.0
            lines.append(
                f"{agent}: {srr:.0%} of its results repeat what the conversation had already "
                f"({usual:.0%} over 24 h). Did an index or a query rewriter change?"
            )
        return Text("\n".join(lines), style="bold red")

    def line(self) -> str:
        """One plain line, where there is no terminal."""
        parts = [
            f"{agent} {_shown(_ratio(self._now.get((SHORT, agent), {}), 'd', 'r'))}"
            + (" SPIKE" if self._spiking(agent) else "")
            for agent in self._agents()
        ]
        return f"{self._clock(self._now_us)}  {self._played:,} records  SRR(30m): " + ", ".join(
            parts
        )

    def closing(self) -> Text:
        """What there was to see, and what to do next."""
        lines = [
            f"{agent}: SRR spiked from {self._clock(first)} to {self._clock(last)}, "
            f"up to {worst:.2f}."
            for agent, (first, last, worst) in sorted(self._spikes.items())
        ]
        lines.append("Next: `make stack` runs the live system (Kafka, Redis, Prometheus) here.")
        return Text("\n".join(lines))

    @staticmethod
    def _clock(instant_us: int) -> str:
        return datetime.fromtimestamp(instant_us / 1e6, UTC).strftime("%H:%M")
