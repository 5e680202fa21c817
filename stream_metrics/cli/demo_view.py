"""The terminal view of the demo: the day so far, by agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stream_metrics.core.alerts.standing import Gathered
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.engine.windows import Sums, Windows
from stream_metrics.live.page import figures
from stream_metrics.live.page.agent_rules import searches_repeated, srr_spike, usual_ratio
from stream_metrics.live.page.courses import Course, Courses
from stream_metrics.live.page.finding import FAULTS, OK, UNKNOWN, Finding

SHORT: Final = "30m"
TITLES: Final = ("results", "SRR 30m", "usually", "SRE 30m", "labelled", "good gain")
STEPS: Final = 48
"""The most steps of the course of a day."""
FEW_STEPS: Final = STEPS // 2
"""The steps for which a narrow terminal leaves out columns."""
GAP: Final = 2
"""The blanks between two columns."""
FRAME: Final = 4
"""The border of the panel on both sides, with a blank each."""
LEGEND: Final = (
    "SRR of the last 30 minutes by agent; ? means that there is too little data to judge it."
)
_BARS: Final = "▁▂▃▄▅▆▇█"


def _ratio(sums: Sums, numerator: str, denominator: str) -> float | None:
    below = sums.get(denominator, 0)
    return sums.get(numerator, 0) / below if below else None


def _percent(value: float | None) -> str:
    """A share as the page shows it: one digit after the point below 10%, none above."""
    if value is None:
        return "·"
    return f"{value:.{1 if 0 < value < 0.0995 else 0}%}"


def _mean(value: float | None) -> str:
    return "·" if value is None else f"{value:.2f}"


def _fitting(width: int, rows: Sequence[Sequence[Text]]) -> tuple[int, int]:
    """The number of ``TITLES`` that a terminal has room for, and of steps beside them."""
    heads = ("agent", *TITLES)
    widths = [
        GAP + max(len(head), *(row[place].cell_len for row in rows), 0)
        for place, head in enumerate(heads)
    ]
    shown, steps = len(TITLES), width - FRAME - sum(widths)
    while shown and steps < FEW_STEPS:
        steps += widths[shown]
        shown -= 1
    return shown, max(1, min(STEPS, steps))


class DayView:
    """Keeps the history of SRR and renders the day."""

    def __init__(self, start_us: int, end_us: int, port: int) -> None:
        self._start_us = start_us
        self._end_us = end_us
        self._port = port
        self._now_us = start_us
        self._played = 0
        self._rejected = 0
        self._courses = Courses(DEFAULT_WINDOWS)
        self._now: dict[str, Course] = {}
        self._found: dict[str, Finding] = {}
        self._history: dict[str, dict[int, float]] = {}
        self._spikes: dict[str, tuple[int, int, float]] = {}

    def update(
        self,
        windows: Iterable[Windows],
        gathered: Gathered | None,
        now_us: int,
        played: int,
        rejected: int,
    ) -> None:
        """Update the view from the windows and the evidence at ``now_us``."""
        self._now_us, self._played, self._rejected = now_us, played, rejected
        self._courses.update({held: held for held in windows}, now_us)
        self._courses.tell(gathered and gathered.stands)
        agents = {name for by_agent in self._courses.sums.values() for name in by_agent}
        self._now = {agent: self._courses.course(agent, now_us) for agent in agents}
        self._found = {agent: srr_spike(course) for agent, course in self._now.items()}
        span = max(1, self._end_us - self._start_us)
        step = min(STEPS - 1, (now_us - self._start_us) * STEPS // span)
        for agent in self._agents():
            srr = _ratio(self._now[agent].sums[SHORT], "d", "r")
            if srr is not None:
                self._history.setdefault(agent, {})[step] = srr
            if self._spiking(agent):
                first, _, worst = self._spikes.get(agent, (now_us, now_us, 0.0))
                self._spikes[agent] = (first, now_us, max(worst, srr or 0.0))

    def _agents(self) -> list[str]:
        return sorted(self._now)

    def _spiking(self, agent: str) -> bool:
        return self._found[agent].level in FAULTS

    def render(self, width: int = 80) -> Panel:
        """The day as a panel for a terminal of so many columns; a narrow one has fewer figures."""
        rows = [self._figures(agent) for agent in self._agents()]
        shown, steps = _fitting(width, rows)
        table = Table(expand=True, box=None, pad_edge=False)
        table.add_column("agent", no_wrap=True)
        for title in TITLES[:shown]:
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("SRR over the day", no_wrap=True)
        for agent, row in zip(self._agents(), rows, strict=True):
            table.add_row(*row[: 1 + shown], self._course(agent, steps))
        share = (self._now_us - self._start_us) / max(1, self._end_us - self._start_us)
        head = Text.assemble(
            (f"{self._clock(self._now_us)} UTC", "bold"),
            f"   {self._played:,} records, {self._rejected} rejected   ",
            (f"http://localhost:{self._port}/", "cyan"),
        )
        bar = ProgressBar(total=1.0, completed=share)
        return Panel(
            Group(head, bar, Text(), table, Text(), self._what_is_wrong()),
            title="stream-metrics: a recorded working day",
        )

    def _figures(self, agent: str) -> tuple[Text, ...]:
        """The name of an agent, and the figures of all ``TITLES``."""
        short = self._now[agent].sums[SHORT]
        style = "bold red" if self._spiking(agent) else ""
        return (
            Text(agent, style=style),
            Text(f"{short.get('r', 0):,}"),
            Text(_percent(_ratio(short, "d", "r")), style=style),
            Text(_percent(usual_ratio("srr", self._now[agent].day))),
            Text(_percent(figures.none_if_unlabelled(figures.sre)(short)["value"])),
            Text(_percent(figures.coverage(short)["value"])),
            Text(_mean(figures.none_if_unlabelled(figures.gain)(short)["value"])),
        )

    def _course(self, agent: str, steps: int) -> Text:
        """The SRR over the day, with a sign for each of so many equal stretches of time."""
        history: dict[int, float] = {}
        for step, srr in self._history.get(agent, {}).items():
            place = step * steps // STEPS
            history[place] = max(srr, history.get(place, 0.0))
        line = "".join(
            _BARS[min(7, int(history[step] * 10))] if step in history else " "
            for step in range(steps)
        )
        return Text(line, style="red" if agent in self._spikes else "")

    def _what_is_wrong(self) -> Group:
        """The findings of the SRR rule: faults, then agents with too little data."""
        spiking = [agent for agent in self._agents() if self._spiking(agent)]
        if spiking:
            text = "\n".join(
                f"{agent}: {self._found[agent].why}. {self._look(agent)}" for agent in spiking
            )
            lines = [Text(text, style="bold red")]
        elif any(found.level == OK for found in self._found.values()):
            lines = [Text("No agent that can be judged repeats itself more than usual.")]
        else:
            lines = []
        unknown = [agent for agent in self._agents() if self._found[agent].level == UNKNOWN]
        if unknown:
            lines.append(Text(f"Too little data to judge the SRR of {', '.join(unknown)}."))
        elif lines and not spiking:
            lines = [Text("No agent repeats itself more than usual.", style="green")]
        above = [agent for agent in unknown if self._found[agent].above]
        lines += [Text(f"{agent}: {self._found[agent].why}.", style="yellow") for agent in above]
        return Group(*(lines or [Text("No searches to judge.")]))

    def _look(self, agent: str) -> str:
        """Where to look for what makes an agent repeat itself."""
        loop = searches_repeated(self._now[agent])
        if loop.level in FAULTS:
            return f"It is in a loop: {loop.why}."
        return "Did an index or a query rewriter change?"

    def line(self) -> str:
        """The state as one line, for output that is not a terminal."""
        parts = [
            f"{agent} {_percent(_ratio(self._now[agent].sums[SHORT], 'd', 'r'))}{self._mark(agent)}"
            for agent in self._agents()
        ]
        return f"{self._clock(self._now_us)}  {self._played:,} records  SRR: {', '.join(parts)}"

    def _mark(self, agent: str) -> str:
        """The mark after an agent's SRR; empty only if the rule finds no fault."""
        if self._spiking(agent):
            return " SPIKE"
        return "?" if self._found[agent].level == UNKNOWN else ""

    def closing(self) -> Text:
        """A summary of the day, and what to do next."""
        lines = [
            f"{agent}: the SRR alert fired from {self._clock(first)} to {self._clock(last)}; SRR "
            f"reached {_percent(worst)}."
            if last < self._now_us
            else f"{agent}: the SRR alert has been firing since {self._clock(first)}; SRR "
            f"reached {_percent(worst)}."
            for agent, (first, last, worst) in sorted(self._spikes.items())
        ]
        if self._rejected:
            lines.append(
                f"The recording has bad records on purpose: {self._rejected} were rejected."
            )
        lines.append("Next: `make stack` runs the live system (Kafka, Redis, Prometheus) here.")
        return Text("\n".join(lines))

    @staticmethod
    def _clock(instant_us: int) -> str:
        return datetime.fromtimestamp(instant_us / 1e6, UTC).strftime("%H:%M")
