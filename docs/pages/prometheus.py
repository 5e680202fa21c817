"""``docs/reference/metrics-prometheus.md``, from the declarations of the metrics."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry

from docs.pages import page
from stream_metrics.core.alerts.figures import FIGURES
from stream_metrics.core.alerts.shifts import Evidence
from stream_metrics.core.alerts.standing import Gathered, Stands
from stream_metrics.core.engine.cells import CODES, Series
from stream_metrics.core.engine.series import PREFIX
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.judge.budget import NOTHING, Limits, Spending
from stream_metrics.core.metrics.registry import LABELLED_SHARE, METRICS
from stream_metrics.live.judge.ledger import State
from stream_metrics.live.prometheus.bridge import BridgeMetrics
from stream_metrics.live.prometheus.catalogue import MAX_BUGS, MAX_UNKNOWN_FIELDS
from stream_metrics.live.prometheus.judge import JudgeMetrics
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.receiver import ReceiverMetrics


def prometheus_page() -> str:
    """The page about the metrics in Prometheus."""
    head = (
        "# Metrics in Prometheus\n\nA worker exports window sums of the quality metrics and "
        "metrics about itself on `/metrics`. To use them, see "
        "[Prometheus and Grafana](../guides/prometheus.md).\n"
    )
    return page(
        head,
        _series_section(),
        _queries_section(),
        _operations_section(),
        _receiver_section(),
        _bridge_section(),
        _judge_section(),
    )


def _window_ratio(above: str, below: str, window: str = "5m") -> str:
    """PromQL of a ratio by agent, without a value if the denominator is 0, or a label is needed and
    there is none."""
    labels = f'{{window="{window}"}}'
    query = (
        f"sum by (agent) ({PREFIX}{above}{labels})\n"
        f"  / (sum by (agent) ({PREFIX}{below}{labels}) > 0)"
    )
    if below.startswith("settled_"):
        query += f"\n  and sum by (agent) ({PREFIX}labelled_results{labels}) > 0"
    return query


QUERIES: Final = (
    *(
        (
            metric.title + (", of settled iterations" if "settled" in metric.series[1] else ""),
            _window_ratio(*metric.series),
        )
        for metric in (*METRICS, LABELLED_SHARE)
        if metric.series is not None
    ),
    (
        "Mean SRR over turns",
        f'sum({PREFIX}turn_metric_sum{{metric="srr", window="1h"}}) / 1e9\n'
        f'  / sum({PREFIX}turn_metric_count{{metric="srr", window="1h"}})',
    ),
    (
        "Gate efficiency",
        f'(sum({PREFIX}gate_decisions{{decision="skip", needed="no", window="1h"}}) or vector(0))\n'
        f'  / sum({PREFIX}gate_decisions{{needed=~"yes|no", window="1h"}})',
    ),
    (
        "Routing accuracy",
        f'(sum({PREFIX}routed_searches{{correct="yes", window="1h"}}) or vector(0))\n'
        f'  / sum({PREFIX}routed_searches{{correct=~"yes|no", window="1h"}})',
    ),
    (
        "Mean NDCG@10 over searches, if `metrics.retrieval` names it",
        f'sum({PREFIX}retrieval_sum{{metric="ndcg@10", window="1h"}}) / 1e9\n'
        f'  / (sum({PREFIX}retrieval_count{{metric="ndcg@10", window="1h"}}) > 0)',
    ),
    (
        "Reranking improvement",
        f'sum({PREFIX}rerank_ndcg_sum{{order="shown", window="1h"}})\n'
        f'  / (sum({PREFIX}rerank_ndcg_sum{{order="baseline", window="1h"}}) > 0) - 1',
    ),
)


def _queries_section() -> str:
    lines = [
        "## Ratios in PromQL",
        "",
        "Sums of several workers can be added, because each partition has one owner.",
        "",
    ]
    for title, query in QUERIES:
        lines += [f"{title}:", "", "```promql", query, "```", ""]
    return "\n".join(lines)


def _series_section() -> str:
    windows = ", ".join(f"`{window.name}`" for window in DEFAULT_WINDOWS)
    lines = [
        "## Window series in Prometheus",
        "",
        "The worker exports sums over sliding windows of event time as gauges. Each has the "
        f"labels `agent` and `window` ({windows}; set by `metrics.windows`) and those in the "
        "table. Late labels and searches correct the past, so a gauge can fall.",
        "",
        f"Names begin with `{PREFIX}`. Compute ratios from sums; never average ratios.",
        "",
        "| name | more labels | group | windows | meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [_series_row(series) for series in CODES.values()]
    lines += [
        "",
        "- **Billionths.** Real values are stored as integers in units of 10⁻⁹. Divide "
        f"`{PREFIX}turn_metric_sum`, `{PREFIX}rerank_ndcg_sum` and `{PREFIX}retrieval_sum` by 1e9.",
        "- **Zeros.** A known agent has all its series from the start, at 0; `routed_searches` has "
        "the routes it has taken, and `label_sums` only sums that are not 0. If that would exceed "
        "the limit below, only series with `all` windows are exported at 0.",
        "- **Windows.** The table says which default windows have a series. A window that is "
        "not one of them, such as `2h`, has all series. `metrics.series_windows` gives a group "
        "other windows.",
        "- **Settled** iterations have labels for at least 90% of their unique documents. Use the "
        "settled series for recent SRE and gain, so that slow labelling does not look like bad "
        "searches. Iterations that only repeat are settled without a label, so the ratios below "
        "ask for one. A settled iteration without a good new document is *wasted*, as "
        "`stream-metrics top` calls it.",
        "- **other.** At most 50 agents and 20 routes have their own series; the rest are summed "
        "under `other`.",
        f"- **Limit.** A worker exports at most 20,000 window series. `{PREFIX}series` is their "
        f"number. `streammetrics_agents_folded` and `{PREFIX}series_cut` are above 0 if the limit "
        "was reached.",
        "",
    ]
    return "\n".join(lines)


def _operations_section() -> str:
    registry = CollectorRegistry()
    operations = Operations(registry, ["topic"], pools={"support": "handbook"})
    operations.lag("topic", 0, 0, 0.0)
    operations.agents_known(["support"])
    operations.evidence.gathered = _gathered("support")
    lines = [
        "## Operational metrics",
        "",
        "Metrics about the worker itself. They start at 0 with the process. Counters are "
        "at-least-once: repeated work is counted again. Label values are a fixed set, except that "
        "`topic`, `partition` and `window` follow from the settings, `field` has at most "
        f"{MAX_UNKNOWN_FIELDS} names from events, and `kind` at most {MAX_BUGS} lines of code. "
        "`/metrics` also has `process_*` (CPU, memory, "
        "start time).",
        "",
    ]
    return "\n".join([*lines, *_table(registry), ""])


def _gathered(agent: str) -> Gathered:
    """Some evidence about an agent."""
    figure, none = FIGURES[0], Evidence(0.0, 0)
    stands = Stands(figure, 1.0, (none, none), None, 0.0, None, 0, ())
    return Gathered(0, {agent: {figure.name: stands}})


def _receiver_section() -> str:
    registry = CollectorRegistry()
    ReceiverMetrics(registry, ["topic"]).answered("path", 200)
    lines = [
        "## Metrics of what is received",
        "",
        "What [one process](../guides/one-process.md) exports beside the metrics of a worker and "
        "of a bridge.",
        "",
    ]
    return "\n".join([*lines, *_table(registry), ""])


def _bridge_section() -> str:
    registry = CollectorRegistry()
    metrics = BridgeMetrics(registry, ["topic"])
    metrics.lag("topic", 0, 0, 0.0)
    lines = [
        "## Metrics of the bridge",
        "",
        "What [the bridge](../concepts/bridge.md) exports on its own `/metrics`, and `process_*`.",
        "",
    ]
    return "\n".join([*lines, *_table(registry), ""])


def _judge_section() -> str:
    registry = CollectorRegistry()
    metrics = JudgeMetrics(registry, ["topic"])
    metrics.lag("topic", 0, 0, 0.0)
    metrics.budget(State(Spending(0, NOTHING, NOTHING, None), Limits(1, 1, 1), None, None))
    lines = [
        "## Metrics of the judge",
        "",
        "What [the judge](../guides/labels.md#a-model-that-judges) exports: on its own `/metrics`, "
        "and in one process beside all others.",
        "",
    ]
    return "\n".join([*lines, *_table(registry), ""])


def _table(registry: CollectorRegistry) -> list[str]:
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for family in registry.collect():
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels)
        labels.pop("le", None)
        listed = ", ".join(f"`{label}`" for label in labels) or "–"
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        name = f"`{family.name}{suffix}`"
        lines.append(f"| {name} | {family.type} | {listed} | {family.documentation} |")
    return lines


def _series_row(series: Series) -> str:
    labels = ", ".join(f"`{label}`" for label in series.labels) or "–"
    windows = "all" if series.windows is None else ", ".join(f"`{w}`" for w in series.windows)
    group = f"`{series.group}`" if series.group else "–"
    return f"| `{series.name}` | {labels} | {group} | {windows} | {series.help} |"
