"""The recording rules of estimates from labels: ``streammetrics:estimate`` and its bounds.

Sums are added up over workers, each of which has parts of an agent. A worker with very many series
omits sums that are 0; ``or 0 *`` restores them. Windows that reach back into a day whose sample
ended early, because the judges' budget was spent, have no combined estimate. While judges have many
turns yet to label, or much of what was drawn has no labels, nothing is estimated from a model's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from stream_metrics.core.alerts.estimates import (
    FEWEST,
    Bounds,
    Sums,
    combined,
    human,
    incomplete,
    model,
    most_due,
    off,
)
from stream_metrics.core.alerts.promql import Promql, Value
from stream_metrics.core.alerts.recording import Record
from stream_metrics.core.engine.series import PREFIX
from stream_metrics.core.metrics.label_sums import GAIN, SRE, SUMS, units_of

LABEL_SUMS: Final = f"{PREFIX}label_sums"
ESTIMATE: Final = "streammetrics:estimate"
OFF: Final = "streammetrics:judge_off"
INCOMPLETE: Final = "streammetrics_judge_incomplete_until_timestamp_seconds"
UNTIL: Final = "job:streammetrics_judge_incomplete_until:max_8d"
DUE: Final = "streammetrics_judge_due_turns"
DUE_ALL: Final = "job:streammetrics_judge_due_turns:sum_max_5m"
_PART: Final = "agent:streammetrics_labels:{}"
BEHIND: Final = _PART.format("behind")
"""The agents, figures and windows of which nothing is estimated from a model's labels."""
_DAY: Final = 86_400
_SHORT: Final = "[0-9]+[sm]|1?[0-9]h|2[0-4]h"
"""The names of windows of a day or less."""


def estimate_records() -> Iterator[Record]:
    """The rules, each after those whose series it asks for."""
    parts: list[Record] = []

    def keep(name: str, value: Value) -> Value:
        kept = Promql(_PART.format(name))
        parts.append(Record(kept.text, value.text))
        return kept

    every = keep("conversations", _added('sum="n"'))
    both, people, only, unlabelled = (
        Sums(**{name: keep(f"{sample}_{name}", _sum(sample, name, every)) for name in SUMS[sample]})
        for sample in SUMS
    )
    shares = Promql(f'{every.text}{{figure!="{GAIN}"}}')
    share = keep("share", (0 * shares + 1) | 0 * every)
    found = {
        "human": (human(both, people, share, keep), both.n + people.n, 1),
        "combined": (combined(both, only, share, keep), both.n, FEWEST),
    }
    distance = off(both, keep)
    cut = keep(
        "cut_off", _reaching_back("=~", _DAY, both.n) | _reaching_back("!~", 8 * _DAY, both.n)
    )
    behind = keep("behind", _behind(both.n, only.n))
    missing = keep("incomplete", incomplete(both, only, unlabelled))
    yield Record(UNTIL, f"max(max_over_time({INCOMPLETE}[8d]))")
    # A judge that starts again takes a while until it knows what it has yet to label.
    yield Record(DUE_ALL, f"sum(max_over_time({DUE}[5m]))")
    yield from parts
    for by, (bounds, n, fewest) in found.items():
        without = (cut, behind, missing) if by == "combined" else ()
        yield from _hidden(_shown(ESTIMATE, bounds, n, fewest, {"by": by}), *without)
    judged = model(both, only) & (both.n + only.n > 0)
    yield from _hidden([Record(ESTIMATE, judged.text, {"by": "model"})], behind, missing)
    yield from _hidden(_shown(OFF, distance, both.n, 1, {}), behind, missing)


def _shown(
    name: str, found: Bounds, n: Promql, fewest: int, labels: dict[str, str]
) -> Iterator[Record]:
    yield Record(name, (found.value & (n >= fewest)).text, labels)
    yield Record(f"{name}_lower", (found.low & (n >= FEWEST)).text, labels)
    yield Record(f"{name}_upper", (found.high & (n >= FEWEST)).text, labels)


def _hidden(records: Iterable[Record], *where: Promql) -> Iterator[Record]:
    """The rules, without the agents and windows that one of these has."""
    without = "".join(f"\nunless {one.text}" for one in where)
    for name, expr, labels in records:
        yield Record(name, f"({expr}){without}" if where else expr, labels)


def _behind(both: Promql, only: Promql) -> Promql:
    """The figures and windows for which judges are too far behind, of each agent."""
    all_agents = Promql(f"sum by (figure, window) ({(both + only).text})")
    many = f"{most_due(all_agents).text} < on () group_left () {DUE_ALL}"
    return Promql(f"{both.text} and on (figure, window) ({many})")


def _reaching_back(matching: str, seconds: int, every: Promql) -> Promql:
    """The agents and windows of the names that match, if the sample was cut off so lately."""
    lately = Promql(f"time() - {UNTIL} < {seconds}")
    return Promql(f'({every.text}{{window{matching}"{_SHORT}"}} and on () ({lately.text}))')


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
