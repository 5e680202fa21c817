"""Models of the published row, which ``export`` writes and the output topic carries.

Fields are in the order of the row; metrics and their descriptions come from the registry.
``engine.row`` makes rows without these models, and tests verify that both agree. Fields may be
added: the published schema allows unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from stream_metrics.core.engine.row import iteration_row, total_fields
from stream_metrics.core.engine.state import Iteration
from stream_metrics.core.metrics.decisions import GateCounts, RerankSums, RoutingCounts
from stream_metrics.core.metrics.registry import BASES, CUMULATIVE, Metric, metrics_at
from stream_metrics.core.metrics.turn_totals import TurnTotals

Whole = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Fields = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


def _model(name: str, doc: str, fields: Fields) -> type[BaseModel]:
    made: type[BaseModel] = create_model(name, __base__=_Part, __doc__=doc, **fields)
    return made


def _counts(kind: Any = Whole, /, **helps: str) -> Fields:
    """Fields of one type, with their descriptions."""
    return {name: (kind, Field(description=text)) for name, text in helps.items()}


def _metrics(metrics: Iterable[Metric], *, nullable: bool) -> Fields:
    found: Fields = {}
    for one in metrics:
        bounds = Field(ge=round(one.low), le=None if one.high is None else round(one.high))
        kind: Any = Annotated[int if one.whole else float, bounds]
        description = Field(description=f"{one.title}. {one.help}")
        found[one.key] = (kind | None if nullable and one.none_means else kind, description)
    return found


RowIteration: Final = _model(
    "RowIteration",
    "An iteration that searched: its own counts, and the figures through it.",
    {
        **_counts(Number, iteration="The producer's number."),
        **_counts(Number, i="Its number among the iterations that searched, from 1, without gaps."),
        **_counts(
            results="Results that it returned, R_i.",
            unique="Documents that it was the first to return.",
            good_unique="Good ones among them.",
            duplicates="Results whose document the turn had before.",
            labelled="Unique documents with a label.",
            gain="Gain of its good unique documents, G_i.",
        ),
        **_metrics(metrics_at("iteration"), nullable=False),
        **_counts(
            r_at="Results so far, R@i.",
            ur_at="Unique documents so far, UR@i.",
            gr_at="Good unique documents so far, GR@i.",
            dup_at="Duplicates so far, DupR@i.",
        ),
        **_metrics(CUMULATIVE, nullable=False),
    },
)

RowGate: Final = _model(
    "RowGate",
    "Gate decisions of the turn. A ratio without a denominator is null.",
    {
        **_counts(
            search="Iterations with the decision to search.",
            skip="Iterations with the decision not to search.",
            labelled="Decisions with a label.",
            correct_skip="Skipped, and no search was needed.",
            missed="Skipped, and a search was needed.",
            correct_search="Searched, and a search was needed.",
            wasted="Searched, and no search was needed.",
        ),
        **_metrics(metrics_at("gate"), nullable=True),
    },
)

RowRouting: Final = _model(
    "RowRouting",
    "Routing decisions of the turn.",
    {
        **_counts(routed="Searches that took a route."),
        **_counts(dict[str, Whole], routes="Searches by route."),
        **_counts(
            labelled="Routed searches with a label.",
            correct="Those of them that took the best route.",
        ),
        **_metrics(metrics_at("routing"), nullable=True),
    },
)

RowReranking: Final = _model(
    "RowReranking",
    "The order shown against the order before reranking, over the searches that take part.",
    {
        **_counts(
            searches="Searches that take part: two ranked results at least, and a label.",
            undefined="Those of them whose baseline scores 0.",
        ),
        **_counts(
            Share | None,
            ndcg_shown="Mean NDCG of the order shown.",
            ndcg_baseline="Mean NDCG of the order before reranking.",
        ),
        **_metrics(metrics_at("reranking"), nullable=True),
        **_counts(
            float | None,
            mean_improvement="Mean of the improvements of single searches, where defined.",
        ),
    },
)

RowBeyondLimit: Final = _model(
    "RowBeyondLimit",
    "What limits have left out of the turn, which no other figure counts.",
    _counts(
        searches="Searches, as often as they came.",
        results="Results of these.",
    ),
)

Row: Final = _model(
    "Row",
    "The figures of a conversation: those of its highest turn.\n\nWith `metrics.turn_scope` all "
    "there is a row for each turn. The flat figures are totals and the values at the last "
    "iteration; without an iteration that searched they are null.",
    {
        **_counts(str, conversation_id="The conversation."),
        **_counts(Number, turn="The turn."),
        **_counts(str, agent="Agent of the highest iteration with a search or a gate decision."),
        **_counts(str | None, release="Its release, if one was sent."),
        **_counts(
            bool,
            over_limit="The turn grew beyond a limit, and its figures leave out what came then.",
        ),
        **_counts(
            RowBeyondLimit | None,
            beyond_limit="What limits have left out; null if the state does not count it.",
        ),
        **_counts(
            list[RowIteration],  # type: ignore[valid-type]
            iterations="The iterations that searched, in order.",
        ),
        **_counts(
            n="How many there are, N.",
            results="Results of the turn, R@N.",
            unique="Unique documents.",
            good_unique="Good ones among them.",
            duplicates="Results whose document the turn had before.",
            labelled="Unique documents with a label.",
            unlabelled="Unique documents without one.",
        ),
        "labelled_by": (
            dict[str, Whole] | None,
            Field(
                None,
                description="The labelled ones by whose label counts, `human` or `model`, without "
                "a source of which none counts. Only there if a model's label counts.",
            ),
        ),
        **_counts(searches="Searches of the turn."),
        **_counts(
            Whole | None,
            queried_searches="Those with a query; null if the state has no digests of queries.",
        ),
        **_metrics(metrics_at("count"), nullable=True),
        **_counts(Whole | None, gain="Gain of the good unique documents."),
        **_metrics((*CUMULATIVE, *metrics_at("turn")), nullable=True),
        **_counts(
            Literal[BASES] | None,
            all_good_basis='Whether "all" is by the ground truth of the turn, or by what it '
            "retrieved.",
        ),
        **_counts(
            dict[str, str],
            duplicates_of="By the handle of a duplicate, that of the document's first occurrence.",
        ),
        **_counts(RowGate, gate="Gate decisions."),
        **_counts(RowRouting, routing="Routing decisions."),
        **_counts(RowReranking, reranking="Reranking."),
    },
)


def _example() -> dict[str, Any]:
    iteration, totals = Iteration(1), TurnTotals()
    iteration.results, iteration.unique, iteration.good = 2, 2, 1
    iteration.labelled, iteration.gain = 1, 4
    totals.add(2, 2, 1, 1, 4)
    totals.add_searches(1, 1, 0, 0)
    return {
        "conversation_id": "conv-42",
        "turn": 1,
        "agent": "support",
        "release": "2024.6",
        "over_limit": False,
        "beyond_limit": {"searches": 0, "results": 0},
        "iterations": [iteration_row(iteration, totals)],
        **total_fields(totals),
        "duplicates_of": {},
        "gate": GateCounts(search=1).row(),
        "routing": RoutingCounts({}, 0, 0).row(),
        "reranking": RerankSums().row(),
    }


EXAMPLE: Final = _example()
"""The example row in the published schema."""
