"""Prometheus records the estimates that pages and reports compute (promtool)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from stream_metrics.core.alerts.estimate_records import ESTIMATE, LABEL_SUMS, OFF, estimate_records
from stream_metrics.core.alerts.estimates import Estimates, Interval, estimates
from tests.label_sums import Sums, random_sums
from tests.services.test_alert_rules import ask

WORKERS = ("worker-1:9464", "worker-2:9464")
EXACT = 1e-9


class Labelled(NamedTuple):
    """An agent whose conversations two workers hold."""

    agent: str
    figure: str
    parts: tuple[Sums, Sums]

    def selector(self, **labels: str) -> str:
        """The labels of its series."""
        named = {"job": "stream-metrics", "agent": self.agent, "window": "7d", **labels}
        return ",".join(f'{name}="{value}"' for name, value in named.items())

    def estimates(self) -> Estimates:
        """What pages and reports compute."""
        one, other = self.parts
        added = {
            sample: {
                name: one.get(sample, {}).get(name, 0) + other.get(sample, {}).get(name, 0)
                for name in {*one.get(sample, {}), *other.get(sample, {})}
            }
            for sample in {*one, *other}
        }
        return estimates(self.figure, added)


def labelled() -> list[Labelled]:
    """Agents with samples of all kinds and sizes."""
    sizes = [
        (60, 0, 600), (60, 20, 600), (2, 0, 2), (1, 0, 5), (0, 1, 0), (0, 40, 0), (0, 0, 30),
        (40, 0, 0), (40, 0, 1), (30, 30, 30), (0, 5, 5),
    ]  # fmt: skip
    generator = Random(48)
    return [
        Labelled(
            f"agent-{at}-{figure}",
            figure,
            (random_sums(generator, figure, size), random_sums(generator, figure, (0, 0, at % 3))),
        )
        for at, size in enumerate(sizes)
        for figure in ("sre", "gain", "ndcg@10")
    ] + [
        Labelled(f"extreme-{at}", "sre", ({"both": {"n": 40, "b": 40, "bb": 40, **sums}}, {}))
        for at, sums in enumerate(
            (
                {"y": 40, "f": 40, "by": 40, "bf": 40, "yy": 40, "yf": 40, "ff": 40},
                {"f": 40, "bf": 40, "ff": 40},
                {},
            )
        )
    ]


def series(agents: list[Labelled]) -> Iterator[Mapping[str, str]]:
    """The exported sums of two workers."""
    for one in agents:
        for instance, part in zip(WORKERS, one.parts, strict=True):
            for sample, sums in part.items():
                for name, value in sums.items():
                    labels = one.selector(
                        instance=instance, figure=one.figure, sample=sample, sum=name
                    )
                    yield {"series": f"{LABEL_SUMS}{{{labels}}}", "values": str(value)}


def expected(one: Labelled) -> Iterator[tuple[str, str, float | None]]:
    """Each recorded series of an agent, its further labels, and its value if it has one."""
    found = one.estimates()
    yield ESTIMATE, 'by="model"', found.model
    for name, by, interval in (
        (ESTIMATE, 'by="human"', found.human),
        (ESTIMATE, 'by="combined"', found.combined),
        (OFF, "", found.off),
    ):
        value, low, high = interval or Interval(None, None, None)  # type: ignore[arg-type]
        yield name, by, value
        yield f"{name}_lower", by, low
        yield f"{name}_upper", by, high


def test_prometheus_records_what_pages_compute(promtool_path: str, tmp_path: Path) -> None:
    """Each recorded estimate and bound equals the computed one to 1e-9, or both are missing."""
    agents = labelled()
    rules = [
        {"record": r.name, "expr": r.expr, "labels": dict(r.labels)} for r in estimate_records()
    ]
    (tmp_path / "rules.json").write_text(
        json.dumps({"groups": [{"name": "estimates", "rules": rules}]}), encoding="utf-8"
    )
    asked = []
    for one in agents:
        for name, by, value in expected(one):
            labels = one.selector(figure=one.figure) + ("," + by if by else "")
            expr = f"{name}{{{labels}}}"
            if value is not None:
                near = max(abs(value), 1) * EXACT
                expr = f"abs({expr} - ({value!r})) < bool {near!r}"
            samples = [] if value is None else [{"labels": f"{{{labels}}}", "value": 1}]
            asked.append({"expr": expr, "eval_time": "0m", "exp_samples": samples})
    case = {"interval": "1m", "input_series": list(series(agents)), "promql_expr_test": asked}
    file = tmp_path / "estimates.test.json"
    file.write_text(
        json.dumps({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": [case]}),
        encoding="utf-8",
    )

    assert len(asked) == 10 * len(agents)
    ask(promtool_path, "test", "rules", str(file))
