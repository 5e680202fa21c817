"""Prometheus records the estimates that pages and reports compute (promtool)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from stream_metrics.core.alerts.estimate_records import (
    DUE,
    ESTIMATE,
    INCOMPLETE,
    LABEL_SUMS,
    OFF,
    estimate_records,
)
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
    return (
        [
            Labelled(
                f"agent-{at}-{figure}",
                figure,
                (
                    random_sums(generator, figure, size),
                    random_sums(generator, figure, (0, 0, at % 3)),
                ),
            )
            for at, size in enumerate(sizes)
            for figure in ("sre", "gain", "ndcg@10")
        ]
        + [
            Labelled(
                f"unlabelled-{n}-{b}-{figure}",
                figure,
                (random_sums(generator, figure, (40, 0, 60)), {"unlabelled": {"n": n, "b": b}}),
            )
            for n, b in ((3, 20), (1, 900), (2, 900))
            for figure in ("sre", "gain", "ndcg@10")
        ]
        + [
            Labelled(f"extreme-{at}", "sre", ({"both": {"n": 40, "b": 40, "bb": 40, **sums}}, {}))
            for at, sums in enumerate(
                (
                    {"y": 40, "f": 40, "by": 40, "bf": 40, "yy": 40, "yf": 40, "ff": 40},
                    {"f": 40, "bf": 40, "ff": 40},
                    {},
                )
            )
        ]
    )


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

    assert len(asked) == 10 * len(agents)
    check(promtool_path, tmp_path, list(series(agents)), asked)


@pytest.mark.parametrize(
    ("ended_ago", "shown"),
    [
        (-3_600, []),
        (86_399, []),
        (86_401, ["24h", "6h"]),
        (8 * 86_400 + 1, ["24h", "6h", "7d"]),
        (None, ["24h", "6h", "7d"]),
    ],
)
def test_windows_of_a_sample_that_ended_early_have_no_combined_estimate(
    promtool_path: str, tmp_path: Path, ended_ago: int | None, shown: list[str]
) -> None:
    """Nor bounds; people's own estimate stays. The judge may be gone since."""
    one = Labelled("it-desk", "sre", (random_sums(Random(48), "sre", (60, 0, 600)), {}))
    given = [
        {**line, "series": line["series"].replace('"7d"', f'"{window}"')}
        for window in ("6h", "24h", "7d")
        for line in series([one])
    ]
    if ended_ago is not None:
        given.append({"series": f'{INCOMPLETE}{{job="judge"}}', "values": f"{-ended_ago} stale"})
    asked = [
        {"expr": f"count by (window) ({name}{{by=\"{by}\"}})", "eval_time": "0m",
         "exp_samples": [{"labels": f'{{window="{window}"}}', "value": 1} for window in windows]}
        for by, windows in (("combined", shown), ("human", ["24h", "6h", "7d"]))
        for name in (ESTIMATE, f"{ESTIMATE}_lower", f"{ESTIMATE}_upper")
    ]  # fmt: skip
    check(promtool_path, tmp_path, given, asked)


@pytest.mark.parametrize(
    ("due", "is_shown"),
    [
        (("20", "13"), True),
        (("20", "14"), False),
        (("0 0 0", "34 0 0"), False),
        (("0 0 0 0 0 0 0", "34 0 0 0 0 0 0"), True),
        ((), True),
    ],
)
def test_while_judges_are_behind_nothing_is_estimated_from_their_labels(
    promtool_path: str, tmp_path: Path, due: tuple[str, ...], *, is_shown: bool
) -> None:
    """With more turns to label in the last five minutes, of both judges, than 5% of the
    conversations that have a model's labels, of both agents. People's own estimate stays."""
    generator = Random(48)
    agents = [
        Labelled(name, "sre", (random_sums(generator, "sre", size), {}))
        for name, size in (("it-desk", (60, 10, 400)), ("hr-helper", (20, 0, 180)))
    ]
    minutes = max([len(values.split()) for values in due], default=1) - 1
    given = [
        {"series": line["series"], "values": f"{line['values']}+0x{minutes}"}
        for line in series(agents)
    ]
    for at, values in enumerate(due):
        given.append({"series": f'{DUE}{{job="judge", instance="{at}"}}', "values": values})
    every = [(OFF, "")] + [(ESTIMATE, f'{{by="{by}"}}') for by in ("combined", "model", "human")]
    asked = [
        {"expr": f"count({name}{bound}{by})", "eval_time": f"{minutes}m",
         "exp_samples": [{"labels": "{}", "value": 2}] if is_shown or "human" in by else []}
        for name, by in every
        for bound in (("",) if "model" in by else ("", "_lower", "_upper"))
    ]  # fmt: skip
    check(promtool_path, tmp_path, given, asked)


@pytest.mark.parametrize(("due", "number"), [(1, 1), (2, 0)])
def test_one_turn_that_is_being_labelled_hides_no_estimate(
    promtool_path: str, tmp_path: Path, due: int, number: int
) -> None:
    """However few conversations have labels."""
    one = Labelled("it-desk", "sre", (random_sums(Random(48), "sre", (3, 0, 3)), {}))
    given = [*series([one]), {"series": f'{DUE}{{job="judge"}}', "values": str(due)}]
    asked = [
        {"expr": f'count({ESTIMATE}{{by="combined"}}) or vector(0)', "eval_time": "0m",
         "exp_samples": [{"labels": "{}", "value": number}]}
    ]  # fmt: skip
    check(promtool_path, tmp_path, given, asked)


def check(promtool_path: str, folder: Path, given: Sequence[Mapping[str, str]], asked: Any) -> None:
    """Have Prometheus evaluate the rules over series, and answer."""
    rules = [
        {"record": r.name, "expr": r.expr, "labels": dict(r.labels)} for r in estimate_records()
    ]
    (folder / "rules.json").write_text(
        json.dumps({"groups": [{"name": "estimates", "rules": rules}]}), encoding="utf-8"
    )
    case = {"interval": "1m", "input_series": [*given], "promql_expr_test": asked}
    file = folder / "estimates.test.json"
    file.write_text(
        json.dumps({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": [case]}),
        encoding="utf-8",
    )
    ask(promtool_path, "test", "rules", str(file))
