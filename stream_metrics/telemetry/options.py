"""How traces are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from stream_metrics.telemetry.evaluations import NO_GRADES, Grading


@dataclass(frozen=True, slots=True)
class Options:
    """How traces are told.

    Attributes:
        turn: Whether spans are turns where there are such, or always the whole trace.
        content: Whether queries, titles, texts, questions and answers are told.
        scopes: The instrumentation scopes that count; all, if there are none.
        missing_parents: Whether a span whose parent is not there makes the trace incomplete, or
            counts as a root.
        require_conversation: Whether a trace without a conversation is refused, or is one itself.
        max_spans: Of how many different spans a trace is still told.
        max_bytes: Of how many bytes of spans, for whoever keeps these until the trace is whole.
        ids, fields: Names in a document or its metadata that are ID components or fields of the
            result.
        grading: How the scores of evaluations become labels.
    """

    turn: Literal["span", "trace"] = "span"
    content: bool = True
    scopes: frozenset[str] = frozenset()
    missing_parents: Literal["refuse", "root"] = "refuse"
    require_conversation: bool = False
    max_spans: int = 100_000
    max_bytes: int = 128 << 20
    ids: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    grading: Grading = NO_GRADES


DEFAULT: Final = Options()
