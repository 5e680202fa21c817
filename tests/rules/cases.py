"""The notation of the cases: series in phases, converted to the input of ``promtool test
rules``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

GONE: Final = None  # a phase without samples: the target was not scraped
Phase = tuple[int, "float | None"]  # minutes and value (for counters: growth per minute)
Series = dict[str, str]  # series to values, as promtool reads them

JOB: Final = {"job": "stream-metrics"}
WORKER: Final = {**JOB, "instance": "worker-1:9464"}
QUIET_MINUTES: Final = 100  # long enough for half an hour of baselines, of an hour ago


@dataclass(frozen=True, slots=True)
class Case:
    """A claim about one alert.

    ``fires``: by minute, the labels that tell the alerts apart which fire then (none: silence).
    ``step``: how many minutes a "minute" of the case is, where it takes days.
    """

    claim: str
    series: Series
    fires: Mapping[int, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    step: int = 1


def name(metric: str, **labels: str) -> str:
    """A series as promtool writes it."""
    inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{metric}{{{inside}}}"


def gauge(metric: str, *phases: Phase, **labels: str) -> Series:
    """A gauge with the value of each phase."""
    return {name(metric, **{**WORKER, **labels}): " ".join(_held(phases))}


def counter(metric: str, *phases: Phase, **labels: str) -> Series:
    """A counter that grows by each phase's value per minute, and restarts at 0 after ``GONE``."""
    parts: list[str] = []
    value = 0.0
    for minutes, growth in phases:
        if growth is None:
            parts += _absent(minutes)
            value = 0.0
        else:
            parts.append(f"{value:g}+{growth:g}x{minutes - 1}")
            value += growth * minutes
    return {name(metric, **{**WORKER, **labels}): " ".join(parts)}


def _held(phases: Iterable[Phase]) -> Iterable[str]:
    for minutes, value in phases:
        if value is None:
            yield from _absent(minutes)
        else:
            yield f"{value:.6f}x{minutes - 1}"


def _absent(minutes: int) -> list[str]:
    """No samples; Prometheus marks the first of them, so that the last value does not linger."""
    return ["stale"] if minutes == 1 else ["stale", f"_x{minutes - 1}"]


def wobbling(minutes: int, middle: float, by: float) -> list[Phase]:
    """A value that alternately rises and falls each minute."""
    return [(1, middle + by * (1, -1, 0.5, -0.5)[minute % 4]) for minute in range(minutes)]


def document(
    cases: Sequence[Case], rule_files: Sequence[str], groups: Sequence[str], alert: str
) -> dict[str, Any]:
    """The file for ``promtool test rules``: a test a case, which asks for what fires.

    ``groups`` of the rules in the order of evaluation: each finds what the ones before recorded.
    """
    labels = sorted({label for c in cases for at in c.fires.values() for ls in at for label in ls})
    # Every alert keeps its job, which routes, inhibitions and annotations go by.
    by = ", ".join(["job", "severity", *(label for label in labels if label != "severity")])
    (step,) = {case.step for case in cases}
    asked = f'count by ({by}) (ALERTS{{alertname="{alert}", alertstate="firing"}})'
    return {
        "rule_files": list(rule_files),
        "group_eval_order": list(groups),
        "evaluation_interval": f"{step}m",
        "tests": [
            {
                "name": case.claim,
                "interval": f"{step}m",
                "input_series": [
                    {"series": series, "values": values} for series, values in case.series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": asked,
                        "eval_time": f"{minute * step}m",
                        "exp_samples": [
                            {
                                "labels": name("", **dict(sorted({**JOB, **labels}.items()))),
                                "value": 1,
                            }
                            for labels in expected
                        ],
                    }
                    for minute, expected in case.fires.items()
                ],
            }
            for case in cases
        ],
    }
