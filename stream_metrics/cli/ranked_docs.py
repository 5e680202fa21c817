"""The part of ``docs/metrics.md`` about ranked retrieval, from the definitions."""

from __future__ import annotations

from typing import Final

from stream_metrics.metrics.ranking.names import Definition, Option, Value
from stream_metrics.metrics.ranking.registry import CUTOFFS, DEEPER, DEFINITIONS, RANKED, SUITES

_INTRO: Final = """\
Metrics of rankings with judged results; [evaluation.md](evaluation.md) says how to compute them. A
metric's name may have options and a cut-off, as in `precision(rel=2)@5`; `precision_at_5` is
`precision@5`, and case does not matter. What is printed leaves out options that are at their
default, and reads back.

- A document is *relevant* from a grade of 1 on if the grades come from qrels, and from
  `metrics.good_gain` on if they are labels of results. The option `rel` says otherwise.
- Grades below 0 count as 0. A result that nobody judged has gain 0 and keeps its rank.
- A repeat of a document in the same ranking keeps its rank, has gain 0, and counts in denominators.
- Nothing relevant, or nothing retrieved: 0, unless it says `null` below.
- Where relevance is told by overlap with a reference answer, the ground truth is only what the top
  k has of it: metrics that need the whole of it are `null`, and NDCG is too high.

Out of scope: models of learning to rank, of clicks and dwell time; image, cross-modal and temporal
metrics.
"""


def ranked_section() -> str:
    """All ranked metrics, with their options."""
    parts = [f"## {RANKED}\n", _INTRO, *map(_definition, DEFINITIONS), _suites()]
    return "\n".join(parts)


def _definition(definition: Definition) -> str:
    metric = definition.metric
    high = "no upper bound" if metric.high is None else f"{metric.high:g}"
    lines = [
        f"### {metric.title}",
        "",
        metric.help,
        "",
        f"    {metric.formula}",
        "",
        f"- name: {_names(definition)}",
        *(f"- option `{option.name}`: {_option(option)}" for option in definition.options),
        f"- range: {metric.low:g} to {high}",
        f"- better: {metric.better}",
        f"- `null` when: {metric.none_means}",
        *(
            [f"- printed with it: {', '.join(f'`{name}`' for name in definition.beside)}"]
            if definition.beside
            else []
        ),
        f"- source: {metric.reference}",
    ]
    return "\n".join([*lines, ""])


def _names(definition: Definition) -> str:
    cutoff = {
        "required": "with a cut-off",
        "optional": "with or without a cut-off",
        "none": "without a cut-off",
    }[definition.cutoff]
    also = ", ".join(f"`{alias}`" for alias in definition.aliases)
    return f"`{definition.name}`, {cutoff}" + (f"; also {also}" if also else "")


def _option(option: Option) -> str:
    default = "" if option.default is None else f", default {_value(option.default)}"
    return f"{option.help} {option.takes()[0].upper()}{option.takes()[1:]}{default}."


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _suites() -> str:
    cutoffs = ", ".join(map(str, CUTOFFS))
    lines = [
        "### Suites",
        "",
        "Names that stand for several metrics. Usual cut-offs are "
        f"{cutoffs}, and {', '.join(map(str, DEEPER))} for precision and recall.",
        "",
        "| suite | metrics |",
        "|---|---|",
    ]
    lines += [
        f"| `{name}` | {', '.join(f'`{metric}`' for metric in metrics)} |"
        for name, metrics in SUITES.items()
    ]
    return "\n".join([*lines, ""])
