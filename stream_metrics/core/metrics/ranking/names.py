"""Names of ranked metrics: ``ndcg@10``, ``precision(denominator=retrieved)@5``.

A metric is a value: a definition, its options and a cut-off. Its text omits defaults and parses
back to an equal value. Case is ignored, and ``ndcg_at_10`` is ``ndcg@10``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import inf
from typing import Final, Literal, NamedTuple, Self

from stream_metrics.core.metrics.numerals import read_number
from stream_metrics.core.metrics.ranking.batch import Floats, Rankings
from stream_metrics.core.metrics.registry import Metric

Value = float | str | bool | None
Cutoff = Literal["required", "optional", "none"]

MOST_DIGITS: Final = 100
"""The most digits of a cut-off, leading zeros included."""
MAX_GRADE: Final = "max_grade"
"""The option of metrics that are told the largest possible grade."""
_NAME = re.compile(
    r"\s*([a-z][a-z_]*?)\s*(\(.*\))?\s*(?:(?:@|_at_)\s*([0-9]+))?\s*", re.I | re.S | re.A
)
_WORD = re.compile(r"[a-z][a-z0-9_]*")
_COLLECTION = re.compile(r"collection\(\s*([0-9]{1,15})\s*\)")


class MetricNameError(ValueError):
    """A name is not a metric, or has an option or a cut-off that the metric does not take."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a metric.

    Attributes:
        name: The option's name.
        help: A description in one sentence.
        default: The default value. None: depends on the relevance strategy.
        choices: The accepted words. Empty: a number, or a boolean if the default is one.
        low, high: The range of a number; ``low`` itself is excluded if ``low_open``.
        collection: Whether ``collection(N)`` is accepted as well as the choices.
        word: Whether any word is accepted and validated elsewhere.
    """

    name: str
    help: str
    default: Value = None
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = inf
    low_open: bool = False
    collection: bool = False
    word: bool = False

    def parse(self, text: str) -> Value:
        """Parse a value.

        Raises:
            MetricNameError: The value is not accepted. The message says which ones are.
        """
        text = text.strip().lower()
        found = self._parsed(text)
        if found is None:
            raise MetricNameError(f"{self.name}={text}: {self.name} takes {self.takes()}")
        return found

    def _parsed(self, text: str) -> Value:
        if self.collection and (match := _COLLECTION.fullmatch(text)):
            return f"collection({int(match[1])})" if int(match[1]) else None
        if self.word:
            return text if _WORD.fullmatch(text) else None
        if self.choices:
            return text if text in self.choices else None
        if isinstance(self.default, bool):
            return {"true": True, "false": False}.get(text)
        try:
            number = read_number(text)
        except ValueError:
            return None
        above = number > self.low if self.low_open else number >= self.low
        return number if above and number <= self.high and number != inf else None

    def takes(self) -> str:
        """A description of the accepted values."""
        if self.word:
            return "a word of letters, digits and _"
        if self.choices:
            return " or ".join([*self.choices, *(["collection(N)"] if self.collection else [])])
        if isinstance(self.default, bool):
            return "true or false"
        low = f"a number {'above' if self.low_open else 'from'} {self.low:g}"
        up = "up to" if self.low_open else "to"
        return low if self.high == inf else f"{low} {up} {self.high:g}"


@dataclass(frozen=True, slots=True)
class Definition:
    """A family of ranked metrics.

    Attributes:
        metric: The description; ``metric.name`` is the canonical name.
        compute: Computes the scores of a batch; NaN where undefined.
        options: The options, in the order in which they are printed.
        cutoff: Whether the name requires, allows or excludes ``@k``.
        aliases: Other names that parse to this metric.
        long_names: Names that do not parse, but for which this metric is suggested.
        relevant_by: When a query counts as having something relevant: a grade at or above the
            threshold, a grade above 0, either of these depending on the option ``gains``, or always
            (the metric ignores relevance).
        companions: The names of metrics that are reported together with it.
        largest_grade: The largest grade for which a metric of the family is defined. None: any.
    """

    metric: Metric
    compute: Callable[[Rankings, RankedMetric], Floats]
    options: tuple[Option, ...] = ()
    cutoff: Cutoff = "required"
    aliases: tuple[str, ...] = ()
    long_names: tuple[str, ...] = ()
    relevant_by: Literal["threshold", "grade", "gains", "none"] = "threshold"
    companions: tuple[str, ...] = ()
    largest_grade: Callable[[RankedMetric], float] | None = None

    @property
    def name(self) -> str:
        """The canonical name, without options and cut-off."""
        return self.metric.name


@dataclass(frozen=True, slots=True)
class RankedMetric:
    """A definition with options and a cut-off; equal if its text is equal.

    ``given`` has the options that differ from their defaults, in the definition's order.
    """

    definition: Definition = field(compare=False, repr=False)
    name: str
    given: tuple[tuple[str, Value], ...] = ()
    k: int | None = None

    def __str__(self) -> str:
        inside = ",".join(f"{name}={_printed(value)}" for name, value in self.given)
        return (
            self.name + (f"({inside})" if inside else "") + ("" if self.k is None else f"@{self.k}")
        )

    def option(self, name: str) -> Value:
        """The value of an option, given or default."""
        for given, value in self.given:
            if given == name:
                return value
        for option in self.definition.options:
            if option.name == name:
                return option.default
        raise KeyError(name)

    def number(self, name: str) -> float:
        """The value of a numeric option."""
        value = self.option(name)
        assert isinstance(value, float)
        return value

    def scores(self, batch: Rankings) -> Floats:
        """The score of each ranking of a batch; NaN where it is undefined.

        Raises:
            ValueError: The metric is not defined for a grade, or for the given collection size.
        """
        return self.definition.compute(batch.condensed() if self.judged_only else batch, self)

    @property
    def rel(self) -> float | None:
        """The lowest relevant grade; None: depends on the relevance strategy."""
        takes = any(option.name == "rel" for option in self.definition.options)
        rel = self.option("rel") if takes else None
        return rel if isinstance(rel, float) else None

    @property
    def judged_only(self) -> bool:
        """Whether unjudged results are removed first."""
        return bool(self.option("judged_only"))

    @property
    def largest_grade(self) -> float:
        """The largest grade for which the metric is defined; infinite if any is."""
        limit = self.definition.largest_grade
        return inf if limit is None else limit(self)


class GradeLimit(NamedTuple):
    """The largest grade for which some metrics are defined, and a metric that has no larger one."""

    largest: float = inf
    metric: RankedMetric | None = None

    @classmethod
    def of(cls, metrics: Iterable[RankedMetric]) -> Self:
        """The limit for these metrics."""
        limits = (cls(metric.largest_grade, metric) for metric in metrics)
        return min(limits, key=lambda limit: limit.largest, default=cls())

    def refusal(self, grade: float) -> str:
        """Why a grade above the limit is refused."""
        metric = self.metric
        assert metric is not None
        for option in metric.definition.options:
            if option.name == MAX_GRADE and grade <= option.high:
                return (
                    f"{metric}: a grade of {grade:g} is above {MAX_GRADE}={self.largest:g}; give "
                    f"the largest possible grade, as in {metric.name}({MAX_GRADE}={grade:g})"
                )
        return (
            f"{metric}: a grade of {grade:g} is above {self.largest:,.0f}, the largest whose gains "
            "add up in double precision; use smaller grades"
        )


NO_LIMIT: Final = GradeLimit()


def _printed(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{int(value)}" if value == int(value) and abs(value) < 1e16 else repr(value)
    return str(value)


def read(text: str, definitions: Mapping[str, Definition]) -> RankedMetric:
    """Parse the name of a metric.

    Args:
        text: A name with optional options and cut-off.
        definitions: The definitions by canonical name and alias.

    Raises:
        MetricNameError: There is no such metric, option, value or cut-off. The message lists what
            exists.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise MetricNameError(
            f"{text!r} is not a metric: write name@k or name(option=value)@k, as in ndcg@10"
        )
    name, inside, k = match[1].lower(), match[2], match[3]
    definition = definitions.get(name)
    if definition is None:
        raise MetricNameError(_unknown(text, name, definitions))
    given = _options(text, definition, _split(inside[1:-1]) if inside else [])
    return RankedMetric(definition, definition.name, given, _cutoff(text, definition, k))


