"""What a round found, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

HEADINGS: Final = (
    "seed", "fault", "landed at", "events", "held s", "outage s", "backlog", "recovery s",
    "bound s", "went back by", "differences",
)  # fmt: skip


@dataclass(slots=True)
class Landing:
    """One fault as it struck: shares of the log, records, seconds."""

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
    """One round: its landings, and what was wrong with the whole."""

    seed: int
    events: int
    schedule: list[str]
    reading_per_second: float = 0.0
    most_rss_bytes: int = 0
    seconds: float = 0.0
    landings: list[Landing] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    tails: str = ""

    @property
    def failed(self) -> bool:
        """Whether anything was wrong."""
        return bool(self.wrong) or any(landing.wrong for landing in self.landings)

    @property
    def problems(self) -> list[str]:
        """All that was wrong."""
        return [f"{x.fault}: {text}" for x in self.landings for text in x.wrong] + self.wrong


def table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table with a line for each fault that struck."""
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
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
             for row in rows]  # fmt: skip
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def summary(outcome: Outcome) -> str:
    """One round in a few lines; all there is to know if it failed."""
    lines = [
        f"seed {outcome.seed}: {outcome.events:,} records in the log, {len(outcome.landings)} "
        f"faults, {outcome.seconds:.0f} s, reading {outcome.reading_per_second:,.0f} records/s, "
        f"at most {outcome.most_rss_bytes >> 20} MiB a worker: "
        + ("FAILED" if outcome.failed else "exact")
    ]
    if outcome.failed:
        lines += ["", *outcome.schedule, "", "what is wrong:"]
        lines += [f"- {text}" for text in outcome.problems]
        lines += ["", "the workers' logs end with:", outcome.tails]
    return "\n".join(lines)
