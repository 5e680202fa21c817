"""The ``--predicate`` option of ``replay`` and ``evaluate``: a user's own relevance rule."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from stream_metrics.cli.common import UsageError
from stream_metrics.core.metrics.ranking.relevance import PredicateError, Relevance
from stream_metrics.lab.evaluation.predicate import load_predicate, source_digest

PredicateOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:OBJECT",
        help="Your own Python rule for what is relevant to a query without ground truth, such "
        "as rules:by_title. Default: `evaluation.predicate`.",
        show_default=False,
    ),
]


class LoadedPredicate(NamedTuple):
    """A loaded predicate.

    Attributes:
        name: Its name as given.
        digest: SHA-256 of the file of its module, in hexadecimal.
        relevance: A relevance judge that uses it.
    """

    name: str
    digest: str | None
    relevance: Relevance


def load_named_predicate(name: str | None) -> LoadedPredicate | None:
    """Load a predicate by name; None without a name. Raises ``UsageError``."""
    if name is None:
        return None
    try:
        predicate, digest = load_predicate(name), source_digest(name)
    except PredicateError as error:
        raise UsageError(str(error)) from error
    relevance = Relevance(predicate=predicate, predicate_name=f"predicate {name!r}")
    return LoadedPredicate(name, digest, relevance)


def predicate_settings(rule: LoadedPredicate | None) -> dict[str, Any]:
    """The predicate in the ``evaluation`` settings of a report.

    The digest distinguishes predicates of the same name, and is part of a replay's identity.
    """
    if rule is None:
        return {"predicate": None}
    return {"predicate": rule.name, "predicate_sha256": rule.digest}
