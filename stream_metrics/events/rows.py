"""The published form of a conversation's row: what ``export`` writes and the output topic carries.

The fields stand in the order in which a row has them. The engine makes rows without these models
(``engine.row``); tests hold the two to one form. Fields may be added, so that the published schema
lets a reader pass over those that it does not know.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

Whole = Annotated[int, Field(ge=0)]
Figure = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
MeanGain = Annotated[float, Field(ge=0, le=4)]


class _Part(BaseModel):
    model_config = ConfigDict(
        strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class RowIteration(_Part):
    """An iteration that searched: its own counts, and the figures through it."""

    iteration: Annotated[int, Field(ge=1)]
    """The producer's number."""
    i: Annotated[int, Field(ge=1)]
    """Its number among the iterations that searched, from 1, without gaps."""
    results: Whole
    """Results that it returned, R_i."""
    unique: Whole
    """Documents that it was the first to return."""
    good_unique: Whole
    """Good ones among them."""
    duplicates: Whole
    """Results whose document the turn had before."""
    labelled: Whole
    """Unique documents with a label."""
    gain: Whole
    """Gain of its good unique documents, G_i."""
    avg_gain: MeanGain
    """G_i / R_i; 0 without results."""
    r_at: Whole
    """Results so far, R@i."""
    ur_at: Whole
    """Unique documents so far, UR@i."""
    gr_at: Whole
    """Good unique documents so far, GR@i."""
    dup_at: Whole
    """Duplicates so far, DupR@i."""
    cg: Whole
    """Gain so far, CG@i."""
    rg: Figure
    """CG@i / i."""
    dcg: Figure
    """Discounted gain so far."""
    drg: Figure
    """DCG@i / i."""
    rag: MeanGain
    """Mean of `avg_gain` so far."""
    drag: MeanGain
    """The same, discounted."""
    sre: Share
    """Search result efficiency, GR@i / R@i."""
    srr: Share
    """Search result redundancy, DupR@i / R@i."""


class RowGate(_Part):
    """Gate decisions of the turn. A ratio without a denominator is null."""

    search: Whole
    """Iterations with the decision to search."""
    skip: Whole
    """Iterations with the decision not to search."""
    labelled: Whole
    """Decisions with a label."""
    correct_skip: Whole
    """Skipped, and no search was needed."""
    missed: Whole
    """Skipped, and a search was needed."""
    correct_search: Whole
    """Searched, and a search was needed."""
    wasted: Whole
    """Searched, and no search was needed."""
    efficiency: Share | None
    """Correct skips of all labelled decisions."""
    accuracy: Share | None
    """Right decisions of all labelled ones."""
    skip_precision: Share | None
    """Correct skips of all labelled skips."""
    skip_recall: Share | None
    """Correct skips of all labelled decisions where no search was needed."""


class RowRouting(_Part):
    """Routing decisions of the turn."""

    routed: Whole
    """Searches that took a route."""
    routes: dict[str, Whole]
    """Searches by route."""
    labelled: Whole
    """Routed searches with a label."""
    correct: Whole
    """Those of them that took the best route."""
    accuracy: Share | None
    """`correct` of `labelled`; null without labels."""


class RowReranking(_Part):
    """The order shown against the order before reranking, over the searches that take part."""

    searches: Whole
    """Searches that take part: two ranked results at least, and a label."""
    undefined: Whole
    """Those of them whose baseline scores 0."""
    ndcg_shown: Share | None
    """Mean NDCG of the order shown."""
    ndcg_baseline: Share | None
    """Mean NDCG of the order before reranking."""
    improvement: float | None
    """(`ndcg_shown` - `ndcg_baseline`) / `ndcg_baseline`."""
    mean_improvement: float | None
    """Mean of the improvements of single searches, where defined."""


