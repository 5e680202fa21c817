"""The recording rules of estimates from labels: ``streammetrics:estimate`` and its bounds.

Sums are added up over workers, each of which has parts of an agent. A worker with very many series
omits sums that are 0; ``or 0 *`` restores them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stream_metrics.core.alerts.estimates import FEWEST, Bounds, Sums, combined, human, model, off
from stream_metrics.core.alerts.promql import Promql, Value
from stream_metrics.core.alerts.recording import Record
from stream_metrics.core.engine.series import PREFIX
from stream_metrics.core.metrics.label_sums import GAIN, SAMPLES, SRE, SUMS, units_of

LABEL_SUMS: Final = f"{PREFIX}label_sums"
ESTIMATE: Final = "streammetrics:estimate"
OFF: Final = "streammetrics:judge_off"
_PART: Final = "agent:streammetrics_labels:{}"


def estimate_records() -> Iterator[Record]:
    """The rules, each after those whose series it asks for."""
    parts: list[Record] = []

    def keep(name: str, value: Value) -> Value:
        kept = Promql(_PART.format(name))
        parts.append(Record(kept.text, value.text))
        return kept

    every = keep("conversations", _added('sum="n"'))
    both, people, only = (
        Sums(**{name: keep(f"{sample}_{name}", _sum(sample, name, every)) for name in SUMS[sample]})
        for sample in SAMPLES
    )
    shares = Promql(f'{every.text}{{figure!="{GAIN}"}}')
    share = keep("share", (0 * shares + 1) | 0 * every)
    found = {
        "human": (human(both, people, share, keep), both.n + people.n, 1),
        "combined": (combined(both, only, share, keep), both.n, FEWEST),
    }
    distance = off(both, keep)
    yield from parts
    for by, (bounds, n, fewest) in found.items():
        yield from _shown(ESTIMATE, bounds, n, fewest, {"by": by})
    judged = model(both, only) & (both.n + only.n > 0)
    yield Record(ESTIMATE, judged.text, {"by": "model"})
    yield from _shown(OFF, distance, both.n, 1, {})


def _shown(
    name: str, found: Bounds, n: Promql, fewest: int, labels: dict[str, str]
) -> Iterator[Record]:
    yield Record(name, (found.value & (n >= fewest)).text, labels)
    yield Record(f"{name}_lower", (found.low & (n >= FEWEST)).text, labels)
    yield Record(f"{name}_upper", (found.high & (n >= FEWEST)).text, labels)


def _sum(sample: str, name: str, every: Value) -> Value:
    """A sum in the units of its figure: numerators of searches are in ten-thousandths."""
    chosen = f'sample="{sample}", sum="{name}"'
    units = units_of(name)
    if units == 1:
        return _added(chosen) | 0 * every
    figures = f'"{SRE}|{GAIN}"'
    return (
        _added(f"figure=~{figures}, {chosen}")
        | _added(f"figure!~{figures}, {chosen}") / units
        | 0 * every
    )


def _added(selected: str) -> Promql:
    """Sums over workers."""
    return Promql(f"sum without (instance, pod, sample, sum) ({LABEL_SUMS}{{{selected}}})")
