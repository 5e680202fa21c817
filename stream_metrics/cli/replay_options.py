"""Options and errors of a replay, for ``stream-metrics replay`` and replays on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stream_metrics.cli.common import UsageError, printable
from stream_metrics.cli.predicates import (
    LoadedPredicate,
    load_named_predicate,
    predicate_settings,
)
from stream_metrics.cli.settings import Settings, masked_settings
from stream_metrics.core.metrics.labels import HUMAN_FIRST
from stream_metrics.core.metrics.ranking.names import MetricNameError
from stream_metrics.lab.evaluation.recorded_searches import Scoring
from stream_metrics.lab.replay.outcome import ReplayOptions
from stream_metrics.lab.reports.html.rankings import Link
from stream_metrics.lab.settings import EvaluationSettings
from stream_metrics.lab.sources.place import place_text
from stream_metrics.live.links import CONVERSATION, fill_template

TurnScope = Literal["last", "all"]
Models = tuple[tuple[str, str], ...]
"""Folders of models that score answers, by the name of their metric."""


def replay_options(
    settings: Settings,
    *,
    metrics: Sequence[str] = (),
    predicate: str | None = None,
    turn_scope: TurnScope | None = None,
    now_us: int | None = None,
    models: Models = (),
    generation: bool = True,
) -> tuple[ReplayOptions, dict[str, Any]]:
    """The options of a replay, and the settings as its report shows them.

    ``metrics``, ``predicate`` and ``turn_scope`` have the settings as their defaults. Raises
    ``UsageError``.
    """
    chosen = settings.evaluation
    if metrics:
        chosen = chosen.model_copy(update={"metrics": tuple(metrics)})
    rule = load_named_predicate(predicate or chosen.predicate)
    if rule is not None:
        chosen = chosen.model_copy(update={"predicate": rule.name})
    options = ReplayOptions(
        settings.engine_config(),
        turn_scope or settings.metrics.turn_scope,
        tuple(settings.metrics.agents),
        tuple(settings.metrics.routes),
        tuple(settings.metrics.window_specs()),
        now_us,
        models,
        _scoring(settings, chosen),
        generation,
    )
    return options, _shown(settings, chosen, models, rule, generation=generation)


def conversation_link(settings: Settings) -> Link:
    """The link to a conversation's trace, by ``web.conversation_url``."""
    return partial(fill_template, settings.web.conversation_url, CONVERSATION)


def check_usable(report: dict[str, Any], names: Sequence[str]) -> None:
    """Raise ``UsageError`` if there are no records, or all were rejected."""
    events, invalid = report["counts"]["events"], report["counts"]["invalid"]
    if not events:
        raise UsageError(f"{', '.join(names)}: no record to replay")
    if invalid == events:
        first = report["bad_records"]["first"][0]
        raise UsageError(
            f"no record could be used, as each of {events:,} was rejected; "
            f"{printable(place_text(first))}: {printable(first['reason'])}: "
            f"{printable(first['message'])}"
        )


def _scoring(settings: Settings, chosen: EvaluationSettings) -> Scoring:
    """How searches are scored; raises ``UsageError``."""
    try:
        return Scoring.of(
            chosen.model_dump(mode="json"), settings.metrics.good_gain, chosen.batch_results
        )
    except MetricNameError as error:
        raise UsageError(f"--metric: {error}") from error


def _shown(
    settings: Settings,
    chosen: EvaluationSettings,
    models: Sequence[tuple[str, str]],
    rule: LoadedPredicate | None,
    *,
    generation: bool,
) -> dict[str, Any]:
    """The settings that the figures depend on, and the names of the models' folders."""
    shown = masked_settings(settings)
    parts = ("dedup", "metrics", "evaluation", "otlp", "labels")
    found = {part: shown[part] for part in parts}
    found["dedup"]["tables"] = settings.dedup.in_force().number
    found["limits"] = asdict(settings.limits.in_force())
    found["evaluation"]["metrics"] = list(chosen.metrics)
    # Without these, a report is that of a release which did not tell models from people.
    if settings.metrics.labels == HUMAN_FIRST:
        del found["metrics"]["labels"]
    if not settings.labels.model_labellers:
        del found["labels"]["model_labellers"]
    for name in ("batch_results", "hpo_folder"):
        del found["evaluation"][name]
    found["evaluation"] |= predicate_settings(rule)
    if not generation:
        found["evaluation"]["generation"] = False
    if models:
        found["models"] = {name: Path(folder).name for name, folder in models}
    return found
