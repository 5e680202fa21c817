"""Reads questions, answers and names in the formats of different frameworks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from stream_metrics.core.telemetry.contents.documents import MAX_DEPTH
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.spans import Span, text

_ANSWERS: Final = ("ai", "assistant", "AIMessage")
_QUESTIONS: Final = ("human", "user", "HumanMessage")
_ANSWER_NAMES: Final = ("answer", "final_answer", "response", "output", "outputs", "text")
_QUESTION_NAMES: Final = ("question", "query", "input", "inputs", "user_input", "query_str", "task")


def answer_of(span: Span, names: Iterable[str]) -> str | None:
    """The answer in the first of these attributes that has one; None if none does.

    Of several messages it is the last one of a model.
    """
    return _first(span, names, _ANSWERS, _ANSWER_NAMES)


def question_of(span: Span, names: Iterable[str]) -> str | None:
    """The question in the first of these attributes that has one; None if none does.

    Of several messages it is the last one of a person.
    """
    return _first(span, names, _QUESTIONS, _QUESTION_NAMES)


def attribute_text(
    attributes: Mapping[str, Any], names: Iterable[str], longest: int = 0
) -> str | None:
    """The first of the attributes that has a text; ``name:key`` reads a key of an attribute's JSON.

    ``longest`` is the maximum length of the text; 0 means no limit.

    >>> attribute_text({"metadata": '{"thread_id": "t-1"}'}, ("session.id", "metadata:thread_id"))
    't-1'
    """
    for name in names:
        attribute, colon, part = (name, "", "") if name in attributes else name.partition(":")
        value = attributes.get(attribute)
        for _ in range(2):  # JSON, which some products encode twice
            value = parse_value(value) if colon and isinstance(value, str) else value
        if colon:
            value = value.get(part) if isinstance(value, dict) else None
        elif isinstance(value, str) and len(value) > 2 and value[0] == value[-1] == '"':
            value = value[1:-1]  # text that a product encoded as JSON
        written = text(value)
        if written is not None and (not longest or len(written) <= longest):
            return written
    return None


_CALLS: Final = re.compile(
    r""""(tool_calls|function_calls)\\*":\s*\[\s*\{|"type\\*":\s*\\*"(tool_call|tool_use)\\*"|"""
    r""""(tool_call|function_call)\\*":\s*\{|\bToolCall\("""
)
_FLATTENED_CALL: Final = re.compile(r"^llm\.output_messages\.\d+\.message\.tool_calls\.")


_HOSTED: Final = re.compile(
    r""""type\\*":\s*\\*"(file_search_call|web_search_call|server_tool_use|server_tool_call)\\*\""""
    r"""|"providerExecuted\\*":\s*true|"web_search_requests\\*":\s*[1-9]"""
    r"""|"(groundingMetadata|grounding_metadata)\\*":\s*\{.{0,400}?"""
    r"""(webSearchQueries|web_search_queries|groundingChunks|grounding_chunks)\\*":\s*\[\s*[^\s\]]""",
    re.DOTALL,
)
_ANSWERED: Final = (
    "gen_ai.output.messages",
    "ai.response.toolCalls",
    "gcp.vertex.agent.llm_response",
)
"""Attributes of answers, besides those that rows name."""
_SEARCHING_MODELS: Final = re.compile(
    r"(^|/)sonar|-search-(preview|api)|deep-research|:online$", re.IGNORECASE
)
"""Matches models that search whatever they are asked."""
_MODELS: Final = (
    "gen_ai.request.model",
    "gen_ai.response.model",
    "llm.model_name",
    "ai.model.id",
)
_NAME_OF_CALL: Final = re.compile(r"^llm\.output_messages\.\d+\.message\.tool_calls\..*\.name$")


LOST: Final = "lost_calls"
"""The attribute of a model's span whose answer limits cut off, in a trace whose tool calls stand in
answers."""
HOSTED: Final = "hosted_searches"
"""The attribute of a model's span whose host's searches have spans of their own."""


def has_hosted_search(span: Span, names: Iterable[str]) -> bool:
    """Whether a model's answer in these attributes contains searches that its host ran, and that no
    span stands for."""
    if HOSTED in span.attributes:
        return False
    if any(_SEARCHING_MODELS.search(name) for name in map(span.text, _MODELS) if name):
        return True
    for name, value in span.attributes.items():
        if name.endswith("web_search_requests") and type(value) is int and value > 0:
            return True
        if value in ("file_search_call", "web_search_call") and _NAME_OF_CALL.match(name):
            return True
    answers = (span.value(name) for name in dict.fromkeys((*names, *_ANSWERED)))
    return any(isinstance(answer, str) and _HOSTED.search(answer) for answer in answers)


def calls_tools(span: Span, names: Iterable[str]) -> bool:
    """Whether a model's answer in these attributes requests tool calls."""
    return any(_FLATTENED_CALL.match(name) for name in span.attributes) or any(
        isinstance(value := span.value(name), str) and _CALLS.search(value) for name in names
    )


_CALLED: Final = re.compile(r""""name\\*":\s*\\*"([^"\\]{1,200})""")


def called_tools(span: Span, names: Iterable[str]) -> list[str]:
    """The names of the tools that a model's answer requests, and possibly other names in it."""
    if not calls_tools(span, names):
        return []
    values = (span.value(name) for name in names)
    return [
        *(str(value) for name, value in span.attributes.items() if _NAME_OF_CALL.match(name)),
        *(name for value in values if isinstance(value, str) for name in _CALLED.findall(value)),
    ]


def _first(
    span: Span, names: Iterable[str], roles: tuple[str, ...], keys: tuple[str, ...]
) -> str | None:
    for name in names:
        value = span.value(name)
        message = _text(value, roles, keys, 0)
        if message is not None:
            return message
    return None


def _text(value: Any, roles: tuple[str, ...], keys: tuple[str, ...], depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, str):
        if value.lstrip().startswith(("{", "[", '"')):
            inner = parse_value(value)
            if inner is not None and not isinstance(inner, (int, float)):
                return _text(inner, roles, keys, depth + 1)
        return text(value)
    if isinstance(value, list):
        return _last_message(value, roles, depth)
    if not isinstance(value, dict):
        return None
    if (of_role := _message(value, roles)) is not None:
        return of_role
    generations = value.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[-1]
    if isinstance(generations, dict):
        return text(generations.get("text"))
    if isinstance(value.get("messages"), list):
        return _last_message(value["messages"], roles, depth)
    for name in keys:
        if value.get(name) is not None and (inner := _text(value[name], roles, keys, depth + 1)):
            return inner
    return None


def _last_message(value: list[Any], roles: tuple[str, ...], depth: int) -> str | None:
    for item in reversed(value):
        if isinstance(item, list):
            written = _last_message(item, roles, depth + 1) if depth < MAX_DEPTH else None
        else:
            written = _message(item, roles)
        if written is not None:
            return written
    return None


def _message(value: Any, roles: tuple[str, ...]) -> str | None:
    """The text of a message that has one of the roles; None otherwise."""
    if not isinstance(value, dict):
        return None
    inner = value.get("kwargs") if value.get("type") == "constructor" else value.get("data")
    if isinstance(inner, dict):
        value = {"role": value.get("role") or value.get("type"), **inner}
    if value.get("role") not in roles and value.get("type") not in roles:
        return None
    content = value.get("content", value.get("parts"))
    if isinstance(content, list):
        parts = [
            part.get("text") or part.get("content")
            for part in content
            if isinstance(part, dict) and part.get("type", "text") == "text"
        ]
        content = "\n".join(part for part in parts if isinstance(part, str))
    return text(content)
