"""What Prometheus reads from a worker's metrics, by the parser of its client library."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from stream_metrics.live.health import Health
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.web import Pages

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def families_of(text: str, *, openmetrics: bool = False) -> list[Metric]:
    """The families of an exposition, also those without samples."""
    return list((parse_openmetrics if openmetrics else parse_text)(text))


def series_of(text: str, *, openmetrics: bool = False) -> Series:
    """Every sample of an exposition by name and labels; fails on a repeated one."""
    samples = [s for family in families_of(text, openmetrics=openmetrics) for s in family.samples]
    found = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
    assert len(found) == len(samples)
    return found


def scraped(registry: CollectorRegistry, *, openmetrics: bool = False) -> str:
    """The page of all metrics of a worker without a partition."""
    pages = Pages(registry, Health(), WindowCollector(list, lambda: 0))
    try:
        accept = OPENMETRICS if openmetrics else ""
        return asyncio.run(pages.metrics_response(accept))[2].decode()
    finally:
        pages.close()


def exported_names(registry: CollectorRegistry) -> frozenset[str]:
    """The names of all families on a worker's page, and of their samples."""
    return frozenset(
        name
        for family in families_of(scraped(registry))
        for name in (family.name, *(sample.name for sample in family.samples))
    )
