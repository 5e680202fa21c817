"""Decides which spans of agents answer one question together, by the root and what users wrote.

The outermost span of an agent or a group is a turn, whatever agents it has inside. Where several of
these stand side by side in one trace, with no such span around them, the user's messages decide::

    session                      request
    ├─ desk    "Where is it?"    ├─ desk    "Where is it?"
    └─ desk    "And the bill?"   └─ expert  "Where is it?", or what the desk answered

    two turns                    one turn
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stream_metrics.core.telemetry.contents.documents import text_form
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.contents.messages import answer_of, calls_tools, question_of
from stream_metrics.core.telemetry.retrieval.searches import SpanProblem
from stream_metrics.core.telemetry.roles.mapping import Role, SpanMapping
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import Span
from stream_metrics.core.telemetry.turns.names import Names, agent_named, conversations

_PART: Final = re.compile(
    r"(?:llm\.input_messages\.(\d+)\.message|gen_ai\.prompt\.(\d+))\.(role|content)"
)
_CHAT: Final = re.compile(r"GroupChat|Swarm|GraphFlow|MagenticOne|group_topic")
_RUNTIMES: Final = ("autogen ", "agent_runtime")
_USERS: Final = ("user", "human")
_MESSAGES: Final = ("gen_ai.input.messages", "ai.prompt.messages")
MAX_COMPARED: Final = 16
"""The most latest runs of a turn, besides the first, whose question or answer a run may have."""
MIN_PART_LENGTH: Final = 12
"""The length from which a question or an answer inside a longer text is certainly that one."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of an agent: its name, or that of its span if it has none, the conversation, and the
    forms of question and answer."""

    span: Span
    agent: str
    is_named: bool
    conversation: str | None
    asked: str | None
    answered: str | None

    def was_asked_of(self, other: _Run) -> bool | None:
        """Whether the other run was asked this one's question, or given its answer; None if that
        is not recorded."""
        if other.asked is None or (self.asked is None and self.answered is None):
            return None
        return any(
            part == other.asked or (len(part) >= MIN_PART_LENGTH and part in other.asked)
            for part in (self.asked, self.answered)
            if part is not None
        )


def joined_runs(
    tree: SpanTree, mapping: SpanMapping, spans: Sequence[Span]
) -> tuple[dict[str, str], dict[str, str]]:
    """Of outermost turn spans, in order of start, those that are part of another's turn.

    The second result is the turns that follow one of another agent, with that one, of which no
    message says whether they answer the same question.
    """
    if len(spans) < 2:
        return {}, {}
    named = conversations(tree, mapping)
    chats = {_root(tree, span) for span in tree.ordered if _is_of_chat(span)}
    latest: dict[str, list[_Run]] = {}  # the runs of the latest turn, by scope
    joined: dict[str, str] = {}
    unclear: dict[str, str] = {}
    for span in spans:
        run = _run(span, tree, mapping, named)
        turn = latest.get(span.scope)
        if turn is None or (turn[-1].agent == run.agent and _root(tree, span) not in chats):
            latest[span.scope] = [run]
            continue
        known = {one.conversation for one in (turn[0], turn[-1], run)} - {None}
        decided = [one.was_asked_of(run) for one in (turn[0], *turn[1:][-MAX_COMPARED:])]
        root = _root(tree, span)
        in_chat = root in chats and root == _root(tree, turn[0].span) and False not in decided
        if (any(decided) or in_chat) and len(known) < 2:
            joined[span.span_id] = turn[0].span.span_id
            turn.append(run)
            continue
        follows = turn[-1].span.end_ns <= span.start_ns
        if None in decided and follows and turn[-1].is_named and run.is_named:
            unclear[span.span_id] = turn[0].span.span_id
        latest[span.scope] = [run]
    return joined, unclear


def _is_of_chat(span: Span) -> bool:
    """Whether the span is a message of a group chat, whose agents run beside each other."""
    return span.scope.startswith("autogen") and _CHAT.search(span.name) is not None


def messaged(tree: SpanTree, turns: Iterable[str]) -> Iterator[SpanProblem]:
    """Turns whose trace begins with a message of AutoGen's or Semantic Kernel's runtime.

    Each message has a trace of its own there, and so has each agent of a team.
    """
    for id in turns:
        root = tree.by_id[_root(tree, tree.by_id[id])]
        if root.scope.startswith(_RUNTIMES) and "messaging.operation" in root.attributes:
            message = (
                "its trace begins with a message between agents, and others of its turn may have "
                "traces of their own; put a span of the program around the turn"
            )
            yield SpanProblem(tree.by_id[id], "unrecognised", message)


def _root(tree: SpanTree, span: Span) -> str:
    while (outer := tree.parent(span)) is not None:
        span = outer
    return span.span_id


def sessions(tree: SpanTree, mapping: SpanMapping, turns: Iterable[str]) -> Iterator[SpanProblem]:
    """Turns that may be several: one agent runs in them again, and was asked something else.

    It is one turn if its span has a question or calls agents as tools, or if a model that it calls
    is asked nothing new after an answer.
    """
    nearest = tree.nearest_ancestor(Role.TURN, Role.TOOL)
    inside: dict[str, list[Span]] = {}
    for span in tree.with_role(Role.TURN, Role.MODEL):
        if (around := nearest.get(span.span_id)) is not None:
            inside.setdefault(around, []).append(span)
    for id in turns:
        span, row = tree.by_id[id], tree.rows[id]
        inner = inside.get(id, [])
        if row.is_group or len(inner) < 2 or question_of(span, row.query) is not None:
            continue
        models = [one for one in inner if tree.role(one) is Role.MODEL]
        if models:
            if _goes_on(models, tree):
                message = f"the models in {span.name!r} answered several questions"
                yield SpanProblem(span, "unrecognised", message)
            continue
        named = Names(tree, lambda _: None)
        order = sorted(inner, key=lambda one: (one.start_ns, one.span_id))
        runs = [_run(one, tree, mapping, named) for one in order]
        last: dict[str, int] = {}
        for place, later in enumerate(runs):
            at = last.get(later.agent)
            last[later.agent] = place
            if at is None:
                continue
            since = (runs[at], *runs[at + 1 : place][-MAX_COMPARED:])
            if all(earlier.was_asked_of(later) is False for earlier in since):
                message = (
                    f"{later.agent!r} runs several times in {span.name!r}, each time with another "
                    "question, which may be one turn or several"
                )
                yield SpanProblem(span, "unrecognised", message)
                break


def _goes_on(models: Iterable[Span], tree: SpanTree) -> bool:
    """Whether a model was asked again after another had answered: it then has that one's messages,
    its answer, and another message of the user."""
    answered: dict[bytes, str] = {}
    for span in sorted(models, key=lambda one: (one.start_ns, one.span_id)):
        row = tree.rows[span.span_id]
        histories = _histories(user_messages(span))
        earlier = [answered[one] for one in histories[:-1] if one in answered]
        if earlier:
            given = _given(span)
            if any(one in given for one in earlier):
                return True
        answer = answer_of(span, row.answer)
        if histories and answer is not None and not calls_tools(span, row.answer):
            answered[histories[-1]] = json.dumps(answer, ensure_ascii=False)[1:-1]
    return False


def _given(span: Span) -> str:
    """All that a model was given, as it is written in JSON."""
    parts = {name: value for name, value in span.attributes.items() if _PART.fullmatch(name)}
    messages = (span.value(name) for name in _MESSAGES)
    return json.dumps([parts, *map(_parsed, messages)], ensure_ascii=False, default=str)


def _parsed(value: Any) -> Any:
    return parse_value(value) if isinstance(value, str) else value


def several_questions(tree: SpanTree) -> Iterator[SpanProblem]:
    """A trace without a turn span that has several turns, as the messages of its models say.

    A later call then has the messages of an earlier one, an answer, and another of the user.
    """
    asked: set[bytes] = set()
    for span in sorted(tree.with_role(Role.MODEL), key=lambda one: (one.start_ns, one.span_id)):
        histories = _histories(user_messages(span))
        if not asked.isdisjoint(histories[:-1]):
            message = "its models were asked several questions of one conversation"
            yield SpanProblem(span, "unrecognised", message)
            return
        asked.update(histories[-1:])


def user_messages(span: Span) -> list[str]:
    """The texts of the user in the messages that a model was given, as far as they are recorded."""
    parts: dict[int, dict[str, Any]] = {}
    for name, value in span.attributes.items():
        if match := _PART.fullmatch(name):
            parts.setdefault(int(match[1] or match[2]), {})[match[3]] = value
    messages: Any = [parts[number] for number in sorted(parts)]
    for name in _MESSAGES if not messages else ():
        value = span.value(name)
        messages = messages or _parsed(value)
    if not isinstance(messages, list):
        return []
    asked = [one for one in messages if isinstance(one, dict) and one.get("role") in _USERS]
    texts = (_text(one.get("content", one.get("parts"))) for one in asked)
    return [one for one in texts if one]


def _text(content: Any) -> str:
    """The text of a message, without results of tools."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text", part.get("content")) for part in parts if _is_text(part))
    return "\n".join(one for one in texts if isinstance(one, str))


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type", "text") == "text"


def _histories(messages: Iterable[str]) -> list[bytes]:
    """Digests of the first message, of the first two, and so on."""
    digest = hashlib.blake2b(digest_size=16)
    found = []
    for one in messages:
        digest.update(hashlib.blake2b(text_form(one).encode(errors="replace")).digest())
        found.append(digest.digest())
    return found


def _run(span: Span, tree: SpanTree, mapping: SpanMapping, named: Names) -> _Run:
    row = tree.rows[span.span_id]
    asked, answered = question_of(span, row.query), answer_of(span, row.answer)
    name = agent_named(span, mapping, tree)
    return _Run(
        span,
        name or span.name,
        name is not None,
        named.nearest.get(span.span_id),
        text_form(asked) if asked else None,
        text_form(answered) if answered else None,
    )
