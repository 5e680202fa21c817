"""What is wrong, and why, in words: the alert rules' conditions on this worker's own sums.

Prometheus asks the same of all workers together and waits a while before it alerts; the page judges
at once, and sees the partitions of its own worker only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stream_metrics.adapters.page import figures
from stream_metrics.adapters.page.conditions import (
    BASELINE,
    COVERAGE_WARNING,
    DEAD_CRITICAL,
    DEAD_WARNING,
    DECISIONS,
    DROP_CRITICAL,
    DROP_WARNING,
    LAG_CRITICAL_SECONDS,
    LAG_WARNING_SECONDS,
    LETTERS,
    LEVELS,
    LONG,
    MEMORY_CRITICAL,
    MEMORY_WARNING,
    MISSED_WARNING,
    RERANK_WARNING,
    RESULTS,
    RESULTS_DROP,
    ROUTING_DROP,
    SHORT,
    SRR_CRITICAL,
    SRR_OF_USUAL,
    SRR_WARNING,
    UNKNOWN,
    AgentRule,
    Finding,
    Window3,
    Worker,
    WorkerRule,
    dead_letters,
    drop,
    labels_missing,
    lag,
    memory,
    missed_retrievals,
    not_ready,
    offset_gaps,
    reranking_worse,
    results_drop,
    routing_drop,
    share,
    srr_spike,
)
from stream_metrics.engine.config import OTHER


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by its name; ``fires`` says when, ``look`` where to look then, in words."""

    name: str
    title: str
    fires: str
    look: str
    of_agent: AgentRule | None = None
    of_worker: WorkerRule | None = None


RULES: Final = (
    Rule(
        "srr_spike", "SRR spike",
        f"SRR of {SHORT} and {LONG} above {share(SRR_WARNING)} ({share(SRR_CRITICAL)}: critical) "
        f"and above {SRR_OF_USUAL:g} times that of {BASELINE}, from {RESULTS} results on",
        "Did an index, a query rewriter or a prompt change? The worst conversations show what "
        "repeats.",
        of_agent=srr_spike,
    ),
    Rule(
        "results_drop", "Results drop",
        f"results a search of {SHORT} and {LONG} below {share(RESULTS_DROP)} of those of "
        f"{BASELINE}, from {DECISIONS} searches on",
        "Is an index empty, or does a source answer with nothing?",
        of_agent=results_drop,
    ),
    Rule(
        "sre_drop", "SRE drop",
        f"SRE of {SHORT} and {LONG} below {share(DROP_WARNING)} ({share(DROP_CRITICAL)}: critical) "
        f"of that of {BASELINE}, settled iterations only, from {RESULTS} results on",
        "Did a source go missing, or the labeller change? The worst conversations show where it "
        "is low.",
        of_agent=drop(figures.sre, RESULTS, "SRE", "results"),
    ),
    Rule(
        "gain_drop", "Gain drop",
        f"good gain an iteration of {SHORT} and {LONG} below {share(DROP_WARNING)} "
        f"({share(DROP_CRITICAL)}: critical) of that of {BASELINE}, from {DECISIONS} iterations on",
        'Do later iterations bring less? The worst conversations show wasted ones.',
        of_agent=drop(figures.gain, DECISIONS, "good gain an iteration", "iterations"),
    ),
    Rule(
        "missed_retrievals", "Missed retrievals",
        f"more than {share(MISSED_WARNING)} of labelled gate decisions of {LONG} skip a search "
        f"that was needed, from {DECISIONS} on",
        'Was the gate, or its threshold, changed?',
        of_agent=missed_retrievals,
    ),
    Rule(
        "routing_drop", "Routing drop",
        f"routing accuracy of {LONG} {100 * ROUTING_DROP:.0f} points below that of {BASELINE}, "
        f"from {DECISIONS} labelled searches on",
        "Did a route's source change, or the router?",
        of_agent=routing_drop,
    ),
    Rule(
        "reranking_worse", "Reranking made worse",
        f"NDCG after reranking below {share(RERANK_WARNING)} of that before, from {DECISIONS} "
        "searches on",
        'Was the reranker, or its model, changed?',
        of_agent=reranking_worse,
    ),
    Rule(
        "labels_missing", "Labels missing",
        f"less than {share(COVERAGE_WARNING)} of the documents of {LONG} labelled (none: "
        f"critical), from {RESULTS} documents on, where labels came within {BASELINE}",
        'Is the labeller up, and does it send to the topic that is read?',
        of_agent=labels_missing,
    ),
    Rule("not_ready", "Worker not ready", "/readyz gives a reason",
        'docs/delivery.md says what each reason means.', of_worker=not_ready),
    Rule(
        "lag", "Consumer lag",
        f"more than {LAG_WARNING_SECONDS:.0f} s behind ({LAG_CRITICAL_SECONDS:.0f} s: critical)",
        'Is there more traffic than workers can take, or does Redis answer slowly?',
        of_worker=lag,
    ),
    Rule(
        "dead_letters", "Dead letters",
        f"more than {share(DEAD_WARNING)} ({share(DEAD_CRITICAL)}: critical) of the records of the "
        f"last 5 minutes turned away, {LETTERS} at least",
        'stream-metrics dlq list says which records, and why.',
        of_worker=dead_letters,
    ),
    Rule(
        "memory", "State near its limit",
        f"Redis above {share(MEMORY_WARNING)} ({share(MEMORY_CRITICAL)}: critical) of maxmemory",
        'Give Redis more memory, or shorten state.ttl; beyond the limit nothing is written.',
        of_worker=memory,
    ),
    Rule("offset_gaps", "Offset gap", "records that the state needs are gone",
        'docs/delivery.md says what to do about a halted partition.',
        of_worker=offset_gaps),
)  # fmt: skip


def judge(agents: Mapping[str, Window3], worker: Worker) -> list[dict[str, Any]]:
    """The state of every rule: its worst level, and what it found, the worst first."""
    states = []
    for rule in RULES:
        found = sorted(_findings(rule, agents, worker), key=lambda f: LEVELS.index(f.level))
        states.append(
            {
                "name": rule.name,
                "title": rule.title,
                "fires": rule.fires,
                "look": rule.look,
                "of": "agent" if rule.of_agent else "worker",
                "level": found[0].level if found else UNKNOWN,
                "findings": [{"level": f.level, "agent": f.agent, "why": f.why} for f in found],
            }
        )
    return states


def _findings(rule: Rule, agents: Mapping[str, Window3], worker: Worker) -> Iterator[Finding]:
    if rule.of_worker is not None:
        yield rule.of_worker(worker)
    elif rule.of_agent is not None:
        for agent, sums in agents.items():
            if agent != OTHER:  # a mixture has no usual behaviour
                found = rule.of_agent(sums)
                yield Finding(found.level, found.why, agent)
