"""The rule of one's own that ``replay`` and ``evaluate`` take."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from stream_metrics.adapters.predicate import load_predicate, source_digest
from stream_metrics.cli.common import UsageError
from stream_metrics.metrics.ranking.relevance import PredicateError, Relevance

PredicateOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:OBJECT",
        help="Your own Python rule for what is relevant to a query without ground truth, such "
        "as rules:by_title. Default: `evaluation.predicate`.",
        show_default=False,
    ),
]


class Rule(NamedTuple):
    """A predicate that was loaded.

    Attributes:
        name: As it was given.
        digest: SHA-256 of the file that its module is in, in hexadecimal.
        relevance: Judges by it.
    """

    name: str
    digest: str | None
    relevance: Relevance


def load_rule(name: str | None) -> Rule | None:
    """The predicate of that name; None if none is asked for. Raises ``UsageError``."""
    if name is None:
        return None
    try:
        predicate, digest = load_predicate(name), source_digest(name)
    except PredicateError as error:
        raise UsageError(str(error)) from error
    relevance = Relevance(predicate=predicate, predicate_name=f"predicate {name!r}")
    return Rule(name, digest, relevance)


def shown_rule(rule: Rule | None) -> dict[str, Any]:
    """What the settings ``evaluation`` of a report say of it.

    The digest tells rules of one name apart; so it is part of what a replay is known by.
    """
    if rule is None:
        return {"predicate": None}
    return {"predicate": rule.name, "predicate_sha256": rule.digest}