class Row(_Part):
    """The figures of a conversation: those of its highest turn.

    With `metrics.turn_scope` all there is a row for each turn. The flat figures are totals and the
    values at the last iteration; without an iteration that searched they are null.
    """

    conversation_id: str
    """The conversation."""
    turn: Annotated[int, Field(ge=1)]
    """The turn."""
    agent: str
    """Agent of the highest iteration with a search or a gate decision."""
    release: str | None
    """Its release, if one was sent."""
    over_limit: bool
    """The turn grew beyond a limit, and its figures leave out what came then."""
    iterations: list[RowIteration]
    """The iterations that searched, in order."""
    n: Whole
    """How many there are, N."""
    results: Whole
    """Results of the turn, R@N."""
    unique: Whole
    """Unique documents."""
    good_unique: Whole
    """Good ones among them."""
    duplicates: Whole
    """Results whose document the turn had before."""
    labelled: Whole
    """Unique documents with a label."""
    unlabelled: Whole
    """Unique documents without one."""
    gain: Whole | None
    """Gain of the good unique documents."""
    cg: Whole | None
    """CG@N."""
    rg: Figure | None
    """RG@N."""
    dcg: Figure | None
    """DCG@N."""
    drg: Figure | None
    """DRG@N."""
    rag: MeanGain | None
    """RAG@N."""
    drag: MeanGain | None
    """DRAG@N."""
    sre: Share | None
    """SRE@N."""
    srr: Share | None
    """SRR@N."""
    sre_upper: Share | None
    """What SRE would be if every document without a label proved good."""
    iterations_for_all_good_results: Annotated[int, Field(ge=1, le=100)] | None
    """Iterations until every good document had been retrieved, at most 100."""
    all_good_basis: Literal["qrels", "retrieved"] | None
    """Whether "every" is by the ground truth of the turn, or by what it retrieved."""
    duplicates_of: dict[str, str]
    """By the handle of a duplicate, that of the document's first occurrence."""
    gate: RowGate
    """Gate decisions."""
    routing: RowRouting
    """Routing decisions."""
    reranking: RowReranking
    """Reranking."""


EXAMPLE: Final[dict[str, Any]] = {
    "conversation_id": "conv-42",
    "turn": 1,
    "agent": "support",
    "release": "2024.6",
    "over_limit": False,
    "iterations": [
        {
            "iteration": 1,
            "i": 1,
            "results": 2,
            "unique": 2,
            "good_unique": 1,
            "duplicates": 0,
            "labelled": 1,
            "gain": 4,
            "avg_gain": 2.0,
            "r_at": 2,
            "ur_at": 2,
            "gr_at": 1,
            "dup_at": 0,
            "cg": 4,
            "rg": 4.0,
            "dcg": 4.0,
            "drg": 4.0,
            "rag": 2.0,
            "drag": 2.0,
            "sre": 0.5,
            "srr": 0.0,
        }
    ],
    "n": 1,
    "results": 2,
    "unique": 2,
    "good_unique": 1,
    "duplicates": 0,
    "labelled": 1,
    "unlabelled": 1,
    "gain": 4,
    "cg": 4,
    "rg": 4.0,
    "dcg": 4.0,
    "drg": 4.0,
    "rag": 2.0,
    "drag": 2.0,
    "sre": 0.5,
    "srr": 0.0,
    "sre_upper": 1.0,
    "iterations_for_all_good_results": 1,
    "all_good_basis": "retrieved",
    "duplicates_of": {},
    "gate": {
        "search": 1,
        "skip": 0,
        "labelled": 0,
        "correct_skip": 0,
        "missed": 0,
        "correct_search": 0,
        "wasted": 0,
        "efficiency": None,
        "accuracy": None,
        "skip_precision": None,
        "skip_recall": None,
    },
    "routing": {"routed": 0, "routes": {}, "labelled": 0, "correct": 0, "accuracy": None},
    "reranking": {
        "searches": 0,
        "undefined": 0,
        "ndcg_shown": None,
        "ndcg_baseline": None,
        "improvement": None,
        "mean_improvement": None,
    },
}
