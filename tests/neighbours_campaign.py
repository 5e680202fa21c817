"""``python -m tests.neighbours_campaign``: a hostile service beside three good ones, for an hour.

The rows and windows of the three must equal a replay without the fourth, byte for byte. 1 on a
difference, or if the bridge ended.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import describe
from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Collector, RedisServer
from deploy.local.traces import COLLECTOR_CONFIG
from tests.services.bridged import bridged
from tests.services.neighbours import SETTINGS, Outcome, run

SETTLE_SECONDS = 10


async def campaign(seed: int, minutes: float, pause: float) -> Outcome:
    """One run on servers of its own."""
    with tempfile.TemporaryDirectory(prefix="neighbours-") as folder:
        place = Path(folder)
        async with Kafka(place / "kafka") as kafka, RedisServer(place / "redis") as redis:
            settings = {**SETTINGS, "bridge__settle": f"{SETTLE_SECONDS}s"}
            system = await bridged(kafka, redis, place / f"seed{seed}", **settings)
            server = Collector(
                place / "collector", COLLECTOR_CONFIG, kafka.bootstrap_servers, topic=system.traces
            )
            try:
                async with server as collector:
                    return await run(system, collector, seed, 60 * minutes, pause)
            finally:
                for one in (*system.bridges, *system.workers):
                    one.kill9()


def page(seed: int, minutes: float, done: Outcome) -> str:
    """The result as a page."""
    fresh = done.freshness
    kinds = [f"| {name} | {number} |" for name, number in sorted(done.hostile.items())]
    reasons = [f"| `{name}` | {number:,.0f} |" for name, number in done.refused.items()]
    return "\n".join(
        [
            "# Last run of a hostile service beside three good ones",
            "",
            "Four services send traces to one OpenTelemetry Collector. Three of them send good",
            "ones, the fourth sends one kind of bad ones after the other, and damaged records go",
            "directly to the topic. Afterwards the rows and windows of the three are compared with",
            "a replay of their traces alone (`make neighbours`).",
            "",
            f"- Seed {seed}, {minutes:g} minutes, {done.good_turns:,} good turns, "
            f"{done.rows:,} rows compared.",
            f"- Differences: {', '.join(done.differences) or 'none'}.",
            f"- Ends and restarts of the bridge: {done.restarts}.",
            "- From the end of a turn to the worker's `/metrics`, with `bridge.settle` at "
            f"{SETTLE_SECONDS} s (n = {len(fresh.seconds):,}): "
            f"median {fresh.percentile(0.5):.1f} s, p99 {fresh.percentile(0.99):.1f} s, "
            f"longest {max(fresh.seconds):.1f} s.",
            "",
            "| what the fourth service sent | times |",
            "|---|---|",
            *kinds,
            "",
            "| refused as | times |",
            "|---|---|",
            *reasons,
            "",
            "```text",
            describe().rstrip(),
            "```",
            "",
        ]
    )


def main() -> int:
    """Run once; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.neighbours_campaign", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=1, help="the seed (default: 1)")
    parser.add_argument("--minutes", type=float, default=60, help="how long (default: 60)")
    parser.add_argument(
        "--pause", type=float, default=1.0, help="seconds between turns of a service (default: 1)"
    )
    parser.add_argument("--publish", type=Path, help="file for the result")
    chosen = parser.parse_args()
    done = asyncio.run(campaign(chosen.seed, chosen.minutes, chosen.pause))
    text = page(chosen.seed, chosen.minutes, done)
    print(text)
    if chosen.publish:
        chosen.publish.write_text(text, encoding="utf-8")
    return int(bool(done.differences or done.restarts))


if __name__ == "__main__":
    sys.exit(main())
