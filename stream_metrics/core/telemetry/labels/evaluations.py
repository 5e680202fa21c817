"""Scores that evaluators gave to documents, read from spans, log records and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from stream_metrics.core.events.decode import EARLIEST_US, LATEST_US
from stream_metrics.core.events.times import MICROS, parse_rfc3339
from stream_metrics.core.telemetry.contents.documents import documents_of
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.contents.messages import attribute_text
from stream_metrics.core.telemetry.roles.mapping import Role, Row, SpanMapping
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import Span, text

RESULT: Final = "gen_ai.evaluation.result"
"""The name of OpenTelemetry's event with the result of an evaluation."""

NO_SPAN: Final = "it has no span_id"
"""How the message about a row without a span begins."""
_SPANS: Final = ("span_id", "context.span_id")
_TRACES: Final = ("trace_id", "context.trace_id")
_DOCUMENTS: Final = ("doc_id", "document_id", "document.id")
_POSITIONS: Final = ("position", "document_position")
_RANKS: Final = ("rank",)
_TIMES: Final = ("time", "timestamp", "updated_at", "created_at")
_NAMES: Final = ("gen_ai.evaluation.name", "annotation_name", "name", "evaluator_name", "eval_name")
_SCORES: Final = ("gen_ai.evaluation.score.value", "gen_ai.evaluation.score", "score")
_LABELS: Final = ("gen_ai.evaluation.score.label", "label")
_UNITS: Final = (MICROS, 1_000, 1)  # seconds, milliseconds and microseconds, in microseconds


@dataclass(frozen=True, slots=True)
class Grading:
    """Which evaluations judge relevance, how they name documents, and how scores become gains.

    Attributes:
        names: Case-insensitive patterns (``*``, ``?``) for the names of evaluations to use. An
            evaluation without a name is used.
        grades: The gains of labels and scores, each written as text.
        cutoffs: The lowest score of each gain, in ascending order; lower scores have gain 0.
        document: Attributes that hold the id or the text of the document.
        position: Attributes that hold its position among the documents of the span, from 0.
    """

    names: tuple[str, ...] = ("*relevan*",)
    grades: tuple[tuple[str, int], ...] = ()
    cutoffs: tuple[tuple[float, int], ...] = ()
    document: tuple[str, ...] = ()
    position: tuple[str, ...] = ()

    def covers(self, name: str | None) -> bool:
        """Whether an evaluation of this name judges the relevance of a document.

        >>> Grading().covers("Document Relevance"), Grading().covers("toxicity")
        (True, False)
        """
        return name is None or any(
            fnmatchcase(name.casefold(), pattern.casefold()) for pattern in self.names
        )

    def gain(
        self, score: float | None, label: str | None, *, minimized: bool = False
    ) -> int | None:
        """The gain, from 0 to 4, or None if no setting gives it.

        Cut-offs do not apply to ``minimized`` scores, of which the lowest is the best.

        >>> grading = Grading(grades=(("relevant", 3), ("0", 0)), cutoffs=((0.5, 2), (0.9, 4)))
        >>> grading.gain(0.2, "Relevant"), grading.gain(0.0, None), grading.gain(0.7, None)
        (3, 0, 2)
        >>> Grading().gain(1.0, "relevant") is None
        True
        """
        for key, gain in self.grades:
            if label is not None and key.strip().casefold() == label.strip().casefold():
                return gain
        if score is None:
            return None
        for key, gain in self.grades:
            if number(key) == score:
                return gain
        if not self.cutoffs or minimized:
            return None
        return max((gain for smallest, gain in self.cutoffs if score >= smallest), default=0)


NO_GRADES: Final = Grading()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A score, and what identifies the document it was given to.

    Attributes:
        origin: Its source: a line of a file, or the id of the span that holds it.
        span_id: The span that was evaluated.
        trace_id: The trace of that span; empty if unknown.
        time_us: When it was given, in Unix microseconds. The latest score of a result wins.
        score, label: The value: a number, a category, or both.
        name: The name of the evaluation.
        labeller: Who gave it; defaults to the name.
        document: The id of the document, or its text.
        position: Its position among the documents of the span, from 0.
        minimized: Whether a lower score is better.
        before_ns: For an evaluator that names no span, when it began. It then refers to the latest
            search of the turn before that which returned the document.
    """

    origin: str
    span_id: str
    trace_id: str
    time_us: int
    score: float | None = None
    label: str | None = None
    name: str | None = None
    labeller: str | None = None
    document: str | None = None
    position: int | None = None
    minimized: bool = False
    before_ns: int | None = None


def evaluations_in_trace(
    tree: SpanTree, mapping: SpanMapping, grading: Grading
) -> Iterator[Evaluation]:
    """The evaluations in the spans of a trace: events, annotations and evaluators' results."""
    around = tree.nearest_ancestor(Role.SEARCH, Role.TOOL, Role.RERANKER, Role.JOINER, Role.TURN)
    root: dict[str, str] = {}
    for span in tree.ordered:
        outer = tree.parent(span)
        root[span.span_id] = span.span_id if outer is None else root[outer.span_id]
        row = mapping.row(span)
        evaluator = row if row is not None and row.role is Role.EVALUATOR else None
        near = tree.by_id[around.get(span.span_id, root[span.span_id])]
        inside = tree.role(near) in (Role.SEARCH, Role.TOOL, Role.RERANKER, Role.JOINER)
        yield from evaluations_of_span(span, evaluator, grading, near, inside)


