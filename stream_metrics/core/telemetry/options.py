"""Options of the interpretation of traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES, Grading
from stream_metrics.core.telemetry.roles.scopes import ALL_SCOPES, ScopeChoice


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the interpretation of traces.

    Attributes:
        turn: Whether turn spans delimit turns where a trace has any, or the whole trace is always
            one turn.
        content: Whether to keep queries, titles, texts, questions and answers.
        scopes: The instrumentation scopes to use.
        missing_parents: Whether a span whose parent is missing makes the trace incomplete, or
            counts as a root.
        require_conversation: Whether to refuse a trace that names no conversation. Otherwise its
            trace id is the conversation.
        max_spans: The most distinct spans that a trace may have.
        max_bytes: The most bytes of spans that a trace may have, for whoever stores them until it
            is complete.
        ids, fields: Names in a document or its metadata that become ID components or fields of the
            result.
        identity: What identifies the documents of an agent: their ids, or ids and texts. For other
            agents their traces show it.
        grading: How the scores of evaluations become labels.
    """

    turn: Literal["span", "trace"] = "span"
    content: bool = True
    scopes: ScopeChoice = ALL_SCOPES
    missing_parents: Literal["refuse", "root"] = "refuse"
    require_conversation: bool = False
    max_spans: int = 100_000
    max_bytes: int = 128 << 20
    ids: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    identity: Mapping[str, Literal["id", "id_and_text"]] = field(default_factory=dict)
    grading: Grading = NO_GRADES


DEFAULT: Final = Options()
