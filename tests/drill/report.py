"""The drill's outcome as a page: what was caught, and what woke people for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from scipy.stats import binomtest

from tests.drill.plan import SOON
from tests.drill.run import Drill, Size
from tests.drill.score import (
    PAGE,
    WEEK,
    Caught,
    FalseAlarms,
    alarm_table,
    calm,
    catch_table,
    caught,
    false_alarms,
    late_table,
    most_pages,
    real,
    share_in_time,
    woken_for_others,
)

CAUGHT_AT_LEAST: Final = 0.95
PAGES_A_MONTH: Final = 1.0  # about an agent in a month of it, and about the system as a whole


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
    def paging(self) -> set[str]:
        """The alerts that wake somebody, of one of their severities at least."""
        return {rule.name for d in self.troubled for rule in d.rules if rule.severity == PAGE}

    @property
    def share_caught(self) -> float:
        """Of the incidents of real size, the share caught within ten minutes of labelled data."""
        return share_in_time(real(self.caught))

    @property
    def share_of_plain(self) -> float:
        """The same for the plain rules."""
        return share_in_time(real(self.caught), plain=True)

    @property
    def pages_a_month_and_agent(self) -> float:
        """False pages about an agent in a month of it, of all alerts together."""
        return sum(one.a_month_and_agent for one in self.false_alarms if one.severity == PAGE)

    @property
    def pages_a_month(self) -> float:
        """False pages about no agent in a month, of all alerts together."""
        return sum(one.a_month for one in self.false_alarms if one.severity == PAGE)

    @property
    def kept(self) -> bool:
        """Whether all promises held."""
        return (
            self.share_caught >= CAUGHT_AT_LEAST
            and self.pages_a_month_and_agent <= PAGES_A_MONTH
            and self.pages_a_month <= PAGES_A_MONTH
        )


def page(groups: Sequence[Group], size: Size) -> str:
    """The page, in Markdown."""
    return "\n".join(_lines(groups, size)) + "\n"


def _lines(groups: Sequence[Group], size: Size) -> Iterator[str]:
    yield "# The last run of the alert drill"
    yield ""
    yield (
        f"{size.agents} agents for {size.days} days in each world; two worlds a seed, one in which "
        "nothing is wrong and one with incidents. Written by `make drill`; "
        "[The alert drill](alert-drill.md) says what the columns mean."
    )
    for group in groups:
        yield ""
        yield f"## {group.title} (seeds {', '.join(map(str, group.seeds))})"
        yield ""
        yield from _outcome(group)
        yield ""
        yield from catch_table(group.caught)
        yield ""
        late = late_table(group.caught)
        yield f"Of real size, with traffic enough, and late or missed:{'' if late else ' none.'}"
        if late:
            yield ""
            yield from late
        yield ""
        yield from alarm_table(group.false_alarms)


def _wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share; all of it if there is nothing."""
    if not of:
        return 0.0, 1.0
    found = binomtest(hits, of).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def _outcome(group: Group) -> Iterator[str]:
    enough, less = real(group.caught), real(group.caught, telling=False)
    count = len(enough)
    low, high = _wilson(sum(one.in_time for one in enough), count)
    weeks = sum(int(m.sum()) for drill in group.troubled for m in calm(drill).values()) / WEEK
    every = [one for one in group.caught if one.real]
    others = [one for drill in group.troubled for one in woken_for_others(drill)]
    pages = sum(one.rule.severity == PAGE for one in others)
    yield (
        f"- Incidents of real size, with traffic enough: {count}. Caught within {SOON} minutes of "
        f"labelled data: {group.share_caught:.1%} (95% CI {low:.1%} to {high:.1%}; plain rules: "
        f"{group.share_of_plain:.1%})."
    )
    incidents = {one.incident for one in enough}
    yield (
        f"- These are {len(incidents)} incidents, each counted once for every alert that is meant "
        f"for it; {sum(one.agent is None for one in incidents)} of them concern all agents."
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
    paged = [one for one in enough if one.kind.alert in group.paging]
    yield (
        f"- Of those with traffic enough, {len(paged)} have an alert that pages. It paged in "
        f"time for {sum(one.paged_in_time for one in paged)} of them; the others are messages for "
        "working hours."
    )
    yield (
        f"- False pages in healthy weeks: {group.pages_a_month_and_agent:.2f} a month and agent "
        f"about agents, at most {most_pages(group.healthy)} about one agent of a world; "
        f"{group.pages_a_month:.2f} a month about the system as a whole."
    )
    yield (
        "- In worlds with incidents, alerts about agents that had none for a day: "
        f"{len(others)} in {weeks:.1f} agent-weeks, {pages} of them pages."
    )
