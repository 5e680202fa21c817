"""SRR and SRE of a recording by ``stream-metrics replay``, and by programs with data frames.

The programs are in ``benchmarks/rivals/recordings.py`` and run with the interpreter of
``.venv/peers``. A replay does more: it writes rows, retrieval figures and a report with intervals.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.counted import of_row
from benchmarks.figures import Figure, figures_table, number, ratios, section, table
from benchmarks.peer import check_figures
from benchmarks.peers.turns import Figures, add_up
from benchmarks.replay import BRIEF as BRIEF_OPTIONS
from benchmarks.replay import MIB, replayed, write_recording
from benchmarks.rivals import PEERS, Measurement, Rival, peer_versions
from stream_metrics.lab.reports.files import ROWS

RECORDS: Final = 200_000
ROUNDS: Final = 5
TOOLS: Final = ("pandas", "polars")
REPLAY: Final = "replay"
BRIEF: Final = f"replay, {' '.join(BRIEF_OPTIONS)}"
OPTIONS: Final = {REPLAY: (), BRIEF: BRIEF_OPTIONS}


def run(*, quick: bool = False, records: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report."""
    versions = peer_versions(TOOLS)
    count = records or (20_000 if quick else RECORDS)
    done: list[dict[str, Measurement]] = []
    with tempfile.TemporaryDirectory(prefix="recordings-") as folder:
        source = Path(folder, "events.jsonl")
        write_recording(source, count)
        size = source.stat().st_size
        names = (*OPTIONS, *TOOLS)
        for at in range(rounds or (2 if quick else ROUNDS)):
            first = at % len(names)
            order = names[first:] + names[:first]
            found = {name: _measure(name, source, Path(folder, f"{at}-{name}")) for name in order}
            for name in TOOLS:
                check_figures(name, found[REPLAY].found, found[name].found)
            done.append(found)
    head = (
        f"{count:,} records, {size / MIB:,.0f} MiB, one process; the tools in another order each "
        f"round\n{versions}; load {os.getloadavg()[0]:.1f} at the end\n"
    )
    memory = [("", "largest process, MiB")]
    for name in names:
        memory.append((name, number(max(each[name].rss_bytes for each in done) / MIB)))
    return section(
        "recordings: the same SRR and SRE of a file",
        head,
        figures_table(_figures(done, count)),
        table(memory, right=(1,)),
    )


def _figures(done: list[dict[str, Measurement]], count: int) -> list[Figure]:
    cost = {name: [1e6 * each[name].cpu_seconds / count for each in done] for name in done[0]}
    fastest = [min(each) for each in zip(*(cost[name] for name in TOOLS), strict=True)]
    return [
        *(Figure(f"{name}, CPU an event", spent, "µs") for name, spent in cost.items()),
        *(
            Figure(f"{name} ÷ the faster of both", ratios(fastest, cost[name]), "")
            for name in OPTIONS
        ),
    ]


def _measure(name: str, source: Path, out: Path) -> Measurement:
    if name in TOOLS:
        with Rival("benchmarks.rivals.recordings", python=PEERS) as tool:
            return tool.ask(name, path=str(source))
    ran = replayed(source, out, 1, "--turn-scope", "all", *OPTIONS[name])
    return Measurement(*ran, found=_totals(out / ROWS))


def _totals(path: Path) -> dict[str, Figures]:
    totals: dict[str, Figures] = {}
    with path.open("rb") as file:
        for line in file:
            row = json.loads(line)
            add_up(totals, row["agent"], of_row(row))
    return totals
