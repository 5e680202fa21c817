"""``docs/reference/metrics-retrieval.md``, from the definitions of ranked metrics."""

from __future__ import annotations

from typing import Final

from stream_metrics.adapters.prometheus.windows import PREFIX
from stream_metrics.engine.config import MAX_RETRIEVAL
from stream_metrics.metrics.ranking.live import LARGEST_GRADE, LARGEST_NUMBER
from stream_metrics.metrics.ranking.names import Definition, Option, Value
from stream_metrics.metrics.ranking.registry import CUTOFFS, DEEPER, DEFINITIONS, RANKED, SUITES

_INTRO: Final = """\
Metrics of rankings with judged results. [Evaluate a retriever](../guides/evaluation.md) says how to
compute them. A metric's name may have options and a cut-off, as in `precision(rel=2)@5`.
`precision_at_5` means `precision@5`, and case does not matter. Printed names omit options that have
their default, and can be typed again.

- A document is *relevant* if its grade is at least 1 in qrels, or at least `metrics.good_gain` in
  labels of results. The option `rel` changes that.
- Grades below 0 count as 0. An unjudged result has gain 0 and keeps its rank.
- A repeat of a document in the same ranking keeps its rank, has gain 0, and counts in denominators.
- If nothing is relevant, or nothing was retrieved, the value is 0, unless the metric says `null`.
- If relevance is estimated by overlap with a reference answer, the ground truth contains only what
  was retrieved: metrics that need all of it are `null`, and NDCG is too high.

Out of scope: models of learning to rank, of clicks and dwell time; image, cross-modal and temporal
metrics.
"""

SHARED: Final = ("rel", "judged_only")  # options that nearly all metrics take, explained once

_LIVE: Final = f"""\
## Ranked metrics, live

Each search is a ranking of its results. `metrics.retrieval` names metrics that the worker sums up
over searches, such as `["ndcg@10", "recall@10", "mrr", "judged@10"]`: at most {MAX_RETRIEVAL}, by
default none. The names of suites may stand among them.

- **Means.** Divide `{PREFIX}retrieval_sum` by 1e9 and by `{PREFIX}retrieval_count`: the mean over
  searches. A search for which a metric is undefined is in neither.
- **What is relevant** is the same for all searches of a turn. If the end of the turn brought
  `relevant`, that is the whole ground truth, and results are found in it by `doc_id`. Otherwise it
  is every document of the turn with a label, whichever search returned it. With neither of them the
  turn's searches are not counted.
- **Late labels.** A label or a ground truth that comes late, is revised or withdrawn corrects the
  scores of all the turn's searches, in the windows that hold their time.
- **Repeats.** A result repeats one above it if it is the same document, or has the same `doc_id`.
- **Not live** are `max_ont_sim`, `fa=collection(N)`, a `max_grade` below {LARGEST_GRADE} or above
  {LARGEST_NUMBER:,}, and a `beta` above {LARGEST_NUMBER:,}: settings with them are refused.
- **Cost.** None unless a metric is named. Each has six series an agent. Redis holds one more digest
  of each result, and a label makes the worker score all searches of its turn anew, once a batch.
"""


def ranked_section() -> str:
    """All ranked metrics, with their options."""
    parts = [f"# {RANKED}\n", _INTRO, _shared(), *map(_definition, DEFINITIONS), _suites(), _LIVE]
    return "\n".join(parts)


def _shared() -> str:
    """The options that are explained once; a test holds that they are the same everywhere."""
    options = {option.name: option for one in DEFINITIONS for option in one.options}
    lines = [f"- option `{name}`: {_option(options[name])}" for name in SHARED]
    return "\n".join(["Most metrics take these options:", "", *lines, ""])


def _definition(definition: Definition) -> str:
    metric = definition.metric
    high = "no upper bound" if metric.high is None else f"{metric.high:g}"
    shared = [f"`{option.name}`" for option in definition.options if option.name in SHARED]
    lines = [
        f"## {metric.title}",
        "",
        metric.help,
        "",
        f"    {metric.formula}",
        "",
        f"- name: {_names(definition)}",
        *(
            f"- option `{option.name}`: {_option(option)}"
            for option in definition.options
            if option.name not in SHARED
        ),
        *([f"- options as above: {', '.join(shared)}"] if shared else []),
        f"- range: {metric.low:g} to {high}; {metric.better} is better",
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
        "## Suites",
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