def _unknown(text: str, name: str, definitions: Mapping[str, Definition]) -> str:
    meant = meant_by(name, definitions)
    close = [meant] if meant else get_close_matches(name, definitions, n=3, cutoff=0.5)
    if close:
        return f"unknown metric {text!r}; did you mean {' or '.join(close)}?"
    known = dict.fromkeys(definition.name for definition in definitions.values())
    return f"unknown metric {text!r}; known are {', '.join(known)}"


def meant_by(name: str, definitions: Mapping[str, Definition]) -> str | None:
    """The canonical name of the metric that ``name`` (lower case, without options) may mean."""
    for definition in definitions.values():
        if name in (definition.name, *definition.aliases, *definition.long_names):
            return definition.name
    return None


def _split(inside: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(inside):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            parts.append(inside[start:at])
            start = at + 1
    return [part for part in (*parts, inside[start:]) if part.strip()]


def _options(
    text: str, definition: Definition, parts: Sequence[str]
) -> tuple[tuple[str, Value], ...]:
    by_name = {option.name: option for option in definition.options}
    found: dict[str, Value] = {}
    for part in parts:
        name, _, value = (piece.strip().lower() for piece in part.partition("="))
        if name not in by_name:
            raise MetricNameError(
                f"{text!r}: {definition.name} has no option {name!r}; it has {', '.join(by_name)}"
            )
        if name in found:
            raise MetricNameError(f"{text!r}: {name} is given twice")
        found[name] = by_name[name].parse(value)
    return tuple(
        (name, found[name])
        for name, option in by_name.items()
        if name in found and found[name] != option.default
    )


def _cutoff(text: str, definition: Definition, k: str | None) -> int | None:
    if k is None:
        if definition.cutoff == "required":
            raise MetricNameError(f"{text!r} needs a cut-off, as in {definition.name}@10")
        return None
    if definition.cutoff == "none":
        raise MetricNameError(f"{text!r}: {definition.name} takes no cut-off")
    if len(k) > MOST_DIGITS or not 1 <= int(k) <= 1_000_000:
        raise MetricNameError(f"{text!r}: the cut-off must be from 1 to 1,000,000")
    return int(k)
