"""Rows of a report directory as figures over units, the input of comparisons."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from operator import add
from typing import Any, Final, Literal, NamedTuple

from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.metrics.decisions import FACTS, NO_RELEASE, routes_together
from stream_metrics.core.metrics.labels import LABEL_METRICS, nothing_labelled
from stream_metrics.core.metrics.ranking.names import MetricNameError, meant_by
from stream_metrics.core.metrics.ranking.registry import BY_NAME as RANKED
from stream_metrics.core.metrics.ranking.registry import parse as parse_ranked
from stream_metrics.core.metrics.registry import (
    BASES,
    BLOCKS,
    BY_NAME,
    CUMULATIVE,
    ITERATIONS,
    LABELLED_SHARE,
    QUOTIENTS,
    Metric,
)
from stream_metrics.lab.evaluation.estimates import split_by
from stream_metrics.lab.metrics.generation import BY_NAME as ANSWERS
from stream_metrics.lab.statistics.units import LARGEST, Units

Kind = Literal["conversations", "queries", "turns"]
Better = Literal["higher", "lower", "neither"]
Value = float | tuple[float, float] | None
"""A value to average, or the numerator and denominator of a quotient of sums."""

MACRO: Final = tuple(metric.name for metric in CUMULATIVE)
MACRO_SUFFIX: Final = ".macro"
"""The suffix of a mean over rows if a quotient of sums has the plain name."""

_FAMILY: Final = re.compile(r"\(|@|_at_")
"""Separates the name of a ranked metric from its options and cut-off."""


class UnknownFigure(ValueError):
    """No figure has this name."""


class Observation(NamedTuple):
    """One row.

    Attributes:
        unit: The id of the conversation or query.
        dimensions: The values by which it can be stratified.
        values: The values by figure name.
    """

    unit: str
    dimensions: Mapping[str, str]
    values: Mapping[str, Value]


class Observations(NamedTuple):
    """The rows of one file.

    Attributes:
        kind: The kind of file.
        unit: What is resampled: ``conversation`` or ``query``.
        rows: The rows, in any order.
        beyond_limit: What the rows say of turns beyond a limit.
    """

    kind: Kind
    unit: str
    rows: Sequence[Observation]
    beyond_limit: BeyondLimit = BeyondLimit()

    @property
    def names(self) -> list[str]:
        """The figures for which some row has a value, in the order of first appearance.

        Figures that depend on labels are left out if documents were found and none has a label.
        """
        found: dict[str, bool] = {}
        for row in self.rows:
            for name, value in row.values.items():
                found[name] = found.get(name, False) or _known(value)
        left_out = self.nothing_labelled
        return [
            name for name, known in found.items() if known and not (left_out and uses_labels(name))
        ]

    @property
    def nothing_labelled(self) -> bool:
        """Whether documents were found and none has a label; False for rows without documents."""
        shares = [row.values.get(LABELLED_SHARE.name) for row in self.rows]
        counts = [share for share in shares if isinstance(share, tuple)]
        return nothing_labelled(sum(of for _, of in counts), sum(part for part, _ in counts))

    @property
    def units(self) -> set[str]:
        """The ids of all units."""
        return {row.unit for row in self.rows}

    def strata(self, dimension: str) -> dict[str, Observations]:
        """The rows by their value of a dimension; rows without a value are left out."""
        found: dict[str, list[Observation]] = {}
        for row in self.rows:
            if dimension in row.dimensions:
                found.setdefault(row.dimensions[dimension], []).append(row)
        return {name: self._replace(rows=found[name]) for name in sorted(found)}

    def figure(self, name: str) -> Units:
        """A figure over its units; empty if ``names`` does not contain it."""
        if uses_labels(name) and self.nothing_labelled:
            return Units.of_values(())
        values = [(row.unit, row.values.get(name)) for row in self.rows]
        quotients = [(unit, *value) for unit, value in values if isinstance(value, tuple)]
        if quotients:
            return Units.of_sums(quotients)
        return Units.of_values(
            (unit, value) for unit, value in values if not isinstance(value, tuple)
        )


def _known(value: Value) -> bool:
    return bool(value[1]) if isinstance(value, tuple) else value is not None


# -- rows -------------------------------------------------------------------------------------


def of_conversation(row: Mapping[str, Any]) -> Observation:
    """Read a row of ``conversations.jsonl``; raises ``KeyError`` or ``TypeError`` for any other.

    >>> row = {"duplicates": 1, "good_unique": 1, "labelled": 2, "unique": 3, "results": 4, "n": 2}
    >>> row |= {"conversation_id": "c", "agent": "a", "release": None, "gain": 3}
    >>> row |= dict.fromkeys(MACRO, 0.5) | {ITERATIONS: 2, "all_good_basis": "retrieved"}
    >>> row |= {"gate": {}, "routing": {}}
    >>> of_conversation(row).values["srr"], of_conversation(row).values["srr.macro"]
    ((1, 4), 0.5)
    """
    values: dict[str, Value] = {metric.name: _quotient(metric, row) for metric in QUOTIENTS}
    for name in MACRO:
        values[name + MACRO_SUFFIX if name in values else name] = row[name]
    for basis in BASES:
        known = row[ITERATIONS] if row["all_good_basis"] == basis else None
        values[f"{ITERATIONS}.{basis}"] = known
    route = routes_together(row["routing"].get("routes", ()))
    release = row["release"] or NO_RELEASE
    facts = dict(zip(FACTS, (row["agent"], release, route), strict=True))
    dimensions = {name: value for name, value in facts.items() if value is not None}
    return _checked(Observation(row["conversation_id"], dimensions, values))


def _quotient(metric: Metric, row: Mapping[str, Any]) -> tuple[float, float]:
    """Numerator and denominator of a metric in one row; missing decision counts are 0."""
    assert metric.quotient is not None
    above, below = (
        reduce(add, (_count(row, metric.place, name) for name in names))
        for names in metric.quotient
    )
    return above, below


def _count(row: Mapping[str, Any], place: str, name: str) -> Any:
    if place in BLOCKS:
        return row[place].get(name, 0)
    return (row.get(name) if place == "count" else row[name]) or 0  # earlier rows lack some counts


def of_scores(row: Mapping[str, Any]) -> Observation:
    """Read a row of ``queries.jsonl`` or ``turns.jsonl``.

    Raises:
        KeyError, TypeError: It is another row, or malformed.

    >>> of_scores({"query_id": "q", "agent": None, "dimensions": {}, "scores": {"mrr": 1.0}})
    Observation(unit='q', dimensions={}, values={'mrr': 1.0})
    """
    unit = row["query_id"] if "query_id" in row else row["conversation_id"]
    return _checked(Observation(unit, split_by(row), row["scores"]))


def _checked(one: Observation) -> Observation:
    """Return the observation; raises ``TypeError`` for a value of the wrong type."""
    for what, text in {"its unit": one.unit, **one.dimensions}.items():
        if not isinstance(text, str):
            raise TypeError(f"{what} is not a string")
    for name, value in one.values.items():
        numbers: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
        for number in () if value is None else numbers:
            if not isinstance(number, int | float) or not -LARGEST <= number <= LARGEST:
                raise TypeError(f"{name} is not a finite number or a pair of them")
    return one


def unit_of(row: Mapping[str, Any]) -> str:
    """The resampling unit of a row: ``query`` or ``conversation``."""
    return "query" if "query_id" in row else "conversation"


READERS: Final[Mapping[Kind, Callable[[Mapping[str, Any]], Observation]]] = {
    "conversations": of_conversation,
    "queries": of_scores,
    "turns": of_scores,
}

# -- names ------------------------------------------------------------------------------------


def uses_labels(name: str) -> bool:
    """Whether a figure, or a part of one, is computed from document labels.

    >>> uses_labels("sre"), uses_labels("sre.macro.ci_low"), uses_labels("srr")
    (True, True, False)
    """
    return name.strip().lower().partition(".")[0] in LABEL_METRICS


def better_of(name: str) -> Better:
    """Whether higher or lower values of a figure are better; ``neither`` if it is unknown.

    >>> better_of("srr.macro"), better_of("ndcg@10"), better_of("labelled_share")
    ('lower', 'higher', 'neither')
    """
    plain = name.removesuffix(MACRO_SUFFIX)
    if plain.startswith(ITERATIONS):
        plain = ITERATIONS
    described = _described(plain)
    if described is not None:
        return described.better
    try:
        return parse_ranked(plain).definition.metric.better
    except MetricNameError:
        return "neither"


def title_of(name: str) -> str:
    """The title of a figure.

    >>> title_of("srr"), title_of("srr.macro"), title_of("ndcg@10"), title_of("empty_searches")
    ('SRR', 'SRR, mean over rows', 'ndcg@10', 'Empty searches, share')
    """
    plain, mean = (
        name.removesuffix(MACRO_SUFFIX),
        ", mean over rows" if name.endswith(MACRO_SUFFIX) else "",
    )
    if plain.startswith(ITERATIONS + "."):
        basis = plain.removeprefix(ITERATIONS + ".")
        return f"{BY_NAME[ITERATIONS].title} ({basis})"
    described = _described(plain)
    if described is not None and described.place == "count":
        return f"{described.title}, share"
    return (plain if described is None else described.title) + mean


def distinct_name(name: str) -> str | None:
    """The name to type for a figure; None if its title equals it, ignoring case.

    >>> distinct_name("labelled_share"), distinct_name("srr"), distinct_name("srr.macro")
    ('labelled_share', None, 'srr.macro')
    """
    return None if title_of(name).lower() == name.lower() else name


def _described(name: str) -> Metric | None:
    """The description of a figure with a fixed name; None for ranked and unknown figures."""
    if name in ANSWERS:
        return ANSWERS[name].metric
    return LABELLED_SHARE if name == LABELLED_SHARE.name else BY_NAME.get(name)


def canonical_name(text: str, known: Sequence[str]) -> str:
    """Resolve a name to one of the known figures.

    ``srr.micro`` is ``srr`` and ``cg.macro`` is ``cg``. Ranked metrics may be written in any form
    that ``parse`` accepts.

    Raises:
        UnknownFigure: No figure matches. The message names the nearest ones.

    >>> canonical_name("NDCG_at_10", ["ndcg@10"]), canonical_name("cg.macro", ["cg", "srr"])
    ('ndcg@10', 'cg')
    """
    name = text.strip()
    if name in known:
        return name
    plain = name.lower().removesuffix(".micro")
    if plain.removesuffix(MACRO_SUFFIX) + MACRO_SUFFIX in known and plain.endswith(MACRO_SUFFIX):
        return plain
    if (
        plain.removesuffix(MACRO_SUFFIX) in known
        and plain.removesuffix(MACRO_SUFFIX) + MACRO_SUFFIX not in known
    ):
        return plain.removesuffix(MACRO_SUFFIX)
    if plain in known:
        return plain
    try:
        ranked = str(parse_ranked(name))
    except MetricNameError:
        ranked = ""
    if ranked in known:
        return ranked
    close = _meant(plain, known) or get_close_matches(plain, known, n=3, cutoff=0.5)
    if close:
        raise UnknownFigure(f"no figure is called {text!r}; did you mean {' or '.join(close)}?")
    raise UnknownFigure(f"no figure is called {text!r}; there are {', '.join(known) or 'none'}")


def _meant(text: str, known: Sequence[str]) -> list[str]:
    """The nearest ranked figures of the family that ``text`` names; empty if it names none.

    >>> _meant("mean_reciprocal_rank@10", ["srr", "mrr", "mrr@1", "mrr@10", "mrr@5"])
    ['mrr@10', 'mrr@1', 'mrr@5']
    """
    name = _FAMILY.split(text)[0]
    meant = meant_by(name, RANKED)
    if meant is None:
        return []
    own = [one for one in known if _FAMILY.split(one)[0] == meant]
    return get_close_matches(meant + text.removeprefix(name), own, n=3, cutoff=0.0)
