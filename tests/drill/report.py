"""The report of the drill: detected incidents and false alarms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stream_metrics.core.alerts.alert import WARNING
from tests.drill.added import NEW, added_table
from tests.drill.bands import BANDS, Share, band_table, compare, in_band
from tests.drill.curves import MONTH, Sweep
from tests.drill.gather import ALERT_OF
from tests.drill.goals import (
    Rate,
    Reached,
    compared_cell,
    comparison_table,
    goal_table,
    goals_of,
    no_more,
)
from tests.drill.pictures import Former
from tests.drill.plan import SOON
from tests.drill.run import Drill
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
from tests.drill.simulation import Size


@dataclass(frozen=True, slots=True)
class Group:
    """Drills of some seeds: worlds in which nothing is wrong, and worlds with incidents.

    ``windows`` are those of the former rules in the same worlds, ``swept`` what other thresholds
    do, by figure and kind of rule.
    """

    title: str
    seeds: tuple[int, ...]
    healthy: Sequence[Drill]
    troubled: Sequence[Drill]
    windows: tuple[Sequence[Drill], Sequence[Drill]] = ((), ())
    swept: Mapping[str, Mapping[str, Sweep]] = field(default_factory=dict)

    @property
    def caught(self) -> list[Caught]:
        """Every incident with what became of it."""
        return judged(self.troubled)

    @property
    def false_alarms(self) -> list[FalseAlarms]:
        """By alert, in the healthy worlds."""
        return false_alarms(self.healthy)

    @property
    def paging(self) -> set[str]:
        """The alerts that page with at least one of their severities."""
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

    def former(self, figure: str) -> Former:
        """What the former rules of a figure did."""
        healthy, troubled = self.windows
        alarms, _ = rates(healthy, ALERT_OF[figure])
        found = [one for one in judged(troubled) if one.kind.alert == ALERT_OF[figure]]
        return Former(alarms.a_month, found)

    @property
    def goals(self) -> list[Reached]:
        """Every goal with what became of it."""
        return list(goals_of(self.caught, *rates(self.healthy)))

    @property
    def kept(self) -> bool:
        """Whether all goals were reached that could be told."""
        told = [goal.reached for goal in self.goals if goal.reached is not None]
        return bool(real(self.caught)) and all(told)


def judged(drills: Iterable[Drill]) -> list[Caught]:
    """Every incident that some alert is meant for which was evaluated."""
    return [
        one
        for drill in drills
        for one in caught(drill)
        if any(rule.name == one.kind.alert for rule in drill.rules)
    ]


def rates(healthy: Sequence[Drill], alert: str | None = None) -> tuple[Rate, Rate]:
    """Alarms about agents in healthy weeks, and those that page; of one alert, or of all.

    An alert that fires with two severities at a time is one alarm.
    """
    months = sum(len(drill.agents) * drill.minutes for drill in healthy) / MONTH
    about = [
        (drill.rules, one)
        for drill in healthy
        for one in drill.firings
        if "agent" in one.labels and alert in (None, one.rule.name)
    ]
    pages = [one for _, one in about if one.rule.severity == PAGE]
    warned = [one for _, one in about if one.rule.severity == WARNING]
    alone = [
        one
        for rules, one in about
        if one.rule.severity == PAGE
        and not any(rule.name == one.rule.name and rule.severity == WARNING for rule in rules)
    ]
    return Rate(len(warned) + len(alone), months), Rate(len(pages), months)


def page(groups: Sequence[Group], size: Size, drawn: str = "") -> str:
    """The page, in Markdown; ``drawn`` says where held-out seeds come from."""
    return "\n".join(_lines(groups, size, drawn)) + "\n"


def _lines(groups: Sequence[Group], size: Size, drawn: str) -> Iterator[str]:
    yield "# Last run of the alert drill"
    yield ""
    yield (
        f"{size.agents} agents for {size.days} days in each world, whose turns are drawn from "
        f"{size.turns_each:,} for each agent and condition. Each seed has two worlds: one without "
        "and one with incidents. Generated by `make drill`; "
        "[Alert drill](alert-drill.md) explains the columns."
    )
    if drawn:
        yield drawn
    for group in groups:
        yield ""
        yield f"## {group.title} (seeds {', '.join(map(str, group.seeds))})"
        yield ""
        yield from goal_table(group.goals)
        yield ""
        yield from _bands(group)
        if any(one.kind.alert in NEW for one in group.caught):
            yield ""
            yield from _added(group)
        if group.swept:
            yield ""
            yield from _curves(group)
        yield ""
        yield from _outcome(group)
        yield ""
        yield from catch_table(group.caught)
        yield ""
        late = late_table(group.caught)
        none = "" if late else " none."
        yield f"Incidents of real size with enough traffic that were late or missed:{none}"
        if late:
            yield ""
            yield from late
        yield ""
        yield from alarm_table(group.false_alarms)


def _bands(group: Group) -> Iterator[str]:
    """What was caught by traffic, by these rules and by the former ones."""
    yield "Incidents of agents, of real size, by traffic:"
    yield ""
    yield from band_table(group.caught)
    former_healthy, former_troubled = group.windows
    former = judged(former_troubled)
    if not former:  # they knew nothing of such incidents
        return
    alarms, pages = rates(former_healthy)
    yield ""
    yield (
        f"The former rules, which compared windows, had {alarms} false alarms a month and agent, "
        f"of which {pages} paged, and caught:"
    )
    yield ""
    yield from band_table(former)
    yield ""
    yield "Of the same incidents, only these rules and only the former ones caught in time:"
    yield ""
    yield "| turns in the first ten minutes | these : former |"
    yield "|---|---|"
    ours = [one for one in group.caught if one.kind.alert in {of.kind.alert for of in former}]
    for band in BANDS:
        yield f"| {band} | {compared_cell(compare(in_band(ours, band), in_band(former, band)))} |"


def _added(group: Group) -> Iterator[str]:
    """The same incidents with the rules about loops and without them."""
    (alarms, pages), of_new = rates(group.healthy), [rates(group.healthy, name) for name in NEW]
    found = Rate(sum(rate.alarms for rate, _ in of_new), alarms.months)
    paged = Rate(sum(rate.alarms for _, rate in of_new), pages.months)
    yield (
        "With and without the rules about repeated and empty searches, incidents of real size, by "
        f"the first alert of evidence. These rules had {found} false alarms a month and agent, of "
        f"which {paged} paged."
    )
    yield ""
    yield from added_table(group.troubled)


def _curves(group: Group) -> Iterator[str]:
    """These rules against fixed thresholds, of which few have as many false alarms."""
    yield (
        "The same against fixed thresholds: over five minutes for five minutes, over five minutes "
        "at once, and over half an hour (decisions: an hour) at once. For each figure, the most "
        "sensitive one with no more false alarms than evidence has:"
    )
    yield ""
    yield from comparison_table(group.swept, no_more)
    yield ""
    yield (
        "And the one with the fewest false alarms that has as many or more. Ratios of quiet agents "
        "take few values, so that it often has far more:"
    )
    yield ""
    yield from comparison_table(group.swept, Sweep.at)


def _outcome(group: Group) -> Iterator[str]:
    enough, less = real(group.caught), real(group.caught, telling=False)
    count = len(enough)
    low, high = Share(sum(one.in_time for one in enough), count).interval
    weeks = sum(int(m.sum()) for drill in group.troubled for m in calm(drill).values()) / WEEK
    every = [one for one in group.caught if one.real]
    others = [one for drill in group.troubled for one in woken_for_others(drill)]
    pages = sum(one.rule.severity == PAGE for one in others)
    yield (
        f"- Incidents of real size with enough traffic: {count}. Caught within {SOON} minutes of "
        f"labelled data: {group.share_caught:.1%} (95% CI {low:.1%} to {high:.1%}; plain rules: "
        f"{group.share_of_plain:.1%})."
    )
    incidents = {one.incident for one in enough}
    yield (
        f"- These are {len(incidents)} incidents, counted once per alert meant for them; "
        f"{sum(one.agent is None for one in incidents)} concern all agents."
    )
    yield (
        f"- Incidents of real size with less traffic: {len(less)}. Caught within {SOON} minutes "
        f"of labelled data: {share_in_time(less):.1%} (plain rules: "
        f"{share_in_time(less, plain=True):.1%})."
    )
    yield (
        f"- All incidents of real size: {len(every)}. Caught within {SOON} minutes of labelled "
        f"data: {share_in_time(every):.1%} (plain rules: {share_in_time(every, plain=True):.1%})."
    )
    paged = [one for one in enough if one.kind.alert in group.paging]
    yield (
        f"- Of those with enough traffic, {len(paged)} have an alert that pages, which paged in "
        f"time for {sum(one.paged_in_time for one in paged)}. The others only notify in working "
        "hours."
    )
    yield (
        f"- False pages in healthy weeks: {group.pages_a_month_and_agent:.2f} per month and agent, "
        f"at most {most_pages(group.healthy)} for one agent of a world; "
        f"{group.pages_a_month:.2f} per month about the system as a whole."
    )
    yield (
        "- Alerts about agents without an incident for a day, in worlds with incidents: "
        f"{len(others)} in {weeks:.1f} agent-weeks, {pages} of them pages."
    )
