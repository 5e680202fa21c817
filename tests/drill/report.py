"""The drill's outcome as a page: what was caught, and what woke people for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.drill.run import Drill, Size
from tests.drill.score import (
    SOON,
    WEEK,
    Caught,
    FalseAlarms,
    alarm_table,
    calm,
    catch_table,
    caught,
    false_alarms,
    real,
    share_in_time,
    woken_for_others,
)

CAUGHT_AT_LEAST: Final = 0.95
PAGES_A_MONTH: Final = 1.0
PAGE: Final = "critical"


@dataclass(frozen=True, slots=True)
class Group:
    """Drills of some seeds: worlds in which nothing is wrong, and worlds with incidents."""

    title: str
    seeds: tuple[int, ...]
    healthy: Sequence[Drill]
    troubled: Sequence[Drill]

    @property
    def caught(self) -> list[Caught]:
        """Every incident with what became of it."""
        return [one for drill in self.troubled for one in caught(drill)]

    @property
    def false_alarms(self) -> list[FalseAlarms]:
        """By alert, in the healthy worlds."""
        return false_alarms(self.healthy)

    @property
    def share_caught(self) -> float:
        """Of the incidents of real size, the share caught within ten minutes of labelled data."""
        return share_in_time(real(self.caught))

    @property
    def share_of_plain(self) -> float:
        """The same for the plain rules."""
        return share_in_time(real(self.caught), plain=True)

    @property
    def pages_a_month(self) -> float:
        """False pages in a month of one agent, of all alerts together."""
        return sum(one.a_month for one in self.false_alarms if one.severity == PAGE)

    @property
    def kept(self) -> bool:
        """Whether both promises held."""
        return self.share_caught >= CAUGHT_AT_LEAST and self.pages_a_month <= PAGES_A_MONTH


def page(groups: Sequence[Group], size: Size) -> str:
    """The page, in Markdown."""
    return "\n".join(_lines(groups, size)) + "\n"


def _lines(groups: Sequence[Group], size: Size) -> Iterator[str]:
    yield "# The last run of the alert drill"
    yield ""
    yield (
        f"{size.agents} agents for {size.days} days in each world; two worlds a seed, one in which "
        "nothing is wrong and one with incidents. Written by `make drill`; [alerts.md](alerts.md) "
        "says what the columns are."
    )
    for group in groups:
        yield ""
        yield f"## {group.title} (seeds {', '.join(map(str, group.seeds))})"
        yield ""
        yield from _outcome(group)
        yield ""
        yield from catch_table(group.caught)
        yield ""
        yield from alarm_table(group.false_alarms)


def _outcome(group: Group) -> Iterator[str]:
    count = len(real(group.caught))
    less = real(group.caught, telling=False)
    weeks = sum(int(m.sum()) for drill in group.troubled for m in calm(drill).values()) / WEEK
    every = [one for one in group.caught if one.real]
    others = sum(len(woken_for_others(drill)) for drill in group.troubled)
    yield (
        f"- Incidents of real size, with traffic enough: {count}. Caught within {SOON} minutes of "
        f"labelled data: {group.share_caught:.1%} (plain rules: {group.share_of_plain:.1%})."
    )
    yield (
        f"- Incidents of real size, with less traffic: {len(less)}. Caught within {SOON} minutes "
        f"of labelled data: {share_in_time(less):.1%} (plain rules: "
        f"{share_in_time(less, plain=True):.1%})."
    )
    yield (
        f"- All incidents of real size: {len(every)}. Caught within {SOON} minutes of labelled "
        f"data: {share_in_time(every):.1%} (plain rules: {share_in_time(every, plain=True):.1%})."
    )
    yield f"- False pages in healthy weeks, a month and agent: {group.pages_a_month:.2f}."
    yield (
        f"- In worlds with incidents, alerts about agents that had none for a day: {others} in "
        f"{weeks:.1f} agent-weeks."
    )
