"""``python -m tests.bridge_campaign``: kill bridges and workers while traces arrive, and compare.

The live figures must equal those of ``stream-metrics replay kafka:TRACES`` byte for byte. 1 on a
difference.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import describe
from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from tests.campaign.report import publish
from tests.services.bridged import Campaign, bridged, campaign


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bridge_campaign", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="the first seed (default: 1)")
    add("--rounds", type=int, default=1, help="how many seeds, one after the other (default: 1)")
    add(
        "--traces",
        type=int,
        default=5_700,
        help="traces of a seed (default: 5700, some 50,000 spans)",
    )
    add("--searches", type=int, default=6, help="most searches of a trace (default: 6)")
    add("--kills", type=int, default=10, help="kills of a seed (default: 10)")
    add("--publish", type=Path, help="file for the table, such as docs/evidence/bridge-run.md")
    return parser.parse_args(arguments)


async def rounds(chosen: argparse.Namespace) -> list[Campaign]:
    """All seeds, on servers of their own."""
    done = []
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        with tempfile.TemporaryDirectory(prefix=f"bridge-{seed}-") as folder:
            place = Path(folder)
            async with Kafka(place / "kafka") as kafka, RedisServer(place / "redis") as redis:
                system = await bridged(kafka, redis, place / f"seed{seed}")
                try:
                    found = await campaign(
                        system, seed, chosen.traces, chosen.kills, chosen.searches
                    )
                finally:
                    for one in (*system.bridges, *system.workers):
                        one.kill9()
        print(found, flush=True)
        done.append(found)
    return done


def page(done: list[Campaign]) -> str:
    """The table."""
    exact = sum(not one.differences for one in done)
    lines = [
        "# Last run of the bridge under faults",
        "",
        "Traces arrive, in disorder, split over records and in part repeated, while two bridges",
        "and two workers are killed with `kill -9`. Afterwards the export of the live state is",
        "compared with `stream-metrics replay kafka:TRACES`, byte for byte",
        "(`make bridge-campaign`).",
        "",
        f"{exact} of {len(done)} seeds equal.",
        "",
        "| seed | traces | spans | records | events | kills: bridge, worker | rows | late spans "
        "| seconds | differences |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in done:
        kills = f"{one.kills.count('bridge')}, {one.kills.count('worker')}"
        lines.append(
            f"| {one.seed} | {one.traces:,} | {one.spans:,} | {one.records:,} | {one.events:,} "
            f"| {kills} | {one.rows:,} | {one.late:,.0f} | {one.seconds:.0f} "
            f"| {', '.join(one.differences) or 'none'} |"
        )
    about = ["", "Late spans are those that the bridges at the end have counted.", ""]
    return "\n".join([*lines, *about, "```text", describe().rstrip(), "```", ""])


def main() -> int:
    """Run all seeds; the exit code."""
    chosen = parse()
    done = asyncio.run(rounds(chosen))
    publish(page(done), chosen.publish)
    return int(any(one.differences for one in done))


if __name__ == "__main__":
    sys.exit(main())
