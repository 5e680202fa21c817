"""How much of everything a load needs: ``python -m benchmarks.sizing --events-per-second 50000``.

``--write`` brings the generated parts of ``docs/guides/sizing.md`` in step with ``model.py``.
Options (``--help``) describe the load further, and give prices: there are none of any vendor here.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from benchmarks import model
from benchmarks.figures import number, table
from benchmarks.model import Batches, Constants, Mix

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "sizing.md"
GIB = 2**30
WORKER_BYTES = 140e6  # of a working process with an empty cache
CACHED_RESULT_BYTES = 1_000  # of state.cache_results
PER_WORKER, PER_MASTER = 2, 4  # partitions at least
REDIS_COLD_FACTOR = 2  # CPU of Redis if state exceeds the processor's caches
FETCHED = 4 * 4_194_304  # kafka.max_partition_fetch_bytes, of the partitions that are fetched first


@dataclass(frozen=True, slots=True)
class Load:
    """The load to size for; an event is a record of searches or of labels.

    ``touched``, ``loaded`` and ``held`` are as in ``Batches``. ``utilisation`` is the share
    of its capacity that a process uses: at 0.5 a backlog is read as fast as it built up.
    """

    events_per_second: float = 10_000
    searches: float = 0.50
    results: float = 5.8
    labels: float = 5.5
    bytes: float = 3_000
    events_per_conversation: float = 12
    further_values: float = 0
    touched: float = 1
    loaded: float = 0.1
    held: float = 20
    ttl_hours: float = 24
    retention_hours: float = 48
    replication: float = 3
    cache_results: float = 250_000
    utilisation: float = 0.5
    master_gib: float = 32
    broker_mb_per_second: float = 50

    @property
    def mix(self) -> Mix:
        """The average content of a record."""
        return Mix(self.searches, self.results, self.labels, self.bytes)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per month of a core, a GiB of memory and a GiB of disk, in any currency."""

    core: float = 0
    memory_gib: float = 0
    disk_gib: float = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The resources that a load needs.

    ``worker_us`` and ``worker_cores`` are at full batches, when a worker can do most. One that
    keeps up takes ``batch`` events at a time, and is busy with that: ``worker_cores_keeping_up``.
    """

    worker_us: float
    worker_cores: float
    worker_cores_keeping_up: float
    workers: int
    worker_gib: float
    partitions: int
    batch: float
    take_over_seconds: float
    conversations: float
    redis_us: float
    redis_cores: float
    redis_gib: float
    masters_by_cpu: int
    masters_by_memory: int
    kafka_mb_per_second: float
    broker_cores: float
    brokers: int
    disk_gib: float

    @property
    def masters(self) -> int:
        """The number of Redis masters."""
        return max(self.masters_by_cpu, self.masters_by_memory)

    @property
    def cores(self) -> float:
        """All cores, including those that are kept free."""
        return self.workers + self.masters + 2 * self.broker_cores

    @property
    def memory_gib(self) -> float:
        """GiB of workers and Redis; a machine of Redis needs three times its maxmemory."""
        return self.workers * self.worker_gib + 3 * self.redis_gib

    def cost(self, prices: Prices) -> float:
        """The cost per month."""
        memory, disk = self.memory_gib * prices.memory_gib, self.disk_gib * prices.disk_gib
        return self.cores * prices.core + memory + disk


def plan(load: Load, measured: Constants = model.MEASURED) -> Plan:
    """Size everything for a load.

    >>> small, large = plan(Load(events_per_second=1_000)), plan(Load(events_per_second=100_000))
    >>> small.workers < large.workers, large.partitions >= large.workers
    (True, True)
    """
    rate, mix = load.events_per_second, load.mix
    full = Batches(model.full_batch(), load.touched, load.loaded, load.held)
    each_us = model.worker_us(mix, full, measured)
    workers = max(1, math.ceil(rate * each_us / 1e6 / load.utilisation))
    batch, busy = model.keeping_up(rate / workers, PER_WORKER, mix, full, measured)
    redis_us = REDIS_COLD_FACTOR * model.redis_us(mix, replace(full, events=batch), measured)
    conversations = rate / load.events_per_conversation * 3600 * load.ttl_hours
    held = conversations * model.conversation_bytes(
        load.events_per_conversation * mix.searches,
        load.events_per_conversation * mix.results,
        load.events_per_conversation * mix.labels,
        load.events_per_conversation * mix.results * load.further_values,
        measured,
    )
    redis_gib = 2 * held / GIB
    by_cpu = max(1, math.ceil(rate * redis_us / 1e6 / load.utilisation))
    by_memory = max(1, math.ceil(redis_gib / load.master_gib))
    partitions = max(PER_WORKER * workers, PER_MASTER * max(by_cpu, by_memory))
    sent = rate * mix.bytes
    return Plan(
        worker_us=each_us,
        worker_cores=rate * each_us / 1e6,
        worker_cores_keeping_up=workers * busy,
        workers=workers,
        worker_gib=(WORKER_BYTES + CACHED_RESULT_BYTES * load.cache_results + FETCHED) / GIB,
        partitions=partitions,
        batch=batch,
        take_over_seconds=partitions / workers * measured.take_over_ms / 1000,
        conversations=conversations,
        redis_us=redis_us,
        redis_cores=rate * redis_us / 1e6,
        redis_gib=redis_gib,
        masters_by_cpu=by_cpu,
        masters_by_memory=by_memory,
        kafka_mb_per_second=sent / 1e6,
        broker_cores=rate * measured.broker_us / 1e6,
        brokers=max(
            int(load.replication),
            math.ceil(sent * load.replication / 1e6 / load.broker_mb_per_second),
        ),
        disk_gib=sent * 3600 * load.retention_hours * load.replication / GIB,
    )


ROWS = (
    ("CPU µs per event, worker, at full batches", "worker_us"),
    ("cores of workers, at full batches", "worker_cores"),
    ("cores of workers, keeping up, at most", "worker_cores_keeping_up"),
    ("workers", "workers"),
    ("GiB per worker", "worker_gib"),
    ("partitions of each input topic", "partitions"),
    ("events per batch, keeping up", "batch"),
    ("conversations held by Redis", "conversations"),
    ("CPU µs per event, Redis", "redis_us"),
    ("cores of Redis at work", "redis_cores"),
    ("Redis `maxmemory`, GiB", "redis_gib"),
    ("Redis masters, by CPU", "masters_by_cpu"),
    ("Redis masters, by memory", "masters_by_memory"),
    ("Kafka in, and out to workers, MB/s", "kafka_mb_per_second"),
    ("cores of brokers that fetches take", "broker_cores"),
    ("brokers, by bytes", "brokers"),
    ("Kafka's disks, GiB", "disk_gib"),
    ("take-over by CPU, s per worker", "take_over_seconds"),
    ("cores in all", "cores"),
    ("GiB of memory in all", "memory_gib"),
)
EXAMPLES = (
    Load(events_per_second=1_000),
    Load(events_per_second=10_000),
    Load(events_per_second=100_000),
    Load(events_per_second=1_000_000),
    Load(events_per_second=1_000_000, ttl_hours=1),
)


def constants_page(measured: Constants = model.MEASURED) -> str:
    """The constants as a table of the page."""
    lines = [f"Measured by: {measured.run}.", "", "| constant | value | is |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {number(getattr(measured, name))} | {what} |"
        for name, what in model.NAMES.items()
    ]
    return "\n".join(lines) + "\n"


def examples_page(measured: Constants = model.MEASURED) -> str:
    """Plans of the examples as a table of the page."""
    plans = [plan(load, measured) for load in EXAMPLES]
    heads = [f"{x.events_per_second:,.0f} events/s, TTL {x.ttl_hours:.0f} h" for x in EXAMPLES]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for what, name in ROWS:
        lines.append(f"| {what} | {' | '.join(_cell(getattr(one, name)) for one in plans)} |")
    return "\n".join(lines) + "\n"


def _cell(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else number(value)


GENERATED = {"constants": constants_page, "examples": examples_page}


def made(page: str) -> str:
    """The page with its generated parts up to date."""
    for name, make in GENERATED.items():
        part = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.S)
        text = make()
        page, found = part.subn(lambda m, text=text: m[1] + text + m[2], page)  # type: ignore[misc]
        if found != 1:
            raise ValueError(f"the page has {found} parts {name}")
    return page


def positive(text: str) -> float:
    """A number above 0."""
    return _within(text, lambda value: 0 < value < math.inf, "a number above 0")


def not_negative(text: str) -> float:
    """A number, 0 or more."""
    return _within(text, lambda value: 0 <= value < math.inf, "a number, 0 or more")


def share(text: str) -> float:
    """A share from 0 to 1."""
    return _within(text, lambda value: 0 <= value <= 1, "a share from 0 to 1")


def positive_share(text: str) -> float:
    """A share above 0, from 0 to 1."""
    return _within(text, lambda value: 0 < value <= 1, "a share above 0, at most 1")


def at_least_one(text: str) -> float:
    """A number, 1 or more."""
    return _within(text, lambda value: 1 <= value < math.inf, "a number, 1 or more")


def _within(text: str, fits: Callable[[float], bool], what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not fits(value):  # NaN is in no range
        raise argparse.ArgumentTypeError(f"{text} is not {what}")
    return value


KINDS = {
    "events_per_second": positive,
    "searches": share,
    "events_per_conversation": positive,
    "touched": share,
    "loaded": share,
    "replication": at_least_one,
    "utilisation": positive_share,
    "master_gib": positive,
    "broker_mb_per_second": positive,
}
"""What a load's options may be; the others are 0 or more."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the plan for a load."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizing", description=__doc__)
    parser.add_argument("--write", action="store_true", help="bring docs/guides/sizing.md in step")
    for field in fields(Load):
        kind = KINDS.get(field.name, not_negative)
        parser.add_argument(_option(field.name), type=kind, default=field.default)
    for field in fields(Prices):
        parser.add_argument(_option(f"price_{field.name}"), type=not_negative, default=0.0)
    chosen = parser.parse_args(arguments)
    if chosen.write:
        PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    load = Load(**{field.name: getattr(chosen, field.name) for field in fields(Load)})
    prices = Prices(**{f.name: getattr(chosen, f"price_{f.name}") for f in fields(Prices)})
    needed = plan(load)
    rows = [(what, _cell(getattr(needed, name))) for what, name in ROWS]
    if needed.cost(prices):
        rows.append(("a month, at your prices", number(needed.cost(prices))))
    print(table(rows, right=(1,)), end="")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    main()
