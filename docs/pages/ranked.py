"""``docs/reference/metrics-retrieval.md``, from the definitions of ranked metrics."""

from __future__ import annotations

from typing import Final

from docs.pages import page
from stream_metrics.core.engine.config import MAX_RETRIEVAL
from stream_metrics.core.engine.series import PREFIX
from stream_metrics.core.metrics.ranking.live import LARGEST_GRADE, LARGEST_NUMBER
from stream_metrics.core.metrics.ranking.names import Definition, Option, Value
from stream_metrics.core.metrics.ranking.registry import (
    CUTOFFS,
    DEEPER,
    DEFINITIONS,
    RANKED,
    SUITES,
)
from stream_metrics.core.metrics.registry import NEVER

_INTRO: Final = """\
Metrics of ranked results with relevance judgements. To compute them, see
[Evaluate a retriever](../guides/evaluation.md). A metric name can have options and a cut-off, as in
`precision(rel=2)@5`. `precision_at_5` means `precision@5`, and case does not matter. Printed names
omit default options and are valid input.

- A document is *relevant* if its grade is at least `rel`.
- Negative grades count as 0. An unjudged result has gain 0 and keeps its rank.
- A grade that is too large for a gain is an error: above `max_grade`, above 1,000 for
  `gains=exponential`, and above 2⁵³ where grades are gains themselves, in NDCG and the Q-measure.
- A repeated document keeps its rank, has gain 0, and counts in denominators.
- If nothing is relevant or nothing was retrieved, the value is 0. Only metrics that say so can be
  `null`, unless results have [no ids](#results-and-the-ids-of-ground-truth).
- If relevance is estimated by overlap with a reference answer, only retrieved documents are known.
  Metrics that need the full ground truth are `null`, and NDCG is too high.

Learning to rank, click models, and image, cross-modal and temporal metrics are out of scope.
"""

_IDS: Final = """\
## Results and the ids of ground truth

Events name relevant documents by `doc_id` (`relevant` in `turn_completed`), while
[other evidence](../guides/producers.md#documents-and-chunks), too, shows that results are one
document. From `dedup.tables` 2 on, in live figures and replays:

- **A document has the best grade of all its ids.** What results of the turn connect, documents and
  their `doc_id`s, is one, whichever search returned them. It counts once: its first result in a
  ranking has the grade, the others are repeats. If a copy `plan-a` of the relevant `plan-b` comes
  first, `plan-b` is found there.
- **Two relevant ids of one document are one relevant document**, in recall and in the best order,
  so that recall and NDCG can be 1. An id that no result of the turn has counts as a document of its
  own, since nothing connects it.
- `iterations_for_all_good_results` follows the same rule, and so does
  [a rule of your own](../guides/evaluation.md#a-rule-of-your-own).
- **Later results count.** One that connects an id with an earlier document corrects the scores of
  all searches of the turn.
- **Without ids there are no figures.** If no result of a search has a `doc_id`, its own or that of
  its document, nothing can be compared: all its ranked metrics are `null`, and live sums leave it
  out. If that is so of all results of a turn, its searches without a result are left out, too.
  Labels do not stand in. A search with some ids has figures. A result without one is not judged
  there, like a document that `relevant` does not name: see `judged@k`, and leave such results out
  with `judged_only`. [Replays](../guides/replay.md#score-searches) count both. A worker counts
  turns without any id in `streammetrics_ground_truths_without_ids_total`.
- Ids are compared as they were written, those of UUIDs too.

`dedup.tables` 1 compares the `doc_id` of each result by itself, and scores results without one as
not relevant.
"""

SHARED: Final = ("rel", "judged_only")  # options that nearly all metrics take, explained once

_LIVE: Final = f"""\
## Ranked metrics, live

The worker treats each search as a ranking of its results and sums the metrics in
`metrics.retrieval` over searches. List up to {MAX_RETRIEVAL} metrics or suites, such as
`["ndcg@10", "recall@10", "mrr", "judged@10"]`. The default is none.

- **Means.** The mean over searches is `{PREFIX}retrieval_sum` / 1e9 / `{PREFIX}retrieval_count`.
  Searches for which a metric is undefined are in neither.
- **Ground truth** is shared by all searches of a turn. If `turn_completed` has `relevant`, that is
  the full ground truth, [matched by `doc_id`](#results-and-the-ids-of-ground-truth). Otherwise it
  is every labelled document of the turn, whichever search returned it. Without either, the turn's
  searches are not counted.
- **Late labels.** A late, revised or withdrawn label or ground truth corrects the scores of all
  searches of the turn, in the windows that contain them.
- **Repeats.** A result repeats an earlier one if it is the same document or has the same `doc_id`.
- **Not available live:** `max_ont_sim`, `fa=collection(N)`, `max_grade` below {LARGEST_GRADE} or
  above {LARGEST_NUMBER:,}, and `beta` above {LARGEST_NUMBER:,}. Settings with these are rejected.
- **Cost.** Each metric adds two series per agent and window. Redis stores one more digest per
  result, and a batch with labels rescores all searches of the labelled turns, as does one with
  results that connect ids after the ground truth has arrived.
"""


def ranked_page() -> str:
    """All ranked metrics, with their options."""
    parts = [
        f"# {RANKED}\n",
        _INTRO,
        _shared(),
        *map(_definition, DEFINITIONS),
        _suites(),
        _IDS,
        _LIVE,
    ]
    return page(*parts)


def _shared() -> str:
    """The options that are explained once; a test checks that they are the same everywhere."""
    options = {option.name: option for one in DEFINITIONS for option in one.options}
    lines = [f"- option `{name}`: {_option(options[name])}" for name in SHARED]
    return "\n".join(["Most metrics have these options:", "", *lines, ""])


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
        *([f"- common options: {', '.join(shared)}"] if shared else []),
        f"- range: {metric.low:g} to {high}; {metric.better} is better",
        *([] if metric.none_means == NEVER else [f"- `null` when: {metric.none_means}"]),
        *(
            [f"- printed together with: {', '.join(f'`{name}`' for name in definition.companions)}"]
            if definition.companions
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
    words = ", ".join(f"`{choice}`" for choice in option.choices)
    takes = "one of " + words + ", `collection(N)`" * option.collection if words else option.takes()
    default = "" if option.default is None else f"; default `{_value(option.default)}`"
    return f"{option.help} Takes {takes}{default}."


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _suites() -> str:
    cutoffs = ", ".join(map(str, CUTOFFS))
    lines = [
        "## Suites",
        "",
        "A suite is a name for several metrics. Its usual cut-offs are "
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
