"""Queries over the families that worker and bridge export; an unknown name or label is an error."""

from __future__ import annotations

from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.series import PREFIX
from stream_metrics.live.prometheus.bridge import BridgeMetrics
from stream_metrics.live.prometheus.operations import Operations

NAMESPACE: Final = "streammetrics_"
SUFFIXES: Final = ("_bucket", "_sum", "_count", "_total", "_info")
TARGET: Final = 'job=~"$job", instance=~"$instance"'


@cache
def families() -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each family, by the name that its samples begin with."""
    registry = CollectorRegistry()
    operations = Operations(registry, ["topic"], pools={"support": "handbook"})
    operations.lag("topic", 0, 0, 0.0)
    operations.agents_known(["support"])
    BridgeMetrics(registry, ["topic"]).lag("topic", 0, 0, 0.0)
    ProcessCollector(registry=registry)
    found = {
        family.name: (
            family.type,
            frozenset(label for sample in family.samples for label in sample.labels),
        )
        for family in registry.collect()
    }
    for series in CODES.values():
        labels = frozenset(("agent", "window", *series.labels))
        found[PREFIX + series.name] = ("gauge", labels)
    of_evidence = frozenset(("agent", "figure", "direction", "shift"))
    found[f"{NAMESPACE}evidence"] = ("gauge", of_evidence)
    for about in (f"{PREFIX}series", f"{PREFIX}series_cut", f"{NAMESPACE}agents_folded"):
        found[about] = ("gauge", frozenset())
    return found


def where_known(expr: str) -> str:
    """What an expression says of lag, while all workers that own partitions know theirs.

    The largest or smallest value of those that know it would look like that of all.
    """
    known = f"count({select('streammetrics_complete_until_timestamp_seconds')})"
    live = f"({select('streammetrics_generation', state='live')} > 0)"
    owners = f"{select('streammetrics_assigned_partitions')} > 0 and on(job, instance) {live}"
    return f"{expr} and on() ({known} >= count({owners}))"


def select(name: str, **matchers: str) -> str:
    """A selector of a worker's or bridge's series: ``name{job…, instance…, label="value"}``.

    A value that begins with ``~`` is a regular expression. Raises KeyError for a name or a label
    that no worker exports.
    """
    family = _family(name)
    unknown = matchers.keys() - families()[family][1]
    if unknown:
        raise KeyError(f"{name} has no label {', '.join(sorted(unknown))}")
    more = "".join(
        f', {label}=~"{value[1:]}"' if value.startswith("~") else f', {label}="{value}"'
        for label, value in matchers.items()
    )
    return f"{name}{{{TARGET}{more}}}"


def total(name: str, by: str = "", **matchers: str) -> str:
    """The sum of gauges over workers, by labels: ``sum by (agent) (…)``."""
    return f"{_sum(by)}({select(name, **matchers)})"


def window(name: str, by: str = "", length: str = "$window", **matchers: str) -> str:
    """A window series of the selected agents, summed over workers."""
    return total(PREFIX + name, by, agent="~$agent", window=length, **matchers)


def recorded(name: str, **labels: str) -> str:
    """A series of the selected agents that rules record of all workers together."""
    more = "".join(f', {label}="{value}"' for label, value in labels.items())
    return f'{name}{{job=~"$job", agent=~"$agent"{more}}}'


def rate(name: str, by: str = "", **matchers: str) -> str:
    """The rate of a counter per second, summed over workers."""
    return f"{_sum(by)}(rate({select(name, **matchers)}[$__rate_interval]))"


def quantile(q: float, name: str, by: str = "", **matchers: str) -> str:
    """A quantile of a histogram over workers, in its unit."""
    labels = f"le, {by}" if by else "le"
    inner = f"rate({select(f'{name}_bucket', **matchers)}[$__rate_interval])"
    return f"histogram_quantile({q}, sum by ({labels}) ({inner}))"


def ratio(numerator: str, denominator: str) -> str:
    """A quotient, without a value if the denominator is 0."""
    return f"{numerator} / ({denominator} > 0)"


def share(numerator: str, denominator: str) -> str:
    """As ``ratio``, but missing series of the numerator count as 0."""
    return f"({numerator} or 0 * {denominator}) / ({denominator} > 0)"


def _sum(by: str) -> str:
    return f"sum by ({by}) " if by else "sum"


def _family(name: str) -> str:
    known = families()
    if name in known:
        return name
    for suffix in SUFFIXES:
        stem = name.removesuffix(suffix)
        if stem != name and stem in known:
            return stem
    raise KeyError(f"no worker exports {name}")
