"""The report of the campaign."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HEADINGS: Final = (
    "seed", "fault", "log share", "events", "held s", "outage s", "backlog", "recovery s",
    "bound s", "rolled back", "differences",
)  # fmt: skip
COVERAGE: Final = ("fault", "times", "seeds", "longest outage s", "longest recovery s")

USUAL_START_SECONDS: Final = 4.0  # of all workers, on a machine with nothing else to do


@dataclass(slots=True)
class Calibration:
    """The speed of the machine in a round without faults."""

    start_seconds: float = 0.0  # from the launch of all workers until all are ready
    reading_per_second: float = 0.0  # a backlog's records

    def bound_seconds(self, wait_seconds: float, work_seconds: float, backlog: int) -> float:
        """The bound of a recovery: time-outs, work, and the time to read the backlog.

        Work is scaled by the speed of the machine.
        """
        slowness = max(1.0, self.start_seconds / USUAL_START_SECONDS)
        return wait_seconds + slowness * work_seconds + 2 * backlog / self.reading_per_second


@dataclass(slots=True)
class Landing:
    """The measurements of a fault: shares of the log, records, seconds."""

    fault: str
    landed: float
    held_seconds: float
    outage_seconds: float
    backlog: int
    recovery_seconds: float
    bound_seconds: float
    rolled_back: int
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """The result of a round: its faults and its problems."""

    seed: int
    schedule: list[str]
    faults: Sequence[str] = ()  # as planned
    events: int = 0
    conversations: int = 0
    compared_events: int = 0  # what a single pass reads in the end
    compared_conversations: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    most_rss_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # by phase
    landings: list[Landing] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    tails: str = ""

    @property
    def failed(self) -> bool:
        """Whether there were problems."""
        return bool(self.wrong) or any(landing.wrong for landing in self.landings)

    @property
    def problems(self) -> list[str]:
        """All problems of the round and its faults."""
        return [f"{x.fault}: {text}" for x in self.landings for text in x.wrong] + self.wrong


def table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table with a line for each planned fault."""
    rows: list[Sequence[str]] = [HEADINGS]
    for outcome in outcomes:
        for landing in outcome.landings:
            rows.append(
                (
                    str(outcome.seed),
                    landing.fault,
                    f"{landing.landed:.0%}",
                    f"{outcome.events:,}",
                    f"{landing.held_seconds:.1f}",
                    f"{landing.outage_seconds:.1f}",
                    f"{landing.backlog:,}",
                    f"{landing.recovery_seconds:.1f}",
                    f"{landing.bound_seconds:.1f}",
                    f"{landing.rolled_back:,}" if landing.rolled_back else "-",
                    str(len(landing.wrong) + len(outcome.wrong)),
                )
            )
        for name in outcome.faults[len(outcome.landings) :]:
            blank = [""] * (len(HEADINGS) - 4)
            rows.append((str(outcome.seed), name, "never", *blank, str(len(outcome.wrong))))
    return aligned(rows)


def coverage(outcomes: Sequence[Outcome], names: Iterable[str]) -> str:
    """A Markdown table with each fault's number of runs and longest times."""
    rows: list[Sequence[str]] = [COVERAGE]
    for name in names:
        found = [(o.seed, x) for o in outcomes for x in o.landings if x.fault == name]
        rows.append(
            (
                name,
                str(len(found)),
                ", ".join(str(seed) for seed, _ in found),
                f"{max((x.outage_seconds for _, x in found), default=0):.1f}",
                f"{max((x.recovery_seconds for _, x in found), default=0):.1f}",
            )
        )
    return aligned(rows)


def verdict(outcomes: Sequence[Outcome]) -> str:
    """All rounds in a sentence or two."""
    failed = [str(outcome.seed) for outcome in outcomes if outcome.failed]
    struck = sum(len(outcome.landings) for outcome in outcomes)
    events = sum(outcome.events for outcome in outcomes)
    conversations = sum(outcome.conversations for outcome in outcomes)
    said = (
        f"{len(outcomes)} seeds, {struck} faults, {events:,} events, "
        f"{conversations:,} conversations: "
    )
    return said + (f"seeds that failed: {', '.join(failed)}." if failed else "no difference.")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
             for row in rows]  # fmt: skip
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def summary(outcome: Outcome) -> str:
    """A round in a few lines, with all details if it failed."""
    phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in outcome.seconds.items())
    lines = [
        f"seed {outcome.seed}: {outcome.events:,} records of {outcome.conversations:,} "
        f"conversations sent, {outcome.compared_events:,} of {outcome.compared_conversations:,} "
        f"compared, {len(outcome.landings)} faults, {phases}, workers ready in "
        f"{outcome.calibration.start_seconds:.1f} s, reading "
        f"{outcome.calibration.reading_per_second:,.0f} records/s, "
        f"at most {outcome.most_rss_bytes >> 20} MiB a worker: "
        + ("FAILED" if outcome.failed else "exact")
    ]
    if outcome.failed:
        lines += ["", *outcome.schedule, "", "what is wrong:"]
        lines += [f"- {text}" for text in outcome.problems]
        lines += ["", "the workers' logs end with:", outcome.tails]
    return "\n".join(lines)


def publish(text: str, file: Path | None) -> None:
    """Print a page, and write it to a file if there is one."""
    print(text)
    if file is not None:
        file.write_text(text, encoding="utf-8")
