"""``stream-metrics judge agreement``: how far a model's grades agree with people's."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from stream_metrics.cli.common import (
    ConfigOption,
    FormatOption,
    UsageError,
    printable,
    stderr_console,
    text_table,
    time_text,
)
from stream_metrics.cli.judge_sources import keyed_records, named, settings_and_sources
from stream_metrics.cli.places import DataOption
from stream_metrics.cli.sources import SinceOption, UntilOption
from stream_metrics.core.judge.pairs import GradedTwice, PairCollector
from stream_metrics.lab.evaluation.agreement import Agreement, Drift, Interval, Pair, agreement

ALL: Final = "all"
NO_RELEASE: Final = "–"
WIDTH: Final = 200


def judge_agreement(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recordings, kafka:TOPIC or the folder of `serve`, with both kinds of labels. "
            "Default: the input topics.",
            show_default=False,
        ),
    ] = None,
    data: DataOption = None,
    since: SinceOption = "earliest",
    until: UntilOption = "end",
    format_: FormatOption = "table",
    config: ConfigOption = None,
) -> None:
    """Compare the grades that a model and people gave the same results.

    Prints Cohen's κ of the grades, also with quadratic weights, and of good or not. Then the
    model's bias: its grade less people's on average, and the share of results that it finds good
    less theirs. By agent and release, with 95% intervals by conversation. Then how often which
    grade met which, the bias at each grade of people, and since when the bias has changed, if there
    is evidence of it.

    Only turns in the random sample of people count, unless there are none.

    Exit code 2 if no result has both.
    """
    settings, read = settings_and_sources(config, sources, data)
    limits, models = settings.limits.in_force(), settings.labels.model_labellers
    collector = PairCollector(limits, models)
    for record in keyed_records(read, settings, since, until):
        collector.add(record)
    groups: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for one in _drawn(collector.pairs()):
        release = one.release or NO_RELEASE
        pair = Pair(one.conversation_id, one.time_us, one.agent, release, one.human, one.model)
        for group in dict.fromkeys([(ALL, ALL), (one.agent, ALL), (one.agent, release)]):
            groups[group].append(pair)
    if not groups:
        raise UsageError(
            f"{named(read)}: no result has a grade of a model "
            "and one of people; `judge export-for-people` writes what people can grade"
        )
    try:
        found = {
            group: agreement(pairs, settings.metrics.good_gain)
            for group, pairs in sorted(groups.items(), key=lambda one: (one[0] != (ALL, ALL), one))
            if group[1] in (ALL,) or _has_releases(groups, group[0])
        }
    except ModuleNotFoundError as error:
        raise UsageError(str(error)) from error
    if format_ == "json":
        typer.echo(json.dumps([_as_json(group, one) for group, one in found.items()]))
    else:
        _print(found)
    if len(collector.labellers) > 1:
        names = printable(", ".join(sorted(collector.labellers)))
        stderr_console().print(f"several models or prompts have signed labels: {names}")


def _drawn(pairs: Sequence[GradedTwice]) -> Sequence[GradedTwice]:
    """The grades of turns that people were given at random; all, aloud, if there are none."""
    drawn, note = [one for one in pairs if one.drawn], stderr_console().print
    chosen = f"{len(pairs) - len(drawn):,} results are of turns that people chose"
    if pairs and not drawn:
        note(f"all {chosen}, so these figures may not hold for others")
        return pairs
    if len(drawn) < len(pairs):
        note(f"left out: {chosen}")
    return drawn


def _has_releases(groups: dict[tuple[str, str], list[Pair]], agent: str) -> bool:
    """Whether an agent has any release, so that rows by release say more."""
    return any(name == agent and release not in (ALL, NO_RELEASE) for name, release in groups)


def _print(found: dict[tuple[str, str], Agreement]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    heads = ["agent", "release", "results", "conversations"]
    heads += ["κ", "weighted κ", "κ of good", "bias", "good"]
    rows = [
        [
            *group,
            f"{one.pairs:,}",
            f"{one.conversations:,}",
            *(_text(each) for each in (one.kappa, one.weighted, one.good_kappa, one.bias)),
            _text(one.good, percent=True),
        ]
        for group, one in found.items()
    ]
    console.print(text_table(heads, rows, right=heads[2:]))
    console.print()
    whole = found[ALL, ALL]
    heads = ["people", *(f"model {grade}" for grade in range(5)), "bias"]
    rows = [
        [
            str(grade),
            *(f"{n:,}" for n in row),
            "–" if (bias := whole.by_grade[grade][1]) is None else f"{bias:+.2f}",
        ]
        for grade, row in enumerate(whole.table.tolist())
    ]
    console.print(text_table(heads, rows, right=heads[1:]))
    console.print()
    for (agent, release), one in found.items():
        if one.drift is not None and release == ALL:
            console.print(printable(f"{agent}: {_drift(one.drift)}"), markup=False)
    if whole.drift is None:
        said = "no evidence that the bias has changed"
        console.print(said if whole.judged else "too few conversations to tell whether it changed")


def _text(interval: Interval, *, percent: bool = False) -> str:
    def number(value: float) -> str:
        return f"{value:+.1%}" if percent else f"{value:+.2f}"

    if interval.value is None:
        return "–"
    if interval.low is None or interval.high is None:
        return number(interval.value)
    return f"{number(interval.value)} [{number(interval.low)}, {number(interval.high)}]"


def _drift(drift: Drift) -> str:
    since, evident = (time_text(us // 1000)[:16] for us in (drift.since_us, drift.evident_us))
    kinder = "kinder" if drift.after > drift.before else "stricter"
    return (
        f"the model has become {kinder}: its bias was {drift.before:+.2f} grades, and is "
        f"{drift.after:+.2f} since about {since}, evident from {evident} on"
    )


def _as_json(group: tuple[str, str], one: Agreement) -> dict[str, Any]:
    drift = None if one.drift is None else one.drift._asdict()
    return {
        "agent": None if group[0] == ALL else group[0],
        "release": None if group[1] in (ALL, NO_RELEASE) else group[1],
        "results": one.pairs,
        "conversations": one.conversations,
        "kappa": one.kappa,
        "weighted_kappa": one.weighted,
        "good_kappa": one.good_kappa,
        "bias": one.bias,
        "good_bias": one.good,
        "table": one.table.tolist(),
        "by_grade": one.by_grade,
        "drift": drift,
    }