def evaluations_of_span(
    span: Span,
    evaluator: Row | None,
    grading: Grading,
    near: Span | None = None,
    inside: bool = False,
) -> Iterator[Evaluation]:
    """The evaluations that a span holds.

    Args:
        span: The span.
        evaluator: Its row, if it is an evaluator.
        grading: Which attributes name documents.
        near: The search or turn around an evaluator, which it is about if it has no link.
        inside: Whether that is a search.
    """
    target = Evaluation(span.span_id, span.span_id, span.trace_id, span.end_ns // 1000)
    if evaluator is not None:
        target = _target(span, evaluator, target, near, inside)
    for event in span.events:
        if event.name == RESULT:
            time_us = (event.time_ns or span.end_ns) // 1000
            about = {**span.attributes, **event.attributes}
            yield _read(target, event.attributes, about, grading, time_us)
    for result in _results(span, evaluator is not None):
        about = {**span.attributes, **result}
        name = span.name if evaluator is not None else None
        yield _read(target, result, about, grading, target.time_us, name)


def evaluation_of_record(
    attributes: Mapping[str, Any],
    grading: Grading,
    origin: str,
    trace_id: str,
    span_id: str,
    time_us: int,
) -> Evaluation:
    """The evaluation that a log record holds."""
    target = Evaluation(origin, span_id, trace_id, time_us)
    return _read(target, attributes, attributes, grading, time_us)


def evaluation_of_row(
    row: Mapping[str, Any], grading: Grading, origin: str, time_us: int | None
) -> Evaluation:
    """The evaluation in a row of a table; ``time_us`` is used if the row has no time.

    Raises ``ValueError`` with the reason if the row holds no evaluation.

    >>> row = {"span_id": "a1", "position": 0, "score": 1}
    >>> found = evaluation_of_row(row, Grading(), "line 1", 5)
    >>> found.span_id, found.position, found.score, found.time_us
    ('a1', 0, 1.0, 5)
    """
    columns: dict[str, Any] = {}
    for column, value in _flat(row):
        name = column.removeprefix("result.")
        if value is not None and value != "" and columns.setdefault(name, value) != value:
            raise ValueError(f"it has two values of {name}, of which one is in `result`")
    span_id = attribute_text(columns, _SPANS)
    if span_id is None:
        raise ValueError(f"{NO_SPAN}; it has {', '.join(sorted(columns)) or 'nothing'}")
    for name in (*_SCORES, *_POSITIONS, *_RANKS):
        given = columns.get(name)
        if not _missing(given) and type(given) is not bool and number(given) is None:
            raise ValueError(f"{name} is no number; put categories in the column label")
    time = next((columns[name] for name in _TIMES if not _missing(columns.get(name))), None)
    moment = time_us if time is None else instant(time)
    if time is None and moment is None:
        raise ValueError("it has no time; give one with --time, or in a column time")
    if moment is None:
        raise ValueError(f"{time!r} is no time; write RFC 3339 with an offset, or Unix seconds")
    target = Evaluation(
        origin,
        span_id.strip().lower(),
        (attribute_text(columns, _TRACES) or "").strip().lower(),
        moment,
        labeller=attribute_text(columns, ("labeller",)),
        document=attribute_text(columns, (*grading.document, *_DOCUMENTS)),
        position=_position(columns, (*grading.position, *_POSITIONS), _RANKS),
    )
    return _read(target, columns, {}, grading, moment)


def number(value: Any) -> float | None:
    """The value as a finite number, also from text; None if it is none.

    >>> number("0.5"), number(1), number(True), number("nan"), number("high")
    (0.5, 1.0, None, None, None)
    """
    if type(value) not in (int, float, str):
        return None
    try:
        parsed = float(value)
    except (OverflowError, ValueError):
        return None
    return parsed if math.isfinite(parsed) else None


def instant(value: Any) -> int | None:
    """A time in Unix microseconds, from RFC 3339 (also with a space for ``T``) or a Unix time.

    A Unix time may be in seconds, milliseconds, microseconds or nanoseconds; for dates between 2000
    and 2100 the number determines the unit.

    >>> instant("2026-11-23 09:00:00+00:00") == instant(1795424400) == instant(1795424400000)
    True
    >>> instant("2026-11-23 09:00:00") is None
    True
    """
    if isinstance(value, datetime):
        value = value.isoformat() if value.tzinfo is not None else None
    if isinstance(value, str) and (parsed := parse_rfc3339(value.strip().replace(" ", "T", 1))):
        return parsed
    since = number(value)
    if since is None:
        return None
    exact = int(value) if isinstance(value, int) or str(value).strip().isdecimal() else None
    for unit in _UNITS:
        if EARLIEST_US <= since * unit <= LATEST_US:
            return exact * unit if exact is not None else round(since * unit)
    if EARLIEST_US <= since / 1000 <= LATEST_US:
        return (exact if exact is not None else int(since)) // 1000
    return None


def _read(
    target: Evaluation,
    result: Mapping[str, Any],
    about: Mapping[str, Any],
    grading: Grading,
    time_us: int,
    otherwise: str | None = None,
) -> Evaluation:
    """The evaluation of ``target`` with the score and name in ``result``, and the document in
    ``about``."""
    given = next((result[name] for name in _SCORES if not _missing(result.get(name))), None)
    label = attribute_text(result, _LABELS)
    if type(given) is bool:
        given, label = None, label or str(given).lower()
    name = attribute_text(result, _NAMES) or text(otherwise)
    return Evaluation(
        target.origin,
        target.span_id,
        target.trace_id,
        time_us,
        number(given),
        label,
        name,
        target.labeller or name,
        attribute_text(about, grading.document) or target.document,
        _position(about, grading.position) if target.position is None else target.position,
        result.get("direction") == "minimize",
        target.before_ns,
    )


def _target(span: Span, row: Row, base: Evaluation, near: Span | None, inside: bool) -> Evaluation:
    """Which span an evaluator is about: the one that it links to, else the search around it.

    Without either it is about its turn, and must name the document.
    """
    documents = documents_of(span, row.documents, strict=True).documents or ()
    document = (
        documents[0].id or documents[0].text or documents[0].url if len(documents) == 1 else None
    )
    links = {(link.trace_id, link.span_id) for link in span.links if link.span_id}
    trace_id, span_id, before_ns = span.trace_id, "", None
    if len(links) == 1:
        ((trace_id, span_id),) = links
    elif not links and near is not None:
        span_id, before_ns = near.span_id, None if inside else span.start_ns
    return Evaluation(
        base.origin, span_id, trace_id, base.time_us, document=document, before_ns=before_ns
    )


def _results(span: Span, evaluator: bool) -> Iterable[Mapping[str, Any]]:
    """The evaluation results in a span's attributes."""
    kind = "evaluation" if evaluator else "annotation"
    numbered = _numbered(span.attributes, f"{kind}s.", f"{kind}.")
    if numbered:
        return numbered
    if any(name in span.attributes for name in (*_SCORES[:2], _LABELS[0])):
        return [span.attributes]
    if not evaluator:
        return []
    metadata = span.attributes.get("metadata")
    held = parse_value(metadata) if isinstance(metadata, str) else metadata
    about = held if isinstance(held, dict) else {}
    output = span.text("output.value")
    value = parse_value(output) if output is not None else None
    each = value if isinstance(value, list) else [value]
    scores = [
        score for score in each if isinstance(score, dict) and ({"score", "label"} & score.keys())
    ]
    if scores:
        return scores
    if {"score", "label"} & about.keys():
        return [about]
    return [{**about, "score": value}] if type(value) in (int, float) else [about]


def _numbered(attributes: Mapping[str, Any], start: str, part: str) -> list[dict[str, Any]]:
    """Objects that are flattened to attributes such as ``evaluations.0.evaluation.score``."""
    by_place: dict[str, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(start):
            place, _, rest = name[len(start) :].partition(".")
            if place.isdecimal() and rest.startswith(part):
                by_place.setdefault(place, {})[rest.removeprefix(part)] = value
    return [by_place[place] for place in sorted(by_place)]


def _position(
    columns: Mapping[str, Any], names: Iterable[str], from_one: Iterable[str] = ()
) -> int | None:
    """A position from 0; -1 if it is invalid, None if there is none."""
    for first, group in ((0, names), (1, from_one)):
        for name in group:
            position = number(
                attribute_text(columns, (name,)) if ":" in name else columns.get(name)
            )
            if position is None:
                continue
            return int(position) - first if position.is_integer() and position >= first else -1
    return None


def _missing(value: Any) -> bool:
    return value is None or value == "" or (type(value) is float and math.isnan(value))


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The columns of a row; those of a nested object are prefixed by its name and a dot."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        yield f"{prefix}{name}", value
