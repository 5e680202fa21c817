"""Names that spans give to conversations, agents and releases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.contents.messages import attribute_text, question_of
from stream_metrics.core.telemetry.roles.mapping import SpanMapping
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import MAX_NAME_LENGTH, Span, has_text, short, text

_RESPONSE: Final = re.compile(r"(resp|chatcmpl|cmpl|msg)[-_][A-Za-z0-9]{8,}")
_RESPONSES: Final = (
    "gen_ai.response.id",
    "gen_ai.openai.response.id",
    "ai.response.id",
    "llm.response.id",
)
Named = Callable[[Span], str | None]


class Names:
    """What spans name by some attributes, and what they or their nearest ancestors do."""

    def __init__(self, tree: SpanTree, name_of: Named) -> None:
        self.own: dict[str, str] = {}
        self.named: set[str] = set()
        self.nearest: dict[str, str | None] = {}
        for span in tree.ordered:
            if span.span_id not in tree.ignored and (name := name_of(span)) is not None:
                self.own[span.span_id] = name
                self.named.add(name)
            self.nearest[span.span_id] = self.own.get(span.span_id) or self.nearest.get(
                span.parent_id
            )

    def agreed(self, spans: Iterable[Span]) -> str | None:
        """The name that all of the spans that have one agree on."""
        names = {self.own[span.span_id] for span in spans if span.span_id in self.own}
        return names.pop() if len(names) == 1 else None


def conversations(tree: SpanTree, mapping: SpanMapping) -> Names:
    """The conversations; attributes of the settings come first, on whichever span of the trace.

    The id of a response is no conversation: the next turn has another.
    """
    responses = {found for span in tree.ordered if (found := span.text(*_RESPONSES))}

    def named(names: Sequence[str]) -> Named:
        return lambda span: next(
            (
                found
                for name in names
                if (found := attribute_text(span.attributes, (name,))) is not None
                and found not in responses
                and not _RESPONSE.fullmatch(found)
            ),
            None,
        )

    chosen = Names(tree, named(mapping.chosen_conversation))
    return chosen if chosen.own else Names(tree, named(mapping.conversation))


class AgentNames:
    """The agents of turns: what attributes name that are meant for it, else the service.

    The names of spans are none, because programs and instrumentations put what the user wrote into
    them.
    """

    def __init__(self, tree: SpanTree, mapping: SpanMapping) -> None:
        def by_rows(span: Span) -> str | None:
            row = tree.rows.get(span.span_id)
            return _named(span, mapping.agent) or (_named(span, row.agent) if row else None)

        chosen = Names(tree, lambda span: _named(span, mapping.chosen_agent))
        self._names = (chosen, Names(tree, by_rows))

    def of(self, place: Span, members: Sequence[Span], asked: str | None) -> str | None:
        """The agent of a turn: what its span or one around it names, else what all spans directly
        in it that name one agree on, else all spans of the turn.

        Args:
            place: The turn's span.
            members: All spans of the turn.
            asked: The question, which is no name.
        """
        inside = [span for span in members if span.parent_id == place.span_id]
        given = [one for span in members for one in _inputs_of_crew(span)]
        for names in self._names:
            name = names.nearest[place.span_id] or names.agreed(inside) or names.agreed(members)
            if name is not None and not any(has_text(name, one) for one in (asked, *given)):
                return name
        return None


def _inputs_of_crew(span: Span) -> Iterable[str]:
    """The texts that CrewAI puts into the roles of its agents."""
    inputs = span.attributes.get("crew_inputs")
    values = parse_value(inputs) if isinstance(inputs, str) else None
    return (
        [one for one in values.values() if isinstance(one, str)] if isinstance(values, dict) else ()
    )


def agent_named(span: Span, mapping: SpanMapping, tree: SpanTree) -> str | None:
    """The agent that a turn's span itself names; no text of its question."""
    row = tree.rows[span.span_id]
    name = _named(span, (*mapping.chosen_agent, *mapping.agent, *row.agent))
    return None if name is None or has_text(name, question_of(span, row.query)) else name


def release_names(tree: SpanTree, mapping: SpanMapping) -> Names:
    """The releases; attributes of the settings come first."""
    names = (*mapping.chosen_release, *mapping.release)
    return Names(tree, lambda span: _named(span, names))


def _named(span: Span, names: Iterable[str]) -> str | None:
    found = attribute_text(span.attributes, names, MAX_NAME_LENGTH)
    return short(text(found))
