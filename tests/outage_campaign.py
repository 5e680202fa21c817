"""``python -m tests.outage_campaign``: take Kafka, Redis, a broker or a right away for minutes.

Each outage has servers of its own, and its result is kept, so that a page can be made of several
runs. 1 if a person on call would have been told nothing, or something that is not so, or if a
record was lost or counted twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Final

from benchmarks.machine import commit, describe
from tests.services.outage_stage import run
from tests.services.outages import BRIDGE, BY_NAME, OUTAGES, WORKER, Minute, Outage, Result

ALERT_SECONDS: Final = 210  # two minutes of the rule, and what it takes to notice
READY_SECONDS: Final = 90
MOST_LINES: Final = 60  # of a service in a minute
LATE_SECONDS: Final = 30  # of lag, while nothing should be noticed
CONSEQUENCES: Final = frozenset(
    ("StreamMetricsConsumerLagGrowing", "StreamMetricsBridgeBehind", "StreamMetricsDeadLetters")
)
"""Alerts that an outage may raise beside the one that names its cause."""
SAME: Final = "″"
KEPT: Final = Path("out/outages")


def problems(outage: Outage, result: Result) -> list[str]:
    """What was not as it should be."""
    found = list(result.wrong)
    if outage.alert:
        fired = result.fired.get(f"{outage.alert} ({outage.reason})")
        if fired is None or fired > ALERT_SECONDS:
            found.append(f"{outage.alert} ({outage.reason}) fires {_after(fired, 'the beginning')}")
        others = result.fired.keys() - {f"{outage.alert} ({outage.reason})"}
        if causes := {one for one in others if one.partition(" ")[0] not in CONSEQUENCES}:
            found.append(f"other causes are alerted: {', '.join(sorted(causes))}")
        if not result.cause:
            found.append(f"no log has {outage.named!r}")
    elif result.fired:
        found.append(f"alerts fire: {', '.join(result.fired)}")
    if result.ready_after is None or result.ready_after > READY_SECONDS:
        found.append(f"ready {_after(result.ready_after)}")
    if not _resolved(outage, result.minutes[-1]):
        found.append(f"an alert is still there in minute {result.minutes[-1].number}")
    for minute in result.minutes:
        found += [f"minute {minute.number}: {one}" for one in _problems(outage, result, minute)]
    return found


def _resolved(outage: Outage, minute: Minute) -> bool:
    """Whether the alert that names the cause is gone; any, if there should be none."""
    return not any(outage.alert in one for one in minute.alerts)


def _problems(outage: Outage, result: Result, minute: Minute) -> Iterator[str]:
    for service, lines in minute.lines.items():
        if lines > MOST_LINES:
            yield f"{service} logs {lines} lines"
    waits = outage.whose if minute.away else ()
    for service, said in minute.readyz.items():
        expected = f"503 {outage.reason}" if service.split()[0] in waits else "200"
        if minute.away and said != expected:
            yield f"/readyz of {service} says {said}"
    for service, samples in minute.lag.items():
        if service in waits and samples and not sum(samples):
            yield f"the {service} exports a lag of 0"
        if len(outage.brokers) > 1 and minute.away and samples:
            yield f"the {service} exports a lag"
    if WORKER in waits:
        if minute.pill == "live":
            yield "the page calls itself live"
        if minute.tile.startswith("0.0 s"):
            yield f"the page shows a lag of {minute.tile}"
        if (minute.read_up_to or 0) > result.began + LATE_SECONDS:
            yield f"top says: {minute.top}"
    elif (
        minute.away and (minute.read_up_to or 0) < result.began + 60 * minute.number - LATE_SECONDS
    ):
        yield f"top says: {minute.top}"
    if BRIDGE in waits and not minute.bridge.startswith("waiting"):
        yield f"the bridge's page says: {minute.bridge}"
    if minute.top_code != (2 if outage.redis and minute.away else 0):
        yield f"top exits with {minute.top_code}: {minute.top}"


def _after(seconds: float | None, what: str = "the return") -> str:
    return f"not at all after {what}" if seconds is None else f"{seconds:.0f} s after {what}"


def page(results: Sequence[Result], machine: str) -> str:
    """The results as a page."""
    good = sum(not problems(BY_NAME[one.name], one) for one in results)
    lengths = {sum(minute.away for minute in one.minutes) for one in results}
    lines = [
        "# Last run of outages",
        "",
        "Three brokers that deny by default, Redis, Prometheus with the shipped rules, two workers",
        "and a bridge run with a few events and traces a second, of which some are invalid.",
        "One thing is taken away for some minutes, and given back (`make outages`). Afterwards the",
        "export of the live state must equal replays of the input topics and of the traces,",
        "`audit` must find no difference, and every invalid record must be a dead letter.",
        "",
        "The tables have what is said at the end of each minute. Alerts are without their common",
        "beginning `StreamMetrics`, and × tells of how many series. Log lines are those of both",
        "workers and of the bridge during the minute, with the most frequent sentence of all.",
        f"{SAME} means that nothing has changed since the minute before. Alerts that follow from",
        "the cause, such as those on lag, go on for minutes afterwards by their rules.",
        "",
        f"{good} of {len(results)} outages of {_either(lengths)} minutes, each run once, went as "
        "they should.",
        "",
        "| outage | fires after seconds | ready again | alert of the cause gone | all alerts gone "
        "| records sent | rows compared | commit | what was wrong |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_summary(one) for one in results),
    ]
    for one in results:
        lines += ["", *_table(one)]
    return "\n".join(
        [*lines, "", "```text", re.sub("; load .*|commit .*", "", machine).rstrip(), "```", ""]
    )


def _either(numbers: set[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))


def _summary(result: Result) -> str:
    outage = BY_NAME[result.name]
    fired = ", ".join(f"{_short(name)} {at:.0f}" for name, at in result.fired.items()) or "none"
    back = [minute for minute in result.minutes if not minute.away]
    gone = next((at for at, one in enumerate(back, start=1) if _resolved(outage, one)), None)
    cells = (
        f"[{result.name}](#{result.name})",
        fired,
        "no" if result.ready_after is None else f"after {result.ready_after:.0f} s",
        "no" if gone is None else f"in minute {gone}" if outage.alert else "none",
        "later" if result.resolved_after is None else f"after {result.resolved_after:.0f} s",
        f"{result.sent:,}",
        f"{result.rows:,}",
        result.commit,
        _cell("; ".join(problems(outage, result)) or "nothing"),
    )
    return f"| {' | '.join(cells)} |"


def _table(result: Result) -> list[str]:
    outage = BY_NAME[result.name]
    return [
        f"## {outage.name}",
        "",
        outage.what,
        *([f"The log says: “{_cell(result.cause)}”."] if outage.named else []),
        "",
        "| minute | Prometheus | page: verdict | pill | lag tile | `/readyz` of workers | of the "
        "bridge | the bridge's page | `top` | log lines | most frequent | samples of lag: workers, "
        "bridge |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {' | '.join(_new(now, before))} |"
            for before, now in pairwise([(), *map(_row, result.minutes)])
        ),
    ]


def _new(row: Sequence[str], before: Sequence[str]) -> Iterator[str]:
    """The cells of a row, of which those that are as in the row before are only marked."""
    return (SAME if one == former else one for one, former in zip_longest(row, before))


def _row(minute: Minute) -> tuple[str, ...]:
    alerts = ", ".join(
        f"{_short(name)} {state}{f' ×{number}' if number > 1 else ''}"
        for (state, _, name), number in (
            (alert.partition(": "), number) for alert, number in minute.alerts.items()
        )
    )
    workers = {said for service, said in minute.readyz.items() if service.startswith(WORKER)}
    exits = f" (exit code {minute.top_code})" if minute.top_code else ""
    lag = [f"{len(of)}, sum {sum(of):.0f}" if of else "none" for of in minute.lag.values()]
    cells = (
        f"{minute.number}" if minute.away else f"{minute.number}, given back",
        alerts or "none",
        minute.verdict,
        minute.pill,
        minute.tile,
        " / ".join(sorted(workers)),
        minute.readyz[BRIDGE],
        minute.bridge,
        minute.top + exits,
        " + ".join(map(str, minute.lines.values())),
        minute.sentence or "none",
        "; ".join(lag),
    )
    return tuple(map(_cell, cells))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _short(alert: str) -> str:
    return alert.removeprefix("StreamMetrics")


async def campaign(chosen: argparse.Namespace) -> None:
    """Run the chosen outages, and keep the result of each; raises the errors of all at the end."""
    chosen.folder.mkdir(parents=True, exist_ok=True)
    turn = asyncio.Semaphore(chosen.at_once)

    async def one(outage: Outage) -> None:
        async with turn:
            try:
                with tempfile.TemporaryDirectory(prefix=f"outage-{outage.name}-") as folder:
                    result = await run(outage, Path(folder), chosen.minutes, chosen.after)
                result.commit = commit()
            except Exception:
                traceback.print_exc()  # the others may go on for an hour
                raise
        (chosen.folder / f"{outage.name}.json").write_text(json.dumps(asdict(result), indent=1))
        print(outage.name, problems(outage, result) or "as it should be", flush=True)

    outcomes = await asyncio.gather(
        *(one(BY_NAME[name]) for name in chosen.only), return_exceptions=True
    )
    if errors := [one for one in outcomes if isinstance(one, BaseException)]:
        raise BaseExceptionGroup("some outages could not be run", errors)


def kept(folder: Path) -> list[Result]:
    """The results in a folder, in the order of the outages."""
    found = []
    for outage in OUTAGES:
        file = folder / f"{outage.name}.json"
        if file.exists():
            result = Result(**json.loads(file.read_text()))
            result.minutes = [Minute(**of) for of in json.loads(file.read_text())["minutes"]]
            found.append(result)
    return found


def main() -> int:
    """Run the chosen outages, and make the page of all that are kept; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.outage_campaign", description=__doc__)
    add = parser.add_argument
    add(
        "--only", nargs="*", default=list(BY_NAME), metavar="OUTAGE",
        help=f"of {', '.join(BY_NAME)} (default: all; none makes the page again)",
    )  # fmt: skip
    add("--minutes", type=int, default=6, help="how long each lasts (default: 6)")
    add("--after", type=int, default=2, help="minutes to look on afterwards (default: 2)")
    add("--at-once", type=int, default=1, help="outages at the same time (default: 1)")
    add("--folder", type=Path, default=KEPT, help=f"for the results (default: {KEPT})")
    add("--publish", type=Path, help="file for a page of all results in the folder")
    chosen = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # of the traffic's own producer
    machine = describe()
    asyncio.run(campaign(chosen))
    results = kept(chosen.folder)
    text = page(results, machine)
    print(text)
    if chosen.publish:
        chosen.publish.write_text(text, encoding="utf-8")
    return int(any(problems(BY_NAME[one.name], one) for one in results))


if __name__ == "__main__":
    sys.exit(main())
